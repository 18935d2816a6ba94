"""Runs at a rate that was fixed beforehand: single ones (as in seed 000), overloads (seed 002), and long ones in slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quiver_lab.measurer import Measurer
from quiver_lab.procedures.latency import LatencyPoint, latency
from quiver_lab.trial import Trial


def fixed_rate(measurer: Measurer, *, rate_pps: float, duration_s: float = 120.0, repeats: int = 20) -> tuple[Trial, ...]:
    """Run the same trial several times, whatever it loses."""
    if repeats < 1:
        raise ValueError("at least one repeat")
    return tuple(measurer.measure(rate_pps, duration_s) for _ in range(repeats))


GENERATOR = "packet generator"
"""The engine of trials whose frames the device makes itself."""


@dataclass(frozen=True, slots=True)
class SoakResult:
    """A long run."""

    slices: tuple[Trial, ...]

    @property
    def lost(self) -> int:
        """Frames lost in the whole run."""
        return sum(t.lost for t in self.slices)

    @property
    def unsent(self) -> int:
        """Frames never sent in the whole run."""
        return sum(t.unsent for t in self.slices)

    @property
    def loss_ratio(self) -> float:
        """Lost frames of those sent in the whole run; 1 where none was sent."""
        sent = sum(t.sent for t in self.slices)
        return self.lost / sent if sent else 1.0

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


@dataclass(frozen=True, slots=True)
class RPlusResult:
    """What came back under overload, and latency at shares of that rate."""

    trial: Trial
    """The overload."""
    points: tuple[LatencyPoint, ...]

    @property
    def offered_pps(self) -> float:
        """What was really sent, per direction."""
        return self.trial.sent / self.trial.duration_s / len(self.trial.directions)

    @property
    def overloaded(self) -> bool:
        """Whether the device lost a thousandth or more of what was sent, and not the tester's own receiver.

        A packet generator within the device (``link: pg``) sends less than it is asked for where its worker can do no more.
        On ports whose rings push back nothing that was sent is lost: then only the device can tell that it was busy.
        """
        if self.trial.engine == GENERATOR:
            return self.trial.missing * 1000 > self.trial.intended
        own = any("receive ring" in r for r in self.trial.reasons)
        return self.trial.lost * 1000 > self.trial.sent and not own

    @property
    def valid(self) -> bool:
        """Whether this is the device's rate. That the tester was late or sent too little does not matter in overload."""
        return self.overloaded and not self.trial.disturbed


def r_plus(measurer: Measurer, *, offered_pps: float, duration_s: float = 60.0, fractions: Sequence[float] = ()) -> RPlusResult:
    """Send more than the device can forward and count what comes back (R+, seed 002), then measure at shares of that.

    What a disturbed machine lets a device forward is not the device's rate, and shares of it tell nothing.
    """
    trial = measurer.measure(offered_pps, duration_s)
    if not fractions or trial.disturbed:
        return RPlusResult(trial, ())
    if trial.delivered_pps <= 0:
        raise ValueError("nothing came back under overload: there is no rate to take shares of")
    points = latency(measurer, throughput_pps=trial.delivered_pps, fractions=fractions, duration_s=duration_s, repeats=1)
    return RPlusResult(trial, points)
