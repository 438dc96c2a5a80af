# SPDX-License-Identifier: GPL-2.0
"""The command ``wb report``."""

import argparse
from pathlib import Path

from wblib.base import venv
from wblib.base.paths import RESULTS
from wblib.base.proc import say
from wblib.results import store
from wbtop.errors import WbError

from . import GENERATOR, collect
from .plot import need_matplotlib

TITLE = "Writeback: read latency and throughput"
EXAMPLES = """\
examples:
  wb report                            everything below results/ into results/report/
  wb report stock patched              the latest results of two kernels
  wb report before.json after.json     files of 'wb run --json' or 'wb bench --json'
  wb report results/demo -o page       a part of the results, elsewhere
Leaves DIR/index.html, one page that needs no server and no network; DIR/figures
with its pictures as SVG (light and dark) and PNG; DIR/json with the results its
figures link to.  The same results give the same bytes.  Parts without data name
the command that makes it.  Documentation/results.md says how to read the plots.
exit code: 0, 1 when a result is missing or broken, 2 for wrong usage"""


def _check(out: Path) -> None:
    """WbError unless ``out`` is an earlier report's, empty, or not there."""
    if out.exists() and not out.is_dir():
        raise WbError(f"{out} is a file: -o names a directory, the page is index.html in it", 2)
    if not out.is_dir() or not any(out.iterdir()):
        return
    index = out / "index.html"
    if not index.is_file() or f'content="{GENERATOR}"' not in index.read_text(errors="replace")[:2000]:
        raise WbError(f"{out} is not empty and not a report: name another directory with -o", 2)


def _clean(out: Path) -> None:
    """Remove what an earlier report left in ``out``."""
    for old in [*(out / "json").glob("*/seed-*.json"), *(out / "figures").glob("*.svg"),
                *(out / "figures").glob("*.png")]:
        old.unlink()
    for empty in (out / "json").glob("*"):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()


def run(args: argparse.Namespace) -> int:
    """``wb report``."""
    out = Path(args.out) if args.out else RESULTS / "report"
    need_matplotlib()
    if not venv.has("jinja2"):
        raise WbError("Jinja2 not found: run 'make deps'")
    from . import page  # needs Jinja2
    from .sections import sources

    _check(out)
    data = collect.sort(collect.gather(args.results))
    if not any(c.measured(m) for c in data.cells for r in c.runs for m in r.metrics):
        raise WbError("none of these results measured anything: run some with 'wb bench demo'")
    text, parts, found = page.build(data, args.title)
    _clean(out)
    for path, content in sources.files(found).items():
        store.write_file(out / path, content)
    for picture in (p for s in parts for p in s.pictures):
        for name, content in ((f"{picture.name}.svg", picture.svg), (f"{picture.name}-dark.svg", picture.dark),
                              (f"{picture.name}.png", picture.png)):
            store.write_file(out / "figures" / name, content)
    store.write_file(out / "index.html", text.encode())  # last: it links to the others
    say(f"  wrote {out / 'index.html'}: {len(data.cells)} cells, {sum(len(s.pictures) for s in parts)} pictures, "
        f"{len(text) / 1e6:.1f} MB")
    return 0


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb report``."""
    p = sub.add_parser("report", help="results as one static page with pictures", epilog=EXAMPLES,
                       description="Write one static HTML page about RESULTS: read latency, what it costs the writer, "
                       "dirty memory over time, and the published incidents beside ours.",
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="*", metavar="RESULTS",
                   help="result directories of any depth, JSON files, kernels' names (default: all results)")
    p.add_argument("-o", "--out", metavar="DIR", help="directory to write (default: results/report)")
    p.add_argument("--title", default=TITLE, help="heading of the page")
    p.set_defaults(func=run)
