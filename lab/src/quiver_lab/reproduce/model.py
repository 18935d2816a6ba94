"""What more workers would do than this machine has cores for: modelled, and marked so wherever it stands.

*Speed.* ``docs/scaling.md``: P(w) = w · f / (c · (1 + s · (w − 1))). The clocks of a packet and the clock rate are those of one
worker, so P(w) / P(1) follows from *s* alone, the fraction of a packet's time that each further worker costs. It comes from
P(2) / P(1): of this campaign, where two workers were measured, else of the five runs in that document. Its interval becomes the
interval of everything modelled; s below 0 (more than twice with two workers) is chance and counts as 0. No card, no memory of
another node and no line rate is in it: it is what the cores alone allow.

*Energy.* A polling worker draws the same whatever it forwards. The thesis's own places at the other rates give the draw of its
host without workers and that of each worker, by least squares over 1, 4 and 10; their spread over rates and sizes is the
interval, from the smallest to the largest.

Pure: from published values and known cells to rows. Both are held against the printed values of 4 and 10 workers.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quiver_lab import intervals, published
from quiver_lab.published import Cell as Keys
from quiver_lab.published import Published
from quiver_lab.reproduce import capacity
from quiver_lab.reproduce.design import CANDIDATE
from quiver_lab.reproduce.evidence import Known
from quiver_lab.stats import Interval

WORKERS = (4, 10, 16)
"""Numbers of workers that are modelled; the thesis has the first two."""
TRIAL_S = 120.0
"""Of the thesis, for which its energy counts."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """What each further worker costs, as a fraction of a packet's time."""

    s: float
    low: float
    high: float
    source: str

    def speed_up(self, workers: int) -> tuple[float, Interval]:
        """P(w) / P(1), and its interval."""
        bounds = [speed_up(workers, s) for s in (self.high, self.low)]
        return speed_up(workers, self.s), Interval(bounds[0], bounds[1], intervals.LEVEL)


def speed_up(workers: int, s: float) -> float:
    """P(w) / P(1) where each further worker costs ``s``."""
    return workers / (1 + s * (workers - 1))


def cost(ratio: float) -> float:
    """The cost that P(2) / P(1) tells; what is more than twice is chance."""
    return max(0.0, 2 / ratio - 1)


TWO_WORKERS = (1.91, 1.55, 2.01)
"""P(2) / P(1) in ``docs/scaling.md``: median, smallest and largest of five runs, which bound the median in 94 % of cases."""
COMMITTED = Scaling(
    cost(TWO_WORKERS[0]),
    cost(TWO_WORKERS[2]),
    cost(TWO_WORKERS[1]),
    "docs/scaling.md: P(2) / P(1) = {} in the median of five runs, {} to {}".format(*TWO_WORKERS),
)


def scaling_of(known: Iterable[Known]) -> Scaling:
    """From two workers beside one in the same campaign, where that gives an interval; else as committed."""
    for link, found in capacity.of_ours(known).items():
        for (operation, dut, workers, size), one in found.items():
            two = found.get((operation, dut, "2", size)) if dut == CANDIDATE and workers == "1" else None
            bounds = intervals.of_ratio(two, one) if two else None
            if two and bounds is not None:
                ratio = statistics.median(two) / statistics.median(one)
                span = f"{ratio:.3g}, {bounds.low:.3g} to {bounds.high:.3g}"
                said = f"this campaign, {operation} {size} B on {link}: P(2) / P(1) = {span}"
                return Scaling(cost(ratio), cost(bounds.high), cost(bounds.low), said)
    return COMMITTED


@dataclass(frozen=True, slots=True)
class Power:
    """Draw of the thesis's host, in watts."""

    base: Interval
    """Without workers."""
    worker: Interval
    """Of each polling worker."""
    base_w: float
    worker_w: float
    places: int
    """Of how many sets of 1, 4 and 10 workers."""

    def energy_wh(self, workers: int) -> tuple[float, Interval]:
        """Energy of a trial of the thesis's length, and its interval."""
        hours = TRIAL_S / 3600
        low, high = self.base.low + workers * self.worker.low, self.base.high + workers * self.worker.high
        return (self.base_w + workers * self.worker_w) * hours, Interval(low * hours, high * hours, 1.0)


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Intercept and slope by least squares."""
    slope, intercept = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return intercept, slope


def power_of(values: Iterable[Published]) -> Power | None:
    """Base and worker's draw from places that were printed for 1, 4 and 10 workers; none where there are none."""
    sets: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for p in values:
        if p.quantity == "energy_wh" and p.kind == "table" and p.value is not None and p.cell.get("dut") == "vpp":
            rest = tuple(sorted(f"{k}={v}" for k, v in p.cell.items() if k != "workers"))
            sets.setdefault(rest, []).append((int(p.cell["workers"]), p.value * 3600 / TRIAL_S))
    lines = [_line(points) for points in sets.values() if {w for w, _ in points} >= {1, 4, 10}]
    if not lines:
        return None
    bases, slopes = [b for b, _ in lines], [s for _, s in lines]
    return Power(
        Interval(min(bases), max(bases), 1.0),
        Interval(min(slopes), max(slopes), 1.0),
        statistics.median(bases),
        statistics.median(slopes),
        len(lines),
    )


