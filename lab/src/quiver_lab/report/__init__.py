"""Reports: one page that needs no network, figures as SVG, tables as CSV and LaTeX. They read result files only."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2

from quiver_lab import stats
from quiver_lab.energy import NO_METER
from quiver_lab.quantities import of_quantity
from quiver_lab.report import course, drawing, figures, tables, telemetry, topology
from quiver_lab.report.tables import Row, Versus
from quiver_lab.store import Store


def number(value: float | None) -> str:
    """A value with thousands apart; small ones with three significant digits."""
    if value is None:
        return ""
    return f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 1000 else f"{value:.3g}"


def factor(v: Versus) -> str:
    """How far apart two medians are."""
    a, b = v.comparison.median_a, v.comparison.median_b
    low, high = sorted((a, b))
    return f"by a factor of {high / low:.2f}" if low > 0 else "where the other has none"


@dataclass(frozen=True, slots=True)
class Scale:
    """One number of workers beside one."""

    dut: str
    traffic: str
    workers: int
    median: float
    half: float | None
    scale: float


def scaling(rows: Sequence[Row]) -> list[Scale]:
    """Cells that were measured with one worker and with others."""
    groups: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        if row.primary and row.valid and row.quantity.endswith("_pps"):
            key = (row.cell.dut, tables.traffic(row.cell.model_copy(update={"workers": 0})), row.quantity)
            groups.setdefault(key, {})[row.cell.workers] = row
    out = []
    for members in groups.values():
        medians = {n: r.summary.median for n, r in members.items() if n > 0}
        if len(medians) < 2 or not medians.get(1):
            continue
        scale, half = stats.scale_up(medians), stats.relative_to_half(medians)
        for n in sorted(medians):
            cell = members[n].cell
            out.append(Scale(cell.dut, tables.traffic(cell), n, medians[n], half.get(n), scale[n]))
    return out


def recommend(versus: Sequence[Versus]) -> list[str]:
    """For each traffic the device that is better than all others, or those that cannot be told apart."""
    groups: dict[str, list[Versus]] = {}
    for v in versus:
        groups.setdefault(tables.traffic(v.cell), []).append(v)
    out = []
    for traffic, members in groups.items():
        names = list(dict.fromkeys(n for v in members for n in (v.name_a, v.name_b)))
        beaten = {n for n in names for v in members if n in (v.name_a, v.name_b) and v.better not in (None, n)}
        left = [n for n in names if n not in beaten]
        if len(left) == 1:
            out.append(f"{traffic}: {left[0]}.")
        elif left:
            out.append(f"{traffic}: {', '.join(left)} cannot be told apart by these repeats.")
    return out


def latex(text: str) -> str:
    """Text with LaTeX's marks escaped."""
    for mark in "&%$#_{}":
        text = text.replace(mark, f"\\{mark}")
    return text


def write_tables(rows: Sequence[Row], folder: Path) -> None:
    """The results as CSV with full precision, and as a LaTeX table of medians."""
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = list(rows[0].cell.model_dump()) if rows else []
        writer.writerow(
            [*names, "quantity", "median", "interval_low", "interval_high", "minimum", "maximum", "mean", "stdev",
             "dispersion_percent", "repeats", "median_of_first_attempts", "values", "remarks"]
        )  # fmt: skip
        for r in rows:
            s, i = r.summary, r.interval
            writer.writerow(
                [*r.cell.model_dump().values(), r.quantity, s.median, i.low if i else "", i.high if i else "", s.minimum,
                 s.maximum, s.mean, "" if s.stdev is None else s.stdev,
                 "" if s.dispersion_percent is None else s.dispersion_percent, s.count, r.first.median if r.first else "",
                 " ".join(repr(v) for v in r.values), "; ".join((*r.warnings, *r.notes))]
            )  # fmt: skip
    lines = [
        r"\begin{tabular}{lllrrrr}",
        r"\hline",
        r"device & traffic & quantity & median & minimum & maximum & repeats \\ \hline",
    ]
    for r in rows:
        if r.primary:
            s = r.summary
            words = [r.cell.dut, tables.traffic(r.cell), r.quantity]
            figures_ = [number(x).replace("\u202f", r"\,") for x in (s.median, s.minimum, s.maximum)]
            lines.append(" & ".join([*map(latex, words), *figures_, str(s.count)]) + r" \\")
    lines += [r"\hline", r"\end{tabular}", ""]
    (folder / "results.tex").write_text("\n".join(lines), encoding="utf-8")


def build(store: Store, folder: Path) -> Path:
    """Write the report of a campaign; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = tables.rows(store)
    records = list(store.runs())
    drawings = figures.figures(rows)
    for figure in drawings:
        figures.write_svg(figure, folder / f"{figure.name}.svg")
    write_tables(rows, folder)
    versus = tables.between_devices(rows)
    use = tables.uses(store)
    measured = [c for c in store.campaign.cells() if c.slug in use]
    cells = [(c, use[c.slug]) for c in measured]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        resources.files("quiver_lab.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    devices = {r.run.cell.dut: r.device["version"] for r in records if "version" in r.device}
    page = template.render(
        campaign=store.campaign,
        machine=store.machine,
        origins=store.origins,
        testbeds={name: bed.get("machines", {}) for name, bed in store.testbeds.items()},
        devices=devices,
        plots=[drawing.as_html(d) for d in drawings],
        rows=rows,
        scale=scaling(rows),
        versus=versus,
        standings=tables.standings(versus),
        why_alone=tables.why_alone(rows, records),
        recommendation=recommend(versus),
        gaps=tables.gaps(records),
        use=cells,
        connection_tables=tables.connection_tables(store),
        busy=any(u.device_busy is not None for _, u in cells),
        energy=any(u.packets_per_watt_hour for _, u in cells),
        idle_watts=next((u.idle_watts for _, u in cells if u.idle_watts is not None), 0.0),
        no_meter=NO_METER,
        odd_count=sum(1 for r in records if r.run.attempt > 0),
        disturbed=tables.disturbed(store),
        topologies=[(t, topology.svg(t)) for t in topology.topologies(store.campaign, measured, records)],
        courses=[(c, course.svg(c)) for c in course.courses(measured, store.trials())],
        counted=telemetry.write(measured, records, folder),
        telemetry_folder=telemetry.FOLDER,
        traffic=tables.traffic,
        num=number,
        factor=factor,
        quantity_words=of_quantity,
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path
