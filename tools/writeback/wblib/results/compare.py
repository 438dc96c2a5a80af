# SPDX-License-Identifier: GPL-2.0
"""``wb compare A B``: one table per case and axes, medians over the seeds with their spread."""

import argparse
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wblib.base.paths import RESULTS
from wblib.base.proc import say
from wblib.catalog import axes as ax
from wbtop import ranges
from wbtop.errors import WbError
from wbtop.stats import Summary, number, summary, table

from . import store
from .identity import all_axes, flavour_of, lane, line, merge
from .store import Result

EXAMPLES = """\
examples:
  wb compare stock patched                     the latest results of both kernels
  wb compare stock-1a2b3c4d stock-5e6f7a8b     two builds of the stock kernel
  wb compare before.json after.json            two files of 'wb run --json'
  wb compare stock patched --case read-latency --metric read_p99_95
  wb compare stock patched --fail-on-regression 5
  wb compare stock patched --from lab1/results --from lab2/results   of several machines

Columns: medians over the seeds of A and of B, B against A in percent, seeds
of A/B, and the spread (interquartile range) of A/B.  The last column says
better or worse, '~' when the medians are no further apart than the larger
spread, '=' when they are equal, nothing when neither direction is better.
exit code: 0, or 1 when --fail-on-regression finds one, 2 for wrong usage"""


@dataclass(frozen=True)
class MetricInfo:
    """What the metrics whose whole name matches ``pattern`` mean. better: lower, higher or empty."""

    pattern: str
    shown: str
    unit: str
    better: str
    help: str


