"""Statistics on data with known answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver_lab import stats


def test_summary_of_known_values() -> None:
    s = stats.summary([2, 4, 4, 4, 5, 5, 7, 9])
    assert (s.count, s.median, s.minimum, s.maximum, s.mean) == (8, 4.5, 2, 9, 5)
    assert s.stdev == pytest.approx(2.138089935)
    assert s.dispersion_percent == pytest.approx(7 / 4.5 * 100)


def test_a_single_value_has_no_deviation_and_zero_no_dispersion() -> None:
    assert stats.summary([3]).stdev is None
    assert stats.summary([0, 0, 0]).dispersion_percent is None
    with pytest.raises(ValueError, match="no values"):
        stats.summary([])


def test_scale_up_and_relative_to_half() -> None:
    cores = {1: 100.0, 2: 180.0, 4: 300.0, 6: 400.0}
    assert stats.scale_up(cores) == {1: 1.0, 2: 0.9, 4: 0.75, 6: pytest.approx(4 / 6)}
    assert stats.relative_to_half(cores) == {2: 1.8, 4: pytest.approx(5 / 3)}
    with pytest.raises(ValueError, match="one core"):
        stats.scale_up({2: 1.0})


def test_mann_whitney_of_known_samples() -> None:
    # Exact two-sided p of complete separation is 2 / C(n+m, n).
    apart = stats.compare([10, 11, 12, 13], [1, 2, 3])
    assert apart.p_value == pytest.approx(2 / 35)
    assert apart.p_value == pytest.approx(stats.smallest_p(4, 3))
    assert apart.cliffs_delta == 1
    assert apart.effect == "large"
    assert apart.ratio == 11.5 / 2
    same = stats.compare([5, 5, 5], [5, 5, 5])
    assert (same.p_value, same.cliffs_delta, same.effect) == (1.0, 0.0, "negligible")


def test_mann_whitney_of_a_textbook_example() -> None:
    # Hollander and Wolfe, permeability of membranes: U = 35 against 15, exact two-sided p = 0.2544.
    term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    early = [1.15, 0.88, 0.90, 0.74, 1.21]
    found = stats.compare(term, early)
    assert found.p_value == pytest.approx(0.2544, abs=5e-5)
    assert found.cliffs_delta == pytest.approx(2 * 35 / 50 - 1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_effect_size_is_antisymmetric_and_counts_pairs(a: list[int], b: list[int]) -> None:
    found = stats.compare(a, b)
    pairs = sum((x > y) - (x < y) for x in a for y in b) / (len(a) * len(b))
    assert found.cliffs_delta == pytest.approx(pairs)
    assert stats.compare(b, a).cliffs_delta == pytest.approx(-pairs)
    assert stats.compare(b, a).p_value == pytest.approx(found.p_value)


def test_odd_values_by_median_absolute_deviation() -> None:
    assert stats.mad([1, 1, 2, 2, 4, 6, 9]) == 1
    assert stats.odd_values([100, 101, 99, 100, 60]) == (4,)
    assert stats.odd_values([100, 105, 95, 102, 98]) == ()
    # Most agree exactly: without a floor the smallest difference would be odd.
    assert stats.odd_values([100, 100, 100, 101]) == (3,)
    assert stats.odd_values([100, 100, 100, 101], floor=1) == ()
    assert stats.odd_values([1, 1000]) == ()


def test_warnings_name_what_is_doubtful() -> None:
    assert stats.stability_warnings([100, 101, 99, 100]) == ()
    assert stats.stability_warnings([100, 101]) == ("only 2 repeats",)
    assert "dispersion 40.0 %" in stats.stability_warnings([80, 100, 120])[0]
    assert "drift" in stats.stability_warnings([100, 101, 102, 103, 104, 105, 106, 107])[0]
