"""The report in a real browser: its plots are drawn, and it asks no network for anything.

Headless Chromium opens the page of stored, simulated results. Skips, visibly, where there is no browser; under QUIVER_CI=1
that is a failure. With QUIVER_SCREENSHOTS=FOLDER what was seen is kept there.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from quiver_lab.processes import find
from quiver_lab.report import build
from quiver_lab.runner import Runner
from test_stateful import NAT, make

pytestmark = pytest.mark.xdist_group("browser")
"""They share what is slow to make."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--hide-scrollbars",
    # What is not on this machine is nowhere.
    "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=3000",
)  # fmt: skip
BOUND_S = 240
"""Far more than a page takes; only so that a browser that hangs is an error."""


@dataclass(frozen=True)
class Browser:
    program: str
    profile: Path

    def run(self, page: Path, *more: str) -> tuple[str, str]:
        """What it prints, and what the page said to its console."""
        command = [self.program, *FLAGS, f"--user-data-dir={self.profile}", *more, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    program = next((p for name in ("chromium", "chromium-browser") if (p := find(name, {}))), None)
    if program is None:
        if os.environ.get("QUIVER_CI") == "1":
            pytest.fail("chromium is not installed (scripts/install-packages ci)")
        pytest.skip("chromium is not installed")
    return Browser(program, tmp_path_factory.mktemp("chromium"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a campaign with rates, latencies and connection tables, of which some cells are absent."""
    folder = tmp_path_factory.mktemp("page")
    procedures = {
        **NAT["procedures"],
        "rfc2544": {"kind": "throughput", "duration_s": 2},
        "latency": {"kind": "latency", "search_s": 2, "duration_s": 2, "resolution_pps": 1000},
    }
    plain = {"dut": ["a", "b"], "link": ["none"], "frame_bytes": [64, 512], "procedure": ["rfc2544", "latency"]}
    devices = {**NAT["testbed"]["devices"], "b": {"capacity_pps": 3e5, "noise": 0.01}}
    store = make(
        folder / "o", procedures=procedures, further=[plain], repeats=4, line_rate="1Gbps",
        testbed={"kind": "simulated", "devices": devices},
    )  # fmt: skip
    Runner(store).run()
    return build(store, folder / "page")


def test_plots_are_drawn_and_nothing_goes_wrong(browser: Browser, page: Path) -> None:
    asked = re.findall(r'<figure id="(figure-[^"]+)"', page.read_text(encoding="utf-8"))
    assert len(asked) >= 5
    dom, console = browser.run(page, "--dump-dom")
    assert console == ""
    for name in asked:
        part = dom[dom.index(f'id="{name}"') :]
        part = part[: part.index("</figure>")]
        assert part.count("<svg") == 1, name
        assert part.count("<title>") >= 1, name
    for table in ("results", "versus", "connections", "gaps"):
        assert dom.count(f'<table id="{table}">') == 1
    assert "Recommendation" in dom


def test_a_page_that_is_not_well_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text("<!doctype html><title>t</title><script>console.error('seen')</script>")
    _, console = browser.run(broken, "--dump-dom")
    assert "seen" in console


def test_the_page_has_a_look(browser: Browser, page: Path, tmp_path: Path) -> None:
    kept = os.environ.get("QUIVER_SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "report.png"
    browser.run(page, "--window-size=1280,6000", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    # An empty page of this size is a few kB.
    assert picture.stat().st_size > 30_000
