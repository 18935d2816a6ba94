"""The papers' findings, and whether measured values bear them out.

A finding is a sentence of a paper with its seed line and a predicate. A predicate compares two sets of cells: every cell that
matches ``left`` is paired with the one cell that matches ``right`` and agrees with it in all other keys, and the ratio of
their medians must lie in a range for each pair (or, with ``over: any``, for at least one). What a paper says in words
("slightly lower") has to be read as numbers: the reading stands beside it.

Verdicts: *holds*, *does not*, *not testable here* with the reason. A finding without a pair is never called true.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from quiver_lab.published import PAPERS, Cell, Published

Scalar = str | int | float


MAY_BE_NONE = ("loss_percent", "l1i_misses_per_packet")
"""Quantities of which none is as good as can be: any amount beside it is more, without limit. A rate of zero is a device that
did not work, and compares with nothing."""


class Verdict(Enum):
    """What became of a finding."""

    HOLDS = "holds"
    DOES_NOT = "does not"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True, slots=True)
class Measured:
    """Repeats of one quantity in one cell."""

    cell: Cell
    quantity: str
    values: tuple[float, ...]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Predicate(_Strict):
    """What must be so."""

    quantity: str
    left: dict[str, Scalar] = Field(min_length=1)
    right: dict[str, Scalar] = Field(default_factory=dict)
    """Empty: the left value itself is compared with the range."""
    where: dict[str, Scalar] = Field(default_factory=dict)
    """What both sides must match."""
    ignore: tuple[str, ...] = ()
    """Keys in which the two sides need not agree."""
    at_least: float | None = None
    at_most: float | None = None
    over: Literal["all", "any"] = "all"

    @model_validator(mode="after")
    def _has_a_bound(self) -> Predicate:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a predicate needs at_least or at_most")
        return self


class Finding(_Strict):
    """One sentence of a paper."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    section: str
    text: str
    seed: Annotated[str, Field(pattern=r"^00[0-4]$")]
    line: Annotated[int, Field(ge=1)]
    reading: str = ""
    """How words became numbers."""
    predicate: Predicate | None = None
    otherwise: Predicate | None = None
    """What stands in for it where it cannot be tested."""
    not_testable: str = ""
    """Why there is no predicate, where there is none."""

    @model_validator(mode="after")
    def _says_why(self) -> Finding:
        if (self.predicate is None) == (not self.not_testable):
            raise ValueError(f"finding {self.id}: either a predicate or a reason why it cannot be tested")
        return self


@dataclass(frozen=True, slots=True)
class Pair:
    """Two cells that were compared."""

    cell: Cell
    left: float
    right: float | None
    ratio: float
    within: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """A finding's verdict and what it rests on."""

    finding: Finding
    verdict: Verdict
    why: str
    pairs: tuple[Pair, ...]
    ports: str = ""
    """On which ports devices were compared, where that was done in more ways than one."""


def load(paper: str) -> tuple[Finding, ...]:
    """Findings of one paper."""
    if paper not in PAPERS:
        raise ValueError(f"unknown paper '{paper}': one of {', '.join(PAPERS)}")
    text = resources.files("quiver_lab").joinpath("published", f"{paper}.findings.yaml").read_text(encoding="utf-8")
    return tuple(Finding.model_validate(item) for item in yaml.safe_load(text))


def from_published(values: Iterable[Published], candidate: str = "vpp") -> list[Measured]:
    """Published values in the form of measured ones; the papers' device takes the candidate's place."""
    out = []
    for v in values:
        if v.value is None or v.kind == "prose":
            continue
        cell = {**v.cell, "dut": "candidate"} if v.cell.get("dut") == candidate else dict(v.cell)
        out.append(Measured(cell, v.quantity.replace("_median_pps", "_pps"), (v.value,)))
    return out


def _matches(cell: Cell, wanted: dict[str, Scalar]) -> bool:
    return all(cell.get(k) == str(v) for k, v in wanted.items())


def _rest(cell: Cell, without: Iterable[str]) -> frozenset[tuple[str, str]]:
    dropped = set(without)
    return frozenset((k, v) for k, v in cell.items() if k not in dropped)


def judge(finding: Finding, measured: Sequence[Measured], *, candidate: str = "candidate") -> Judgement:
    """Hold one finding against measured values; ``dut: candidate`` in its predicate means the device named here."""
    if finding.predicate is None:
        return Judgement(finding, Verdict.NOT_TESTABLE, finding.not_testable, ())
    p = finding.predicate

    def wanted(part: dict[str, Scalar]) -> dict[str, Scalar]:
        both = {**p.where, **part}
        return {k: candidate if (k, v) == ("dut", "candidate") else v for k, v in both.items()}

    relevant = [m for m in measured if m.quantity == p.quantity and m.values]
    left = [m for m in relevant if _matches(m.cell, wanted(p.left))]
    if not left:
        return Judgement(finding, Verdict.NOT_TESTABLE, f"no {p.quantity} was measured for {_words(wanted(p.left))}", ())
    free = {*p.left, *p.right, *p.ignore}
    right = {_rest(m.cell, free): m for m in relevant if p.right and _matches(m.cell, wanted(p.right))}
    pairs = []
    for m in left:
        a = statistics.median(m.values)
        if p.right:
            other = right.get(_rest(m.cell, free))
            b = statistics.median(other.values) if other else None
            if b is None or (b == 0 and not (a > 0 and p.quantity in MAY_BE_NONE)):
                continue
            ratio = a / b if b else math.inf
        else:
            b, ratio = None, a
        within = (p.at_least is None or ratio >= p.at_least) and (p.at_most is None or ratio <= p.at_most)
        pairs.append(Pair(m.cell, a, b, ratio, within))
    if not pairs:
        why = f"no {p.quantity} above 0 was measured for {_words(wanted(p.right))} beside {_words(wanted(p.left))}"
        return Judgement(finding, Verdict.NOT_TESTABLE, why, ())
    good = sum(x.within for x in pairs)
    holds = good == len(pairs) if p.over == "all" else good > 0
    span = f"{min(x.ratio for x in pairs):.4g} to {max(x.ratio for x in pairs):.4g}"
    kind = "ratio" if p.right else "value"
    why = f"{good} of {len(pairs)} {'pairs' if p.right else 'cells'} within {_range(p)}; {kind} {span}"
    return Judgement(finding, Verdict.HOLDS if holds else Verdict.DOES_NOT, why, tuple(pairs))


def _words(wanted: dict[str, Scalar]) -> str:
    return ", ".join(f"{k} {v}" for k, v in wanted.items())


def _range(p: Predicate) -> str:
    low = "" if p.at_least is None else f"{p.at_least:g} <= "
    high = "" if p.at_most is None else f" <= {p.at_most:g}"
    return f"{low}x{high}"
