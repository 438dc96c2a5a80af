# SPDX-License-Identifier: GPL-2.0
"""Statistics against the standard library and by hand; number and table formatting."""

import random
import statistics

import pytest

from wbtop import stats


def test_quantiles_by_hand() -> None:
    assert stats.median([3]) == 3
    assert stats.median([4, 1, 3, 2]) == 2.5
    assert stats.quantile([1, 2, 3, 4, 5], 0.25) == 2
    assert stats.quantile([10, 20], 0.25) == 12.5
    assert stats.iqr([1, 2, 3, 4, 5]) == 2
    assert stats.iqr([7]) == 0


def test_agrees_with_the_standard_library() -> None:
    rng = random.Random(1)
    for n in range(2, 30):
        values = [rng.expovariate(1) for _ in range(n)]
        shares = statistics.quantiles(values, n=200, method="inclusive")
        assert [stats.quantile(values, i / 200) for i in range(1, 200)] == pytest.approx(shares)
        assert min(values) <= stats.quantile(values, rng.random()) <= max(values)


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_bad_quantile(p: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        stats.quantile([1], p)


def test_empty() -> None:
    for fn in (stats.median, stats.iqr, stats.summary):
        with pytest.raises(ValueError):
            fn([])
    with pytest.raises(ValueError, match="nothing"):
        stats.quantile([], 0.5)


def test_one_seed_has_no_spread() -> None:
    assert stats.summary([5.0]) == stats.Summary(1, 5.0, None)
    assert stats.summary([1.0, 2.0, 3.0]) == stats.Summary(3, 2.0, 1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (5, "5"), (0.13, "0.1300"), (31.94, "31.94"), (504.21, "504.2"), (12345.6, "12346"), (99999, "99999"),
     (99999.9, "100.0k"),
     (999999, "1.000M"), (123456, "123.5k"), (1_000_000_000, "1.000G"), (524_288_000, "524.3M"), (-2.5, "-2.500"),
     (0.0000001, "1.000e-07"), (1e12, "1000G"), (None, "-")],
)
def test_number(value: float | None, text: str) -> None:
    assert stats.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.58, "0.58"), (64.0, "64"), (4.4, "4.4"), (14400, "14400"), (0.9927, "0.993"), (0, "0"),
                        (992.7, "993"), (-1234.5, "-1234"), (None, "-")])
def test_short(value: float | None, text: str) -> None:
    assert stats.short(value) == text


def test_table_is_aligned() -> None:
    text = stats.table(["metric", "A"], [["read_p99", "5"], ["x", "31.94"]])
    assert text.splitlines() == ["metric        A", "--------  -----", "read_p99      5", "x         31.94"]


def test_no_point_without_a_digit_behind_it() -> None:
    assert [stats.number(v) for v in (1000.4, 871.84, 2882.3, 999960)] == ["1000", "871.8", "2882", "1.000M"]
