"""What is modelled: on data whose answer is known, against the paper's own tables, and against the document it comes from."""

from __future__ import annotations

import csv
import re
import statistics
from pathlib import Path

import pytest

from quiver_lab import published
from quiver_lab.published import Published
from quiver_lab.reproduce import model
from quiver_lab.reproduce.design import CANDIDATE, CAPACITY
from quiver_lab.reproduce.evidence import Known
from test_reproduce import local

THESIS = published.load("slavik2025")
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"


def overload(workers: int, *rates: float) -> Known:
    keys = {"operation": "one-way", "dut": CANDIDATE, "workers": str(workers), "frame_bytes": "64", "load": CAPACITY}
    cell = next(c for c in local("slavik2025").cells() if c.procedure == "capacity" and c.link == "veth")
    return Known(cell.model_copy(update={"workers": workers}), keys, {"receive_rate_pps": rates}, "")


def test_a_worker_that_costs_nothing_scales_perfectly() -> None:
    assert [model.speed_up(w, 0.0) for w in (1, 4, 16)] == [1, 4, 16]
    # Two workers tell the cost, and the cost tells two workers.
    for ratio in (1.2, 1.5, 1.91):
        assert model.speed_up(2, model.cost(ratio)) == pytest.approx(ratio)
    assert model.cost(2.01) == 0


def test_intervals_are_those_of_the_cost_and_grow_with_the_workers() -> None:
    widths = []
    for workers in model.WORKERS:
        value, span = model.COMMITTED.speed_up(workers)
        assert span.low < value < span.high <= workers
        widths.append(span.high / span.low)
    assert widths == sorted(widths)


def test_two_measured_workers_take_the_documents_place_where_they_give_an_interval() -> None:
    one = overload(1, 1e6, 1.01e6, 0.99e6, 1.02e6, 0.98e6)
    assert model.scaling_of([one]) is model.COMMITTED
    assert model.scaling_of([one, overload(2, 1.8e6)]) is model.COMMITTED
    found = model.scaling_of([one, overload(2, 1.8e6, 1.79e6, 1.81e6, 1.82e6, 1.78e6)])
    assert found.s == pytest.approx(2 / 1.8 - 1)
    assert found.low < found.s < found.high
    assert "this campaign, one-way 64 B on veth" in found.source


def test_the_thesis_four_and_ten_workers_lie_within_the_committed_interval() -> None:
    for workers, _, span, printed in model.capacity_rows(THESIS, model.COMMITTED):
        if workers == 16:
            assert printed is None
        else:
            assert printed is not None
            assert span.low < printed.low <= printed.high < span.high


def test_losses_follow_from_one_worker_and_ours_from_our_ratio() -> None:
    # Ours forwards as the thesis's VPP-1 relative to itself, so both say the same of 64 B one way.
    rows = model.losses(THESIS, [overload(1, 1e6, 1e6, 1e6)], model.COMMITTED)
    deep = [
        r for r in rows if r.keys["rate_gbit_s"] == "40" and r.keys["frame_bytes"] == "64" and r.keys["operation"] == "one-way"
    ]
    assert {r.by for r in deep} == {model.THESIS, "ours on veth"}
    for workers in ("4", "10"):
        theirs, ours = (r for r in deep if r.keys["workers"] == workers)
        assert theirs.value == pytest.approx(ours.value)
        assert theirs.published is not None
        assert theirs.interval.low <= theirs.value <= theirs.interval.high
        assert theirs.within
    assert all(0 <= r.interval.low <= r.value <= r.interval.high <= 100 for r in rows)


def test_energy_of_known_hosts_is_found() -> None:
    def place(workers: int, rate: str, watts: float) -> Published:
        cell = {"operation": "one-way", "rate_gbit_s": rate, "frame_bytes": "64", "dut": "vpp", "workers": str(workers)}
        return Published("t", "table", cell, "energy_wh", "", watts / 30, "Wh", None, "", "000", 1, "")

    values = [place(w, rate, 150 + 8 * w) for w in (1, 4, 10) for rate in ("1", "10")]
    power = model.power_of(values)
    assert power is not None
    assert power.base_w == pytest.approx(150)
    assert power.worker_w == pytest.approx(8)
    assert power.places == 2
    rows = model.energies(values)
    assert {(r.keys["workers"], round(r.value * 30)) for r in rows} == {("4", 182), ("10", 230), ("16", 278)}
    assert all(r.within for r in rows if r.published is not None)
    # A place is held against others' draw, never against its own.
    assert model.energies([v for v in values if v.cell["rate_gbit_s"] == "1"]) == []
    assert model.power_of([]) is None


def test_energy_of_the_thesis_is_a_draw_by_the_worker() -> None:
    rows = [r for r in model.energies(THESIS) if r.published is not None]
    assert len(rows) >= 100
    errors = [abs(r.value / r.published - 1) for r in rows if r.published]
    assert statistics.median(errors) < 0.02
    assert max(errors) < 0.08


def test_committed_rows_are_those_of_the_model(tmp_path: Path) -> None:
    model.write_csv(model.all_of(THESIS, [])[1], tmp_path / "modelled.csv")
    committed = DOCUMENT.parent / "figures" / "slavik2025" / "modelled.csv"
    with committed.open(encoding="utf-8") as file, (tmp_path / "modelled.csv").open(encoding="utf-8") as own:
        here = [row for row in csv.DictReader(file) if not row["by"].startswith("ours")]
        assert here == list(csv.DictReader(own))


def test_the_document_has_the_models_figures() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for figure in model.TWO_WORKERS:
        assert f"{figure}" in text
    rows = re.findall(r"^\| ([0-9]+) \| ([0-9]+\.\d\d) \| ([0-9]+\.\d\d) \| ([0-9]+\.\d\d) \|", text, re.MULTILINE)
    assert {int(row[0]) for row in rows} >= {1, 2, *model.WORKERS}
    for workers, *printed in rows:
        value, span = model.COMMITTED.speed_up(int(workers))
        assert [float(x) for x in printed] == pytest.approx([span.low, value, span.high], abs=0.005)
