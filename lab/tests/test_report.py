"""Reports: what a page holds, that it needs no network, and that its words follow from the numbers."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from quiver_lab import campaign, facts
from quiver_lab.report import build, number, recommend, scaling, tables
from quiver_lab.runner import Runner
from quiver_lab.store import Store
from test_campaign import BASE

pytestmark = pytest.mark.xdist_group("report")
"""They share what is slow to make."""

DEVICES = {
    "fast": {"capacity_pps": 800_000, "noise": 0.002},
    "same": {"capacity_pps": 800_000, "noise": 0.002},
    "slow": {"capacity_pps": 80_000, "noise": 0.002},
}
FULL: dict[str, Any] = {
    **BASE,
    "name": "page",
    "testbed": {"kind": "simulated", "devices": DEVICES},
    "matrix": {
        "dut": ["fast", "same", "slow"], "link": ["none"], "workers": [1, 2], "frame_bytes": [64, 512],
        "procedure": ["p", "latency"],
    },
    "procedures": {
        "p": {"kind": "throughput", "duration_s": 2, "resolution_pps": 1000},
        "latency": {"kind": "latency", "search_s": 2, "duration_s": 2, "resolution_pps": 1000, "fractions": [0.1, 1.0]},
    },
    "exclude": [{"procedure": "latency", "workers": 2}],
    "repeats": 5,
    "odd_runs": {"repeat_at_most": 0},
}  # fmt: skip


def make(folder: Path, **changes: Any) -> Store:
    text = yaml.safe_dump({**FULL, **changes})
    store = Store.create(folder, campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make(tmp_path_factory.mktemp("campaign") / "o")


class Page(HTMLParser):
    """Tables by id, and every address that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.text: list[str] = []
        self.rows: dict[str, int] = {}
        self._table = ""
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._script = tag in ("script", "style")
        for key in ("src", "href", "data", "poster"):
            if values.get(key):
                self.fetched.append(str(values[key]))
        if tag == "link":
            self.fetched.append("link")
        if tag == "table":
            self._table = values.get("id") or ""
        if tag == "tr":
            self.rows[self._table] = self.rows.get(self._table, -1) + 1

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if not self._script:
            self.text.append(data)


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@pytest.fixture(scope="module")
def built(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(store, tmp_path_factory.mktemp("report"))


def test_page_is_whole_and_fetches_nothing(store: Store, built: Path) -> None:
    path = built
    page = read(path)
    assert page.fetched == []
    words = " ".join(" ".join(page.text).split())
    assert "Quick:" in words
    assert "no energy measured" in words
    assert "watt-hour" not in words
    assert page.rows["results"] == len(tables.rows(store))
    assert page.rows["versus"] == len(tables.between_devices(tables.rows(store)))
    for heading in ("In short", "Results", "Workers", "Device against device", "What it cost", "How it was measured",
                    "Where each device loses, and where it wins", "Recommendation"):  # fmt: skip
        assert heading in words
    text = path.read_text(encoding="utf-8")
    assert text.count("<svg") >= 3
    # Nothing has to be run to look at it, and mail carries it.
    assert "<script" not in text
    assert len(text) < 500_000


def test_figures_are_drawings(built: Path) -> None:
    drawings = sorted(built.parent.glob("*.svg"))
    # Throughput, throughput of the latency procedure; latency over load and over percentiles for two sizes.
    assert len(drawings) == 6
    for drawing in drawings:
        ElementTree.parse(drawing)


def test_tables_hold_every_value(store: Store, built: Path) -> None:
    with (built.parent / "results.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(tables.rows(store))
    for line, row in zip(lines, tables.rows(store), strict=True):
        assert float(line["median"]) == row.summary.median
        assert [float(v) for v in line["values"].split()] == list(row.values)
    latex = (built.parent / "results.tex").read_text(encoding="utf-8")
    assert latex.count(r"\\") == 1 + sum(r.primary for r in tables.rows(store))
    assert "throughput\\_pps" in latex
    assert re.search(r"(?<!\\)_", latex) is None


def test_outcomes_follow_from_the_numbers(store: Store) -> None:
    versus = [v for v in tables.between_devices(tables.rows(store)) if v.cell.procedure == "p"]
    assert len(versus) == 2 * 2 * 3
    for v in versus:
        if {v.name_a, v.name_b} == {"fast", "same"}:
            continue
        assert v.words == f"{v.name_a} is better"
        assert v.comparison.cliffs_delta == 1
    standing = {s.dut: s for s in tables.standings(versus)}
    assert len(standing["slow"].loses) == 8
    assert not standing["slow"].wins
    assert not standing["fast"].loses or not standing["same"].loses
    assert all("slow" not in line for line in recommend(versus))
    assert len(recommend(versus)) == 4


def test_scale_up_of_devices_whose_workers_add_up(store: Store) -> None:
    found = [s for s in scaling(tables.rows(store)) if s.workers == 2]
    assert len(found) == 6
    assert all(s.scale == pytest.approx(1, abs=0.02) and s.half == pytest.approx(2, abs=0.04) for s in found)


def test_too_few_repeats_are_not_called_a_difference(tmp_path: Path) -> None:
    few = make(tmp_path / "o", repeats=3, matrix={**FULL["matrix"], "procedure": ["p"], "workers": [1], "frame_bytes": [64]})
    words = {v.words for v in tables.between_devices(tables.rows(few))}
    assert words == {"too few repeats to tell (p cannot get below 0.1)"}


def test_energy_is_shown_where_a_meter_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiver_lab.meters.IDLE_S", 0.05)
    bed = {**FULL["testbed"], "meter": "simulated", "simulated_watts": 90}
    metered = make(tmp_path / "o", testbed=bed, repeats=1, matrix={**FULL["matrix"], "workers": [1], "frame_bytes": [64]})
    words = " ".join(" ".join(read(build(metered, tmp_path / "r")).text).split())
    assert "packets per Wh" in words
    assert "no energy measured" not in words
    assert "90.0 W" in words
    assert all(u.packets_per_watt_hour for u in tables.uses(metered).values())


def test_cells_that_are_absent_stand_there_with_their_reason(tmp_path: Path) -> None:
    text = yaml.safe_dump(
        {**FULL, "testbed": {"kind": "local"}, "description": "a < b", "matrix": {"dut": ["nobody"], "procedure": ["p"]}}
    )
    empty = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    Runner(empty).run()
    path = build(empty, tmp_path / "r")
    page = read(path)
    assert page.rows["gaps"] == 1
    assert "there is no adapter named 'nobody'" in " ".join(page.text)
    assert "a &lt; b" in path.read_text(encoding="utf-8")


def test_an_archive_makes_the_same_report_and_figures(store: Store, built: Path, tmp_path: Path) -> None:
    import tarfile  # noqa: PLC0415

    store.archive(tmp_path / "a.tar.xz")
    with tarfile.open(tmp_path / "a.tar.xz") as tar:
        tar.extractall(tmp_path / "again", filter="data")
    build(Store.open(tmp_path / "again" / "page"), tmp_path / "r2")
    for file in built.parent.iterdir():
        assert file.read_bytes() == (tmp_path / "r2" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0.12345, "0.123"), (999.4, "999"), (1234567.8, "1\u202f234\u202f568")]
)
def test_numbers_are_printed_for_readers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("quantity", "better"),
    [
        ("throughput_pps", True),
        ("burst_frames", True),
        ("latency_mean_us", False),
        ("loss_percent", False),
        ("lost_frames", False),
        ("reset_lost_frames", False),
        ("unsent_percent", False),
    ],
)
def test_which_way_is_better(quantity: str, better: bool) -> None:
    assert tables.higher_is_better(quantity) is better


