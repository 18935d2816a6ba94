"""What a result file holds. One file a trial with raw values, one a run; each names its schema."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from quiver_lab.campaign import Cell


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class RunId(_Record):
    """Which run of a campaign: a cell, a repeat of it, and the attempt at that repeat (above 0: an odd run's repetition)."""

    cell: Cell
    repeat: int = Field(ge=0)
    attempt: int = Field(ge=0)


class Energy(_Record):
    """What a meter counted during one trial."""

    meter: str
    joules: float = Field(ge=0)
    seconds: float = Field(gt=0)
    idle_watts: float | None = None
    """Measured before the campaign."""
    step_j: float = Field(default=0.0, ge=0)
    """Smallest step of the meter's counter where that is coarse: the joules are known no better."""


class TrialRecord(_Record):
    """One trial."""

    schema_: Literal["quiver-lab-trial/1"] = Field(alias="schema", default="quiver-lab-trial/1")
    campaign: str
    campaign_digest: str
    quick: bool
    testbed: str = ""
    """Which it was measured on."""
    run: RunId
    ordinal: int = Field(ge=0)
    """Which trial of its run."""
    rate_pps: float
    """Asked for, per direction."""
    duration_s: float
    trial: dict[str, Any]
    """What the tester printed, whole."""
    core_busy: dict[str, float] = Field(default_factory=dict)
    """How busy each core of the device's machine was during the trial, 0 to 1, from the kernel's accounting."""
    tester_busy: dict[str, float] = Field(default_factory=dict)
    """The same of the tester's cores, where the tester has a machine of its own."""
    energy: Energy | None = None
    speed_before: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """By core: what the canary did a second of the processor's time, in bytes, and its share of the time."""
    speed_after: dict[str, tuple[float, float]] = Field(default_factory=dict)
    disturbed: tuple[str, ...] = ()
    """What the machine did to it; such a trial was made again, or is not valid."""
    throttle: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Of a throttled device, by core: the share that it ``had``, and what else ``throttle.Account`` says."""
    hardware: dict[str, float] = Field(default_factory=dict)
    """Events a second on the device's cores in the middle of the trial, where the testbed has them counted."""


class StatefulRecord(_Record):
    """One measurement of a connection table: all of its run."""

    schema_: Literal["quiver-lab-stateful/1"] = Field(alias="schema", default="quiver-lab-stateful/1")
    campaign: str
    campaign_digest: str
    quick: bool
    testbed: str = ""
    run: RunId
    request: dict[str, Any]
    """What was asked of the tester."""
    stateful: dict[str, Any]
    """What it answered, whole."""
    core_busy: dict[str, float] = Field(default_factory=dict)


class RunRecord(_Record):
    """One run: what a procedure found."""

    schema_: Literal["quiver-lab-run/2"] = Field(alias="schema", default="quiver-lab-run/2")
    """2: loss is that of the frames sent; in 1 it counted those never sent too."""
    campaign: str
    campaign_digest: str
    quick: bool
    testbed: str = ""
    """Which it was measured on; of an absent cell none."""
    run: RunId
    status: Literal["done", "absent", "failed"]
    why: str = ""
    """For absent and failed: one line."""
    valid: bool = True
    """Whether all trials that decided the result were valid."""
    values: dict[str, float | None] = Field(default_factory=dict)
    """Quantities by name, units in the names; none where there is no such value."""
    primary: str = ""
    """The quantity that odd runs are told by."""
    resolution: float = 0.0
    """Smallest difference of the primary quantity that means something."""
    notes: tuple[str, ...] = ()
    trials: int = 0
    device: dict[str, Any] = Field(default_factory=dict)
    """Version and settings of the device under test."""
    telemetry: dict[str, Any] = Field(default_factory=dict)
    """Counters of the device, read after the last trial."""
