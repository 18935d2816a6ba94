"""The thesis by capacity: its loss tables follow from one number for each configuration, which can be measured anywhere.

A device that forwards at most µ frames a second loses 1 - µ/λ of λ offered. The tables of seed 000 hold up to that: 64-byte
frames of 10, 25 and 40 Gbit/s give one worker 7.9 to 8.2 million a second. So what this machine can say of the tables does
not depend on how fast its tester is: *ratios* of capacities are compared with the thesis's, and the tables that follow from
ours are set beside those that were printed. Pure: from published values and known cells to rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quiver_lab import intervals, stats
from quiver_lab.findings import Predicate, Standing, Verdict
from quiver_lab.published import Cell as Keys
from quiver_lab.published import Published
from quiver_lab.reproduce.design import CANDIDATE, CAPACITY
from quiver_lab.reproduce.evidence import Known

LOSSY_PERCENT = 5.0
"""From this loss on a published place tells a capacity. NAT loses 1.56 %, a 64th, at rates that it can forward."""
WITHIN = 1.25
"""A ratio within this factor is the thesis's: its own capacities differ by up to 1.3 from rate to rate."""
REFERENCE: Keys = {"operation": "one-way", "dut": CANDIDATE, "workers": "1", "frame_bytes": "64"}
"""What others are measured by: the thesis's VPP-1."""
_NAMED = ("operation", "dut", "workers", "frame_bytes")


@dataclass(frozen=True, slots=True)
class Ratio:
    """One of the thesis's dimensionless findings."""

    text: str
    left: Keys
    right: Keys
    per_core: bool = False
    """Whether each side counts by core."""


