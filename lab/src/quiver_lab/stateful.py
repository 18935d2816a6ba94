"""Gateways that track connections (RFC 9693): what is asked of ``quiver-tester``, and what it answers (``quiver-stateful/1``).

Unknown keys of an answer are kept, so that a result file holds what the tester said.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Literal["quiver-stateful/1"] = "quiver-stateful/1"

Measure = Literal["establishment-rate", "capacity", "tear-down-rate", "tcp-rate"]
"""Those that campaigns ask for: the tester's, and ``tcp-rate``, made of trials of connections (``procedures/tcp_rate.py``)."""
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What is said over connections of TCP."""

    duration_s: float
    """For how long they are opened."""
    request_bytes: int
    response_bytes: int
    exchanges: int


@dataclass(frozen=True, slots=True)
class StatefulRequest:
    """One measurement; keys are the tester's, none means its own default."""

    measure: Measure
    connections: int
    """To open; of ``capacity`` the number to begin with, which must fit."""
    open_pps: float
    """Connections opened a second, or the highest rate that is tried."""
    size: int
    """Bytes of the initiator's frames with FCS."""
    initiators: str
    responders: str
    timeout: float = 0.5
    """Seconds to wait after each phase."""
    alpha: float = 0.8
    """Rate of the validation by that of phase 1."""
    precision: float = 0.01
    error: int = 1
    budget_s: float = math.inf
    """When the tester is told to end; not a key of its own."""
    dialogue: Dialogue | None = None
    """Of ``tcp-rate``."""

    def as_json(self) -> dict[str, Any]:
        """The keys of the request but for ``id`` and ``op``."""
        keys = asdict(self)
        del keys["budget_s"]
        if self.dialogue is None:
            del keys["dialogue"]
        keys["open_rate"] = f"{keys.pop('open_pps'):.6f}".rstrip("0").rstrip(".") + "pps"
        return keys


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False)


class Phase(_Frozen):
    """One way of one step: connections opened, or validated."""

    rate_pps: float
    intended: Count
    sent: Count
    received: Count
    connections: Count
    misdirected: Count = 0
    valid: bool
    reasons: tuple[str, ...] = ()


class Step(_Frozen):
    """Phase 1 and, where it brought all connections, their validation."""

    connections: Count
    clear_s: float | None = None
    phase_1: Phase
    validation: Phase | None = None
    verdict: Literal["passed", "failed", "invalid", "aborted"]


class Found(_Frozen):
    """What was found; only what the measure finds."""

    connections: Count | None = None
    establishment_rate_pps: float | None = None
    tear_down_rate_cps: float | None = None
    tear_down_s: float | None = None
    tear_down_empty_s: float | None = None
    left: Count | None = None
    capacity: Count | None = None
    capacity_below: Count | None = None


class Stateful(_Frozen):
    """A measurement that is over."""

    schema_: Literal["quiver-stateful/1"] = Field(alias="schema", default=SCHEMA)
    measure: str
    settings: dict[str, Any] = Field(default_factory=dict)
    valid: bool
    reasons: tuple[str, ...] = ()
    aborted: bool = False
    found: Found
    steps: tuple[Step, ...] = ()


@runtime_checkable
class StatefulMeasurer(Protocol):
    """A device with a connection table that can be told to clear it."""

    def stateful(self, request: StatefulRequest) -> Stateful:
        """Measure it."""
