"""Hardware counters of trials: read from what perf says, kept with the trial, told for each packet."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from quiver_lab import campaign, facts, hardware
from quiver_lab.reproduce import evidence
from quiver_lab.reproduce.counters import Evidence
from quiver_lab.reproduce.linguaglossa2019 import LINGUAGLOSSA2019
from quiver_lab.runner import Runner
from quiver_lab.store import Store
from test_campaign import BASE

SAID = """4000000,,instructions,500000000,100.00,,
2000000,,cycles,500000000,100.00,2.0,insn per cycle
<not counted>,,L1-icache-load-misses,0,0.00,,
"""


@pytest.fixture
def perf(tmp_path: Path) -> str:
    """A program that answers as perf does, and keeps what it was asked for."""
    program = tmp_path / "perf"
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\ncat <<'END'\n{SAID}END\n")
    program.chmod(0o755)
    return str(program)


def test_events_a_second_are_read_and_what_was_not_counted_is_left_out() -> None:
    assert hardware.parse(SAID, 0.5) == {"instructions": 8e6, "cycles": 4e6}
    two_kinds = "1000,,cpu_core/cycles/,1,100.00,,\n500,,cpu_atom/cycles/,1,100.00,,\n"
    assert hardware.parse(two_kinds, 1.0) == {"cycles": 1500.0}
    assert hardware.parse("perf: command not found\n", 1.0) == {}


def test_a_packet_takes_events_of_a_second_over_packets_of_a_second() -> None:
    counts = {"instructions": 8e6, "cycles": 4e6, "l1i_misses": 1e4}
    assert hardware.per_packet(counts, 4e4) == {"instructions_per_packet": 200, "l1i_misses_per_packet": 0.25, "ipc": 2}
    assert hardware.per_packet(counts, 0) == {"ipc": 2}
    assert hardware.per_packet({}, 4e4) == {}


def test_counting_is_done_on_the_devices_cores_in_the_middle(perf: str, tmp_path: Path) -> None:
    with hardware.counted(perf, (2, 4), 3.0) as counts:
        assert counts == {}
    assert counts == {"instructions": 4e6 / 1.5, "cycles": 2e6 / 1.5}
    asked = (tmp_path / "asked").read_text().split()
    assert asked[asked.index("-C") + 1] == "2,4"
    assert (asked[asked.index("--delay") + 1], asked[-2:]) == ("1000", ["sleep", "2.5"])
    for program, seconds in ((None, 3.0), (perf, 1.0)):
        with hardware.counted(program, (1,), seconds) as counts:
            pass
        assert counts == {}


def test_a_trial_that_fails_leaves_no_counting_behind(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    slow.chmod(0o755)

    def fails() -> None:
        with hardware.counted(str(slow), (1,), 2.0):
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                pass
            raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError, match="the device is gone"):
        fails()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_trials_keep_them_and_findings_take_them_before_those_of_the_benches(
    perf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "_perf", lambda _: perf)
    keys = {
        **BASE, "repeats": 3, "line_rate": "1Mbps",
        "matrix": {"dut": ["a"], "link": ["none"], "procedure": ["p"], "operation": ["one-way"], "vector": [4, 256]},
        "procedures": {"p": {"kind": "fixed-rate", "rate": "500pps", "duration_s": 2}},
    }  # fmt: skip
    text = yaml.safe_dump(keys)
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    trial = next(iter(store.trials()))
    assert trial.hardware == {"instructions": 4e6, "cycles": 2e6}
    run = next(iter(store.runs()))
    assert (run.values["instructions_per_packet"], run.values["ipc"]) == (8000.0, 2.0)
    known = evidence.known_cells(store, LINGUAGLOSSA2019)
    verdicts = {j.finding.id: j for j in evidence.judge(LINGUAGLOSSA2019, known, Evidence(perf_lacking="not asked"))}
    judged = verdicts["instructions-fall-with-the-vector"]
    assert judged.verdict.value == "contradicted", judged.why
    assert "not measured" not in judged.why
    # Gone on with, the answers are those that were stored.
    (store.root / "runs").rename(tmp_path / "away")
    again = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=True)
    monkeypatch.setattr(Runner, "_perf", lambda _: None)
    Runner(again).run()
    assert next(iter(again.runs())).values["ipc"] == 2.0