@dataclass(frozen=True, slots=True)
class Modelled:
    """One modelled value."""

    keys: Keys
    quantity: str
    published: float | None
    value: float
    interval: Interval
    by: str
    """Whose one worker it rests on, or whose draw."""

    @property
    def within(self) -> bool | None:
        """Whether the printed value, rounded as it is to two places, lies in the interval; none where none is printed."""
        if self.published is None:
            return None
        return self.interval.low - 0.005 <= self.published <= self.interval.high + 0.005


THESIS = "the thesis's VPP-1"


def _capacities(values: Sequence[Published], known: Sequence[Known]) -> dict[str, dict[tuple[str, str], float]]:
    """Capacity of one worker by operation and size: the thesis's, and ours in its units (its VPP-1 times our ratio to it)."""
    theirs = {
        (op, size): statistics.median(rates.values())
        for (op, dut, workers, size), rates in capacity.of_paper(values).items()
        if dut == CANDIDATE and workers == "1"
    }
    out = {THESIS: theirs}
    anchor = theirs.get(("one-way", "64"))
    for link, found in capacity.of_ours(known).items():
        reference = found.get(("one-way", CANDIDATE, "1", "64"))
        if anchor and reference:
            out[f"ours on {link}"] = {
                (op, size): anchor * statistics.median(mine) / statistics.median(reference)
                for (op, dut, workers, size), mine in found.items()
                if dut == CANDIDATE and workers == "1"
            }
    return out


def losses(values: Sequence[Published], known: Sequence[Known], scaling: Scaling) -> list[Modelled]:
    """Loss of 4, 10 and 16 workers at the thesis's rates, from one worker's capacity."""
    out = []
    capacities = _capacities(values, known)
    printed = {tuple(c.items()): loss for c, loss in capacity.places(values)}
    cells = [c for c, _ in capacity.places(values) if c["dut"] == CANDIDATE and c["workers"] == "1"]
    for cell in cells:
        for by, found in capacities.items():
            one = found.get((cell["operation"], cell["frame_bytes"]))
            for workers in WORKERS if one else ():
                assert one is not None
                keys = {**cell, "workers": str(workers)}
                times, bounds = scaling.speed_up(workers)
                low, value, high = (
                    capacity.loss_percent(one * x, capacity.offered_pps(cell)) for x in (bounds.high, times, bounds.low)
                )
                span = Interval(low, high, intervals.LEVEL)
                out.append(Modelled(keys, "loss_percent", printed.get(tuple(keys.items())), value, span, by))
    return out


def energies(values: Sequence[Published]) -> list[Modelled]:
    """Energy of 4, 10 and 16 workers: from the draw that the thesis's places at other rates give."""
    out = []
    printed = {tuple(p.cell.items()): p.value for p in values if p.quantity == "energy_wh" and p.kind == "table"}
    for p in values:
        if p.quantity != "energy_wh" or p.kind != "table" or (p.cell.get("dut"), p.cell.get("workers")) != ("vpp", "1"):
            continue
        power = power_of(v for v in values if v.cell.get("rate_gbit_s") != p.cell.get("rate_gbit_s"))
        for workers in WORKERS if power else ():
            assert power is not None
            cell = {**p.cell, "workers": str(workers)}
            value, span = power.energy_wh(workers)
            keys = {**cell, "dut": CANDIDATE}
            out.append(Modelled(keys, "energy_wh", printed.get(tuple(cell.items())), value, span, "the thesis's host"))
    return out


def tally(rows: Iterable[Modelled]) -> dict[str, tuple[int, int]]:
    """By quantity and whose it is: how many printed values there are, and how many lie within."""
    out: dict[str, tuple[int, int]] = {}
    for r in rows:
        if r.within is not None:
            count, good = out.get(f"{r.quantity}, {r.by}", (0, 0))
            out[f"{r.quantity}, {r.by}"] = (count + 1, good + r.within)
    return out


def all_of(values: Sequence[Published], known: Sequence[Known]) -> tuple[Scaling, list[Modelled]]:
    """The scaling that was taken, and everything that follows."""
    scaling = scaling_of(known)
    return scaling, [*losses(values, known, scaling), *energies(values)]


def capacity_rows(values: Sequence[Published], scaling: Scaling) -> list[tuple[int, float, Interval, Interval | None]]:
    """P(w) / P(1) with its interval, beside what the thesis's rates give, one way at 64 B."""
    theirs = capacity.of_paper(values)
    one = theirs.get(("one-way", CANDIDATE, "1", "64"), {}).values()
    out = []
    for workers in WORKERS:
        many = theirs.get(("one-way", CANDIDATE, str(workers), "64"), {}).values()
        printed = Interval(min(many) / max(one), max(many) / min(one), 1.0) if many and one else None
        out.append((workers, *scaling.speed_up(workers), printed))
    return out


def write_csv(rows: Iterable[Modelled], path: Path) -> None:
    """Every modelled value beside the printed one."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["cell", "quantity", "published", "modelled", "low", "high", "published_within", "by"])
        for r in rows:
            within = {None: "", True: "yes", False: "no"}[r.within]
            said = "" if r.published is None else f"{r.published:g}"
            numbers = (f"{x:.4g}" for x in (r.value, r.interval.low, r.interval.high))
            writer.writerow([published.cell_text(r.keys), r.quantity, said, *numbers, within, r.by])
