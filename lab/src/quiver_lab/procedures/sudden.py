"""What a device does when something sudden happens: a burst (RFC 9004), the end of an overload, a reset (RFC 6201)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from quiver_lab.measurer import Measurer, ResettingMeasurer, Step, SteppedMeasurer


@dataclass(frozen=True, slots=True)
class BackToBackResult:
    """Longest bursts at the line rate that came through whole."""

    bursts: tuple[int, ...]
    """Frames, one value a repeat."""
    line_pps: float
    throughput_pps: float
    at_limit: bool
    """Some burst reached the longest that was tried: there is no buffer to be found this way (RFC 9004 says to stop there)."""

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

    def passes(frames: int) -> bool:
        trial = measurer.measure(line_pps, frames / line_pps)
        return trial.valid and trial.missing == 0

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
    return BackToBackResult(tuple(bursts), line_pps, throughput_pps, at_limit=longest in bursts)


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """How long a device goes on losing after an overload (RFC 2544, section 26.5)."""

    overload_pps: float
    overloaded: bool
    """Whether the overload lost anything; if not, there was nothing to recover from."""
    recovery_s: float | None
    """From the change of rate to the last lost frame, as fine as the series; none where loss never ended."""


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
    points = measurer.measure_steps([Step(overload, overload_s), Step(overload / 2, after_s)])
    overloaded = any(p.lost > 0 for p in points if p.t_s <= overload_s + 1e-9)
    after = [p for p in points if p.t_s > overload_s + 1e-9]
    last = max((p.t_s for p in after if p.lost > 0), default=overload_s)
    ended = not after or after[-1].lost <= 0
    return RecoveryResult(overload, overloaded, last - overload_s if ended else None)


@dataclass(frozen=True, slots=True)
class ResetResult:
    """How long a device was away after a reset (RFC 6201, frame-loss method)."""

    lost: int
    reset_s: float | None
    """Lost frames over the offered rate; none where the device did not come back within the trial."""


def reset(
    measurer: ResettingMeasurer, *, rate_pps: float, duration_s: float = 60.0, reset_after_s: float = 10.0
) -> ResetResult:
    """Reset the device during a trial below its throughput, and count what is missing."""
    if not 0 <= reset_after_s < duration_s:
        raise ValueError(f"a reset {reset_after_s} s into a trial of {duration_s} s")
    trial = measurer.measure_with_reset(rate_pps, duration_s, reset_after_s)
    away_s = trial.missing / (rate_pps * len(trial.directions))
    # All that was sent from the reset on is missing: when it would have come back, nobody saw.
    gone = away_s >= (duration_s - reset_after_s) * (1 - 1e-9)
    return ResetResult(trial.missing, None if gone else away_s)
