"""``link: pg``: the router's own packet generator in the place of a tester."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from quiver_lab import campaign, facts, noise
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.canary import Speed
from quiver_lab.devices import adapter, generator
from quiver_lab.execute import execute
from quiver_lab.noise import Watch
from quiver_lab.processes import find
from quiver_lab.reproduce import campaign_text as paper
from quiver_lab.reproduce.design import Options
from quiver_lab.reproduce.linguaglossa2019 import LINGUAGLOSSA2019
from quiver_lab.rules import NoiseRule
from quiver_lab.runner import Runner
from quiver_lab.store import Store
from test_campaign import text

CORE = max(os.sched_getaffinity(0))
R_PLUS = {"kind": "r-plus", "offered": "100%", "duration_s": 2}


def of(procedure: dict[str, Any] | None = None, bed: dict[str, Any] | None = None, **more: Any) -> tuple[Campaign, Cell]:
    matrix = {"dut": ["quiver"], "link": ["pg"], "procedure": ["p"], **more}
    c = campaign.parse(text(testbed=bed or {"kind": "local"}, matrix=matrix, procedures={"p": procedure or R_PLUS}))
    (cell,) = c.cells()
    return c, cell


SHOWN = """\
              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count
local0                            0     down          0/0/0/0
pg0                               1      up          9000/0/0/0     rx packets              {rx}
                                                                    rx bytes               756725760
                                                                    tx packets                     2
pg1                               2      up          9000/0/0/0     tx packets              {tx}
                                                                    drops                          7
