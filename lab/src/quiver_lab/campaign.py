"""A campaign file: what is measured on which testbed, by which procedures, how often. Documented in ``lab/README.md``."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from quiver_lab import description, units
from quiver_lab.procedures import PRESETS
from quiver_lab.rules import NoiseRule, OddRule, RateScale
from quiver_lab.twohosts import RemoteTestbed

Operation = Literal["one-way", "bidirectional", "nat", "cross-connect", "bridge", "mix"]
Link = Literal["veth", "memif", "ports", "pg", "none"]
"""``ports``: a box of its own, cabled to ports of this machine (``devices/external.py``). ``pg``: no ports, the device's own
packet generator (``devices/generator.py``)."""
Pattern = Literal["sources", "static", "round-robin", "uniform"]
"""Addresses from frame to frame: sources in turn; always the same; destinations in turn; both drawn (seed 002, 5.5)."""
Numa = Literal["", "near", "far"]
"""Whether the device's cores are on the tester's NUMA node; empty: whichever ``dut_cores`` says."""
Placement = Literal["", "single-core", "main+1-worker", "2-threads-of-one-core", "2-cores"]
"""Where main thread and workers run (seed 002, 5.7); empty: by ``workers``."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""What may be part of a file's name."""


PortText = Annotated[str, Field(pattern=r"^[a-z-]+:[^,]+(,.+)?$")]
"""A port of quiver-tester, such as ``af-packet:enp1s0f0``."""


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
    tester_max_pps: float | None = Field(default=None, gt=0)
    """What its tester can send; none: anything."""
    spoilt: float = Field(default=0.0, ge=0, le=1)
    """Chance that a neighbour on the machine spoils a trial."""
    recovery_s: float = Field(default=0.0, ge=0)
    """For how long it goes on losing after an overload."""
    reset_s: float = Field(default=0.0, ge=0)
    """For how long it forwards nothing after a reset."""
    table_connections: int = Field(default=0, ge=0)
    """Connections that it has room for; 0: it tracks none."""
    connection_rate_cps: float = Field(default=100_000.0, gt=0)
    """Connections that it can open a second."""
    tear_down_rate_cps: float = Field(default=1_000_000.0, gt=0)


class PduSpec(_Strict):
    """Outlets of a rack's power distribution unit (``pdu.py``)."""

    host: str = Field(min_length=1)
    port: int = Field(default=161, ge=1, le=65_535)
    community: str = Field(default="public", min_length=1)
    """For reading; ``QUIVER_PDU_COMMUNITY`` takes its place, so that it need not stand here."""
    unit: int = Field(default=1, ge=1)
    """Of a chain of units: which."""
    outlets: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    """All of them feed the device under test, and nothing else does."""
    count: Literal["power", "energy"] = "power"
    """Power, sampled; or the unit's own count of energy, in watt-hours."""


class ExternalSpec(_Strict):
    """A box that is configured by hand."""

    ports: tuple[
        Annotated[str, Field(pattern=r"^[a-z-]+:[^,]+(,.+)?$")], Annotated[str, Field(pattern=r"^[a-z-]+:[^,]+(,.+)?$")]
    ]
    """The tester's ports that are cabled to its left and right, as quiver-tester takes them, without addresses."""
    reset: tuple[str, ...] = ()
    """A command that resets it, such as one that switches its outlet; without, it cannot be reset."""
    about: str = Field(min_length=1)
    """What it is: model, version, settings. Stands in the results."""


