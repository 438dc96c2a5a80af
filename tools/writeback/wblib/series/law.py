# SPDX-License-Identifier: GPL-2.0
"""``wb law``: a control law of writeback throttling in front of a thousand random disks, in minutes.

Draws disks and loads by seed, runs each with every law, and compares with the same disk on which only the tags bound
what is in flight.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wblib.base import fs, proc
from wblib.base.paths import BUILD
from wblib.catalog.suites import seeds
from wblib.kernel import sources
from wblib.kernel.simulator import KINDS, PLAIN, SETS, Case, build, draw, series_law, simulate
from wbtop import ranges
from wbtop.errors import WbError
from wbtop.stats import table

from . import law_agree

HZ = 1000  # of the kernels of the lanes
LAWS = ("requests", "share", "kyber", "vrate", "law")
# What the reads' latency is compared with is no smaller than this: below, it is the host's.
FLOOR_MS = 0.05
DRAIN_LIMITS = (1.03, 1.10)
# Fixed limits of --limits: KiB of a request, requests in flight; and how many of these pairs a disk is run with.
REQUESTS_KIB = (64, 128, 256, 512, 1024, 2048, 4096)
IN_FLIGHT = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256)
PAIRS = 32
READS_LIMIT = 1.02
EXAMPLES = """\
examples:
  wb law                                 1000 disks, the law of the series and four others
  wb law --seeds 1-200 --law law --json r.json
  wb law --seeds 296 --print             what disk 296 is
  wb law --seeds 1-100 --law law --limits    where no fixed limit loses less without making reads slower
  wb law --set full --seeds 1-120        what a full buffer shows is taken for a pace that is too low, or is not
  wb law --law law --hz 250              as on a kernel with CONFIG_HZ=250, whose windows are of whole ticks
  wb law --seeds 1-40 --agree            the same disks with the whole kernel, too: does the simulator say the same?
  wb law --disk 'disk=sata-ssd write_buffer_kib=65536 readers=4'   one of your own
