"""Campaigns on several testbeds: who measures what, in-process, by worker processes, and when workers die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from quiver_lab import beds, campaign, cluster, facts, spread, twohosts, worker
from quiver_lab.cli import app
from quiver_lab.processes import CommandError
from quiver_lab.records import RunId
from quiver_lab.report import tables
from quiver_lab.runner import Progress, plan
from quiver_lab.store import Store, StoreError
from quiver_lab.trial import Trial

KEYS: dict[str, Any] = {
    "schema": "quiver-campaign/1", "name": "many", "quick": True, "line_rate": "67.2Mbps",
    "matrix": {"dut": ["fast", "slow", "nobody"], "link": ["none"], "frame_bytes": [64, 128, 256], "procedure": ["p"]},
    "procedures": {"p": {"kind": "throughput", "duration_s": 1, "resolution_pps": 10}}, "repeats": 2,
}  # fmt: skip
DEVICES = {"fast": {"capacity_pps": 90_000, "noise": 0.01}, "slow": {"capacity_pps": 2000}}


def bed_file(folder: Path, name: str, **devices: Any) -> Path:
    file = folder / f"{name}.yaml"
    keys = {"schema": "quiver-testbed/1", "name": name, "kind": "simulated", "devices": devices or DEVICES}
    file.write_text(yaml.safe_dump(keys))
    return file


def begin(folder: Path, files: list[Path], *, resume: bool = False) -> tuple[Store, list[beds.Bed], str]:
    text = yaml.safe_dump(KEYS)
    c = campaign.parse(text)
    return Store.create(folder, c, text, facts.machine(), resume=resume), beds.of(c, folder, files), text


def in_process(folder: Path, files: list[Path], progress: Progress | None = None, *, resume: bool = False) -> list[str]:
    said: list[str] = []
    store, chosen, _ = begin(folder, files, resume=resume)
    spread.run(store, [spread.Here(bed) for bed in chosen], progress or Progress(), said.append)
    return said


def content(folder: Path) -> dict[str, Any]:
    """All results without what no two runs have in common."""
    out = {}
    for path in sorted(folder.rglob("r*.json")):
        record = json.loads(path.read_text())
        for key in ("core_busy", "energy", "device", "telemetry"):
            record.pop(key, None)
        out[str(path.relative_to(folder))] = record
    return out


def test_cells_are_shared_and_each_belongs_to_one_testbed(tmp_path: Path) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    assert in_process(tmp_path / "o", files) == []
    store = Store.open(tmp_path / "o")
    at: dict[tuple[str, int], set[str]] = {}
    for r in store.runs():
        if r.status == "done":
            at.setdefault((r.run.cell.dut, r.run.cell.frame_bytes), set()).add(r.testbed)
    assert len(at) == 6
    assert all(len(names) == 1 for names in at.values())
    # Devices that are compared stand on one testbed.
    assert all(at["fast", size] == at["slow", size] for size in (64, 128, 256))
    assert set.union(*at.values()) == {"a", "b"}
    absent = [r for r in store.runs() if r.status == "absent"]
    assert [(r.run.cell.dut, r.testbed, r.why) for r in absent] == [("nobody", "", "nobody is not among testbed.devices")] * 3
    assert sorted(store.testbeds) == ["a", "b"]
    rows = [r for r in tables.rows(store) if r.primary]
    assert {r.testbed for r in rows} == {"a", "b"}
    assert all(f"on testbed {r.testbed}" in r.notes for r in rows)
    assert {(v.cell.frame_bytes, v.name_a, v.name_b) for v in tables.between_devices(rows)} == {
        (size, "fast", "slow") for size in (64, 128, 256)
    }
    assert all(use.device_busy is None for use in tables.uses(store).values())


def test_what_only_one_testbed_can_do_goes_there() -> None:
    c = campaign.parse(yaml.safe_dump(KEYS))

    def planned(*devices: str) -> Any:
        bed = beds.read(yaml.safe_dump({
            "schema": "quiver-testbed/1", "name": "x", "kind": "simulated", "devices": dict.fromkeys(devices, DEVICES["fast"]),
        }), "x")  # fmt: skip
        return plan(c.model_copy(update={"testbed": bed}))

    found = spread.assign({"a": planned("fast"), "b": planned("fast", "slow"), "c": planned("nobody")}, {})
    where = {(p.cell.dut, p.cell.frame_bytes): name for name, cells in found.items() for p in cells}
    assert {where["fast", n] for n in (64, 128, 256)} == {where["slow", n] for n in (64, 128, 256)} == {"b"}
    assert where["nobody", 64] == "c"
    # What was begun elsewhere stays there, and what was begun on a testbed that is not here is left.
    slugs = {(p.cell.dut, p.cell.frame_bytes): p.cell.slug for cells in found.values() for p in cells}
    found = spread.assign({"a": planned("fast"), "b": planned("fast")}, {slugs["fast", 64]: "a", slugs["fast", 128]: "gone"})
    where = {(p.cell.dut, p.cell.frame_bytes): name for name, cells in found.items() for p in cells}
    assert where["fast", 64] == "a"
    assert ("fast", 128) not in where
    (slow,) = [p for p in found["a"] if p.cell.slug == slugs["slow", 64]]
    assert slow.absent == "slow is not among testbed.devices"


class Breaks(Progress):
    """Ends the campaign at a trial."""

    def __init__(self, after: int) -> None:
        self.left = after

    def trial(self, run: RunId, ordinal: int, trial: Trial, rate_pps: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyError("broken")


def test_resume_goes_on_where_cells_were_begun_and_refuses_another_testbed(tmp_path: Path) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    in_process(tmp_path / "whole", files)
    with pytest.raises(KeyError, match="broken"):
        in_process(tmp_path / "o", files, Breaks(30))
    begun = spread.owners(Store.open(tmp_path / "o"))
    # One of the two alone leaves the other's cells.
    said = in_process(tmp_path / "o", files[:1], resume=True)
    assert any("begun on testbed b, which is not here" in line for line in said) == ("b" in begun.values())
    in_process(tmp_path / "o", files, resume=True)
    done = {slug: name for slug, name in spread.owners(Store.open(tmp_path / "o")).items() if slug in begun}
    assert done == begun
    assert content(tmp_path / "o").keys() == content(tmp_path / "whole").keys()
    bed_file(tmp_path, "b", fast={"capacity_pps": 1})
    with pytest.raises(StoreError, match="testbed b is not as it was .testbed.devices.fast.capacity_pps"):
        in_process(tmp_path / "o", files, resume=True)


class Kills(Progress):
    """Kills the worker of a testbed in the middle of a run, once."""

    def __init__(self, store: Store, places: Sequence[spread.Place], name: str) -> None:
        self.store, self.name = store, name
        self.place: cluster.OnWorker = next(p for p in places if p.bed.name == name and isinstance(p, cluster.OnWorker))
        self.killed: list[RunId] = []
        self.stored: list[tuple[str, int, int]] = []

    def trial(self, run: RunId, ordinal: int, trial: Trial, rate_pps: float) -> None:
        self.stored.append((run.cell.slug, run.repeat, ordinal))
        record = self.store.trial(run, 0)
        assert record is not None
        if ordinal == 3 and record.testbed == self.name and not self.killed:
            self.killed.append(run)
            assert self.place.process is not None
            # It is not ahead: it asks before its next trial.
            os.kill(self.place.process.pid, signal.SIGKILL)


def test_a_worker_that_is_killed_costs_no_trial_that_was_stored(tmp_path: Path) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    in_process(tmp_path / "whole", files)
    store, chosen, text = begin(tmp_path / "o", files)
    said = list[str]()
    with cluster.places(chosen, text, ["local"]) as there:
        progress = Kills(store, there, "a")
        spread.run(store, there, progress, said.append)
    assert said == []
    assert len(progress.killed) == 1
    assert len(progress.stored) == len(set(progress.stored)), "a trial was made twice"
    assert content(tmp_path / "o") == content(tmp_path / "whole")
    # Nothing is left to do, and nothing is done.
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("r*.json")}
    store, chosen, text = begin(tmp_path / "o", files, resume=True)
    with cluster.places(chosen, text, ["local"]) as there:
        spread.run(store, there, Progress(), said.append)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("r*.json")} == before


def test_a_run_that_kills_its_workers_fails_and_the_others_go_on(tmp_path: Path) -> None:
    files = [bed_file(tmp_path, "a")]
    store, chosen, text = begin(tmp_path / "o", files)
    with cluster.places(chosen, text, ["local"]) as there:
        (place,) = there
        assert isinstance(place, cluster.OnWorker)
        mortal, deaths = place, list[RunId]()

        class Always(Progress):
            def trial(self, run: RunId, ordinal: int, trial: Trial, rate_pps: float) -> None:
                if not deaths or run == deaths[0]:
                    deaths.append(run)
                    assert mortal.process is not None
                    os.kill(mortal.process.pid, signal.SIGKILL)

        spread.run(store, there, Always(), lambda _: None)
    assert len(deaths) == cluster.LIVES
    failed = [r for r in store.runs() if r.status == "failed"]
    assert [(r.run, r.why) for r in failed] == [(deaths[0], "5 workers died of it, or with it")]
    assert sum(1 for r in store.runs() if r.status == "done") == 11


def test_a_campaign_that_breaks_off_is_resumed_by_workers(tmp_path: Path) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    in_process(tmp_path / "whole", files)
    store, chosen, text = begin(tmp_path / "o", files)
    with pytest.raises(KeyError, match="broken"), cluster.places(chosen, text, ["local"]) as there:
        spread.run(store, there, Breaks(25), lambda _: None)
    assert 25 <= len(list(store.trials())) < len(list(Store.open(tmp_path / "whole").trials()))
    store, chosen, text = begin(tmp_path / "o", files, resume=True)
    with cluster.places(chosen, text, ["local"]) as there:
        spread.run(store, there, Progress(), lambda _: None)
    assert content(tmp_path / "o") == content(tmp_path / "whole")


def test_a_testbed_whose_worker_does_not_start_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b", "lonely")]
    store, chosen, text = begin(tmp_path / "o", files)
    said: list[str] = []
    # Of two commands for one testbed the second is as good; a testbed without any is measured from here.
    words = ["lonely=sh -c 'echo no route >&2; exit 255'", "b=false", "b=local"]
    with cluster.places(chosen, text, words) as there:
        assert [type(place) for place in there] == [spread.Here, cluster.OnWorker, cluster.OnWorker]
        spread.run(store, there, Progress(), said.append)
    (line,) = said
    assert line.startswith("testbed lonely is left out: worker `sh -c")
    assert line.endswith("ended at once: no route")
    assert {r.testbed for r in store.runs() if r.status == "done"} == {"a", "b"}


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("tcp://192.0.2.9:8786", "local, or a command that starts"),
        ("c=local", "there is no testbed c .there are a, b."),
        ("a='", "No closing quotation"),
        ("a=", "local, or a command that starts"),
    ],
)
def test_a_worker_is_named_by_the_command_that_starts_it(word: str, why: str) -> None:
    found = cluster.commands(["ssh -o A=1 h quiver-lab worker", "a=local"], ["a", "b"])
    ssh = ("ssh", "-o", "A=1", "h", "quiver-lab", "worker")
    assert found == {"a": [ssh, cluster.LOCAL], "b": [ssh]}
    with pytest.raises(CommandError, match=why):
        cluster.commands([word], ["a", "b"])


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("welcome to this host", "says 'welcome to this host': the command is to start"),
        ('{"schema": "quiver-worker/1", "kind": "hello", "version": "0.0.1"}', "is quiver-lab 0.0.1, and this is"),
        ('{"schema": "other/1"}', "the command is to start"),
    ],
)
def test_who_is_no_worker_of_this_version_is_refused(tmp_path: Path, says: str, why: str) -> None:
    _, chosen, text = begin(tmp_path / "o", [bed_file(tmp_path, "a")])
    (tmp_path / "says").write_text(says + "\n")
    with cluster.places(chosen, text, [f"cat {tmp_path}/says -"]) as there, pytest.raises(CommandError, match=why):
        there[0].survey()


HOSTS: dict[str, Any] = {
    "schema": "quiver-testbed/1", "name": "far",
    "tester": {"address": "192.0.2.1", "cores": [1, 2]}, "dut": {"address": "192.0.2.2", "cores": [1], "key": "/k"},
    "wires": [{"tester": {"pci": f"ffff:01:00.{n}"}, "dut": {"pci": f"ffff:02:00.{n}"}} for n in (0, 1)],
}  # fmt: skip


def test_a_worker_is_told_of_a_testbed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(HOSTS))
    for file in (bed_file(tmp_path, "a"), tmp_path / "hosts.yaml"):
        text = yaml.safe_dump(KEYS)
        (bed,) = beds.of(campaign.parse(text), tmp_path, [file])
        assert worker.bed_of(json.loads(json.dumps(worker.described(bed, text)))) == bed


ENDLESS = """
import contextlib, threading
from quiver_lab import worker
from quiver_lab.devices import Bench, simulated

