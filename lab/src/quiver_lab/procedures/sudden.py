"""What a device does when something sudden happens: a burst (RFC 9004), the end of an overload, a reset (RFC 6201)."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from quiver_lab.measurer import Measurer, ResettingMeasurer, Step, SteppedMeasurer
from quiver_lab.procedures.throughput import ATTEMPTS
from quiver_lab.trial import SeriesPoint


@dataclass(frozen=True, slots=True)
class BackToBackResult:
    """Longest bursts at the line rate that came through whole."""

    bursts: tuple[int, ...]
    """Frames, one value a repeat."""
    line_pps: float
    throughput_pps: float
    at_limit: bool
    """Some burst reached the longest that was tried: there is no buffer to be found this way (RFC 9004 says to stop there)."""
    unproved: int = 0
    """Bursts of which no trial was valid; they count as not passed."""

    @property
    def mean_frames(self) -> float:
        """Average burst."""
        return statistics.fmean(self.bursts)

    @property
    def implied_buffer_s(self) -> float:
        """Time that the average burst takes at the line rate."""
        return self.mean_frames / self.line_pps

    @property
    def corrected_buffer_s(self) -> float:
        """The same less what the device forwarded meanwhile at its throughput."""
        return self.implied_buffer_s * max(0.0, 1 - self.throughput_pps / self.line_pps)


def back_to_back(
    measurer: Measurer, *, line_pps: float, throughput_pps: float, longest_s: float = 2.0, repeats: int = 50
) -> BackToBackResult:
    """Search for the longest burst without loss, exactly, ``repeats`` times."""
    if line_pps <= 0 or longest_s <= 0 or repeats < 1:
        raise ValueError("back-to-back needs a line rate and a longest burst above 0, and at least one repeat")
    longest = max(1, int(line_pps * longest_s))

    unproved = 0

    def passes(frames: int) -> bool:
        nonlocal unproved
        for _ in range(ATTEMPTS):
            trial = measurer.measure(line_pps, frames / line_pps)
            if trial.valid:
                return trial.missing == 0
        unproved += 1
        return False

    bursts = []
    for _ in range(repeats):
        if passes(longest):
            bursts.append(longest)
            continue
        passed, failed = 0, longest
        while failed - passed > 1:
            middle = (passed + failed) // 2
            if passes(middle):
                passed = middle
            else:
                failed = middle
        bursts.append(passed)
    return BackToBackResult(tuple(bursts), line_pps, throughput_pps, longest in bursts, unproved)


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """How long a device goes on losing after an overload (RFC 2544, section 26.5)."""

    overload_pps: float
    overloaded: bool
    """Whether the overload lost anything; if not, there was nothing to recover from."""
    recovery_s: float | None
    """From the change of rate to the end of the interval of the last lost frame; none where loss never ended."""
    resolution_s: float
    """Length of the series' intervals: no recovery is told finer."""
    valid: bool
    reasons: tuple[str, ...]
    """Whether the tester did what it was asked to, and what it did not: a change of rate that is late looks like a recovery."""


def recovery(
    measurer: SteppedMeasurer,
    *,
    throughput_pps: float,
    line_pps: float,
    overload_s: float = 60.0,
    after_s: float = 60.0,
) -> RecoveryResult:
    """Overload by a tenth (or to the line rate), halve the rate without a pause, and look for the last loss."""
    overload = min(throughput_pps * 1.1, line_pps)
    trial = measurer.measure_steps([Step(overload, overload_s), Step(overload / 2, after_s)])
    series = [d.series for d in trial.directions]
    if not all(series):
        raise ValueError("a trial without a series does not tell when its last frame was lost")
    losses = [last_loss(points) for points in series]
    lost_s = max((at for at in losses if at is not None), default=None)
    sending_s = min(max((p.t_s for p in points if p.sent), default=0.0) for points in series)
    recovered = None if lost_s is not None and lost_s >= sending_s - 1e-9 else max(0.0, (lost_s or 0.0) - overload_s)
    widths = [b.t_s - a.t_s for points in series for a, b in itertools.pairwise(points)]
    return RecoveryResult(
        overload_pps=overload,
        overloaded=lost_s is not None,
        recovery_s=recovered,
        resolution_s=max(widths, default=overload_s),
        valid=trial.valid,
        reasons=trial.reasons,
    )


def last_loss(points: Sequence[SeriesPoint]) -> float | None:
    """End of the interval in which the last frame was lost; none where none was.

    Up to a moment, sent less received is what was lost plus what was under way. Where that is below what was lost in the end, a
    frame was lost later: so a queue that is full or drains at the change of rate is not taken for loss. A loss is never told
    later than it was; one of fewer frames than are under way may hide, and be told earlier.
    """
    open_frames = list(itertools.accumulate(p.lost for p in points))
    in_the_end = open_frames[-1]
    if in_the_end <= 0:
        return None
    before = [n for n, count in enumerate(open_frames) if count < in_the_end]
    return points[before[-1] + 1 if before else 0].t_s


@dataclass(frozen=True, slots=True)
class ResetResult:
    """How long a device was away after a reset (RFC 6201, frame-loss method)."""

    lost: int
    reset_s: float | None
    """Lost frames over the offered rate; none where the device did not come back within the trial."""
    valid: bool
    reasons: tuple[str, ...]
    """Whether the tester did what it was asked to, and what it did not: a change of rate that is late looks like a recovery."""


def reset(
    measurer: ResettingMeasurer, *, rate_pps: float, duration_s: float = 60.0, reset_after_s: float = 10.0
) -> ResetResult:
    """Reset the device during a trial below its throughput, and count what is missing."""
    if not 0 <= reset_after_s < duration_s:
        raise ValueError(f"a reset {reset_after_s} s into a trial of {duration_s} s")
    trial = measurer.measure_with_reset(rate_pps, duration_s, reset_after_s)
    away_s = trial.missing / (rate_pps * len(trial.directions))
    # All that was sent from the reset on is missing, or nothing of what was sent last came: when it would have come back,
    # nobody saw.
    gone = away_s >= (duration_s - reset_after_s) * (1 - 1e-9)
    for d in trial.directions:
        last = next((p for p in reversed(d.series) if p.sent), None)
        gone = gone or (last is not None and last.received == 0)
    return ResetResult(trial.missing, None if gone else away_s, trial.valid, trial.reasons)
