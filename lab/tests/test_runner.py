"""Campaigns on simulated devices: order, resume, odd runs, refusal of what does not fit together."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import polars
import pytest
import yaml

from quiver_lab import campaign, facts
from quiver_lab import store as store_module
from quiver_lab.oddity import Latest, odd_runs
from quiver_lab.records import RunId, RunRecord
from quiver_lab.runner import Progress, Runner, plan
from quiver_lab.store import Store, StoreError
from quiver_lab.trial import Trial
from test_campaign import BASE


def make(folder: Path, *, resume: bool = False, **changes: Any) -> Store:
    text = yaml.safe_dump({**BASE, **changes})
    return Store.create(folder, campaign.parse(text), text, facts.machine(), resume=resume)


def content(folder: Path) -> dict[str, dict[str, Any]]:
    """All result files without what no two runs have in common."""
    out = {}
    for path in sorted(folder.rglob("r*.json")):
        record = json.loads(path.read_text())
        record.pop("core_busy", None)
        record.pop("energy", None)
        if "ordinal" not in record:
            # The device's facts are known to the process that set it up; one that only replayed has none.
            record.pop("device"), record.pop("telemetry")
        out[str(path.relative_to(folder))] = record
    return out


class Order(Progress):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def begin(self, run: RunId, done_s: float, total_s: float) -> None:
        self.seen.append((run.cell.dut, run.repeat))


def test_repeats_are_interleaved(tmp_path: Path) -> None:
    order = Order()
    Runner(make(tmp_path / "o", order="file"), order).run()
    assert order.seen == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_the_order_within_a_repeat_is_drawn_and_the_same_again(tmp_path: Path) -> None:
    first, again = Order(), Order()
    Runner(make(tmp_path / "o", repeats=12), first).run()
    Runner(make(tmp_path / "p", repeats=12), again).run()
    assert first.seen == again.seen
    assert [repeat for _, repeat in first.seen] == [n for n in range(12) for _ in range(2)]
    pairs = {tuple(dut for dut, repeat in first.seen if repeat == n) for n in range(12)}
    assert pairs == {("a", "b"), ("b", "a")}


def test_results_say_what_was_measured(tmp_path: Path) -> None:
    store = make(tmp_path / "o")
    Runner(store).run()
    runs = list(store.runs())
    assert [r.values["throughput_pps"] for r in runs] == [1000, 1000, 2000, 2000]
    assert {r.status for r in runs} == {"done"}
    assert all(r.quick for r in runs)
    trials = list(store.trials())
    assert len(trials) == sum(r.trials for r in runs)
    assert all(Trial.model_validate(t.trial).intended > 0 for t in trials)
    assert {p.name for p in (tmp_path / "o").iterdir()} == {"campaign.yaml", "machine.json", "trials", "runs"}
    assert store.machine["cores"] == os.cpu_count()


NOISY: dict[str, Any] = {
    "testbed": {"kind": "simulated", "devices": {"a": {"capacity_pps": 90_000, "noise": 0.01}, "b": {"capacity_pps": 2000}}},
    "repeats": 4,
}


def _campaign_that_dies(folder: str, after: int, moment: str) -> None:
    """Run until a file is written for the ``after``-th time, and die before, in the middle of, or right after it."""
    write = store_module._write
    count = 0

    def dying(path: Path, text: str) -> None:
        nonlocal count
        count += 1
        if count == after and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if count == after and moment == "amid":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(f".{path.name}.part").write_text(text[: len(text) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, text)
        if count == after:
            os.kill(os.getpid(), signal.SIGKILL)

    store_module._write = dying
    Runner(make(Path(folder), resume=True, **NOISY)).run()


def test_a_campaign_killed_ten_times_ends_with_the_same_trials(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    Runner(make(whole, **NOISY)).run()
    total = len(content(whole))
    make(killed, **NOISY)
    chance = random.Random(4)
    fork = multiprocessing.get_context("fork")
    for life in range(10):
        moment = chance.choice(["before", "amid", "after"])
        child = fork.Process(target=_campaign_that_dies, args=(str(killed), chance.randint(1, total // 11), moment))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL, (life, moment)
    Runner(make(killed, resume=True, **NOISY)).run()
    assert content(killed) == content(whole)


def test_resume_repeats_nothing_that_is_done(tmp_path: Path) -> None:
    store = make(tmp_path / "o", **NOISY)
    Runner(store).run()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("r*.json")}
    Runner(make(tmp_path / "o", resume=True, **NOISY)).run()
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("r*.json")} == before


def test_results_of_another_campaign_or_machine_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "o")
    with pytest.raises(StoreError, match="--resume"):
        make(tmp_path / "o")
    with pytest.raises(StoreError, match="another campaign"):
        make(tmp_path / "o", resume=True, repeats=3)
    machine = json.loads((tmp_path / "o" / "machine.json").read_text())
    (tmp_path / "o" / "machine.json").write_text(json.dumps({**machine, "kernel": "0.1"}))
    with pytest.raises(StoreError, match="kernel differ"):
        make(tmp_path / "o", resume=True)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "file").touch()
    with pytest.raises(StoreError, match="neither empty"):
        make(tmp_path / "p")


def test_a_broken_or_foreign_file_is_named(tmp_path: Path) -> None:
    store = make(tmp_path / "o")
    Runner(store).run()
    path = next((tmp_path / "o" / "runs").rglob("r00-a0.json"))
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "campaign_digest": "0"}))
    with pytest.raises(StoreError, match="belongs to another"):
        list(store.runs())
    path.write_text("{")
    with pytest.raises(StoreError, match="r00-a0"):
        list(store.runs())


def _record(store: Store, repeat: int, value: float | None, *, attempt: int = 0, valid: bool = True) -> RunRecord:
    cell = next(iter(store.campaign.cells()))
    return RunRecord(
        campaign="t", campaign_digest=store.digest, quick=True, status="done", valid=valid, primary="throughput_pps",
        run=RunId(cell=cell, repeat=repeat, attempt=attempt), values={"throughput_pps": value},
    )  # fmt: skip


def test_odd_runs_follow_the_rule(tmp_path: Path) -> None:
    store = make(tmp_path / "o")
    rule = store.campaign.odd_runs
    values = [100.0, 101.0, 99.0, 100.0, 60.0]
    records = [_record(store, i, v) for i, v in enumerate(values)]
    (cell,) = Latest.by_cell(records)
    assert [r.run.repeat for r in odd_runs(cell, rule)] == [4]
    # Its second attempt takes its place; the first is kept.
    (cell,) = Latest.by_cell([*records, _record(store, 4, 100.5, attempt=1)])
    assert odd_runs(cell, rule) == ()
    assert cell.values("throughput_pps") == (100, 101, 99, 100, 100.5)
    assert cell.values("throughput_pps", cell.first()) == tuple(values)
    invalid = [_record(store, i, 100.0, valid=i != 1) for i in range(3)]
    (cell,) = Latest.by_cell(invalid)
    assert [r.run.repeat for r in odd_runs(cell, rule)] == [1]


def test_odd_runs_are_repeated_at_most_twice_and_all_are_kept(tmp_path: Path) -> None:
    # Values of a scatter, and the rule is narrow: about half of them are odd.
    devices = {"a": {"capacity_pps": 90_000, "noise": 0.01}, "b": {"capacity_pps": 2000}}
    bed = {"kind": "simulated", "devices": devices}
    store = make(tmp_path / "o", testbed=bed, repeats=6, odd_runs={"mads": 1, "repeat_at_most": 2})
    Runner(store).run()
    by_repeat: dict[tuple[str, int], list[int]] = {}
    for record in store.runs():
        by_repeat.setdefault((record.run.cell.dut, record.run.repeat), []).append(record.run.attempt)
    assert all(attempts == list(range(len(attempts))) and len(attempts) <= 3 for attempts in by_repeat.values())
    assert max(len(a) for (dut, _), a in by_repeat.items() if dut == "a") > 1
    assert all(len(a) == 1 for (dut, _), a in by_repeat.items() if dut == "b")
    rule = store.campaign.odd_runs
    for cell in Latest.by_cell(store.runs()):
        assert all(r.run.attempt == rule.repeat_at_most for r in odd_runs(cell, rule))


def test_energy_of_a_known_draw_is_counted_and_idle_measured_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiver_lab.meters.IDLE_S", 0.05)
    store = make(tmp_path / "o", testbed={**BASE["testbed"], "meter": "simulated", "simulated_watts": 250})
    Runner(store).run()
    for record in store.trials():
        assert record.energy is not None
        assert record.energy.joules == pytest.approx(250 * record.energy.seconds, rel=1e-3, abs=1e-5)
        assert record.energy.idle_watts == pytest.approx(250, rel=1e-3)


SUDDEN: dict[str, Any] = {
    "testbed": {"kind": "simulated", "devices": {"a": {"capacity_pps": 1000, "recovery_s": 1.5, "reset_s": 2.5}}},
    "line_rate": "1344kbps",  # 2,000 frames of 64 bytes
    "matrix": {"dut": ["a"], "link": ["none"], "procedure": ["recovery", "reset"]},
    "procedures": {
        "recovery": {"kind": "recovery", "search_s": 1, "overload_s": 4, "after_s": 4},
        "reset": {"kind": "reset", "search_s": 1, "duration_s": 10, "reset_after_s": 2},
    },
    "repeats": 1,
}


def test_recovery_and_reset_of_known_times(tmp_path: Path) -> None:
    store = make(tmp_path / "o", **SUDDEN)
    Runner(store).run()
    found = {r.run.cell.procedure: r for r in store.runs()}
    assert {r.status for r in found.values()} == {"done"}, [r.why for r in found.values()]
    values = found["recovery"].values
    assert values["throughput_pps"] == 1000
    assert values["overload_pps"] == pytest.approx(1100)
    assert values["recovery_s"] == pytest.approx(1.5, abs=1e-6)
    assert found["recovery"].resolution == pytest.approx(0.1)
    assert "recovery is told to 0.1 s" in found["recovery"].notes
    assert found["reset"].values["reset_s"] == pytest.approx(2.5)
    # Resumed, it is the same without a trial.
    before = content(tmp_path / "o")
    for path in (tmp_path / "o" / "runs").rglob("*.json"):
        path.unlink()
    Runner(make(tmp_path / "o", resume=True, **SUDDEN)).run()
    assert content(tmp_path / "o") == before


def test_what_was_not_to_be_seen_of_recovery_and_reset_is_said(tmp_path: Path) -> None:
    never = {"capacity_pps": 1000, "recovery_s": 99, "reset_s": 99}
    bed = {"kind": "simulated", "devices": {"a": never, "b": {"capacity_pps": 1e6}}}
    store = make(tmp_path / "o", **{**SUDDEN, "testbed": bed, "matrix": {**SUDDEN["matrix"], "dut": ["a", "b"]}})
    Runner(store).run()
    found = {(r.run.cell.dut, r.run.cell.procedure): r for r in store.runs()}
    assert found["a", "recovery"].values["recovery_s"] is None
    assert "frames were still lost 4 s after the overload" in found["a", "recovery"].notes
    assert found["a", "reset"].values["reset_s"] is None
    assert "it did not come back within 8 s" in found["a", "reset"].notes
    assert found["b", "recovery"].values["recovery_s"] is None
    assert "the overload lost nothing: there was nothing to recover from" in found["b", "recovery"].notes
    assert not found["b", "recovery"].valid
    assert found["b", "reset"].values["reset_s"] == 0


def test_export_and_archive_hold_everything(tmp_path: Path) -> None:
    store = make(tmp_path / "o", matrix={**BASE["matrix"], "operation": ["bidirectional"]})
    Runner(store).run()
    trials = list(store.trials())
    assert store.export_parquet(tmp_path / "t.parquet") == 2 * len(trials)
    frame = polars.read_parquet(tmp_path / "t.parquet")
    assert frame.height == 2 * len(trials)
    assert set(frame["direction"].unique()) == {"left-to-right", "right-to-left"}
    assert frame["received"].sum() == sum(Trial.model_validate(t.trial).received for t in trials)
    count = store.archive(tmp_path / "a.tar.xz")
    assert count == len(trials) + 4 + 2
    first = (tmp_path / "a.tar.xz").read_bytes()
    store.archive(tmp_path / "b.tar.xz")
    assert (tmp_path / "b.tar.xz").read_bytes() == first
    import tarfile  # noqa: PLC0415

    with tarfile.open(tmp_path / "a.tar.xz") as tar:
        tar.extractall(tmp_path / "again", filter="data")
    assert [r.values for r in Store.open(tmp_path / "again" / "t").runs()] == [r.values for r in store.runs()]


def test_plan_counts_what_can_be_measured_here() -> None:
    text = yaml.safe_dump(
        {**BASE, "testbed": {"kind": "local"}, "matrix": {"dut": ["nobody", "linux"], "link": ["memif"], "procedure": ["p"]}}
    )
    absent = {p.cell.dut: p.absent for p in plan(campaign.parse(text))}
    assert absent == {"nobody": "there is no adapter named 'nobody'", "linux": "the kernel has no memif"}


def test_absent_cells_are_recorded_as_absent_and_never_as_zero(tmp_path: Path) -> None:
    store = make(tmp_path / "o", testbed={"kind": "local"}, matrix={"dut": ["nobody"], "procedure": ["p"]})
    Runner(store).run()
    (record,) = store.runs()
    assert record.status == "absent"
    assert record.values == {}
    assert list(Latest.by_cell(store.runs())) == []
