"""The page of a reproduction: ours beside the published, the findings, what differs; CSV, LaTeX and SVG with it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2

from quiver_lab import published
from quiver_lab.findings import Judgement
from quiver_lab.quantities import of_quantity
from quiver_lab.report import drawing, figures, latex, number
from quiver_lab.reproduce import capacity, control, counters, coverage, evidence, model, questions, words
from quiver_lab.reproduce.beside import Ours, Panel, Row, overload, panels, with_counters
from quiver_lab.reproduce.control import Told
from quiver_lab.reproduce.design import Design, candidate_of
from quiver_lab.store import Store


@dataclass(frozen=True, slots=True)
class Drawn:
    """A panel with its drawings."""

    panel: Panel
    html: tuple[str, ...]


def _series(design: Design, panel: Panel, quantity: str) -> drawing.Figure | None:
    """Published and ours side by side; none where neither has a value."""
    x = design.x if design.x in panel.columns else panel.columns[-1]
    lines: dict[tuple[str, bool], dict[str, tuple[float, float, float]]] = {}
    places: dict[str, None] = {}
    for row in panel.rows:
        at = _place(row, x)
        theirs = words.of_keys(row.keys, without=(x,))
        for e in (e for e in row.entries if e.quantity == quantity):
            places.setdefault(at)
            if e.published is not None and (value := e.published.value) is not None:
                lines.setdefault((f"published: {theirs}", True), {})[at] = (value, value, value)
            for o in e.ours:
                if o.value is not None:
                    low, high = (o.value if o.low is None else o.low), (o.value if o.high is None else o.high)
                    lines.setdefault((f"here: {_mine(row, o, x)}", o.valid), {})[at] = (o.value, low, high)
    return _drawn(design, panel, (quantity, of_quantity(quantity)), tuple(places), lines)


def _ratios(design: Design, panel: Panel, quantity: str) -> drawing.Figure | None:
    """Ours over the published, on one line with all rows: what is drawn of a table whose values lie far apart."""
    x = design.x if design.x in panel.columns else panel.columns[-1]
    lines: dict[tuple[str, bool], dict[str, tuple[float, float, float]]] = {}
    places: dict[str, None] = {}
    for row in panel.rows:
        at = _place(row, x)
        for e in (e for e in row.entries if e.quantity == quantity):
            published_value = None if e.published is None else e.published.value
            for o in e.ours:
                if published_value and o.value:
                    places.setdefault(at)
                    three = tuple(v / published_value for v in (o.value, o.low or o.value, o.high or o.value))
                    of = words.of_keys(row.keys, without=(x,))
                    name = f"{_mine(row, o, x)} / published {of}".rstrip()
                    lines.setdefault((name, o.valid), {})[at] = (three[0], three[1], three[2])
    quantity_words = f"{of_quantity(quantity).partition(',')[0]}: here / published"
    return _drawn(design, panel, (f"{quantity}-ratio", quantity_words), tuple(places), lines, reference=1.0)


def _mine(row: Row, o: Ours, x: str) -> str:
    """Whose value it is. The paper's processors, clock rates and cores are not ours: of its keys only our cell's."""
    ours = {k: v for k, v in row.keys.items() if not o.keys or o.keys.get(k) == v}
    others = words.of_keys(ours, without=(x, "dut", "workers", "cores", "clock_ghz"))
    return ", ".join(w for w in (o.who, others, "" if o.valid else "not valid") if w)


def _drawn(
    design: Design,
    panel: Panel,
    quantity: tuple[str, str],
    places: tuple[str, ...],
    lines: Mapping[tuple[str, bool], Mapping[str, tuple[float, float, float]]],
    *,
    reference: float | None = None,
) -> drawing.Figure | None:
    if not lines:
        return None
    series = tuple(
        drawing.Series(
            name,
            tuple(at),
            tuple(v for v, _, _ in at.values()),
            tuple(v for _, v, _ in at.values()),
            tuple(v for _, _, v in at.values()),
            valid,
        )
        for (name, valid), at in lines.items()
    )
    name = f"{panel.name}-{quantity[0]}".replace(" ", "-")
    average = f"{design.average} of repeats"
    return drawing.Figure(name, panel.title, x_words(design, panel), quantity[1], places, series, average, reference)


def x_words(design: Design, panel: Panel) -> str:
    """What the places along the axis are, with their unit."""
    x = design.x if design.x in panel.columns else panel.columns[-1]
    return {"frame_bytes": "frame size with FCS, bytes", "share_percent": "share of R+, %", "load": "share of R+"}.get(
        x, x.replace("_", " ")
    )


def _place(row: Row, x: str) -> str:
    return row.keys.get(x, "") or "as it is"


def draw(design: Design, all_panels: Sequence[Panel]) -> list[tuple[Panel, list[drawing.Figure]]]:
    """What is drawn of each panel."""
    out = []
    for panel in all_panels:
        drawn = [q for q in panel.quantities if not design.drawn or q in design.drawn]
        made = [f(design, panel, q) for q in drawn if panel.columns for f in (_series, _ratios)]
        mine = [f for f in made if f is not None]
        out.append((panel, mine))
    return out


def write_csv(all_panels: Sequence[Panel], path: Path) -> None:
    """Every place of every panel: published with its seed and line, ours with its reason where it has no value."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["panel", "cell", "quantity", "published", "published_value", "kind", "seed", "line", "who", "link", "here",
             "here_minimum", "here_maximum", "repeats", "valid", "why"]
        )  # fmt: skip
        for panel in all_panels:
            for row in panel.rows:
                for e in row.entries:
                    p = e.published
                    theirs = [e.published_text, "" if p is None or p.value is None else p.value, p.kind if p else "",
                              p.seed if p else "", p.line if p else ""]  # fmt: skip
                    for o in e.ours:
                        mine = ["" if v is None else v for v in (o.value, o.low, o.high)]
                        cell = published.cell_text(row.keys)
                        valid = "" if o.value is None else "yes" if o.valid else "no"
                        writer.writerow(
                            [panel.name, cell, e.quantity, *theirs, o.who, o.link, *mine, o.count or "", valid, o.why]
                        )


