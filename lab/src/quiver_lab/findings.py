"""The papers' findings, and whether measured values bear them out.

A finding is a sentence of a paper with its seed line and a predicate. A predicate compares two sets of cells: every cell that
matches ``left`` is paired with the one cell that matches ``right`` and agrees with it in all other keys, and the ratio of
their medians must lie in a range for each pair (or, with ``over: any``, for at least one). What a paper says in words
("slightly lower") has to be read as numbers: the reading stands beside it.

Each pair's ratio has an interval (``intervals.py``); verdicts follow from intervals, never from medians alone:

- *holds*: every pair's interval lies in the range.
- *direction only*: every pair's interval lies on the right side of 1, not all in the range.
- *contradicted*: more pairs' intervals lie beyond the range (and not on the right side of 1) than chance would have it.
- *cannot be told*: anything else: nothing was measured, too few repeats, intervals too wide, pairs that disagree.
- *precondition not met*: there are pairs, and in none of them what the sentence presupposes (``preconditions.py``).
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

from quiver_lab import intervals
from quiver_lab.preconditions import POLLS, Known, Needs, unmet
from quiver_lab.published import PAPERS, Cell, Published
from quiver_lab.stats import Interval

Scalar = str | int | float


MAY_BE_NONE = ("loss_percent", "l1i_misses_per_packet")
"""Quantities of which none is as good as can be: any amount beside it is more, without limit. A rate of zero is a device that
did not work, and compares with nothing."""


class Verdict(Enum):
    """What became of a finding."""

    HOLDS = "holds"
    DIRECTION_ONLY = "direction only"
    CONTRADICTED = "contradicted"
    CANNOT_BE_TOLD = "cannot be told"
    PRECONDITION_NOT_MET = "precondition not met"


class Standing(Enum):
    """Where one pair's interval lies."""

    INSIDE = "inside"
    DIRECTION = "right direction"
    AGAINST = "beyond"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Measured:
    """Repeats of one quantity in one cell."""

    cell: Cell
    quantity: str
    values: tuple[float, ...]
    within_factor: float | None = None
    """Of values without repeats: by what factor two of them may be wrong against each other; 1 is exact, as printed or counted.
    None: repeats tell."""

    def interval(self) -> Interval | None:
        """In which the median lies."""
        if self.within_factor is None:
            return intervals.of_median(self.values)
        middle = statistics.median(self.values)
        return Interval(middle / self.within_factor, middle * self.within_factor, intervals.LEVEL)


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
    direction: Literal["", "above", "below"] = ""
    """On which side of 1 the ratio must lie for the sentence to be right but for the size; else it follows from the range."""
    floor: float = 0.0
    """Pairs of which both sides have less than this are no pairs that the sentence is about: there is too little to compare."""
    needs: Needs = Needs()
    """What must be so before the cells can be compared."""

    @model_validator(mode="after")
    def _has_a_bound(self) -> Predicate:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a predicate needs at_least or at_most")
        if "throttle" in {*self.left, *self.right, *self.ignore}:
            raise ValueError("'throttle' stands in 'where' alone: a throttled device is compared with throttled ones")
        return self

    @property
    def side_of_one(self) -> str:
        """``above``, ``below``, or nothing where the sentence is about no direction."""
        if self.direction or not self.right:
            return self.direction
        if self.at_least is not None and self.at_least >= 1:
            return "above"
        return "below" if self.at_most is not None and self.at_most <= 1 else ""

    def standing(self, found: Interval | None) -> Standing:
        """Where an interval lies."""
        if found is None:
            return Standing.OPEN
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        if low <= found.low and found.high <= high:
            return Standing.INSIDE
        side = self.side_of_one
        if (side == "above" and found.low > 1) or (side == "below" and found.high < 1):
            return Standing.DIRECTION
        return Standing.AGAINST if found.high < low or found.low > high else Standing.OPEN


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
    interval: Interval | None
    """None where there are too few repeats."""
    standing: Standing
    unmet: str = ""
    """Which precondition is not met; such a pair judges nothing."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A finding's verdict and what it rests on."""

    finding: Finding
    verdict: Verdict
    why: str
    pairs: tuple[Pair, ...]
    ports: str = ""
    """On which ports devices were compared, where that was done in more ways than one."""

    @property
    def interval(self) -> Interval | None:
        """From the lowest bound of all pairs that judge to the highest; none where one of them has none."""
        found = [p.interval for p in self.pairs if not p.unmet]
        known = [x for x in found if x is not None]
        if not known or len(known) < len(found):
            return None
        return Interval(min(x.low for x in known), max(x.high for x in known), intervals.LEVEL)


