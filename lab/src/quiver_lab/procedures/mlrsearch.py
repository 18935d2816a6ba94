"""Multi-goal search in the manner of MLRsearch (draft-ietf-bmwg-mlrsearch): several goals, several trials a load.

Theory. A *goal* says how much loss a good trial may have, what share of the time may be bad (*exceed ratio*), how long
trials are and for how many seconds in sum a load must have been tried. From the trials at a load follows whether it is a
lower bound, an upper bound, or still open: it is a lower bound when the goal holds even if all time still missing were bad,
an upper bound when it fails even if all of that were good. Trials shorter than the goal's final duration cannot make a load
a lower bound; bad ones among them count against it as far as they exceed what good short ones make up for.

The search goes through coarser targets first (shorter trials, wider intervals), because bounds found there are nearly right.
Bisection is in logarithms. The *conditional throughput* is the rate at the relevant lower bound, less the loss of the worst
trial that the exceed ratio does not forgive.

A trial that is not valid proves nothing: it counts neither for nor against a load. A load at which several trials in a row
were not valid is *set aside* as if it were an upper bound, so that a tester that is too slow for it does not hold the search
up. Before such a load becomes a result it is tried again: where the machine was disturbed for a while only, the search goes on.

The outcome of a search is the same for any implementation of that classification; which loads it tries is its own affair.
Tests hold both against the reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from quiver_lab.measurer import Measurer
from quiver_lab.trial import Trial

_EPSILON = 1e-9
ATTEMPTS = 3
"""Trials in a row at one load, none of them valid, before it is set aside."""
PATIENCE_S = 120.0
"""A search comes back to loads set aside once, and as long as trials that were not valid took less than this in sum."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is searched for."""

    name: str
    loss_ratio: float
    exceed_ratio: float
    final_trial_s: float
    duration_sum_s: float
    initial_trial_s: float = 1.0
    relative_width: float = 0.005
    """Of the upper bound."""
    preceding_targets: int = 2

    def __post_init__(self) -> None:
        """Refuse goals that no search can reach."""
        if not (0 <= self.loss_ratio < 1 and 0 <= self.exceed_ratio < 1 and 0 < self.relative_width < 1):
            raise ValueError(f"goal {self.name}: ratios are from 0 to below 1, the width above 0")
        if not 0 < self.initial_trial_s <= self.final_trial_s <= self.duration_sum_s:
            raise ValueError(f"goal {self.name}: initial trial <= final trial <= duration sum must hold")
        if self.preceding_targets < (1 if self.initial_trial_s < self.duration_sum_s else 0):
            raise ValueError(f"goal {self.name}: at least one preceding target where the initial trial is shorter")


PRESETS = {
    "rfc2544": Goal("rfc2544", loss_ratio=0.0, exceed_ratio=0.0, final_trial_s=60.0, duration_sum_s=60.0),
    "tst009": Goal("tst009", loss_ratio=0.0, exceed_ratio=0.5, final_trial_s=60.0, duration_sum_s=120.0),
    "ndr": Goal("ndr", loss_ratio=0.0, exceed_ratio=0.5, final_trial_s=1.0, duration_sum_s=21.0),
    "pdr": Goal("pdr", loss_ratio=0.005, exceed_ratio=0.5, final_trial_s=1.0, duration_sum_s=21.0),
}
"""RFC 2544's throughput, ETSI GS NFV-TST 009's (loss verification), and FD.io CSIT's non-drop and partial drop rates."""


@dataclass(frozen=True, slots=True)
class GoalResult:
    """What was found for one goal."""

    goal: Goal
    lower_pps: int | None
    """Relevant lower bound; none where the lowest rate is not one."""
    upper_pps: int | None
    """Relevant upper bound; none where the highest rate is a lower bound."""
    conditional_throughput_pps: float | None
    limited_by_tester: bool = False
    """At the upper bound no trial was valid: the device may be better than this."""
    spoilt: int = 0
    """How many trials of the whole search were not valid."""


class _Kind(Enum):
    LOWER = "lower bound"
    UPPER = "upper bound"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class _Target:
    loss_ratio: float
    exceed_ratio: float
    trial_s: float
    sum_s: float
    log_width: float


def _targets(goal: Goal) -> list[_Target]:
    """Coarse to fine; durations grow and widths shrink geometrically."""
    count = goal.preceding_targets
    fine = -math.log1p(-goal.relative_width)
    out = []
    for index in range(count + 1):
        share = index / count if count else 1.0
        trial_s = goal.initial_trial_s * (goal.final_trial_s / goal.initial_trial_s) ** share
        sum_s = goal.initial_trial_s * (goal.duration_sum_s / goal.initial_trial_s) ** share
        log_width = fine * 2 ** (count - index)
        out.append(_Target(goal.loss_ratio, goal.exceed_ratio, trial_s, max(trial_s, sum_s), log_width))
    return out