"""


STREAMS = """\
Name               Enabled        Count     Parameters
"""


def test_what_left_is_read_by_interface_and_what_was_sent_by_stream() -> None:
    assert generator.left(SHOWN.format(rx=10, tx=12)) == {"pg0": 2, "pg1": 12}
    text = STREAMS + (
        "d0w0                 Yes           4711       limit 1000000000000000, rate 1.00e4 pps, size 60-60, \n"
        "d0w1                  No      1234567890123456limit 1000000000000000, rate 1.00e4 pps, size 60-60, \n"
    )
    assert generator.generated(text) == {"d0w0": 4711, "d0w1": 1234567890123456}


class Router:
    """Answers as one that forwards so many a second of what its generator is asked for, of which ``lost`` do not leave."""

    def __init__(self, capacity: float, lost: int = 0) -> None:
        self.capacity, self.lost = capacity, lost
        self.now = self.began = 0.0
        self.rates: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.left = 0
        self.said: list[str] = []

    def ask(self, line: str) -> str:
        self.said.append(line)
        # A command takes a while.
        self.now += 0.01
        words = line.split()
        match words[:2]:
            case ["packet-generator", "configure"]:
                self.rates[words[2]] = int(words[4])
            case ["packet-generator", "enable-stream"]:
                self.began = self.now
            case ["packet-generator", "disable-stream"]:
                more = round(min(self.capacity, sum(self.rates.values())) * (self.now - self.began))
                each = more // len(self.rates)
                self.sent = dict.fromkeys(self.rates, each)
                self.left += each * len(self.rates) - self.lost
        if line == "show packet-generator":
            return STREAMS + "".join(f"{name} No {n} limit 1, \n" for name, n in self.sent.items())
        # A vector more was made than sent.
        return SHOWN.format(rx=sum(self.sent.values()) + 256, tx=self.left) if line == "show interface" else ""

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def measurer(self, *names: str) -> generator.Generated:
        return generator.Generated(self.ask, names, 1, clock=lambda: self.now, wait=self.wait)


def test_a_rate_is_shared_by_the_workers_streams_and_what_commands_take_is_not_counted() -> None:
    router = Router(1e7)
    trial = router.measurer("d0w0", "d0w1").measure(1e6, 2)
    assert router.rates == {"d0w0": 500_000, "d0w1": 500_000}
    assert trial.duration_s == pytest.approx(2.01)
    assert (trial.intended, trial.unsent, trial.lost) == (trial.sent, 0, 0)
    assert trial.delivered_pps == pytest.approx(1e6)


def test_a_generator_that_cannot_send_all_found_the_devices_limit() -> None:
    c, cell = of()
    router = Router(6e6)
    outcome = execute(cell, c.procedures["p"], c.line_bit_per_s, router.measurer("d0w0"))
    assert outcome.valid
    assert outcome.values["receive_rate_pps"] == pytest.approx(6e6)
    assert outcome.values["loss_percent"] == 0
    assert outcome.values["unsent_percent"] == pytest.approx((1 - 6e6 / 14.88e6) * 100, rel=0.01)
    enough = execute(cell, c.procedures["p"], c.line_bit_per_s, Router(2e7).measurer("d0w0"))
    assert not enough.valid, "all that was asked for was sent: the device may be better"


def test_a_search_finds_the_rate_that_the_router_has() -> None:
    c, cell = of({"kind": "throughput", "duration_s": 2, "resolution_pps": 1000})
    outcome = execute(cell, c.procedures["p"], c.line_bit_per_s, Router(6e6).measurer("d0w0"))
    assert outcome.values["throughput_pps"] == pytest.approx(6e6, rel=2 / generator.EXACT)
    lossy = execute(cell, c.procedures["p"], c.line_bit_per_s, Router(6e6, lost=9).measurer("d0w0"))
    assert lossy.values["throughput_pps"] is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"operation": ["nat"]}, "no streams of the packet generator for nat"),
        ({"workers": [3]}, "3 workers beside a packet generator: dut_cores and tester_core give 2 cores"),
        ({"workers": [0]}, "0 workers beside a packet generator"),
        ({"placement": ["2-threads-of-one-core"], "workers": [2]}, "which cores are threads of one is not told"),
        ({"placement": ["2-cores"], "workers": [2]}, None),
        ({"placement": ["main+1-worker"]}, None),
        ({"procedure": {"kind": "pdv", "rate": "10kpps", "duration_s": 2}}, "carry no time and no connections: no 'pdv'"),
        ({}, None),
        ({"workers": [2], "operation": ["bidirectional"], "ip": [6], "frame_bytes": [84]}, None),
    ],
)
def test_what_a_generator_cannot_do_is_absent_with_a_reason(changes: dict[str, Any], says: str | None) -> None:
    procedure = changes.pop("procedure", None)
    said = generator.absent(*of(procedure, **changes))
    assert said is None if says is None else says in str(said)


def test_other_devices_have_no_generator() -> None:
    c, cell = of(dut=["linux"])
    for name in ("dpdk", "ovs", "l3fwd", "grout"):
        device = adapter(name, c)
        assert device is not None
        assert device.absent(cell.model_copy(update={"dut": name})) is not None


def test_streams_are_one_a_worker_and_direction_with_the_patterns_of_the_profiles() -> None:
    _, cell = of(workers=[2], operation=["bidirectional"], frame_bytes=[128], vector=[16])
    made = generator.streams(cell)
    assert [name for name, _ in made] == ["d0w0", "d0w1", "d1w0", "d1w1"]
    assert "size 124-124 worker 1 maxframe 16 " in made[1][1]
    assert "UDP: 10.0.0.1 - 10.0.0.254 -> 10.1.0.1 " in made[0][1]
    assert "UDP: 10.1.0.1 - 10.1.0.254 -> 10.0.0.1 " in made[2][1]
    assert made[0][1].endswith("incrementing 82 } }")
    _, cell = of(pattern=["uniform"], routes=[10])
    assert "UDP: 10.0.0.1 + 10.0.255.254 -> 20.0.0.1 + 20.0.9.255 " in generator.streams(cell)[0][1]


def test_an_idle_testers_core_does_not_disturb() -> None:
    watch = Watch(NoiseRule(), None, "", {"0": 1e9, "1": 1e9}, frozenset({"1"}))
    trial = Router(1e6).measurer("a").measure(1e5, 1)
    slow = Speed(1e8, 0.1)
    assert watch.disturbed(trial, [{"0": slow, "1": Speed(1e9, 0.1)}]) == ()
    assert watch.disturbed(trial, [{"0": Speed(1e9, 1.0), "1": slow}]) == ("core 1 had 10 % of its speed",)
    assert noise.of_tester(trial, NoiseRule()) == []


@pytest.mark.parametrize(
    ("placement", "workers", "alone", "found"),
    [
        ("", 1, False, generator.Threads(1, (1,))),
        ("", 1, True, generator.Threads(1, ())),
        ("single-core", 1, True, generator.Threads(1, ())),
        ("main+1-worker", 1, False, generator.Threads(0, (1,))),
        ("main+1-worker", 1, True, generator.Threads(0, (1,))),
        ("2-cores", 2, False, generator.Threads(1, (1, 0))),
    ],
)
def test_threads_stand_where_the_placement_says(placement: str, workers: int, alone: bool, found: generator.Threads) -> None:
    c, cell = of(placement=[placement], workers=[workers])
    threads = generator.threads(c, cell, alone=alone)
    assert threads == found
    assert generator.cores(c, cell) == found.cores[:workers]


def test_a_main_thread_that_needs_a_core_of_its_own_is_no_workers_neighbour() -> None:
    c, cell = of(workers=[2])
    assert "2 workers and a main thread that has a core to itself" in str(generator.threads(c, cell, alone=True))
    more, cell = of(workers=[2], bed={"kind": "local", "dut_cores": [1, 2]})
    assert generator.threads(more, cell, alone=True) == generator.Threads(0, (1, 2))
    text = generator.start_text(generator.Threads(0, (1, 2)), Path("/x"))
    assert "cpu { main-core 0 corelist-workers 1,2 }" in text
    assert "cpu { main-core 1 workers 2 }" in generator.start_text(generator.Threads(1, (1, 0)), Path("/x"))
    assert "cpu { main-core 1 }" in generator.start_text(generator.Threads(1, ()), Path("/x"))


def test_the_paper_has_vectors_loops_patterns_and_placements_without_a_tester() -> None:
    c = campaign.parse(paper(LINGUAGLOSSA2019, Options()))
    cells = [cell for cell in c.cells() if cell.link == "pg"]
    keys = [LINGUAGLOSSA2019.keys(cell, c) for cell in cells]

    def told(key: str, procedure: str = "generated-most") -> set[str]:
        return {k[key] for k, cell in zip(keys, cells, strict=True) if cell.procedure.startswith(procedure)}

    assert sorted({k.get("share_percent", "0") for k in keys}, key=int) == ["0", "10", "25", "50", "75", "100"]
    assert told("operation", "generated-1") == {"xc", "ip4"}
    assert told("vector_size") == {str(4 << n) for n in range(9)}
    assert told("multi_loop") == {"own", "1", "4"}
    assert told("pattern") == {"static", "round-robin", "uniform"}
    assert {generator.absent(c, cell) for cell in cells} == {
        None,
        "which cores are threads of one is not told by testbed.dut_cores",
    }
    # What a sentence compares stands in one cell only.
    assert len({tuple(k.items()) for k in keys}) == len(keys)


@pytest.mark.parametrize(
    ("changes", "workers"),
    [({}, 1), ({"operation": ["cross-connect"]}, 1), ({"operation": ["bidirectional"], "ip": [6], "frame_bytes": [84]}, 2)],
)
def test_the_router_forwards_what_it_generates(tmp_path: Path, changes: dict[str, Any], workers: int) -> None:
    lacks = [name for name in ("quiver", "quiverctl", "setpriv", "taskset") if find(name, {}) is None]
    if CORE == 0 or lacks:
        if os.environ.get("QUIVER_CI") == "1" and CORE:
            pytest.fail(f"{lacks} not here")
        pytest.skip(f"{', '.join(lacks) or 'a second core'} is not here")
    matrix = {"dut": ["quiver"], "link": ["pg"], "workers": [workers], "procedure": ["p"], "vector": [16], **changes}
    said = text(
        testbed={"kind": "local", "tester_core": 0, "dut_cores": [CORE]}, matrix=matrix, repeats=1,
        procedures={"p": {"kind": "fixed-rate", "rate": "20kpps", "duration_s": 1}}, noise={"watch": "none"},
        odd_runs={"repeat_at_most": 0},
    )  # fmt: skip
    store = Store.create(tmp_path / "o", campaign.parse(said), said, facts.machine(), resume=False)
    Runner(store).run()
    (record,) = store.runs()
    assert record.status == "done", record.why
    assert record.values["loss_percent"] == 0
    assert record.values["latency_mean_us"] is None
    (trial,) = store.trials()
    assert [d["sent"] > 0 for d in trial.trial["directions"]] == [True] * (2 if "bidirectional" in str(changes) else 1)
    assert 1 <= (record.values["vector_mean_packets"] or 0) <= 16
    assert len(record.device["cores"]) == workers