class Testbed(_Strict):
    """Where it runs."""

    __test__ = False
    kind: Literal["local", "simulated", "remote"] = "local"
    name: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9-]*)?$")] = ""
    """What results call it; empty: its kind, or the name that its description has."""
    file: Path | None = None
    """For ``kind: remote``: the description of the two hosts, seen from the campaign's folder."""
    hosts: RemoteTestbed | None = None
    """The same, in place."""
    tester_core: int = Field(default=0, ge=0)
    dut_cores: tuple[Annotated[int, Field(ge=0)], ...] = (1,)
    """Cores that the device may use; the first is its main core where it has workers of its own."""
    binaries: dict[str, str] = Field(default_factory=dict)
    """Paths of programs that are not found otherwise: ``quiver``, ``quiverctl``, ``quiver-tester``."""
    devices: dict[str, SimulatedSpec] = Field(default_factory=dict)
    """For ``kind: simulated``: the devices."""
    external: ExternalSpec | None = None
    """For the device ``external``."""
    meter: Literal["none", "rapl", "hwmon", "ipmi", "pdu", "simulated"] = "none"
    sensors: tuple[str, ...] = ()
    """For ``meter: hwmon``: which sensors are summed, such as ``power_meter/power1_average``."""
    pdu: PduSpec | None = None
    """For ``meter: pdu``."""
    sample_s: float = Field(default=1.0, ge=0.05, le=60)
    """How often a meter is asked that tells power only."""
    simulated_watts: float = Field(default=0.0, ge=0)
    """For ``meter: simulated``: the known draw."""
    tester: Literal["quiver-tester", "trex"] = "quiver-tester"
    """Who makes the trials: Cisco TRex where the operator has it (``binaries: {trex: FOLDER}``, or ``TREX``)."""
    sender: Literal["af-packet", "xdp"] = "af-packet"
    """The tester's ports on veth: packet sockets, or programs in the kernel, which send several times as much."""
    driver: Literal["af-xdp", "af-packet"] = "af-xdp"
    """Quiver's ports on veth."""
    rx_mode: Literal["", "polling", "interrupt", "adaptive"] = ""
    """How quiver waits for packets; empty: as it comes."""
    counters: Literal["none", "perf"] = "none"
    """Hardware counters of the device's cores in trials of two seconds or more; ``kind: local``."""

    @model_validator(mode="after")
    def _hosts(self) -> Testbed:
        if self.kind != "remote":
            if self.file or self.hosts:
                raise ValueError("'file' and 'hosts' are those of 'kind: remote'")
        elif (self.file is None) == (self.hosts is None):
            raise ValueError("'kind: remote' has its hosts described in 'file', or in place by 'hosts'")
        elif self.meter in ("rapl", "hwmon", "ipmi"):
            raise ValueError(f"'meter: {self.meter}' would count this machine's energy, not that of the device's host")
        return self

    @model_validator(mode="after")
    def _tester(self) -> Testbed:
        if self.tester == "trex" and self.kind != "local":
            raise ValueError("'tester: trex' is of 'kind: local': the lab starts TRex on its own machine")
        if self.tester == "trex" and self.sender != "af-packet":
            raise ValueError("'tester: trex' sends through packet sockets: 'sender' is quiver-tester's")
        return self

    @property
    def title(self) -> str:
        """What results call it."""
        return self.name or (self.hosts.name if self.hosts else self.kind)

    def described(self) -> RemoteTestbed:
        """The two hosts; an error where their file has not been read (``beds.py`` does)."""
        if self.hosts is None:
            raise CampaignError(f"the testbed's hosts are described in {self.file}, which was not read")
        return self.hosts


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


class TaggedLatency(_Strict):
    """Throughput first, then typical and worst-case latency of tagged frames at it (RFC 8219, 7.2)."""

    kind: Literal["tagged-latency"]
    search_s: float = Field(default=60.0, gt=0)
    resolution_pps: int = Field(default=1, ge=1)
    duration_s: float = Field(default=120.0, gt=0)
    tag_after_s: float = Field(default=60.0, ge=0)
    """How long after the beginning the first tagged frame leaves."""
    tagged_frames: int = Field(default=500, ge=1)
    """At least so many."""
    timestamps: Literal["tester", "card", "kernel"] = "tester"
    """Whose times they have: the tester's own, or those of its ports' cards or of the kernel."""
    max_rate: str = "100%"

    @model_validator(mode="after")
    def _within(self) -> TaggedLatency:
        if self.tag_after_s >= self.duration_s:
            raise ValueError(f"tagged frames {self.tag_after_s:g} s into a trial of {self.duration_s:g} s")
        return self


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
    warm_up_s: float = Field(default=0.0, ge=0)
    """A trial before it, at the same rate, that does not count: sessions and neighbours are learned in it."""