# The one table of metrics; Documentation/results.md repeats it and a test compares them.
METRICS = (
    MetricInfo(r"read_(p[0-9_]+?|max)(_[a-z].*)?", "read_p50 ... read_p99_99, read_max", "us", "lower",
               "completion latency of the readers (fio's clat): percentile, or maximum"),
    MetricInfo(r"read_due_(p[0-9_]+?|max)(_[a-z].*)?", "read_due_p50 ... read_due_max", "us", "lower",
               "--reader=open: the same since each read was due, with what a stalled reader waits before it asks"),
    MetricInfo(r"read_late(_.*)?", "read_late", "count", "lower",
               "--reader=open: reads issued 1 ms or more after they were due"),
    MetricInfo(r"read_iops(_.*)?", "read_iops", "iops", "higher", "reads per second, all readers"),
    MetricInfo(r"write_mbps(_.*)?", "write_mbps, write_mbps_X", "MB/s", "higher",
               "the writer's own figure, 10^6 bytes per second of its run"),
    MetricInfo(r"drain_s(_.*)?", "drain_s", "s", "lower", "from the first write to the end of sync"),
    MetricInfo(r"sync_s(_.*)?", "sync_s_X", "s", "lower",
               "tune, tune-replay: from the end of dd to the end of sync, what one waits before unplugging"),
    MetricInfo(r"tune_write_mbps", "tune_write_mbps", "MB/s", "", "tune: what wb tune measured as the disk's drain"),
    MetricInfo(r"tune_(read|fsync|loaded)_p[0-9]+", "tune_read_p50, tune_read_p99, tune_fsync_p99, tune_loaded_p99",
               "us", "", "tune: what wb tune measured: reads of the idle disk, fdatasync, reads beside a writer"),
    MetricInfo(r"watch_slept_pct", "watch_slept_pct", "percent", "", "watch: the writer's share of time asleep"),
    MetricInfo(r"watch_write_mbps", "watch_write_mbps", "MB/s", "", "watch: what was written to the disk"),
    MetricInfo(r"watch_read_(p50|max)", "watch_read_p50, watch_read_max", "us", "",
               "watch: reads beside the writer, from submission to completion"),
    MetricInfo(r"fsync_(p[0-9]+|max)(_[a-z].*)?", "fsync_p50, fsync_p99, fsync_max", "us", "lower",
               "latency of fsync(2) of 4 KiB appended: --probe fsync"),
    MetricInfo(r"fsync_count(_.*)?", "fsync_count", "count", "", "how many fsyncs there were"),
    MetricInfo(r"(flush|sync|sync_full)_passed_by", "flush_passed_by, sync_passed_by, sync_full_passed_by", "requests",
               "lower", "wbt-fixes: background writes admitted before the flush, or before the sync write that waits"),
    MetricInfo(r"flush_wait_max", "flush_wait_max", "ms", "lower", "wbt-fixes: longest wait of a flush"),
    MetricInfo(r"depth_max", "depth_max", "requests", "lower",
               "wbt-fixes: most requests that nothing but writes may have in flight, without a scheduler"),
    MetricInfo(r"fair_(sync|background)", "fair_sync, fair_background", "requests", "",
               "wbt-fixes: writes of each kind admitted beside each other"),
    MetricInfo(r"fair_background_wait_max", "fair_background_wait_max", "ms", "lower",
               "wbt-fixes: longest wait of a background write beside them"),
    MetricInfo(r"knob_changes|disk_removals", "knob_changes, disk_removals", "count", "",
               "wbt-stress: settings changed, and disks removed, under load"),
    MetricInfo(r"faults_injected_.*", "faults_injected_X", "count", "", "faults: commands that failed on purpose"),
    MetricInfo(r"faults_(hang|remove|kill|kill_fsync|memory)_ms_.*", "faults_hang_ms_X, faults_remove_ms_X, "
               "faults_kill_ms_X, faults_kill_fsync_ms_X, faults_memory_ms_X", "ms", "lower",
               "faults, faults-wait: until fsync failed, the disk was gone, a killed task was gone, "
               "64 MiB were written"),
    MetricInfo(r"faults_excess_ms", "faults_excess_ms", "ms", "lower",
               "faults-wait: longest wait beyond the disk's own"),
    MetricInfo(r"fuzz_(inputs|refused)", "fuzz_inputs, fuzz_refused", "count", "", "fuzz: values written, and refused"),
    MetricInfo(r"races_(disks|cpu)", "races_disks, races_cpu", "count", "",
               "races: disks that came and went, and how often a CPU did"),
    MetricInfo(r"soak_s", "soak_s", "s", "", "soak: guest time"),
    MetricInfo(r"soak_operations", "soak_operations", "count", "", "soak: operations of the load in it"),
    MetricInfo(r"soak_.*_kib", "soak_memory_kib, soak_slab_kib, soak_percpu_kib, "
               "soak_cache_kib", "KiB", "lower",
               "soak: growth of memory in use, SUnreclaim, Percpu, the slab cache that grew most"),
    MetricInfo(r"kunit_cases", "kunit_cases", "count", "", "wbt-kunit, ext4-kunit, wbdisk-kunit: KUnit cases that ran"),
    MetricInfo(r"cost_(read|write)_ns_.*", "cost_read_ns_X, cost_write_ns_X", "ns", "lower",
               "wbt-cost: CPU time per 4-KiB O_DIRECT read, per page written; X: default, off, or the policy"),
    MetricInfo(r"bytes_(leave|obey)", "bytes_leave, bytes_obey", "ms", "lower",
               "wbt-bytes: from the last read to more than the bound; from the first one to the last write above it"),
    MetricInfo(r"bytes_(sync|swap)_passed_by(_.*)?", "bytes_sync_passed_by_X, bytes_swap_passed_by", "requests",
               "lower", "wbt-order: background writes sent between such a write's arrival and its request"),
    MetricInfo(r"bytes_(sync|direct)_wait_max(_.*)?", "bytes_sync_wait_max_X, bytes_direct_wait_max", "ms", "lower",
               "wbt-order: longest time between the two"),
    MetricInfo(r"bytes_background_mbps", "bytes_background_mbps", "MB/s", "higher",
               "wbt-order: background writes beside tasks that fsync all the time"),
    MetricInfo(r"bytes_sync_writes", "bytes_sync_writes", "requests", "", "wbt-order: writes of these tasks"),
    MetricInfo(r"bytes_beside_small_mbps", "bytes_beside_small_mbps", "MB/s", "higher",
               "wbt-order: the background beside 5 tasks that sync 32 KiB, disk of 20 MB/s"),
    MetricInfo(r"bytes_beside_small_gap_max", "bytes_beside_small_gap_max", "ms", "lower",
               "wbt-order: longest time without a background write beside them"),
    MetricInfo(r"bytes_small_syncs", "bytes_small_syncs", "requests", "", "wbt-order: writes of these tasks"),
    MetricInfo(r"bytes_background_share", "bytes_background_share", "percent", "",
               "wbt-order: share of the background beside the sync of a large file"),
    MetricInfo(r"held_ms_max_.*", "held_ms_max_X", "ms", "lower",
               "tune-replay --held 1: longest time that the writer was held in one go"),
    MetricInfo(r"throttled_s(_.*)?", "throttled_s_R", "s", "",
               "time the writer slept in balance_dirty_pages at dirty ratio R"),
    MetricInfo(r"memory_mbps|disk_mbps", "memory_mbps, disk_mbps", "MB/s", "",
               "dirty-ratio-dd: speed of the page cache and of the disk, measured first"),
    MetricInfo(r"file_bytes|dirtyable_bytes|memory_bytes", "file_bytes, dirtyable_bytes, memory_bytes", "bytes", "",
               "file written; dirtyable memory, which ratios are of; all memory"),
    MetricInfo(r"counted_s_.*", "counted_s_R", "s", "",
               "what the kernel counts of these sleeps in /proc/vmstat"),
    MetricInfo(r"cold_strict_s", "cold_strict_s", "s", "lower",
               "dirty-fixes: 24 MiB to a cold device with strict_limit beside a busy one"),
    MetricInfo(r"cold_stalled_s", "cold_stalled_s", "s", "lower",
               "dirty-fixes: the same beside a device that stands still"),
    MetricInfo(r"dirty_above_background", "dirty_above_background", "bytes", "lower",
               "dirty-fixes: left dirty above such a device's background threshold"),
    MetricInfo(r"trace_cgroup_limit", "trace_cgroup_limit", "bytes", "",
               "dirty-fixes: limit in the trace for a writer in a cgroup"),
    MetricInfo(r"stick_sync_s_.*", "stick_sync_s_L", "s", "lower",
               "dirty-time: sync after the writer to a stick ended; L: time limit on or off"),
    MetricInfo(r"stick_write_s_.*", "stick_write_s_L", "s", "",
               "dirty-time: that writer's own time"),
    MetricInfo(r"stick_mbps_.*", "stick_mbps_L", "MB/s", "higher",
               "dirty-time: the file, sync included"),
    MetricInfo(r"stick_dirty_.*", "stick_dirty_L", "bytes", "",
               "dirty-time: dirty and under writeback at the writer's end"),
    MetricInfo(r"stick_block_ms_.*|(step|lower)_block_ms",
               "stick_block_ms_L, step_block_ms, lower_block_ms", "ms", "lower",
               "dirty-time: longest time that a writer was held in one go"),
    MetricInfo(r"step_s", "step_s", "s", "lower",
               "dirty-time: until dirty memory is back below the limit of a disk that became slow"),
    MetricInfo(r"step_dirty_.*", "step_dirty_before, step_dirty_after", "bytes", "",
               "dirty-time: dirty memory at that step, and in the end"),
    MetricInfo(r"lower_dirty_.*", "lower_dirty_before, lower_dirty_after", "bytes", "",
               "dirty-time: dirty memory when a limit far below it is set, and 8 s later"),
    MetricInfo(r"lower_written", "lower_written", "bytes", "",
               "dirty-time: what a writer wrote in these 8 s"),
    MetricInfo(r"fast_(solo|beside)_mbps_.*", "fast_solo_mbps_L, fast_beside_mbps_L", "MB/s", "higher",
               "dirty-time: a fast disk alone, and while a stick is written"),
    MetricInfo(r"quiet_rate_.*", "quiet_rate_before, quiet_rate_after", "kB/s", "",
               "dirty-time: estimate before and after a minute of small fsyncs"),
    MetricInfo(r"pause_rate_.*", "pause_rate_before, pause_rate_after", "kB/s", "",
               "dirty-time: estimate before and after bursts with pauses of 15 s"),
    MetricInfo(r"burst_.*_s", "burst_fresh_s, burst_quiet_s, burst_unlimited_s", "s", "lower",
               "dirty-time: writing a burst with a fresh estimate, after that minute, without limit"),
    MetricInfo(r"extents_(xfs|ext4)_[0-9]_(on|off)", "extents_F_N_L", "count", "lower",
               "dirty-time: in how many pieces N files are that were written at once, by file system"),
    MetricInfo(r"light_slept_ms_.*", "light_slept_ms_L", "ms", "lower",
               "dirty-time: how long a light cgroup slept beside a noisy one, from the trace"),
    MetricInfo(r"light_[a-z]+_ms_.*", "light_global_ms_L, light_cgroup_ms_L, light_device_ms_L", "ms", "lower",
               "dirty-time: the same by cause, from memory.stat"),
    MetricInfo(r"groups_max_dirty_.*", "groups_max_dirty_L", "bytes", "",
               "dirty-time: peak of dirty + writeback pages of both"),
    MetricInfo(r"stress_(changes|cgroups)", "stress_changes, stress_cgroups", "count", "",
               "dirty-stress: settings changed, and cgroups made, under load"),
    MetricInfo(r"max_dirty_.*", "max_dirty_R", "bytes", "", "peak of dirty + writeback pages, setting R"),
    MetricInfo(r"thresh_.*", "thresh_R", "bytes", "", "dirty threshold in the sample of that peak"),
    MetricInfo(r"freerun_.*", "freerun_R", "bytes", "", "below it nobody is throttled: (threshold + background)/2"),
    MetricInfo(r"cpu_ns_per_page(_.*)?", "cpu_ns_per_page_M", "ns", "lower",
               "virtual CPU time (1 ns = 1 instruction) per 4-KiB page written, mount options M"),
    MetricInfo(r"mean_request_kib(_.*)?", "mean_request_kib_M", "KiB", "higher", "mean size of the write requests"),
    MetricInfo(r"(cp_)?extents(_.*)?", "extents_M, cp_extents_M", "count", "lower", "extents of the file written"),
    MetricInfo(r"cp_mbps(_.*)?", "cp_mbps_M", "MB/s", "higher", "cp of a large file and sync"),
    MetricInfo(r"endio_lost_.*", "endio_lost_X", "count", "lower",
               "ext4-endio: blocks of 4 KiB that are not there afterwards, with or without an error from fsync"),
    MetricInfo(r"powercut_(cuts|ops|acks)", "powercut_cuts, powercut_ops, powercut_acks", "count", "",
               "powercut: power cuts, operations before them, and fsyncs that returned 0"),
    MetricInfo(r"(powercut|logwrites)_bytes", "powercut_bytes, logwrites_bytes", "bytes", "",
               "powercut, log-writes: data compared afterwards"),
    MetricInfo(r"torture_(ops|acks|remounts)", "torture_ops, torture_acks, torture_remounts", "count", "",
               "ext4-torture: operations, fsyncs that returned 0, and remounts beside them"),
    MetricInfo(r"torture_(cuts|faults)", "torture_cuts, torture_faults", "count", "",
               "ext4-torture: power cuts, and accesses that the disk refused"),
    MetricInfo(r"torture_bytes", "torture_bytes", "bytes", "", "ext4-torture: data compared afterwards"),
    MetricInfo(r"logwrites_flushes", "logwrites_flushes", "count", "", "log-writes: flushes replayed to"),
    MetricInfo(r"commit_fsync_max_.*", "commit_fsync_max_M", "s", "lower",
               "ext4-commit: longest fsync of a new 4-KiB file while another file is dirty, mount options M"),
    MetricInfo(r"commit_writer_iops_.*", "commit_writer_iops_M", "iops", "higher",
               "ext4-commit: writes of 16 KiB with an fsync each, all tasks"),
    MetricInfo(r"shape_(endio_splits|extents)_.*", "shape_endio_splits_X, shape_extents_X", "count", "lower",
               "ext4-shape: extents split at the end of I/O, and left, after an append beside writeback"),
    MetricInfo(r"shape_conversions_.*", "shape_conversions_X", "count", "",
               "ext4-shape: extents that became written at the end of I/O"),
    MetricInfo(r"shape_bio_kib_.*", "shape_bio_kib_X", "KiB", "higher", "ext4-shape: mean size of writeback's bios"),
    MetricInfo(r"cpu_idle(_.*)?", "cpu_idle", "percent", "",
               "share of the guest's CPU time spent idle; near 0 the CPU and not the disk was measured"),
    MetricInfo(r"disk_inflight_write_peak_bytes(_.*)?", "disk_inflight_write_peak_bytes", "bytes", "",
               "most bytes of writes inside the modelled disk at once; of two disks, the larger"),
    MetricInfo(r"disk_(write_bytes|writes|flushes)(_.*)?", "disk_write_bytes, disk_writes, disk_flushes",
               "bytes, count", "", "what the modelled disk was sent; of two disks, the sum"),
)