def load(paper: str) -> tuple[Finding, ...]:
    """Findings of one paper."""
    if paper not in PAPERS:
        raise ValueError(f"unknown paper '{paper}': one of {', '.join(PAPERS)}")
    text = resources.files("quiver_lab").joinpath("published", f"{paper}.findings.yaml").read_text(encoding="utf-8")
    return tuple(Finding.model_validate(item) for item in yaml.safe_load(text))


def from_published(values: Iterable[Published], candidate: str = "vpp") -> list[Measured]:
    """Published values in the form of measured ones, taken as exact; the papers' device takes the candidate's place."""
    out = []
    for v in values:
        if v.value is None or v.kind == "prose":
            continue
        cell = {**v.cell, "dut": "candidate"} if v.cell.get("dut") == candidate else dict(v.cell)
        out.append(Measured(cell, v.quantity.replace("_median_pps", "_pps"), (v.value,), 1.0))
        # VPP polls its ports wherever the papers say nothing else.
        out.append(Measured(cell, POLLS, (1.0,), 1.0))
    return out


def _matches(cell: Cell, wanted: dict[str, Scalar]) -> bool:
    """Throttled devices are their own kind: only a sentence about them has them."""
    if cell.get("throttle", "1") != "1" and "throttle" not in wanted:
        return False
    return all(cell.get(k) == str(v) for k, v in wanted.items())


def _rest(cell: Cell, without: Iterable[str]) -> frozenset[tuple[str, str]]:
    dropped = set(without)
    return frozenset((k, v) for k, v in cell.items() if k not in dropped)


def judge(finding: Finding, measured: Sequence[Measured], *, candidate: str = "candidate") -> Judgement:
    """Hold one finding against measured values; ``dut: candidate`` in its predicate means the device named here."""
    if finding.predicate is None:
        return Judgement(finding, Verdict.CANNOT_BE_TOLD, finding.not_testable, ())
    p = finding.predicate

    def wanted(part: dict[str, Scalar]) -> dict[str, Scalar]:
        both = {**p.where, **part}
        return {k: candidate if (k, v) == ("dut", "candidate") else v for k, v in both.items()}

    relevant = [m for m in measured if m.quantity == p.quantity and m.values]
    left = [m for m in relevant if _matches(m.cell, wanted(p.left))]
    if not left:
        return Judgement(finding, Verdict.CANNOT_BE_TOLD, f"no {p.quantity} was measured for {_words(wanted(p.left))}", ())
    free = {*p.left, *p.right, *p.ignore}
    right = {_rest(m.cell, free): m for m in relevant if p.right and _matches(m.cell, wanted(p.right))}
    known = Known(measured)
    pairs = []
    for m in left:
        other = right.get(_rest(m.cell, free))
        if not p.right or other is not None:
            pairs.append(_pair(p, m, other, known))
    # Where both sides have none of something there is nothing to compare, unless the sentence presupposes that there is.
    pairs = [x for x in pairs if x.unmet or x.right is None or x.right > 0 or (x.left > 0 and p.quantity in MAY_BE_NONE)]
    if not pairs:
        why = f"no {p.quantity} above 0 was measured for {_words(wanted(p.right))} beside {_words(wanted(p.left))}"
        return Judgement(finding, Verdict.CANNOT_BE_TOLD, why, ())
    return Judgement(finding, *_verdict(p, pairs), tuple(pairs))


def _pair(p: Predicate, m: Measured, other: Measured | None, known: Known) -> Pair:
    a = statistics.median(m.values)
    if other is None:
        found = m.interval()
        missing = unmet(p.needs, {"left": m.cell}, known)
        return Pair(m.cell, a, None, a, found, p.standing(found), missing)
    b = statistics.median(other.values)
    ratio = a / b if b else math.inf if a else 1.0
    found = _interval_of_ratio(m, other)
    missing = unmet(p.needs, {"left": m.cell, "right": other.cell}, known)
    if not missing and max(a, b) < p.floor:
        missing = f"both sides have less than {p.floor:g}"
    return Pair(m.cell, a, b, ratio, found, p.standing(found), missing)


