"""The papers' campaigns rebuilt: what they measured, row by row and column by column, on the machine at hand.

A reproduction is a campaign like any other (``campaign.yaml`` in its folder), made here from the paper's layout and from what
the caller says about the machine. Cells that the machine cannot carry are in it too: they come out absent, with the reason.
Afterwards its results are laid beside the published values (``beside.py``) and held against the paper's findings
(``evidence.py``).
"""

from __future__ import annotations

from quiver_lab.reproduce.design import Design, Options, Scale, campaign_text
from quiver_lab.reproduce.kosak2025 import KOSAK2025
from quiver_lab.reproduce.linguaglossa2019 import LINGUAGLOSSA2019
from quiver_lab.reproduce.slavik2025 import SLAVIK2025

DESIGNS: dict[str, Design] = {d.name: d for d in (SLAVIK2025, KOSAK2025, LINGUAGLOSSA2019)}
"""By paper."""


def design(paper: str) -> Design:
    """The design of a paper's campaign."""
    if paper not in DESIGNS:
        raise ValueError(f"unknown paper '{paper}': one of {', '.join(DESIGNS)}")
    return DESIGNS[paper]


__all__ = ["DESIGNS", "Design", "Options", "Scale", "campaign_text", "design"]
