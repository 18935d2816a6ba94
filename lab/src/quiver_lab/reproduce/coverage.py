"""What became of every published table and figure: reproduced, modelled, or what it takes that the machine had not. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quiver_lab.published import Cell as Keys
from quiver_lab.reproduce.beside import Panel
from quiver_lab.reproduce.design import CANDIDATE, Design
from quiver_lab.reproduce.model import Modelled


@dataclass(frozen=True, slots=True)
class Covered:
    """One table or figure."""

    title: str
    places: int
    """Of a table those with a published value; of a figure, which the paper only draws, all that the campaign measures."""
    valid: int
    """With a valid value of ours."""
    doubtful: int
    """With values of ours of which none is valid."""
    modelled: int
    """Of the others: with a modelled value."""
    lacks: tuple[tuple[str, int], ...]
    """Why the others are empty, with the number of places, the most frequent first."""


_NEEDS = (
    (re.compile(r"([0-9]+) workers? and a main thread need ([0-9]+) cores.*"), r"\2 cores for the device"),
    (re.compile(r"([0-9]+) cores? were asked for.*"), r"\1 cores for the device"),
    (re.compile(r"placement \S+ needs ([0-9]+) cores.*"), r"\1 cores for the device"),
    (re.compile(r"core instance ([0-9]+).*"), r"more cores for the device"),
    (re.compile(r".*one NUMA node.*"), "a second NUMA node"),
    (re.compile(r"the clock rate of this machine's cores.*"), "cores whose clock can be set"),
    (re.compile(r"no energy measured.*"), "an energy meter"),
    (re.compile(r"no throughput was found.*|.*the tester may be the limit.*"), "a tester that is not the limit"),
    (re.compile(r".*follows from rate and time.*"), "nothing: it follows from rate and time"),
)


def need(why: str) -> str:
    """What a reason for an empty place comes to."""
    for pattern, words in _NEEDS:
        if match := pattern.fullmatch(why):
            return match.expand(words)
    return why


_Cell = frozenset[tuple[str, str]]
_ByQuantity = dict[str, list[tuple[float, _Cell]]]
"""Printed values of which there are modelled ones."""


def _named(keys: Keys) -> _Cell:
    """A cell whoever takes the paper's device's place; sizes that tables leave out are those of 64 bytes."""
    full = {"frame_bytes": "64", **keys}
    return frozenset((full | {"dut": CANDIDATE if full.get("dut") == "vpp" else full.get("dut", "")}).items())


def of_panels(design: Design, panels: Sequence[Panel], modelled: Iterable[Modelled]) -> list[Covered]:
    """Every panel, then the figures that are not measured at all."""
    known = {(m.quantity, round(m.published, 6), _named(m.keys)) for m in modelled if m.published is not None}
    quantities: _ByQuantity = {}
    for quantity, value, cell in known:
        quantities.setdefault(quantity, []).append((value, cell))
    out = [_of(panel, quantities) for panel in panels if panel.rows]
    drawn = {p.name for p in panels if p.rows}
    out += [Covered(f.title, 0, 0, 0, 0, ((f.not_here, 1),)) for f in design.figures if f.not_here and f.name not in drawn]
    return out


def _of(panel: Panel, modelled: _ByQuantity) -> Covered:
    entries = [(row, e) for row in panel.rows for e in row.entries]
    printed = [(row, e) for row, e in entries if e.published is not None and e.published.value is not None]
    chosen = printed or entries
    valid = doubtful = modelled_count = 0
    lacks: Counter[str] = Counter()
    for row, e in chosen:
        if any(o.value is not None and o.valid for o in e.ours):
            valid += 1
        elif any(o.value is not None for o in e.ours):
            doubtful += 1
        elif e.published is not None and _is_modelled(e.quantity, e.published.value, _named(row.keys), modelled):
            modelled_count += 1
        else:
            lacks.update(dict.fromkeys([need(o.why) for o in e.ours] or ["it is not among the campaign's cells"], 1))
    return Covered(panel.title, len(chosen), valid, doubtful, modelled_count, tuple(lacks.most_common()))


def _is_modelled(quantity: str, value: float | None, cell: _Cell, modelled: _ByQuantity) -> bool:
    """Rows of a table lack the keys that all have: what a row has must be in the modelled cell, at the printed value."""
    return value is not None and any(abs(v - value) < 1e-6 and cell <= other for v, other in modelled.get(quantity, ()))


def markdown(rows: Sequence[Covered]) -> list[str]:
    """A table of them."""
    out = [
        "| table or figure | places | valid | not valid | modelled | what the others take |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for c in rows:
        said = "; ".join(f"{why} ({n})" if c.places else why for why, n in c.lacks).replace("|", "\\|")
        out.append(f"| {c.title} | {c.places or '–'} | {c.valid} | {c.doubtful} | {c.modelled} | {said or '–'} |")
    return out
