"""What a report says, as plain values: from result files to rows. Pure but for reading the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from quiver_lab import intervals, stats
from quiver_lab.campaign import Cell
from quiver_lab.energy import per_core_second, per_watt_hour
from quiver_lab.oddity import Latest, odd_runs
from quiver_lab.records import Energy, RunRecord
from quiver_lab.stateful import Stateful
from quiver_lab.store import Store
from quiver_lab.trial import Trial

SIGNIFICANT = 0.05


def higher_is_better(quantity: str) -> bool:
    """Rates and bursts; times and losses are better when low."""
    return quantity.endswith(("_pps", "_cps", "_frames", "capacity_connections")) and "lost" not in quantity


@dataclass(frozen=True, slots=True)
class Use:
    """What a cell's trials cost, over everything that was delivered in them."""

    packets_per_core_second: float | None
    device_busy: float | None
    """Mean over the device's cores, 0 to 1."""
    tester_busy: float | None
    packets_per_watt_hour: float | None
    bytes_per_watt_hour: float | None
    idle_watts: float | None
    watts: float | None
    """Mean draw while trials ran."""
    step_percent: float | None
    """What the steps of the meter's counter are of the energy counted: nothing is known better; none where they are fine."""


@dataclass(frozen=True, slots=True)
class Row:
    """One cell and quantity."""

    cell: Cell
    quantity: str
    values: tuple[float, ...]
    """Each repeat's last attempt, where that was valid; where none was, all of them."""
    summary: stats.Summary
    first: stats.Summary | None
    """Of first attempts: what the table says without repeating odd runs."""
    interval: stats.Interval | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    primary: bool
    testbed: str = ""
    """Which all repeats were measured on; several with commas, which a warning says."""
    valid: bool = True
    """Whether any repeat was valid; what was not is shown, and is compared with nothing."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A cell without a result."""

    cell: Cell
    status: str
    why: str


@dataclass(frozen=True, slots=True)
class Versus:
    """One cell of two devices, or of two campaigns."""

    cell: Cell
    quantity: str
    name_a: str
    name_b: str
    comparison: stats.Comparison

    @property
    def told_apart(self) -> bool:
        """Whether the values differ more than chance would have it."""
        return self.comparison.p_value < SIGNIFICANT

    @property
    def better(self) -> str | None:
        """Name of the better one; none where they cannot be told apart."""
        if not self.told_apart or self.comparison.median_a == self.comparison.median_b:
            return None
        a_higher = self.comparison.median_a > self.comparison.median_b
        return self.name_a if a_higher == higher_is_better(self.quantity) else self.name_b

    @property
    def words(self) -> str:
        """The outcome in a phrase."""
        if self.better is not None:
            return f"{self.better} is better"
        least = stats.smallest_p(self.comparison.count_a, self.comparison.count_b)
        if least >= SIGNIFICANT:
            return f"too few repeats to tell (p cannot get below {least:.2g})"
        return "cannot be told apart"


def rows(store: Store) -> list[Row]:
    """All quantities of all cells that have values, in the order of the campaign."""
    out = []
    rule = store.campaign.odd_runs
    described = bool(store.testbeds)
    for latest in in_order(store):
        last, first = latest.last(), latest.first()
        sound = tuple(r for r in last if r.valid)
        chosen = sound or last
        odd = odd_runs(latest, rule)
        primary = last[0].primary
        beds = ", ".join(sorted({r.testbed for r in latest.runs}))
        where = (f"on testbed {beds}",) if described else ()
        for quantity in sorted({q for r in chosen for q in r.values}, key=lambda q: (q != primary, q)):
            values = latest.values(quantity, chosen)
            if not values:
                continue
            warnings = list(stats.stability_warnings(values)) if quantity == primary else []
            if quantity == primary and odd:
                warnings.append(f"{len(odd)} of {len(last)} repeats odd after all attempts")
            if "," in beds:
                warnings.append(f"repeats of several testbeds: {beds}")
            if not sound:
                warnings.append("not valid: no repeat was")
            elif len(sound) < len(last):
                warnings.append(f"{len(last) - len(sound)} of {len(last)} repeats were not valid and are left out")
            if len(values) < len(chosen):
                warnings.append(f"{len(chosen) - len(values)} of {len(chosen)} repeats have no such value")
            before = latest.values(quantity, first)
            out.append(
                Row(
                    cell=latest.cell,
                    quantity=quantity,
                    values=values,
                    summary=stats.summary(values),
                    first=stats.summary(before) if before else None,
                    interval=intervals.of_median(values),
                    warnings=tuple(warnings),
                    notes=(*where, *sorted({n for r in last for n in r.notes})),
                    primary=quantity == primary,
                    testbed=beds,
                    valid=bool(sound),
                )
            )
    return out


