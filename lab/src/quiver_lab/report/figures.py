"""Figures: the same numbers as zoomable plots for the page (plotly) and as SVG files (matplotlib)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quiver_lab.report.tables import Row

COLOURS = ("#3b6ea5", "#c1622d", "#5a8f4e", "#8a5a9e", "#a3923a", "#4f8f94", "#8c3d4f", "#9aa3ad", "#2f3e4e", "#c9a0b8")
"""Told apart by lightness too, for readers who do not see all colours."""


@dataclass(frozen=True, slots=True)
class Series:
    """One device with a number of workers."""

    name: str
    at: tuple[str, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot: a quantity over the frame size."""

    name: str
    """For file names."""
    title: str
    x: str
    """What the places along the axis are."""
    quantity: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    average: str = "median"
    """What ``Series.median`` really is."""


_SHARE = re.compile(r"at_([0-9.]+)_percent_latency_mean_us")


def figures(rows: Sequence[Row]) -> list[Figure]:
    """For each procedure, operation, link and family: the primary quantity over the frame size; latency over the load."""
    sizes: dict[tuple[str, ...], list[tuple[float, str, Row]]] = {}
    loads: dict[tuple[str, ...], list[tuple[float, str, Row]]] = {}
    for row in rows:
        c = row.cell
        on = "" if c.link == "none" else f" on {c.link}"
        more = f", {c.routes} further routes" if c.routes else ""
        name = "-".join((c.procedure, c.operation, c.link, f"v{c.ip}", f"r{c.routes}", f"s{c.sources}", *c.unusual))
        more += "".join(f", {word}" for word in c.unusual)
        title = f"{c.procedure}: {c.operation}, IPv{c.ip}{on}{more}"
        if row.primary:
            key = (name, title, "frame size with FCS", row.quantity)
            sizes.setdefault(key, []).append((c.frame_bytes, f"{c.frame_bytes} B", row))
        elif share := _SHARE.fullmatch(row.quantity):
            key = (f"{name}-{c.frame_bytes}", f"{title}, {c.frame_bytes} B", "share of the throughput", "latency_mean_us")
            loads.setdefault(key, []).append((float(share[1]), f"{share[1]} %", row))
    return [_figure(key, points) for group in (sizes, loads) for key, points in group.items()]


def _figure(key: tuple[str, ...], points: list[tuple[float, str, Row]]) -> Figure:
    points = sorted(points, key=lambda p: p[0])
    lines: dict[str, list[tuple[float, str, Row]]] = {}
    for point in points:
        c = point[2].cell
        marked = "" if point[2].valid else ", not valid"
        lines.setdefault(f"{c.dut}, {c.workers} worker{'s' if c.workers != 1 else ''}{marked}", []).append(point)
    series = tuple(
        Series(
            name,
            tuple(place for _, place, _ in members),
            tuple(r.summary.median for *_, r in members),
            tuple(r.summary.minimum for *_, r in members),
            tuple(r.summary.maximum for *_, r in members),
        )
        for name, members in sorted(lines.items())
    )
    name, title, x, quantity = key
    return Figure(name, title, x, quantity, tuple(dict.fromkeys(place for _, place, _ in points)), series)


def as_html(figure: Figure) -> str:
    """A zoomable plot, without the script that draws it."""
    import plotly.graph_objects as go  # noqa: PLC0415  (slow to import, and only reports need it)

    plot = go.Figure()
    for colour, s in zip(_cycle(len(figure.series)), figure.series, strict=True):
        plot.add_bar(
            name=s.name,
            x=s.at,
            y=s.median,
            marker_color=colour,
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [h - m for h, m in zip(s.high, s.median, strict=True)],
                "arrayminus": [m - low for low, m in zip(s.low, s.median, strict=True)],
            },
        )
    plot.update_layout(
        title=figure.title,
        barmode="group",
        template="plotly_white",
        xaxis_title=figure.x,
        xaxis_type="category",
        yaxis_title=f"{figure.quantity}<br><sup>{figure.average}, smallest, largest</sup>",
        yaxis_rangemode="tozero",
        height=420,
        # Above the plot: beside it there is no room on a narrow page.
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    html: str = plot.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{figure.name}",
        config={"displaylogo": False, "responsive": True},
    )
    return html


def script() -> str:
    """The script that draws the plots, to be put into the page."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  (see above)

    text: str = get_plotlyjs()
    return text


def write_svg(figure: Figure, path: Path) -> None:
    """The same as a file that stays the same as long as the numbers do."""
    import matplotlib as mpl  # noqa: PLC0415  (see above)

    mpl.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": figure.name, "svg.fonttype": "none", "font.size": 9}):
        drawing, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
        width = 0.8 / max(1, len(figure.series))
        for i, (colour, s) in enumerate(zip(_cycle(len(figure.series)), figure.series, strict=True)):
            places = [figure.places.index(n) + (i - (len(figure.series) - 1) / 2) * width for n in s.at]
            below = [m - low for low, m in zip(s.low, s.median, strict=True)]
            above = [h - m for h, m in zip(s.high, s.median, strict=True)]
            axes.bar(places, s.median, width, label=s.name, color=colour, yerr=[below, above], capsize=2)
        axes.set_xticks(range(len(figure.places)), figure.places)
        axes.set_xlabel(figure.x)
        axes.set_ylabel(figure.quantity)
        axes.set_title(figure.title)
        axes.legend(fontsize=8)
        axes.set_ylim(bottom=0)
        drawing.savefig(path, metadata={"Date": None})
        pyplot.close(drawing)


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