def write_latex(all_panels: Sequence[Panel], path: Path) -> None:
    """The same as tables."""
    lines = []
    for panel in all_panels:
        if not panel.rows:
            continue
        lines += [f"% {panel.title}", r"\begin{tabular}{lllll}", r"\hline",
                  r"cell & quantity & published & here & ports \\ \hline"]  # fmt: skip
        for row in panel.rows:
            cell = latex(words.of_keys(row.keys))
            for e in row.entries:
                for o in e.ours:
                    here = latex(o.why or "--") if o.value is None else number(o.value).replace("\u202f", r"\,")
                    lines.append(f"{cell} & {latex(e.quantity)} & {latex(e.published_text)} & {here} & {latex(o.link)} \\\\")
        lines += [r"\hline", r"\end{tabular}", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def write_verdicts(told: Sequence[Told], path: Path, names: tuple[str, str]) -> None:
    """The findings with their verdicts, as CSV; ``names`` are the candidate's and the control's, which may be none."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["finding", "ports", "verdict", "low", "high", "why", "control", "control_low", "control_high", "control_why",
             "tells", "text", "read_as", "section", "seed", "line"]
        )  # fmt: skip
        for t in told:
            f = t.candidate.finding
            source = [f.text, f.reading, f.section, f.seed, f.line]
            both = [*_as_row(t.candidate), *_as_row(t.control), t.says(*names)]
            writer.writerow([f.id, t.candidate.ports, *both, *source])


def _as_row(j: Judgement | None) -> list[str]:
    """Verdict, bounds, reason."""
    if j is None:
        return [""] * 4
    bounds = ["", ""] if j.interval is None else [f"{j.interval.low:.4g}", f"{j.interval.high:.4g}"]
    return [j.verdict.value, *bounds, j.why]


def write_capacity(ratios: Sequence[capacity.Compared], places: Sequence[capacity.Predicted], folder: Path) -> None:
    """Ratios of capacities, and the loss tables that follow from them, as CSV."""
    with (folder / "capacity.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["ratio", "ports", "published_low", "published_high", "here", "low", "high", "verdict", "why"])
        for c in ratios:
            bounds = ["", ""] if c.ours is None else [f"{c.ours.low:.4g}", f"{c.ours.high:.4g}"]
            here = "" if c.value is None else f"{c.value:.4g}"
            printed = [f"{c.theirs.low:.4g}", f"{c.theirs.high:.4g}"]
            writer.writerow([c.ratio.text, c.link, *printed, here, *bounds, c.verdict.value, c.why])
    links = list(dict.fromkeys(link for p in places for link in p.by_ours))
    with (folder / "predicted.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["cell", "published_loss_percent", "by_the_papers_other_rates", *(f"by_ours_{link}" for link in links)])
        for p in places:
            own = "" if p.by_paper is None else f"{p.by_paper:.2f}"
            mine = [f"{p.by_ours[link]:.2f}" if link in p.by_ours else "" for link in links]
            writer.writerow([published.cell_text(p.keys), f"{p.published:g}", own, *mine])


def build(store: Store, design: Design, folder: Path) -> tuple[Path, list[Judgement]]:
    """Write page, tables and drawings; returns the page and the judgements. It reads result files only."""
    folder.mkdir(parents=True, exist_ok=True)
    values = published.load(design.name)
    known = evidence.known_cells(store, design)
    more = counters.kept(store)
    judgements = list(evidence.judge(design, known, more))
    all_panels = panels(design, store.campaign, known, values)
    if design.counters:
        all_panels = with_counters(all_panels, more)
    drawn = draw(design, all_panels)
    for _, mine in drawn:
        for figure in mine:
            figures.write_svg(figure, folder / f"{figure.name}.svg")
    write_csv(all_panels, folder / "beside.csv")
    write_latex(all_panels, folder / "beside.tex")
    told = control.beside(design, known, judgements)
    names = (candidate_of(store.campaign), store.campaign.control)
    write_verdicts(told, folder / "findings.csv", names)
    ratios, places = [], []
    scaling = model.COMMITTED
    modelled: list[model.Modelled] = []
    if design.by_capacity:
        cores = len(store.campaign.testbed.dut_cores)
        ratios, places = capacity.compare(values, known, cores), capacity.predict(values, known, cores)
        write_capacity(ratios, places, folder)
        scaling, modelled = model.all_of(values, known)
        model.write_csv(modelled, folder / "modelled.csv")
    archive = folder / f"{store.campaign.name}.tar.xz"
    store.archive(archive)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        resources.files("quiver_lab.reproduce").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    page = template.render(
        design=design,
        campaign=store.campaign,
        machine=store.machine,
        origins=store.origins,
        testbeds=store.testbeds,
        archive=archive.name,
        digest=hashlib.sha256(archive.read_bytes()).hexdigest(),
        panels=[Drawn(panel, tuple(drawing.as_html(f) for f in mine)) for panel, mine in drawn],
        asked=questions.answered(
            store,
            questions.Results(
                known,
                told,
                coverage.of_panels(design, all_panels, modelled),
                counters.counted(more) if design.counters else (),
                len(modelled),
            ),
        ),
        told=[(t.candidate, t.control, t.says(*names)) for t in told],
        tally={v: sum(j.verdict.value == v for j in judgements) for v in dict.fromkeys(j.verdict.value for j in judgements)},
        ratios=ratios,
        places=[p for p in places if p.published >= capacity.LOSSY_PERCENT],
        links=list(dict.fromkeys(link for p in places for link in p.by_ours)),
        scaling=scaling,
        modelled=[m for m in modelled if m.quantity != "loss_percent" or m.interval.high > 0 or m.published],
        model_tally=model.tally(modelled),
        speed_ups=model.capacity_rows(values, scaling) if modelled else [],
        explained=capacity.explained(places),
        of_keys=words.of_keys,
        depths=overload(known, values, store.campaign, design),
        done=sum(not k.why for k in known),
        doubtful=sum(bool(k.doubtful) for k in known),
        absent=sum(bool(k.why) and k.why != evidence.NOT_RUN for k in known),
        waiting=sum(k.why == evidence.NOT_RUN for k in known),
        extras=[k for k in known if "latency_at_throughput_us" in k.values],
        num=number,
        quantity_words=of_quantity,
    )
    path = folder / "reproduction.html"
    path.write_text(page, encoding="utf-8")
    return path, judgements
