# SPDX-License-Identifier: GPL-2.0
"""Pieces of HTML. Text is escaped here and nowhere else; ``Html`` is text that already is HTML."""

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """A string that is HTML."""

    __slots__ = ()


Text = str | Html


def esc(text: Text) -> Html:
    """``text`` as HTML."""
    return text if isinstance(text, Html) else Html(html.escape(text, quote=True))


def join(parts: Iterable[Text], between: str = "") -> Html:
    """The parts one behind the other; ``between`` is HTML."""
    return Html(between.join(esc(p) for p in parts))


def tag(name: str, *children: Text, **attrs: str | None) -> Html:
    """An element. ``class_`` is class; "_" in a name becomes "-"; an attribute that is None is left out."""
    words = "".join(f' {k.rstrip("_").replace("_", "-")}="{html.escape(v, quote=True)}"'
                    for k, v in attrs.items() if v is not None)
    return Html(f"<{name}{words}>{join(children)}</{name}>")


def paragraph(*children: Text, class_: str | None = None) -> Html:
    """A paragraph."""
    return tag("p", *children, class_=class_)


def code(text: str) -> Html:
    """A command on its own line; on a phone it wraps between its words, not at their hyphens."""
    return tag("pre", tag("code", join((tag("span", w) for w in text.split(" ")), " ")))


def missing(what: str, *commands: str) -> Html:
    """What stands where data is missing: what it would show, and the commands that make it."""
    return tag("div", paragraph(what), *(code(c) for c in commands), class_="missing")


def bullets(items: Sequence[Text]) -> Html:
    """A list."""
    return tag("ul", *(tag("li", i) for i in items))


def table(head: Sequence[Text], rows: Iterable[Sequence[Text]], left: int = 1, label: str = "",
          wrap: int | None = None, groups: bool = False, above: Sequence[tuple[Text, int]] = ()) -> Html:
    """A table that scrolls in its own box when it is wider than the page.

    left: so many columns are text; wrap: the one of them whose lines may break.
    groups: the first column is no column; where it is not empty, it is a line
    above its row.  above: texts over so many columns of the head each.
    """
    def line(cells_: Sequence[Text]) -> Html:
        if not groups:
            return tag("tr", cells("td", cells_))
        group = tag("tr", tag("th", cells_[0], class_="text group", colspan=str(len(head) - 1), scope="rowgroup"))
        return join([group if cells_[0] else "", tag("tr", cells("td", cells_[1:]))])

    left -= groups

    def cells(name: str, line: Sequence[Text]) -> Html:
        kind = ["text" if i < left else None for i in range(len(line))]
        if wrap is not None:
            kind[wrap] = "text label"
        return join(tag(name, c, class_=kind[i],
                        scope="col" if name == "th" else None) for i, c in enumerate(line))

    body = join((line(r) for r in rows), "\n")
    over = tag("tr", *(tag("th", text, colspan=str(span), scope="colgroup", class_="over") for text, span in above))
    made = tag("table", tag("thead", over if above else "", tag("tr", cells("th", head[groups:]))), tag("tbody", body))
    return tag("div", made, class_="wide", tabindex="0", role="region", aria_label=label or None)


def details(summary: Text, *children: Text) -> Html:
    """Folded away until it is asked for; needs no script."""
    return tag("details", tag("summary", summary), *children)
