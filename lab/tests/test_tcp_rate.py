"""Connections of TCP a second: the search, campaigns on simulated devices, and the real tester through a real router."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign, facts, testbed
from quiver_lab.devices import sessions
from quiver_lab.procedures import tcp_rate
from quiver_lab.processes import find
from quiver_lab.report import build
from quiver_lab.runner import Runner
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.stateful import Dialogue, StatefulRequest
from quiver_lab.store import Store
from quiver_lab.tcp import TcpTrial
from test_campaign import BASE

REQUEST = StatefulRequest(
    "tcp-rate", 0, 20_000, 0, "10.0.0.1-10.0.0.254", "10.1.0.1", precision=0.02, dialogue=Dialogue(10, 100, 1024, 1)
)
DEVICE = SimulatedDevice(capacity_pps=1e6, table_connections=1, connection_rate_cps=3000)


def trial(cps: float) -> TcpTrial:
    """A trial of the simulated device."""
    from quiver_lab.simulate import SimulatedTable  # noqa: PLC0415

    return SimulatedTable(DEVICE).connected(cps, REQUEST)


def test_the_highest_rate_at_which_all_say_what_they_have_to() -> None:
    answer = tcp_rate(trial, REQUEST)
    rate = answer.found.establishment_rate_pps
    assert rate is not None
    assert 3000 * 0.98 <= rate <= 3000
    assert answer.valid
    assert {s.verdict for s in answer.steps} == {"passed", "failed"}
    assert len(answer.steps) <= 10
    best = next(s.phase_1 for s in answer.steps if s.phase_1.rate_pps == rate)
    assert best.received == best.intended
    # The highest rate is enough where it passes.
    once = tcp_rate(trial, replace(REQUEST, open_pps=100.0))
    assert (once.found.establishment_rate_pps, len(once.steps)) == (100, 1)


def test_a_tester_that_is_the_limit_is_named() -> None:
    def weak(cps: float) -> TcpTrial:
        made = trial(cps)
        return made if cps <= 1000 else made.model_copy(update={"valid": False, "reasons": ("pacing failed",)})

    answer = tcp_rate(weak, REQUEST)
    rate = answer.found.establishment_rate_pps
    assert rate is not None
    assert 980 <= rate <= 1000
    assert not answer.valid
    assert "the tester may be the limit (the last: pacing failed)" in answer.reasons[0]
    assert sum(s.verdict == "invalid" for s in answer.steps) % 3 == 0


def test_a_search_ends_when_its_time_is_up() -> None:
    answer = tcp_rate(trial, REQUEST, is_over=lambda: True)
    assert (len(answer.steps), answer.valid) == (1, False)
    assert "took too long" in answer.reasons[0]


def test_one_failure_in_a_hundred_thousand_is_allowed() -> None:
    def failing(count: int) -> TcpTrial:
        made = replace(REQUEST, dialogue=Dialogue(100, 1, 1, 1))
        from quiver_lab.simulate import SimulatedTable  # noqa: PLC0415

        whole = SimulatedTable(DEVICE).connected(2000, made)
        return whole.model_copy(update={"completed": whole.completed - count, "reset": count})

    assert tcp_rate(lambda _: failing(2), REQUEST).found.establishment_rate_pps == 20_000
    assert tcp_rate(lambda _: failing(3), REQUEST).found.establishment_rate_pps is None


PROCEDURE = {"kind": "tcp-rate", "duration_s": 10, "response_bytes": 16_384}
CAMPAIGN: dict[str, Any] = {
    "testbed": {"kind": "simulated", "devices": {"a": {"capacity_pps": 1e6, "connection_rate_cps": 3000}}},
    "matrix": {"dut": ["a"], "link": ["none"], "operation": ["one-way", "bridge"], "procedure": ["p"]},
    "procedures": {"p": PROCEDURE},
}


def test_campaigns_find_what_the_simulated_device_does(tmp_path: Path) -> None:
    text = yaml.safe_dump({**BASE, **CAMPAIGN})
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    records = {r.run.cell.operation: r for r in store.runs() if r.run.repeat == 0}
    values = records["one-way"].values
    assert values["tcp_rate_cps"] is not None
    assert 3000 * 0.98 <= values["tcp_rate_cps"] <= 3000
    assert (values["connect_p99_us"], values["exchange_mean_us"]) == (300, 200)
    assert values["responses_bps"] == pytest.approx(values["tcp_rate_cps"] * 8 * 16_384, rel=0.01)
    assert (records["bridge"].status, "operation one-way or nat" in records["bridge"].why) == ("absent", True)
    page = build(store, tmp_path / "page").read_text(encoding="utf-8")
    assert "tcp rate, connections/s" in page


def test_what_cannot_be_measured_says_why_and_tables_are_emptied_for_nat() -> None:
    document = {**BASE, **CAMPAIGN, "testbed": {"kind": "local", "sender": "xdp"}}
    document["matrix"] = {"dut": ["quiver", "ovs"], "link": ["veth"], "operation": ["one-way", "nat"], "procedure": ["p"]}
    c = campaign.parse(yaml.safe_dump(document))
    assert all("in-kernel ports cannot open connections" in str(sessions.absent(cell, c)) for cell in c.cells())
    cells = {(cell.dut, cell.operation): cell for cell in c.cells()}
    assert [sessions.clears(cells["quiver", operation], c) for operation in ("one-way", "nat")] == [False, True]
    assert not sessions.clears(cells["ovs", "nat"], c)


def test_short_trials_are_called_so() -> None:
    with pytest.raises(campaign.CampaignError, match="shorter than the 300 s"):
        campaign.parse(yaml.safe_dump({**BASE, **CAMPAIGN, "quick": False}))


@pytest.mark.parametrize("operation", ["one-way", "nat"])
def test_the_real_tester_through_the_real_router(tmp_path: Path, operation: str) -> None:
    missing = testbed.lacking() or next(
        (f"{name} is not here" for name in ("quiver", "quiverctl", "quiver-tester") if find(name, {}) is None), None
    )
    if missing:
        if os.environ.get("QUIVER_CI") == "1" and testbed.lacking() is None:
            pytest.fail(missing)
        pytest.skip(missing)
    cores = sorted(os.sched_getaffinity(0))
    document = {
        **BASE, "testbed": {"kind": "local", "tester_core": cores[-1], "dut_cores": [cores[0]]}, "repeats": 1,
        "noise": {"watch": "none"}, "odd_runs": {"repeat_at_most": 0},
        "matrix": {"dut": ["quiver"], "link": ["memif"], "operation": [operation], "procedure": ["p"]},
        # So few that a busy machine does them all.
        "procedures": {"p": {**PROCEDURE, "max_cps": 20, "duration_s": 1, "timeout_s": 60, "precision": 0.9}},
    }  # fmt: skip
    text = yaml.safe_dump(document)
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    (record,) = store.runs()
    assert record.status == "done", record.why
    (stored,) = store.statefuls()
    last = stored.stateful["steps"][-1]["phase_1"]
    # Whether they were opened in time is the machine's business.
    assert last["received"] == last["sent"] > 0
    assert set(record.values) == {"tcp_rate_cps", "connect_p99_us", "exchange_mean_us", "exchange_p99_us", "responses_bps"}
