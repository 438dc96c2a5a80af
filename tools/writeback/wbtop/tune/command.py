# SPDX-License-Identifier: GPL-2.0
"""``wb tune``: measure a directory's disk, recommend settings for a goal, apply them, undo that."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from wbtop import ranges, ranksum
from wbtop.cli import given
from wbtop.errors import WbError
from wbtop.machine import Machine, in_container
from wbtop.proc import LOCK, alone, say, show
from wbtop.stats import number

from . import apply, left, persist, profiles, rules
from .facts import Facts, check_directory, read
from .measure import MOST_ROUNDS, Measured, measure
from .rules import GOALS, HOLD_S, Advice

EXAMPLES = """\
examples:
  wb tune /srv                              measure, recommend for --goal read-latency; changes nothing
  wb tune /srv --goal database --json       the same as JSON on stdout
  wb tune /media/stick --goal unplug --hold-seconds 2
  wb tune /srv --max-mib 64 --max-seconds 10  at most 128 MiB at a time, in at most 10 s
  wb tune /srv --save m.json                keep the measurement; --measured m.json uses it again
  wb tune /srv --apply                      as root: set it, now and for the next boot
  wb tune --undo                            as root: every value and file as it was
  wb tune /srv --tuned /etc/tuned/profiles/calm-writeback   instead of --apply, for machines that tuned
                                            looks after (tuned before 2.23: /etc/tuned/calm-writeback)
goals:
""" + "".join(
    f"  {name:13} {text}" + (f"; {HOLD_S[name]:g} s of drain" if name in HOLD_S else "") + "\n"
    for name, text in GOALS.items()) + """\
