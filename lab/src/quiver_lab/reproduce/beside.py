"""Our values beside the published ones, table by table. Pure: from known cells to panels.

What a seed does not print stays empty and says so; what we did not measure says why. Nothing is read off a figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from quiver_lab import stats
from quiver_lab.campaign import Campaign
from quiver_lab.published import Cell as Keys
from quiver_lab.published import Published
from quiver_lab.reproduce import counters, words
from quiver_lab.reproduce.counters import Evidence
from quiver_lab.reproduce.design import CANDIDATE, CONTROL, Design, Figure
from quiver_lab.reproduce.evidence import Known, by_load

NOT_PUBLISHED = "not published"
NO_DATA = "no published data"
NO_ENERGY = "no energy measured"
NOT_MEASURED = "Not measured here"
ENERGY = ("energy_wh", "packets_per_wh", "bytes_per_wh", "energy_w_printed")
_COUNTS = ("tx_packets", "tx_bytes")


@dataclass(frozen=True, slots=True)
class Ours:
    """What we have for one place."""

    link: str
    value: float | None
    low: float | None
    high: float | None
    count: int
    why: str
    """Why there is no value; where there is one, what must be known of it."""
    who: str = ""
    """Device and cores."""
    keys: Keys = field(default_factory=dict)
    """Our cell's, as the paper names cells."""
    valid: bool = True
    """Whether it rests on valid runs; what does not is shown and judges nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One quantity of one row."""

    quantity: str
    published: Published | None
    """None where the paper prints nothing."""
    ours: tuple[Ours, ...]

    @property
    def published_text(self) -> str:
        """As printed, or that there is none."""
        if self.published is None:
            return NO_DATA
        return NOT_PUBLISHED if self.published.value is None else self.published.printed or f"{self.published.value:g}"

    @property
    def source(self) -> str:
        """Seed and line."""
        p = self.published
        return (
            "" if p is None else f"seed {p.seed}, line {p.line}" + (f" (derived: {p.formula})" if p.kind == "derived" else "")
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of a table."""

    keys: Keys
    """Those that tell rows apart."""
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One table or figure of the paper."""

    name: str
    title: str
    columns: tuple[str, ...]
    quantities: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


def panels(design: Design, campaign: Campaign, known: list[Known], published: Iterable[Published]) -> list[Panel]:
    """Every table of the paper, then every figure without one."""
    values = list(published)
    tables: dict[str, list[Published]] = {}
    for p in values:
        if p.kind != "prose" and (p.table[:1].isdigit() or p.table.isupper() or p.table.startswith("draft")):
            tables.setdefault(p.table, []).append(p)
    out = [_table(design, campaign, known, name, members) for name, members in tables.items()]
    return [x for x in out if x.rows] + [_figure(design, campaign, known, f, values) for f in design.figures]


def _table(design: Design, campaign: Campaign, known: list[Known], name: str, members: list[Published]) -> Panel:
    cells: dict[tuple[tuple[str, str], ...], list[Published]] = {}
    for p in members:
        if p.cell and not isinstance(design.wants(p, campaign), str):
            cells.setdefault(tuple(p.cell.items()), []).append(p)
    rows, quantities = [], dict.fromkeys(p.quantity for group in cells.values() for p in group)
    common = set.intersection(*(set(c) for c in cells)) if cells else set()
    for cell, group in cells.items():
        by_quantity = {p.quantity: p for p in group}
        wanted = design.wants(group[0], campaign)
        assert not isinstance(wanted, str)
        found = [k for k in known if _has(k.keys, wanted)]
        entries = tuple(
            Entry(q, by_quantity.get(q), tuple(_named(k, _ours(design, k, q, known)) for k in found))
            for q in quantities
            if q in by_quantity
        )
        rows.append(Row({k: v for k, v in cell if (k, v) not in common or len(cells) == 1}, entries))
    columns = tuple(dict.fromkeys(key for row in rows for key in row.keys))
    first = next(iter(cells), ())
    said = words.of_keys(dict(kv for kv in first if kv in common))
    return Panel(name, f"Table {name}" + (f": {said}" if said else ""), columns, tuple(quantities), tuple(rows))


def with_counters(all_panels: Iterable[Panel], evidence: Evidence) -> list[Panel]:
    """Panels of instructions and clocks, from the repository's benches where trials have none; only seed 002 has such names."""
    shown = {
        "6b": ("instructions_per_packet",),
        "6c": ("tsc_clocks_per_packet",),
        "6d": ("l1i_misses_per_packet",),
    }
    values = counters.counted(evidence)
    machine = evidence.bench.machine if evidence.bench else {}
    of = ", ".join(machine[key] for key in ("processor", "compiler", "commit") if key in machine)
    columns = ("operation", "path", "evidence", "vector_size")

    def rows_of(mine: list[counters.Counted]) -> tuple[Row, ...]:
        return tuple(
            Row(
                {k: c.keys[k] for k in columns},
                (Entry(c.quantity, None, (Ours("none", c.value, None, None, 1, f"{c.kind}, {counters.HOW[c.quantity]}"),)),),
            )
            for c in mine
        )

    out = []
    for panel in all_panels:
        quantities = shown.get(panel.name, ())
        mine = [c for q in quantities for c in values if c.quantity == q]
        if panel.name == "6a" and (ring := [c for c in values if c.quantity == "ring_clocks_per_packet"]):
            note = f"From the repository's benches ({of}): rates are in inverse proportion to clocks, and these know no tester."
            clocks = Panel("6a clocks", f"{panel.title}: clocks a packet", columns, (ring[0].quantity,), rows_of(ring), note)
            out += [panel, clocks]
            continue
        if not quantities or any(o.value is not None for row in panel.rows for e in row.entries for o in e.ours):
            out.append(panel)
            continue
        lacks = "; ".join(dict.fromkeys(x for q in quantities if (x := counters.missing(evidence, q))))
        source = f"From the repository's benches ({of}), not from trials. " if mine else ""
        note = f"{source}Not here: {lacks}. {panel.note}"
        out.append(Panel(panel.name, panel.title, columns if mine else (), quantities if mine else (), rows_of(mine), note))
    return out


def _named(k: Known, ours: Ours) -> Ours:
    doubtful = ours.value is not None and not k.values
    why = f"not valid: {ours.why or 'no reason given'}" if doubtful else ours.why
    return replace(ours, who=words.of_cell(k.cell), keys=k.keys, valid=not doubtful, why=why)


def _figure(design: Design, campaign: Campaign, known: list[Known], figure: Figure, values: list[Published]) -> Panel:
    said = [
        p for p in values if f"fig. {figure.name}" in f"{p.table}" or p.table.endswith(f"fig. {figure.name.rstrip('abcd')}")
    ]
    prose = "; ".join(f"“{p.printed}” ({p.quantity.replace('_', ' ')}, seed {p.seed}, line {p.line})" for p in said)
    note = f"The text says: {prose}." if prose else f"{NO_DATA.capitalize()} beside the figure."
    if figure.not_here:
        return Panel(figure.name, figure.title, (), (), (), f"{NOT_MEASURED}: {figure.not_here}. {note}")
    loads = figure.where.get("load", ())
    where = {k: v for k, v in figure.where.items() if k not in ("load", "procedure")}
    procedures = figure.where.get("procedure", ())
    rows = []
    for k in known:
        if not all(k.keys.get(key, "") in allowed for key, allowed in where.items()):
            continue
        if (procedures and k.cell.procedure not in procedures) or (loads and "shares_of" not in k.keys):
            continue
        for load in loads or ("",):
            keys = {**k.keys, **({"load": load} if load else {})}
            entries = []
            for q in figure.quantities:
                own = f"at_{float(load) * 100:g}_percent_{q}" if load else q
                if own in k.shown or not own.startswith(("node_", "lookup_", "graph_")) or k.why:
                    entries.append(Entry(q, _said(design, campaign, said, keys, q), (_named(k, _ours(design, k, own, known)),)))
            rows.append(Row({c: keys.get(c, "") for c in figure.columns}, tuple(entries)))
    return Panel(figure.name, figure.title, figure.columns, figure.quantities, tuple(rows), note)


def _said(design: Design, campaign: Campaign, said: list[Published], keys: Keys, quantity: str) -> Published | None:
    """The number of the prose that speaks of just this cell."""
    for p in said:
        wanted = design.wants(p, campaign)
        if isinstance(wanted, str):
            continue
        of = wanted.pop("quantity", p.quantity)
        # Seed 002 gives 2.6 GHz in the text; the second rate is only drawn.
        if of == quantity and _has(keys, wanted) and not keys.get("clock_ghz"):
            return p
    return None


def _has(keys: Keys, wanted: Keys) -> bool:
    """A throttled cell is never what a paper speaks of. The positive control stands where the candidate does."""
    in_place = {**keys, "dut": CANDIDATE} if keys.get("dut") == CONTROL else keys
    return "throttle" not in keys and all(in_place.get(k) == v for k, v in wanted.items())


_STATISTICS = ("median", "minimum", "maximum", "mean", "stdev")


def _ours(design: Design, k: Known, quantity: str, known: list[Known]) -> Ours:
    """The value of a quantity as the paper summarises it."""

    def none(why: str) -> Ours:
        return Ours(k.cell.link, None, None, None, 0, why)

    if k.why:
        return none(k.why)
    name, _, rest = quantity.partition("_")
    if name == "throughput" and quantity not in k.shown:
        return _statistic(k, rest.removesuffix("_pps"), known, none)
    values = k.shown.get(quantity)
    if values is None:
        if quantity in ENERGY:
            return none(NO_ENERGY)
        return none("follows from rate and time" if quantity in _COUNTS else "; ".join(k.notes) or "no such value was measured")
    middle = statistics.fmean(values) if design.average == "mean" else statistics.median(values)
    return Ours(k.cell.link, middle, min(values), max(values), len(values), "; ".join(k.notes))


def _statistic(k: Known, which: str, known: list[Known], none: object) -> Ours:
    assert callable(none)
    missing: Ours = none("; ".join(("no throughput was found", *k.notes)))
    values = k.shown.get("throughput_pps")
    if not values:
        return missing
    s = stats.summary(values)
    value: float | None
    if which in _STATISTICS:
        value = getattr(s, which)
    elif which == "dispersion_percent":
        value = s.dispersion_percent
    else:
        same = {**k.keys, "workers": ""}
        medians = {
            int(o.keys["workers"]): statistics.median(o.shown["throughput_pps"])
            for o in known
            if {**o.keys, "workers": ""} == same and o.shown.get("throughput_pps")
        }
        n = int(k.keys["workers"])
        try:
            value = (stats.relative_to_half(medians) if which == "relative_to_half" else stats.scale_up(medians)).get(n)
        except ValueError:
            value = None
        if value is None:
            absent: Ours = none(
                "half as many cores were not measured" if which == "relative_to_half" else "one core was not measured"
            )
            return absent
    if value is None:
        few: Ours = none("too few repeats")
        return few
    return Ours(k.cell.link, value, None, None, s.count, "; ".join(k.notes))


def shares(k: Known) -> Iterable[tuple[Keys, str]]:
    """Every quantity of a cell with the keys that it is under."""
    return (by_load(k.keys, q) for q in k.values)


def overload(
    known: list[Known], published: Iterable[Published], campaign: Campaign, design: Design
) -> list[tuple[str, float, float]]:
    """How deep the baseline was driven where the paper had losses: frames offered over frames delivered, theirs and ours."""
    out = []
    for p in published:
        if p.quantity != "loss_percent" or p.value is None or p.cell.get("dut") != "linux" or p.value < 1 or p.value >= 100:
            continue
        wanted = design.wants(p, campaign)
        if isinstance(wanted, str):
            continue
        for k in known:
            loss = k.values.get("loss_percent")
            if (
                loss
                and k.keys["dut"] not in (CANDIDATE, CONTROL)
                and _has(k.keys, wanted)
                and (mean := statistics.fmean(loss)) < 100
            ):
                out.append(
                    (
                        words.of_keys({"frame_bytes": "64", **p.cell}, without=("dut", "workers")),
                        1 / (1 - p.value / 100),
                        1 / (1 - mean / 100),
                    )
                )
    return out
