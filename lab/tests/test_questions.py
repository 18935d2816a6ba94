"""What a reviewer would ask, answered from the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quiver_lab.reproduce import design, page
from quiver_lab.store import Store
from test_control import BED
from test_reproduce import make


def answers(store: Store, folder: Path, paper: str) -> str:
    path, _ = page.build(store, design(paper), folder)
    text = path.read_text(encoding="utf-8")
    return text[text.index('<dl id="asked">') : text.index("</dl>")]


def test_answers_say_what_the_results_say(tmp_path: Path) -> None:
    store = make("kosak2025", tmp_path / "o", testbed=BED, control="fdio-vpp", repeats=3)
    said = answers(store, tmp_path / "r", "kosak2025")
    for words in (
        "have valid runs.", "0 of ", "Each cell has 3 repeats", "drawn anew for each repeat", "quiver on none:",
        "fdio-vpp was measured beside quiver;", "tells of quiver: ", "Nothing: every value is of a trial.",
        "The others take ",
    ):  # fmt: skip
        assert words in said
    assert said.count("<dt>") == said.count("<dd>") == 7


def test_without_a_control_and_with_a_slow_tester_it_is_said(tmp_path: Path) -> None:
    bed: dict[str, Any] = {
        "kind": "simulated", "devices": {n: {"capacity_pps": 1e6, "tester_max_pps": 1e5} for n in ("quiver", "linux")},
    }  # fmt: skip
    said = answers(make("kosak2025", tmp_path / "o", testbed=bed, repeats=1), tmp_path / "r", "kosak2025")
    assert "On none 0 of " in said
    assert "most often: the tester, not the device, is the limit" in said
    assert "That was not looked at: quiver alone took the place" in said


@pytest.mark.parametrize("paper", ["slavik2025"])
def test_modelled_values_are_counted(paper: str, tmp_path: Path) -> None:
    said = answers(make(paper, tmp_path / "o", repeats=1), tmp_path / "r", paper)
    assert "values are modelled." in said
    assert "Nothing: every value" not in said
