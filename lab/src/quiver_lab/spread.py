"""A campaign on several testbeds: each cell belongs to one of them for all its repeats, each testbed does one run at a time.

Cells that differ in nothing but the device and its link stay together where they can, so that devices are compared on the same
machines. What was begun on a testbed stays there; the rest goes where the least is planned.

::

    campaign ── assign ──┬── thread ── Runner      testbed A    in-process, or (cluster.py) by a worker process
                         └── thread ── Runner      testbed B
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from quiver_lab import facts, site
from quiver_lab.beds import Bed
from quiver_lab.campaign import Cell
from quiver_lab.processes import CommandError
from quiver_lab.records import RunId, RunRecord
from quiver_lab.runner import Planned, Progress, Runner, StoppedError, plan
from quiver_lab.store import Store
from quiver_lab.trial import Trial


@dataclass(frozen=True)
class Survey:
    """What a testbed can do, and what it is."""

    planned: list[Planned]
    facts: dict[str, Any]


class Place(Protocol):
    """Where a testbed's runs are made."""

    @property
    def bed(self) -> Bed:
        """The testbed."""

    def survey(self) -> Survey:
        """Look at it; a ``CommandError`` where it cannot be reached."""

    def runner(self, store: Store, progress: Progress, stopped: Callable[[], bool]) -> Runner:
        """Whoever makes its runs."""


class Here:
    """In this process."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self._site = site.of(bed.campaign)

    def survey(self) -> Survey:
        """Look at it."""
        return survey(self.bed, self._site)

    def runner(self, store: Store, progress: Progress, stopped: Callable[[], bool]) -> Runner:
        """The usual one."""
        return Runner(store, progress, campaign=self.bed.campaign, where=self._site, stopped=stopped)


def survey(bed: Bed, where: site.Site) -> Survey:
    """Look at a testbed from the machine that this runs on."""
    return Survey(plan(bed.campaign, where), bed.facts(where, facts.machine()))


def owners(store: Store) -> dict[str, str]:
    """The testbed that each begun cell belongs to."""
    found = {t.run.cell.slug: t.testbed for t in store.trials()}
    found |= {s.run.cell.slug: s.testbed for s in store.statefuls()}
    return found | {r.run.cell.slug: r.testbed for r in store.runs() if r.status == "done"}


def _cost(p: Planned) -> float:
    """Seconds of a run; simulated trials take none, and are shared by their number."""
    return p.seconds or p.trials / 1000


def assign(plans: Mapping[str, Sequence[Planned]], owner: Mapping[str, str]) -> dict[str, list[Planned]]:
    """Which testbed measures what; what none can is in the first one's list, absent; what was begun on others is in none."""
    by = {name: {p.cell.slug: p for p in planned} for name, planned in plans.items()}
    groups: dict[str, list[Cell]] = {}
    cells = [p.cell for p in next(iter(plans.values()))]
    for cell in cells:
        groups.setdefault(cell.model_copy(update={"dut": "", "link": "none"}).slug, []).append(cell)
    load = dict.fromkeys(plans, 0.0)
    placed: dict[str, Planned] = {}
    at: dict[str, str] = {}

    def put(name: str, slug: str) -> None:
        at[slug], placed[slug] = name, by[name][slug]
        load[name] += _cost(by[name][slug])

    def cost(group: Iterable[Cell]) -> float:
        return max(sum(_cost(by[name][c.slug]) for c in group) for name in plans)

    for group in sorted(groups.values(), key=cost, reverse=True):
        able = {name: {c.slug for c in group if by[name][c.slug].absent is None} for name in plans}
        begun = {owner[c.slug] for c in group if c.slug in owner}
        best = min(plans, key=lambda name: (name not in begun, -len(able[name]), load[name]))
        for cell in group:
            slug = cell.slug
            can = [name for name in plans if slug in able[name]]
            if slug in owner:
                if owner[slug] in plans:
                    put(owner[slug], slug)
            elif can:
                put(best if best in can else min(can, key=load.__getitem__), slug)
            else:
                why = {name: str(by[name][slug].absent) for name in plans}
                words = "; ".join(f"{name}: {reason}" for name, reason in why.items())
                same = len({*why.values()}) == 1
                first = next(iter(plans))
                at[slug], placed[slug] = first, replace(by[first][slug], absent=why[first] if same else words)
    return {name: [placed[c.slug] for c in cells if at.get(c.slug) == name] for name in plans}


