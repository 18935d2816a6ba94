"""Draws a figure as SVG: for the page, and as a file that stays the same as long as the numbers do. Pure.

An axis is linear and begins at zero, with bars, as long as the values lie close together; where they span more than
``LOG_FROM`` to one it is logarithmic, and values are points, because a bar has no foot there. Values of 0 then stand at the
axis's lower end, as open triangles that point down. What is not valid is drawn open and dashed. A mark tells its value when
pointed at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

COLOURS = ("#3b6ea5", "#c1622d", "#5a8f4e", "#8a5a9e", "#a3923a", "#4f8f94", "#8c3d4f", "#9aa3ad", "#2f3e4e", "#c9a0b8")
"""Told apart by lightness too, for readers who do not see all colours."""
SHAPES = ("circle", "square", "diamond", "triangle")
"""Of points: where there are more series than colours the next shape is taken, so that no two look alike."""
LOG_FROM = 30.0
"""Largest over smallest value from which an axis is logarithmic: on a linear one the smallest is then a mere line."""
WIDTH, HEIGHT = 760.0, 300.0
"""Of the plot, without title and legend."""
LEFT, RIGHT, TOP, BOTTOM = 78.0, 14.0, 30.0, 46.0
_LETTER = 6.3
"""Width of a letter of the legend, about."""


@dataclass(frozen=True, slots=True)
class Series:
    """One device with a number of workers."""

    name: str
    at: tuple[str, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    valid: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot: a quantity over something."""

    name: str
    """For file names."""
    title: str
    x: str
    """What the places along the axis are."""
    quantity: str
    """In words, with its unit."""
    places: tuple[str, ...]
    series: tuple[Series, ...]
    average: str = "median"
    """What ``Series.median`` really is."""
    reference: float | None = None
    """Where a line is drawn across; such a figure is of ratios, and always logarithmic."""

    @property
    def logarithmic(self) -> bool:
        """Whether the axis is."""
        shown = [v for s in self.series for v in s.median if v > 0]
        return bool(shown) and (self.reference is not None or max(shown) / min(shown) >= LOG_FROM)


def short(value: float) -> str:
    """A value with three digits and a prefix: 14.9M, 68.1k, 0.05."""
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{prefix}"
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class _Axis:
    """From a value to a height; and where its ticks are."""

    low: float
    high: float
    log: bool

    def y(self, value: float) -> float:
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return TOP + HEIGHT * (1 - min(1.0, max(0.0, share)))

    def ticks(self) -> list[float]:
        if not self.log:
            step = _nice(self.high / 5)
            return [step * n for n in range(math.floor(self.high / step + 1e-9) + 1)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        marks = (1, 2, 5) if last - first <= 3 else (1,)
        every = [m * 10.0**n for n in range(first, last + 1) for m in marks]
        return [t for t in every if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10, … that is not less."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9))


def _axis(figure: Figure) -> _Axis:
    every = [v for s in figure.series for column in (s.median, s.low, s.high) for v in column]
    if figure.reference is not None:
        every.append(figure.reference)
    if not figure.logarithmic:
        return _Axis(0.0, max(every, default=0.0) * 1.05 or 1.0, log=False)
    above = [v for v in every if v > 0]
    low, high = min(above), max(above)
    # At least from one decade's mark to another: a tick on each end.
    return _Axis(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high * 1.001)), log=True)


def _shape(kind: str, x: float, y: float, r: float) -> str:
    """A mark, without its colours."""
    match kind:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}"'
        case "square":
            return f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r}" height="{2 * r}"'
        case "diamond":
            corners = [(x, y - r * 1.3), (x + r * 1.3, y), (x, y + r * 1.3), (x - r * 1.3, y)]
        case "down":
            corners = [(x - r, y - r), (x + r, y - r), (x, y + r)]
        case _:
            corners = [(x - r, y + r), (x + r, y + r), (x, y - r)]
    return '<polygon points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in corners) + '"'


def _paint(colour: str, *, valid: bool, filled: bool = True) -> str:
    dashed = "" if valid else ' stroke-dasharray="3 2"'
    return f' fill="{colour if valid and filled else "none"}" stroke="{colour}"{dashed}'


