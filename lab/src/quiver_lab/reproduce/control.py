"""The positive control: a device that takes the place of the paper's beside the candidate, in the same campaign. Pure.

The papers measured FD.io VPP. What holds for VPP here, and not for the candidate, tells of the candidate. What does not hold
for VPP either tells of the machine (or of how much VPP has changed since).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quiver_lab.findings import Judgement, Verdict
from quiver_lab.reproduce import evidence
from quiver_lab.reproduce.counters import Evidence
from quiver_lab.reproduce.design import Design
from quiver_lab.reproduce.evidence import Known

_NO_BENCHES = Evidence(lacking="the benches know no positive control", perf_lacking="not looked for")
_AS_PRINTED = (Verdict.HOLDS, Verdict.DIRECTION_ONLY)
"""Verdicts of a sentence that is right here, too."""


@dataclass(frozen=True, slots=True)
class Told:
    """One finding on one kind of ports: the candidate's verdict, and the control's beside it."""

    candidate: Judgement
    control: Judgement | None
    """None where there was no control, or none on these ports."""

    def says(self, candidate: str, control: str) -> str:
        """Of whom the two verdicts tell; nothing where they tell of nobody."""
        if self.control is None:
            return ""
        mine, theirs = self.candidate.verdict, self.control.verdict
        match (mine in _AS_PRINTED, theirs in _AS_PRINTED):
            case (True, True):
                return "as printed, both"
            case (True, False) if theirs is Verdict.CONTRADICTED:
                return f"tells of {control} here"
            case (False, True) if mine is Verdict.CONTRADICTED:
                return f"tells of {candidate}"
            case (False, True):
                return f"as printed for {control}; open for {candidate}"
            case (False, False) if mine is theirs is Verdict.CONTRADICTED:
                return "tells of the machine"
        return ""


def beside(design: Design, known: list[Known], judgements: Sequence[Judgement]) -> list[Told]:
    """Every judgement of the candidate with the control's of the same finding and ports."""
    controls = evidence.of_control(known)
    found = {(j.finding.id, j.ports): j for j in evidence.judge(design, controls, _NO_BENCHES)} if controls else {}
    return [Told(j, found.get((j.finding.id, j.ports))) for j in judgements]