events = open("{folder}/events", "w", buffering=1)

class Endless:
    def measure(self, rate_pps, duration_s):
        print("trial begun", file=events)
        threading.Event().wait()

@contextlib.contextmanager
def bench(self, cell, folder):
    try:
        yield Bench(Endless(), {{}})
    finally:
        print("testbed given back", file=events)

simulated.Simulated.bench = bench
worker.main()
"""
"""A worker proper, but for a device whose trial lasts until it is broken off; it tells of itself by a pipe."""


def test_a_worker_whose_lab_is_gone_ends_in_the_middle_of_a_trial_and_cleans_up(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(ENDLESS.format(folder=str(tmp_path)))
    files = [bed_file(tmp_path, "a")]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(KEYS))
    os.mkfifo(tmp_path / "events")
    process = subprocess.Popen(
        [sys.executable, "-m", "quiver_lab", "run", tmp_path / "c.yaml", "--out", tmp_path / "o", f"--testbed={files[0]}",
         "--cluster", f"{sys.executable} {script}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with process, (tmp_path / "events").open(encoding="utf-8") as events:
        assert events.readline() == "trial begun\n"
        process.kill()
        assert events.readline() == "testbed given back\n"
        assert events.readline() == ""


@pytest.mark.parametrize("more", [[], ["--cluster", "local"]], ids=["in this process", "by workers"])
def test_the_command_line_spreads_a_campaign(tmp_path: Path, more: list[str]) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(KEYS))
    words = ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "o"), *(f"--testbed={file}" for file in files)]
    done = CliRunner().invoke(app, [*words, *more])
    assert done.exit_code == 0, done.output
    assert "12 runs in" in done.output
    with pytest.raises(twohosts.TestbedError, match="two testbeds have the name a"):
        beds.of(campaign.parse(yaml.safe_dump(KEYS)), tmp_path, [files[0], files[0]])


HELD = """
import itertools, pathlib, time
from quiver_lab import cli
from quiver_lab.simulate import SimulatedDevice

