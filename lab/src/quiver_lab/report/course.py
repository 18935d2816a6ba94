"""The course of trials: what came back and what was lost in each tenth of a second, one small drawing a cell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from quiver_lab.campaign import Cell
from quiver_lab.records import TrialRecord
from quiver_lab.report.drawing import COLOURS, short
from quiver_lab.trial import SeriesPoint, Trial

POINTS = 60
"""Of a drawing: a trial with more intervals has several in one."""
LEAST = 5
"""Intervals: fewer have no course."""
WIDTH, HEIGHT = 240.0, 40.0
LOST = COLOURS[1]


@dataclass(frozen=True, slots=True)
class Interval:
    """Some time of a trial, all directions together."""

    end_s: float
    received_pps: float
    lost_pps: float
    """Sent less received; of a moment that takes in what was under way before, none."""


@dataclass(frozen=True, slots=True)
class Course:
    """One trial of a cell: the last valid one, or else the last."""

    cell: Cell
    rate_pps: float
    """Asked for, per direction."""
    intervals: tuple[Interval, ...]
    valid: bool

    @property
    def least(self) -> float:
        """Smallest rate of what came back, packets a second."""
        return min(i.received_pps for i in self.intervals)

    @property
    def most(self) -> float:
        """Largest rate of what came back."""
        return max(i.received_pps for i in self.intervals)

    @property
    def lossy(self) -> int:
        """In how many intervals more than a hundredth of what was sent did not come back."""
        return sum(i.lost_pps > 0.01 * (i.received_pps + i.lost_pps) for i in self.intervals)


def of_trial(cell: Cell, record: TrialRecord) -> Course | None:
    """A trial's course; none where the tester kept none."""
    trial = Trial.model_validate(record.trial)
    series = [d.series for d in trial.directions]
    if not all(series):
        return None
    sending = [merged for merged in map(_together, zip(*series, strict=False)) if merged.sent]
    if len(sending) < LEAST:
        return None
    step = -(-len(sending) // POINTS)
    found, began = [], 0.0
    for group in (sending[at : at + step] for at in range(0, len(sending), step)):
        lasted = group[-1].t_s - began
        if lasted > 0:
            received, lost = sum(p.received for p in group), sum(p.lost for p in group)
            found.append(Interval(group[-1].t_s, received / lasted, max(0, lost) / lasted))
        began = group[-1].t_s
    return Course(cell, record.rate_pps, tuple(found), trial.valid)


def _together(points: tuple[SeriesPoint, ...]) -> SeriesPoint:
    """The same interval of all directions."""
    return SeriesPoint(
        t_s=max(p.t_s for p in points),
        sent=sum(p.sent for p in points),
        received=sum(p.received for p in points),
        lost=sum(p.lost for p in points),
    )


def courses(cells: Iterable[Cell], trials: Iterable[TrialRecord]) -> list[Course]:
    """One for each cell that has any, in the cells' order."""
    last: dict[str, Course] = {}
    for record in trials:
        slug = record.run.cell.slug
        course = of_trial(record.run.cell, record)
        if course is not None and (course.valid or slug not in last or not last[slug].valid):
            last[slug] = course
    return [last[cell.slug] for cell in cells if cell.slug in last]


def svg(course: Course) -> str:
    """The drawing: a line of what came back, bars from above for what was lost; its foot is zero."""
    top = max(i.received_pps + i.lost_pps for i in course.intervals) or 1.0
    end = course.intervals[-1].end_s
    points, bars, began = [], [], 0.0
    for i in course.intervals:
        left, right = WIDTH * began / end, WIDTH * i.end_s / end
        y = HEIGHT * (1 - i.received_pps / top)
        points += [f"{left:.1f},{y:.1f}", f"{right:.1f},{y:.1f}"]
        if tall := HEIGHT * i.lost_pps / top:
            bars.append(f'<rect x="{left:.1f}" y="0" width="{right - left:.1f}" height="{tall:.1f}" fill="{LOST}"/>')
        began = i.end_s
    said = f"{short(course.least)} to {short(course.most)} packets/s in {end:g} s"
    dashed = "" if course.valid else ' stroke-dasharray="3 2"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" width="{WIDTH:.0f}" '
        f'height="{HEIGHT:.0f}" role="img"><title>{escape(said)}</title>{"".join(bars)}'
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{COLOURS[0]}"{dashed}/></svg>'
    )
