"""``link: pg`` for the kernel: live frames of BPF."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from quiver_lab import campaign, facts, testbed
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.devices import fed, live_frames
from quiver_lab.runner import Runner
from quiver_lab.store import Store
from test_campaign import text
from test_generator import R_PLUS

CORE = max(os.sched_getaffinity(0))


def of(**more: Any) -> tuple[Campaign, Cell]:
    matrix = {"dut": ["linux"], "link": ["pg"], "pattern": ["static"], "procedure": ["p"], **more}
    c = campaign.parse(text(testbed={"kind": "local"}, matrix=matrix, procedures={"p": R_PLUS}))
    (cell,) = c.cells()
    return c, cell


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dut": ["linux-tuned"]}, "the kernel as it comes"),
        ({"ip": [6], "frame_bytes": [84]}, "live frames of IPv4, one way"),
        ({"operation": ["bidirectional"]}, "live frames of IPv4, one way"),
        ({"pattern": ["sources"]}, "'pattern: static'"),
        ({"workers": [3]}, "3 workers"),
    ],
)
def test_what_live_frames_cannot_do_has_a_reason(changes: dict[str, Any], says: str) -> None:
    assert says in str(fed.absent(*of(**changes)))


def test_older_kernels_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "5.15.0-generic")
    assert fed.absent(*of()) == "live frames need Linux 5.18"


@pytest.mark.parametrize("size", [60, 1514])
def test_frames_have_the_size_and_a_header_whose_sum_is_right(size: int) -> None:
    made = live_frames.frame(size, "02:00:00:00:02:01", "10.0.0.1", "10.1.0.1")
    assert len(made) == size
    total = sum(struct.unpack("!10H", made[14:34]))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
    assert struct.unpack("!H", made[16:18]) == (size - 14,)


def test_the_program_jumps_to_its_drop_where_a_frame_is_short() -> None:
    code = live_frames.passing(live_frames.frame(60, "02:00:00:00:02:01", "10.0.0.1", "10.1.0.1"))
    steps = [code[at : at + 8] for at in range(0, len(code), 8)]
    jump = next(n for n, step in enumerate(steps) if step[0] == 0x2D)
    to = jump + 1 + struct.unpack("<h", steps[jump][2:4])[0]
    assert b"".join(steps[to:]) == live_frames.returning(live_frames.XDP_DROP)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_kernel_forwards_what_it_is_handed(tmp_path: Path, workers: int) -> None:
    if CORE == 0:
        pytest.skip("one core")
    matrix = {"dut": ["linux"], "link": ["pg"], "pattern": ["static"], "workers": [workers], "procedure": ["p"]}
    said = text(
        testbed={"kind": "local", "tester_core": 0, "dut_cores": [CORE]}, matrix=matrix, repeats=1,
        procedures={"p": {"kind": "fixed-rate", "rate": "5kpps", "duration_s": 1}}, noise={"watch": "none"},
        odd_runs={"repeat_at_most": 0},
    )  # fmt: skip
    c = campaign.parse(said)
    if why := fed.absent(c, next(iter(c.cells()))):
        pytest.skip(why)
    store = Store.create(tmp_path / "o", c, said, facts.machine(), resume=False)
    Runner(store).run()
    (record,) = store.runs()
    assert record.status == "done", record.why
    (trial,) = store.trials()
    (direction,) = trial.trial["directions"]
    assert direction["sent"] > 0
    # Whatever the machine does, none is lost on the way: each is forwarded within the call that hands it over.
    assert direction["received"] == direction["sent"]
    assert len(record.device["cores"]) == workers
    assert testbed.lacking() is None