def _look(at: int) -> tuple[str, str]:
    """Colour and shape of a series."""
    return COLOURS[at % len(COLOURS)], SHAPES[at // len(COLOURS) % len(SHAPES)]


def _marks(figure: Figure, axis: _Axis, column: Callable[[int], float]) -> list[str]:
    """Every value with its range."""
    out = []
    room = 0.8 * (WIDTH / max(1, len(figure.places)))
    wide = min(60.0, room / max(1, len(figure.series)))
    for i, s in enumerate(figure.series):
        colour, shape = _look(i)
        for place, value, low, high in zip(s.at, s.median, s.low, s.high, strict=True):
            x = column(figure.places.index(place)) + (i - (len(figure.series) - 1) / 2) * wide
            y = axis.y(value)
            if not axis.log:
                foot = axis.y(0.0)
                mark = f'<rect x="{x - wide * 0.45:.1f}" y="{y:.1f}" width="{wide * 0.9:.1f}" height="{foot - y:.1f}"'
            else:
                mark = _shape("down", x, y - 5, 4.0) if value <= 0 else _shape(shape, x, y, 4.0)
            said = f"{s.name}, {place}: {short(value)}" + (f" ({short(low)} to {short(high)})" if low != high else "")
            title = f"<title>{escape(said)}</title>"
            paint = _paint(colour, valid=s.valid, filled=not axis.log or value > 0)
            out.append(f"{mark}{paint}>{title}{mark.split(' ')[0].replace('<', '</')}>")
            if low != high:
                top, under = axis.y(high), axis.y(low)
                out.append(
                    f'<path d="M{x:.1f} {top:.1f}V{under:.1f}M{x - 3:.1f} {top:.1f}h6M{x - 3:.1f} {under:.1f}h6" '
                    f'stroke="#222" fill="none"/>'
                )
    return out


def _legend(figure: Figure, top: float) -> tuple[list[str], float]:
    """Names of the series in as many lines as they take, and where the last one ends."""
    out, x, y = [], LEFT, top
    for i, s in enumerate(figure.series):
        colour, shape = _look(i)
        wide = 18 + _LETTER * len(s.name) + 14
        if x > LEFT and x + wide > LEFT + WIDTH:
            x, y = LEFT, y + 17
        mark = _shape(shape if figure.logarithmic else "square", x + 6, y - 4, 4.0)
        out.append(f"{mark}{_paint(colour, valid=s.valid)}/>")
        out.append(f'<text x="{x + 16:.1f}" y="{y:.1f}">{escape(s.name)}</text>')
        x += wide
    return out, y


def _places(figure: Figure, column: Callable[[int], float]) -> list[str]:
    """What stands under the axis: aslant where names are too long to lie beside each other."""
    room = WIDTH / max(1, len(figure.places))
    aslant = any(len(p) * _LETTER > room - 4 for p in figure.places)
    out = []
    for at, place in enumerate(figure.places):
        x, y = column(at), TOP + HEIGHT + 15
        turn = f' text-anchor="end" transform="rotate(-30 {x:.1f} {y:.1f})"' if aslant else ' text-anchor="middle"'
        out.append(f'<text x="{x:.1f}" y="{y:.1f}"{turn}>{escape(place)}</text>')
    return out


def svg(figure: Figure) -> str:
    """The drawing, as a whole document that also may stand in a page."""
    axis = _axis(figure)
    room = WIDTH / max(1, len(figure.places))

    def column(at: int) -> float:
        return LEFT + room * (at + 0.5)

    longest = max((len(p) for p in figure.places), default=0)
    below = BOTTOM + (longest * _LETTER * 0.5 if longest * _LETTER > room - 4 else 0)
    body: list[str] = []
    for tick in axis.ticks():
        y = axis.y(tick)
        body.append(f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        body.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    if figure.reference is not None:
        body.append(
            f'<path class="reference" d="M{LEFT} {axis.y(figure.reference):.1f}h{WIDTH}" stroke="#222" stroke-dasharray="6 3"/>'
        )
    body.append(f'<path d="M{LEFT} {TOP}V{TOP + HEIGHT}h{WIDTH}" stroke="#222" fill="none"/>')
    body += _marks(figure, axis, column)
    body += _places(figure, column)
    middle = LEFT + WIDTH / 2
    body.append(f'<text x="{LEFT}" y="16" font-weight="bold">{escape(figure.title)}</text>')
    body.append(f'<text x="{middle}" y="{TOP + HEIGHT + below - 8:.1f}" text-anchor="middle">{escape(figure.x)}</text>')
    at = TOP + HEIGHT / 2
    scale = ", logarithmic" if axis.log else ""
    for x, size, said in ((12, 12, figure.quantity), (27, 10, f"{figure.average}, smallest, largest{scale}")):
        turned = f'text-anchor="middle" transform="rotate(-90 {x} {at})"'
        body.append(f'<text x="{x}" y="{at}" font-size="{size}" {turned}>{escape(said)}</text>')
    legend, end = _legend(figure, TOP + HEIGHT + below + 14)
    tall = end + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT:.0f} {tall:.0f}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="#fff"/>' + "\n".join([*body, *legend]) + "</svg>\n"
    )


def as_html(figure: Figure) -> str:
    """The drawing with a name that a page can point at."""
    return f'<figure id="figure-{escape(figure.name)}">{svg(figure)}</figure>'
