"""What a reproduction consists of, and how it becomes a campaign file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import yaml

from quiver_lab.campaign import Campaign, Cell
from quiver_lab.published import Cell as Keys
from quiver_lab.published import Published

CANDIDATE = "candidate"
"""Whoever takes the place of the paper's device in keys."""
CONTROL = "control"
"""Who takes it beside the candidate: the positive control."""
CAPACITY = "capacity"
"""The key ``load`` of cells that only say what a configuration forwards (``capacity.py``): no finding is about them."""


@dataclass(frozen=True, slots=True)
class Scale:
    """By what all rates of a campaign are multiplied, so that their ratios stay the paper's."""

    factor: float
    reason: str


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller says about machine and time."""

    quick: bool = True
    scale: Scale = Scale(1.0, "nothing is scaled")
    best_scale: Scale | None = None
    """Of the candidate's best ports, where that is another: they carry many times what the others do."""
    candidate: str = "quiver"
    control: str = ""
    """A device that is measured wherever the candidate is, in the same campaign; nothing where empty."""
    baseline: str = "linux"
    tester_core: int = 0
    dut_cores: tuple[int, ...] = (1,)
    sender: str = "af-packet"
    trial_s: float = 2.0
    """Of quick trials."""
    repeats: int = 5
    """Of quick campaigns: three give the least interval of a ratio, five one of a median."""
    perf: bool = False
    """Hardware counters can be read here."""
    testbed: Mapping[str, Any] = field(default_factory=dict)
    """In place of the local testbed: simulated devices, in tests."""
    meter: Mapping[str, Any] = field(default_factory=dict)
    """What counts the device's energy, as a campaign's ``testbed`` has it; nothing where empty."""
    hosts: bool = False
    """On two hosts with wires between them, which a file describes: all devices have the same ports, and the best."""

    def links(self) -> tuple[str, str]:
        """The ports that all devices have, and the candidate's best."""
        if self.hosts:
            return ("ports", "ports")
        return ("none", "none") if self.testbed else ("veth", "memif")


class MakesDocument(Protocol):
    """Lays a campaign out."""

    def __call__(self, options: Options) -> dict[str, Any]:
        """Matrices, procedures and times, as in a campaign file."""


class KnowsKeys(Protocol):
    """Names a cell as the paper does."""

    def __call__(self, cell: Cell, campaign: Campaign) -> Keys:
        """The cell's keys as published values and findings have them; ``dut`` may be ``candidate``."""


class Wants(Protocol):
    """Says which of our cells stands for a published one."""

    def __call__(self, published: Published, campaign: Campaign) -> Keys | str:
        """Keys that our cell has, or why there is none."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Cells of ours that make one of the paper's figures, where it prints no table."""

    name: str
    title: str
    where: Mapping[str, tuple[str, ...]]
    """Values that keys must have."""
    columns: tuple[str, ...]
    """Keys that tell rows apart."""
    quantities: tuple[str, ...]
    not_here: str = ""
    """Why it is not measured at all."""


@dataclass(frozen=True, slots=True)
class Design:
    """One paper."""

    name: str
    title: str
    differs: tuple[str, ...]
    """What is not as in the paper, in sentences."""
    document: MakesDocument
    keys: KnowsKeys
    wants: Wants
    figures: tuple[Figure, ...] = ()
    counters: bool = False
    """Whether it speaks of instructions and caches, which the repository's benches know something of."""
    by_capacity: bool = False
    """Whether its tables follow from a capacity for each configuration (``capacity.py``)."""
    average: str = "median"
    """What the paper makes of repeats."""
    x: str = ""
    """Key along the axis of drawings of tables; figures take their last column."""
    drawn: tuple[str, ...] = ()
    """Quantities of tables that are drawn."""


def campaign_text(design: Design, options: Options) -> str:
    """The campaign file of a reproduction."""
    bed = dict(options.testbed) or {
        "kind": "local",
        "tester_core": options.tester_core,
        "dut_cores": list(options.dut_cores),
        "sender": options.sender,
        # As the devices of the papers.
        "rx_mode": "polling",
        **({"counters": "perf"} if design.counters and options.perf else {}),
        **options.meter,
    }
    laid = design.document(options)
    if options.control:
        matrices = [laid["matrix"], *laid["further"]]
        laid["further"] = [
            *laid["further"],
            *(m | {"dut": [options.control]} for m in matrices if m["dut"] == [options.candidate]),
        ]
    best = options.links()[1]
    own = {best: {"factor": options.best_scale.factor, "reason": options.best_scale.reason}} if options.best_scale else {}
    document = {
        "schema": "quiver-campaign/1",
        "name": f"{design.name}-quick" if options.quick else design.name,
        "description": f"Reproduction of {design.title}",
        "quick": options.quick,
        "reproduces": design.name,
        **({"control": options.control} if options.control else {}),
        "scale": {"factor": options.scale.factor, "reason": options.scale.reason, **({"links": own} if own else {})},
        "testbed": bed,
        **laid,
    }
    return yaml.safe_dump(document, sort_keys=False, width=120)


def as_keys(cell: Cell, campaign: Campaign, *names: str) -> Keys:
    """Chosen keys of a cell as text, ``dut`` among them."""
    places = {campaign.control: CONTROL, candidate_of(campaign): CANDIDATE}
    keys = {"dut": places.get(cell.dut, cell.dut), "link": cell.link}
    return keys | {name: str(getattr(cell, name)) for name in names}


def candidate_of(campaign: Campaign) -> str:
    """The device in the place of the paper's: the first of the first matrix."""
    return campaign.matrix.dut[0]