RATIOS = (
    Ratio("one worker beside one core of the kernel", REFERENCE, {**REFERENCE, "dut": "linux", "workers": "10"}, per_core=True),
    Ratio("one worker with NAT beside one without", {**REFERENCE, "operation": "nat"}, REFERENCE),
    Ratio("one worker both ways beside one way", {**REFERENCE, "operation": "bidirectional"}, REFERENCE),
    Ratio("four workers beside one", {**REFERENCE, "workers": "4"}, REFERENCE),
    Ratio("ten workers beside one", {**REFERENCE, "workers": "10"}, REFERENCE),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """A ratio of capacities, theirs and ours."""

    ratio: Ratio
    link: str
    theirs: stats.Interval
    """From the least to the most that the printed rates give; its level is 1."""
    ours: stats.Interval | None
    value: float | None
    """Ratio of our medians."""
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class Predicted:
    """One place of the thesis's loss tables."""

    keys: Keys
    published: float
    """Loss in per cent, as printed."""
    by_paper: float | None
    """What the capacity that its other rates give has at this rate: whether one number makes the tables."""
    by_ours: Mapping[str, float]
    """By our ports: what the thesis's VPP-1 and our ratio of capacities have."""


def capacity(keys: Keys, per_direction_pps: float) -> float:
    """Frames a second of all directions."""
    return per_direction_pps * (2 if keys["operation"] == "bidirectional" else 1)


def offered_pps(cell: Keys) -> float:
    """Frames a second that a published cell was offered, of all directions; rates are of layer 2."""
    return capacity(cell, float(cell["rate_gbit_s"]) * 1e9 / 8 / int(cell["frame_bytes"]))


def loss_percent(capacity_pps: float, offered: float) -> float:
    """What is lost of ``offered`` where ``capacity_pps`` are forwarded."""
    return max(0.0, 1 - capacity_pps / offered) * 100


def _name(keys: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(keys[key] for key in _NAMED)


def places(values: Iterable[Published]) -> list[tuple[Keys, float]]:
    """Printed losses at fixed rates, cells named as ours."""
    out = []
    for p in values:
        cell = {"frame_bytes": "64", **p.cell}
        if p.quantity == "loss_percent" and p.kind == "table" and p.value is not None and "rate_gbit_s" in cell:
            out.append((cell | {"dut": CANDIDATE if cell["dut"] == "vpp" else cell["dut"]}, p.value))
    return out


def of_paper(values: Iterable[Published]) -> dict[tuple[str, ...], dict[str, float]]:
    """Capacity of each configuration, one for each rate at which it lost enough to tell."""
    out: dict[tuple[str, ...], dict[str, float]] = {}
    for cell, loss in places(values):
        if LOSSY_PERCENT <= loss < 100:
            out.setdefault(_name(cell), {})[cell["rate_gbit_s"]] = offered_pps(cell) * (1 - loss / 100)
    return out


def of_ours(known: Iterable[Known]) -> dict[str, dict[tuple[str, ...], tuple[float, ...]]]:
    """The same by our ports: what came back in valid overloads, one value for each repeat."""
    out: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {}
    for k in known:
        # A throttled device has no capacity but its own.
        if k.keys.get("load") == CAPACITY and k.cell.throttle == 1 and (found := k.values.get("receive_rate_pps")):
            out.setdefault(k.cell.link, {})[_name(k.keys)] = tuple(capacity(k.keys, v) for v in found)
    return out


def _here(keys: Keys, kernel_cores: int) -> tuple[str, ...]:
    """The kernel has the cores that there are, whatever it has in the paper."""
    return _name(keys | ({"workers": str(kernel_cores)} if keys["dut"] == "linux" else {}))


def compare(values: Iterable[Published], known: Sequence[Known], kernel_cores: int) -> list[Compared]:
    """Every ratio, on each of our ports."""
    theirs, ours = of_paper(values), of_ours(known)
    links = sorted({k.cell.link for k in known if k.keys.get("load") == CAPACITY}, key=lambda link: (link != "veth", link))
    out = []
    for ratio in RATIOS:
        left, right = theirs[_name(ratio.left)].values(), theirs[_name(ratio.right)].values()
        cores = _cores(ratio, int(ratio.right["workers"]))
        printed = stats.Interval(min(left) / max(right) * cores, max(left) / min(right) * cores, 1.0)
        for link in links:
            found = ours.get(link, {})
            a, b = found.get(_here(ratio.left, kernel_cores), ()), found.get(_here(ratio.right, kernel_cores), ())
            out.append(_compared(ratio, link, printed, [x * _cores(ratio, kernel_cores) for x in a], b))
    return out


def _cores(ratio: Ratio, of_the_kernel: int) -> int:
    """By what a ratio of whole capacities becomes one by core: the left sides have one."""
    return of_the_kernel if ratio.per_core else 1


def _compared(ratio: Ratio, link: str, printed: stats.Interval, a: Sequence[float], b: Sequence[float]) -> Compared:
    if not a or not b:
        lacks = " and ".join(w for w, side in (("the left side", a), ("the right side", b)) if not side)
        return Compared(ratio, link, printed, None, None, Verdict.CANNOT_BE_TOLD, f"no valid overload of {lacks}")
    value = statistics.median(a) / statistics.median(b)
    found = intervals.of_ratio(a, b)
    if found is None:
        return Compared(
            ratio, link, printed, None, value, Verdict.CANNOT_BE_TOLD, f"{len(a)} and {len(b)} repeats give no interval"
        )
    bounds = Predicate(
        quantity="capacity",
        left={**ratio.left},
        right={**ratio.right},
        at_least=printed.low / WITHIN,
        at_most=printed.high * WITHIN,
        direction="above" if printed.low > 1 else "below",
    )
    verdict = {
        Standing.INSIDE: Verdict.HOLDS,
        Standing.DIRECTION: Verdict.DIRECTION_ONLY,
        Standing.AGAINST: Verdict.CONTRADICTED,
        Standing.OPEN: Verdict.CANNOT_BE_TOLD,
    }[bounds.standing(found)]
    return Compared(ratio, link, printed, found, value, verdict, f"{len(a)} and {len(b)} repeats")


def predict(values: Iterable[Published], known: Sequence[Known], kernel_cores: int) -> list[Predicted]:
    """Every printed loss with what one capacity has in its place: the paper's own by its other rates, and ours.

    Ours is the thesis's VPP-1 times our ratio of the configuration to the reference, so this machine's speed does not count.
    The kernel's is for as many cores as the thesis gave it, taken to add up.
    """
    values = list(values)
    theirs, ours = of_paper(values), of_ours(known)
    anchor = statistics.median(theirs[_name(REFERENCE)].values())
    out = []
    for cell, printed in places(values):
        offered = offered_pps(cell)
        others = [c for rate, c in theirs.get(_name(cell), {}).items() if rate != cell["rate_gbit_s"]]
        by_ours = {}
        for link, found in ours.items():
            mine, reference = found.get(_here(cell, kernel_cores)), found.get(_name(REFERENCE))
            if mine and reference:
                more = int(cell["workers"]) / kernel_cores if cell["dut"] == "linux" else 1
                by_ours[link] = loss_percent(anchor * statistics.median(mine) / statistics.median(reference) * more, offered)
        own = loss_percent(statistics.median(others), offered) if others else None
        out.append(Predicted(cell, printed, own, by_ours))
    return out


def explained(rows: Iterable[Predicted]) -> tuple[int, int, float]:
    """Of the printed places that other rates predict: how many, how many within 2 points, the largest error in points."""
    errors = [abs(r.by_paper - r.published) for r in rows if r.by_paper is not None]
    return len(errors), sum(e <= 2 for e in errors), max(errors, default=0.0)
