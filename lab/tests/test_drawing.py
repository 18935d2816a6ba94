"""Drawings: which axis, which marks, and that what is not valid can be seen."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from quiver_lab.quantities import of_quantity
from quiver_lab.report.drawing import COLOURS, Figure, Series, short, svg

SVG = "{http://www.w3.org/2000/svg}"


def figure(*values: float, valid: bool = True, reference: float | None = None) -> Figure:
    series = tuple(Series(f"s{i}", ("64 B",), (v,), (v * 0.9,), (v * 1.1,), valid=valid) for i, v in enumerate(values))
    return Figure("f", "a < b", "frame size", "rate, packets/s", ("64 B",), series, reference=reference)


def marks(drawing: str) -> list[ElementTree.Element]:
    """Elements that tell their value."""
    return [e for e in ElementTree.fromstring(drawing).iter() if e.find(f"{SVG}title") is not None]


def test_values_close_together_are_bars_from_zero_up() -> None:
    drawing = svg(figure(100, 200))
    low, high = marks(drawing)
    assert (low.tag, high.tag) == (f"{SVG}rect", f"{SVG}rect")
    assert float(high.get("height") or 0) == pytest.approx(2 * float(low.get("height") or 0), rel=0.01)
    assert "logarithmic" not in drawing


def test_values_far_apart_are_points_on_a_logarithmic_axis() -> None:
    drawing = svg(figure(100, 10_000, 1_000_000))
    heights = [float(m.get("cy") or 0) for m in marks(drawing)]
    # Two decades each.
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert "logarithmic" in drawing
    assert ">1M<" in drawing


def test_none_at_all_has_a_mark_of_its_own_on_a_logarithmic_axis() -> None:
    zero, *_ = marks(svg(figure(0, 1, 1000)))
    assert zero.tag == f"{SVG}polygon"
    assert zero.get("fill") == "none"
    assert (zero.findtext(f"{SVG}title") or "").endswith(": 0")


def test_what_is_not_valid_is_open_and_dashed() -> None:
    (sound,), (doubtful,) = marks(svg(figure(5))), marks(svg(figure(5, valid=False)))
    assert sound.get("fill") == COLOURS[0]
    assert sound.get("stroke-dasharray") is None
    assert doubtful.get("fill") == "none"
    assert doubtful.get("stroke-dasharray") is not None


def test_a_ratio_has_a_line_at_one_whatever_its_values() -> None:
    drawing = svg(figure(0.5, 0.9, reference=1.0))
    assert 'class="reference"' in drawing
    assert "logarithmic" in drawing


def test_more_series_than_colours_differ_by_their_shape() -> None:
    many = [10.0 ** (i % 4) for i in range(len(COLOURS) + 1)]
    found = marks(svg(figure(*many)))
    first, last = found[0], found[-1]
    assert first.get("fill") == last.get("fill")
    assert first.tag != last.tag


def test_a_drawing_without_values_is_whole_and_texts_are_escaped() -> None:
    drawing = svg(Figure("f", "a < b", "x", "q", (), ()))
    ElementTree.fromstring(drawing)
    assert "a &lt; b" in drawing


@pytest.mark.parametrize(
    ("value", "said"), [(0.05, "0.05"), (999, "999"), (68_118, "68.1k"), (14_880_952, "14.9M"), (2e9, "2G"), (0, "0")]
)
def test_values_are_short(value: float, said: str) -> None:
    assert short(value) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("receive_rate_pps", "receive rate, packets/s"),
        ("loss_percent", "loss, %"),
        ("at_50_percent_latency_mean_us", "latency mean, µs (at 50 % of the rate)"),
        ("loss_at_70_percent", "loss at 70 % of the highest rate, %"),
        ("bytes_per_wh", "bytes per Wh"),
        ("energy_wh", "energy, Wh"),
        ("worst_slice", "worst slice"),
    ],
)
def test_quantities_have_their_units(name: str, said: str) -> None:
    assert of_quantity(name) == said
