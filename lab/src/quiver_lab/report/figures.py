"""Which figures a report has: from rows to what ``drawing.py`` draws."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from quiver_lab.quantities import of_quantity
from quiver_lab.report import drawing
from quiver_lab.report.drawing import Figure, Series
from quiver_lab.report.tables import Row

_SHARE = re.compile(r"at_([0-9.]+)_percent_latency_(mean|p50|p90|p99|p99_9|max)_us")
_PERCENTILES = {"p50": "50 %", "p90": "90 %", "p99": "99 %", "p99_9": "99.9 %", "max": "largest"}
"""Share of frames that waited no longer."""

Point = tuple[float, str, str, Row]
"""Where along the axis, the place's name, the series' name, the row."""


def figures(rows: Sequence[Row]) -> list[Figure]:
    """For each procedure, operation and family: the primary quantity over the frame size; latency over load and percentile.

    Devices, workers and ports stand in one figure.
    """
    sizes: dict[tuple[str, ...], list[Point]] = {}
    loads: dict[tuple[str, ...], list[Point]] = {}
    waits: dict[tuple[str, ...], list[Point]] = {}
    for row in rows:
        c = row.cell
        more = f", {c.routes} further routes" if c.routes else ""
        name = "-".join((c.procedure, c.operation, f"v{c.ip}", f"r{c.routes}", f"s{c.sources}", *c.unusual))
        more += "".join(f", {word}" for word in c.unusual)
        title = f"{c.procedure}: {c.operation}, IPv{c.ip}{more}"
        if row.primary:
            key = (name, title, "frame size with FCS", row.quantity)
            sizes.setdefault(key, []).append((c.frame_bytes, f"{c.frame_bytes} B", _who(row), row))
        elif share := _SHARE.fullmatch(row.quantity):
            part = f"{name}-{c.frame_bytes}"
            of = f"{title}, {c.frame_bytes} B"
            if share[2] == "mean":
                key = (part, of, "share of the rate found", "latency_mean_us")
                loads.setdefault(key, []).append((float(share[1]), f"{share[1]} %", _who(row), row))
            else:
                key = (f"{part}-percentiles", f"{of}: latency by load", "share of frames that waited no longer", "latency_us")
                at = list(_PERCENTILES).index(share[2])
                waits.setdefault(key, []).append((at, _PERCENTILES[share[2]], f"{_who(row)}, at {share[1]} %", row))
    return [_figure(key, points) for group in (sizes, loads, waits) for key, points in group.items()]


def _who(row: Row) -> str:
    c = row.cell
    on = "" if c.link == "none" else f", {c.link}"
    return f"{c.dut}, {c.workers} worker{'s' if c.workers != 1 else ''}{on}"


def _figure(key: tuple[str, ...], points: list[Point]) -> Figure:
    points = sorted(points, key=lambda p: p[0])
    lines: dict[tuple[str, bool], list[Point]] = {}
    for point in points:
        lines.setdefault((point[2], point[3].valid), []).append(point)
    series = tuple(
        Series(
            name if valid else f"{name}, not valid",
            tuple(place for _, place, *_ in members),
            tuple(r.summary.median for *_, r in members),
            tuple(r.summary.minimum for *_, r in members),
            tuple(r.summary.maximum for *_, r in members),
            valid,
        )
        for (name, valid), members in sorted(lines.items())
    )
    name, title, x, quantity = key
    return Figure(name, title, x, of_quantity(quantity), tuple(dict.fromkeys(place for _, place, *_ in points)), series)


def write_svg(figure: Figure, path: Path) -> None:
    """The drawing as a file."""
    path.write_text(drawing.svg(figure), encoding="utf-8")