def in_order(store: Store) -> list[Latest]:
    """Cells in the order of the campaign."""
    found = {latest.cell.slug: latest for latest in Latest.by_cell(store.runs())}
    return [found[c.slug] for c in store.campaign.cells() if c.slug in found]


def gaps(records: Iterable[RunRecord]) -> list[Gap]:
    """Cells that are absent, runs that failed, and runs that found no value, each reason once."""
    seen: dict[tuple[str, str, str], Gap] = {}
    for r in records:
        status: str = r.status
        why = r.why
        if r.status == "done" and r.values.get(r.primary) is None:
            status = "no value"
            why = "; ".join(r.notes) or f"no {r.primary} was found"
        if status != "done":
            seen.setdefault((r.run.cell.slug, status, why), Gap(r.run.cell, status, why))
    return list(seen.values())


def disturbed(store: Store) -> tuple[int, int, tuple[str, ...]]:
    """How many trials the machine disturbed, of how many, and how much slower each core was at its worst."""
    count = every = 0
    speeds: dict[str, list[float]] = {}
    for t in store.trials():
        every += 1
        count += bool(t.disturbed)
        for reading in (t.speed_before, t.speed_after):
            for core, (speed, _) in reading.items():
                speeds.setdefault(core, []).append(speed)
    said = tuple(
        f"Core {core} had {min(x) / max(x) * 100:.0f} to 100 % of its fastest beside trials, in half of the cases "
        f"{sorted(x)[len(x) // 2] / max(x) * 100:.0f} % or more"
        for core, x in sorted(speeds.items())
    )
    return count, every, said


def why_alone(all_rows: Sequence[Row], records: Iterable[RunRecord]) -> str:
    """Why no two devices could be compared."""
    names = {r.run.cell.dut for r in records if r.status == "done"}
    if len(names) < 2:
        return f"{'one device was' if names else 'no device was'} measured"
    by_cell: dict[tuple[object, ...], list[Row]] = {}
    for row in all_rows:
        if row.primary:
            by_cell.setdefault((_but_device(row.cell), row.quantity, row.testbed), []).append(row)
    common = [group for group in by_cell.values() if len({row.cell.dut for row in group}) > 1]
    if not common:
        return "no two devices have a value in the same cell"
    return f"two devices share {len(common)} cells, and in none of them two have valid runs"


def _tester_busy(
    beside: list[float] | None, trials: Sequence[tuple[Trial, dict[str, float], Energy | None, float]], core: str
) -> float:
    if beside:
        return sum(beside) / len(beside)
    return sum(busy.get(core, 0.0) * s for _, busy, _, s in trials) / sum(s for *_, s in trials)


def uses(store: Store) -> dict[str, Use]:
    """Cost by cell's slug."""
    mine_of: dict[str, list[int]] = {r.run.cell.slug: r.device["cores"] for r in store.runs() if "cores" in r.device}
    sums: dict[str, list[tuple[Trial, dict[str, float], Energy | None, float]]] = {}
    beside: dict[str, list[float]] = {}
    """Of testers with a machine of their own: how busy their cores were, each trial."""
    described = {name: bed["testbed"] for name, bed in store.testbeds.items()}
    usual = {key: getattr(store.campaign.testbed, key) for key in ("kind", "dut_cores", "tester_core")}
    bed_of: dict[str, dict[str, Any]] = {}
    for t in store.trials():
        bed_of[t.run.cell.slug] = {**usual, **described.get(t.testbed, {})}
        if t.tester_busy:
            share = sum(t.tester_busy.values()) / len(t.tester_busy)
            beside.setdefault(t.run.cell.slug, []).append(share)
        sums.setdefault(t.run.cell.slug, []).append(
            (
                Trial.model_validate(t.trial),
                t.core_busy,
                t.energy,
                t.duration_s,
            )
        )
    out = {}
    for slug, trials in sums.items():
        bed = bed_of[slug]
        tester, simulated = str(bed["tester_core"]), bed["kind"] == "simulated"
        # A box of its own has none of this machine's.
        mine = [str(c) for c in mine_of.get(slug, [*bed["dut_cores"]])]
        delivered = sum(t.received for t, *_ in trials)
        busy_s = sum(sum(busy.get(c, 0.0) for c in mine) * s for _, busy, _, s in trials)
        seconds = sum(s for *_, s in trials)
        counted = [e for _, _, e, _ in trials if e is not None]
        whole = len(counted) == len(trials)
        frame_bytes = next(c.frame_bytes for c in store.campaign.cells() if c.slug == slug)
        energy_j = sum(e.joules for e in counted) if whole else 0.0
        steps_j = sum(e.step_j for e in counted)
        known = not simulated and mine and any(busy for _, busy, *_ in trials)
        out[slug] = Use(
            packets_per_core_second=per_core_second(delivered, {"all": busy_s / seconds}, seconds) if known else None,
            device_busy=busy_s / seconds / len(mine) if known else None,
            tester_busy=_tester_busy(beside.get(slug), trials, tester) if known else None,
            packets_per_watt_hour=per_watt_hour(delivered, energy_j),
            bytes_per_watt_hour=per_watt_hour(delivered * frame_bytes, energy_j),
            idle_watts=next((e.idle_watts for e in counted if e.idle_watts is not None), None),
            watts=energy_j / sum(e.seconds for e in counted) if energy_j else None,
            step_percent=steps_j / energy_j * 100 if energy_j and steps_j else None,
        )
    return out


