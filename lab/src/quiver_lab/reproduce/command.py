"""``quiver-lab reproduce``: make the campaign, say what it takes, run it, lay it beside the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from quiver_lab import campaign as campaigns
from quiver_lab import facts, runner
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.reproduce import design as find_design
from quiver_lab.reproduce.design import Design, Options, Scale, campaign_text
from quiver_lab.store import Store, StoreError

SCALED = ("slavik2025",)
"""Papers of fixed rates, whose scale is measured."""
OFFERED = {
    "linguaglossa2019": Scale(
        1.0, "nothing is scaled: 14.88 Mpps are offered, the paper's line rate; what the tester sent is shown"
    )
}


def parse_scale(text: str) -> Scale:
    """Read ``1/200`` or ``0.005``."""
    over, _, under = text.partition("/")
    try:
        factor = float(over) / float(under or 1)
    except (ValueError, ZeroDivisionError):
        factor = 0.0
    if not 0 < factor <= 1:
        raise ValueError(f"scale '{text}': write it as 1/200 or 0.005; above 0, at most 1")
    return Scale(factor, f"{text}, given by hand")


def default_scale(paper: str) -> Scale:
    """Of papers whose rates need none."""
    return OFFERED.get(paper, Scale(1.0, "nothing is scaled: searches have no rates"))


def parse_only(words: list[str]) -> Callable[[Cell], bool] | None:
    """Read ``key=value`` restrictions: a cell is run where all hold; several values of one key are alternatives."""
    wanted: dict[str, set[str]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in Cell.model_fields:
            raise ValueError(f"--only '{word}': write it as key=value, key one of {', '.join(Cell.model_fields)}")
        wanted.setdefault(key, set()).add(value)
    if not wanted:
        return None
    return lambda cell: all(str(getattr(cell, key)) in values for key, values in wanted.items())


def choose(planned: list[runner.Planned], words: list[str]) -> list[runner.Planned]:
    """The cells that all restrictions let through; an error names the values there are where that is none."""
    only = parse_only(words)
    chosen = [p for p in planned if only is None or only(p.cell)]
    if not chosen:
        keys = dict.fromkeys(word.partition("=")[0] for word in words)
        there = (f"{key}={'|'.join(sorted({str(getattr(p.cell, key)) for p in planned}))}" for key in keys)
        raise ValueError(f"--only {' '.join(words)}: no cell is like that; there are {', '.join(there)}")
    return chosen


def summary(c: Campaign, planned: list[runner.Planned], clock: Callable[[float], str]) -> list[str]:
    """What the campaign takes, and what of it this machine cannot carry: each reason once, with the number of cells."""
    here = [p for p in planned if p.absent is None]
    trials, seconds = (sum(getattr(p, key) for p in here) * c.repeats for key in ("trials", "seconds"))
    lines = [
        f"{c.name}: {len(planned)} cells × {c.repeats} repeats",
        f"{len(here)} cells can be measured here: at most {trials} trials, about {clock(seconds)}",
        "trials that the machine disturbs are made again",
    ]
    reasons: dict[str, int] = {}
    for p in planned:
        if p.absent is not None:
            reasons[p.absent] = reasons.get(p.absent, 0) + 1
    lines += [f"  {n} cells not: {why}" for why, n in reasons.items()]
    return lines


def begin(
    paper: str,
    options: Options,
    out: Path | None,
    *,
    scale: str | None,
    resume: bool,
    measure: Callable[[Options], tuple[Scale, Scale | None]] | None,
) -> tuple[Design, Campaign, str]:
    """The campaign of a reproduction: the one in the folder where that is gone on with, else a new one.

    Scales of a paper of fixed rates are measured once, before the first run, and then stand in the campaign file. One that is
    given by hand is that of all ports.
    """
    design = find_design(paper)
    if out is not None and resume and (out / "campaign.yaml").exists():
        c, text = campaigns.load(out / "campaign.yaml")
        if c.reproduces != paper:
            raise StoreError(f"{out} holds {'no reproduction' if not c.reproduces else c.reproduces}: give another folder")
        return design, c, text
    best: Scale | None = None
    if scale is not None:
        chosen = parse_scale(scale)
    elif paper in SCALED:
        unknown = Scale(1.0, "measured when the campaign begins (or --scale)")
        chosen, best = measure(options) if measure is not None else (unknown, None)
    else:
        chosen = default_scale(paper)
    text = campaign_text(design, replace(options, scale=chosen, best_scale=best))
    return design, campaigns.parse(text, paper), text


def create(out: Path, c: Campaign, text: str, *, resume: bool) -> Store:
    """The folder of results."""
    return Store.create(out, c, text, facts.machine(), resume=resume)
