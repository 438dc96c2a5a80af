# SPDX-License-Identifier: GPL-2.0
"""What a part of the page is made of."""

import base64
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .collect import Data
from .markup import Html, Text, figure, missing
from .theme import DPI, WIDTH_IN, Drawn


@dataclass
class Section:
    """One part: a heading and its body. ident: of the heading's anchor; pictures: those in the body."""

    ident: str
    title: str
    body: Html
    pictures: list[Drawn] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether the body only says which commands would fill it."""
        return not self.pictures and 'class="missing"' in self.body and "<table" not in self.body \
            and "<figure" not in self.body


def lacking_runs(case: str, there: Iterable[str], data: Data, axes: Sequence[str] = (), what: str = "") -> Html:
    """The commands that run ``case`` with ``axes`` on the kernels that are not ``there``; nothing if all are."""
    lacking = [k for k in data.expected if k not in there]
    if not lacking:
        return Html("")
    made: Html = missing(
        f"No run of {case} on {' and '.join(lacking)}{what} is among the results. This makes one:",
        *(shlex.join(["wb", "run", case, "--kernel", k, *axes]) for k in lacking))
    return made


def _inline(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _height(picture: Drawn) -> int:
    """Of the PNG, whose header has it: so that the page does not jump while it loads."""
    return round(int.from_bytes(picture.png[20:24]) * WIDTH_IN * 100 / (WIDTH_IN * DPI))


def shown(picture: Drawn, caption: Text) -> Html:
    """A picture in the page, of the scheme that the browser asks for, with links to its files."""
    made: Html = figure(picture.name, picture.alt, caption, _inline(picture.svg), _inline(picture.dark),
                        round(WIDTH_IN * 100), _height(picture))
    return made
