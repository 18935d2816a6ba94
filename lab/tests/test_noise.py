"""Trials that the machine disturbed: told by the canary and the tester's account, made again, and never taken for the device's.

Time is virtual and chance is seeded: a machine whose neighbours come and go is a generator of numbers.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign, devices, facts, noise, runner
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.canary import Speed
from quiver_lab.devices import Bench
from quiver_lab.noise import CoreCanary, Watch
from quiver_lab.oddity import Latest
from quiver_lab.records import RunRecord
from quiver_lab.report import build
from quiver_lab.rules import NoiseRule
from quiver_lab.runner import Runner
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.store import Store
from quiver_lab.trial import Direction, Trial
from test_campaign import BASE

TRUTH_PPS = 7e6
RULE = NoiseRule()


class Machine:
    """A neighbour comes before a share of trials and takes half of the cores' speed, from before such a trial to after it.

    The tester's account is unremarkable: all is sent, and frames are lost.
    """

    def __init__(self, share: float, seed: int, *, watched: bool = True) -> None:
        self.chance = random.Random(seed)
        self.share = share
        self.watched = watched
        self.reads = 0
        self.busy = False

    def read(self) -> Mapping[str, Speed]:
        if self.reads >= noise.CALIBRATIONS and (self.reads - noise.CALIBRATIONS) % 2 == 0:
            self.draw()
        self.reads += 1
        return {core: Speed(5e8 if self.busy else 1e9, 1.0) for core in ("0", "1")}

    def draw(self) -> None:
        """Whether the neighbour is there from now on."""
        self.busy = self.chance.random() < self.share


class Victim(SimulatedDevice):
    """A device on that machine: with a neighbour it forwards a tenth to a half of what it could."""

    machine: Machine | None = None

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        capacity = self.capacity_pps
        assert self.machine is not None
        if not self.machine.watched:
            self.machine.draw()
        if self.machine.busy:
            self.capacity_pps = capacity * self.machine.chance.uniform(0.1, 0.5)
        try:
            return super().measure(rate_pps, duration_s)
        finally:
            self.capacity_pps = capacity


class Adapter(devices.Adapter):
    """The victim in a campaign."""

    machine: Machine | None = None

    def absent(self, cell: Cell) -> str | None:
        return None

    @contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        device = Victim(capacity_pps={"a": TRUTH_PPS, "b": TRUTH_PPS / 2}[cell.dut])
        device.machine = self.machine

        def readings() -> dict[str, float | None]:
            """What only the device knows: how many trials it saw since it was told to forget."""
            return {"seen": float(len(device.calls))}

        yield Bench(device, readings=readings, forget=device.calls.clear)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *, share: float, seed: int, **changes: Any) -> Store:
    document = {
        **BASE, "testbed": {"kind": "local", "meter": "none"}, "line_rate": "10Gbps",
        "matrix": {"dut": ["a"], "link": ["memif"], "procedure": ["p"]},
        "procedures": {"p": {"kind": "throughput", "duration_s": 2, "resolution_pps": 1000}},
        "repeats": 1, "odd_runs": {"repeat_at_most": 0}, **changes,
    }  # fmt: skip
    text = yaml.safe_dump(document)
    store = Store.create(folder, campaign.parse(text), text, facts.machine(), resume=False)
    machine = Machine(share, seed, watched=changes.get("noise") is None)

    def adapter(name: str, c: Campaign, *_: object) -> Adapter:
        made = Adapter(c)
        made.machine = machine
        return made

    monkeypatch.setattr(runner, "adapter", adapter)
    Runner(store, canary=machine).run()
    return store


def of(store: Store) -> list[RunRecord]:
    return [r for latest in Latest.by_cell(store.runs()) for r in latest.last()]


def test_a_search_finds_the_truth_though_a_fifth_of_its_trials_is_spoilt_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for seed in range(40):
        store = run(tmp_path / f"{seed}", monkeypatch, share=0.2, seed=seed)
        (record,) = of(store)
        found.append(record.values["throughput_pps"] or 0.0)
    # The bound: the fifth percentile of the answer above 6.5 Mpps.
    assert sorted(found)[len(found) // 20] > 6.5e6
    assert max(found) <= TRUTH_PPS
    blind = []
    for seed in range(20):
        store = run(tmp_path / f"blind-{seed}", monkeypatch, share=0.2, seed=seed, noise={"watch": "none"})
        (record,) = of(store)
        blind.append(record.values["throughput_pps"] or 0.0)
    assert sorted(blind)[len(blind) // 20] < 4e6, "without the canary the same machine deceives"


def test_an_overload_that_was_disturbed_to_the_end_is_not_the_devices_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overload = {"p": {"kind": "r-plus", "offered": "14Mpps", "duration_s": 2, "fractions": [0.5]}}
    store = run(tmp_path / "o", monkeypatch, share=0.6, seed=5, procedures=overload, repeats=30)
    records = of(store)
    good, bad = [[r for r in records if r.valid is valid] for valid in (True, False)]
    assert len(good) > 5
    assert len(bad) > 3
    assert {r.values["receive_rate_pps"] for r in good} == {TRUTH_PPS}
    # Its shares would be of another rate.
    assert {r.trials for r in bad} == {3}
    assert all(any(n.startswith("R+ is not the device's") for n in r.notes) for r in bad)


def test_a_trial_at_a_fixed_rate_is_made_again_and_both_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = {"p": {"kind": "fixed-rate", "rate": "6Mpps", "duration_s": 2}}
    store = run(tmp_path / "o", monkeypatch, share=0.4, seed=2, procedures=fixed, repeats=30)
    records = of(store)
    trials = list(store.trials())
    spoilt = [t for t in trials if t.disturbed]
    assert len(trials) > 30
    assert all("50 % of its speed" in why for t in spoilt for why in t.disturbed)
    # What was disturbed to the end is not valid; all others say what the device does.
    assert {r.values["loss_percent"] for r in records if r.valid} == {0.0}
    assert all(any("the machine was disturbed" in n for n in r.notes) for r in records if not r.valid)
    again = [r for r in records if r.valid and r.trials > 1]
    assert again
    # Its own counts are those of the last trial alone.
    assert {r.values["seen"] for r in records} == {1.0}
    assert all("made again" in " ".join(r.notes) for r in again)
    text = build(store, tmp_path / "page").read_text(encoding="utf-8")
    assert f"{len(spoilt)} of {len(trials)} trials" in text


def test_repetitions_are_bounded_and_then_the_run_is_not_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = {"p": {"kind": "fixed-rate", "rate": "6Mpps", "duration_s": 2}}
    store = run(tmp_path / "o", monkeypatch, share=1.0, seed=0, procedures=fixed)
    # A canary that never saw the machine quiet cannot know; it saw it quiet before the first trial.
    (record,) = of(store)
    assert record.trials == 1 + RULE.repeat_at_most
    assert not record.valid


def test_what_came_through_in_spite_of_a_disturbance_counts_for_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"p": {"kind": "throughput", "duration_s": 2, "resolution_pps": 1000, "max_rate": "100kpps"}}
    store = run(tmp_path / "o", monkeypatch, share=1.0, seed=0, procedures=slow)
    (record,) = of(store)
    assert record.values["throughput_pps"] == 100_000
    assert record.valid
    assert record.trials == 1


def values(record: str) -> dict[str, float]:
    """Without what only the process knows that set the device up."""
    found: dict[str, float] = yaml.safe_load(record)["values"]
    return {key: value for key, value in found.items() if key != "seen"}


def test_a_campaign_that_goes_on_judges_stored_trials_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = {"p": {"kind": "fixed-rate", "rate": "6Mpps", "duration_s": 2}}
    store = run(tmp_path / "o", monkeypatch, share=0.4, seed=2, procedures=fixed, repeats=10)
    before = {p: p.read_bytes() for p in (tmp_path / "o" / "runs").rglob("*.json")}
    for path in before:
        path.unlink()
    Runner(store, canary=Machine(0.0, 0)).run()
    after = {p: values(p.read_text()) for p in before}
    assert after == {p: values(b.decode()) for p, b in before.items()}


def test_no_comparison_changes_sign_on_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten campaigns of a machine with neighbours: the slower device is never found to be the faster one."""
    for seed in range(10):
        matrix = {"dut": ["a", "b"], "link": ["memif"], "procedure": ["p"]}
        store = run(tmp_path / f"{seed}", monkeypatch, share=0.3, seed=seed, matrix=matrix, repeats=5)
        medians = {
            dut: statistics.median(r.values["throughput_pps"] or 0.0 for r in of(store) if r.valid and r.run.cell.dut == dut)
            for dut in ("a", "b")
        }
        assert medians["a"] > 1.5 * medians["b"], seed