The measurement writes files below DIR, at most twice --max-mib at a time, and removes
them, also on Ctrl-C.  The phase with reads beside a writer is repeated (6 to 16 times)
until the 95 % intervals of its medians are narrow, or the time is over, which the
output then says.  Rates are MB/s of 10^6 bytes.  Each line says what its value is
from: a formula with what was measured here, or a measurement of the rig.
--apply measures again afterwards, and says what was gained on this disk.
--apply writes /etc/sysctl.d/90-calm-writeback.conf, /etc/udev/rules.d/90-calm-
writeback.rules and, first, /var/lib/calm-writeback/tune-backup.json.
In a container it refuses: the settings are those of the host.
exit code: 0, 1 when something failed, 2 for wrong usage"""


# Facts, measurement, advice and options -> what a replay elsewhere found, as data and as text.
Simulate = Callable[[Facts, Measured, "list[Advice]", argparse.Namespace], "tuple[dict[str, Any], str]"]


def register(sub: argparse._SubParsersAction[argparse.ArgumentParser], simulate: Simulate | None = None) -> None:
    """Add ``wb tune``; ``simulate`` gives it --simulate."""
    p = sub.add_parser("tune", help="measure a directory's disk and recommend settings", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", metavar="DIR", nargs="?", help="a directory on the disk to tune")
    p.add_argument("--goal", choices=tuple(GOALS), default="read-latency", help="what matters (default read-latency)")
    p.add_argument("--hold-seconds", type=ranges.number(0, 86400, above=True), metavar="S",
                   help="dirty data the disk may hold, in seconds of its drain (above 0, at most 86400; default: the "
                   "goal's, below; read-latency has none)")
    p.add_argument("--max-mib", type=ranges.whole(16, 1 << 20), default=256, metavar="MIB",
                   help="size of each of two files, and at most a tenth of the free space (16..1048576, default 256)")
    p.add_argument("--max-seconds", type=ranges.number(0, 86400, above=True), default=30.0, metavar="S",
                   help="time for the whole measurement (above 0, at most 86400; default 30)")
    p.add_argument("--save", metavar="FILE", help="write the measurement to FILE")
    p.add_argument("--measured", metavar="FILE", help="take the measurement from FILE instead of measuring")
    p.add_argument("--json", action="store_true", help="facts, measurement, advice and conflicts as JSON; with --undo "
                   "what was restored and what failed")
    p.add_argument("--apply", action="store_true", help="set what is recommended (root)")
    p.add_argument("--no-verify", action="store_true", help="with --apply: do not measure again afterwards")
    p.add_argument("--tuned", metavar="DIR", help="write DIR/tuned.conf, a profile for tuned that includes the active "
                   "one, such as /etc/tuned/profiles/calm-writeback; activates nothing")
    p.add_argument("--undo", action="store_true", help="put back what --apply changed (root)")
    if simulate is None:
        p.add_argument("--simulate", action="store_true", help=argparse.SUPPRESS)
    else:
        p.add_argument("--simulate", action="store_true",
                       help="replay on the modelled disk (exact lane, about 2 minutes)")
        p.add_argument("--kernel", choices=("stock", "patched"), help="of --simulate (default: like this machine's)")
        p.add_argument("--seeds", type=ranges.whole(1, 99), default=1, metavar="N",
                       help="of --simulate: medians of N seeds (1..99, default 1)")
    # For tests: the machine's files below another root, the directory's device number, data that wbdisk keeps none of.
    p.add_argument("--root", default="/", help=argparse.SUPPRESS)
    p.add_argument("--dev", help=argparse.SUPPRESS)
    p.add_argument("--zeros", action="store_true", help=argparse.SUPPRESS)
    p.set_defaults(func=run, simulate=False, simulator=simulate, default=p.get_default)


_NEEDED = {f.name for f in fields(Measured) if f.default is MISSING}


def load_measured(path: Path, facts: Facts | None = None) -> Measured:
    """A measurement that --save wrote; WbError (code 2) when it is none, or not of the kind of ``facts``'s disks."""
    try:
        data = json.loads(path.read_text())
        if not isinstance(data, dict):
            raise ValueError("not an object")
        disks = data.pop("disks", None)
        if lacking := sorted(_NEEDED - data.keys()):
            raise ValueError(f"without {', '.join(lacking)}")
        if unknown := sorted(data.keys() - {f.name for f in fields(Measured)}):
            raise ValueError(f"with unknown {', '.join(unknown)}")
        found = Measured(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})
        for name, value in data.items():
            optional = name.startswith(("read_", "fsync_", "loaded_"))
            if name.endswith("_each"):
                if not isinstance(value, list) or len(value) > MOST_ROUNDS \
                        or not all(type(v) in (int, float) and 0 < v <= 1e15 for v in value):
                    raise ValueError(f"{name} is not a list of times or rates")
                continue
            if (isinstance(value, bool) != (name in ("direct", "loaded_stable")) and value is not None) \
                    or not ((isinstance(value, (int, float)) and 0 <= value <= 1e15) or (value is None and optional)):
                raise ValueError(f"{name} is not a number it can have")
        if found.write_mbps <= 0 or found.mib < 1:
            raise ValueError("no rate")
    except OSError as exc:
        raise WbError(f"--measured {path}: {exc.strerror}", 2) from exc
    except (ValueError, TypeError, RecursionError) as exc:
        raise WbError(f"{path}: not a measurement of 'wb tune --save' ({exc})", 2) from exc
    if facts and disks not in (None, _disks(facts)):
        there = "; ".join(map(str, disks)) if isinstance(disks, list) else disks
        raise WbError(f"{path}: measured on {there}, and {facts.directory} is on {'; '.join(_disks(facts))}: "
                      "leave out --measured", 2)
    return found


@contextlib.contextmanager
def _saver(path: str | None) -> Iterator[Callable[[str], str]]:
    """Open ``path`` now, so that it is known to be writable; a new one that nothing was written to goes again.

    Yields what writes a text there and returns what is wrong, which leaves what was there before. WbError (code 2)
    if it cannot be opened.
    """
    if path is None:
        yield lambda _text: ""
        return
    stream = path.startswith(("/dev/", "/proc/"))  # such as /dev/stdout, which may be a file with the advice
    new = False
    try:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND if stream else os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            new = not stream
        except FileExistsError:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        known = os.fstat(fd)
    except OSError as exc:
        raise WbError(f"--save {path}: {exc.strerror}", 2) from exc

    def write(text: str) -> str:
        nonlocal new
        with os.fdopen(os.dup(fd), "ab" if stream else "r+b", buffering=0) as f:
            old = b"" if stream else f.read()
            try:
                _write_over(f, text.encode(), stream)
            except OSError as exc:
                with contextlib.suppress(OSError):
                    _write_over(f, old, stream)
                return f"--save {path}: {exc.strerror}"
        new = False
        return ""
    try:
        yield write
    finally:
        with contextlib.suppress(OSError):
            if new and os.path.samestat(os.lstat(path), known):
                Path(path).unlink()
        os.close(fd)


