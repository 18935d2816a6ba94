"""One trial's outcome, as ``quiver-tester trial --json`` prints it (schema ``quiver-trial/1``).

Everything above the tester sees these types only, whoever measured: the tester, or a simulated device. Unknown keys are
kept, so that a result file holds what the tester said and not what this version of the lab understood.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Literal["quiver-trial/1"] = "quiver-trial/1"

Count = Annotated[int, Field(ge=0)]

DISTURBED = "the machine was disturbed: "
"""Begins the reasons of a trial that the machine disturbed."""
OUT_OF_REACH = 0.1
"""Part of a trial's frames that a tester never sends where it cannot do what it was asked for, whoever disturbs it."""


class _Frozen(BaseModel):
    """Records do not change after they were read."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False)


class Counters(_Frozen):
    """Frames of one direction, stream, or of the whole trial."""

    intended: Count
    sent: Count
    unsent: Count = 0
    received: Count
    lost: Count
    duplicated: Count = 0
    reordered: Count = 0
    late: Count = 0
    foreign: Count = 0
    corrupted: Count = 0


class Latency(_Frozen):
    """One-way latency in nanoseconds."""

    count: Count
    min: float
    mean: float
    stdev: float
    p50: float
    p90: float
    p99: float
    p99_9: float
    p99_99: float | None = None
    p99_999: float | None = None
    max: float


class Pdv(_Frozen):
    """Packet delay variation in nanoseconds: delay less the smallest delay (RFC 5481)."""

    p50: float
    p99: float
    p99_9: float
    max: float


class SeriesPoint(_Frozen):
    """Frames of one interval that ends ``t_s`` after the first frame."""

    t_s: float
    sent: Count
    received: Count
    lost: int
    """Sent less received in this interval: below 0 where frames of the one before arrive in it."""


class Direction(Counters):
    """What one direction did."""

    name: str
    tx: str = ""
    rx: str = ""
    tx_pps: float = 0.0
    rx_pps: float = 0.0
    tx_l2_bps: float = 0.0
    rx_l2_bps: float = 0.0
    latency_ns: Latency | None = None
    jitter_ns: float | None = None
    pdv_ns: Pdv | None = None
    streams: tuple[dict[str, Any], ...] = ()
    series: tuple[SeriesPoint, ...] = ()


class CpuUse(_Frozen):
    """How busy one thread of the tester was, 0 to 1."""

    thread: str
    core: int | None = None
    busy: float


class Trial(_Frozen):
    """One trial: what was asked for, what was sent, what came back."""

    schema_: Literal["quiver-trial/1"] = Field(alias="schema", default=SCHEMA)
    tester: dict[str, Any] = Field(default_factory=dict)
    started: str = ""
    duration_s: float = Field(gt=0)
    settle_s: float = 0.0
    valid: bool
    reasons: tuple[str, ...] = ()
    clock: str = ""
    engine: str = ""
    directions: Annotated[tuple[Direction, ...], Field(min_length=1)]
    totals: Counters | None = None
    cpu: tuple[CpuUse, ...] = ()

    @property
    def intended(self) -> int:
        """Frames that were asked for, all directions."""
        return sum(d.intended for d in self.directions)

    @property
    def received(self) -> int:
        """Frames that came back, all directions."""
        return sum(d.received for d in self.directions)

    @property
    def sent(self) -> int:
        """Frames that were sent, all directions."""
        return sum(d.sent for d in self.directions)

    @property
    def lost(self) -> int:
        """Frames that were sent and did not come back, all directions: the device's doing."""
        return sum(d.lost for d in self.directions)

    @property
    def unsent(self) -> int:
        """Frames that were asked for and never sent, all directions: the tester's doing."""
        return sum(d.unsent for d in self.directions)

    @property
    def missing(self) -> int:
        """Frames that were asked for and did not come back, lost or never sent: a search asks for none."""
        return self.lost + self.unsent

    @property
    def loss_ratio(self) -> float:
        """Lost frames of those sent, as the RFCs and the papers count; 1 where none was sent: such a trial proves nothing."""
        return self.lost / self.sent if self.sent else 1.0

    @property
    def unsent_ratio(self) -> float:
        """Frames never sent of those asked for; 1 where none was asked for."""
        return self.unsent / self.intended if self.intended else 1.0

    @property
    def out_of_reach(self) -> bool:
        """The tester sent so little of what was asked for that asking again would be in vain."""
        return self.unsent_ratio > OUT_OF_REACH

    @property
    def disturbed(self) -> bool:
        """Whether the lab marked it as disturbed by the machine (``noise.marked``)."""
        return any(reason.startswith(DISTURBED) for reason in self.reasons)

    @property
    def missing_ratio(self) -> float:
        """Missing frames of those asked for; 1 where none was asked for. Searches judge the rate that was asked for by it."""
        return self.missing / self.intended if self.intended else 1.0

    @property
    def delivered_pps(self) -> float:
        """Frames that came back per second and direction."""
        return self.received / self.duration_s / len(self.directions)

    @property
    def latency_mean_ns(self) -> float | None:
        """Mean one-way latency over all directions, weighted by samples; none where none was taken."""
        taken = [d.latency_ns for d in self.directions if d.latency_ns and d.latency_ns.count]
        total = sum(x.count for x in taken)
        return sum(x.mean * x.count for x in taken) / total if total else None

    def worst_latency_ns(self, percentile: Literal["p50", "p90", "p99", "p99_9", "max"]) -> float | None:
        """Largest of the directions' values: percentiles of two directions cannot be averaged."""
        taken = [float(getattr(d.latency_ns, percentile)) for d in self.directions if d.latency_ns]
        return max(taken) if taken else None

    @property
    def jitter_ns(self) -> float | None:
        """Largest of the directions' jitter (RFC 3550)."""
        taken = [d.jitter_ns for d in self.directions if d.jitter_ns is not None]
        return max(taken) if taken else None
