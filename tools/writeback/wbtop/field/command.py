# SPDX-License-Identifier: GPL-2.0
"""``wb field``: prove a setting, or a kernel, on this machine's own disk; one page and one JSON to send."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wbtop import VERSION, ranges, ranksum
from wbtop.cli import given
from wbtop.errors import WbError
from wbtop.machine import Machine, in_container
from wbtop.proc import LOCK, alone, say, uninterrupted
from wbtop.stats import median, number, table
from wbtop.tune import facts as tune_facts
from wbtop.tune import left
from wbtop.tune.facts import Facts
from wbtop.tune.measure import remove_stale, scratch, size_mib
from wbtop.watch import sample as samples

from . import page
from .load import Load, fitting_mib

FORMAT = 1
NO_ID = "neither /etc/machine-id nor a product_uuid (systemd-machine-id-setup makes the first)"
KEY = re.compile(r"vm\.dirty_(?:background_)?(?:bytes|ratio)|queue\.(?:iosched\.)?[a-z_]+|bdi\.[a-z_]+")
EXAMPLES = """\
examples:
  sudo wb field /srv --b queue.scheduler=none,queue.max_sectors_kb=128
                                  now against these settings, in turns; puts back what was
  sudo wb field /srv --out a      measure this kernel alone; boot the other one, then write as much with it:
  sudo wb field /srv --like a/field.json --out b
  wb field --compare a/field.json b/field.json    the two boots, matched by machine id and disk
  sudo wb field /srv --b queue.wbt_lat_usec=0 --repeats 8 --anonymize