def trial(**machine: float) -> Trial:
    made = Trial(duration_s=2.0, valid=True, directions=(Direction(name="d", intended=10, sent=10, received=10, lost=0),))
    return Trial.model_validate({**made.model_dump(), "machine": machine})


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"stolen_s": 0.0, "preempted": 0}, ""),
        ({"stolen_s": 0.02, "preempted": 100}, ""),
        ({"stolen_s": 0.03, "preempted": 0}, "the hypervisor gave 0.03 s to others"),
        ({"stolen_s": 0.0, "preempted": 101}, "the tester's threads had to leave their core 101 times"),
        ({}, ""),
    ],
)
def test_the_testers_own_account_counts(machine: dict[str, float], said: str) -> None:
    assert "; ".join(noise.of_tester(trial(**machine), RULE)) == said


def test_a_core_of_its_own_is_the_testers_alone() -> None:
    watch = Watch(RULE, None, "0")
    watch.fastest = {"0": 1e9, "1": 1e9}
    shared = {"0": Speed(1e9, 0.5), "1": Speed(1e9, 1.0)}
    assert watch.disturbed(trial(), [shared]) == ("others had the tester's core 50 % of the time beside the trial",)
    # The device's core belongs to the device, which may poll.
    polling = {"0": Speed(1e9, 1.0), "1": Speed(1e9, 0.5)}
    assert watch.disturbed(trial(), [polling]) == ()


def test_a_faster_moment_raises_the_bar() -> None:
    speeds = iter([1.0] * noise.CALIBRATIONS + [1.0, 1.5, 1.0])

    class Falling:
        def read(self) -> Mapping[str, Speed]:
            return {"0": Speed(next(speeds), 1.0)}

    watch = Watch(RULE, Falling(), "0")
    first = [watch.read(), watch.read()]
    assert watch.disturbed(trial(), first) == ("core 0 had 67 % of its speed",)
    assert watch.disturbed(trial(), [watch.read()]) == ("core 0 had 67 % of its speed",)


def test_the_canary_of_this_machine_reads_its_cores_and_leaves_the_thread_where_it_was() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    found = CoreCanary((core, 4095)).read()
    assert os.sched_getaffinity(0) == before
    assert set(found) == {str(core)}
    assert found[str(core)].bytes_per_cpu_s > 0
    assert 0 < found[str(core)].share <= 1
