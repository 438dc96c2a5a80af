# SPDX-License-Identifier: GPL-2.0
"""``wb figures``: measure what the figures of the documentation are made from, and write them into the pages."""

import argparse
import difflib
import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from wblib.base import fs, proc
from wblib.base.paths import BUILD, PATCH_DIRS, RESULTS, ROOT
from wblib.base.proc import say
from wblib.catalog import axes as ax
from wblib.catalog import suites
from wblib.catalog.spec import specs
from wblib.catalog.suites import Job
from wblib.kernel import build, kconfig, upstream
from wblib.report import plot
from wblib.results import identity, store
from wblib.results.store import Result
from wblib.run import runner
from wblib.series import law
from wbtop.errors import WbError

from . import blocks
from .blocks import LAW, Block, Entry, Want

EXAMPLES = """\
examples:
  wb figures                        what would be measured again, and what differs
  wb figures --check                the same as in 'wb check --tier lint': exit code 1 if a figure is stale
  wb figures --refresh              measure what is stale, rewrite the pages
  wb figures --refresh block-ab     only the runs of this block
  wb figures --write                rewrite the pages from the data that are there
Blocks stand between '<!-- figures: NAME -->' and '<!-- end -->'; Documentation/results/figures.toml declares them."""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb figures``."""
    p = sub.add_parser("figures", help="figures of the documentation: check, measure, rewrite", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    what = p.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="exit code 1 if a figure is stale or edited by hand")
    what.add_argument("--refresh", action="store_true",
                      help="run what is stale, a guest per core, then rewrite the pages")
    what.add_argument("--write", action="store_true", help="rewrite the pages, run nothing")
    p.add_argument("block", nargs="*", metavar="NAME", help="only these blocks (default: all)")
    p.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    """``wb figures``."""
    spec = blocks.read_spec()
    for name in args.block:
        if name not in spec:
            near = difflib.get_close_matches(name, spec, 1)
            raise WbError(f"no block '{name}'" + (f": did you mean {near[0]}?" if near else ""), 2)
    chosen = [spec[name] for name in args.block or spec]
    if args.refresh and upstream.default_line() != upstream.LTS:
        raise WbError("BASE is set, but the figures name their kernel lines themselves: unset it", 2)
    if args.refresh:
        refresh(chosen)
    if args.refresh or args.write:
        for path in write_pages(chosen):
            say(f"  wrote {path.relative_to(ROOT)}")
    found = [(name, problem) for name, problem in blocks.lint() if problem and (not args.block or name in args.block)]
    for name, problem in found:
        print(f"{name}: {problem}")
    print(f"{len(chosen)} blocks, {len(found)} problems")
    return 1 if found and (args.check or args.refresh) else 0


def write_pages(chosen: Iterable[Block], root: Path = ROOT) -> list[Path]:
    """Write the text of the blocks whose data are there into the pages; returns those that changed."""
    data = blocks.read_data(root)
    made = {b.name: blocks.render(b, data) for b in chosen
            if not b.picture and not any(blocks.stale(b, w, data.get(w), root) for w in b.wants())}
    changed = []
    for path in blocks.pages(root):
        old = path.read_text()
        new = blocks.rewritten(old, made)
        if new != old:
            fs.write_atomic(path, new)
            changed.append(path)
    return changed


def refresh(chosen: Sequence[Block]) -> None:
    """Measure what is stale; forget what no block uses any more."""
    spec = blocks.read_spec()
    used = {w for b in spec.values() for w in b.wants()}
    data = blocks.read_data()
    _run_ahead(dict.fromkeys(w for b in chosen for w in b.wants() if blocks.stale(b, w, data.get(w))), spec.values())
    for block in chosen:
        for want in block.wants():
            if blocks.stale(block, want, blocks.read_data().get(want)):
                entry = _measure(block, want, spec.values())
                # Read again: another 'wb figures' may have measured something else meanwhile.
                blocks.write_data(blocks.read_data() | {want: entry})
    data = blocks.read_data()
    if not used >= data.keys():
        blocks.write_data({w: e for w, e in data.items() if w in used})
    for block in chosen:
        if block.picture and blocks.picture_problem(block, ROOT):
            _draw(block)


def _seeds(want: Want, every: Collection[Block]) -> list[int]:
    """Those of all blocks that take something of it."""
    return sorted({s for b in every if want in b.wants() for s in b.seeds})


def _run_ahead(wants: Iterable[Want], every: Collection[Block]) -> None:
    """Run the guests of ``wants``, one per core, the longest first; _measure() then finds their results."""
    found = [(want, _job(want, seed)) for want in wants if not _is_law(want) for seed in _seeds(want, every)]
    missing = [(want, job) for want, job in found if not _known(want, job)]
    # The exact lane is that of the estimate; the fast one takes less.
    missing.sort(key=lambda one: (one[0].lane == "fast", -ax.wall_s(one[1].case, one[1].axes)))
    runner.run_many([run for want, job in missing for run in specs([job], lane=want.lane)])
    _there.cache_clear()  # with what failed, too: it is not run again


def _is_law(want: Want) -> bool:
    return want.cell.split()[0] == LAW


def _measure(block: Block, want: Want, every: Collection[Block]) -> Entry:
    """Run ``want`` with all seeds and metrics that any block takes of it."""
    users = [b for b in every if want in b.wants()]
    seeds = _seeds(want, users)
    names = sorted({n for b in users for n in blocks.metrics_of(b, want)})
    say(f"{block.name}: {want.cell} on {want.kernel} ({want.lane})")
    if _is_law(want):
        rows = [_law(want)]
        seeds = block.seeds
    else:
        rows = [_metrics(r) for r in _runs(want, seeds)]
    patches = {} if want.stock else {f: blocks.patches_hash(f, want.line) for f in PATCH_DIRS}
    return Entry(blocks.base_version(want.line), patches, seeds,
                 {n: [row[n] for row in rows] if all(n in row for row in rows) else None for n in names},
                 blocks.disk_hash(), blocks.cpu_of(want), ax.script_hash(want.cell.split()[0]))


def _metrics(result: Result) -> dict[str, float]:
    tests = {f"tests_{kind}": float(sum(t["result"] == word for t in result.tests))
             for kind, word in (("passed", "pass"), ("failed", "fail"), ("skipped", "skip"))}
    return tests | {name: float(entry["value"]) for name, entry in result.metrics.items()}


@functools.cache
def _key(variant: str, lane: str) -> str:
    """The kernel that is run now, by content."""
    return build.build(variant, kconfig.UML if lane == "fast" else "slim").key


@functools.cache
def _there() -> dict[tuple[str, str, int, str, str, str], Result]:
    """Finished results by cell, kernel, seed, lane, kernel's key and the case's script."""
    found = {}
    for r in store.scan(RESULTS) if RESULTS.is_dir() else ():
        lane = identity.lane(r)
        if r.status in ("pass", "fail") and lane in ("fast", "exact"):
            words = " ".join([r.case, *(f"{k}={v}" for k, v in r.axes.items())])
            try:
                found[(blocks.cell(words), r.kernel, r.seed, lane, str(r.meta.get("image_hash")),
                       str(r.meta.get("script")))] = r
            except WbError:
                continue  # of a rig with other axes
    return found


def _job(want: Want, seed: int) -> Job:
    one = suites.cell(want.cell)
    plain = Job(one.case, dict(one.axes), seed, want.kernel)
    # A case that means nothing there in general may do so with these axes.
    return suites.in_lane(want.lane, plain) or plain


def _known(want: Want, job: Job) -> Result | None:
    words = " ".join([job.case, *(f"{k}={v}" for k, v in job.axes.items())])
    return _there().get((blocks.cell(words), want.kernel, job.seed, want.lane, _key(want.kernel, want.lane),
                         ax.script_hash(job.case)))


def _runs(want: Want, seeds: Sequence[int]) -> Iterator[Result]:
    for job in (_job(want, seed) for seed in seeds):
        result = _known(want, job) or runner.run_many(specs([job], lane=want.lane), parallel=1)[0]
        if result.status not in ("pass", "fail"):
            raise WbError(f"{want.cell} on {want.kernel}, seed {job.seed}: {result.status}, nothing to keep")
        yield result


def _law(want: Want) -> dict[str, float]:
    """A row of ``wb law``: one law, disks of one kind or all."""
    words = dict(w.split("=", 1) for w in want.cell.split()[1:])
    cases, found = _laws(words["seeds"])
    return law.distribution(words["law"], [r for c, r in zip(cases, found, strict=True)
                                           if words.get("kind", "all") in ("all", c.kind)])


@functools.cache
def _laws(seeds: str) -> tuple[list[law.Case], list[dict[str, dict[str, float]]]]:
    """Each disk with every law."""
    program = law.build(law.series_law(BUILD / "law"), BUILD / "law")
    cases = [law.draw(seed) for seed in suites.seeds(seeds)]
    return cases, law.run(program, cases, law.LAWS, proc.cpus())


def _draw(block: Block) -> None:
    """The picture of a block: CDFs of all its runs."""
    plot.need_matplotlib()
    found = [r for want in block.wants() for r in _runs(want, block.seeds)]
    path = ROOT / "Documentation" / block.picture
    plot.write_cdf(found, list(dict.fromkeys(w.kernel for w in block.wants())), path)
    kept = blocks.read_pictures()
    kept[block.picture] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:12],
                           "of": blocks.picture_sources(block)}
    fs.write_atomic(ROOT / blocks.DATA / blocks.PICTURES, json.dumps(kept, indent=1, sort_keys=True) + "\n")
