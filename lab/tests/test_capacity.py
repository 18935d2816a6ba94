"""The thesis by capacity: its tables are one number for each configuration; ratios and predictions on known answers."""

from __future__ import annotations

import pytest

from quiver_lab import published
from quiver_lab.campaign import Cell, parse
from quiver_lab.findings import Verdict
from quiver_lab.reproduce import Options, campaign_text, capacity, design
from quiver_lab.reproduce.capacity import RATIOS, REFERENCE
from quiver_lab.reproduce.design import CAPACITY
from quiver_lab.reproduce.evidence import Known

THESIS = published.load("slavik2025")


def known(keys: dict[str, str], *pps: float, link: str = "veth") -> Known:
    campaign = parse(campaign_text(design("slavik2025"), Options()))
    cell: Cell = next(c for c in campaign.cells() if c.link == link)
    return Known(cell, {**REFERENCE, **keys, "load": CAPACITY}, {"receive_rate_pps": pps} if pps else {}, "")


def compared(cells: list[Known], cores: int = 1) -> dict[str, capacity.Compared]:
    return {c.ratio.text: c for c in capacity.compare(THESIS, cells, cores)}


def test_the_thesis_has_one_capacity_for_each_configuration() -> None:
    theirs = capacity.of_paper(THESIS)
    assert [round(v / 1e6, 2) for v in theirs["one-way", "candidate", "1", "64"].values()] == [7.91, 8.16, 8.18]
    assert [round(v / 1e6, 2) for v in theirs["bidirectional", "candidate", "1", "64"].values()] == [11.56, 11.56, 11.56]
    # A 64th is lost at 1 Gbit/s with NAT: that is no overload.
    assert set(theirs["nat", "candidate", "1", "64"]) == {"10", "25", "40"}


def test_the_tables_follow_from_the_capacities() -> None:
    rows = capacity.predict(THESIS, [], 1)
    assert len(rows) > 200
    # Most of the rest are the kernel's, which forwards less the more it is offered.
    count, within, largest = capacity.explained(rows)
    assert (count, within) == (100, 78)
    assert largest == pytest.approx(28.8)
    one = next(r for r in rows if r.keys["rate_gbit_s"] == "40" and all(r.keys[k] == v for k, v in REFERENCE.items()))
    assert one.published == 89.53
    assert one.by_paper == pytest.approx(89.7, abs=0.2)
    assert one.by_ours == {}


def test_the_papers_own_ratios() -> None:
    found = {text: c.theirs for text, c in compared([known({})]).items()}
    kernel, nat, both, four, ten = (found[r.text] for r in RATIOS)
    assert kernel.low < 22 < kernel.high
    assert nat.low < 0.59 < nat.high
    assert both.low < 1.42 < both.high
    assert four.low < 3.1 < four.high
    assert ten.low < 4.3 < ten.high


def test_ratios_do_not_depend_on_the_machines_speed() -> None:
    for speed in (0.1, 1.0, 3.0):
        cells = [
            known({}, *(speed * x for x in (8.0e6, 8.1e6, 8.2e6))),
            known({"operation": "nat"}, *(speed * x for x in (4.7e6, 4.8e6, 4.9e6))),
        ]
        nat = compared(cells)[RATIOS[1].text]
        assert nat.verdict is Verdict.HOLDS
        assert nat.value == pytest.approx(4.8 / 8.1)
        at_40 = [
            r for r in capacity.predict(THESIS, cells, 1) if r.keys["operation"] == "nat" and r.keys["rate_gbit_s"] == "40"
        ]
        small = next(r for r in at_40 if r.keys["workers"] == "1" and r.keys["frame_bytes"] == "64")
        assert small.by_ours["veth"] == pytest.approx(small.published, abs=1)


def test_both_ways_count_both_directions() -> None:
    cells = [known({}, 8e6, 8e6, 8e6), known({"operation": "bidirectional"}, 5.7e6, 5.8e6, 5.9e6)]
    assert compared(cells)[RATIOS[2].text].value == pytest.approx(1.45)


def test_the_kernel_counts_by_core() -> None:
    cells = [known({}, 8e6, 8e6, 8e6), known({"dut": "linux", "workers": "2"}, 0.7e6, 0.72e6, 0.74e6)]
    kernel = compared(cells, cores=2)[RATIOS[0].text]
    assert kernel.value == pytest.approx(8 / 0.36)
    assert kernel.verdict is Verdict.HOLDS
    # The thesis's ten cores forward five times what two do.
    row = next(r for r in capacity.predict(THESIS, cells, 2) if r.keys["dut"] == "linux" and r.keys["rate_gbit_s"] == "40")
    assert row.by_ours["veth"] == pytest.approx(row.published, abs=1)


@pytest.mark.parametrize(
    ("nat", "verdict"),
    [
        ((4.8e6, 4.8e6, 4.8e6), Verdict.HOLDS),
        ((7.0e6, 7.0e6, 7.0e6), Verdict.DIRECTION_ONLY),
        ((9.0e6, 9.1e6, 9.2e6), Verdict.CONTRADICTED),
        ((5.5e6, 9.0e6, 4.0e6), Verdict.CANNOT_BE_TOLD),
        ((4.8e6,), Verdict.CANNOT_BE_TOLD),
        ((), Verdict.CANNOT_BE_TOLD),
    ],
)
def test_verdicts(nat: tuple[float, ...], verdict: Verdict) -> None:
    found = compared([known({}, 8e6, 8.1e6, 8.2e6), known({"operation": "nat"}, *nat)])[RATIOS[1].text]
    assert found.verdict is verdict
    assert (found.ours is None) == (len(nat) < 3)
    assert found.why


def test_capacity_is_measured_in_the_campaign_of_the_thesis() -> None:
    d = design("slavik2025")
    c = parse(campaign_text(d, Options()))
    mine = [d.keys(cell, c) for cell in c.cells() if cell.procedure.startswith("capacity")]
    assert {k["operation"] for k in mine} == {"one-way", "bidirectional", "nat"}
    assert all(k["load"] == CAPACITY and "rate_gbit_s" not in k for k in mine)
    assert {(k["dut"], k["link"]) for k in mine} == {("candidate", "veth"), ("candidate", "memif"), ("linux", "veth")}
