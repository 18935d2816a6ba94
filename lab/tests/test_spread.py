"""Campaigns on several testbeds: who measures what, in-process, on a Dask cluster of two processes, and when workers die."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import distributed
import pytest
import yaml
from typer.testing import CliRunner

from quiver_lab import beds, campaign, cluster, facts, spread, twohosts
from quiver_lab.cli import app
from quiver_lab.records import RunId, TrialRecord
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


@pytest.fixture(scope="module")
def workers() -> Iterator[distributed.SpecCluster]:
    """A scheduler and two worker processes, each with a testbed of its own."""
    nannies = {
        name: {"cls": distributed.Nanny, "options": {"nthreads": 1, "resources": {f"testbed-{name}": 1}, "dashboard": False}}
        for name in ("a", "b")
    }
    options = {"dashboard": False, "dashboard_address": "127.0.0.1:0", "port": 0, "host": "127.0.0.1"}
    scheduler = {"cls": distributed.Scheduler, "options": options}
    with distributed.SpecCluster(workers=nannies, scheduler=scheduler, silence_logs="critical") as made:
        yield made


class Kills(Progress):
    """Kills the worker of a testbed in the middle of a run, once."""

    def __init__(self, workers: distributed.SpecCluster, name: str) -> None:
        self.workers, self.name = workers, name
        self.killed: list[RunId] = []
        self.stored: list[tuple[str, int, int]] = []

    def trial(self, run: RunId, ordinal: int, trial: Trial, rate_pps: float) -> None:
        self.stored.append((run.cell.slug, run.repeat, ordinal))
        record = next(iter(self.of(run)))
        if ordinal == 3 and record.testbed == self.name and not self.killed:
            self.killed.append(run)
            # The worker cannot be far ahead: its next trials wait to be taken.
            os.kill(self.workers.workers[self.name].pid, signal.SIGKILL)

    store: Store

    def of(self, run: RunId) -> Iterator[TrialRecord]:
        found = self.store.trial(run, 0)
        assert found is not None
        yield found


def test_a_worker_that_is_killed_costs_no_trial_that_was_stored(tmp_path: Path, workers: distributed.SpecCluster) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    in_process(tmp_path / "whole", files)
    store, chosen, text = begin(tmp_path / "o", files)
    progress, said = Kills(workers, "a"), list[str]()
    progress.store = store
    with cluster.places(chosen, store.campaign, text, workers.scheduler_address) as there:
        spread.run(store, there, progress, said.append)
    assert said == []
    assert len(progress.killed) == 1
    assert len(progress.stored) == len(set(progress.stored)), "a trial was made twice"
    assert content(tmp_path / "o") == content(tmp_path / "whole")
    # Nothing is left to do, and nothing is done.
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("r*.json")}
    store, chosen, text = begin(tmp_path / "o", files, resume=True)
    with cluster.places(chosen, store.campaign, text, workers.scheduler_address) as there:
        spread.run(store, there, Progress(), said.append)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("r*.json")} == before


def test_a_campaign_that_breaks_off_is_resumed_on_the_cluster(tmp_path: Path, workers: distributed.SpecCluster) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    in_process(tmp_path / "whole", files)
    store, chosen, text = begin(tmp_path / "o", files)
    with (
        pytest.raises(KeyError, match="broken"),
        cluster.places(chosen, store.campaign, text, workers.scheduler_address) as there,
    ):
        spread.run(store, there, Breaks(25), lambda _: None)
    assert 25 <= len(list(store.trials())) < len(list(Store.open(tmp_path / "whole").trials()))
    store, chosen, text = begin(tmp_path / "o", files, resume=True)
    with cluster.places(chosen, store.campaign, text, workers.scheduler_address) as there:
        spread.run(store, there, Progress(), lambda _: None)
    assert content(tmp_path / "o") == content(tmp_path / "whole")


def test_a_testbed_without_a_worker_is_left_out_and_the_others_go_on(
    tmp_path: Path, workers: distributed.SpecCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "WORKER_S", 0.5)
    files = [bed_file(tmp_path, name) for name in ("b", "lonely")]
    store, chosen, text = begin(tmp_path / "o", files)
    said: list[str] = []
    with cluster.places(chosen, store.campaign, text, workers.scheduler_address) as there:
        spread.run(store, there, Progress(), said.append)
    (line,) = said
    assert line.startswith("testbed lonely is left out: no worker offers testbed-lonely")
    assert {r.testbed for r in store.runs() if r.status == "done"} == {"b"}


@pytest.mark.parametrize("more", [[], ["--cluster", "local"]], ids=["in this process", "on a cluster of its own"])
def test_the_command_line_spreads_a_campaign(tmp_path: Path, more: list[str]) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(KEYS))
    words = ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "o"), *(f"--testbed={file}" for file in files)]
    with socket.socket() as other:
        # Another cluster of this machine has the port that Dask asks for first, as whoever holds it already does.
        with suppress(OSError):
            other.bind(("127.0.0.1", 8787))
            other.listen()
        done = CliRunner().invoke(app, [*words, *more])
    assert done.exit_code == 0, done.output
    assert "12 runs in" in done.output
    with pytest.raises(twohosts.TestbedError, match="two testbeds have the name a"):
        beds.of(campaign.parse(yaml.safe_dump(KEYS)), tmp_path, [files[0], files[0]])


@pytest.mark.parametrize(("more", "repeats"), [([], 20), (["--cluster", "local"], 6)], ids=["in this process", "on a cluster"])
def test_ctrl_c_at_a_terminal_ends_all_testbeds_and_resume_goes_on(tmp_path: Path, more: list[str], repeats: int) -> None:
    files = [bed_file(tmp_path, name) for name in ("a", "b")]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**KEYS, "repeats": repeats}))
    words = ["run", str(tmp_path / "c.yaml"), *(f"--testbed={file}" for file in files)]
    out = ["--out", str(tmp_path / "o")]
    whole = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "whole")])
    assert whole.exit_code == 0, whole.output
    # A terminal sends it to everybody in the foreground: to the workers as well.
    process = subprocess.Popen(
        [sys.executable, "-m", "quiver_lab", *words, *out, *more],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        while not list((tmp_path / "o" / "runs").glob("*/r*.json")):
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "stopping after the trials in flight" in said
    assert "--resume" in said
    assert "Traceback" not in said
    begun = content(tmp_path / "o")
    assert 0 < len(begun) < len(content(tmp_path / "whole"))
    again = CliRunner().invoke(app, [*words, *out, "--resume"])
    assert again.exit_code == 0, again.output
    assert content(tmp_path / "o") == content(tmp_path / "whole")
    assert begun.items() <= content(tmp_path / "o").items()