def test_devices_without_valid_runs_are_not_compared_and_the_page_says_so(tmp_path: Path) -> None:
    slow_tester = {n: {"capacity_pps": 800_000, "tester_max_pps": 10_000} for n in ("fast", "slow")}
    matrix = {"dut": ["fast", "slow"], "link": ["none"], "workers": [1], "frame_bytes": [64], "procedure": ["p"]}
    changes = {"testbed": {"kind": "simulated", "devices": slow_tester}, "matrix": matrix, "exclude": [], "repeats": 1}
    store = make(tmp_path / "o", **changes)
    rows = tables.rows(store)
    assert rows
    assert not any(r.valid for r in rows)
    assert tables.between_devices(rows) == []
    text = build(store, tmp_path / "page").read_text(encoding="utf-8")
    assert "Nothing is compared: two devices share 1 cells, and in none of them two have valid runs." in text
    assert "not valid: no repeat was" in text


def test_a_run_without_a_value_is_named_with_its_reason(tmp_path: Path) -> None:
    matrix = {"dut": ["dead"], "link": ["none"], "workers": [1], "frame_bytes": [64], "procedure": ["p"]}
    dead = {"kind": "simulated", "devices": {"dead": {"capacity_pps": 0}}}
    store = make(tmp_path / "o", testbed=dead, matrix=matrix, exclude=[], repeats=1)
    (gap,) = tables.gaps(store.runs())
    assert gap.status == "no value"
    assert "no rate passed without loss" in gap.why
    text = build(store, tmp_path / "page").read_text(encoding="utf-8")
    assert "Nothing is compared: one device was measured." in text
