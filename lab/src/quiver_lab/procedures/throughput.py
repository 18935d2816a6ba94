"""Throughput by RFC 2544, section 26.1: the highest rate at which no frame is missing, by binary search.

A trial that is not valid proves nothing of the device. At such a rate the search asks again; where that does not help, it
looks for the answer below, and comes back in the end: what spoilt the trials may have been a neighbour on the machine. What is
far beyond the most that the tester sent at a rate it could not reach is not asked for at all. What a device delivers in
overload says where to look: trials in deep overload take long to become valid, and tell nothing. Where the tester is the limit,
its limit is found to a twentieth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from quiver_lab.measurer import Measurer
from quiver_lab.trial import Trial

ATTEMPTS = 3
"""Trials at one rate before it is set aside, as long as none of them is valid."""
RETURNS = 2
"""How often a search comes back to a rate that was set aside."""
BEYOND = 1.2
"""Times the most that the tester sent from which on a rate is out of its reach, without asking."""
COARSE = 20
"""Part of a rate that no trial was valid at, to which the search looks closer: whose limit it is matters, not where it lies."""


@dataclass(frozen=True, slots=True)
class ThroughputResult:
    """What the search found."""

    rate_pps: int | None
    """Per direction; none where even the lowest rate lost frames."""
    upper_pps: int | None
    """Lowest rate that failed; none where the highest rate passed."""
    limited_by_tester: bool
    """At the rate just above no trial was valid: the device may be better than this."""
    trials: tuple[tuple[int, Trial], ...]

    @property
    def spoilt(self) -> int:
        """How many trials were not valid."""
        return sum(not trial.valid for _, trial in self.trials)


def throughput(
    measurer: Measurer,
    *,
    max_pps: float,
    min_pps: float = 1.0,
    duration_s: float = 60.0,
    resolution_pps: int = 1,
    loss_ratio: float = 0.0,
) -> ThroughputResult:
    """Search between ``min_pps`` and ``max_pps`` until bounds are ``resolution_pps`` apart (by default exactly).

    ``loss_ratio`` 0 is the RFC's throughput; any other makes it a partial drop rate and should be called so. A trial that is
    not valid never passes, because nobody knows what was sent, and never fails for good.
    """
    if not 0 < min_pps <= max_pps:
        raise ValueError(f"rates from {min_pps} to {max_pps} pps: the lowest must be above 0 and not above the highest")
    if resolution_pps < 1 or duration_s <= 0 or not 0 <= loss_ratio < 1:
        raise ValueError("resolution is at least 1 pps, the duration above 0, the loss ratio from 0 to below 1")
    search = _Search(measurer, duration_s, loss_ratio)
    guess: int | None = None
    low, high = math.ceil(min_pps), math.floor(max_pps)
    returns = 0
    while low <= high:
        passed, failed = search.bounds()
        if failed is None:
            if high in search.known:
                break
            guess = search.overload(high)
            continue
        # The lowest rate is only asked for when everything above it has failed.
        below = low - 1 if passed is None else passed
        fine = resolution_pps if search.known[failed] is not None else max(resolution_pps, failed // COARSE)
        if failed - below > fine:
            middle = (below + failed) // 2
            if passed is None:
                search.ask(guess if guess is not None and low <= guess < middle else middle)
                guess = None
            else:
                search.ask(min(middle, 2 * passed))
        elif search.known[failed] is None and returns < RETURNS:
            returns += 1
            search.come_back(failed)
        else:
            break
    passed, failed = search.bounds()
    limited = failed is not None and search.known[failed] is None
    return ThroughputResult(passed, failed, limited_by_tester=limited, trials=tuple(search.trials))


@dataclass
class _Search:
    """What is known of rates so far."""

    measurer: Measurer
    duration_s: float
    loss_ratio: float
    known: dict[int, bool | None] = field(default_factory=dict)
    """Rates that were asked for: passed, failed, or no valid trial there."""
    trials: list[tuple[int, Trial]] = field(default_factory=list)
    reach_pps: float = math.inf
    """The most that the tester sent per direction where it could not do what it was asked for."""

    def bounds(self) -> tuple[int | None, int | None]:
        """The lowest rate that did not pass, and the highest below it that did."""
        failed = min((r for r, good in self.known.items() if not good), default=None)
        passed = max((r for r, good in self.known.items() if good and (failed is None or r < failed)), default=None)
        return passed, failed

    def overload(self, rate_pps: int) -> int | None:
        """Try the highest rate; what came through per direction, where that was not all."""
        self.known[rate_pps] = None
        trial = self.measurer.measure(rate_pps, self.duration_s)
        self.trials.append((rate_pps, trial))
        if trial.valid:
            self.known[rate_pps] = trial.missing_ratio <= self.loss_ratio
        elif trial.out_of_reach:
            self.reach_pps = trial.sent / trial.duration_s / len(trial.directions)
        else:
            self.ask(rate_pps, ATTEMPTS - 1)
        return None if self.known[rate_pps] else int(trial.delivered_pps)

    def ask(self, rate_pps: int, attempts: int = ATTEMPTS) -> None:
        """Try a rate until a trial there is valid."""
        self.known[rate_pps] = None
        if rate_pps > BEYOND * self.reach_pps:
            return
        before = len(self.trials)
        for _ in range(attempts):
            trial = self.measurer.measure(rate_pps, self.duration_s)
            self.trials.append((rate_pps, trial))
            if trial.valid:
                self.known[rate_pps] = trial.missing_ratio <= self.loss_ratio
                return
        tried = [trial for _, trial in self.trials[before:]]
        if all(trial.out_of_reach for trial in tried):
            self.reach_pps = max(trial.sent / trial.duration_s / len(trial.directions) for trial in tried)

    def come_back(self, rate_pps: int) -> None:
        """Try a rate again that was set aside, whatever the tester reached before.

        If trials are valid now, others that were set aside are forgotten too.
        """
        self.reach_pps = math.inf
        self.ask(rate_pps)
        if self.known[rate_pps] is not None:
            self.known = {r: good for r, good in self.known.items() if good is not None}
