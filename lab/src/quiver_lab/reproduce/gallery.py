"""A folder of drawings with a page of Markdown that shows them, from ``beside.csv`` alone.

Committed tables can so be drawn anew when the drawing changes, without the results that they were made of.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from quiver_lab import published
from quiver_lab.published import Published
from quiver_lab.report import drawing
from quiver_lab.reproduce import coverage, model
from quiver_lab.reproduce.beside import NO_DATA, Entry, Ours, Panel, Row
from quiver_lab.reproduce.design import Design
from quiver_lab.reproduce.page import draw

BEGIN = "<!-- drawings: written by quiver-lab redraw -->"
"""What follows this line in a folder's README.md is written anew."""


def _number(text: str) -> float | None:
    return float(text) if text else None


def _published(row: dict[str, str]) -> Published | None:
    if row["published"] == NO_DATA:
        return None
    return Published(
        table=row["panel"],
        kind="table",
        cell=published.parse_cell(row["cell"]),
        quantity=row["quantity"],
        printed=row["published"],
        value=_number(row["published_value"]),
        unit="",
        field=None,
        formula="",
        seed=row["seed"],
        line=int(row["line"] or 0),
        note="",
    )


def read(path: Path) -> list[Panel]:
    """Panels as ``beside.csv`` has them; a file that is none is an error of one line."""
    panels: dict[str, dict[str, dict[str, tuple[Published | None, list[Ours]]]]] = {}
    with path.open(encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                here, low, high = (_number(row[key]) for key in ("here", "here_minimum", "here_maximum"))
                count, valid = int(row["repeats"] or 0), row["valid"] != "no"
                ours = Ours(row["link"], here, low, high, count, row["why"], row["who"], valid=valid)
                entries = panels.setdefault(row["panel"], {}).setdefault(row["cell"], {})
                entries.setdefault(row["quantity"], (_published(row), []))[1].append(ours)
            except (KeyError, ValueError, TypeError) as error:
                raise ValueError(f"{path}: line {number} is none of beside.csv: {error}") from error
    out = []
    for name, cells in panels.items():
        rows = tuple(
            Row(published.parse_cell(cell), tuple(Entry(q, p, tuple(mine)) for q, (p, mine) in values.items()))
            for cell, values in cells.items()
        )
        columns = tuple(dict.fromkeys(key for r in rows for key in r.keys))
        quantities = tuple(dict.fromkeys(e.quantity for r in rows for e in r.entries))
        kind = "Table" if (name[:1].isdigit() and "." in name) or name.isupper() or name.startswith("draft") else "Figure"
        out.append(Panel(name, f"{kind} {name}", columns, quantities, rows))
    return out


def _titled(design: Design, all_panels: Iterable[Panel]) -> list[Panel]:
    """The same, figures with the titles of the design."""
    titles = {f.name: f.title for f in design.figures}
    return [Panel(p.name, titles.get(p.name, p.title), p.columns, p.quantities, p.rows, p.note) for p in all_panels]


def write(design: Design, folder: Path) -> list[Path]:
    """Draw ``beside.csv`` of a folder beside it, and show the drawings in its ``README.md``; what was drawn before goes."""
    panels = _titled(design, read(folder / "beside.csv"))
    drawn = draw(design, panels)
    for old in folder.glob("*.svg"):
        old.unlink()
    paths = []
    for _, figures in drawn:
        for figure in figures:
            path = folder / f"{figure.name}.svg"
            path.write_text(drawing.svg(figure), encoding="utf-8")
            paths.append(path)
    modelled = model.all_of(published.load(design.name), [])[1] if design.by_capacity else []
    if modelled and not (folder / "modelled.csv").exists():
        # What follows from the paper alone; a campaign's own report adds what it measured.
        model.write_csv(modelled, folder / "modelled.csv")
    covered = coverage.markdown(coverage.of_panels(design, panels, modelled))
    page = folder / "README.md"
    before = page.read_text(encoding="utf-8").partition(BEGIN)[0].rstrip() if page.exists() else f"# {design.title}"
    page.write_text("\n".join([before, "", BEGIN, "", *covered, "", *_shown(drawn)]), encoding="utf-8")
    return paths


def _shown(drawn: Sequence[tuple[Panel, Sequence[drawing.Figure]]]) -> list[str]:
    lines = [
        "Open and dashed marks are not valid. On a logarithmic axis a value of 0 is an open triangle at the lower end.",
        "",
    ]
    for panel, figures in drawn:
        if figures:
            lines += [f"## {panel.title}", ""]
            lines += [f"![{f.title}: {f.quantity}]({f.name}.svg)" for f in figures]
            lines.append("")
    return lines
