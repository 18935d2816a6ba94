"""What the procedures ask of whoever measures. They know nothing else about testers and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from quiver_lab.trial import Trial


class Measurer(Protocol):
    """One device in one configuration under one traffic profile; only rate and duration vary."""

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        """Send ``rate_pps`` in each direction for ``duration_s``, and count what comes back."""


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a trial whose rate changes without a pause."""

    rate_pps: float
    duration_s: float


class SteppedMeasurer(Protocol):
    """A measurer that can change the rate within a trial."""

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Run the steps back to back as one trial with a series; times count from the first frame of the first step."""


class ResettingMeasurer(Protocol):
    """A measurer that can reset the device while a trial runs."""

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        """Send for ``duration_s`` and reset the device about ``reset_after_s`` after the first frame."""


class FullMeasurer(Measurer, SteppedMeasurer, ResettingMeasurer, Protocol):
    """A measurer for every procedure; what a device or tester cannot do is an error when it is asked for."""