def _write_over(f: io.FileIO, data: bytes, stream: bool) -> None:
    """Over what is there, whose blocks are needed if it must come back."""
    if not stream:
        f.seek(0)
    while data:
        data = data[f.write(data) or 0:]
    if not stream:
        f.truncate()
        os.fsync(f.fileno())


def _disks(facts: Facts) -> list[str]:
    """What tells one kind of disk from another."""
    return sorted(f"{d.model or 'no model name'}{', rotational' if d.rotational else ''}" for d in facts.disks)


def _wrapped(head: str, text: str) -> str:
    """A paragraph below a setting."""
    return textwrap.fill(text, 79, initial_indent=f"      {head:8}", subsequent_indent=" " * 14,
                         break_long_words=False, break_on_hyphens=False)


def _range(values: tuple[float, ...]) -> str:
    return f"{number(min(values))} to {number(max(values))}"


# Goals that are not for reads beside a writer: what each gains shows in none of GAINS.
ELSEWHERE = {"throughput": "writers that sleep less below a higher limit",
             "unplug": "a short sync after a copy of more than the limit",
             "database": "short syncs and checkpoints"}
GAINS = {"read_p99_us": "loaded_p99_us_each", "read_p90_us": "loaded_p90_us_each", "read_p50_us": "loaded_p50_us_each",
         "drain_mbps": "loaded_drain_mbps_each"}


def gained(before: Measured, after: Measured) -> list[ranksum.Verdict]:
    """What ``after`` has against ``before``: reads beside the writer, and the drain; by round."""
    return ranksum.compare({k: getattr(before, a) for k, a in GAINS.items()},
                           {k: getattr(after, a) for k, a in GAINS.items()}, higher=("drain_mbps",))


def render_gained(found: list[ranksum.Verdict], goal: str) -> str:
    """The cure and the cost on this disk, and what is not known."""
    if not found:
        return "  not verified: too few reads or rounds in this time; raise --max-seconds"
    lines = ["  measured again on this disk, reads beside the same writer:"]
    for v in found:
        interval = "" if v.low is None or v.high is None else f", 95 %: {v.low:.2f} to {v.high:.2f}"
        ratio = "" if v.ratio is None else f" (x {v.ratio:.2f}{interval})"
        lines.append(f"    {v.metric:12} {number(v.a)} -> {number(v.b)}{ratio}: {v.verdict}")
    if goal in ELSEWHERE:
        lines.append(f"  what {goal} is for was not measured: {ELSEWHERE[goal]}")
    elif not any(v.verdict == "better" for v in found):
        lines.append("  nothing was seen to be better here: wb tune --undo puts everything back")
    lines.append("  before and after one another: what else changed meanwhile is in it; wb field takes turns")
    return "\n".join(lines)


def render(facts: Facts, measured: Measured, advice: list[Advice], goal: str) -> str:
    """The recommendation for a reader."""
    m = measured
    drains, p99s = m.loaded_drain_mbps_each, m.loaded_p99_us_each
    disks = ", ".join(f"{d.name} ({d.model or 'no model name'})" for d in facts.disks)
    lines = [
        f"{facts.directory}: {facts.fs} on {disks}, kernel {facts.release}",
        f"  memory     {facts.ram / 2**30:.1f} GiB, {facts.dirtyable / 2**30:.1f} GiB dirtyable; writers sleep from "
        f"{facts.now.freerun / 2**20:.0f} MiB on, limit {facts.now.limit / 2**20:.0f} MiB",
        f"  disk       drains {number(m.drain_mbps)} MB/s through the page cache"
        + (f" ({_range(drains)} in {len(drains)} rounds of {m.loaded_mib} MiB)" if drains else "")
        + f"; direct {number(m.write_mbps)} "
        f"({m.mib} MiB"
        + (f"; first half {number(m.write_first_mbps)}" if m.write_first_mbps > 1.5 * m.write_mbps else "") + ")"
        + ("" if m.direct else "; without O_DIRECT, which is not to be had here"),
        f"  reads      idle p50 {number(m.read_p50_us)} us, p99 {number(m.read_p99_us)} us; beside a buffered writer "
        f"p50 {number(m.loaded_p50_us)}, p99 {number(m.loaded_p99_us)}"
        + (f" ({_range(p99s)} by round)" if p99s else "") + " us"
        + ("" if m.loaded_max_us is None else f", max {number(m.loaded_max_us / 1e3)} ms"),
        f"  fdatasync  p50 {number(m.fsync_p50_us)} us, p99 {number(m.fsync_p99_us)} us (4 KiB appended)",
        f"goal {goal}: {GOALS[goal]}", "",
    ]
    if m.loaded_stable is False:
        lines.insert(-2, "  not stable: the ranges above are what is known; stop other loads, or raise --max-mib and "
                     "--max-seconds")
    for a in advice:
        lines.append(f"  {a.key}: " + (f"{a.current} -> {a.value}" if a.value is not None else f"keep {a.current}"))
        lines.append(_wrapped("why", a.reason))
        if a.value is not None and a.effect:
            lines.append(_wrapped("expect", a.effect))
    if all(a.value is None for a in advice):
        lines.append("  nothing to change for this goal")
    return "\n".join(lines)


