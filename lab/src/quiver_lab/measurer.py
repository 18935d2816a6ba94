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


@dataclass(frozen=True, slots=True)
class Tags:
    """Tagged frames beside the load of a trial: those that are timed (RFC 8219, section 7.2)."""

    count: int
    """At least so many of each stream, evenly over the time that they have."""
    after_s: float
    """How long after the beginning of the trial the first of them leaves."""
    timestamps: str = "tester"
    """Whose times they have: ``tester``, ``card`` or ``kernel``."""


TAGGED = "-tagged"
"""Ends the names of their streams."""


class TaggingMeasurer(Protocol):
    """A measurer that can tag some of the frames of a trial."""

    def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
        """Send ``rate_pps`` in each direction, and tagged frames of the same kind beside it."""


class ResettingMeasurer(Protocol):
    """A measurer that can reset the device while a trial runs."""

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        """Send for ``duration_s`` and reset the device about ``reset_after_s`` after the first frame."""


class FullMeasurer(Measurer, SteppedMeasurer, TaggingMeasurer, ResettingMeasurer, Protocol):
    """A measurer for every procedure; what a device or tester cannot do is an error when it is asked for."""
