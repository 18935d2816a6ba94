"""A page that leads to the reports of several campaigns, and says of each what it is and how much of it is valid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2

from quiver_lab.oddity import Latest
from quiver_lab.store import Store

PAGES = ("reproduction.html", "report.html")
"""What is looked for in a campaign's folder, in ``report`` or beside."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One campaign."""

    name: str
    description: str
    quick: bool
    origin: str
    """The commit of the last call; empty where results do not say."""
    machine: str
    cells: int
    measured: int
    valid: int
    """Cells with at least one valid repeat."""
    absent: int
    failed: int
    """Runs."""
    pages: tuple[tuple[str, str], ...]
    """Names of pages with their addresses, seen from the index."""


def of(store: Store, index: Path) -> Entry:
    """What a campaign's folder holds."""
    records = list(store.runs())
    done = list(Latest.by_cell(records))
    pages = [
        (page, os.path.relpath(path, index.parent))
        for page in PAGES
        for path in (store.root / "report" / page, store.root.parent / "report" / page)
        if path.exists()
    ]
    calls = store.origins
    beds = ", ".join(store.testbeds) or store.campaign.testbed.title
    return Entry(
        name=store.campaign.name,
        description=store.campaign.description,
        quick=store.campaign.quick,
        origin=calls[-1].words if calls else "",
        machine=f"{store.machine.get('cpu') or store.machine.get('architecture') or '?'}, {beds}",
        cells=sum(1 for _ in store.campaign.cells()),
        measured=len(done),
        valid=sum(any(r.valid for r in latest.last()) for latest in done),
        absent=sum(r.status == "absent" for r in records),
        failed=sum(r.status == "failed" for r in records),
        pages=tuple(dict.fromkeys(pages)),
    )


def build(stores: Sequence[Store], path: Path) -> Path:
    """Write the page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        resources.files("quiver_lab.report").joinpath("index.html.j2").read_text(encoding="utf-8")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.render(campaigns=[of(store, path) for store in stores]), encoding="utf-8")
    return path
