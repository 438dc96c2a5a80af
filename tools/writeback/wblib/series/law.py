# SPDX-License-Identifier: GPL-2.0
"""``wb law``: a control law of writeback throttling in front of a thousand random disks, in minutes.

The program below ``tools/testing/selftests/writeback/law`` is built from the kernel's file of a law
(blk-wbt-law.c, as the series brings it) and wbdisk's own models.  This
draws disks and loads by seed, runs each with every law, and
compares with the same disk on which only the tags bound what is in flight.
"""

import argparse
import json
import math
import os
import random
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from wblib.base import fs, proc
from wblib.base.paths import BUILD, SELFTESTS
from wblib.catalog.suites import seeds
from wblib.kernel import patchqueue, upstream
from wbtop.errors import WbError
from wbtop.stats import table

LAWS = ("requests", "share", "kyber", "law")
KINDS = ("fifo", "ssd", "hdd")
# A share of the disk that readers take: so little that the writer's loss is not just what they get.
READ_SHARE = 0.05
# What the reads' latency is compared with is no smaller than this: below, it is the host's.
FLOOR_MS = 0.05
DRAIN_LIMITS = (1.03, 1.10)
# Runs of each disk without a law: as it is, with another load, with readers that do not wait.
PLAIN = ("none", "again", "open")
# Another load: its seed is so much higher, which no disk's is.
AGAIN = 1_000_000
# Fixed limits of --limits: KiB of a request, requests in flight; and how many of these pairs a disk is run with.
REQUESTS_KIB = (64, 128, 256, 512, 1024, 2048, 4096)
IN_FLIGHT = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256)
PAIRS = 32
READS_LIMIT = 1.02
EXAMPLES = """\
examples:
  wb law                                 1000 disks, the law of the series and three others
  wb law --seeds 1-200 --law law --json r.json
  wb law --seeds 296 --print             what disk 296 is
  wb law --seeds 1-100 --law law --limits    where no fixed limit loses less without making reads slower
  wb law --disk 'disk=sata-ssd write_buffer_kib=65536 readers=4'   one of your own
Each disk is also run without any law but its tags: as it is ('none'), with other random numbers for the load ('again':
what is chance), and with readers that do not wait for each other's reads ('open'). Drain: time until all is written
and flushed, over that of none; 'bound': over that of open, which does the work of all reads that are due, too. Reads:
99.95th percentile since they were due, over that of none.
exit code: 0 done, 1 the program cannot be built or fails, 2 wrong usage"""


@dataclass(frozen=True)
class Case:
    """A disk and its load, as words of the simulator: name=value."""

    seed: int
    kind: str
    disk: dict[str, int]
    load: dict[str, int]
    steps: tuple[str, ...] = ()

    def words(self, law: str, *more: str) -> str:
        """The line of input that runs it with ``law``, or as one of PLAIN."""
        if law in PLAIN[1:]:
            more = (*more, "open=1" if law == "open" else f"seed={self.seed + AGAIN}")
            law = "none"
        named = {**self.disk, **self.load}
        return " ".join([f"disk={PROFILES[self.kind]}", *(f"{k}={v}" for k, v in named.items()),
                         *(f"step={s}" for s in self.steps), *more, f"law={law}"])

    def replay(self) -> str:
        """The command that runs it with the whole kernel; steps of the rate are left out."""
        # KiB of a request and such are the disk's, the rest is the load.
        disk = ",".join(f"{k}={v}" for k, v in self.disk.items())
        return shlex.join(["wb", "run", "read-latency", "--kernel", "patched", "--lane", "fast", "--reader", "open",
                           "--disk", {"fifo": "fifo", "ssd": "sata", "hdd": "hdd"}[self.kind], "--disk-set", disk,
                           "--writer", "buffered", "--readers", str(self.load["readers"]),
                           "--rate", str(self.load["iops"]), "--mib", str(self.load["mib"])])


