"""What must be so before a finding can be held against cells at all. Not met is no contradiction.

A sentence about devices in overload says nothing of one that was not; one about full vectors nothing of half empty ones; one
about a device that polls nothing of one that sleeps between frames.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from quiver_lab.published import Cell

LOSSY_PERCENT = 1.0
"""From this loss on a device is taken to deliver what it can."""
FULL = 0.9
"""Vectors that hold this share of the largest are full."""
POLLS = "polls"
"""The quantity, 1 or 0, that says whether a cell's device polled its ports."""

Side = Literal["left", "right"]


class HasValues(Protocol):
    """Repeats of one quantity in one cell."""

    @property
    def cell(self) -> Cell:
        """The cell."""

    @property
    def quantity(self) -> str:
        """What was measured."""

    @property
    def values(self) -> tuple[float, ...]:
        """Its repeats."""


class Needs(BaseModel):
    """Preconditions of one predicate."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    overload: Mapping[Side, float] = Field(default_factory=dict)
    """How many times what it can forward a side must have been offered at least."""
    full_vectors: tuple[Side, ...] = ()
    """Sides whose vectors must be as good as full."""
    polling: tuple[Side, ...] = ()
    """Sides whose device must have polled, as the papers' did."""


class Known:
    """Medians of everything that was measured, by cell."""

    def __init__(self, measured: Iterable[HasValues]) -> None:
        """Take the medians."""
        self._medians: dict[tuple[frozenset[tuple[str, str]], str], float] = {}
        self._losses: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
        for m in measured:
            if not m.values:
                continue
            middle = statistics.median(m.values)
            self._medians[frozenset(m.cell.items()), m.quantity] = middle
            if m.quantity == "loss_percent" and (offered := _offered(m.cell)) is not None:
                self._losses.setdefault(_but_rate(m.cell), []).append((offered, middle))

    def of(self, cell: Cell, quantity: str) -> float | None:
        """The median of a quantity in a cell."""
        return self._medians.get((frozenset(cell.items()), quantity))

    def overload(self, cell: Cell) -> float | None:
        """How many times what it can forward was offered in a cell; none where it never lost so much that one could tell.

        What it can forward is the most that it delivered among the cells of other rates in which it lost 1 % or more; its own
        loss would be reason and result.
        """
        offered = _offered(cell)
        others = [(o, loss) for o, loss in self._losses.get(_but_rate(cell), ()) if o != offered]
        lossy = [o * (1 - loss / 100) for o, loss in others if loss >= LOSSY_PERCENT]
        most = max(lossy, default=0.0)
        return None if offered is None or most <= 0 else offered / most


def _offered(cell: Cell) -> float | None:
    """Frames a second by ``rate_gbit_s`` and ``frame_bytes``, to a factor that is the same for all cells."""
    try:
        return float(cell["rate_gbit_s"]) / float(cell.get("frame_bytes", "64"))
    except (KeyError, ValueError):
        return None


def _but_rate(cell: Cell) -> frozenset[tuple[str, str]]:
    return frozenset((k, v) for k, v in cell.items() if k != "rate_gbit_s")


def unmet(needs: Needs, sides: Mapping[Side, Cell], known: Known) -> str:
    """Which precondition is not met, in words; empty where all are."""
    for side, least in needs.overload.items():
        if side not in sides:
            continue
        depth = known.overload(sides[side])
        if depth is None:
            return f"at no other rate {LOSSY_PERCENT:g} % was lost: what it can forward is not known"
        if depth < least:
            return f"{depth:.2g} times what it forwards was offered, {least:g} times is needed"
    for side in needs.full_vectors:
        cell = sides.get(side, {})
        # Vectors of benches are full.
        if cell and "evidence" not in cell:
            mean, largest = known.of(cell, "vector_mean_packets"), float(cell["vector_size"])
            if mean is None:
                return f"how full vectors of {largest:g} were is not known"
            if mean < FULL * largest:
                return f"vectors of {largest:g} held {mean:.3g}: they were not full"
    for side in needs.polling:
        if side in sides and not known.of(sides[side], POLLS):
            return "the paper's device polls, ours slept between frames"
    return ""
