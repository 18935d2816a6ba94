"""Throughput by RFC 2544, section 26.1: the highest rate at which no frame is missing, by binary search."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quiver_lab.measurer import Measurer
from quiver_lab.trial import Trial


@dataclass(frozen=True, slots=True)
class ThroughputResult:
    """What the search found."""

    rate_pps: int | None
    """Per direction; none where even the lowest rate lost frames."""
    upper_pps: int | None
    """Lowest rate that failed; none where the highest rate passed."""
    limited_by_tester: bool
    """The rate just above failed in a trial that was not valid: the device may be better than this."""
    trials: tuple[tuple[int, Trial], ...]


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
    not valid never passes, because nobody knows what was sent.
    """
    if not 0 < min_pps <= max_pps:
        raise ValueError(f"rates from {min_pps} to {max_pps} pps: the lowest must be above 0 and not above the highest")
    if resolution_pps < 1 or duration_s <= 0 or not 0 <= loss_ratio < 1:
        raise ValueError("resolution is at least 1 pps, the duration above 0, the loss ratio from 0 to below 1")
    trials: list[tuple[int, Trial]] = []

    def passes(rate_pps: int) -> bool:
        trial = measurer.measure(rate_pps, duration_s)
        trials.append((rate_pps, trial))
        return trial.valid and trial.loss_ratio <= loss_ratio

    low, high = math.ceil(min_pps), math.floor(max_pps)
    if high < low or passes(high):
        return ThroughputResult(high if high >= low else None, None, limited_by_tester=False, trials=tuple(trials))
    passed, failed = None, high
    # The lowest rate is only asked for when everything above it has failed.
    floor = low - 1
    while failed - (floor if passed is None else passed) > resolution_pps:
        middle = ((floor if passed is None else passed) + failed) // 2
        if passes(middle):
            passed = middle
        else:
            failed = middle
    invalid = any(rate == failed and not trial.valid for rate, trial in trials)
    return ThroughputResult(passed, failed, limited_by_tester=invalid, trials=tuple(trials))