PROFILES = {"fifo": "fifo", "ssd": "sata-ssd", "hdd": "hdd"}


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb law``."""
    p = sub.add_parser("law", help="try a law of writeback throttling on a thousand random disks, simulated",
                       epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", default="1-1000", metavar="LIST", help="disks, as 7 or 1-1000 (default 1-1000)")
    p.add_argument("--law", default=",".join(LAWS), metavar="NAMES",
                   help=f"laws to run beside none, of {', '.join(LAWS)} (default all; law is the series')")
    p.add_argument("--kernel", metavar="TREE",
                   help="kernel source with block/blk-wbt-law.c (default: the law of the series)")
    p.add_argument("--disk", metavar="WORDS", help="one disk and load instead of random ones: name=value ...")
    p.add_argument("--print", action="store_true", dest="show", help="print the disks instead of running them")
    p.add_argument("--limits", action="store_true",
                   help=f"also try up to {PAIRS} fixed limits on each disk: which loss could not be avoided by any?")
    p.add_argument("--worst", type=int, default=10, metavar="N", help="of each law, with a replay each (default 10)")
    p.add_argument("--json", metavar="FILE", help="all results into FILE, '-' for stdout")
    p.add_argument("-j", "--jobs", type=int, default=0, metavar="N", help="processes (default 0: one per core)")
    p.set_defaults(func=command)


# ---- random disks ------------------------------------------------------------


def _log(rnd: random.Random, low: float, high: float) -> float:
    """A number between ``low`` and ``high``, each power of two as likely as another."""
    return math.exp(rnd.uniform(math.log(low), math.log(high)))


def _fifo(rnd: random.Random, mbps: float, disk: dict[str, int]) -> tuple[str, ...]:
    """A link and a latency, perhaps with jitter, a cost per command, credit, or steps of its rate."""
    disk |= {"link_mbps": max(1, int(mbps)), "latency_ns": int(_log(rnd, 10e3, 10e6))}
    if rnd.random() < .3:
        disk["latency_jitter_ns"] = int(disk["latency_ns"] * _log(rnd, .1, 3))
    if rnd.random() < .15:
        disk["command_ns"] = int(_log(rnd, 5e3, 1e6))
    what = rnd.random()
    if what < .12:
        disk |= {"burst_mbps": max(2, int(mbps * _log(rnd, 1.5, 10))), "burst_mib": int(_log(rnd, 16, 2048))}
    if not .12 <= what < .25:
        return ()
    steps, at = [], 0
    for _ in range(rnd.randrange(1, 4)):
        at += rnd.randrange(300, 1000)
        steps.append(f"{at}:{max(1, int(mbps * _log(rnd, .05, 1)))}")
    return tuple(steps)


def _ssd(rnd: random.Random, mbps: float, disk: dict[str, int]) -> float:
    """Flash behind a buffer; returns the rate that its dies really have."""
    prog, t_prog = rnd.choice([16, 32, 64, 128]), _log(rnd, 1e5, 5e6)
    dies = max(1, min(256, round(mbps * t_prog / (prog * 1024e3))))
    channels = min(64, max(1, 2 ** int(math.log2(dies) / 2 + .5)))
    per_channel = max(1, min(64, round(dies / channels)))
    dies = channels * per_channel
    t_prog = int(min(dies * prog * 1024e3 / mbps, 2e7))
    mbps = dies * prog * 1024e3 / t_prog
    disk |= {
        "latency_ns": int(_log(rnd, 10e3, 1e6)), "link_mbps": max(1, int(mbps * _log(rnd, 1, 5))),
        "link_duplex": rnd.choice([0, 1]), "channels": channels, "dies_per_channel": per_channel, "prog_kib": prog,
        "channel_mbps": max(50, int(2 * mbps / channels)), "page_kib": min(16, prog), "t_prog_ns": t_prog,
        "t_read_ns": int(_log(rnd, 10e3, 100e3)),
        "write_buffer_kib": min(1 << 20, max(64, 2 * prog * dies, int(_log(rnd, 128, 1 << 20)))),
        "write_cache": rnd.choice([0, 1, 1]), "flush_drains": rnd.choice([0, 1]),
    }
    if rnd.random() < .15:
        disk |= {"slc_mib": int(mbps * rnd.uniform(.3, 1.2)) + 1, "t_prog_full_ns": int(t_prog * _log(rnd, 1.5, 6))}
    return mbps


def _hdd(rnd: random.Random, disk: dict[str, int]) -> float:
    """Platters and an arm."""
    outer = rnd.randrange(80, 260)
    disk |= {"queue_depth": min(disk["queue_depth"], 256), "queues": 1, "rpm": rnd.choice([5400, 7200, 10000]),
             "media_mbps_outer": outer, "media_mbps_inner": outer // 2, "write_cache": rnd.choice([0, 1, 1, 1]),
             "write_buffer_kib": int(_log(rnd, 1024, 65536)), "max_io_kib": rnd.choice([512, 1280])}
    return outer * .75


def _most_reads(kind: str, disk: dict[str, int], steps: Sequence[str]) -> tuple[float, float]:
    """IOPS that one reader can have, and all of them, without being a load of their own."""
    if kind == "hdd":
        return 20, 40
    slowest = min([disk["link_mbps"], *(int(s.split(":")[1]) for s in steps)]) * 1e6
    command = disk.get("command_ns", 0) / 1e9
    one = (disk["latency_ns"] + disk.get("latency_jitter_ns", 0) / 2 + disk.get("t_read_ns", 0)) / 1e9
    one += 4096 / slowest + command
    most = min(2 * READ_SHARE * disk["queue_depth"] / one, READ_SHARE * slowest / 4096)
    if command:
        most = min(most, READ_SHARE / command)
    if kind == "ssd":
        most = min(most, READ_SHARE * disk["channels"] * disk["dies_per_channel"] * 1e9 / disk["t_read_ns"])
    return .4 / one, most


def draw(seed: int) -> Case:
    """Disk and load number ``seed``."""
    rnd = random.Random(seed)
    kind = rnd.choices(KINDS, (45, 45, 10))[0]
    mbps = _log(rnd, 10, 7000)
    depth = min(max(int(_log(rnd, 1, 1025)), 1), 1024)
    disk = {"queue_depth": depth, "queues": rnd.choice([2, 4, 8, 16]) if depth >= 16 and rnd.random() < .4 else 1,
            "max_io_kib": rnd.choice([256, 512, 1280, 1280, 4096])}
    if rnd.random() < .3:
        disk["jitter_ppm"] = rnd.choice([50000, 200000, 500000])
    steps: tuple[str, ...] = ()
    if kind == "fifo":
        steps = _fifo(rnd, mbps, disk)
    else:
        mbps = _ssd(rnd, mbps, disk) if kind == "ssd" else _hdd(rnd, disk)
    # Two seconds, and a buffer that acknowledges early.
    mib = min(6000, max(16, int(2 * mbps * 1e6 / 2**20)))
    if kind == "ssd" and disk["write_cache"]:
        mib = min(7000, mib + min(disk["write_buffer_kib"] // 1024, int(3 * mbps)))
    readers, iops = int(_log(rnd, 1, 17)), int(_log(rnd, 2, 15) if kind == "hdd" else _log(rnd, 5, 1001))
    one, most = _most_reads(kind, disk, steps)
    iops = max(1, min(iops, int(one)))
    while readers * iops > most and iops > 1:
        iops //= 2
    load = {"readers": max(1, min(readers, int(most))), "iops": iops, "mib": mib, "seed": seed}
    if rnd.random() < .3:
        load["syncs"] = int(_log(rnd, 2, 100))
    return Case(seed, kind, disk, load, steps)


# ---- the simulator -----------------------------------------------------------


def series_law(out: Path) -> Path:
    """The kernel's files of the law, as the patches in block/ bring them, in a folder below ``out``."""
    place = out / "series"
    fs.remove(place)
    place.mkdir(parents=True)
    patches = [p for p in patchqueue.patches(line=upstream.LTS)
               if any("blk-wbt-law" in n for n in patchqueue.touched(p))]
    # Not the repository around build/: there git would leave out every file that is not below it.
    proc.run(["git", "apply", "--include=block/blk-wbt-law.[ch]", *patches], cwd=place,
             env={"GIT_CEILING_DIRECTORIES": str(out)}, what="taking the law from block/")
    return place / "block"


