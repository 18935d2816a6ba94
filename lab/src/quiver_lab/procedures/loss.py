"""Frame loss rate by RFC 2544, section 26.3: loss as a function of load, from the line rate downwards."""

from __future__ import annotations

from dataclasses import dataclass

from quiver_lab.measurer import Measurer
from quiver_lab.trial import Trial


@dataclass(frozen=True, slots=True)
class LossPoint:
    """Loss at one load."""

    fraction: float
    """Of the line rate."""
    rate_pps: float
    loss_ratio: float
    trial: Trial


def frame_loss_rate(
    measurer: Measurer, *, max_pps: float, duration_s: float = 60.0, step: float = 0.1
) -> tuple[LossPoint, ...]:
    """Go down in steps of at most a tenth until two trials in a row lose nothing."""
    if not 0 < step <= 0.1:
        raise ValueError(f"a step of {step}: the RFC wants steps of at most 10 % of the highest rate")
    points: list[LossPoint] = []
    clean = 0
    for index in range(round(1 / step)):
        fraction = 1 - index * step
        trial = measurer.measure(max_pps * fraction, duration_s)
        points.append(LossPoint(fraction, max_pps * fraction, trial.loss_ratio, trial))
        # What the tester could not send proves nothing of the device: such a trial is not clean.
        clean = clean + 1 if trial.valid and trial.missing == 0 else 0
        if clean == 2:
            break
    return tuple(points)
