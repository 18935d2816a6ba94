"""Connections of TCP and what became of them, as ``quiver-tester tcp --json`` prints it (schema ``quiver-tcp-trial/1``)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from quiver_lab.trial import Count, Latency


class _Frozen(BaseModel):
    """Records do not change after they were read; unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False)


class Connections(_Frozen):
    """Connections of a kind, or of all kinds."""

    opened: Count
    established: Count
    completed: Count
    reset: Count
    timed_out: Count
    corrupted: Count
    unfinished: Count
    exchanges: Count
    request_bytes: Count
    response_bytes: Count
    connect_ns: Latency | None = None
    """From the first segment until the client could write."""
    exchange_ns: Latency | None = None
    """From a request's first byte until its response's last one."""

    @property
    def failed(self) -> int:
        """Connections that did not say all, or were not closed by both ends."""
        return self.reset + self.timed_out + self.corrupted + self.unfinished


class Kind(Connections):
    """Connections of a kind."""

    name: str


class Segments(_Frozen):
    """Segments of one end."""

    sent: Count
    received: Count
    retransmitted: Count
    strange: Count


class TcpTrial(Connections):
    """One trial."""

    schema_: Literal["quiver-tcp-trial/1"] = Field(alias="schema")
    started: str = ""
    duration_s: float = Field(gt=0)
    valid: bool
    reasons: tuple[str, ...] = ()
    intended: Count
    not_opened: Count
    most_open: Count
    opened_cps: float
    established_cps: float
    exchanges_per_s: float
    request_bps: float
    response_bps: float
    client: Segments
    server: Segments
    connections: tuple[Kind, ...]
    series: tuple[dict[str, Any], ...] = ()