class RPlus(_Strict):
    """Receive rate under overload, R+, and latency at shares of it (seed 002, 4.4)."""

    kind: Literal["r-plus"]
    offered: str = "100%"
    duration_s: float = Field(default=60.0, gt=0)
    fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = ()


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


class Recovery(_Strict):
    """Throughput first, then how long losses go on after an overload (RFC 2544, 26.5)."""

    kind: Literal["recovery"]
    search_s: float = Field(default=60.0, gt=0)
    resolution_pps: int = Field(default=1, ge=1)
    overload_s: float = Field(default=60.0, ge=1)
    after_s: float = Field(default=60.0, ge=1)
    max_rate: str = "100%"


class Reset(_Strict):
    """Throughput first, then how long the device is away when it is reset (RFC 2544, 26.6; RFC 6201)."""

    kind: Literal["reset"]
    search_s: float = Field(default=60.0, gt=0)
    resolution_pps: int = Field(default=1, ge=1)
    duration_s: float = Field(default=60.0, gt=0)
    reset_after_s: float = Field(default=10.0, ge=0)
    max_rate: str = "100%"

    @model_validator(mode="after")
    def _within(self) -> Reset:
        if self.reset_after_s >= self.duration_s:
            raise ValueError(f"a reset {self.reset_after_s:g} s into a trial of {self.duration_s:g} s")
        return self


class _Connections(_Strict):
    """What the measurements of a connection table (RFC 9693) have in common."""

    connections: int = Field(default=1000, ge=1)
    """To open; of ``table-capacity`` the number to begin with, which must fit."""
    open_rate: str = "10000pps"
    """Connections opened a second, or the highest rate tried."""
    timeout_s: float = Field(default=0.5, ge=0, le=3600)
    """Wait after each phase."""
    budget_s: float = Field(default=900.0, gt=0)
    """A measurement that takes longer is ended, and not valid: a tester that is kept from its work searches without an end."""


class ConnectionRate(_Connections):
    """The highest rate at which all connections are opened (RFC 9693, 4.6 and 4.7)."""

    kind: Literal["connection-rate"]
    precision: float = Field(default=0.01, gt=0, lt=1)


class TableCapacity(_Connections):
    """How many connections there can be (RFC 9693, 4.10)."""

    kind: Literal["table-capacity"]
    error: int = Field(default=1, ge=1)
    """By how many connections the result may be off."""
    precision: float = Field(default=0.1, gt=0, lt=1)
    """Of the rates found on the way."""


class TearDown(_Connections):
    """How fast connections are dropped on demand (RFC 9693, 4.9)."""

    kind: Literal["tear-down"]


class TcpRate(_Strict):
    """The highest rate of TCP connections at which all say what they have to (RFC 9411, 7.2)."""

    kind: Literal["tcp-rate"]
    max_cps: float = Field(default=20_000.0, gt=0, le=1e7)
    """The highest rate tried, connections a second."""
    duration_s: float = Field(default=300.0, gt=0)
    request_bytes: int = Field(default=100, ge=1, le=1 << 30)
    response_bytes: int = Field(default=1024, ge=1, le=1 << 30)
    """The object: RFC 9411 has 1, 2, 4, 16 and 64 kB."""
    exchanges: int = Field(default=1, ge=1, le=1 << 20)
    """Requests of a connection."""
    timeout_s: float = Field(default=5.0, gt=0, le=3600)
    """For how long an end waits for an answer."""
    precision: float = Field(default=0.02, gt=0, lt=1)
    budget_s: float = Field(default=7200.0, gt=0)
    """A search that takes longer is ended, and not valid."""


