"""The page that leads to several campaigns."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from quiver_lab.cli import app
from quiver_lab.report import build, index
from quiver_lab.runner import Runner
from quiver_lab.store import Store, StoreError
from test_runner import make


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    """One whole with a report, one whose tester was too slow for one of two devices, without."""
    good = make(tmp_path / "good")
    Runner(good).run()
    build(good, good.root / "report")
    bed = {"kind": "simulated", "devices": {"a": {"capacity_pps": 1000}, "b": {"capacity_pps": 2000, "tester_max_pps": 10}}}
    slow = make(tmp_path / "slow", testbed=bed, description="a < b")
    Runner(slow).run()
    return [good, slow]


def test_each_campaign_is_counted_and_its_pages_are_linked(stores: list[Store], tmp_path: Path) -> None:
    good, slow = (index.of(store, tmp_path / "index.html") for store in stores)
    assert (good.cells, good.measured, good.valid, good.absent, good.failed) == (2, 2, 2, 0, 0)
    assert good.pages == (("report.html", "good/report/report.html"),)
    assert (slow.measured, slow.valid, slow.pages) == (2, 1, ())


def test_the_page_is_written_by_a_command_and_its_links_lead_somewhere(stores: list[Store], tmp_path: Path) -> None:
    page = tmp_path / "pages" / "index.html"
    done = CliRunner().invoke(app, ["index", *(str(s.root) for s in stores), "--out", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert 'href="../good/report/report.html"' in text
    assert (page.parent / "../good/report/report.html").exists()
    assert "no report yet" in text
    assert "a &lt; b" in text


def test_what_is_no_campaign_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["index", str(tmp_path), "--out", str(tmp_path / "i.html")])
    assert isinstance(done.exception, StoreError)
