"""Published values: each stands in its seed as printed, and the papers' own arithmetic is ours."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from quiver_lab import stats
from quiver_lab.published import PAPERS, Published, load, matching


@pytest.mark.parametrize("paper", PAPERS)
def test_every_printed_value_stands_in_its_seed(paper: str, seeds: dict[str, list[str]]) -> None:
    checked = 0
    for v in load(paper):
        line = seeds[v.seed][v.line - 1]
        if v.field is not None:
            cells = [x.strip() for x in line.split("|" if line.startswith("|") else "\t")]
            assert cells[v.field] == v.printed, v
            checked += 1
        elif v.kind in ("table", "prose"):
            assert v.printed in line, v
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("paper", PAPERS)
def test_value_is_what_is_printed(paper: str) -> None:
    for v in load(paper):
        if v.kind != "table":
            continue
        assert v.value is not None
        if v.note in ("decimal comma",):
            assert v.value == float(v.printed.replace(",", ".")), v
        else:
            assert v.value == float(v.printed.replace(",", "").replace(" ", "")), v


def test_extent_of_the_thesis() -> None:
    values = load("slavik2025")
    kinds = Counter(v.kind for v in values)
    # 12 tables of 20 rows of 4 values; 24 rows of the NAT tables are empty.
    assert kinds["table"] == 240 * 4 - 24 * 4 + 4 * 3
    assert kinds["not-published"] == 24 * 4
    empty = {(v.cell["rate_gbit_s"], v.cell["frame_bytes"], v.cell["dut"], v.cell["workers"])
             for v in values if v.kind == "not-published"}  # fmt: skip
    assert len(empty) == 24
    assert all(v.value is None for v in values if v.kind == "not-published")
    assert all(v.cell["operation"] == "nat" for v in values if v.kind == "not-published")


def test_derived_energy_values_follow_from_the_tables() -> None:
    values = load("slavik2025")
    by_cell: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for v in values:
        if v.value is not None and v.kind in ("table", "derived") and "rate_gbit_s" in v.cell and v.table != "draft 2.3":
            by_cell[tuple(v.cell.values())][v.quantity] = v.value
    assert len(by_cell) == 240 - 24
    for (operation, rate, size, _, _), q in by_cell.items():
        directions = 2 if operation == "bidirectional" else 1
        frames = float(rate) * 1e9 / 8 / float(size) * 120 * directions * (1 - q["loss_percent"] / 100)
        assert q["packets_per_wh"] == pytest.approx(frames / q["energy_wh"], rel=1e-5)
        assert q["bytes_per_wh"] == pytest.approx(frames * float(size) / q["energy_wh"], rel=1e-5)


def test_rates_of_the_thesis_are_of_layer_two() -> None:
    for packets, octets in zip(
        matching(load("slavik2025"), "tx_packets"), matching(load("slavik2025"), "tx_bytes"), strict=True
    ):
        assert packets.value is not None
        assert octets.value == packets.value * 64


def _medians(table: str) -> dict[int, float]:
    return {
        int(v.cell["workers"]): v.value
        for v in load("kosak2025")
        if v.table == table and v.quantity == "throughput_median_pps" and v.value is not None
    }


def _printed(table: str, quantity: str) -> list[Published]:
    return [v for v in load("kosak2025") if v.table == table and v.quantity == quantity]


KERNEL_TABLES = ("I", "II", "V", "VI", "VII", "VIII")


@pytest.mark.parametrize("table", KERNEL_TABLES)
def test_scale_up_is_the_papers(table: str) -> None:
    medians = _medians(table)
    found = stats.scale_up(medians)
    printed = {int(v.cell["workers"]): v.value for v in _printed(table, "throughput_scale_up")}
    # Four decimals are printed, some cut off and not rounded.
    assert printed == {n: pytest.approx(s, abs=1.1e-4) for n, s in found.items()}
    halves = {int(v.cell["workers"]): v.value for v in _printed(table, "throughput_relative_to_half")}
    assert halves == {n: pytest.approx(r, abs=1.1e-4) for n, r in stats.relative_to_half(medians).items() if n in halves}
    assert set(halves) == set(stats.relative_to_half(medians)) - set()


@pytest.mark.parametrize("table", [*KERNEL_TABLES, "III", "IV", "IX", "X"])
def test_dispersion_is_the_papers(table: str) -> None:
    by_cell: dict[str, dict[str, float]] = defaultdict(dict)
    for v in load("kosak2025"):
        if v.table == table and v.kind == "table" and v.value is not None:
            by_cell[str(v.cell)][v.quantity] = v.value
    assert by_cell
    for q in by_cell.values():
        found = stats.dispersion_percent(q["throughput_minimum_pps"], q["throughput_maximum_pps"], q["throughput_median_pps"])
        assert q["throughput_dispersion_percent"] == pytest.approx(found, abs=0.0101)


def test_derived_ratios_carry_their_formula() -> None:
    derived = [v for v in load("kosak2025") if v.kind == "derived"]
    assert len(derived) == 12
    for v in derived:
        over, under = v.formula.split("/")
        assert v.value == pytest.approx(float(over) / float(under), rel=1e-5)
    # "Approximately an order of magnitude", "perfect scalability".
    assert all(8 < (v.value or 0) < 11 for v in derived if v.quantity == "vpp_1_to_kernel_1")
    assert all(1.99 < (v.value or 0) < 2.10 for v in derived if v.quantity == "two_workers_to_one")


def test_unknown_paper_is_an_error() -> None:
    with pytest.raises(ValueError, match="one of slavik2025"):
        load("nobody1999")