def _interval_of_ratio(a: Measured, b: Measured) -> Interval | None:
    if a.within_factor is None and b.within_factor is None:
        return intervals.of_ratio(a.values, b.values)
    if a.within_factor is not None and b.within_factor is not None:
        x, y = statistics.median(a.values), statistics.median(b.values)
        ratio, factor = (x / y if y else math.inf if x else 1.0), max(a.within_factor, b.within_factor)
        return Interval(ratio / factor, ratio * factor, intervals.LEVEL)
    return _interval_of_unlike(a.interval(), b.interval())


def _interval_of_unlike(x: Interval | None, y: Interval | None) -> Interval | None:
    """Of the ratio of a value with repeats and one without: the widest that their intervals allow."""
    if x is None or y is None:
        return None
    low = 1.0 if x.low == y.high == 0 else x.low / y.high if y.high else math.inf
    high = 1.0 if x.high == y.low == 0 else x.high / y.low if y.low else math.inf
    return Interval(low, high, intervals.LEVEL)


def _verdict(p: Predicate, pairs: list[Pair]) -> tuple[Verdict, str]:
    """What pairs say together, and why."""
    noun, kind = ("pair", "ratio") if p.right else ("cell", "value")
    met = [x for x in pairs if not x.unmet]
    reasons = _kinds([x.unmet for x in pairs if x.unmet])
    if not met:
        return Verdict.PRECONDITION_NOT_MET, f"{_count(len(pairs), noun)}: {reasons}; {_span(kind, pairs)}"
    count = {s: sum(x.standing is s for x in met) for s in Standing}
    exact = [x for x in met if x.interval is not None and x.interval.low == x.interval.high]
    inside, against = count[Standing.INSIDE], count[Standing.AGAINST]
    if p.over == "any":
        sure = any(x.standing is Standing.INSIDE for x in exact) or intervals.more_than_chance(inside, len(met))
        verdict = Verdict.HOLDS if sure else Verdict.CONTRADICTED if against == len(met) else Verdict.CANNOT_BE_TOLD
    elif any(x.standing is Standing.AGAINST for x in exact) or intervals.more_than_chance(against, len(met)):
        verdict = Verdict.CONTRADICTED
    elif inside == len(met):
        verdict = Verdict.HOLDS
    elif inside + count[Standing.DIRECTION] == len(met):
        verdict = Verdict.DIRECTION_ONLY
    else:
        verdict = Verdict.CANNOT_BE_TOLD
    words = [f"{inside} of {_count(len(met), noun)} within {_range(p)}"]
    words += [f"{n} {s.value}" for s, n in count.items() if n and s is not Standing.INSIDE]
    words.append(_span(kind, met))
    few = sum(x.interval is None for x in met)
    if few:
        least = "three repeats a side" if p.right else "five repeats"
        words.append(f"{few} without an interval (it takes {least})")
    if len(met) < len(pairs):
        words.append(f"{len(pairs) - len(met)} left out: {reasons}")
    return verdict, "; ".join(words)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _kinds(said: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(said))


def _span(kind: str, pairs: Sequence[Pair]) -> str:
    """Ratios of pairs, with the widest bounds of their intervals."""
    low, high = min(x.ratio for x in pairs), max(x.ratio for x in pairs)
    said = f"{kind} {low:.4g}" if low == high else f"{kind} {low:.4g} to {high:.4g}"
    known = [x.interval for x in pairs if x.interval is not None]
    bounds = (min(x.low for x in known), max(x.high for x in known)) if known else (low, high)
    return said if bounds == (low, high) else f"{said} ({intervals.LEVEL:.0%} interval {bounds[0]:.4g} to {bounds[1]:.4g})"


def _words(wanted: dict[str, Scalar]) -> str:
    return ", ".join(f"{k} {v}" for k, v in wanted.items())


def _range(p: Predicate) -> str:
    low = "" if p.at_least is None else f"{p.at_least:g} <= "
    high = "" if p.at_most is None else f" <= {p.at_most:g}"
    return f"{low}x{high}"
