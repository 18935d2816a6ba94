"""Runs at a rate that was fixed beforehand: single ones (as in seed 000), and long ones in slices."""

from __future__ import annotations

from dataclasses import dataclass

from quiver_lab.measurer import Measurer
from quiver_lab.trial import Trial


def fixed_rate(measurer: Measurer, *, rate_pps: float, duration_s: float = 120.0, repeats: int = 20) -> tuple[Trial, ...]:
    """Run the same trial several times, whatever it loses."""
    if repeats < 1:
        raise ValueError("at least one repeat")
    return tuple(measurer.measure(rate_pps, duration_s) for _ in range(repeats))


@dataclass(frozen=True, slots=True)
class SoakResult:
    """A long run."""

    slices: tuple[Trial, ...]

    @property
    def missing(self) -> int:
        """Frames missing in the whole run."""
        return sum(t.missing for t in self.slices)

    @property
    def intended(self) -> int:
        """Frames asked for in the whole run."""
        return sum(t.intended for t in self.slices)

    @property
    def worst(self) -> int:
        """Index of the slice that lost most; the first of equals."""
        return max(range(len(self.slices)), key=lambda i: self.slices[i].loss_ratio)


def soak(measurer: Measurer, *, rate_pps: float, total_s: float, slice_s: float = 60.0) -> SoakResult:
    """Run for ``total_s`` in slices, so that an interrupted run keeps what it has."""
    if not 0 < slice_s <= total_s:
        raise ValueError(f"slices of {slice_s} s in a run of {total_s} s")
    whole, rest = divmod(total_s, slice_s)
    durations = [slice_s] * int(whole) + ([rest] if rest > 1e-9 else [])
    return SoakResult(tuple(measurer.measure(rate_pps, d) for d in durations))
