"""The list of what became of every published table and figure."""

from __future__ import annotations

import pytest

from quiver_lab import published
from quiver_lab.published import Published
from quiver_lab.reproduce import coverage, design, gallery, model
from quiver_lab.reproduce.beside import Entry, Ours, Panel, Row
from test_gallery import FIGURES


def value(quantity: str, number: float | None) -> Published:
    return Published("t", "table", {}, quantity, "", number, "", None, "", "000", 1, "")


def ours(number: float | None, why: str = "", *, valid: bool = True) -> Ours:
    return Ours("veth", number, None, None, 1, why, "quiver", valid=valid)


def test_every_place_is_counted_once() -> None:
    cell = {"frame_bytes": "64", "dut": "vpp", "workers": "4"}
    entries = (
        Entry(
            "loss_percent", value("loss_percent", 1.0), (ours(None, "4 workers and a main thread need 5 cores; there is 1"),)
        ),
        Entry("a", value("a", 1.0), (ours(2.0), ours(3.0, valid=False))),
        Entry("b", value("b", 1.0), (ours(3.0, valid=False),)),
        Entry("c", value("c", 1.0), (ours(None, "no energy measured"),)),
        Entry("d", value("d", None), (ours(None, "nobody prints it"),)),
    )
    panel = Panel("1.1", "Table 1.1", ("frame_bytes",), (), (Row(cell, entries),))
    (bare,) = coverage.of_panels(design("slavik2025"), [panel], [])[:1]
    assert (bare.places, bare.valid, bare.doubtful, bare.modelled) == (4, 1, 1, 0)
    assert dict(bare.lacks) == {"5 cores for the device": 1, "an energy meter": 1}
    span = model.COMMITTED.speed_up(4)[1]
    keys = {"operation": "nat", "frame_bytes": "64", "dut": "candidate", "workers": "4"}
    modelled = model.Modelled(keys, "loss_percent", 1.0, 1.0, span, "x")
    (found,) = coverage.of_panels(design("slavik2025"), [panel], [modelled])[:1]
    assert (found.modelled, dict(found.lacks)) == (1, {"an energy meter": 1})
    line = coverage.markdown([found])[-1]
    assert line == "| Table 1.1 | 4 | 1 | 1 | 1 | an energy meter (1) |"


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("2 cores were asked for; testbed.dut_cores gives 1", "2 cores for the device"),
        ("placement 2-cores needs 3 cores; testbed.dut_cores gives 1", "3 cores for the device"),
        ("this machine has one NUMA node", "a second NUMA node"),
        ("the tester may be the limit, and R+ higher (all came back)", "a tester that is not the limit"),
        ("something of its own", "something of its own"),
    ],
)
def test_reasons_become_what_it_takes(why: str, said: str) -> None:
    assert coverage.need(why) == said


@pytest.mark.parametrize("paper", ["slavik2025", "kosak2025", "linguaglossa2019"])
def test_the_committed_list_has_every_table_of_the_paper(paper: str) -> None:
    text = (FIGURES / paper / "README.md").read_text(encoding="utf-8")
    rows = {p.name: p for p in gallery.read(FIGURES / paper / "beside.csv")}
    titles = {f.name: f.title for f in design(paper).figures}
    for panel in rows.values():
        assert f"| {titles.get(panel.name, panel.title)}" in text or f"| Figure {panel.name}" in text, panel.name
    tables = {v.table for v in published.load(paper) if v.kind == "table"}
    assert tables <= set(rows)
    assert all(f.title in text or f"Figure {f.name}" in text for f in design(paper).figures)