def _undo(machine: Machine, as_json: bool) -> int:
    with alone(machine.path(LOCK)):
        left.restore_left(machine)
        done, failed = apply.undo(machine)
    if as_json:
        print(json.dumps({"restored": done, "failed": failed}, indent=1))
    else:
        for line in done:
            print(f"  {line}")
    if failed:
        raise WbError("not restored: " + "; ".join(failed) + f": the backup stays in {apply.BACKUP}")
    if not as_json:
        print("every value is as it was")
    return 0


def _need_root(machine: Machine) -> None:
    if machine.root == Path("/") and os.geteuid() != 0:
        raise WbError("--apply and --undo change settings of this machine: run as root")


def _need_host(machine: Machine) -> None:
    """WbError in a container: its settings are the host's, its /etc and the backup in /var go with it."""
    if why := in_container(machine):
        raise WbError(f"--apply: this is a container ({why}): its settings are those of the host, where neither the "
                      "next boot nor --undo would know of them: run wb tune on the host")


def check_tuned(machine: Machine, directory: Path) -> None:
    """WbError (code 2) when DIR/tuned.conf is somebody else's, or where the tuned of this machine does not look."""
    file = directory / "tuned.conf"
    if directory.exists() and not directory.is_dir():
        raise WbError(f"--tuned {directory}: not a directory", 2)
    if file.exists() and not file.read_text(errors="replace").startswith(persist.TUNED_HEAD):
        raise WbError(f"--tuned {directory}: {file} is not of wb: choose another directory", 2)
    home, parent = profiles.profile_home(machine), str(directory.absolute().parent)
    if home and parent != home and parent in ("/etc/tuned", "/etc/tuned/profiles"):
        raise WbError(f"--tuned {directory}: the tuned of this machine has its profiles in {home}: "
                      f"--tuned {home}/{directory.name}", 2)


def write_tuned(machine: Machine, facts: Facts, directory: Path, advice: list[Advice], goal: str) -> Path:
    """DIR/tuned.conf; WbError when there is nothing to set."""
    changes = [persist.for_tuned(facts, a) for a in advice if a.value is not None]
    if not changes:
        raise WbError("--tuned: nothing to change for this goal, so that there is no profile to write")
    file = directory / "tuned.conf"
    # Not itself, when it is active already.
    active = " ".join(p for p in profiles.active_profile(machine) if p != directory.name)
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(persist.tuned_text(changes, f"calm-writeback: {goal} on {facts.mountpoint or 'the disk'}",
                                       active, vm_plugin=profiles.has_vm_plugin(machine)))
    return file


