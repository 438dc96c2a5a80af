# SPDX-License-Identifier: GPL-2.0
"""wb field: its statistics, that settings and files are as before, and what two results of two machines give."""

import contextlib
import hashlib
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_machine import FakeMachine

from wbtop import ranksum
from wbtop.cli import main, parser
from wbtop.errors import WbError
from wbtop.field import command as field
from wbtop.tune import apply as tune_apply
from wbtop.tune import facts as tune_facts
from wbtop.tune import left, measure


@pytest.fixture(autouse=True)
def _run(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What runs of this machine share is below a directory of the test's own."""
    run = tmp_path_factory.mktemp("run")
    monkeypatch.setattr(left, "RECORD", str(run / "field.json"))
    monkeypatch.setattr(field, "LOCK", str(run / "lock"))
    monkeypatch.setattr(field, "in_container", lambda _machine: "")  # the tests may run in one
    return run


def test_p_value_is_that_of_all_arrangements() -> None:
    a, b = [1.0, 2.0, 3.0, 9.0], [4.0, 5.0, 6.0, 7.0, 8.0]
    def u(x: tuple[float, ...]) -> float:
        rest = [v for v in a + b if v not in x]
        return sum(p > q for p in x for q in rest)
    every = [u(c) for c in itertools.combinations(a + b, len(a))]
    low = min(u(tuple(a)), len(a) * len(b) - u(tuple(a)))
    assert ranksum.p_value(a, b) == pytest.approx(2 * sum(v <= low for v in every) / len(every))


def test_verdicts() -> None:
    a = {"x": [10.0 + i / 10 for i in range(6)], "same": [5.0, 6, 5.1, 5.9, 5.2, 5.8],
         "wild": [1.0, 9, 2, 30, 4, 50]}
    b = {"x": [5.0 + i / 10 for i in range(6)], "same": [5.05, 5.95, 5.15, 5.85, 5.25, 5.75],
         "wild": [2.0, 8, 1, 40, 3, 60]}
    found = {v.metric: v for v in ranksum.compare(a, b)}
    assert {n: v.verdict for n, v in found.items()} == {
        "x": "better", "same": "no difference seen", "wild": "too noisy"}
    assert found["x"].low is not None
    assert found["x"].low < 0.5 < (found["x"].high or 0)
    assert {v.verdict for v in ranksum.compare(b, a) if v.metric == "x"} == {"worse"}
    # The interval reaches far beyond both: that nothing was seen is not that there is nothing.
    wide = ranksum.compare({"w": [1.0, 2, 3, 4, 5, 6]}, {"w": [2.0, 3, 4, 5, 9, 30]})[0]
    assert wide.verdict == "too noisy"
    slight = ranksum.compare({"d": [304.5 + n / 99 for n in range(6)]}, {"d": [305.0 + n / 99 for n in range(6)]})
    assert [v.verdict for v in slight] == ["no difference seen"]
    # A time of 0 has no ratio: that had been "too few turns" for all.
    zero = ranksum.compare({"z": [0.0] * 6, "x": a["x"]}, {"z": [0.0] * 6, "x": b["x"]})
    assert [(v.metric, v.verdict) for v in zero] == [("x", "better")]
    few = ranksum.compare({"x": [1.0, 1.1]}, {"x": [9.0, 9.1]})[0]
    assert (few.verdict, few.confidence) == ("too few runs", None)


def test_what_a_cure_does_not_cost_is_said() -> None:
    a = {"read_p50_ms": [10.0 + i / 10 for i in range(6)], "drain_s": [5.0, 5.1, 5.2, 5.0, 5.1, 5.2]}
    b = {"read_p50_ms": [5.0 + i / 10 for i in range(6)], "drain_s": [5.1, 5.0, 5.2, 5.1, 5.0, 5.2]}
    said = field.conclusion([v.to_json() for v in ranksum.compare(a, b)])
    assert said.startswith("B is better: read_p50_ms 10.2 -> 5.25 (")
    assert said.endswith("No difference was seen in drain_s")
    assert field.conclusion([v.to_json() for v in ranksum.compare(a, a)]) == "no difference was seen"


def test_settings_are_put_back_also_after_ctrl_c(tmp_path: Path) -> None:
    scheduler, limit = tmp_path / "scheduler", tmp_path / "wbt_lat_usec"
    scheduler.write_text("none [mq-deadline]\n")
    limit.write_text("2000\n")
    (tmp_path / "iosched").mkdir()
    batch = tmp_path / "iosched/fifo_batch"
    batch.write_text("8\n")
    with pytest.raises(KeyboardInterrupt), field.kept(field.Machine(), {"B": {str(scheduler): "none"}}):
        scheduler.write_text("none")
        limit.write_text("75000")
        batch.write_text("16")
        raise KeyboardInterrupt
    assert (scheduler.read_text(), limit.read_text(), batch.read_text()) == ("mq-deadline", "2000", "8")


@pytest.fixture(name="queue")
def _queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The queue of a disk, and a killed run's scheduler none where mq-deadline had read_expire 50."""
    queue = tmp_path / "queue"
    (queue / "iosched").mkdir(parents=True)
    for name, text in {"scheduler": "none [mq-deadline]", "nr_requests": "64", "wbt_lat_usec": "2000",
                       "iosched/read_expire": "50"}.items():
        (queue / name).write_text(f"{text}\n")
    monkeypatch.setattr(tune_apply, "SETTING", re.compile(re.escape(str(tmp_path)) + "/[a-z_/]+"))
    write = Path.write_text

    def kernel(self: Path, text: str) -> int:
        if self == queue / "scheduler":
            (queue / "iosched/read_expire").unlink(missing_ok=True)
            if text == "mq-deadline":
                write(queue / "iosched/read_expire", "500\n")
            return write(self, f"none [{text}]\n" if text != "none" else "[none] mq-deadline\n")
        return write(self, text)
    monkeypatch.setattr(Path, "write_text", kernel)
    return queue


def killed(queue: Path, **sides: str) -> None:
    """A run that SIGKILL ended in a turn of B."""
    b = {str(queue / name): text for name, text in sides.items()}
    with field.kept(field.Machine(), {"A": {}, "B": b}):
        for file, text in b.items():
            Path(file).write_text(text)
        record = Path(left.RECORD).read_text()
        values = {p: p.read_text() for p in queue.rglob("*") if p.is_file()}
    assert not Path(left.RECORD).exists()
    for path in queue.rglob("*"):
        if path.is_file() and path not in values:
            path.unlink()
    for path, text in values.items():
        path.write_bytes(text.encode())
    Path(left.RECORD).write_text(record)


def test_what_a_killed_run_had_set_is_put_back(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL in a turn of B left B's settings for good, and as A of the next run."""
    killed(queue, scheduler="none", nr_requests="8")
    assert not (queue / "iosched/read_expire").exists()
    left.restore_left(field.Machine())
    assert field.Machine().choice(str(queue / "scheduler")) == "mq-deadline"
    assert [(queue / n).read_text().strip() for n in ("nr_requests", "iosched/read_expire")] == ["64", "50"]
    assert "put back what a killed wb field had set" in capsys.readouterr().err
    assert not Path(left.RECORD).exists()
    for bad in ("{", '{"before": {"/etc/passwd": "x"}}', "[1]",
                '{"before": {"/etc/passwd": "x"}, "set": {}, "disks": {}}'):
        Path(left.RECORD).write_text(bad)
        with pytest.raises(WbError, match="damaged"):
            left.restore_left(field.Machine())


def test_what_was_set_after_the_kill_stays(queue: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    killed(queue, nr_requests="8")
    (queue / "nr_requests").write_text("77\n")
    left.restore_left(field.Machine())
    assert (queue / "nr_requests").read_text() == "77\n"
    assert "left as it is, since it was changed after that" in capsys.readouterr().err
    killed(queue, nr_requests="8")
    monkeypatch.setattr(left, "_BOOT", str(queue / "scheduler"))  # another boot
    left.restore_left(field.Machine())
    assert (queue / "nr_requests").read_text() == "8"
    assert not Path(left.RECORD).exists()


def test_who_is_not_root_is_told(queue: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    killed(queue, nr_requests="8")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    left.restore_left(field.Machine())
    assert "of root runs, or was killed" in capsys.readouterr().err
    assert (queue / "nr_requests").read_text() == "8"


@pytest.mark.parametrize(("before", "side"), [(("0", "0"), ("5", "0")), (("0", "0"), ("0", "9000")),
                                              (("10", "0"), ("0", "9000")), (("0", "9000"), ("5", "0"))])
def test_a_ratio_of_0_comes_back(before: tuple[str, str], side: tuple[str, str], tmp_path: Path,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """vm.dirty_background_ratio=0 is a setting; it was never put back."""
    ratio, size = tmp_path / "dirty_background_ratio", tmp_path / "dirty_background_bytes"
    write = Path.write_text

    def kernel(self: Path, text: str) -> int:
        if self.read_text() != text:
            write(size if self == ratio else ratio, "0")
        return write(self, text)
    ratio.write_text(side[0])
    size.write_text(side[1])
    monkeypatch.setattr(Path, "write_text", kernel)
    assert left.restore(field.Machine(), {str(size): before[1], str(ratio): before[0]}) == []
    assert (ratio.read_text(), size.read_text()) == before


def test_one_run_at_a_time_changes_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each took what the other had set for what was there before."""
    with field.alone(Path(field.LOCK)):
        assert main(["field", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "another wb changes settings" in capsys.readouterr().err


@pytest.mark.parametrize(("turns", "error", "code", "why"), [
    (1, KeyboardInterrupt(), 130, "interrupted"), (5, KeyboardInterrupt(), 130, "interrupted"),
    (5, WbError("64 MiB were not written in 9 s"), 1, "64 MiB were not written in 9 s"),
    (5, OSError(28, "No space left on device"), 1, "No space left on device")])
def test_turns_that_are_finished_are_kept(turns: int, error: BaseException, code: int, why: str, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    depth = tmp_path / "nr_requests"
    depth.write_text("64\n")
    ran: list[int] = []

    def run(_seconds: float) -> dict[str, float]:
        ran.append(int(depth.read_text()))
        if len(ran) > turns + 1:  # the one that fills caches
            raise error
        return {"drain_s": float(len(ran))}
    facts = one()["facts"]
    monkeypatch.setattr(field, "fitting_mib", lambda *_: 16)
    monkeypatch.setattr(field, "Load", lambda *_: SimpleNamespace(run=run))
    monkeypatch.setattr(field, "settings", lambda text, _facts: {str(depth): "8"} if text else {})
    monkeypatch.setattr(field, "describe", lambda *_: facts)
    monkeypatch.setattr(tune_facts, "read", lambda *_: None)
    out = tmp_path / "out"
    assert main(["field", str(tmp_path), "--b", "x=8", "--repeats", "3", "--out", str(out)]) == code
    assert depth.read_text() == "64"
    assert not Path(left.RECORD).exists()
    if turns == 1:  # none of B
        assert "interrupted: settings are as before" in capsys.readouterr().err
        assert not out.exists()
        return
    found = json.loads((out / "field.json").read_text())
    assert [t["side"] for t in found["turns"]] == ["A", "B", "B", "A", "A"]
    assert found["conclusion"].startswith("Ended after 5 of 6 turns (")
    assert why in found["conclusion"]
    assert "Ended after 5 of 6 turns" in (out / "field.html").read_text()
    assert field.load(out / "field.json")


def test_what_is_so_already_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under bfq wbt_lat_usec reads 0, by default; a 0 that is written turns wbt off for good, also after bfq."""
    queue = tmp_path / "queue"
    (queue / "iosched").mkdir(parents=True)
    values = {"scheduler": "none [bfq]", "wbt_lat_usec": "0", "nr_requests": "64", "async_depth": "48"}
    for name, value in values.items():
        (queue / name).write_text(f"{value}\n")
    written: list[str] = []
    write = Path.write_text

    def logged(self: Path, text: str) -> int:
        written.append(f"{self.name}={text}")
        return write(self, f"none [{text}]" if self.name == "scheduler" else text)

    with field.kept(field.Machine(), {"B": {str(queue / "scheduler"): "none"}}):
        (queue / "scheduler").write_text("[none] bfq\n")
        (queue / "nr_requests").write_text("32\n")
        (queue / "async_depth").write_text("32\n")
        monkeypatch.setattr(Path, "write_text", logged)
    assert written == ["scheduler=bfq", "nr_requests=64", "async_depth=48"]


@pytest.mark.parametrize(("share", "exact", "restored"), [
    ("1000000", False, "max_ratio_fine=1000000"), ("11289", False, "max_ratio_fine=11289"),
    ("1000000", True, "max_ratio_fine=1000000"), ("11289", True, "max_bytes=50003968")])
def test_a_share_of_the_dirty_limit_comes_back_as_that(share: str, exact: bool, restored: str, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on 6.18: the limit had shrunk, the old max_bytes was refused, and the disk stayed at 1 % of it."""
    bdi = tmp_path / "sys/class/bdi/8:0"
    bdi.mkdir(parents=True)
    for name, value in {"max_bytes": "50003968", "max_ratio_fine": share, "strict_limit": "0",
                        **({"dirty_throttled_usec": "0"} if exact else {})}.items():
        (bdi / name).write_text(f"{value}\n")
    written: list[str] = []
    with field.kept(field.Machine(), {"B": {str(bdi / "max_bytes"): "20000000",
                                           str(bdi / "strict_limit"): "0"}}) as before:
        # As the dirty limit moves, so do the bytes of a share that nobody has changed.
        if not exact:
            (bdi / "max_bytes").write_text("49000000\n")
        monkeypatch.setattr(Path, "write_text", lambda self, text: written.append(f"{self.name}={text}") or 0)
        left.restore(field.Machine(), before)
        assert written == []
        monkeypatch.undo()
        for name, value in {"max_bytes": "20000000", "max_ratio_fine": "5000"}.items():
            (bdi / name).write_text(f"{value}\n")
        monkeypatch.setattr(Path, "write_text", lambda self, text: written.append(f"{self.name}={text}") or 0)
    assert written == [restored]


def test_a_turn_under_settings_of_the_other_side_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refused to take the old value back: turns of A went on with B's, and the exit code was 0."""
    depth = tmp_path / "nr_requests"
    depth.write_text("64\n")
    write = Path.write_text

    def refused(self: Path, text: str) -> int:
        if self == depth and text == "64" and turns:
            raise OSError(22, "Invalid argument")
        return write(self, text)
    turns: list[float] = []
    monkeypatch.setattr(Path, "write_text", refused)
    monkeypatch.setattr(field, "fitting_mib", lambda *_: 16)
    monkeypatch.setattr(field, "Load", lambda *_: SimpleNamespace(
        run=lambda _s: turns.append(int(depth.read_text())) or {"drain_s": 1.0}))
    args = SimpleNamespace(repeats=2, max_seconds=1.0, max_mib=16, like=None)
    with pytest.raises(WbError, match=r"could not be put back: .*/nr_requests=64; .*field\.json has them"):
        list(field.measure(tmp_path, field.Machine(), {"A": {}, "B": {str(depth): "8"}}, args))  # type: ignore[arg-type]
    assert turns == [64, 64, 8]  # the one that fills caches, A, B


def test_a_value_that_is_not_taken_is_no_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """6.18 takes a scheduler that it does not know, and switches to none: B had been measured with that."""
    queue = tmp_path / "queue"
    queue.mkdir()
    (queue / "scheduler").write_text("none [mq-deadline] kyber\n")
    (queue / "wbt_lat_usec").write_text("2000\n")
    (queue / "nr_requests").write_text("64\n")
    disk = tune_facts.read_disk(FakeMachine(tmp_path / "m").machine, "sda")
    monkeypatch.setattr(tune_facts.Disk, "queue", lambda _self, name: str(queue / name))
    facts = SimpleNamespace(disks=(disk,), bdi=None)
    for good in ("none", "kyber"):
        assert field.settings(f"queue.scheduler={good}", facts) == {str(queue / "scheduler"): good}  # type: ignore[arg-type]
    with pytest.raises(WbError, match=r"has none mq-deadline kyber, not nonsense; .* modprobe nonsense-iosched"):
        field.settings("queue.scheduler=nonsense", facts)  # type: ignore[arg-type]
    monkeypatch.setattr(Path, "write_text", lambda *_: 0)  # the kernel takes it, and that is all
    with pytest.raises(WbError, match="nr_requests does not take 8: it reads 64 after 64"):
        field._set({str(queue / "nr_requests"): "8"})
    assert not field._set({str(queue / "nr_requests"): "64"})


def test_another_value_than_was_asked_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nr_requests=1 is 4: the page said B: queue.nr_requests=1."""
    depth = tmp_path / "queue" / "nr_requests"
    depth.parent.mkdir()
    depth.write_text("64\n")
    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda self, text: write(self, "4" if text == "1" else text))
    monkeypatch.setattr(field, "fitting_mib", lambda *_: 16)
    monkeypatch.setattr(field, "Load", lambda *_: SimpleNamespace(run=lambda _s: {"drain_s": 1.0}))
    args = SimpleNamespace(repeats=1, max_seconds=1.0, max_mib=16, like=None)
    sides: dict[str, dict[str, str]] = {"A": {}, "B": {str(depth): "1"}}
    rows = [row for row, _ in field.measure(tmp_path, field.Machine(), sides, args)]  # type: ignore[arg-type]
    assert field._label("queue.nr_requests=1", rows, "B") == "queue.nr_requests=1 (in force: queue/nr_requests was 4)"
    assert field._label("", rows, "A") == "as it was"


def test_a_container_sets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    """After SIGKILL the host kept the setting: the record was in the container's own /run."""
    monkeypatch.setattr(field, "in_container", lambda _machine: "/.dockerenv is there")
    assert main(["field", str(tmp_path), "--b", "queue.nr_requests=8", "--out", str(tmp_path / "o")]) == 1
    assert "--a and --b: this is a container (/.dockerenv is there)" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("words", [["--b", "kernel.panic=1"], ["--b", "queue.../../x=1"], ["--b", "queue.no_such=1"],
                                   []])
def test_wrong_usage(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["field", *([str(tmp_path)] if words else []), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("words", "named"), [
    (["DIR"], "DIR"), (["--a", "vm.dirty_ratio=5", "--repeats", "8"], "--a, --repeats"), (["--b", "x"], "--b"),
    (["--anonymize"], "--anonymize")])
def test_what_compare_does_not_look_at_is_wrong_usage(words: list[str], named: str,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    """--anonymize most of all: the page had every name."""
    assert main(["field", *words, "--compare", "a.json", "b.json"]) == 2
    assert capsys.readouterr().err.startswith(f"wb: {named}: --compare takes two files")


def test_the_settings_of_vm_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """vm.dirty_expire_centisecs is one by "vm.dirty_...=N"."""
    with pytest.raises(WbError, match=r"not a setting: vm\.dirty_bytes, vm\.dirty_ratio, vm\.dirty_background_bytes, "
                       r"vm\.dirty_background_ratio, queue\.NAME or bdi\.NAME, each with =VALUE"):
        field.settings("vm.dirty_expire_centisecs=500", tune_facts.read(FakeMachine(tmp_path).machine, "/", "8:1"))
    with pytest.raises(SystemExit):
        main(["field", "--help"])
    assert "vm.dirty_bytes=N, vm.dirty_ratio=N, vm.dirty_background_bytes=N," in capsys.readouterr().out


def test_the_place_of_the_result_is_made_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    """Five minutes of measuring had ended with "Permission denied"; a full disk must not lose the result either."""
    (tmp_path / "file").write_text("")
    asked: list[object] = []
    monkeypatch.setattr(field, "_measured", lambda args: asked.append(args) or one())
    assert main(["field", str(tmp_path), "--out", str(tmp_path / "file/out")]) == 1
    assert (asked, "Not a directory" in capsys.readouterr().err) == ([], True)
    assert main(["field", str(tmp_path), "--out", str(tmp_path / "no/out")]) == 2
    assert (asked, "its directory is not there" in capsys.readouterr().err) == ([], True)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["field", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    found = capsys.readouterr()
    assert "drain_s" in found.out
    assert "field.json: No space left on device; the result is above" in found.err
    assert not (tmp_path / "out").exists()


def test_a_place_without_a_name_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--out . had been a traceback, and --out .. a directory "...2" here."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out, parent in ((".", tmp_path / "here"), ("..", tmp_path)):
        assert field._out(out).resolve().parent == parent
        assert [p.name[:9] for p in parent.glob("*[0-9]")] == ["wb-field-"]


def test_the_result_outlives_its_reader_and_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wb field --json | head: five minutes of measuring were lost; and a page in Latin-1 said that it is UTF-8."""
    monkeypatch.setattr(field, "_measured", lambda _args: one())

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError
    parts = ["field", str(tmp_path), "--json", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as m, pytest.raises(BrokenPipeError):
        m.setattr("sys.stdout", Gone())
        args = parser().parse_args(parts)
        args.func(args)
    assert json.loads((tmp_path / "out/field.json").read_text())["turns"]
    assert " ± " in (tmp_path / "out/field.html").read_bytes().decode("utf-8")


def one(machine: str = "m", p99: float = 40.0, release: str = "6.1", mib: int = 64,
        **more: object) -> dict[str, object]:
    facts = {"machine": machine, "disk_id": "d", "fs": "ext4", "release": release, "host": None, "cpu": "c", "cpus": 2,
             "memory_bytes": 1 << 30, "mount_options": "rw",
             "disks": [{"name": "sda", "model": "<b>", "scheduler": "none"}], **more}
    rows = [{"side": "A", "metrics": {"read_p99_ms": p99 + i, "drain_s": 3.0 + i / 10}, "cpu_stalled_pct": 1.0,
             "load": 0.1} for i in range(6)]
    return field.result(facts, {"A": "as it was"}, rows, mib)


def test_two_boots_are_compared_and_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = {"a": one(), "b": one(p99=4.0, release="6.12-calm"), "c": one(machine="n"), "d": one(mib=9)}
    for name, made in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
    words = ["field", "--out", str(tmp_path / "o"), "--compare", str(tmp_path / "a.json")]
    assert main([*words, str(tmp_path / "b.json")]) == 0
    assert "B is better: read_p99_ms 42.5 -> 6.5" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "b.json")]) == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["o", "o.2"]
    page = (tmp_path / "o/field.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    for other in "cd":
        assert main([*words, str(tmp_path / f"{other}.json")]) == 2
    assert "measure one of them again with --like" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}")
    assert main([*words, str(tmp_path / "bad.json")]) == 2


@pytest.mark.parametrize("known", ["", "m"])
def test_results_that_do_not_tell_their_machine_are_not_compared(known: str, tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    """No id was the same as no id: "B is worse", of two machines."""
    for name, made in {"a": one(machine=known), "b": one(machine="")}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
    assert main(["field", "--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"),
                 "--out", str(tmp_path / "o")]) == 2
    assert "/etc/machine-id" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "uninitialized\n"])
def test_an_image_that_was_not_booted_has_no_machine_id(text: str, tmp_path: Path) -> None:
    """machine-id(5): what a golden image has instead, which all machines of it would share."""
    fake = FakeMachine(tmp_path)
    fake.write("/etc/machine-id", text)
    assert field.machine_id(fake.machine) == ""
    fake.write("/sys/class/dmi/id/product_uuid", "u\n")
    with_uuid = field.machine_id(fake.machine)
    fake.write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    assert len({"", with_uuid, field.machine_id(fake.machine)}) == 3


def test_disks_whose_names_are_swapped_are_the_same(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.stack("sda1", "nvme0n1")

    def disk_id(first: str, second: str) -> str:
        fake.write("/run/udev/data/b8:0", f"E:ID_SERIAL={first}\n")
        fake.write("/run/udev/data/b259:0", f"E:ID_SERIAL={second}\n")
        facts = tune_facts.read(fake.machine, "/srv", "253:0")
        assert len(facts.disks) == 2
        return str(field.describe(fake.machine, facts, False)["disk_id"])
    assert disk_id("A", "B") == disk_id("B", "A") != disk_id("A", "C")


@pytest.mark.parametrize("old_first", [True, False])
@pytest.mark.parametrize(("anonymous", "same"), [((), True), (("new",), True), (("old",), False)])
def test_an_id_of_disks_in_order_of_their_names(anonymous: tuple[str, ...], same: bool, old_first: bool) -> None:
    """As results of before have it: with sda of serial number B and sdb of A the same disks were two."""
    def of(age: str, text: str) -> dict[str, object]:
        disks = [{"name": name, "model": None, "size_bytes": 512,
                  "identity": None if age in anonymous else f"ID_SERIAL={serial}"}
                 for name, serial in (("sda", "B"), ("sdb", "A"))]
        return one(disks=disks, disk_id=hashlib.sha256(text.encode()).hexdigest()[:16])
    both = [of("old", "ID_SERIAL=B512|ID_SERIAL=A512"), of("new", "ID_SERIAL=A512|ID_SERIAL=B512")]
    # What is anonymous has nothing but the id.
    with contextlib.nullcontext() if same else pytest.raises(WbError, match="of two disks"):
        assert field.pair(*both if old_first else both[::-1])["verdicts"]


@pytest.mark.parametrize("key", ["host", "machine", "fs", "disks", "memory_bytes", "mib", "sides", "time"])
def test_a_result_that_was_shortened_by_hand(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody had removed his host's name from it before sending: a traceback."""
    made = one()
    (tmp_path / "a.json").write_text(json.dumps(made))
    (made if key in made else made["facts"]).pop(key)  # type: ignore[attr-defined]
    (tmp_path / "b.json").write_text(json.dumps(made))
    words = [str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--out", str(tmp_path / "o")]
    assert main(["field", "--compare", *words]) == 2
    assert f"not a whole field.json of this wb (KeyError: '{key}')" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("cause", [OSError(28, "No space left on device"), None])
def test_anonymize_also_what_ended_it(cause: OSError | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    """ "ended" and "conclusion" had the directory: a result is for strangers."""
    def measure(directory: Path, *_: object) -> Iterator[tuple[dict[str, object], int]]:
        yield {"side": "A", "metrics": {"drain_s": 1.0}, "cpu_stalled_pct": 0.0, "load": 0.1}, 16
        raise WbError(f"measuring below {directory}: No space left on device") from cause
    monkeypatch.setattr(field, "measure", measure)
    monkeypatch.setattr(field, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(field, "describe", lambda *_: one()["facts"])
    monkeypatch.setattr(tune_facts, "read", lambda *_: None)
    monkeypatch.setattr(left, "restore_left", lambda *_: None)
    secret = tmp_path / "acme-db"
    secret.mkdir()
    words = ["field", str(secret), "--repeats", "2", "--json", "--out", str(tmp_path / "o")]
    assert main([*words, "--anonymize"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert "No space left on device" in found["ended"] and "No space left on device" in found["conclusion"]
    assert not any("acme-db" in p.read_text() for p in (tmp_path / "o").iterdir())
    assert main(words) == 1
    assert "acme-db" in json.loads(capsys.readouterr().out)["ended"]


def test_what_some_turns_lack_is_said() -> None:
    rows = [{"metrics": {"read_p50_ms": 1.0, "drain_s": 1.0, **({"read_p99_ms": 9.0} if n else {})}} for n in range(6)]
    assert field.left_out(rows).endswith("for it: fsync_p50_ms, read_p99_ms; raise --max-mib")
    every = [{"metrics": {"read_p50_ms": 1.0, "fsync_p50_ms": 1.0}}] * 6
    assert field.left_out(every) == ""


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    dead = tmp_path / ".wb-tune-0123456789abcdef"
    dead.mkdir()
    (dead / "data").write_bytes(bytes(4096))
    said: list[str] = []
    with measure.scratch(tmp_path) as alive:
        measure.remove_stale(tmp_path, said.append)
        assert alive.exists()
    assert not dead.exists()
    assert sorted(text.split()[0] for text in said) == ["another", "removed"]


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_what_another_run_has_does_not_stop_this_one(error: type[OSError], tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's run in /tmp kept every user from measuring there; one that ended at that moment, too."""
    (tmp_path / ".wb-tune-0123456789abcdef").mkdir()

    def refused(path: Path, *_: object) -> int:
        raise error(13, "Permission denied", str(path))
    monkeypatch.setattr(measure.os, "open", refused)
    measure.remove_stale(tmp_path, pytest.fail)


def test_a_disk_that_fills_up_is_named(tmp_path: Path) -> None:
    with pytest.raises(WbError, match=rf"{tmp_path}: No space left on device; what was written is removed"), \
            measure.scratch(tmp_path):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_real_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["field", str(tmp_path), "--repeats", "1", "--max-mib", "16", "--max-seconds", "10", "--anonymize",
             "--out", str(tmp_path / "o")]
    try:
        code = main(words)
    except WbError:
        code = 1
    if code and "no disk of this machine" in capsys.readouterr().err:
        pytest.skip("the temporary directory is on no disk")
    assert code == 0
    found = json.loads((tmp_path / "o/field.json").read_text())
    assert found["turns"][0]["metrics"]["drain_s"] > 0
    assert found["facts"]["host"] is None
    assert [p.name for p in tmp_path.iterdir()] == ["o"]
    err = capsys.readouterr().err
    assert f"on the other kernel: wb field {tmp_path} --like {tmp_path}/o/field.json" in err
    # As on a disk that is slower, or fuller, by then: it still writes as much, so that the two can be compared.
    (tmp_path / "first.json").write_text(json.dumps(found | {"mib": 17}))
    assert main([*words[:4], *words[6:-1], str(tmp_path / "o2"), "--like", str(tmp_path / "first.json")]) == 0
    assert json.loads((tmp_path / "o2/field.json").read_text())["mib"] == 17
    capsys.readouterr()
    (tmp_path / "first.json").write_text(json.dumps({k: v for k, v in found.items() if k != "mib"}))
    assert main(["field", str(tmp_path), "--out", str(tmp_path / "o3"), "--like", str(tmp_path / "first.json")]) == 2
    assert "not a whole field.json" in capsys.readouterr().err
    (tmp_path / "first.json").write_text(json.dumps(found | {"mib": 1 << 30}))
    for more, code, said in ((["--max-mib", "32"], 2, "exclude each other"), ([], 2, "make room")):
        assert main(["field", str(tmp_path), "--out", str(tmp_path / "o3"), "--like", str(tmp_path / "first.json"),
                     *more]) == code
        assert said in capsys.readouterr().err