Each disk is also run without any law but its tags: as it is ('none'), with other random numbers for the load ('again':
what is chance), and with readers that do not wait for each other's reads ('open'). Drain: time until all is written
and flushed, over that of none; 'bound': over that of open, which does the work of all reads that are due, too. Reads:
99.95th percentile since they were due, over that of none.
exit code: 0 done, 1 the program cannot be built or fails, 2 wrong usage"""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb law``."""
    p = sub.add_parser("law", help="try a law of writeback throttling on a thousand random disks, simulated",
                       epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", default="1-1000", metavar="LIST", help="disks, as 7 or 1-1000 (default 1-1000)")
    p.add_argument("--law", default=",".join(LAWS), metavar="NAMES",
                   help=f"laws to run beside none, of {', '.join(LAWS)} (default all; law is the series')")
    p.add_argument("--set", choices=SETS, default="any", dest="which",
                   help="disks of all kinds, those of whose reads some are late for a reason of their own, those "
                        "behind a small buffer that the writer fills, or the same with reads that need not wait for "
                        "it (default any)")
    p.add_argument("--kernel", metavar="TREE",
                   help="kernel source with block/blk-wbt-law.c (default: the law of the series)")
    p.add_argument("--disk", metavar="WORDS", help="one disk and load instead of random ones: name=value ...")
    p.add_argument("--hz", type=ranges.whole(24, 10000), default=HZ, metavar="N",
                   help=f"CONFIG_HZ of the kernel, ticks per second (24..10000, default {HZ})")
    p.add_argument("--print", action="store_true", dest="show", help="print the disks instead of running them")
    p.add_argument("--limits", action="store_true",
                   help=f"also try up to {PAIRS} fixed limits on each disk: which loss could not be avoided by any?")
    p.add_argument("--agree", action="store_true",
                   help="with the whole kernel, too (fast lane, patched): how many of the disks agree")
    p.add_argument("--worst", type=int, default=10, metavar="N", help="of each law, with a replay each (default 10)")
    p.add_argument("--json", metavar="FILE", help="all results into FILE, '-' for stdout")
    p.add_argument("-j", "--jobs", type=int, default=0, metavar="N", help="processes (default 0: one per core)")
    p.set_defaults(func=command)


# ---- results -----------------------------------------------------------------


def compare(result: dict[str, float], none: dict[str, float]) -> tuple[float, float]:
    """Drain and the reads' percentile over those of ``none``, one of PLAIN."""
    # 0: no read came back while it wrote.
    worse = (result["due_p9995"] + FLOOR_MS) / (none["due_p9995"] + FLOOR_MS)
    return result["drain_s"] / none["drain_s"], worse if none["due_p9995"] else 0.0


def _at(values: Sequence[float], share: float) -> float:
    """Percentile of ``values``."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def distribution(law: str, results: Sequence[dict[str, dict[str, float]]]) -> dict[str, float]:
    """Of ``law`` on some disks: how many, percentiles of drain and reads over those of none, disks above the limits."""
    ratios = [compare(r[law], r["none"]) for r in results]
    drain, reads = [r[0] for r in ratios], [r[1] for r in ratios]
    bound = [r[law]["drain_s"] / r["open"]["drain_s"] for r in results]
    found: dict[str, float] = {"disks": len(results), "drain_max": max(drain)}
    for q in (50, 90, 99):
        found |= {f"drain_p{q}": _at(drain, q / 100), f"reads_p{q}": _at(reads, q / 100)}
    for name, limit in zip(("small", "large"), DRAIN_LIMITS, strict=True):
        found |= {f"over_{name}": sum(d > limit for d in drain), f"bound_{name}": sum(d > limit for d in bound)}
    return found | {"reads_worse": sum(r > READS_LIMIT for r in reads)}


def _row(name: str, kind: str, told: dict[str, float]) -> list[str]:
    return [name, kind, str(told["disks"]), *(f"{told[f'drain_p{q}']:.3f}" for q in (50, 90, 99)),
            f"{told['drain_max']:.2f}",
            *(str(told[n]) for n in ("over_small", "over_large", "bound_small", "bound_large")),
            *(f"{told[f'reads_p{q}']:.3f}" for q in (50, 90, 99)), str(told["reads_worse"])]


def run(program: Path, cases: Sequence[Case], laws: Sequence[str], jobs: int) -> list[dict[str, dict[str, float]]]:
    """Each disk as each of PLAIN and with each of ``laws``."""
    runs = (*PLAIN, *laws)
    found = simulate(program, [case.words(law) for case in cases for law in runs], min(jobs, len(cases) * len(runs)))
    return [dict(zip(runs, found[i * len(runs):], strict=False)) for i in range(len(cases))]


def report(cases: Sequence[Case], laws: Sequence[str], results: Sequence[dict[str, dict[str, float]]],
           worst: int) -> str:
    """Distribution of each law over all disks and each kind, and its worst disks."""
    head = ["law", "disks", "n", "drain p50", "p90", "p99", "max", *(f">{limit}" for limit in DRAIN_LIMITS),
            *(f"bound >{limit}" for limit in DRAIN_LIMITS), "reads p50", "p90", "p99", f">{READS_LIMIT}"]
    rows, text = [], []
    for law in ("again", *laws):
        for kind in ("all", *KINDS) if law != "again" else ("all",):
            which = [r for case, r in zip(cases, results, strict=True) if kind in ("all", case.kind)]
            if which:
                rows.append(_row(law, kind, distribution(law, which)))
        if law == "again":
            continue
        ratios = [compare(r[law], r["none"]) for r in results]
        order = sorted(range(len(cases)), key=lambda i: (-ratios[i][0], cases[i].seed))
        for i in order[:worst]:
            mine, none = results[i][law], results[i]["none"]
            text.append(f"{law}: drain {ratios[i][0]:.2f} ({none['drain_s']:.2f} -> {mine['drain_s']:.2f} s), reads "
                        f"p99.95 {none['p9995']:.2f} -> {mine['p9995']:.2f} ms, disk {cases[i].seed}"
                        f"{' (steps ' + ' '.join(cases[i].steps) + ')' if cases[i].steps else ''}\n"
                        f"  {cases[i].replay()}")
    return "\n".join([table(head, rows), "", f"the worst {worst} of each", *text]) if worst else table(head, rows)


def fixed_limits(case: Case) -> list[str]:
    """Lines of fixed limits that fill the disk and its tags; none for a disk with an arm, to which laws do nothing."""
    if case.kind == "hdd":
        return []
    tags = case.disk["queue_depth"] * case.disk["queues"]
    pipe = case.disk["link_mbps"] * case.disk["latency_ns"] / 1e3 / 1024
    pairs = [(io, n) for io in REQUESTS_KIB if io <= case.disk["max_io_kib"] for n in IN_FLIGHT
             if n <= tags and (n > 1 or tags == 1) and .4 * pipe <= io * n <= 1 << 18]
    step = max(1.0, len(pairs) / PAIRS)
    pairs = [pairs[int(i * step)] for i in range(min(len(pairs), PAIRS))]
    return [case.words("fixed", f"limit_kib={io * n}", f"io_kib={io}") for io, n in pairs]


def best_fixed(law: dict[str, float], fixed: Sequence[dict[str, float]]) -> float | None:
    """Least drain of fixed limits with which reads are hardly later than with ``law``; None: of none of them."""
    return min((f["drain_s"] for f in fixed if f["due_p9995"] <= 1.1 * law["due_p9995"] + FLOOR_MS), default=None)


def limits(cases: Sequence[Case], laws: Sequence[str], results: Sequence[dict[str, dict[str, float]]],
           fixed: Sequence[Sequence[dict[str, float]]]) -> str:
    """Of the disks that lose much with each law: on how many any fixed limit would that is as good for reads."""
    rows = []
    for law in laws:
        for limit in DRAIN_LIMITS:
            lost = [i for i, r in enumerate(results) if r[law]["drain_s"] > limit * r["none"]["drain_s"] and fixed[i]]
            best = [best_fixed(results[i][law], fixed[i]) for i in lost]
            rows.append([law, f"{limit}", str(len([f for f in fixed if f])), str(len(lost)),
                         str(sum(b is None or b > limit * results[i]["none"]["drain_s"]
                                 for i, b in zip(lost, best, strict=True)))])
    return table(["law", "drain >", "disks", "lose more", "with any fixed limit, too"], rows)


def _laws(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in LAWS:
            raise WbError(f"no law '{name}': choose from {', '.join(LAWS)}", 2)
    return names or list(LAWS)


def command(args: argparse.Namespace) -> int:
    """``wb law``."""
    laws = _laws(args.law)
    # A number alone is that disk: its replay and --print name it so.
    drawn = seeds(f"{args.seeds}-{args.seeds}" if args.seeds.isdecimal() else args.seeds)
    law_in = Path(args.kernel).absolute() / "block" if args.kernel else series_law(BUILD / "law")
    jobs = args.jobs or proc.cpus()
    program = build(law_in, BUILD / "law")
    if args.disk is not None:
        if not args.disk.strip():
            raise WbError("--disk: no words: name=value ..., as --print shows them", 2)
        for law in ("none", *laws):
            result = simulate(program, [f"{args.disk} law={law}"], 1)[0]
            print(f"{law:9}" + " ".join(f"{k}={v:g}" for k, v in result.items()))
        return 0
    cases = [draw(seed, args.which) for seed in drawn]
    if args.hz != HZ:
        cases = [replace(case, load={**case.load, "hz": args.hz}) for case in cases]
    if args.show:
        print("\n".join(f"{case.seed}: {case.words('law')}" for case in cases))
        return 0
    if args.agree and any(case.only_simulated() for case in cases):
        raise WbError("--agree: the modelled disk of the kernel neither misses nor hits: leave out "
                      f"--set {args.which}", 2)
    if args.agree and args.hz != HZ:
        raise WbError(f"--agree: the kernel of the fast lane has HZ={HZ}: leave out --hz", 2)
    if args.agree:
        print(law_agree.report(law_agree.compare(program, cases, sources.named("patched"), jobs)))
        return 0
    results = run(program, cases, laws, jobs)
    fixed: list[list[dict[str, float]]] = []
    if args.limits:
        lines = [fixed_limits(case) for case in cases]
        all_fixed = iter(simulate(program, [line for some in lines for line in some], jobs))
        fixed = [[next(all_fixed) for _ in some] for some in lines]
    if args.json:
        text = json.dumps([{"seed": c.seed, "kind": c.kind, "disk": c.disk, "load": c.load, "steps": c.steps,
                            "results": r} for c, r in zip(cases, results, strict=True)], indent=1)
        if args.json == "-":
            print(text)
        else:
            fs.write_atomic(Path(args.json), text + os.linesep)
    if args.json != "-":
        print(report(cases, laws, results, args.worst))
        if args.limits:
            print("\n" + limits(cases, laws, results, fixed))
    return 0
