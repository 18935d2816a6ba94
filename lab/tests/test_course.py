"""What a report shows beside values: the course of trials, how tester and device were joined, what devices counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from quiver_lab import campaign, facts
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.records import RunId, RunRecord, TrialRecord
from quiver_lab.report import build, course, telemetry, topology
from quiver_lab.runner import Runner
from quiver_lab.store import Store
from quiver_lab.trial import Direction, SeriesPoint, Trial
from test_campaign import BASE


def of(**matrix: Any) -> tuple[Campaign, Cell]:
    c = campaign.parse(yaml.safe_dump({**BASE, "testbed": {"kind": "local"}, "matrix": {**BASE["matrix"], **matrix}}))
    return c, next(iter(c.cells()))


def trial(
    cell: Cell, points: Sequence[tuple[int, int]], *, valid: bool = True, directions: int = 1, repeat: int = 0
) -> TrialRecord:
    """A trial whose intervals of 0.1 s have so many frames sent and received."""
    series = tuple(SeriesPoint(t_s=(n + 1) / 10, sent=s, received=r, lost=s - r) for n, (s, r) in enumerate(points))
    sent, received = (sum(p[at] for p in points) for at in (0, 1))
    one = Direction(
        name="left-to-right", intended=sent, sent=sent, received=received, lost=max(0, sent - received), series=series
    )
    told = Trial(duration_s=len(points) / 10 or 1, valid=valid, directions=(one,) * directions)
    return TrialRecord(
        campaign="c", campaign_digest="", quick=True, run=RunId(cell=cell, repeat=repeat, attempt=0), ordinal=0, rate_pps=1000,
        duration_s=1, trial=told.model_dump(mode="json", by_alias=True),
    )  # fmt: skip


def test_a_course_has_the_rates_of_all_directions_while_frames_were_sent() -> None:
    _, cell = of()
    # The last interval is the tester's wait.
    found = course.of_trial(cell, trial(cell, [(100, 100)] * 4 + [(100, 60), (0, 0)], directions=2))
    assert found is not None
    assert [round(i.received_pps) for i in found.intervals] == [2000] * 4 + [1200]
    assert [round(i.lost_pps) for i in found.intervals] == [0] * 4 + [800]
    assert (round(found.least), round(found.most), found.lossy) == (1200, 2000, 1)


def test_frames_under_way_are_no_loss_and_their_arrival_no_gain() -> None:
    _, cell = of()
    found = course.of_trial(cell, trial(cell, [(100, 90), (100, 110), (100, 100), (100, 100), (100, 100)]))
    assert found is not None
    assert [round(i.lost_pps) for i in found.intervals] == [100, 0, 0, 0, 0]


def test_long_trials_have_several_intervals_in_one_and_none_is_left_out() -> None:
    _, cell = of()
    found = course.of_trial(cell, trial(cell, [(10, 9)] * 605))
    assert found is not None
    assert len(found.intervals) <= course.POINTS
    assert found.intervals[-1].end_s == pytest.approx(60.5)
    assert {round(i.received_pps) for i in found.intervals} == {90}


@pytest.mark.parametrize("points", [[], [(100, 100)] * (course.LEAST - 1), [(0, 0)] * 9])
def test_what_has_no_course_has_none(points: list[tuple[int, int]]) -> None:
    _, cell = of()
    assert course.of_trial(cell, trial(cell, points)) is None


def test_of_a_cell_the_last_valid_trial_is_shown_or_else_the_last() -> None:
    _, cell = of()
    good, bad = trial(cell, [(100, 100)] * 5), trial(cell, [(200, 200)] * 5, valid=False, repeat=1)
    (shown,) = course.courses([cell], [good, bad])
    assert (shown.valid, round(shown.most)) == (True, 1000)
    (shown,) = course.courses([cell], [bad])
    assert not shown.valid
    assert "stroke-dasharray" in course.svg(shown)
    assert course.courses([cell], []) == []


def test_the_drawing_is_one_and_says_what_it_shows() -> None:
    _, cell = of()
    found = course.of_trial(cell, trial(cell, [(100, 100), (100, 0), (100, 100), (100, 100), (100, 100)]))
    assert found is not None
    text = course.svg(found)
    root = ElementTree.fromstring(text)
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 1
    assert "0 to 1k packets/s in 0.5 s" in text


def done(cell: Cell, repeat: int = 0, **telemetry_of: Any) -> RunRecord:
    device = {"cores": [1], "driver": "af-xdp", "rx_mode": "polling"}
    return RunRecord(
        campaign="c", campaign_digest="", quick=True, run=RunId(cell=cell, repeat=repeat, attempt=0), status="done",
        device=device, telemetry=telemetry_of,
    )  # fmt: skip


def test_each_kind_of_link_is_drawn_with_cores_ports_and_addresses() -> None:
    c, cell = of(dut=["quiver"], link=["veth", "memif", "pg"])
    cells = list(c.cells())
    found = {t.link: t for t in topology.topologies(c, cells, [done(x) for x in cells])}
    assert list(found) == ["veth", "memif", "pg"]
    assert found["veth"].boxes == (
        ("quiver-tester", "core 0", "ports: af-packet"),
        ("quiver: core 1, af-xdp, polling",),
    )
    assert found["veth"].wires == ("left: 198.18.0.2 – 198.18.0.1", "right: 198.19.0.2 – 198.19.0.1")
    assert len(found["pg"].boxes) == 1
    assert found["pg"].wires == ()
    for t in found.values():
        text = topology.svg(t)
        ElementTree.fromstring(text)
        assert "quiver: core 1" in text
    assert cell.link == "veth"


def test_a_device_whose_facts_are_not_known_is_named_all_the_same() -> None:
    c, cell = of(dut=["other"], link=["veth"])
    (found,) = topology.topologies(c, [cell], [])
    assert found.boxes[1] == ("other",)
    marked = done(cell).model_copy(update={"device": {"driver": "a<b"}})
    (found,) = topology.topologies(c, [cell], [marked])
    assert "other: a&lt;b" in topology.svg(found)


def test_counters_are_files_of_the_last_run(tmp_path: Path) -> None:
    c, cell = of(frame_bytes=[64, 128])
    other = list(c.cells())[1]
    runs = [done(cell, 1, runtime="Thread 1\n", ports={"rx": 2}), done(cell, 0, runtime="old"), done(other)]
    assert telemetry.write([cell, other], runs, tmp_path) == 1
    (file,) = (tmp_path / telemetry.FOLDER).iterdir()
    assert file.name == f"{cell.slug}.txt"
    assert file.read_text() == f'{cell.slug}, repeat 2, attempt 1\n\n== runtime\nThread 1\n\n== ports\n{{\n "rx": 2\n}}\n'
    assert telemetry.write([cell], [done(cell)], tmp_path / "none") == 0


def test_the_page_shows_courses_and_topology(tmp_path: Path) -> None:
    text = yaml.safe_dump({
        **BASE, "quick": True, "testbed": {"kind": "simulated", "devices": {"a": {"capacity_pps": 1e6}}},
        "matrix": {"dut": ["a"], "link": ["none"], "procedure": ["p"]}, "repeats": 1,
        "procedures": {"p": {"kind": "recovery", "search_s": 2, "resolution_pps": 1000, "overload_s": 2, "after_s": 2}},
    })  # fmt: skip
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    page = build(store, tmp_path / "report").read_text(encoding="utf-8")
    assert page.count("<polyline") == 1
    assert "In the course of a trial" in page
    assert "A simulated device (none)" in page
    assert "What the devices counted" not in page
