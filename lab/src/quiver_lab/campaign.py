"""A campaign file: what is measured on which testbed, by which procedures, how often. Documented in ``lab/README.md``."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from quiver_lab import units
from quiver_lab.procedures import PRESETS

Operation = Literal["one-way", "bidirectional", "nat", "cross-connect"]
Link = Literal["veth", "memif", "none"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""What may be part of a file's name."""


class CampaignError(ValueError):
    """A campaign file that cannot be run; one line that says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SimulatedSpec(_Strict):
    """A device that is only arithmetic (``simulate.SimulatedDevice``)."""

    capacity_pps: float = Field(ge=0)
    noise: float = Field(default=0.0, ge=0, le=0.5)
    stray_loss: float = Field(default=0.0, ge=0, le=1)
    buffer_frames: int = Field(default=0, ge=0)
    base_latency_us: float = Field(default=10.0, gt=0)


class Testbed(_Strict):
    """Where it runs."""

    __test__ = False
    kind: Literal["local", "simulated"] = "local"
    tester_core: int = Field(default=0, ge=0)
    dut_cores: tuple[Annotated[int, Field(ge=0)], ...] = (1,)
    """Cores that the device may use; the first is its main core where it has workers of its own."""
    binaries: dict[str, str] = Field(default_factory=dict)
    """Paths of programs that are not found otherwise: ``quiver``, ``quiverctl``, ``quiver-tester``."""
    devices: dict[str, SimulatedSpec] = Field(default_factory=dict)
    """For ``kind: simulated``: the devices."""
    meter: Literal["none", "rapl", "simulated"] = "none"
    simulated_watts: float = Field(default=0.0, ge=0)
    """For ``meter: simulated``: the known draw."""


class Throughput(_Strict):
    """RFC 2544 binary search."""

    kind: Literal["throughput"]
    duration_s: float = Field(default=60.0, gt=0)
    resolution_pps: int = Field(default=1, ge=1)
    max_rate: str = "100%"


class Mlrsearch(_Strict):
    """Multi-goal search."""

    kind: Literal["mlrsearch"]
    goals: tuple[str, ...] = ("ndr", "pdr")
    max_rate: str = "100%"
    budget_s: float = Field(default=3600.0, gt=0)

    @field_validator("goals")
    @classmethod
    def _known(cls, goals: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [g for g in goals if g not in PRESETS]
        if unknown or not goals:
            raise ValueError(f"goals {unknown} are not known: {', '.join(PRESETS)}")
        return goals


class LossRate(_Strict):
    """RFC 2544 frame loss rate."""

    kind: Literal["loss-rate"]
    duration_s: float = Field(default=60.0, gt=0)
    max_rate: str = "100%"


class Latency(_Strict):
    """Throughput first, then latency at shares of it."""

    kind: Literal["latency"]
    search_s: float = Field(default=60.0, gt=0)
    resolution_pps: int = Field(default=1, ge=1)
    duration_s: float = Field(default=120.0, gt=0)
    fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.1, 0.5, 0.9, 0.99, 1.0)
    max_rate: str = "100%"


class BackToBack(_Strict):
    """Throughput first, then the longest burst at the highest rate."""

    kind: Literal["back-to-back"]
    search_s: float = Field(default=60.0, gt=0)
    resolution_pps: int = Field(default=1, ge=1)
    longest_s: float = Field(default=2.0, gt=0)
    max_rate: str = "100%"


class FixedRate(_Strict):
    """One trial at a given rate (seed 000)."""

    kind: Literal["fixed-rate"]
    rate: str
    duration_s: float = Field(default=120.0, gt=0)


class Pdv(_Strict):
    """Delay variation at a given rate."""

    kind: Literal["pdv"]
    rate: str
    duration_s: float = Field(default=60.0, gt=0)


class Soak(_Strict):
    """A long run in slices."""

    kind: Literal["soak"]
    rate: str
    total_s: float = Field(gt=0)
    slice_s: float = Field(default=60.0, gt=0)


Procedure = Annotated[
    Throughput | Mlrsearch | LossRate | Latency | BackToBack | FixedRate | Pdv | Soak, Field(discriminator="kind")
]

_RFC_LEAST_S = {"throughput": 60.0, "loss-rate": 60.0, "latency": 120.0, "pdv": 60.0}
"""Shortest trials that the RFCs allow."""


class Matrix(_Strict):
    """Every combination is a cell."""

    dut: tuple[Name, ...] = Field(min_length=1)
    link: tuple[Link, ...] = ("veth",)
    operation: tuple[Operation, ...] = ("one-way",)
    workers: tuple[Annotated[int, Field(ge=0)], ...] = (1,)
    frame_bytes: tuple[Annotated[int, Field(ge=64, le=9216)], ...] = (64,)
    ip: tuple[Literal[4, 6], ...] = (4,)
    routes: tuple[Annotated[int, Field(ge=0)], ...] = (0,)
    """Further routes beside those that the traffic takes."""
    sources: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = (254,)
    """Source addresses a direction."""
    procedure: tuple[Name, ...] = Field(min_length=1)


class OddRule(_Strict):
    """Which runs are repeated; fixed before the first run."""

    mads: float = Field(default=5.0, gt=0)
    repeat_at_most: int = Field(default=2, ge=0, le=5)


class Campaign(_Strict):
    """The whole file."""

    schema_: Literal["quiver-campaign/1"] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    description: str = ""
    quick: bool = False
    """Allows shorter trials than the RFCs; every result says so."""
    testbed: Testbed = Testbed()
    line_rate: str = "10Gbps"
    """What percentages and searches refer to."""
    matrix: Matrix
    exclude: tuple[dict[str, Any], ...] = ()
    """Cells that match all keys of one of these are left out."""
    procedures: dict[str, Procedure] = Field(min_length=1)
    repeats: int = Field(default=20, ge=1)
    rest_s: float = Field(default=0.0, ge=0)
    """Pause between two runs (seed 000: 60)."""
    odd_runs: OddRule = OddRule()

    @model_validator(mode="after")
    def _consistent(self) -> Campaign:
        line = units.parse_bit_per_s(self.line_rate)
        for name in self.matrix.procedure:
            if name not in self.procedures:
                raise ValueError(f"matrix.procedure: '{name}' is not among procedures: {', '.join(self.procedures)}")
        for name, p in self.procedures.items():
            for rate in (getattr(p, "rate", None), getattr(p, "max_rate", None)):
                if rate is not None:
                    units.parse_rate(rate, 64, line)
            least = _RFC_LEAST_S.get(p.kind, 0.0)
            lasts = min(getattr(p, key, math.inf) for key in ("duration_s", "search_s"))
            floor = min(least, 60.0) if p.kind == "latency" else least
            if not self.quick and (lasts < floor or getattr(p, "duration_s", math.inf) < least):
                raise ValueError(
                    f"procedures.{name}: trials are shorter than the {least:g} s that the RFC asks for; say 'quick: true' at "
                    "the top if that is meant, and every result will carry it"
                )
        if self.testbed.kind == "simulated":
            missing = [d for d in self.matrix.dut if d not in self.testbed.devices]
            if missing:
                raise ValueError(f"matrix.dut: {', '.join(missing)}: not among testbed.devices")
        elif self.testbed.tester_core in self.testbed.dut_cores:
            raise ValueError("testbed: the tester's core is among the device's: their work could not be told apart")
        for part in self.exclude:
            unknown = set(part) - set(Matrix.model_fields)
            if unknown or not part:
                raise ValueError(f"exclude: unknown keys {sorted(unknown)}; those of matrix are possible")
        return self

    @property
    def line_bit_per_s(self) -> float:
        """The line rate in bit/s."""
        return units.parse_bit_per_s(self.line_rate)

    def cells(self) -> Iterator[Cell]:
        """Every combination that is not excluded, in the order of the file."""
        names = list(Matrix.model_fields)
        for values in itertools.product(*(getattr(self.matrix, n) for n in names)):
            cell = Cell(**dict(zip(names, values, strict=True)))
            if not any(all(getattr(cell, k) == v for k, v in part.items()) for part in self.exclude):
                yield cell


class Cell(_Strict):
    """One combination."""

    dut: str
    link: Link
    operation: Operation
    workers: int
    frame_bytes: int
    ip: Literal[4, 6]
    routes: int
    sources: int
    procedure: str

    @property
    def slug(self) -> str:
        """Name of its folder."""
        return (
            f"{self.dut}-{self.link}-{self.operation}-w{self.workers}-{self.frame_bytes}B-v{self.ip}-r{self.routes}"
            f"-s{self.sources}-{self.procedure}"
        )

    def as_text(self) -> dict[str, str]:
        """Keys and values as published values have them."""
        return {k: str(v) for k, v in self.model_dump().items()}


def digest(text: str) -> str:
    """What tells two campaign files apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse(text: str, name: str = "campaign") -> Campaign:
    """Read a campaign; errors are one line with the place."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CampaignError(f"{name}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise CampaignError(f"{name}: the file has no keys")
    try:
        return Campaign.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(x) for x in first["loc"]) or "top"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise CampaignError(f"{name}: {place}: {first['msg'].removeprefix('Value error, ')}{more}") from error


def load(path: Path) -> tuple[Campaign, str]:
    """Read a campaign file; returns it with its text."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CampaignError(f"{path}: {error.strerror or error}") from error
    return parse(text, str(path)), text