@dataclass(frozen=True, slots=True)
class Table:
    """One measurement of a connection table, step by step."""

    cell: Cell
    repeat: int
    measure: str
    connections: int
    """Of the first step."""
    open_pps: float
    most: int
    """Of the largest step that passed."""
    passed: int
    failed: int
    invalid: int
    clear_s: float | None
    """The longest that the command took that empties the table."""


def connection_tables(store: Store) -> list[Table]:
    """What measurements of connection tables were made of."""
    out = []
    for record in store.statefuls():
        answer = Stateful.model_validate(record.stateful)
        verdicts = [s.verdict for s in answer.steps]
        if not verdicts:
            continue
        first = answer.steps[0]
        most = max((s.connections for s in answer.steps if s.verdict == "passed"), default=0)
        took = [s.clear_s for s in answer.steps if s.clear_s is not None]
        out.append(
            Table(
                cell=record.run.cell,
                repeat=record.run.repeat + 1,
                measure=answer.measure,
                connections=first.connections,
                open_pps=first.phase_1.rate_pps,
                most=most,
                passed=verdicts.count("passed"),
                failed=verdicts.count("failed"),
                invalid=verdicts.count("invalid"),
                clear_s=max(took, default=None),
            )
        )
    return out


def _but_device(cell: Cell) -> tuple[tuple[str, object], ...]:
    return tuple((k, v) for k, v in cell.model_dump().items() if k != "dut")


def between_devices(all_rows: Sequence[Row]) -> list[Versus]:
    """Every two devices in the same cell on the same testbed, by their primary quantity; valid runs only."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in all_rows:
        if row.primary and row.valid:
            groups.setdefault((_but_device(row.cell), row.quantity, row.testbed), []).append(row)
    out = []
    for group in groups.values():
        for i, a in enumerate(group):
            for b in group[i + 1 :]:
                found = stats.compare(a.values, b.values)
                out.append(Versus(a.cell, a.quantity, a.cell.dut, b.cell.dut, found))
    return out


def between_campaigns(
    a: Sequence[Row], b: Sequence[Row], *, dut_a: str | None = None, dut_b: str | None = None
) -> list[Versus]:
    """The same cell in two campaigns; with device names, those take each other's place."""
    out = []
    theirs = {}
    for row in b:
        if row.valid and (dut_b is None or row.cell.dut == dut_b):
            theirs[_but_device(row.cell), row.cell.dut if dut_b is None else "", row.quantity] = row
    for row in a:
        if not row.primary or not row.valid or (dut_a is not None and row.cell.dut != dut_a):
            continue
        other = theirs.get((_but_device(row.cell), row.cell.dut if dut_b is None else "", row.quantity))
        if other is not None:
            out.append(Versus(row.cell, row.quantity, dut_a or "A", dut_b or "B", stats.compare(row.values, other.values)))
    return out


@dataclass(frozen=True, slots=True)
class Standing:
    """How one device did against all others."""

    dut: str
    wins: tuple[Versus, ...]
    loses: tuple[Versus, ...]
    open: tuple[Versus, ...]


def standings(versus: Sequence[Versus]) -> list[Standing]:
    """Where each device wins, loses, and cannot be told from another."""
    names = list(dict.fromkeys(n for v in versus for n in (v.name_a, v.name_b)))
    out = []
    for name in names:
        mine = [v for v in versus if name in (v.name_a, v.name_b)]
        out.append(
            Standing(
                name,
                tuple(v for v in mine if v.better == name),
                tuple(v for v in mine if v.better not in (None, name)),
                tuple(v for v in mine if v.better is None),
            )
        )
    return out


def traffic(cell: Cell) -> str:
    """A cell without its device, in words."""
    # What has one kind of ports only need not name it.
    link = "" if cell.link in ("none", "ports") else f" on {cell.link}"
    workers = f"{cell.workers} worker{'s' if cell.workers != 1 else ''}"
    routes = f", {cell.routes} further routes" if cell.routes else ""
    more = "".join(f", {word}" for word in cell.unusual)
    return f"{cell.operation}, {cell.frame_bytes} B, IPv{cell.ip}, {workers}{link}{routes}{more} ({cell.procedure})"
