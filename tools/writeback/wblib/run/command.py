# SPDX-License-Identifier: GPL-2.0
"""``wb run`` and ``wb list``."""

import argparse
import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

from wblib.base.proc import say
from wblib.catalog import axes as ax
from wblib.catalog.spec import CPU, DEVICES, LANES, RunSpec
from wblib.catalog.suites import Job, in_lane
from wblib.guest import qemu
from wblib.kernel import kconfig, sources
from wblib.results import compare, store
from wbtop import ranges
from wbtop.errors import WbError

from . import local
from .runner import guest_of, place_of, prepare, run_many

EXAMPLES = """\
examples:
  wb run read-latency                                   defaults: sata, xfs, none, buffered writer
  wb run read-latency --disk fifo --wbt off --seed 3    other axes, another seed
  wb run dirty-limits --kernel patched --json out.json  result object into a file ('-': stdout)
  wb run read-latency --lane fast                       ten times faster, without QEMU: computing costs nothing
  wb run read-latency --lane functional --on nvme       real NVMe driver on QEMU's disk
  wb run read-latency --dir /mnt/data                   your own disk, in that directory, as root: 5 runs
  wb run read-latency --cpu max                         a CPU that copies 1 byte per ns, not 8
  wb run read-latency --kernel patched --base 7.3       on the mainline kernel; so is --kernel patched@7.3
  wb run read-latency --dry-run                         build, and print the QEMU command only
exit code: 0 the case passed or was skipped, 1 it failed or its guest died, 2 wrong usage"""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb run`` and ``wb list``."""
    p = sub.add_parser("run", help="run one case in a guest", epilog=EXAMPLES, formatter_class=ax.HelpFormatter)
    p.add_argument("case", metavar="CASE", help="see 'wb list'")
    p.add_argument("--kernel", help="stock, patched, tree or replay (default stock)")
    p.add_argument("--seed", default="1", help=f"seed of everything random (1..{ax.SEED_MAX}, default 1)")
    p.add_argument("--json", metavar="FILE", help="write the result object to FILE, '-' for stdout")
    p.add_argument("--lane", choices=LANES,
                   help="exact: virtual time, the same bytes every time; fast: the same with the kernel as a process, "
                   "where computing costs no time; functional: real drivers, KVM if it works (default exact)")
    p.add_argument("--on", choices=tuple(DEVICES), help="disk of the functional lane (default ahci)")
    p.add_argument("--cpu", metavar="MODEL",
                   help=f"exact lane: QEMU's CPU model with features, such as max (default {CPU})")
    p.add_argument("--dir", metavar="PATH", help="run on this machine in PATH instead of a guest (needs root)")
    p.add_argument("--device", metavar="/dev/X", help="run on this machine on a raw device; needs --erase")
    p.add_argument("--repeats", type=ranges.whole(1, 50), metavar="N",
                   help="with --dir or --device: N runs, of seeds from --seed on, with their spread (1..50, default 1, "
                   f"{local.SUITE_REPEATS} of a suite)")
    p.add_argument("--erase", action="store_true", help="yes, destroy everything on --device")
    kconfig.add_flavour(p)
    p.add_argument("--trace", action="store_true",
                   help="read-latency: also run libbpf-tools and perf in the guest (implies --flavour tracing)")
    p.add_argument("--force", action="store_true", help="run again even if a finished result exists")
    ranges.add_timeout(p)
    p.add_argument("--dry-run", action="store_true", help="build, print the exact QEMU command line and exit")
    ax.add_axis_options(p)
    p.set_defaults(func=run_command)
    q = sub.add_parser("list", help="list the cases and their axes", epilog="examples:\n  wb list\n  wb list --metrics",
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    q.add_argument("--json", action="store_true", help="the same as JSON")
    q.add_argument("--metrics", action="store_true", help="what they measure: unit, which direction is better, meaning")
    q.set_defaults(func=list_command)


def list_command(args: argparse.Namespace) -> int:
    """Print every case with its axes, or all metrics."""
    if args.metrics:
        print(compare.metrics_table())
    elif args.json:
        print(json.dumps({c.name: {"help": c.help, "incident": c.incident, "guest_mib": c.guest_mib,
                                   "axes": {a.name: {"default": a.default, "allowed": a.allowed()} for a in c.axes}}
                          for c in ax.CASES.values()}, indent=1))
    else:
        print("\n\n".join(ax.describe(c) for c in ax.CASES.values()))
    return 0


def run_command(args: argparse.Namespace) -> int:
    """``wb run``."""
    seed = ax.check_seed(args.seed)
    given = ax.given_axes(args)
    axes = ax.validate(args.case, given)
    lane = args.lane or "exact"
    if args.dir or args.device:
        local.check_place(args.dir, args.device, erase=args.erase or args.dry_run)
    cpu = qemu.check_cpu(args.cpu or CPU, "local" if args.dir or args.device else lane)
    job = Job(args.case, axes, seed, sources.chosen(args.kernel or "stock"))
    if "reader" not in given:
        job = in_lane(lane, job) or job
    if lane == "fast" and (why := ax.case(args.case).not_fast):
        say(f"  {args.case}: results of the fast lane say nothing, {why}; leave out --lane fast")
    if args.dir or args.device:
        local.refuse(given, {"--kernel": args.kernel is not None, "--lane": args.lane is not None,
                             "--on": args.on is not None, "--trace": args.trace, "--force": args.force,
                             "--flavour": args.flavour != "slim", "--cpu": args.cpu is not None,
                             "--timeout": bool(args.timeout)})
        return _here(job, given, args)
    if args.repeats:
        raise WbError("--repeats is for --dir and --device; in a guest 'wb bench' runs several seeds", 2)
    if axes.get("disk", "").startswith("dev:") and lane != "functional":
        raise WbError("--disk dev:/dev/X is for --lane functional, or use --device on this machine", 2)
    spec = RunSpec.of(job, lane=lane, on=args.on or "", flavour=args.flavour, trace=args.trace, cpu=cpu)
    if args.dry_run:
        prepared = prepare(spec)
        say(f"# {place_of(spec, prepared)}")
        print(qemu.shown(qemu.command(guest_of(spec, prepared), Path())))
        return 0
    result = run_many([spec], parallel=1, force=args.force, timeout_s=args.timeout)[0]
    if args.json == "-":
        print(json.dumps(result.to_json(), indent=1))
    else:
        if args.json:
            store.write(result, Path(args.json))
        print_result(result)
    return 0 if result.status in ("pass", "skip") else 1


def _here(job: Job, given: dict[str, str], args: argparse.Namespace) -> int:
    """``wb run --dir`` and ``--device``: one run, or several with what may be said of all of them."""
    suite = "writer" in job.axes and given.get("writer", "suite") == "suite"
    given = {k: v for k, v in given.items() if (k, v) != ("writer", "suite")}
    repeats = args.repeats or (local.SUITE_REPEATS if suite and job.case in local.CONTRASTS else 1)
    if job.seed + repeats - 1 > ax.SEED_MAX:
        raise WbError(f"--seed {job.seed} with {repeats} repeats is above {ax.SEED_MAX}", 2)
    seeds = range(job.seed, job.seed + repeats)
    if args.dry_run:
        say(f"# would run {job.case} on this machine, {os.uname().release}; nothing was run or changed")
        for seed in seeds:
            print(shlex.join([f"{job.case}.sh", *local.words(given, seed, args.dir, args.device)]))
        return 0
    # Here only what was asked for is passed on: without a writer, the case runs its suite.
    axes = {**job.axes, "writer": "suite"} if suite else job.axes
    runs = []
    for seed in seeds:
        runs.append(local.run_here(replace(job, axes=axes, seed=seed), given, args.dir, args.device))
        if runs[-1].status != "pass":
            break
    found = local.verdicts(job.case, runs) if suite and runs[-1].status == "pass" else []
    if args.json:
        text = json.dumps(runs[0].to_json() if len(runs) == 1 else
                          {"runs": [r.to_json() for r in runs], "verdicts": found}, indent=1) + "\n"
        if args.json == "-":
            print(text, end="")
        else:
            Path(args.json).write_text(text)
    if args.json != "-":
        if len(runs) > 1 or found:
            for r in runs:
                print_result(r, brief=True)
            print(local.render(runs, found))
        else:
            print_result(runs[0])
    return 0 if runs[-1].status in ("pass", "skip") else 1


def print_result(result: store.Result, *, brief: bool = False) -> None:
    """The result for a reader: tests, metrics, and where everything is. brief: only what went wrong, and where."""
    for test in result.tests:
        if not brief or test["result"] == "fail":
            print(f"{test['result']:5} {test['name']}")
    for name, metric in result.metrics.items() if not brief else ():
        print(f"  {name:32} {metric['value']:>14} {metric['unit']}")
    cpu = f" on CPU {result.meta['cpu']}" if result.meta.get("cpu") else ""
    print(f"{result.case} on {result.kernel}{cpu}, seed {result.seed}: {result.status}"
          + (f" ({why})" if (why := result.meta.get("problem") or result.meta.get("skip")) else ""))
    if result.meta.get("dir"):
        print(f"  files: {result.meta['dir']}")
