# SPDX-License-Identifier: GPL-2.0
"""Results: round trip, schema errors that name the file, and writes that are whole or nothing."""

import errno
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from wblib.catalog.spec import RunSpec
from wblib.results import ktap, store
from wbtop.errors import WbError


@dataclass(frozen=True)
class FakeKernel:
    name: str = "stock"
    key: str = "0123456789abcdef"


def make(seed: int = 1, **metrics: float) -> store.Result:
    return store.Result(
        "read-latency", "stock", {"disk": "fifo"}, seed,
        {name: {"value": value, "unit": "us"} for name, value in metrics.items()},
        {"release": "6.12.1"}, "pass", [{"name": "readers ran", "result": "pass"}],
    )


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a" / "result.json"
    store.write(make(3, read_p50=110.5), path)
    again = store.load(path)
    assert again == make(3, read_p50=110.5)
    assert again.path == path
    assert (again.value("read_p50"), again.value("other")) == (110.5, None)
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]


def test_same_result_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        store.write(make(read_p50=1.0), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_data_files(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    assert make().data("fio.json") is None
    store.write(make(), path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "fio.json").write_text("{}")
    assert store.load(path).data("fio.json") == tmp_path / "data" / "fio.json"
    assert store.load(path).data("other") is None
    copy = make()
    copy.meta["dir"] = str(tmp_path)
    assert copy.data("fio.json") == tmp_path / "data" / "fio.json"
    assert copy.data("other") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "1"}, "'seed': '1' is not of type 'integer'"),
        ({"seed": True}, "'seed': True is not of type 'integer'"),
        ({"axes": []}, "'axes': [] is not of type 'object'"),
        ({"axes": {"readers": 4}}, "'axes/readers': 4 is"),
        ({"status": "good"}, "'status': 'good' is not one of"),
        ({"metrics": {"a": 5}}, "'metrics/a': 5 is"),
        ({"metrics": {"a": {"value": "5", "unit": "us"}}}, "'metrics/a/value': '5' is"),
        ({"metrics": {"a": {"value": 5}}}, "'metrics/a': 'unit' is a required property"),
        ({"metrics": {"A b": {"value": 5, "unit": "us"}}}, "'metrics': 'A b' does not match"),
        ({"tests": [{"name": "x", "result": "maybe"}]}, "'tests/0/result': 'maybe' is"),
        ({"metrics": {"a\n": {"value": 5, "unit": "us"}}}, "does not match"),
        ({"metrics": {"a": {"value": 10**400, "unit": "us"}}}, "'metrics/a/value'"),
        ({"axes": {"a\nb": 5}}, "'axes/a\\nb'"),
        ({"tests": ["x"]}, "'tests/0': 'x' is"),
    ],
)
def test_schema(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(make().to_json() | change))
    with pytest.raises(WbError) as err:
        store.load(path)
    assert words in str(err.value)
    assert str(path) in str(err.value)
    assert "\n" not in str(err.value)


@pytest.mark.parametrize("missing", ["case", "kernel", "axes", "seed", "metrics", "meta", "status", "tests"])
def test_every_key_is_needed(tmp_path: Path, missing: str) -> None:
    obj = make().to_json()
    del obj[missing]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(obj))
    with pytest.raises(WbError, match=f"'{missing}' is a required property"):
        store.load(path)


def test_truncated_at_every_byte_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    text = json.dumps(make(read_p50=1.5).to_json())
    for end in range(len(text)):
        path.write_text(text[:end])
        with pytest.raises(WbError, match="delete it and run the case again") as err:
            store.load(path)
        assert "\n" not in str(err.value)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"[]", b"5", b"null", b'{"a": NaN}', b"\x00" * 100])
def test_garbage_is_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(data)
    with pytest.raises(WbError, match=r"result\.json"):
        store.load(path)


def test_repeats_of_dir_are_results(tmp_path: Path) -> None:
    """What wb run --dir --json leaves, which report and compare are to take: "not a result: delete it"."""
    path = tmp_path / "repeats.json"
    runs = [make(read_p50=1.5).to_json(), make(read_p50=2.5).to_json()]
    path.write_text(json.dumps({"runs": runs, "verdicts": []}))
    assert [r.value("read_p50") for r in store.load_all(path)] == [1.5, 2.5]


def test_a_file_of_wb_field_is_not_to_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "field.json"
    path.write_text('{"format": 1, "turns": [], "sides": {}}')
    with pytest.raises(WbError, match=r"wb field --compare") as err:
        store.load_all(path)
    assert "delete" not in str(err.value)


def test_missing_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(WbError, match="no such result"):
        store.load(tmp_path / "none.json")
    with pytest.raises(WbError, match="cannot read"):
        store.load(tmp_path)


def test_scan_leaves_unfinished_runs_out(tmp_path: Path) -> None:
    for seed in (2, 1):
        store.write(make(seed), tmp_path / f"seed-{seed}" / "result.json")
    store.write(make(9), tmp_path / "seed-9.partial" / "result.json")
    assert [r.seed for r in store.scan(tmp_path)] == [1, 2]
    assert store.scan(tmp_path / "nothing") == []


def test_a_file_may_hold_several(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    path.write_text(json.dumps([make(1).to_json(), make(2).to_json()]))
    assert [r.seed for r in store.load_all(path)] == [1, 2]
    with pytest.raises(WbError, match="2 results where one"):
        store.load(path)


def test_full_disk_keeps_the_old_result_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    store.write(make(1), path)

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WbError, match="No space left on device; free some space") as err:
        store.write(make(2), path)
    assert "\n" not in str(err.value)
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    assert store.load(path).seed == 1


def test_the_error_of_the_system_comes_through(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WbError, match="cannot write"):
        store.write(make(), tmp_path / "file" / "result.json")


def test_a_wrong_result_is_never_written(tmp_path: Path) -> None:
    bad = make()
    bad.status = "great"
    with pytest.raises(ValueError, match="great"):
        store.write(bad, tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_result_dir() -> None:
    path = store.result_dir(FakeKernel(), RunSpec("wbdisk", {}, 7, "stock"))
    assert path.relative_to(store.RESULTS) == Path("stock-01234567/wbdisk/default/seed-7")


@pytest.mark.parametrize(
    ("text", "code", "status"),
    [
        ("1..1\nok 1 a\n", 0, "pass"),
        ("1..1\nnot ok 1 a\n", 1, "fail"),
        ("1..1\nok 1 a # SKIP x\n", 0, "skip"),
        ("1..0 # SKIP needs fio\n", 4, "skip"),
        ("1..1\nok 1 a\n", None, "error"),
        ("1..1\nok 1 a\n", 1, "error"),
        ("1..2\nok 1 a\n", 0, "error"),
        ("", 2, "error"),
        ("", 124, "error"),
        ("Bail out! no disk\n", 1, "error"),
    ],
)
def test_status(text: str, code: int | None, status: str) -> None:
    assert store.status_of(ktap.parse(text), code) == status


def test_the_schema_names_the_statuses() -> None:
    assert json.loads(store.SCHEMA.read_text())["properties"]["status"]["enum"] == list(store.STATUSES)


def test_without_the_validator_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(make(), tmp_path / "result.json")
    store._validator.cache_clear()
    monkeypatch.setattr(store.venv, "has", lambda _module: False)
    with pytest.raises(WbError, match="run 'make deps'"):
        store.load(tmp_path / "result.json")
