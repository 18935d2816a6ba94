"""Every finding can come out both ways, and none is called true without a pair."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from quiver_lab import findings, published
from quiver_lab.findings import Finding, Measured, Predicate, Verdict, judge
from quiver_lab.preconditions import Known, Needs
from quiver_lab.published import PAPERS

ALL = [(paper, f) for paper in PAPERS for f in findings.load(paper)]


def _sides(p: Predicate, ratio: float, spread: float = 0.001, repeats: int = 5) -> list[Measured]:
    """One pair of cells whose medians have the given ratio and that meet all preconditions."""

    def cell(part: dict[str, findings.Scalar]) -> dict[str, str]:
        keys = {k: str(v) for k, v in {**p.where, **part}.items()}
        rated = {"rate_gbit_s": "10"} if p.needs.overload else {}
        return {"other": "x", "vector_size": "256", **rated, **keys}

    def values(middle: float) -> tuple[float, ...]:
        steps = range(-(repeats // 2), repeats - repeats // 2)
        return tuple(middle * (1 + spread * n) for n in steps)

    left, right = cell(p.left), cell(p.right)
    if not p.right:
        out = [Measured(left, p.quantity, values(ratio))]
    else:
        # Losses are parts of a hundred.
        base = 100 / max(1.0, ratio) / 2
        out = [Measured(left, p.quantity, values(ratio * base)), Measured(right, p.quantity, values(base))]
    for side in (left, right) if p.right else (left,):
        out.append(Measured(side, "polls", (1.0,), 1.0))
        out.append(Measured(side, "vector_mean_packets", (float(side["vector_size"]),) * 5))
        if p.needs.overload:
            # At a far higher rate it lost nearly all: what it forwards is little.
            out.append(Measured({**side, "rate_gbit_s": "1000000"}, "loss_percent", (99.9999999,) * 5))
    return out if p.quantity != "vector_mean_packets" else [m for m in out if m.quantity != p.quantity or m in out[:2]]


def _middle(p: Predicate) -> float:
    low = p.at_least if p.at_least is not None else 0.0
    return (low + (p.at_most if p.at_most is not None else 2 * low)) / 2


def _opposite(p: Predicate) -> float:
    """Beyond the range, on the wrong side of 1 where there is one."""
    if p.side_of_one == "above":
        return 0.5
    if p.side_of_one == "below":
        return 2.0
    return p.at_most * 1.1 if p.at_most is not None else (p.at_least or 0.0) * 0.9


@pytest.mark.parametrize(("paper", "finding"), ALL, ids=lambda x: x.id if isinstance(x, Finding) else x)
def test_predicate_comes_out_both_ways(paper: str, finding: Finding) -> None:
    p = finding.predicate
    if p is None:
        judgement = judge(finding, [])
        assert judgement.verdict is Verdict.CANNOT_BE_TOLD
        assert judgement.why == finding.not_testable
        return
    assert judge(finding, []).verdict is Verdict.CANNOT_BE_TOLD
    if p.quantity == "vector_mean_packets":
        # The precondition is about the same quantity: full at the right, whatever is at the left.
        full = Measured({"dut": "candidate", "vector_size": "256", "share_percent": "100"}, p.quantity, (250.0,) * 5)
        small, large = (Measured({**full.cell, "share_percent": "10"}, p.quantity, (v,) * 5) for v in (3.0, 200.0))
        assert judge(finding, [small, full]).verdict is Verdict.HOLDS
        assert judge(finding, [large, full]).verdict is Verdict.DIRECTION_ONLY
        return
    good, bad = _sides(p, _middle(p)), _sides(p, _opposite(p))
    assert judge(finding, good).verdict is Verdict.HOLDS
    assert judge(finding, bad).verdict is Verdict.CONTRADICTED
    bound = p.at_least if p.at_least is not None else p.at_most
    assert bound is not None
    wide = judge(finding, _sides(p, bound, spread=0.2))
    assert wide.verdict in (Verdict.CANNOT_BE_TOLD, Verdict.DIRECTION_ONLY)
    few = judge(finding, _sides(p, _middle(p), repeats=2))
    assert few.verdict is Verdict.CANNOT_BE_TOLD
    assert "without an interval" in few.why
    if p.right:
        assert judge(finding, good[:1]).verdict is Verdict.CANNOT_BE_TOLD
    elsewhere = [Measured({**m.cell, "other": "y"}, m.quantity, m.values, m.within_factor) for m in bad]
    # One pair of two may lie beyond by chance; two may not.
    assert judge(finding, good + elsewhere).verdict is Verdict.CANNOT_BE_TOLD
    both = judge(finding, bad + elsewhere)
    assert both.verdict is Verdict.CONTRADICTED
    assert both.interval is not None


@pytest.mark.parametrize(("paper", "finding"), ALL, ids=lambda x: x.id if isinstance(x, Finding) else x)
def test_preconditions_that_are_not_met_are_no_contradiction(paper: str, finding: Finding) -> None:
    p = finding.predicate
    if p is None or p.needs == Needs():
        return
    bare = [m for m in _sides(p, _opposite(p)) if m.quantity == p.quantity and m.cell.get("rate_gbit_s") != "1000000"]
    judgement = judge(finding, bare)
    if p.quantity == "loss_percent":
        # Without a rate that says what the device can forward, or with one that was not above it.
        kept = [Measured(m.cell, m.quantity, (0.0,) * 5) for m in bare]
        judgement = judge(finding, kept)
    assert judgement.verdict is Verdict.PRECONDITION_NOT_MET, judgement.why
    assert judgement.interval is None


def test_the_right_direction_with_another_size_is_direction_only() -> None:
    finding = findings.load("kosak2025")[0]
    p = finding.predicate
    assert p is not None
    assert (p.at_least, p.at_most, p.side_of_one) == (5, 20, "above")
    for ratio, verdict in ((3.0, Verdict.DIRECTION_ONLY), (30.0, Verdict.DIRECTION_ONLY), (0.8, Verdict.CONTRADICTED)):
        judgement = judge(finding, _sides(p, ratio))
        assert judgement.verdict is verdict
        assert judgement.interval is not None
        assert judgement.interval.low < ratio < judgement.interval.high
    # As much as the other: the interval holds 1, and is below the range.
    assert judge(finding, _sides(p, 1.0)).verdict is Verdict.CONTRADICTED


def test_next_to_nothing_on_both_sides_is_too_little_to_compare() -> None:
    finding = next(f for f in findings.load("linguaglossa2019") if f.id == "instruction-misses-fall")

    def misses(vector: str, value: float) -> Measured:
        return Measured({"dut": "candidate", "vector_size": vector}, "l1i_misses_per_packet", (value,), 1.0)

    # Three times as many of next to nothing.
    assert judge(finding, [misses("256", 0.036), misses("4", 0.011)]).verdict is Verdict.PRECONDITION_NOT_MET
    assert judge(finding, [misses("256", 0.36), misses("4", 0.11)]).verdict is Verdict.CONTRADICTED


def test_how_deep_an_overload_is_follows_from_the_rates_at_which_frames_were_lost() -> None:
    def cell(rate: str, loss: float) -> Measured:
        return Measured({"dut": "x", "rate_gbit_s": rate, "frame_bytes": "64"}, "loss_percent", (loss,) * 5)

    known = Known([cell("1", 0.0), cell("10", 50.0), cell("40", 90.0), cell("0.5", 0.2)])
    # By the loss at 10 it forwards 5, by that at 40 it forwards 4; its own rate does not count.
    depths = {r: known.overload(cell(r, 0).cell) for r in ("1", "10", "40")}
    assert depths == {"1": pytest.approx(0.2), "10": pytest.approx(2.5), "40": pytest.approx(8.0)}
    assert Known([cell("1", 0.0), cell("10", 0.5)]).overload(cell("10", 0).cell) is None


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
        "latency-of-vectors-is-higher": Verdict.CANNOT_BE_TOLD,
        "change-needs-a-restart": Verdict.CANNOT_BE_TOLD,
    }
    for name, judgement in verdicts.items():
        assert judgement.verdict is expected_otherwise.get(name, Verdict.HOLDS), (name, judgement.why)


def test_candidate_is_named_by_the_caller() -> None:
    finding = findings.load("kosak2025")[0]
    cells = [
        Measured({"dut": "quiver", "workers": "1"}, "throughput_pps", (1000.0,), 1.0),
        Measured({"dut": "linux", "workers": "1"}, "throughput_pps", (100.0,), 1.0),
    ]
    assert judge(finding, cells, candidate="quiver").verdict is Verdict.HOLDS
    assert judge(finding, cells, candidate="vpp").verdict is Verdict.CANNOT_BE_TOLD


def test_a_reference_of_zero_is_no_pair() -> None:
    finding = findings.load("kosak2025")[0]
    cells = [
        Measured({"dut": "quiver", "workers": "1"}, "throughput_pps", (1000.0,), 1.0),
        Measured({"dut": "linux", "workers": "1"}, "throughput_pps", (0.0,), 1.0),
    ]
    judgement = judge(finding, cells, candidate="quiver")
    assert judgement.verdict is Verdict.CANNOT_BE_TOLD
    assert "linux" in judgement.why


def test_any_loss_is_more_than_none_but_none_is_not_more_than_none() -> None:
    p = Predicate(quantity="loss_percent", left={"operation": "nat"}, right={"operation": "one-way"}, at_least=1.0)
    finding = Finding(id="x", section="1", text="t", seed="000", line=1, predicate=p)

    def cells(nat: float) -> list[Measured]:
        return [Measured({"operation": o}, "loss_percent", (v,) * 5) for o, v in (("one-way", 0.0), ("nat", nat))]

    some = judge(finding, cells(0.5))
    assert (some.verdict, some.pairs[0].ratio) == (Verdict.HOLDS, math.inf)
    assert judge(finding, cells(0.0)).verdict is Verdict.CANNOT_BE_TOLD


def test_a_finding_needs_a_predicate_or_a_reason() -> None:
    with pytest.raises(ValidationError, match="either a predicate or a reason"):
        Finding(id="x", section="1", text="t", seed="000", line=1)
    with pytest.raises(ValidationError, match="at_least or at_most"):
        Predicate(quantity="q", left={"a": 1})
