"""The positive control: a device in the paper's device's place beside the candidate, in the same campaign."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quiver_lab import campaign, facts, runner
from quiver_lab.cli import app
from quiver_lab.findings import Judgement, Verdict, load
from quiver_lab.reproduce import campaign_text, command, control, design, evidence, page
from quiver_lab.reproduce.beside import Panel
from quiver_lab.reproduce.control import Told
from quiver_lab.reproduce.design import Options
from quiver_lab.store import Store
from test_reproduce import laid, make

BED: dict[str, Any] = {
    "kind": "simulated",
    "devices": {"quiver": {"capacity_pps": 30_000}, "linux": {"capacity_pps": 40_000}, "fdio-vpp": {"capacity_pps": 400_000}},
}
"""A control ten times as fast as the kernel, and a candidate that is slower."""
FACTOR = "kernel-outperformed-by-an-order-of-magnitude"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make("kosak2025", tmp_path_factory.mktemp("control") / "o", testbed=BED, control="fdio-vpp", repeats=3)


def told(store: Store) -> dict[str, Told]:
    d = design("kosak2025")
    known = evidence.known_cells(store, d)
    return {t.candidate.finding.id: t for t in control.beside(d, known, list(evidence.judge(d, known)))}


@pytest.mark.parametrize("paper", ["kosak2025", "slavik2025", "linguaglossa2019"])
def test_it_is_measured_wherever_the_candidate_is(paper: str) -> None:
    with_it = campaign.parse(campaign_text(design(paper), Options(control="fdio-vpp")))
    without = campaign.parse(campaign_text(design(paper), Options()))
    assert [c for c in with_it.cells() if c.dut != "fdio-vpp"] == list(without.cells())
    candidates = [c.model_copy(update={"dut": "fdio-vpp"}) for c in without.cells() if c.dut == "quiver"]
    assert {c.slug for c in with_it.cells() if c.dut == "fdio-vpp"} == {c.slug for c in candidates}


def test_each_finding_has_both_verdicts_and_whom_they_tell_of(store: Store) -> None:
    by = told(store)
    factor = by[FACTOR]
    assert factor.control is not None
    assert (factor.candidate.verdict, factor.control.verdict) == (Verdict.CONTRADICTED, Verdict.HOLDS)
    assert factor.says("quiver", "fdio-vpp") == "tells of quiver"
    # What the kernel does is the same for both.
    kernel = by["kernel-ipv6-slightly-below-ipv4"]
    assert kernel.control is not None
    assert kernel.control.verdict is kernel.candidate.verdict


def test_the_candidate_is_judged_as_without_it(store: Store, tmp_path: Path) -> None:
    alone = make("kosak2025", tmp_path / "o", testbed=BED, repeats=3)
    d = design("kosak2025")
    mine, theirs = (
        [(j.finding.id, j.verdict, j.why) for j in evidence.judge(d, laid("kosak2025", s)[0])] for s in (store, alone)
    )
    assert mine == theirs


def test_without_one_there_is_nothing_beside(tmp_path: Path) -> None:
    alone = make("kosak2025", tmp_path / "o", testbed=BED, repeats=1)
    assert {t.control for t in told(alone).values()} == {None}
    assert {t.says("quiver", "") for t in told(alone).values()} == {""}


def test_one_that_was_left_for_another_call_is_not_there_yet(tmp_path: Path) -> None:
    text = campaign_text(design("kosak2025"), Options(testbed=BED, control="fdio-vpp", repeats=1))
    partly = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(partly, only=command.parse_only(["dut=quiver", "dut=linux"])).run()
    assert {k.cell.dut for k in evidence.known_cells(partly, design("kosak2025"))}.isdisjoint({"fdio-vpp"})
    assert {t.control for t in told(partly).values()} == {None}
    runner.Runner(partly, only=command.parse_only(["dut=fdio-vpp", "ip=4"])).run()
    whys = {k.why for k in evidence.known_cells(partly, design("kosak2025")) if k.cell.dut == "fdio-vpp"}
    assert {"", evidence.NOT_RUN} <= whys


def test_tables_csv_and_page_show_both(store: Store, tmp_path: Path) -> None:
    _, all_panels = laid("kosak2025", store)
    table: Panel = next(p for p in all_panels if p.name == "III")
    whose = {o.who.partition(",")[0] for row in table.rows for e in row.entries for o in e.ours}
    assert {"quiver", "fdio-vpp"} <= whose
    path, _ = page.build(store, design("kosak2025"), tmp_path)
    with (tmp_path / "findings.csv").open(encoding="utf-8") as file:
        rows = {row["finding"]: row for row in csv.DictReader(file)}
    factor = rows[FACTOR]
    assert (factor["verdict"], factor["control"], factor["tells"]) == ("contradicted", "holds", "tells of quiver")
    assert float(factor["control_low"]) > 5
    text = path.read_text(encoding="utf-8")
    assert "fdio-vpp took the same place in the same campaign, as positive control." in text
    assert "tells of quiver" in text


@pytest.mark.parametrize(
    ("mine", "theirs", "says"),
    [
        (Verdict.HOLDS, Verdict.DIRECTION_ONLY, "as printed, both"),
        (Verdict.HOLDS, Verdict.CONTRADICTED, "tells of b here"),
        (Verdict.CONTRADICTED, Verdict.HOLDS, "tells of a"),
        (Verdict.CONTRADICTED, Verdict.CONTRADICTED, "tells of the machine"),
        (Verdict.CANNOT_BE_TOLD, Verdict.HOLDS, "as printed for b; open for a"),
        (Verdict.CANNOT_BE_TOLD, Verdict.CANNOT_BE_TOLD, ""),
        (Verdict.HOLDS, Verdict.PRECONDITION_NOT_MET, ""),
        (Verdict.CONTRADICTED, Verdict.CANNOT_BE_TOLD, ""),
    ],
)
def test_two_verdicts_tell_of_somebody_or_of_nobody(mine: Verdict, theirs: Verdict, says: str) -> None:
    finding = load("kosak2025")[0]
    both = Told(Judgement(finding, mine, "", ()), Judgement(finding, theirs, "", ()))
    assert both.says("a", "b") == says


@pytest.mark.parametrize("name", ["quiver", "linux"])
def test_what_is_measured_already_is_no_control(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "kosak2025", "--quick", "--control", name, "--plan", "--out", str(tmp_path)])
    assert result.exit_code != 0
    assert f"--control {name} is measured already" in str(result.exception)