def info(metric: str) -> MetricInfo | None:
    """The entry of METRICS for a metric's name, None when it has none."""
    return next((m for m in METRICS if re.fullmatch(m.pattern, metric)), None)


def metrics_markdown() -> str:
    """METRICS as a Markdown table."""
    rows = []
    for m in METRICS:
        names = m.shown.replace(", ", "`, `").replace(" ... ", "` ... `")
        rows.append(f"| `{names}` | {m.unit} | {m.better or '-'} | {m.help} |")
    return "\n".join(["| metric | unit | better | meaning |", "|---|---|---|---|", *rows])


Key = tuple[str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Row:
    """One metric of one comparison. delta_pct: B against A; None without both, or when A is 0."""

    metric: str
    unit: str
    a: Summary | None
    b: Summary | None
    delta_pct: float | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """All metrics of one case with one set of axes."""

    case: str
    lane: str
    axes: dict[str, str]
    rows: list[Row]
    notes: list[str]


def group(found: Iterable[Result]) -> dict[Key, list[Result]]:
    """Runs that differ only in their seed, by case, lane and axes; a seed counts once."""
    groups: dict[Key, dict[int, Result]] = {}
    for result in found:
        key = (result.case, lane(result), tuple(sorted(all_axes(result).items())))
        groups.setdefault(key, {})[result.seed] = result
    return {k: [by_seed[s] for s in sorted(by_seed)] for k, by_seed in sorted(groups.items())}


def values(runs: Iterable[Result], metric: str) -> list[float]:
    """``metric`` of every run that was whole and measured it."""
    return [v for r in runs if r.status != "error" and (v := r.value(metric)) is not None]


def _verdict(metric: str, a: Summary, b: Summary) -> str:
    if a.median == b.median:
        return "="
    if abs(a.median - b.median) <= max(a.spread or 0, b.spread or 0):
        return "~"
    entry = info(metric)
    if entry is None or not entry.better:
        return ""
    return "better" if (b.median > a.median) == (entry.better == "higher") else "worse"


def compare_runs(key: Key, a: Sequence[Result], b: Sequence[Result]) -> Comparison:
    """Compare the seeds of A with those of B."""
    case, lane, axes = key
    rows = []
    units = {n: str(m["unit"]) for r in (*b, *a) for n, m in r.metrics.items()}
    for metric in dict.fromkeys(n for r in (*a, *b) for n in r.metrics):
        sa, sb = (summary(v) if (v := values(runs, metric)) else None for runs in (a, b))
        delta, verdict = None, ""
        if sa and sb:
            verdict = _verdict(metric, sa, sb)
            delta = 100 * (sb.median - sa.median) / abs(sa.median) if sa.median else None
        if sa or sb:
            rows.append(Row(metric, units[metric], sa, sb, delta, verdict))
    notes = [f"{side}: seed {r.seed} {r.status}" for side, runs in (("A", a), ("B", b)) for r in runs
             if r.status in ("fail", "error")]
    return Comparison(case, lane, dict(axes), rows, notes)


def _pair(a: str, b: str) -> str:
    return "" if a == b == "-" else f"{a}/{b}"


def title(case: str, lane: str, axes: Mapping[str, str]) -> str:
    """``line``, folded."""
    return textwrap.fill(line(case, lane, axes), 78, subsequent_indent="  ")


def render(comparison: Comparison) -> str:
    """The A/B table as text."""
    rows = []
    for r in comparison.rows:
        spreads = [number(s.spread) if s else "-" for s in (r.a, r.b)]
        rows.append([
            r.metric, r.unit, number(r.a.median if r.a else None), number(r.b.median if r.b else None),
            "-" if r.delta_pct is None else f"{r.delta_pct:+.1f}%", f"{r.a.n if r.a else 0}/{r.b.n if r.b else 0}",
            _pair(*spreads), r.verdict,
        ])
    head = ["metric", "unit", "A", "B", "delta", "seeds", "spread", ""]
    lines = [title(comparison.case, comparison.lane, comparison.axes), table(head, rows, left=2)]
    if any(r.a and r.b and r.a.n == r.b.n == 1 for r in comparison.rows):
        lines.append("  one seed each: no spread is known, a difference may be chance")
    return "\n".join(lines + [f"  {n}" for n in comparison.notes])


def find_in(places: Sequence[str], kernel: str) -> tuple[str, list[Result], list[str]]:
    """The results of ``kernel`` (or KERNEL-KEY8) below several machines' directories: label, results, notes.

    WbError when there is none, or when the machines had different builds of it.
    """
    name, _, key = kernel.rpartition("-")
    there = [r for place in places for r in _below(Path(place))]
    # The whole first: what 'wb run --dir' ran on has a name such as host-6.12.0-13-amd64.
    found = [r for r in there if r.kernel == kernel] or [
        r for r in there if r.kernel == name and str(r.meta.get("image_hash", "")).startswith(key)]
    if not found:
        raise WbError(f"no results of '{kernel}' below {', '.join(places)}: "
                      "with --from, A and B are kernels, such as stock or stock-1a2b3c4d", 2)
    _one_kernel(found, ", ".join(places))
    kept, notes = merge(found)
    return f"{kernel} of {len(places)} places", kept, notes


def _below(place: Path) -> list[Result]:
    if not place.exists():
        raise WbError(f"--from {place}: no such file or directory", 2)
    return store.read(place)


def _one_kernel(found: Sequence[Result], where: str) -> None:
    kernels = sorted({f"{r.kernel} {str(r.meta.get('image_hash', ''))[:8]}".strip() for r in found})
    if len(kernels) > 1:
        raise WbError(f"{where} holds results of several kernels ({', '.join(kernels)}): name one of them", 2)


def find(spec: str) -> tuple[str, list[Result]]:
    """The results that ``spec`` names, with a label: a file, a directory, or a kernel below results/.

    "stock" is the latest of stock-*; WbError when there is nothing, or several kernels.
    """
    path = Path(spec)
    if not path.exists():
        path = RESULTS / spec
    if "/" not in spec and not path.exists():
        path = _latest(spec)
    found = store.read(path)
    if not found:
        raise WbError(f"no finished results below {path}: run some with 'wb run' or 'wb bench'")
    _one_kernel(found, str(path))
    return (spec if path.is_file() else path.name), found


def _latest(name: str) -> Path:
    there = [p for p in RESULTS.iterdir() if p.is_dir()] if RESULTS.is_dir() else []
    matching = [p for p in there if re.fullmatch(re.escape(name) + r"-[0-9a-f]{1,8}", p.name)]
    if not matching:
        known = sorted(p.name for p in there if p.name not in ("demo", "report"))
        raise WbError(f"no results for '{name}': neither a file, a directory nor a kernel below {RESULTS.name}/ "
                      f"(there: {', '.join(known) or 'none, run some with wb bench'})", 2)
    matching.sort(key=_rank)
    if len(matching) > 1:
        say(f"  {name}: the latest of {len(matching)} builds, {matching[-1].name}")
    return matching[-1]


def _rank(build: Path) -> tuple[bool, float]:
    """How a build of a kernel ranks: one of another flavour than slim, such as debug, before any slim one."""
    newest, path = max(((f.stat().st_mtime, f) for f in build.rglob("result.json")), default=(0.0, build))
    try:
        return not flavour_of(store.load(path)), newest
    except (WbError, OSError):
        return True, newest


def compare_all(a: Sequence[Result], b: Sequence[Result]) -> tuple[list[Comparison], list[str]]:
    """Compare what A and B have in common; also one line for each that has more. WbError for nothing."""
    ga, gb = group(a), group(b)
    both = [compare_runs(key, ga[key], gb[key]) for key in ga if key in gb]
    if not both:
        cases = [", ".join(sorted({k[0] for k in g})) for g in (ga, gb)]
        raise WbError(f"nothing to compare: no case with the same axes in both (A has {cases[0]}; B has {cases[1]})")
    only = [(side, [k for k in mine if k not in other]) for side, mine, other in (("A", ga, gb), ("B", gb, ga))]
    return both, [f"only in {side}: {len(keys)} (first: {line(*keys[0][:2], dict(keys[0][2]))})"
                  for side, keys in only if keys]


def regressions(comparisons: Iterable[Comparison], percent: float) -> list[str]:
    """Metrics that are worse by more than ``percent``, beyond their spread; of 0, anything is more."""
    return [f"{c.case} {r.metric} " + (f"{r.delta_pct:+.1f}%" if r.delta_pct is not None
                                       else f"0 -> {number(r.b.median if r.b else None)}")
            for c in comparisons for r in c.rows
            if r.verdict == "worse" and (r.delta_pct is None or abs(r.delta_pct) > percent)]


def run(args: argparse.Namespace) -> int:
    """``wb compare``."""
    labels, sides, notes = [], [], []
    for spec in (args.a, args.b):
        label, found, dropped = find_in(args.places, spec) if args.places else (*find(spec), [])
        labels.append(label)
        notes += dropped
        sides.append([r for r in found if args.case in (None, r.case)])
    if args.case is not None:
        ax.case(args.case)
    comparisons, only = compare_all(*sides)
    if args.metric:
        wanted = re.compile("|".join(map(re.escape, args.metric)))
        comparisons = [Comparison(c.case, c.lane, c.axes, rows, c.notes) for c in comparisons
                       if (rows := [r for r in c.rows if wanted.match(r.metric)])]
        if not comparisons:
            raise WbError(f"no metric starts with {' or '.join(args.metric)}", 2)
    if args.json:
        print(json.dumps({"a": labels[0], "b": labels[1], "notes": notes,
                          "comparisons": [asdict(c) for c in comparisons]}, indent=1))
    else:
        print(f"A = {labels[0]}\nB = {labels[1]}\n")
        print("\n\n".join(render(c) for c in comparisons))
        print("".join(f"{text}\n" for text in (*only, *notes)), end="")
    bad = regressions(comparisons, args.fail_on_regression) if args.fail_on_regression is not None else []
    for text in bad:
        say(f"regression: {text}")
    return 1 if bad else 0


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb compare``."""
    p = sub.add_parser("compare", help="compare two sets of results", epilog=EXAMPLES,
                       description="Compare results A and B: each a result directory, a JSON file, or a kernel's name.",
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("a", metavar="A", help="the base")
    p.add_argument("b", metavar="B", help="what is compared with it")
    p.add_argument("--from", action="append", dest="places", metavar="DIR",
                   help="results of another machine: a directory or JSON file; A and B are then kernels (repeatable)")
    p.add_argument("--case", help="only this case")
    p.add_argument("--metric", action="append", metavar="NAME", help="only metrics that start with NAME (repeatable)")
    p.add_argument("--json", action="store_true", help="print the comparison as JSON")
    p.add_argument("--fail-on-regression", type=ranges.number(0, 1e6), metavar="PCT",
                   help="exit 1 if a metric is worse by more than PCT percent (0..1000000) and by more than the spread")
    p.set_defaults(func=run)
