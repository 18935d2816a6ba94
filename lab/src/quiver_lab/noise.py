"""What the machine did to a trial: a canary of its speed before and after, and what the tester says of its threads meanwhile.

A neighbour on the host takes half of a core's speed for seconds, or the core itself; a trial then loses frames that the device
would have forwarded. The canary does the same small work on the cores of tester and device before and after each trial. Two
figures of each core tell:

- *speed*: work a second of the processor's time. It falls where the core is slower, whoever else runs on it: a device that
  polls keeps half of its core from the canary, and changes nothing of this.
- *share*: how much of the time the canary had the core. Only that of the tester's core is judged, which is idle between trials.

Together with the time that the hypervisor took and the times that threads of the tester had to leave their core, they make a
trial *disturbed* by a rule that the campaign fixes. Disturbed trials are repeated, a bounded number of times, and are never
valid; but a search for a rate without loss takes one that lost nothing: what came through in spite of it came through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quiver_lab.campaign import Procedure
from quiver_lab.canary import Speed, read_core
from quiver_lab.rules import NoiseRule
from quiver_lab.trial import DISTURBED, Trial

CALIBRATIONS = 5
"""Readings before the first trial: the fastest is what later ones are held against, until one is faster."""
LOSSLESS = ("throughput", "mlrsearch", "loss-rate", "back-to-back")
"""Procedures that ask whether frames were lost, and nothing else of a trial."""


class Canary(Protocol):
    """Says how fast the cores are."""

    def read(self) -> Mapping[str, Speed]:
        """Speeds by core; cores that nobody may use are missing."""


@dataclass(frozen=True)
class CoreCanary:
    """The canary of this machine's cores."""

    cores: tuple[int, ...]

    def read(self) -> Mapping[str, Speed]:
        """One after the other."""
        found = {str(core): read_core(core) for core in self.cores}
        return {core: speed for core, speed in found.items() if speed is not None}


@dataclass
class Watch:
    """Judges trials by a rule; remembers the fastest that each core was."""

    rule: NoiseRule
    canary: Canary | None
    tester_core: str
    fastest: dict[str, float] = field(default_factory=dict)
    cores: frozenset[str] | None = None
    """Those that trials use; none: all that the canary reads."""

    def read(self) -> Mapping[str, Speed]:
        """How fast the machine is now; nothing without a canary."""
        if self.canary is None or self.rule.watch == "none":
            return {}
        if not self.fastest:
            for _ in range(CALIBRATIONS):
                self._learn(self.canary.read())
        found = self.canary.read()
        self._learn(found)
        return found

    def _learn(self, speeds: Mapping[str, Speed]) -> None:
        for core, speed in speeds.items():
            self.fastest[core] = max(self.fastest.get(core, 0.0), speed.bytes_per_cpu_s)

    def disturbed(self, trial: Trial, readings: Sequence[Mapping[str, Speed]]) -> tuple[str, ...]:
        """What disturbed a trial between readings; nothing where the campaign does not ask."""
        if self.rule.watch == "none":
            return ()
        return (*self._slow(readings), *of_tester(trial, self.rule))

    def _slow(self, readings: Iterable[Mapping[str, Speed]]) -> list[str]:
        worst: dict[str, float] = {}
        shares: list[float] = []
        for speeds in readings:
            for core, speed in speeds.items():
                if self.cores is not None and core not in self.cores:
                    continue
                worst[core] = min(worst.get(core, 1.0), speed.bytes_per_cpu_s / self.fastest[core])
                if core == self.tester_core:
                    shares.append(speed.share)
        out = [
            f"core {core} had {share * 100:.0f} % of its speed"
            for core, share in worst.items()
            if share < 1 - self.rule.slower_percent / 100
        ]
        if shares and min(shares) < 1 - self.rule.shared_percent / 100:
            out.append(f"others had the tester's core {(1 - min(shares)) * 100:.0f} % of the time beside the trial")
        return out


def of_tester(trial: Trial, rule: NoiseRule) -> list[str]:
    """What the tester's own account says of the machine during the trial; of testers that keep none, nothing."""
    said = (trial.model_extra or {}).get("machine")
    if not isinstance(said, dict):
        return []
    out = []
    stolen, preempted = said.get("stolen_s"), said.get("preempted")
    if isinstance(stolen, int | float) and stolen > rule.stolen_percent / 100 * trial.duration_s:
        out.append(f"the hypervisor gave {stolen:.2f} s to others")
    if isinstance(preempted, int) and preempted > rule.preempted_per_s * trial.duration_s:
        out.append(f"the tester's threads had to leave their core {preempted} times")
    return out


def counts_all_the_same(trial: Trial, spec: Procedure) -> bool:
    """Whether a disturbed trial proves what its procedure asks: that nothing was lost."""
    return spec.kind in LOSSLESS and trial.valid and trial.missing == 0


def marked(trial: Trial, disturbed: Sequence[str]) -> Trial:
    """The trial as procedures see it: not valid, for these reasons."""
    reasons = (*trial.reasons, *(f"{DISTURBED}{why}" for why in disturbed))
    return trial.model_copy(update={"valid": False, "reasons": reasons})
