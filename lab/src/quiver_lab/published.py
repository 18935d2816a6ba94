"""What the three papers print: table cells, numbers in prose, values derived from tables. Nothing digitised, nothing guessed.

One CSV a paper. ``cell`` is ``key=value`` pairs joined by semicolons, the same keys that campaigns use; ``printed`` is the
text as it stands in the seed, misprints included, and ``value`` what it says; ``field`` is the column in a line of separated
fields, empty where the seed's text has none. ``kind`` is ``table``, ``prose``, ``derived`` (with the formula, values taken
from the same cell or named lines) or ``not-published`` (a cell that the seed leaves empty).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

Kind = Literal["table", "prose", "derived", "not-published"]
PAPERS = ("slavik2025", "kosak2025", "linguaglossa2019")

Cell = dict[str, str]


@dataclass(frozen=True, slots=True)
class Published:
    """One published value."""

    table: str
    kind: Kind
    cell: Cell
    quantity: str
    printed: str
    value: float | None
    """None where the seed gives none."""
    unit: str
    field: int | None
    formula: str
    seed: str
    """Number of the seed: 000 to 004."""
    line: int
    note: str


def parse_cell(text: str) -> Cell:
    """Read ``a=1;b=x``."""
    return dict(pair.split("=", 1) for pair in text.split(";")) if text else {}


def cell_text(cell: Cell) -> str:
    """Write a cell in the order of its keys."""
    return ";".join(f"{k}={v}" for k, v in cell.items())


def _kind(text: str) -> Kind:
    match text:
        case "table" | "prose" | "derived" | "not-published":
            return text
        case _:
            raise ValueError(f"unknown kind '{text}'")


@cache
def load(paper: str) -> tuple[Published, ...]:
    """All published values of one of ``PAPERS``."""
    if paper not in PAPERS:
        raise ValueError(f"unknown paper '{paper}': one of {', '.join(PAPERS)}")
    with resources.files("quiver_lab").joinpath("published", f"{paper}.csv").open(encoding="utf-8") as file:
        return tuple(
            Published(
                table=row["table"],
                kind=_kind(row["kind"]),
                cell=parse_cell(row["cell"]),
                quantity=row["quantity"],
                printed=row["printed"],
                value=float(row["value"]) if row["value"] else None,
                unit=row["unit"],
                field=int(row["field"]) if row["field"] else None,
                formula=row["formula"],
                seed=row["seed"],
                line=int(row["line"]),
                note=row["note"],
            )
            for row in csv.DictReader(file)
        )


def matching(values: Iterable[Published], quantity: str, **where: object) -> list[Published]:
    """Values of a quantity whose cell has all the given keys."""
    wanted = {k: str(v) for k, v in where.items()}
    return [v for v in values if v.quantity == quantity and all(v.cell.get(k) == x for k, x in wanted.items())]
