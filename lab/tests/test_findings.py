"""Every finding can come out both ways, and none is called true without a pair."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from quiver_lab import findings, published
from quiver_lab.findings import Finding, Measured, Predicate, Verdict, judge
from quiver_lab.published import PAPERS

ALL = [(paper, f) for paper in PAPERS for f in findings.load(paper)]


def _sides(p: Predicate, ratio: float) -> list[Measured]:
    """One pair of cells whose medians have the given ratio."""

    def cell(part: dict[str, findings.Scalar]) -> dict[str, str]:
        return {"other": "x", **{k: str(v) for k, v in {**p.where, **part}.items()}}

    left = Measured(cell(p.left), p.quantity, (ratio * 50, ratio * 100, ratio * 150))
    if not p.right:
        return [Measured(left.cell, p.quantity, (ratio,))]
    return [left, Measured(cell(p.right), p.quantity, (100.0, 90.0, 110.0))]


@pytest.mark.parametrize(("paper", "finding"), ALL, ids=lambda x: x.id if isinstance(x, Finding) else x)
def test_predicate_comes_out_both_ways(paper: str, finding: Finding) -> None:
    p = finding.predicate
    if p is None:
        judgement = judge(finding, [])
        assert judgement.verdict is Verdict.NOT_TESTABLE
        assert judgement.why == finding.not_testable
        return
    low = p.at_least if p.at_least is not None else 0.0
    high = p.at_most if p.at_most is not None else low + 1.0
    outside = (p.at_most * 1.1) if p.at_most is not None else low * 0.9
    assert judge(finding, _sides(p, (low + high) / 2)).verdict is Verdict.HOLDS
    assert judge(finding, _sides(p, outside)).verdict is Verdict.DOES_NOT
    assert judge(finding, []).verdict is Verdict.NOT_TESTABLE
    if p.right:
        assert judge(finding, _sides(p, (low + high) / 2)[:1]).verdict is Verdict.NOT_TESTABLE
    if p.over == "all":
        elsewhere = [Measured({**m.cell, "other": "y"}, m.quantity, m.values) for m in _sides(p, outside)]
        assert judge(finding, _sides(p, (low + high) / 2) + elsewhere).verdict is Verdict.DOES_NOT


@pytest.mark.parametrize(("paper", "finding"), ALL, ids=lambda x: x.id if isinstance(x, Finding) else x)
def test_text_stands_in_the_seed(paper: str, finding: Finding, seeds: dict[str, list[str]]) -> None:
    # The line says it; words may be cut out of a longer sentence, but each long word is there.
    line = seeds[finding.seed][finding.line - 1].lower()
    words = [w.strip(".,;()%").lower() for w in finding.text.split()]
    known = [w for w in words if len(w) > 5 and w.replace("-", "") in line.replace("-", "")]
    assert len(known) >= 0.7 * len([w for w in words if len(w) > 5]), finding.id


def test_published_values_bear_out_what_the_papers_say_of_them() -> None:
    verdicts = {}
    for paper in ("kosak2025", "slavik2025"):
        values = findings.from_published(published.load(paper))
        for finding in findings.load(paper):
            verdicts[finding.id] = judge(finding, values)
    expected_otherwise = {
        # Nobody published these.
        "latency-of-vectors-is-higher": Verdict.NOT_TESTABLE,
        "change-needs-a-restart": Verdict.NOT_TESTABLE,
    }
    for name, judgement in verdicts.items():
        assert judgement.verdict is expected_otherwise.get(name, Verdict.HOLDS), (name, judgement.why)


def test_candidate_is_named_by_the_caller() -> None:
    finding = findings.load("kosak2025")[0]
    cells = [
        Measured({"dut": "quiver", "workers": "1"}, "throughput_pps", (1000.0,)),
        Measured({"dut": "linux", "workers": "1"}, "throughput_pps", (100.0,)),
    ]
    assert judge(finding, cells, candidate="quiver").verdict is Verdict.HOLDS
    assert judge(finding, cells, candidate="vpp").verdict is Verdict.NOT_TESTABLE


def test_a_reference_of_zero_is_no_pair() -> None:
    finding = findings.load("kosak2025")[0]
    cells = [
        Measured({"dut": "quiver", "workers": "1"}, "throughput_pps", (1000.0,)),
        Measured({"dut": "linux", "workers": "1"}, "throughput_pps", (0.0,)),
    ]
    judgement = judge(finding, cells, candidate="quiver")
    assert judgement.verdict is Verdict.NOT_TESTABLE
    assert "linux" in judgement.why


def test_any_loss_is_more_than_none_but_none_is_not_more_than_none() -> None:
    finding = next(f for f in findings.load("slavik2025") if f.id == "translation-costs-throughput")
    keys = {"rate_gbit_s": "10", "frame_bytes": "64", "dut": "candidate", "workers": "1"}

    def cells(nat: float) -> list[Measured]:
        found = {"one-way": 0.0, "nat": nat}
        return [Measured({**keys, "operation": o}, "loss_percent", (v,)) for o, v in found.items()]

    some = judge(finding, cells(0.5))
    assert (some.verdict, some.pairs[0].ratio) == (Verdict.HOLDS, math.inf)
    assert judge(finding, cells(0.0)).verdict is Verdict.NOT_TESTABLE


def test_a_finding_needs_a_predicate_or_a_reason() -> None:
    with pytest.raises(ValidationError, match="either a predicate or a reason"):
        Finding(id="x", section="1", text="t", seed="000", line=1)
    with pytest.raises(ValidationError, match="at_least or at_most"):
        Predicate(quantity="q", left={"a": 1})
