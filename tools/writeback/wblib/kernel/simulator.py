# SPDX-License-Identifier: GPL-2.0
"""The simulator of ``wb law``: random disks and loads, and the program that runs a law in front of them.

The program below ``tools/testing/selftests/writeback/law`` is built from the kernel's file of a law
(blk-wbt-law.c, as the series brings it) and wbdisk's own models.
"""

import math
import random
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from wblib.base import fs, proc
from wblib.base.paths import SELFTESTS
from wbtop.errors import WbError

from . import patchqueue, upstream

KINDS = ("fifo", "ssd", "hdd")
# A share of the disk that readers take: so little that the writer's loss is not just what they get.
READ_SHARE = 0.05
# Runs of each disk without a law: as it is, with another load, with readers that do not wait.
PLAIN = ("none", "again", "open")
# Another load: its seed is so much higher, which no disk's is.
AGAIN = 1_000_000


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

    def axis(self) -> str:
        """What read-latency calls its kind of disk."""
        return {"fifo": "fifo", "ssd": "sata", "hdd": "hdd"}[self.kind]

    def only_simulated(self) -> bool:
        """Whether the kernel's wbdisk cannot be it: that neither misses nor hits."""
        return bool({"miss_ppm", "hit_ppm"} & self.load.keys())

    def replay(self) -> str:
        """The command that runs it with the whole kernel, if that can; steps of the rate are left out."""
        if self.only_simulated():
            return shlex.join(["wb", "law", "--disk", self.words("law").rpartition(" ")[0]])
        # KiB of a request and such are the disk's, the rest is the load.
        disk = ",".join(f"{k}={v}" for k, v in self.disk.items())
        return shlex.join(["wb", "run", "read-latency", "--kernel", "patched", "--lane", "fast", "--reader", "open",
                           "--disk", self.axis(), "--disk-set", disk,
                           "--writer", "buffered", "--readers", str(self.load["readers"]),
                           "--rate", str(self.load["iops"]), "--mib", str(self.load["mib"])])


PROFILES = {"fifo": "fifo", "ssd": "sata-ssd", "hdd": "hdd"}


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


def _late(seed: int) -> Case:
    """One of "any", but many readers, of whose reads some are late for a reason of their own, by 2 to 100 ms."""
    case, rnd = _any(seed), random.Random(-seed)
    load = {**case.load, "readers": int(_log(rnd, 4, 33)), "iops": int(_log(rnd, 5, 101)),
            # Behind a pace that is wrong for 2 s before it is doubted: longer than the others.
            "mib": min(7000, 4 * case.load["mib"]),
            "miss_ppm": int(_log(rnd, .05, 1) * 1e6), "miss_ns": int(_log(rnd, 2e6, 1e8))}
    return replace(case, load=load)


def _full(seed: int) -> Case:
    """Slow flash behind 0.1 to 0.8 s of buffer, which a writer fills, and many readers who ask rarely."""
    rnd = random.Random(seed)
    dies, prog, t_prog = rnd.choice([1, 2, 4]), rnd.choice([16, 32, 64]), _log(rnd, 5e5, 5e6)
    mbps = dies * prog * 1024e3 / t_prog
    disk = {"queue_depth": int(_log(rnd, 2, 257)), "queues": 1, "max_io_kib": rnd.choice([512, 1280]),
            "latency_ns": int(_log(rnd, 20e3, 200e3)), "link_mbps": int(_log(rnd, 500, 3000)), "channels": 1,
            "dies_per_channel": dies, "prog_kib": prog, "channel_mbps": max(400, int(4 * mbps)), "page_kib": 16,
            "t_prog_ns": int(t_prog), "t_read_ns": int(_log(rnd, 30e3, 100e3)),
            "write_buffer_kib": max(4 * prog * dies, int(mbps * 1e6 * _log(rnd, .1, .8) / 1024)),
            "write_cache": 1, "flush_drains": rnd.choice([0, 1])}
    load = {"readers": int(_log(rnd, 8, 33)), "iops": int(_log(rnd, 5, 21)), "mib": max(16, int(20 * mbps)),
            "seed": seed}
    return Case(seed, "ssd", disk, load)


def _hits(seed: int) -> Case:
    """One of "full", but some reads hit the disk's own cache and wait for nothing, and readers ask more often."""
    case, rnd = _full(seed), random.Random(-seed)
    return replace(case, load={**case.load, "iops": int(_log(rnd, 10, 101)), "hit_ppm": int(rnd.uniform(.3, .9) * 1e6)})


def _any(seed: int) -> Case:
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


# Disks of all kinds; those whose reads are late at any pace; those whose buffer is full, also with reads that do not
# have to wait for it. What tells all but the first apart is little, so that who changes one must look at the others.
SETS = {"any": _any, "late": _late, "full": _full, "hits": _hits}


def draw(seed: int, which: str = "any") -> Case:
    """Disk and load number ``seed`` of a set, one of SETS."""
    return SETS[which](seed)


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