@dataclass
class _Search:
    measurer: Measurer
    low: int
    high: int
    budget_s: float
    seen: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """Rate to (duration, loss ratio) of every trial there."""
    trials: list[tuple[int, Trial]] = field(default_factory=list)
    aside: set[int] = field(default_factory=set)
    """Loads at which no trial was valid."""
    came_back: bool = False
    spent_s: float = 0.0
    spoilt_s: float = 0.0

    def measure(self, rate: int, duration_s: float) -> Trial:
        if self.spent_s + duration_s > self.budget_s + _EPSILON:
            raise BudgetError(f"the search needs more than {self.budget_s:g} s of trials")
        self.spent_s += duration_s
        trial = self.measurer.measure(rate, duration_s)
        # What an invalid trial lost nobody knows.
        if trial.valid:
            self.seen.setdefault(rate, []).append((duration_s, trial.missing_ratio))
        else:
            self.spoilt_s += duration_s
        self.trials.append((rate, trial))
        return trial

    def kind(self, rate: int, target: _Target) -> _Kind:
        sums = {(long, good): 0.0 for long in (True, False) for good in (True, False)}
        for duration_s, loss in self.seen.get(rate, ()):
            sums[duration_s >= target.trial_s - _EPSILON, loss <= target.loss_ratio] += duration_s
        forgiven = sums[False, True] * target.exceed_ratio / (1 - target.exceed_ratio)
        bad = sums[True, False] + max(0.0, sums[False, False] - forgiven)
        whole = max(sums[True, True] + bad, target.sum_s)
        allowed = whole * target.exceed_ratio + _EPSILON
        if bad > allowed:
            return _Kind.UPPER
        return _Kind.LOWER if whole - sums[True, True] <= allowed else _Kind.OPEN

    def bounds(self, target: _Target) -> tuple[int | None, int | None]:
        """Relevant bounds: the lowest upper bound, and the highest lower bound below it."""
        kinds = {rate: self.kind(rate, target) for rate in self.seen} | dict.fromkeys(self.aside, _Kind.UPPER)
        upper = min((r for r, k in kinds.items() if k is _Kind.UPPER), default=None)
        below = [r for r, k in kinds.items() if k is _Kind.LOWER and (upper is None or r < upper)]
        return max(below, default=None), upper

    def decide(self, rate: int, target: _Target) -> None:
        """Try a load until it is a bound, or has to be set aside."""
        spoilt = 0
        while self.kind(rate, target) is _Kind.OPEN:
            spoilt = 0 if self.measure(rate, target.trial_s).valid else spoilt + 1
            if spoilt == ATTEMPTS and self.kind(rate, target) is _Kind.OPEN:
                self.aside.add(rate)
                return

    def come_back(self, rate: int, target: _Target) -> bool:
        """Whether a load that was set aside was tried once more; if it is a bound now, others are forgotten too."""
        if rate not in self.aside or (self.came_back and self.spoilt_s >= PATIENCE_S):
            return False
        self.came_back = True
        others, self.aside = self.aside - {rate}, set()
        self.decide(rate, target)
        if self.aside:
            self.aside |= others
        return True

    def achieve(self, target: _Target, hints: Sequence[int]) -> tuple[int | None, int | None]:
        """Find relevant bounds that are close enough; ``hints`` are rates worth trying first."""
        waiting = list(hints)
        stretch = target.log_width
        while True:
            lower, upper = self.bounds(target)
            if lower is not None and lower >= self.high:
                return lower, None
            if upper is not None and (
                upper <= self.low
                or (lower is not None and (upper - lower <= 1 or math.log(upper / lower) <= target.log_width + _EPSILON))
            ):
                if self.come_back(upper, target):
                    stretch = target.log_width
                    continue
                return lower, upper
            floor, ceiling = lower or self.low - 1, upper or self.high + 1
            waiting = [r for r in waiting if floor < r < ceiling]
            if waiting:
                rate = waiting.pop(0)
            elif lower is not None and upper is not None:
                rate = min(max(round(math.sqrt(lower * upper)), lower + 1), upper - 1)
            elif lower is not None:
                rate, stretch = min(self.high, max(lower + 1, round(lower * math.exp(stretch)))), stretch * 2
            elif upper is not None:
                rate, stretch = max(self.low, min(upper - 1, round(upper * math.exp(-stretch)))), stretch * 2
            else:
                rate = self.high
            self.decide(rate, target)

    def conditional(self, rate: int, target: _Target) -> float:
        """Rate less the loss of the worst trial that the exceed ratio does not forgive."""
        trials = sorted((loss, s) for s, loss in self.seen[rate] if s >= target.trial_s - _EPSILON)
        needed = max(sum(s for _, s in trials), target.sum_s) * (1 - target.exceed_ratio)
        quantile = 1.0
        for loss, seconds in trials:
            if needed <= _EPSILON:
                break
            quantile, needed = loss, needed - seconds
        return rate * (1 - quantile)


class BudgetError(RuntimeError):
    """The search took longer than it was allowed to."""


def mlrsearch(
    measurer: Measurer,
    goals: Sequence[Goal],
    *,
    max_pps: float,
    min_pps: float = 1.0,
    budget_s: float = math.inf,
    on_trial: Callable[[int, Trial], None] | None = None,
) -> tuple[GoalResult, ...]:
    """Find the conditional throughput of every goal; goals share their trials. Rates are whole frames per second."""
    low, high = math.ceil(min_pps), math.floor(max_pps)
    if not goals or not 0 < low < high:
        raise ValueError("a search needs at least one goal and two rates, the lower above 0")
    search = _Search(measurer, low, high, budget_s)
    first_s = min(goal.initial_trial_s for goal in goals)
    # What comes out under overload is a good guess of what goes through: ask twice, nearer each time.
    hint = high
    for _ in range(2):
        out = search.measure(hint, first_s)
        hint = min(high, max(low, int(hint * (1 - out.missing_ratio))))
        if out.missing == 0:
            break
    hints = [hint]
    results = []
    for goal in goals:
        for target in _targets(goal):
            lower, upper = search.achieve(target, hints)
            hints = [rate for rate in (lower, upper) if rate is not None]
        final = _targets(goal)[-1]
        rate = None if lower is None else search.conditional(lower, final)
        spoilt = sum(not trial.valid for _, trial in search.trials)
        results.append(GoalResult(goal, lower, upper, rate, upper in search.aside, spoilt))
    if on_trial is not None:
        for rate_pps, trial in search.trials:
            on_trial(rate_pps, trial)
    return tuple(results)
