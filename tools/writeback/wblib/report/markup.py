# SPDX-License-Identifier: GPL-2.0
"""Pieces of HTML: the macros of templates/parts.html.

Jinja2 escapes text wherever it comes in; ``Html`` is text that already is HTML.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup as Html

ENV = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")), autoescape=True,
                         trim_blocks=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
Text = str | Html
_parts: Any = ENV.get_template("parts.html").module
paragraph = _parts.paragraph
missing = _parts.missing
bullets = _parts.bullets
table = _parts.table
details = _parts.details
link = _parts.link
small = _parts.small
verdict = _parts.verdict
box = _parts.box
figure = _parts.figure
source = _parts.source


def join(parts: Iterable[Text], between: str = "") -> Html:
    """The parts one behind the other; ``between`` is HTML."""
    return Html(between).join(parts)
