"""Rules that a campaign fixes before its first run: which runs and trials are made again, and by what rates were multiplied."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OddRule(_Strict):
    """Which runs are repeated; fixed before the first run."""

    mads: float = Field(default=5.0, gt=0)
    repeat_at_most: int = Field(default=2, ge=0, le=5)


class NoiseRule(_Strict):
    """Which trials the machine disturbed (``noise.py``); fixed before the first run."""

    watch: Literal["machine", "none"] = "machine"
    """``none``: nothing is looked at, and nothing is repeated."""
    slower_percent: float = Field(default=20.0, gt=0, lt=100)
    """By how much a core may be slower before or after the trial than it ever was."""
    shared_percent: float = Field(default=30.0, gt=0, lt=100)
    """How much of the tester's core others may have before or after the trial."""
    stolen_percent: float = Field(default=1.0, ge=0)
    """How much of the trial's time the hypervisor may have given to others, of all cores together."""
    preempted_per_s: float = Field(default=50.0, ge=0)
    """How often a second threads of the tester may have had to leave their core for somebody else.

    The kernel's own threads take it some 30 times a second, for microseconds; a neighbour with as much right to it 125 times,
    for a tick of 4 ms each.
    """
    repeat_at_most: int = Field(default=2, ge=0, le=10)
    """How often a disturbed trial is made again."""


class LinkScale(_Strict):
    """A scale of one kind of ports."""

    factor: float = Field(gt=0)
    reason: str = ""


class RateScale(_Strict):
    """What the rates of a reproduced campaign were multiplied by."""

    factor: float = Field(default=1.0, gt=0)
    reason: str = ""
    links: dict[str, LinkScale] = Field(default_factory=dict)
    """Kinds of ports that have another."""