STATEFUL = (ConnectionRate, TableCapacity, TearDown)
"""Procedures of a connection table: one measurement of the tester's a run."""

Procedure = Annotated[
    Throughput | Mlrsearch | LossRate | Latency | TaggedLatency | BackToBack | FixedRate | RPlus | Pdv | Soak
    | Recovery | Reset | ConnectionRate | TableCapacity | TearDown | TcpRate,
    Field(discriminator="kind"),
]  # fmt: skip

_RFC_LEAST_S = {
    "throughput": 60.0,
    "loss-rate": 60.0,
    "latency": 120.0,
    "tagged-latency": 120.0,
    "pdv": 60.0,
    "recovery": 60.0,
    "reset": 60.0,
    "tcp-rate": 300.0,
}
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
    pattern: tuple[Pattern, ...] = ("sources",)
    vector: tuple[Annotated[int, Field(ge=0, le=1024)], ...] = (0,)
    """Largest vector; 0: what the device has by itself."""
    loops: tuple[Annotated[str, Field(pattern=r"^([0-9]+p[0-9]+)?$")], ...] = ("",)
    """Multi-loop width and prefetch distance of the forwarding nodes, such as ``4p0``; empty: the device's own."""
    instance: tuple[Annotated[int, Field(ge=0)], ...] = (0,)
    """How many of ``dut_cores`` are passed over: the same test on other cores (seed 001)."""
    numa: tuple[Numa, ...] = ("",)
    clock_ghz: tuple[Annotated[str, Field(pattern=r"^([0-9]+\.[0-9]+)?$")], ...] = ("",)
    """A clock rate that the cores must be set to; empty: as they are."""
    placement: tuple[Placement, ...] = ("",)
    throttle: tuple[Annotated[float, Field(ge=0.05, le=1)], ...] = (1.0,)
    """The share of its cores that the device has (``throttle.py``); 1: it is not throttled."""
    procedure: tuple[Name, ...] = Field(min_length=1)


