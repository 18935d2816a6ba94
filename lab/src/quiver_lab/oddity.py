"""Odd runs: which they are by the rule that the campaign fixed, and which attempts count.

A run is odd when a trial that decided it was invalid, or when its value is further from the median of its cell's repeats than
the rule allows. Odd repeats are run again; all attempts are kept. Tables come in two kinds: of first attempts, and of each
repeat's last attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from quiver_lab import stats
from quiver_lab.campaign import Cell
from quiver_lab.records import RunRecord
from quiver_lab.rules import OddRule


@dataclass(frozen=True, slots=True)
class Latest:
    """One cell's runs."""

    cell: Cell
    runs: tuple[RunRecord, ...]
    """All that were done."""

    @classmethod
    def by_cell(cls, records: Iterable[RunRecord]) -> Iterator[Latest]:
        """Group what was done by cell, in the order of first appearance."""
        groups: dict[str, list[RunRecord]] = {}
        for record in records:
            if record.status == "done":
                groups.setdefault(record.run.cell.slug, []).append(record)
        for group in groups.values():
            yield cls(group[0].run.cell, tuple(group))

    def first(self) -> tuple[RunRecord, ...]:
        """First attempts."""
        return tuple(r for r in self.runs if r.run.attempt == 0)

    def last(self) -> tuple[RunRecord, ...]:
        """Each repeat's last attempt."""
        best: dict[int, RunRecord] = {}
        for record in self.runs:
            known = best.get(record.run.repeat)
            if known is None or record.run.attempt > known.run.attempt:
                best[record.run.repeat] = record
        return tuple(best[n] for n in sorted(best))

    def values(self, quantity: str, records: Sequence[RunRecord] | None = None) -> tuple[float, ...]:
        """Values of a quantity, of last attempts unless others are given; repeats without it are left out."""
        chosen = self.last() if records is None else records
        return tuple(v for r in chosen if (v := r.values.get(quantity)) is not None)


def odd_runs(cell: Latest, rule: OddRule) -> tuple[RunRecord, ...]:
    """Which of the last attempts are odd."""
    last = cell.last()
    with_value = [r for r in last if r.values.get(r.primary) is not None]
    values = [float(r.values[r.primary] or 0.0) for r in with_value]
    floor = max((r.resolution for r in with_value), default=0.0)
    far = {with_value[i].run.repeat for i in stats.odd_values(values, mads=rule.mads, floor=floor)}
    return tuple(r for r in last if not r.valid or r.run.repeat in far)
