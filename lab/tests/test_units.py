"""Rates and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver_lab import units


def test_line_rate_of_the_smallest_frames() -> None:
    # The figure everybody knows: 14.88 Mpps on 10 Gbit/s.
    assert units.l1_pps(10e9, 64) == pytest.approx(14_880_952.38)
    assert units.l2_pps(10e9, 64) == pytest.approx(19_531_250)


@pytest.mark.parametrize(
    ("text", "pps"),
    [
        ("100000pps", 100_000), ("1.5Mpps", 1.5e6), ("2 kpps", 2000), ("1Gbps", 1e9 / 512), ("1GbpsL2", 1e9 / 512),
        ("1GbpsL1", 1e9 / 672), ("50%", 10e9 / 672 / 2),
    ],
)  # fmt: skip
def test_rates_are_read_as_the_tester_reads_them(text: str, pps: float) -> None:
    assert units.parse_rate(text, 64, 10e9) == pytest.approx(pps)


@pytest.mark.parametrize("text", ["", "fast", "10", "-1pps", "1Gpbs", "10 %%", "1e6pps"])
def test_rates_that_mean_nothing_are_errors(text: str) -> None:
    with pytest.raises(units.RateError, match="rate"):
        units.parse_rate(text, 64, 10e9)


def test_a_percentage_needs_a_line_rate() -> None:
    with pytest.raises(units.RateError, match="line rate"):
        units.parse_rate("50%", 64)


@given(st.text(max_size=20))
def test_any_text_is_a_rate_or_an_error(text: str) -> None:
    try:
        assert units.parse_rate(text, 64, 1e9) >= 0
    except units.RateError as error:
        assert "rate" in str(error)  # noqa: PT017