class Campaign(_Strict):
    """The whole file."""

    schema_: Literal["quiver-campaign/1"] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    description: str = ""
    quick: bool = False
    """Allows shorter trials than the RFCs; every result says so."""
    reproduces: Literal["", "slavik2025", "kosak2025", "linguaglossa2019"] = ""
    """Which paper's campaign this is."""
    control: str = ""
    """The device that takes the place of the paper's beside the candidate: what it does not show either, the machine hides."""
    scale: RateScale = RateScale()
    testbed: Testbed = Testbed()
    line_rate: str = "10Gbps"
    """What percentages and searches refer to."""
    matrix: Matrix
    further: tuple[Matrix, ...] = ()
    """More matrices; a cell that several make is measured once."""
    exclude: tuple[dict[str, Any], ...] = ()
    """Cells that match all keys of one of these are left out."""
    procedures: dict[str, Procedure] = Field(min_length=1)
    repeats: int = Field(default=20, ge=1)
    rest_s: float = Field(default=0.0, ge=0)
    """Pause between two runs (seed 000: 60)."""
    odd_runs: OddRule = OddRule()
    noise: NoiseRule = NoiseRule()
    order: Literal["random", "file"] = "random"
    """In which cells are measured within a repeat. Random: drawn anew for each repeat, from the campaign's text."""

    @model_validator(mode="after")
    def _consistent(self) -> Campaign:
        line = units.parse_bit_per_s(self.line_rate)
        for name in [name for m in (self.matrix, *self.further) for name in m.procedure]:
            if name not in self.procedures:
                raise ValueError(f"matrix.procedure: '{name}' is not among procedures: {', '.join(self.procedures)}")
        for name, p in self.procedures.items():
            for rate in (getattr(p, key, None) for key in ("rate", "max_rate", "offered", "open_rate")):
                if rate is not None:
                    units.parse_rate(rate, 64, line)
            least = _RFC_LEAST_S.get(p.kind, 0.0)
            lasts = min(getattr(p, key, math.inf) for key in ("duration_s", "search_s", "overload_s"))
            floor = min(least, 60.0) if p.kind in ("latency", "tagged-latency") else least
            untagged = isinstance(p, TaggedLatency) and (p.tag_after_s < 60.0 or p.tagged_frames < 500)
            if not self.quick and untagged:
                raise ValueError(
                    f"procedures.{name}: RFC 8219 asks for 500 tagged frames or more after 60 s ('quick: true' allows less)"
                )
            if not self.quick and (lasts < floor or getattr(p, "duration_s", math.inf) < least):
                raise ValueError(
                    f"procedures.{name}: trials are shorter than the {least:g} s that the RFC asks for; say 'quick: true' at "
                    "the top if that is meant, and every result will carry it"
                )
        if self.testbed.kind == "simulated":
            duts = [d for m in (self.matrix, *self.further) for d in m.dut]
            missing = [d for d in dict.fromkeys(duts) if d not in self.testbed.devices]
            # A paper's campaign names devices that may not be here: their cells are absent.
            if missing and not self.reproduces:
                raise ValueError(f"matrix.dut: {', '.join(missing)}: not among testbed.devices")
        elif self.testbed.kind == "local" and self.testbed.tester_core in self.testbed.dut_cores:
            raise ValueError("testbed: the tester's core is among the device's: their work could not be told apart")
        if (self.testbed.meter == "pdu") != (self.testbed.pdu is not None):
            raise ValueError("testbed: 'meter: pdu' and the outlets of 'pdu:' belong together")
        if self.testbed.sensors and self.testbed.meter != "hwmon":
            raise ValueError("testbed: 'sensors' are those of 'meter: hwmon'")
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
        """Every combination that is not excluded, in the order of the file, each once."""
        names = list(Matrix.model_fields)
        seen = set()
        for matrix in (self.matrix, *self.further):
            for values in itertools.product(*(getattr(matrix, n) for n in names)):
                cell = Cell(**dict(zip(names, values, strict=True)))
                left_out = any(all(getattr(cell, k) == v for k, v in part.items()) for part in self.exclude)
                if not left_out and cell.slug not in seen:
                    seen.add(cell.slug)
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
    pattern: Pattern = "sources"
    vector: int = 0
    loops: str = ""
    instance: int = 0
    numa: Numa = ""
    clock_ghz: str = ""
    placement: Placement = ""
    throttle: float = 1.0
    procedure: str

    @property
    def unusual(self) -> tuple[str, ...]:
        """Settings that few campaigns vary, where they are not as usual."""
        unusual = (
            ("", self.pattern if self.pattern != "sources" else ""), ("vector", self.vector or ""), ("x", self.loops),
            ("instance", self.instance or ""), ("", self.numa), ("ghz", self.clock_ghz), ("", self.placement),
            ("throttle", f"{self.throttle:g}" if self.throttle != 1 else ""),
        )  # fmt: skip
        return tuple(f"{key}{value}" for key, value in unusual if value)

    @property
    def slug(self) -> str:
        """Name of its folder; what is as usual is not in it."""
        more = "".join(f"-{word}" for word in self.unusual)
        return (
            f"{self.dut}-{self.link}-{self.operation}-w{self.workers}-{self.frame_bytes}B-v{self.ip}-r{self.routes}"
            f"-s{self.sources}{more}-{self.procedure}"
        )

    def as_text(self) -> dict[str, str]:
        """Keys and values as published values have them."""
        return {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in self.model_dump().items()}


def digest(text: str) -> str:
    """What tells two campaign files apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse(text: str, name: str = "campaign") -> Campaign:
    """Read a campaign; errors are one line with the place."""
    return description.read(Campaign, text, name, CampaignError)


def load(path: Path) -> tuple[Campaign, str]:
    """Read a campaign file; returns it with its text."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CampaignError(f"{path}: {error.strerror or error}") from error
    return parse(text, str(path)), text