count, measure = itertools.count(), SimulatedDevice.measure

def held(self, rate_pps, duration_s):
    while next(count) > 100 and not pathlib.Path("{go}").exists():
        time.sleep(0.02)
    return measure(self, rate_pps, duration_s)

SimulatedDevice.measure = held
cli.main()
"""
"""The command line proper, but for its trials: after some they last until they may end, so no campaign is done too soon."""


@pytest.mark.parametrize("by_workers", [False, True], ids=["in this process", "by workers"])
def test_ctrl_c_at_a_terminal_ends_all_testbeds_and_resume_goes_on(tmp_path: Path, by_workers: bool) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**KEYS, "repeats": 4}))
    words = ["run", str(tmp_path / "c.yaml"), *(f"--testbed={file}" for file in files)]
    out = ["--out", str(tmp_path / "o")]
    whole = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "whole")])
    assert whole.exit_code == 0, whole.output
    held, go = tmp_path / "held.py", tmp_path / "go"
    held.write_text(HELD.format(go=go))
    more = ["--cluster", f"{sys.executable} {held} worker"] if by_workers else []
    # A terminal sends it to everybody in the foreground: to the workers as well.
    process = subprocess.Popen(
        [sys.executable, str(held), *words, *out, *more],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        while not list((tmp_path / "o" / "runs").glob("*/r*.json")):
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        said = ""
        while "stopping after the trials in flight" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        go.touch()
        said += process.stderr.read()
    assert process.returncode == 130, said
    assert "--resume" in said
    assert "Traceback" not in said
    begun = content(tmp_path / "o")
    assert 0 < len(begun) < len(content(tmp_path / "whole"))
    again = CliRunner().invoke(app, [*words, *out, "--resume"])
    assert again.exit_code == 0, again.output
    assert content(tmp_path / "o") == content(tmp_path / "whole")
    assert begun.items() <= content(tmp_path / "o").items()
