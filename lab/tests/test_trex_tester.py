"""TRex as the tester: what it is told to send, its answers and bad ones; real frames where it is installed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from quiver_lab import campaign, facts, profiles, stl, testbed
from quiver_lab.client import TesterError
from quiver_lab.devices import adapter
from quiver_lab.measurer import Tags
from quiver_lab.processes import find
from quiver_lab.runner import Runner
from quiver_lab.stl import server, streams, tester
from quiver_lab.stl.rpc import Rpc
from quiver_lab.store import Store
from quiver_lab.trial import Trial
from test_tester import cell

LOAD = profiles.profile(cell())
BOTH = profiles.profile(cell(operation="bidirectional"))


# --- A stand-in for the server.


class Stand:
    """Answers as TRex does, about a device that loses some of what is sent."""

    def __init__(self, answers: dict[str, Any] | None = None, *, loses: int = 0, slow: float = 1.0) -> None:
        self.answers = answers or {}
        self.loses, self.slow = loses, slow
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.streams: dict[int, dict[str, Any]] = {}
        self.began: dict[int, float] = {}
        self.until: dict[int, float] = {}

    def ask(self, request: bytes) -> bytes:
        asked = json.loads(request)
        method, params = asked["method"], asked["params"]
        self.calls.append((method, params))
        given = self.answers.get(method)
        if isinstance(given, list):
            given = given.pop(0) if given else None
        if isinstance(given, bytes):
            return given
        if given is None:
            given = {"result": getattr(self, method, lambda _: {})(params)}
        return json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | given).encode()

    def api_sync_v2(self, params: dict[str, Any]) -> object:
        return {"api_h": "abc"}

    def get_version(self, params: dict[str, Any]) -> object:
        return {"version": "v3.08"}

    def acquire(self, params: dict[str, Any]) -> object:
        return f"h{params['port_id']}"

    def add_stream(self, params: dict[str, Any]) -> object:
        self.streams[params["stream_id"]] = {"port": params["port_id"], **params["stream"]}
        return {}

    def remove_all_streams(self, params: dict[str, Any]) -> object:
        self.streams = {n: s for n, s in self.streams.items() if s["port"] != params["port_id"]}
        return {}

    def start_traffic(self, params: dict[str, Any]) -> object:
        port = params["port_id"]
        takes = max(s["mode"]["total_pkts"] / s["mode"]["rate"]["value"] for s in self.streams.values() if s["port"] == port)
        self.began[port] = time.monotonic()
        self.until[port] = self.began[port] + takes * self.slow
        return {}

    def stop_traffic(self, params: dict[str, Any]) -> object:
        self.until[params["port_id"]] = -time.monotonic()
        return {}

    def get_port_status(self, params: dict[str, Any]) -> object:
        return {"state": "TX" if time.monotonic() < self.until[params["port_id"]] else "STREAMS"}

    def get_port_stats(self, params: dict[str, Any]) -> object:
        return {"ierrors": 5, "oerrors": 0}

    def get_global_stats(self, params: dict[str, Any]) -> object:
        return {"m_cpu_util": 12.5, "m_rx_cpu_util": 3.0, "m_total_queue_full": 0}

    def get_pgid_stats(self, params: dict[str, Any]) -> object:
        flows = {}
        for group in params["pgids"]:
            stream = self.streams[group]
            port, count, until = stream["port"], stream["mode"]["total_pkts"], self.until[stream["port"]]
            if until < 0:
                count = int(count * (-until - self.began[port]) / (self.slow * count / stream["mode"]["rate"]["value"]))
            flows[str(group)] = {"tp": {str(port): count}, "rp": {str(1 - port): count - self.loses, str(port): 0}}
        return {"flow_stats": flows, "ver_id": {}}


def made(stand: Stand, document: dict[str, Any] = LOAD, *, frame_bytes: int = 64) -> stl.TrexTester:
    return stl.TrexTester(
        open=lambda: contextlib.nullcontext(Rpc(stand)), document=document, frame_bytes=frame_bytes,
        ports=("af-packet:a", "af-packet:b"), core=0,
        refused=lambda: [0, 0], keep=contextlib.ExitStack(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tester, "SETTLE_S", 0.0)


def test_a_trial_is_what_trex_counted() -> None:
    stand = Stand(loses=2)
    trial = made(stand, BOTH, frame_bytes=512).measure(1000, 0.1)
    assert trial.valid, trial.reasons
    assert [(d.name, d.intended, d.sent, d.received, d.lost, d.unsent) for d in trial.directions] == [
        ("left-to-right", 100, 100, 98, 2, 0), ("right-to-left", 100, 100, 98, 2, 0),
    ]  # fmt: skip
    assert trial.tester == {"name": "TRex", "version": "v3.08"}
    assert all(d.latency_ns is None for d in trial.directions)
    assert trial.directions[0].tx_pps == pytest.approx(1000, rel=0.5)
    assert trial.directions[0].tx_l2_bps == pytest.approx(512 * 8 * trial.directions[0].tx_pps)


def test_trex_is_started_and_taken_once() -> None:
    stand = Stand()
    opened = []
    one = made(stand)
    one.open = lambda: opened.append(1) or contextlib.nullcontext(Rpc(stand))  # type: ignore[func-returns-value]
    for _ in range(3):
        one.measure(1000, 0.02)
    assert opened == [1]
    names = [name for name, _ in stand.calls]
    assert names.count("acquire") == 2
    assert names.count("start_traffic") == 3
    # No trial is counted as the one before.
    groups = [params["stream_id"] for name, params in stand.calls if name == "add_stream"]
    assert groups == [1, 2, 3]
    assert all(params["api_h"] == "abc" for name, params in stand.calls if name != "api_sync_v2")
    assert all(p["handler"] == f"h{p['port_id']}" for name, p in stand.calls if name in ("add_stream", "start_traffic"))


def test_what_is_not_sent_in_time_is_never_sent() -> None:
    stand = Stand(slow=10)
    trial = made(stand).measure(10_000, 0.1)
    assert not trial.valid
    assert 0 < trial.sent < 5000
    assert trial.unsent == 1000 - trial.sent
    assert trial.lost == 0
    assert "were not sent in time" in trial.reasons[0]
    assert "stop_traffic" in [name for name, _ in stand.calls]


QUIET = {"ierrors": 0, "oerrors": 0, "refused": 0}


def raw(sent: int, received: int, **more: Any) -> tester.Raw:
    groups = {"flow_stats": {"1": {"tp": {"0": sent}, "rp": {"1": received}}}}
    keys: dict[str, Any] = {
        "lasted_s": [1.0], "groups": groups, "ports": [QUIET] * 2, "queue_full": 0, "busy": {},
        "stolen_s": 0.0,
    }  # fmt: skip
    return tester.Raw(**keys | more)


def judged(said: tester.Raw, count: int = 100) -> Trial:
    burst = streams.Burst(0, count, 100.0, {})
    return tester.trial_of(said, tester.Asked({1: burst}, ("a", "b"), 64, 1.0), version="v", started="")


@pytest.mark.parametrize(
    ("said", "says", "lost", "unsent"),
    [
        (raw(100, 90), None, 10, 0),
        (
            raw(90, 90, busy={"sender": 99.0, "receiver": 5.0}, queue_full=7),
            "sender was 99 % busy.*queue was full 7 times",
            0,
            10,
        ),
        (
            raw(100, 90, ports=[QUIET, QUIET | {"ierrors": 10}]),
            "receive ring was full: .* 10",
            10,
            0,
        ),
        (
            raw(100, 100, ports=[QUIET | {"oerrors": 3}, QUIET]),
            "3 frames could not be handed",
            0,
            0,
        ),
        (raw(100, 90, ports=[QUIET | {"refused": 8}, QUIET]), "sending device refused 8 frames", 2, 8),
        (raw(100, 103), "3 frames more came back than were sent", 0, 0),
        (raw(101, 101), "sent 101 frames where 100", 0, 0),
    ],
)
def test_what_trex_says_of_itself_decides_whether_a_trial_is_valid(
    said: tester.Raw, says: str | None, lost: int, unsent: int
) -> None:
    trial = judged(said)
    assert (trial.lost, trial.unsent) == (lost, unsent)
    assert trial.valid == (says is None)
    if says is not None:
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(trial.reasons[0])


def test_stolen_time_is_told_to_the_watch() -> None:
    assert (judged(raw(100, 100, stolen_s=0.25)).model_extra or {})["machine"] == {"stolen_s": 0.25}
    assert facts.stolen_s(0) >= 0
    assert facts.stolen_s(100_000) == 0


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            {"api_sync_v2": {"error": {"code": -32000, "message": "m", "specific_err": "server: 4, client: 5"}}},
            "server: 4, client",
        ),
        ({"api_sync_v2": {"result": {}}}, "answer to api_sync_v2 is none"),
        ({"api_sync_v2": b"<html>"}, "answer to api_sync_v2 is none"),
        ({"api_sync_v2": b"[]"}, "answer to api_sync_v2 is none"),
        ({"acquire": b'{"id": 77, "result": 1}'}, "answer to acquire is none"),
        ({"add_stream": {"error": {"code": -32000, "message": "two\nlines"}}}, "refuses add_stream: two lines"),
        ({"add_stream": {"error": "text"}}, "answer to add_stream is none"),
        ({"get_port_stats": {"result": {"ierrors": "many"}}}, "does not tell ierrors"),
        ({"get_port_stats": {"result": []}}, "does not tell ierrors"),
        ({"get_pgid_stats": {"result": []}}, "does not tell what became of group 1"),
        ({"get_pgid_stats": {"result": {"flow_stats": {"1": {"tp": {"0": -4}, "rp": {"1": 0}}}}}}, "counted -4 frames"),
        ({"get_pgid_stats": {"result": {"flow_stats": {"1": {"tp": {"0": "4"}, "rp": {"1": 0}}}}}}, "counted '4' frames"),
    ],
)
def test_bad_answers_of_trex_are_one_line(answers: dict[str, Any], says: str) -> None:
    with pytest.raises(TesterError, match=says) as caught:
        made(Stand(answers)).measure(100, 0.02)
    assert "\n" not in str(caught.value)


def test_a_busy_server_is_asked_again() -> None:
    stand = Stand({"acquire": [{"error": {"code": -32001, "message": "later"}}] * 2})
    assert made(stand).measure(100, 0.02).valid
    assert [name for name, _ in stand.calls].count("acquire") == 4


def test_what_trex_does_not_do_is_an_error() -> None:
    one = made(Stand())
    refusals: tuple[Callable[[], object], ...] = (
        lambda: one.measure_steps([]), lambda: one.measure_tagged(1, 1, Tags(1, 0)), lambda: one.measure_with_reset(1, 1, 0),
        lambda: made(Stand(), profiles.profile(cell(operation="mix"))).measure(1, 1),
        lambda: made(Stand(), profiles.profile(cell(ip=6))).measure(1, 1),
    )  # fmt: skip
    for refused in refusals:
        with pytest.raises(TesterError):
            refused()


# --- What it is told to send.


def packet(body: dict[str, Any]) -> Any:
    return Ether(base64.b64decode(body["packet"]["binary"]))


@pytest.mark.parametrize("size", [64, 65, 512, 1518])
def test_frames_are_whole_and_have_their_size_without_fcs(size: int) -> None:
    body = streams.frames(LOAD["streams"][0], size, False)
    data = base64.b64decode(body["packet"]["binary"])
    assert len(data) == size - 4
    made_so = packet(body)
    assert (made_so[IP].src, made_so[IP].dst, made_so[IP].len) == ("10.0.0.1", "10.1.0.1", size - 18)
    assert made_so[UDP].len == size - 38
    right = made_so[IP].chksum
    del made_so[IP].chksum
    assert IP(bytes(made_so[IP])).chksum == right
    assert body["flags"] == 0


def test_sources_come_in_turn_and_ports_are_drawn() -> None:
    program = streams.frames(LOAD["streams"][0], 64, False)["vm"]["instructions"]
    variables = {i["name"]: (i["op"], i["min_value"], i["max_value"]) for i in program if i["type"] == "flow_var"}
    assert variables == {
        "ip_src": ("inc", 0x0A000001, 0x0A0000FE), "udp_src": ("random", 1024, 65_535), "udp_dst": ("random", 1, 49_151),
    }  # fmt: skip
    assert [(i["name"], i["pkt_offset"]) for i in program if i["type"] == "write_flow_var"] == [
        ("ip_src", 26), ("udp_src", 34), ("udp_dst", 36),
    ]  # fmt: skip
    assert [i["pkt_offset"] for i in program if i["type"] == "fix_checksum_ipv4"] == [14]
    nat = streams.frames(profiles.profile(cell(operation="nat"))["streams"][0], 64, False)
    assert packet(nat)[UDP].sport == 1025
    assert [i["name"] for i in nat["vm"]["instructions"] if i["type"] == "flow_var"] == ["ip_src"]


def test_the_other_direction_has_addresses_and_ports_exchanged() -> None:
    back = streams.frames(BOTH["streams"][0], 64, True)
    assert (packet(back)[IP].src, packet(back)[IP].dst) == ("10.1.0.1", "10.0.0.1")
    assert [i["pkt_offset"] for i in back["vm"]["instructions"] if i["type"] == "write_flow_var"] == [30, 34, 36]


def test_a_bridge_is_sent_the_link_addresses_of_its_stations() -> None:
    body = streams.frames(profiles.profile(cell(operation="bridge"))["streams"][0], 64, False)
    assert body["flags"] == 3
    assert (packet(body).src, packet(body).dst) == profiles.STATIONS
    assert streams.frames(profiles.profile(cell(operation="cross-connect"))["streams"][0], 64, False)["flags"] == 2


@pytest.mark.parametrize("pattern", ["static", "round-robin", "uniform"])
def test_patterns_are_said_in_trexs_words(pattern: str) -> None:
    program = streams.frames(profiles.profile(cell(pattern=pattern))["streams"][0], 64, False)["vm"]["instructions"]
    ops = {i["name"]: i["op"] for i in program if i["type"] == "flow_var"}
    assert ops == {
        "static": {}, "round-robin": {"ip_dst": "inc"}, "uniform": {"ip_src": "random", "ip_dst": "random"},
    }[pattern]  # fmt: skip


@pytest.mark.parametrize(("rate", "seconds"), [(1, 1), (400, 0.25), (99_999.7, 1.5), (2_000_000, 0.1)])
def test_frames_add_up_to_rate_and_time(rate: float, seconds: float) -> None:
    sent = streams.bursts(BOTH, 64, rate, seconds)
    for port in (0, 1):
        mine = [b for b in sent if b.port == port]
        assert sum(b.count for b in mine) == max(1, round(rate * seconds))
        assert all(b.count / b.pps == pytest.approx(seconds) for b in mine)


# --- Where it can be used.


def on_trex(folder: Path, **keys: Any) -> campaign.Campaign:
    procedures: dict[str, Any] = {
        "fixed": {"kind": "fixed-rate", "rate": "1kpps", "duration_s": 1},
        "pdv": {"kind": "pdv", "rate": "1kpps", "duration_s": 1},
        "tagged": {"kind": "tagged-latency"}, "recovery": {"kind": "recovery"},
    }  # fmt: skip
    bed = {"tester": "trex", "tester_core": 0, "dut_cores": [1], "binaries": {"trex": str(folder)}, **keys}
    return campaign.Campaign.model_validate(
        {
            "schema": "quiver-campaign/1", "name": "t", "quick": True, "testbed": bed, "procedures": procedures,
            "matrix": {"dut": ["linux"], "procedure": list(procedures)},
        }
    )  # fmt: skip


def test_what_trex_cannot_measure_is_absent_with_the_reason(tmp_path: Path) -> None:
    c = on_trex(tmp_path)
    fixed = next(iter(c.cells()))
    assert "is not installed" in (stl.absent(c, fixed) or "")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / server.PROGRAM).touch()
    assert stl.absent(c, fixed) is None
    for changes, says in (
        ({"link": "memif"}, "no memif"), ({"ip": 6, "frame_bytes": 128}, "IPv4 only"), ({"operation": "mix"}, "no mix"),
        ({"frame_bytes": 9000}, "at most"), ({"procedure": "tagged"}, "no times"),
        ({"procedure": "recovery"}, "no 'recovery'"), ({"procedure": "pdv"}, "no times"),
    ):  # fmt: skip
        assert says in (stl.absent(c, fixed.model_copy(update=changes)) or ""), changes
    device = adapter("linux", c)
    assert device is not None
    assert (device.absent(fixed.model_copy(update={"ip": 6, "frame_bytes": 128})) or "").startswith("TRex") or testbed.lacking()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"sender": "xdp"}, "packet sockets"),
        ({"kind": "simulated"}, "kind: local"),
    ],
)  # fmt: skip
def test_a_testbed_that_trex_cannot_have_is_refused(tmp_path: Path, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        on_trex(tmp_path, **keys)


def test_trexs_own_file() -> None:
    ports = ("af-packet:ql1t0", "af-packet:ql1t1")
    (routed,) = yaml.safe_load(server.configuration(ports, (profiles.LEFT, profiles.RIGHT), 3, (5001, 5000)))
    assert routed["interfaces"][1].startswith("--vdev=net_af_packet1,iface=ql1t1,")
    assert routed["port_info"][0] == {"ip": "198.18.0.2", "default_gw": "198.18.0.1"}
    assert (routed["low_end_core"], routed["zmq_rpc_port"]) == (3, 5001)
    (cards,) = yaml.safe_load(
        server.configuration(("dpdk:0000:01:00.0,tx-core=1", "dpdk:0000:01:00.1"), (None, None), 0, (1, 2))
    )
    assert cards["interfaces"] == ["0000:01:00.0", "0000:01:00.1"]
    with pytest.raises(TesterError, match="no port like xdp:a"):
        server.configuration(("xdp:a", "xdp:b"), (None, None), 0, (1, 2))


def test_a_trex_that_does_not_start_says_why(tmp_path: Path) -> None:
    program = tmp_path / server.PROGRAM
    program.write_text("#!/bin/sh\necho starting\necho 'no such port'\nexit 1\n")
    program.chmod(0o755)
    if find("setpriv", {}) is None or find("taskset", {}) is None:
        pytest.skip("setpriv or taskset is not installed")
    place = server.Place(tmp_path, ("af-packet:a", "af-packet:b"), None)
    core = min(os.sched_getaffinity(0))
    with (
        pytest.raises(TesterError, match="TRex does not start: no such port"),
        server.serving(tmp_path, place, (None, None), core),
    ):
        pass


# --- Real frames.

CORE = max(os.sched_getaffinity(0))
RATE = 2000


def need(*programs: str) -> None:
    lacks = testbed.lacking() or next((f"{name} is not here" for name in programs if find(name, {}) is None), None)
    if server.folder_of({}) is None:
        lacks = "TRex is not installed (TREX names its folder)"
    if lacks is None and CORE == 0:
        lacks = "one core: device and tester cannot be told apart"
    if lacks:
        pytest.skip(lacks)


CASES = [
    ("linux", "one-way", ("ethtool",)), ("linux", "bidirectional", ("ethtool",)), ("linux", "bridge", ("ethtool",)),
    ("linux", "nat", ("ethtool", "nft")), ("quiver", "one-way", ("quiver", "quiverctl")),
    ("quiver", "bidirectional", ("quiver", "quiverctl")),
]  # fmt: skip


@pytest.mark.parametrize("frame_bytes", [64, 512])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[:2]))
def test_real_frames_of_trex_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, tuple[str, ...]], frame_bytes: int
) -> None:
    dut, operation, programs = case
    need(*programs)
    monkeypatch.undo()
    text = yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "trex", "quick": True, "line_rate": "10Gbps",
            "testbed": {"tester": "trex", "tester_core": CORE, "dut_cores": [0]},
            "matrix": {"dut": [dut], "operation": [operation], "frame_bytes": [frame_bytes], "procedure": ["p"]},
            "procedures": {"p": {"kind": "fixed-rate", "rate": f"{RATE}pps", "duration_s": 2}},
            "repeats": 1, "odd_runs": {"repeat_at_most": 0}, "noise": {"watch": "none"},
        }
    )  # fmt: skip
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    (record,) = store.runs()
    logs = [p.read_text() for p in (tmp_path / "o" / "logs").glob("*")] if record.status != "done" else []
    assert record.status == "done", (record.why, logs)
    (trial,) = (Trial.model_validate(t.trial) for t in store.trials())
    assert trial.tester["name"] == "TRex"
    assert [d.name for d in trial.directions] == list(tester.NAMES[: 1 + (operation == "bidirectional")])
    assert all(d.intended == 2 * RATE for d in trial.directions)
    # Nothing here is fast enough to lose frames; a machine that keeps TRex from its core makes it late.
    assert trial.lost <= 0.1 * trial.sent
    assert trial.sent >= 0.5 * trial.intended
