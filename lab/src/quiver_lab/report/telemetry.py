"""What devices counted, as files beside the page: one for each cell, of its last run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from quiver_lab.campaign import Cell
from quiver_lab.records import RunRecord

FOLDER = "telemetry"


def text(record: RunRecord) -> str:
    """A run's counters as they were read: texts of a router as it printed them, all else as JSON."""
    parts = [f"{record.run.cell.slug}, repeat {record.run.repeat + 1}, attempt {record.run.attempt + 1}\n"]
    for name, value in record.telemetry.items():
        shown = value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True)
        parts.append(f"== {name}\n{shown.rstrip()}\n")
    return "\n".join(parts)


def write(cells: Iterable[Cell], records: Iterable[RunRecord], folder: Path) -> int:
    """Write a file for each cell whose device counted something; returns how many."""
    last: dict[str, RunRecord] = {}
    for r in records:
        if r.status == "done" and r.telemetry:
            before = last.get(r.run.cell.slug)
            if before is None or (before.run.repeat, before.run.attempt) < (r.run.repeat, r.run.attempt):
                last[r.run.cell.slug] = r
    known = [last[c.slug] for c in cells if c.slug in last]
    if known:
        (folder / FOLDER).mkdir(exist_ok=True)
    for r in known:
        (folder / FOLDER / f"{r.run.cell.slug}.txt").write_text(text(r), encoding="utf-8")
    return len(known)