settings: vm.dirty_bytes=N, vm.dirty_ratio=N, vm.dirty_background_bytes=N,
vm.dirty_background_ratio=N, queue.NAME=VALUE of the disk, bdi.NAME=VALUE
Each turn writes the same bytes through the page cache, once beside 4-KiB reads and
once beside 4-KiB appends with fdatasync.  At most 3 x --max-mib are on the disk at a
time; all of it is removed, also on Ctrl-C, which keeps the turns that are finished.
What a killed run has left set is put back by the next one, so --a and --b are
refused in a container, which may not see it.  Nothing is sent anywhere.
The verdict is an exact rank-sum test (Holm's correction); it says when the machine
is too noisy to decide.
exit code: 0 measured, 1 when something failed, 2 for wrong usage, 130 interrupted"""


def register(sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``wb field``."""
    p = sub.add_parser("field", help="prove A against B on this machine's disk, and make a file to send",
                       epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", metavar="DIR", nargs="?", help="a directory on the disk to measure")
    p.add_argument("--a", default="", metavar="K=V,...", help="settings of A (default: as they are)")
    p.add_argument("--b", default="", metavar="K=V,...", help="settings of B (default: no B)")
    p.add_argument("--repeats", type=ranges.whole(1, 50), default=6, metavar="N",
                   help="turns of each (1..50, default 6; from 6 on a verdict is possible)")
    p.add_argument("--max-mib", type=ranges.whole(16, 1 << 20), default=512, metavar="MIB",
                   help="bytes per write, at most a tenth of the free space (16..1048576, default 512)")
    p.add_argument("--like", metavar="FIRST.json", help="write as many bytes as that field.json did, so that --compare "
                   "takes both; instead of --max-mib")
    p.add_argument("--max-seconds", type=ranges.number(0, 86400, above=True), default=300.0, metavar="S",
                   help="time for all turns together; sizes follow (above 0, at most 86400, default 300)")
    p.add_argument("--out", metavar="PATH", help="directory of the two files (default: wb-field-DATE here); a new "
                   "one is made if it exists, for . or .. a wb-field-DATE in it")
    p.add_argument("--anonymize", action="store_true", help="leave out names: host, paths, model, serial, cgroup")
    p.add_argument("--compare", nargs=2, metavar=("A.json", "B.json"), help="compare two field.json")
    p.add_argument("--json", action="store_true", help="the JSON on stdout, too")
    p.set_defaults(func=run, default=p.get_default)


# ---- settings ---------------------------------------------------------------------------------

def settings(text: str, facts: Facts) -> dict[str, str]:
    """"K=V,..." as file -> value; WbError (code 2) for what is not a setting of this machine."""
    found = {}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not equals or not KEY.fullmatch(key) or not re.fullmatch(r"[A-Za-z0-9_.-]+", value):
            raise WbError(f"{word}: not a setting: vm.dirty_bytes, vm.dirty_ratio, vm.dirty_background_bytes, "
                          "vm.dirty_background_ratio, queue.NAME or bdi.NAME, each with =VALUE", 2)
        group, _, name = key.partition(".")
        name = name.replace(".", "/")
        if group == "bdi" and facts.bdi is None:
            raise WbError(f"{key}: this file system has no bdi of its own", 2)
        files = [f"/proc/sys/vm/{name}"] if group == "vm" else [facts.bdi.file(name)] if group == "bdi" and facts.bdi \
            else [d.queue(name) for d in facts.disks]
        for file in files:
            if not os.access(file, os.W_OK):
                raise WbError(f"{key}: {file} is not there or not writable: see --help, and run as root", 2)
            # 6.18 takes a name that it does not know as none.
            if name == "scheduler" and value not in (known := Machine().choices(file)):
                raise WbError(f"{key}: {file} has {' '.join(known)}, not {value}; it may be in a module: "
                              f"modprobe {value}-iosched", 2)
            found[file] = value
    return found


def _write(file: str, value: str) -> None:
    """Set it; WbError when the kernel refuses, or takes it and does nothing, or something else."""
    before = left.value(Machine(), file)
    try:
        Path(file).write_text(value)
    except OSError as exc:
        raise WbError(f"{file} does not take {value}: {exc.strerror}") from exc
    now = left.value(Machine(), file)
    if now != value and (now == before or file.endswith("/scheduler") or file.startswith("/proc/")):
        raise WbError(f"{file} does not take {value}: it reads {now} after {before}")


def _set(side: dict[str, str]) -> dict[str, str]:
    """Set those of a side, the scheduler first, as it resets others; returns what reads as another value than asked."""
    for file in sorted(side, key=lambda f: not f.endswith("/scheduler")):
        _write(file, side[file])
    now = {file: left.value(Machine(), file) for file in side}
    return {file: value for file, value in now.items() if value != side[file]}


def _label(text: str, rows: list[dict[str, Any]], side: str) -> str:
    """The settings of a side as they were asked for, and those that the kernel made something else of."""
    other = {f: v for row in rows if row["side"] == side for f, v in row.get("in_force", {}).items()}
    said = [f"{'/'.join(f.split('/')[-2:])} was {v}" for f, v in other.items()]
    return (text or "as it was") + (f" (in force: {', '.join(said)})" if said else "")


@contextlib.contextmanager
def kept(machine: Machine, sides: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """The values of what ``sides`` set, and of what that resets, written back at the end, also on Ctrl-C.

    WbError if that does not work.
    """
    files = sorted({f for s in sides.values() for f in s})
    if not files:
        yield {}
        return
    more = {p for f in files for p in _partners(machine, f)}
    kept_as = [_kept_as(machine, f) for f in files]
    before = {f: v for f in dict.fromkeys([*kept_as, *sorted(more)]) if (v := left.value(machine, f)) != ""}
    left.record(machine, before, sides)
    try:
        yield before
    finally:
        try:
            _put_back(machine, before)
        except KeyboardInterrupt:  # before it began
            _put_back(machine, before)
            raise


def _put_back(machine: Machine, before: Mapping[str, str]) -> None:
    with uninterrupted():
        if failed := left.restore(machine, before):
            raise WbError(f"settings could not be put back: {', '.join(failed)}; {left.RECORD} has them")
        left.forget(machine)


def _kept_as(machine: Machine, file: str) -> str:
    """The file that brings back what a write to ``file`` changes.

    A bdi's limits are one share in parts per million: as bytes it reads as another number
    whenever the dirty limit moves, and that number written is another share, or refused.
    """
    match = re.fullmatch(r"(.*/bdi/[^/]+)/(min|max)_(?:bytes|ratio|ratio_fine)", file)
    share = machine.number(f"{match[1]}/{match[2]}_ratio_fine") if match else None
    if not match or share is None:
        return file
    # The series keeps bytes that were set as bytes.
    exact = match[2] == "max" and share < 1_000_000 and machine.exists(f"{match[1]}/dirty_throttled_usec")
    return f"{match[1]}/max_bytes" if exact else f"{match[1]}/{match[2]}_ratio_fine"


def _partners(machine: Machine, file: str) -> list[str]:
    """What a write to ``file`` changes besides: bytes undo a ratio, a scheduler sets its defaults."""
    if match := re.fullmatch(r"(/proc/sys/vm/dirty_(?:background_)?)(bytes|ratio)", file):
        return [match[1] + ("ratio" if match[2] == "bytes" else "bytes")]
    queue, _, name = file.rpartition("/")
    return [f"{queue}/wbt_lat_usec", *tune_facts.reset_by_scheduler(machine, queue)] if name == "scheduler" else []


# ---- what the machine is -------------------------------------------------------------------------

def machine_id(machine: Machine) -> str:
    """Tells one machine from another without telling which; /etc/machine-id itself is not to leave the machine."""
    text = machine.text("/etc/machine-id") or ""
    if text in ("", "uninitialized"):  # machine-id(5): of an image that was not booted
        text = machine.text("/sys/class/dmi/id/product_uuid") or ""
    return hashlib.sha256(b"calm-writeback field " + text.encode()).hexdigest()[:16] if text else ""


def disk_id(disks: list[dict[str, Any]]) -> str:
    """Tells the disks without telling which, whatever the order of their names."""
    known = sorted(str(d["identity"] or d["model"]) + str(d["size_bytes"]) for d in disks)
    return hashlib.sha256("|".join(known).encode()).hexdigest()[:16]


def describe(machine: Machine, facts: Facts, anonymize: bool) -> dict[str, Any]:
    """Hardware, kernel, mount, settings and cgroup."""
    cpu = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.*)", machine.text("/proc/cpuinfo") or "", re.MULTILINE)
    options = next((",".join(dict.fromkeys(f"{line.split(' - ')[0].split()[5]},{line.split()[-1]}".split(",")))
                    for line in (machine.text("/proc/self/mountinfo") or "").splitlines()
                    if line.split()[4] == facts.mountpoint and " - " in line), "")
    group = samples.cgroup_of(machine, os.getpid())
    limits = {n: machine.text(f"{samples.cgroup_root(machine)}{group}/{n}") for n in ("memory.max", "memory.high")}
    disks = [{"name": d.name, "model": d.model, "scheduler": d.scheduler, "rotational": d.rotational, "usb": d.usb,
              "identity": "=".join(d.identity) if d.identity else None, "max_sectors_kb": d.max_sectors_kb,
              "nr_requests": d.nr_requests, "wbt_lat_usec": d.wbt_lat_usec, "wbt_policy": d.wbt_policy,
              "size_bytes": (machine.number(f"/sys/block/{d.name}/size") or 0) * 512} for d in facts.disks]
    found: dict[str, Any] = {
        "machine": machine_id(machine), "host": os.uname().nodename, "release": facts.release,
        "version": machine.text("/proc/sys/kernel/version"), "cmdline": machine.text("/proc/cmdline"),
        "arch": os.uname().machine, "cpu": cpu[1] if cpu else None, "cpus": os.cpu_count(), "memory_bytes": facts.ram,
        "directory": facts.directory, "mountpoint": facts.mountpoint, "source": facts.source, "fs": facts.fs,
        "mount_options": options, "disks": disks, "vm": facts.vm, "cgroup": group, "cgroup_limits": limits,
        "disk_id": disk_id(disks),
    }
    if anonymize:
        for key in ("host", "cmdline", "directory", "mountpoint", "source", "cgroup", "version"):
            found[key] = None
        for disk in disks:
            disk["model"] = disk["identity"] = None
        found["mount_options"] = ",".join(o for o in options.split(",") if "/" not in o and ":" not in o)
    return found


# ---- measuring -------------------------------------------------------------------------------------

def _turns(repeats: int, both: bool) -> list[str]:
    """ABBA: what drifts, drifts for both."""
    return [s for n in range(repeats) for s in ("AB" if n % 2 == 0 else "BA")] if both else ["A"] * repeats


def measure(directory: Path, machine: Machine, sides: dict[str, dict[str, str]], args: argparse.Namespace,
            ) -> Iterator[tuple[dict[str, Any], int]]:
    """Each turn when it is over: side, metrics, PSI and load; and the MiB of one write."""
    remove_stale(directory, say)
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    mib = _same_mib(args.like, free) if args.like else 0
    turns = _turns(args.repeats, "B" in sides)
    each = args.max_seconds / (len(turns) + 1)
    with kept(machine, sides) as before, scratch(directory) as place:
        for side in sides.values():  # that one is refused is known before anything is measured
            _set(side)
            left.restore(machine, before)
        mib = mib or fitting_mib(place, size_mib(args.max_mib, free), each / 4)
        load = Load(place, mib)
        load.run(each)  # the first one fills caches and estimates; it does not count
        for n, side in enumerate(turns, 1):
            if failed := left.restore(machine, before):
                raise WbError(f"{failed[0]} cannot be put back, so that no turn would be one of {side}")
            other = _set(sides[side])
            stalled = dict(samples._pressure(machine)).get("cpu", {}).get("some", 0)
            start = time.monotonic()
            got = load.run(each)
            seconds = time.monotonic() - start
            busy = (dict(samples._pressure(machine)).get("cpu", {}).get("some", 0) - stalled) / seconds / 1e4
            say(f"  turn {n} of {len(turns)}, {side}: read p99 {number(got.get('read_p99_ms'))} ms, "
                f"drain {number(got['drain_s'])} s")
            yield {"side": side, "metrics": {k: round(v, 4) for k, v in got.items()},
                   "cpu_stalled_pct": round(busy, 1), "load": os.getloadavg()[0],
                   **({"in_force": other} if other else {})}, mib


def _same_mib(like: str, free: int) -> int:
    """The MiB of one write of a field.json; WbError (code 2) when three of them do not fit."""
    mib = load(Path(like)).get("mib")
    if not isinstance(mib, int) or mib < 1:
        raise WbError(f"--like {like}: not a whole field.json of this wb", 2)
    if 3 * mib << 20 > free:
        raise WbError(f"--like {like}: wrote {mib} MiB at a time, three of which need more than the {free >> 20} MiB "
                      "that are free: make room, or measure the first one again with --max-mib", 2)
    return mib


def series(rows: list[dict[str, Any]], side: str) -> dict[str, list[float]]:
    """Metric -> its values over the turns of a side, where all of them have it."""
    mine = [r["metrics"] for r in rows if r["side"] == side]
    return {k: [m[k] for m in mine] for k in (mine[0] if mine else {}) if all(k in m for m in mine)}


def _out(text: str | None) -> Path:
    """A directory that was not there before."""
    wanted = Path(text or time.strftime("wb-field-%Y%m%d-%H%M%S"))
    if wanted.name in ("", ".."):  # ., .. and / have no name to make a new one from
        wanted /= time.strftime("wb-field-%Y%m%d-%H%M%S")
    for n in range(1, 1000):
        path = wanted if n == 1 else wanted.with_name(f"{wanted.name}.{n}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            continue
        except FileNotFoundError as exc:
            raise WbError(f"--out {wanted}: its directory is not there", 2) from exc
    raise WbError(f"--out {wanted}: a thousand of them exist", 2)


def result(facts: dict[str, Any], labels: dict[str, str], rows: list[dict[str, Any]], mib: int) -> dict[str, Any]:
    """The JSON, with verdicts if there are two sides."""
    a, b = series(rows, "A"), series(rows, "B")
    verdicts = [v.to_json() for v in ranksum.compare(a, b)] if b else []
    return {"format": FORMAT, "wb": VERSION, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "facts": facts,
            "sides": labels, "mib": mib, "turns": rows, "verdicts": verdicts, "conclusion": conclusion(verdicts),
            "medians": {s: {k: median(v) for k, v in series(rows, s).items()} for s in labels}}


def conclusion(verdicts: list[dict[str, Any]]) -> str:
    """The cure and the cost in one sentence, neither without the other."""
    if not verdicts:
        return "one side only: nothing is compared"
    if any(v["verdict"] == "too few runs" for v in verdicts):
        return "too few turns for a verdict: --repeats 6 or more"
    def said(kind: str) -> str:
        return ", ".join(f"{v['metric']} {v['a']:.3g} -> {v['b']:.3g} (x {v['ratio']:.2f}, 95 %: "
                         f"{v['low']:.2f}..{v['high']:.2f})" for v in verdicts if v["verdict"] == kind and v["ratio"])
    parts = [f"B is {kind}: {said(kind)}" for kind in ("better", "worse") if said(kind)]
    noisy = [v["metric"] for v in verdicts if v["verdict"] == "too noisy"]
    parts += [f"This machine is too noisy to decide on {', '.join(noisy)}: stop other loads or raise --repeats"] \
        if noisy else []
    same = [v["metric"] for v in verdicts if v["verdict"] == "no difference seen"]
    # What a cure does not cost is as much of an answer as what it does.
    parts += [f"No difference was seen in {', '.join(same)}"] if same and parts else []
    return ". ".join(parts) or "no difference was seen"


def left_out(rows: list[dict[str, Any]]) -> str:
    """Which metrics cannot be compared as some turns lack them, and what helps; empty when there is none."""
    some = {k for r in rows for k in r["metrics"]}
    missing = sorted({*some, "read_p50_ms", "fsync_p50_ms"} - {k for k in some if all(k in r["metrics"] for r in rows)})
    if not missing:
        return ""
    return f"Not compared, as some turns had too few reads or fsyncs for it: {', '.join(missing)}; raise --max-mib"


def render(found: dict[str, Any]) -> str:
    """The result for a terminal."""
    labels = [f"  {s}: {text}" for s, text in found["sides"].items()]
    if found["verdicts"]:
        rows = [[v["metric"], number(v["a"]), number(v["a_spread"]), number(v["b"]), number(v["b_spread"]),
                 "-" if v["ratio"] is None else f"{v['ratio']:.2f}",
                 "-" if v["low"] is None else f"{v['low']:.2f}..{v['high']:.2f}", v["verdict"]]
                for v in found["verdicts"]]
        text = table(["metric", "A", "+-", "B", "+-", "B/A", "95 %", ""], rows)
    else:
        a = series(found["turns"], "A")
        text = table(["metric", "A"], [[k, number(median(v))] for k, v in a.items()])
    missing = left_out(found["turns"])
    return "\n".join([found["conclusion"], *labels, "", text, *([textwrap.fill(missing, 79)] if missing else [])])


def load(path: Path) -> dict[str, Any]:
    """A field.json; WbError (code 2) for anything else."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found["format"] != FORMAT or not series(found["turns"], "A") or not found["facts"]["release"]:
            raise ValueError
    except OSError as exc:
        raise WbError(f"{path}: {exc.strerror}", 2) from exc
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise WbError(f"{path}: not a field.json of this wb", 2) from exc
    return found


def _disk_id(facts: dict[str, Any]) -> str:
    """That of today, where a result tells its disks: it once was in the order of their names."""
    told = all(d["identity"] or d["model"] for d in facts["disks"])
    return disk_id(facts["disks"]) if told else str(facts["disk_id"])


def pair(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """A of both as A and B; WbError when they cannot be compared, notes for what differs besides."""
    f, g = one["facts"], two["facts"]
    if not (f["machine"] and g["machine"]):
        raise WbError(f"these are not known to be of one machine, as one had {NO_ID}: nothing to compare", 2)
    for key, what in (("machine", "machines"), ("disk_id", "disks"), ("fs", "file systems")):
        if f[key] != g[key] and not (key == "disk_id" and _disk_id(f) == _disk_id(g)):
            raise WbError(f"these are of two {what} ({f[key]}, {g[key]}): nothing to compare", 2)
    if one["mib"] != two["mib"]:
        raise WbError(f"{one['mib']} MiB were written in one and {two['mib']} in the other, by the room and the rate "
                      "of then: measure one of them again with --like and the other's field.json", 2)
    rows = [{**t, "side": "A"} for t in one["turns"] if t["side"] == "A"] \
        + [{**t, "side": "B"} for t in two["turns"] if t["side"] == "A"]
    labels = {s: f"kernel {x['facts']['release']}, {x['sides']['A']}, {x['time']}" for s, x in (("A", one), ("B", two))}
    return result(g, labels, rows, one["mib"])


def _compared(one: str, two: str) -> dict[str, Any]:
    """What two files give; WbError (code 2) also for one that somebody has shortened by hand, to send it."""
    results = [load(Path(one)), load(Path(two))]
    try:
        found = pair(*results)
        page.page(found, render(found))  # that it can be shown is known before a directory is made
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise WbError(f"{one} or {two}: not a whole field.json of this wb ({type(exc).__name__}: {exc})", 2) from exc
    return found


@contextlib.contextmanager
def _place(text: str | None) -> Iterator[Path]:
    """The directory of the result, made before anything is measured; not left behind empty."""
    out = _out(text)
    try:
        yield out
    finally:
        with contextlib.suppress(OSError):
            out.rmdir()


def run(args: argparse.Namespace) -> int:
    """``wb field``."""
    if args.compare and (more := given(args, "dir", "a", "b", "repeats", "max_mib", "like", "max_seconds",
                                       "anonymize")):
        raise WbError(f"{', '.join(more)}: --compare takes two files, and of the options --out and --json", 2)
    found = _compared(*args.compare) if args.compare else None
    if not found and not args.dir:
        raise WbError("DIR is missing: a directory on the disk to measure", 2)
    if args.like and given(args, "max_mib"):
        raise WbError("--like and --max-mib exclude each other", 2)
    with _place(args.out) as out:
        found = found or _measured(args)
        text = json.dumps(found, indent=1) + "\n"
        with uninterrupted():  # a second Ctrl-C shall not lose what the first one has left
            # Before the files, as the disk may be full; and the files also for a reader that has gone (| head).
            try:
                print(text if args.json else render(found), flush=True)
            finally:
                _write_files(out, {"field.json": text, "field.html": page.page(found, left_out(found["turns"]))})
    say(f"  {out}/field.html and {out}/field.json")
    if not args.compare and not args.b:
        say(f"  {found['mib']} MiB a time; on the other kernel: wb field {args.dir} --like {out}/field.json")
    why = found.get("ended")
    if why and why != "interrupted":
        raise WbError(f"{why}; the turns before that are kept")
    return 130 if why else 0


def _write_files(out: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        try:
            # The page says that it is UTF-8.
            (out / name).write_bytes(content.encode("utf-8", "replace"))
        except OSError as exc:
            (out / name).unlink(missing_ok=True)
            raise WbError(f"{out / name}: {exc.strerror}; the result is above") from exc


def _why(ended: BaseException, hidden: Path | None) -> str:
    """What ended a run; without the path ``hidden``."""
    if isinstance(ended, KeyboardInterrupt):
        return "interrupted"
    cause = ended.__cause__ if hidden and isinstance(ended.__cause__, OSError) else ended
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(ended)
    return text.replace(str(hidden), "DIR") if hidden else text


def _measured(args: argparse.Namespace) -> dict[str, Any]:
    machine = Machine()
    directory = tune_facts.check_directory(args.dir)
    if (args.a or args.b) and (why := in_container(machine)):
        raise WbError(f"--a and --b: this is a container ({why}): these are settings of the host, where nobody would "
                      "put them back if this is killed: run wb field on the host")
    with alone(machine.path(LOCK)):
        left.restore_left(machine)
        facts = tune_facts.read(machine, str(directory))
        sides = {"A": settings(args.a, facts), **({"B": settings(args.b, facts)} if args.b else {})}
        described = describe(machine, facts, args.anonymize)
        if not described["machine"] and not args.b:
            say(f"  --compare will refuse this result: the machine has {NO_ID}")
        rows: list[dict[str, Any]] = []
        mib = 0
        ended: BaseException | None = None
        try:
            with contextlib.closing(measure(directory, machine, sides, args)) as turns:
                for row, size in turns:
                    rows.append(row)
                    mib = size
        except (KeyboardInterrupt, WbError, OSError) as exc:
            if {r["side"] for r in rows} != sides.keys():
                if isinstance(exc, KeyboardInterrupt):
                    raise WbError("interrupted: settings are as before, and what was written is removed", 130) from None
                raise
            ended = exc
    labels = {s: _label(args.a if s == "A" else args.b, rows, s) for s in sides}
    with uninterrupted():
        found = result(described, labels, rows, mib)
    if ended is not None:
        why = _why(ended, directory if args.anonymize else None)
        found["ended"] = why
        found["conclusion"] = f"Ended after {len(rows)} of {args.repeats * len(sides)} turns ({why}): " \
            + found["conclusion"]
    return found