def _verify(args: argparse.Namespace, directory: Path, before: Measured, out: dict[str, Any]) -> None:
    """Measure again with what was applied, and say what it gained."""
    if args.no_verify or args.measured:
        if not args.json:
            print("  not verified: " + ("--no-verify" if args.no_verify else "the measurement is from a file"))
        return
    try:
        after = measure(directory, max_mib=args.max_mib, max_seconds=args.max_seconds, zeros=args.zeros,
                        loaded_mib=before.loaded_mib, say=lambda text: say(f"  again: {text}"))
    except KeyboardInterrupt:
        raise WbError("interrupted: the settings are applied, but not verified, and what was written is removed; "
                      "wb tune --undo puts the settings back", 130) from None
    except (OSError, WbError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        raise WbError(f"{why}: the settings are applied, but not verified; wb tune --undo puts them back") from exc
    found = gained(before, after)
    out["verified"] = {"measured": after.to_json(), "verdicts": [v.to_json() for v in found]}
    if not args.json:
        print(render_gained(found, args.goal))


def run(args: argparse.Namespace) -> int:
    """``wb tune``."""
    machine = Machine(Path(args.root))
    if args.simulate and args.simulator is None:
        raise WbError("--simulate needs the project's checkout: run its tools/writeback/wb", 2)
    if args.undo:
        if more := given(args, "dir", "goal", "hold_seconds", "max_mib", "max_seconds", "save", "measured", "apply",
                         "no_verify", "tuned", "simulate", "kernel", "seeds"):
            raise WbError(f"{', '.join(more)}: --undo stands alone: it restores everything that --apply changed", 2)
        _need_root(machine)
        return _undo(machine, args.json)
    if not args.dir:
        raise WbError("DIR is missing: a directory on the disk to tune", 2)
    for needed, names in (("apply", ["no_verify"]), ("simulate", ["kernel", "seeds"])):
        if not getattr(args, needed) and (more := given(args, *names)):
            raise WbError(f"{', '.join(more)}: only with --{needed}", 2)
    if args.hold_seconds is not None and args.goal not in HOLD_S:
        say(f"  --hold-seconds: of no effect for {args.goal}")
    if args.apply:
        _need_root(machine)
        _need_host(machine)
    if args.apply and args.tuned:
        raise WbError("--apply and --tuned exclude each other: tuned would put back what --apply has set", 2)
    if args.tuned:
        check_tuned(machine, Path(args.tuned))
    # What is there now is what --undo brings back: nobody else may change it from here on.
    with alone(machine.path(LOCK)) if args.apply else contextlib.nullcontext(), _saver(args.save) as save:
        if args.apply:
            left.restore_left(machine)
        return _tune(args, machine, save)


def _tune(args: argparse.Namespace, machine: Machine, save: Callable[[str], str]) -> int:
    directory = check_directory(args.dir)
    facts = read(machine, str(directory), args.dev)
    if args.measured:
        measured = load_measured(Path(args.measured), facts)
    else:
        try:
            measured = measure(directory, max_mib=args.max_mib, max_seconds=args.max_seconds, zeros=args.zeros,
                               say=lambda text: say(f"  {text}"))
        except KeyboardInterrupt:
            raise WbError("interrupted: nothing was changed, and what was written is removed", 130) from None
    unsaved = save(json.dumps({**measured.to_json(), "disks": _disks(facts)}, indent=1) + "\n")
    advice = rules.recommend(facts, measured, args.goal, args.hold_seconds)
    clash = profiles.conflicts(machine, [a.key for a in advice if a.value is not None])
    out: dict[str, Any] = {"goal": args.goal, "facts": facts.to_json(), "measured": measured.to_json(),
                           "advice": [a.to_json() for a in advice], "conflicts": [str(c) for c in clash]}
    if not args.json:
        show("\n".join([render(facts, measured, advice, args.goal), *(f"  conflict: {c}" for c in clash)]))
    if args.tuned:
        out["tuned"] = str(write_tuned(machine, facts, Path(args.tuned), advice, args.goal))
        if not args.json:
            show(f"\n  {out['tuned']}: written; tuned-adm profile {Path(args.tuned).absolute().name}")
    if args.simulate:
        out["simulation"], text = args.simulator(facts, measured, advice, args)
        if not args.json:
            show("\n" + text)
    if args.apply:
        out["applied"] = apply.apply(machine, facts, advice)
        if not args.json:
            print("\n" + "\n".join(f"  {line}" for line in out["applied"]))
            if any(a.value is not None for a in advice):
                print("  undo with: wb tune --undo", flush=True)
        if any(a.value is not None for a in advice):
            _verify(args, directory, measured, out)
    elif not args.json and not args.tuned and any(a.value is not None for a in advice):
        print("\nnothing was changed; --apply sets it, now and for the next boot")
    if args.json:
        print(json.dumps(out, indent=1))
    if unsaved:
        raise WbError(f"{unsaved}; what was measured is above")
    return 0