class Together(Progress):
    """The progress of several testbeds as one: what is left is what the slowest has left."""

    def __init__(self, inner: Progress) -> None:
        self._inner, self._lock, self._left = inner, threading.Lock(), dict[str, float]()

    def of(self, name: str, total_s: float) -> Progress:
        """The part of one testbed."""
        self._left[name] = total_s
        return _Part(self, name)

    def begin(self, run: RunId, done_s: float, total_s: float, name: str = "") -> None:
        """Say that a run begins on a testbed."""
        with self._lock:
            self._left[name] = total_s - done_s
            self._inner.begin(run, 0.0, max(self._left.values()))

    def end(self, name: str) -> None:
        """Say that a testbed has nothing more to do."""
        with self._lock:
            self._left[name] = 0.0

    def idle(self, watts: float, meter: str) -> None:
        """Hand on."""
        with self._lock:
            self._inner.idle(watts, meter)

    def trial(self, run: RunId, ordinal: int, trial: Trial, rate_pps: float) -> None:
        """Hand on."""
        with self._lock:
            self._inner.trial(run, ordinal, trial, rate_pps)

    def ended(self, record: RunRecord) -> None:
        """Hand on."""
        with self._lock:
            self._inner.ended(record)


class _Part(Progress):
    def __init__(self, whole: Together, name: str) -> None:
        self._name = name
        self._whole = whole
        self.idle, self.trial, self.ended = whole.idle, whole.trial, whole.ended  # type: ignore[method-assign]

    def begin(self, run: RunId, done_s: float, total_s: float) -> None:
        self._whole.begin(run, done_s, total_s, self._name)


def run(store: Store, places: Sequence[Place], progress: Progress, say: Callable[[str], None]) -> None:
    """Run a campaign on all testbeds that can be reached; ``say`` hears of those that cannot.

    Ctrl-C has every testbed end its trial; a second one does not wait for that.
    """
    surveys: dict[str, Survey] = {}
    for place in places:
        try:
            surveys[place.bed.name] = place.survey()
        except CommandError as error:
            say(f"testbed {place.bed.name} is left out: {error}")
    if not surveys:
        raise CommandError("no testbed can be reached")
    for name, found in surveys.items():
        store.put_testbed(name, found.facts)
    begun = owners(store)
    for name in sorted({*begun.values()} - {*surveys}):
        count = sum(1 for at in begun.values() if at == name)
        say(f"{count} cells were begun on testbed {name}, which is not here: they are left for --resume with it")
    assigned = assign({name: s.planned for name, s in surveys.items()}, begun)
    together, stop, wrong = Together(progress), threading.Event(), list[BaseException]()

    def one(place: Place, part: Progress) -> None:
        try:
            place.runner(store, part, stop.is_set).run(assigned[place.bed.name])
        except StoppedError:
            pass
        except CommandError as error:
            say(f"testbed {place.bed.name} is given up, --resume goes on with it: {error}")
        except BaseException as error:
            wrong.append(error)
            stop.set()
        finally:
            together.end(place.bed.name)

    threads = []
    for place in places:
        if (name := place.bed.name) in surveys:
            here = [p for p in assigned[name] if p.absent is None]
            part = together.of(name, sum(p.seconds for p in here) * store.campaign.repeats)
            threads.append(threading.Thread(target=one, args=(place, part), name=name, daemon=True))
    try:
        for thread in threads:
            thread.start()
        _join(threads)
    except KeyboardInterrupt:
        stop.set()
        say("stopping after the trials in flight (Ctrl-C again: at once)")
        _join(threads)
        raise
    if wrong:
        raise wrong[0]


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        while thread.is_alive():
            # A wait without an end would not hear Ctrl-C.
            thread.join(0.2)