def build(law: Path, out: Path) -> Path:
    """Compile the simulator with the blk-wbt-law.c in the folder ``law``; returns the program."""
    if not (law / "blk-wbt-law.c").is_file():
        raise WbError(f"{law / 'blk-wbt-law.c'} is missing: --kernel names a tree that has it in block/", 2)
    proc.need("make", "make")
    proc.need("gcc", "gcc")
    out.mkdir(parents=True, exist_ok=True)
    # -B: times of files say nothing when another tree is named.
    done = subprocess.run(["make", "-s", "-B", "-C", str(SELFTESTS / "law"), f"KSRC={upstream.stock()}", f"LAW={law}",
                           f"O={out}", str(out / "wblaw")],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise WbError(f"the simulator does not build: {(done.stderr or done.stdout).strip()}")
    return out / "wblaw"


def simulate(program: Path, lines: Sequence[str], jobs: int) -> list[dict[str, float]]:
    """The results of each line, in order."""
    def part(number: int) -> list[str]:
        done = subprocess.run([str(program)], input="\n".join([*lines[number::jobs], ""]), capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise WbError(done.stderr.strip() or f"{program} ended with {done.returncode}",
                          2 if done.returncode == 2 else 1)
        return done.stdout.splitlines()

    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(part, range(jobs)))
    return [{k: float(v) for k, v in (word.split("=") for word in parts[i % jobs][i // jobs].split())}
            for i in range(len(lines))]


# ---- results -----------------------------------------------------------------


def compare(result: dict[str, float], none: dict[str, float]) -> tuple[float, float]:
    """Drain and the reads' percentile over those of ``none``, one of PLAIN."""
    # 0: no read came back while it wrote.
    worse = (result["due_p9995"] + FLOOR_MS) / (none["due_p9995"] + FLOOR_MS)
    return result["drain_s"] / none["drain_s"], worse if none["due_p9995"] else 0.0


def _at(values: Sequence[float], share: float) -> float:
    """Percentile of ``values``."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _row(name: str, kind: str, ratios: Sequence[tuple[float, float]], bound: Sequence[float]) -> list[str]:
    drain, reads = [r[0] for r in ratios], [r[1] for r in ratios]
    return [name, kind, str(len(ratios)), *(f"{_at(drain, q):.3f}" for q in (.5, .9, .99)), f"{max(drain):.2f}",
            *(str(sum(d > limit for d in drain)) for limit in DRAIN_LIMITS),
            *(str(sum(d > limit for d in bound)) for limit in DRAIN_LIMITS),
            *(f"{_at(reads, q):.3f}" for q in (.5, .9, .99)), str(sum(r > READS_LIMIT for r in reads))]


def report(cases: Sequence[Case], laws: Sequence[str], results: Sequence[dict[str, dict[str, float]]],
           worst: int) -> str:
    """Distribution of each law over all disks and each kind, and its worst disks."""
    head = ["law", "disks", "n", "drain p50", "p90", "p99", "max", *(f">{limit}" for limit in DRAIN_LIMITS),
            *(f"bound >{limit}" for limit in DRAIN_LIMITS), "reads p50", "p90", "p99", f">{READS_LIMIT}"]
    rows, text = [], []
    for law in ("again", *laws):
        ratios = [compare(r[law], r["none"]) for r in results]
        for kind in ("all", *KINDS) if law != "again" else ("all",):
            which = [i for i, case in enumerate(cases) if kind in ("all", case.kind)]
            if which:
                rows.append(_row(law, kind, [ratios[i] for i in which],
                                 [compare(results[i][law], results[i]["open"])[0] for i in which]))
        if law == "again":
            continue
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
    law_in = Path(args.kernel).absolute() / "block" if args.kernel else series_law(BUILD / "law")
    jobs = args.jobs or proc.cpus()
    program = build(law_in, BUILD / "law")
    if args.disk:
        for law in ("none", *laws):
            result = simulate(program, [f"{args.disk} law={law}"], 1)[0]
            print(f"{law:9}" + " ".join(f"{k}={v:g}" for k, v in result.items()))
        return 0
    cases = [draw(seed) for seed in seeds(args.seeds)]
    if args.show:
        print("\n".join(f"{case.seed}: {case.words('law')}" for case in cases))
        return 0
    runs = (*PLAIN, *laws)
    found = simulate(program, [case.words(law) for case in cases for law in runs], min(jobs, len(cases) * len(runs)))
    results = [dict(zip(runs, found[i * len(runs):], strict=False)) for i in range(len(cases))]
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
