"""Connection tables: what is asked of quiver-tester's `serve`, what becomes of its answers, campaigns on simulated ones."""

from __future__ import annotations

import json
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign, conntrack, facts, testbed
from quiver_lab.devices import adapter, sessions
from quiver_lab.execute import execute, of_stateful
from quiver_lab.measurer import Step, Tags
from quiver_lab.processes import find
from quiver_lab.report import build
from quiver_lab.runner import Runner, plan
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.stateful import Stateful, StatefulRequest
from quiver_lab.store import Store
from quiver_lab.tester import QuiverTester, TesterError
from test_campaign import BASE

DEVICES = {
    "a": {"capacity_pps": 1e6, "table_connections": 5000, "connection_rate_cps": 3000, "tear_down_rate_cps": 70_000},
    "b": {"capacity_pps": 1e6},
}
PROCEDURES: dict[str, Any] = {
    "rate": {"kind": "connection-rate", "connections": 500, "open_rate": "10000pps"},
    "table": {"kind": "table-capacity", "connections": 600, "open_rate": "10000pps"},
    "clear": {"kind": "tear-down", "connections": 700, "open_rate": "1000pps"},
}
NAT: dict[str, Any] = {
    "testbed": {"kind": "simulated", "devices": DEVICES},
    "matrix": {"dut": ["a", "b"], "link": ["none"], "operation": ["nat"], "procedure": ["rate", "table", "clear"]},
    "procedures": PROCEDURES,
}
REQUEST = StatefulRequest("capacity", 100, 12_500.5, 64, "10.0.0.1-10.0.0.254", "10.1.0.1", timeout=0.1)

SERVE = """#!{python}
import json, os, socket, sys
args = sys.argv[1:]
assert args[0] == "serve"
listener = socket.socket(socket.AF_UNIX)
listener.bind(args[args.index("--socket") + 1])
listener.listen()
connection, _ = listener.accept()
log = open({log!r}, "a")
print(json.dumps(args), file=log, flush=True)
def say(value):
    connection.sendall((json.dumps(value) + "\\n").encode())
for line in connection.makefile():
    request = json.loads(line)
    print(line.strip(), file=log, flush=True)
    if request["op"] == "ports":
        say({{"id": request["id"], "ok": True, "data": {{"ports": []}}}})
    else:
        {body}
"""


def fake(folder: Path, body: str, **more: Any) -> QuiverTester:
    """A tester that is a Python program with `serve`; it leaves its arguments and what it was asked in a file."""
    program = folder / "quiver-tester"
    program.write_text(SERVE.format(python=sys.executable, log=str(folder / "asked"), body=body))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    keys: dict[str, Any] = {"clear": "clear it", **more}
    return QuiverTester([str(program)], ["af-packet:a", "af-packet:b"], folder / "p.json", 64, "10Gbps", **keys)


def answer() -> Stateful:
    return SimulatedDevice(capacity_pps=1e6, table_connections=150).stateful(REQUEST)


def test_what_is_asked_is_the_contracts_and_progress_is_no_answer(tmp_path: Path) -> None:
    # Replies to others and events come between.
    body = f"""say({{"event": "progress", "id": request["id"], "t_s": 0.1}})
        say({{"id": 99, "ok": False, "error": "not ours"}})
        say({{"id": request["id"], "ok": True, "data": json.loads({answer().model_dump_json(by_alias=True)!r})}})"""
    found = fake(tmp_path, body).stateful(REQUEST)
    assert (found.found.capacity, found.found.capacity_below) == (150, 151)
    args, ports, stateful = map(json.loads, (tmp_path / "asked").read_text().splitlines())
    assert args == ["serve", "--socket", str(tmp_path / "serve.sock"), "--clear", "clear it"]
    assert ports == {"id": 1, "op": "ports", "ports": ["af-packet:a", "af-packet:b"]}
    assert stateful == {
        "id": 2, "op": "stateful", "measure": "capacity", "connections": 100, "open_rate": "12500.5pps", "size": 64,
        "initiators": "10.0.0.1-10.0.0.254", "responders": "10.1.0.1", "timeout": 0.1, "alpha": 0.8, "precision": 0.01,
        "error": 1,
    }  # fmt: skip


def test_what_takes_longer_than_its_budget_is_ended_and_told(tmp_path: Path) -> None:
    ended = answer().model_copy(update={"aborted": True, "valid": False, "reasons": ("ended before its time",)})
    # It never ends by itself.
    body = f"""if request["op"] == "stateful":
            asked = request["id"]
            say({{"event": "progress", "id": asked, "t_s": 0.1}})
        else:
            say({{"id": request["id"], "ok": True, "data": None}})
            say({{"id": asked, "ok": True, "data": json.loads({ended.model_dump_json(by_alias=True)!r})}})"""
    found = fake(tmp_path, body).stateful(replace(REQUEST, budget_s=0.0))
    assert (found.aborted, found.valid) == (True, False)
    assert [json.loads(line)["op"] for line in (tmp_path / "asked").read_text().splitlines()[1:]] == [
        "ports", "stateful", "abort",
    ]  # fmt: skip


def test_unknown_keys_of_an_answer_are_kept() -> None:
    document = json.loads(answer().model_dump_json(by_alias=True))
    document["later"] = {"x": 1}
    document["steps"][0]["phase_1"]["also"] = 2
    again = Stateful.model_validate(document).model_dump(mode="json", by_alias=True)
    assert again["later"] == {"x": 1}
    assert again["steps"][0]["phase_1"]["also"] == 2


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("say({'id': request['id'], 'ok': False, 'error': 'the clear command `x\\': no'})", "the clear command `x': no"),
        ("say({'id': request['id'], 'ok': True, 'data': {'schema': 'quiver-stateful/2'}})", "answer is none"),
        ("connection.sendall(b'hello\\n')", "reply to stateful is none"),
        ("connection.sendall(b'[1]\\n')", "reply to stateful is none"),
        ("print('a lost port', file=sys.stderr); sys.exit(3)", "ended during stateful: a lost port"),
        ("pass", "said nothing for"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, body: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Silence is the only case that waits.
    monkeypatch.setattr("quiver_lab.client.CLEAR_S", 0.2 if body == "pass" else 60.0)
    tester = fake(tmp_path, body, grace_s=0.2 if body == "pass" else 30.0)
    with pytest.raises(TesterError, match=says) as caught:
        tester.stateful(REQUEST)
    assert "\n" not in str(caught.value)


def test_a_tester_that_does_not_serve_is_one_line(tmp_path: Path) -> None:
    program = tmp_path / "quiver-tester"
    program.write_text("#!/bin/sh\necho 'port x: no such device' >&2\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(TesterError, match="ended at once: port x: no such device"):
        QuiverTester([str(program)], [], tmp_path / "p.json", 64, "10Gbps").stateful(REQUEST)


def make(folder: Path, *, resume: bool = False, **changes: Any) -> Store:
    text = yaml.safe_dump({**BASE, **NAT, **changes})
    return Store.create(folder, campaign.parse(text), text, facts.machine(), resume=resume)


def test_campaigns_find_what_the_simulated_table_has(tmp_path: Path) -> None:
    store = make(tmp_path / "o")
    Runner(store).run()
    found = {(r.run.cell.dut, r.run.cell.procedure): r for r in store.runs() if r.run.repeat == 0}
    rate = found["a", "rate"].values["establishment_rate_cps"]
    assert rate is not None
    assert 3000 * 0.98 <= rate <= 3000
    table = found["a", "table"].values
    assert table["capacity_connections"] == 5000
    assert found["a", "clear"].values["tear_down_rate_cps"] == 70_000
    assert found["a", "clear"].values["left_connections"] == 0
    for name in PROCEDURES:
        assert (found["b", name].status, found["b", name].values) == ("absent", {})
        assert "no connection table" in found["b", name].why
    assert len(list(store.statefuls())) == 3 * 2
    assert list(store.trials()) == []


def test_tables_and_archive_have_them(tmp_path: Path) -> None:
    store = make(tmp_path / "o")
    Runner(store).run()
    page = build(store, tmp_path / "page").read_text(encoding="utf-8")
    part = page[page.index('<table id="connections">') :]
    part = part[: part.index("</table>")]
    assert part.count("<tr>") == 1 + 3 * 2
    assert "capacity_connections" in (tmp_path / "page" / "results.csv").read_text()
    assert store.archive(tmp_path / "a.tar.xz") == 2 + 6 + 9


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(tmp_path / "o")
    Runner(store).run()
    before = {r.run.cell.slug: r.values for r in store.runs()}
    for path in (tmp_path / "o" / "runs").rglob("r*.json"):
        path.unlink()

    def never(*_: object) -> Stateful:
        raise AssertionError("asked again")

    monkeypatch.setattr(SimulatedDevice, "stateful", never)
    again = make(tmp_path / "o", resume=True)
    Runner(again).run()
    assert {r.run.cell.slug: r.values for r in again.runs()} == before


def outcome(kind: str, **found: Any) -> Any:
    spec = campaign.parse(yaml.safe_dump({**BASE, **NAT})).procedures[kind]
    phase = {"rate_pps": 1, "intended": 1, "sent": 1, "received": 1, "connections": 1, "valid": True}
    steps = found.pop("steps", ["failed"])
    document = {
        "schema": "quiver-stateful/1", "measure": "m", "valid": found.pop("valid", True), "found": found,
        "reasons": ["why"], "steps": [{"connections": 1, "phase_1": phase, "verdict": v} for v in steps],
    }  # fmt: skip
    assert isinstance(spec, campaign.STATEFUL)
    return of_stateful(spec, Stateful.model_validate(document))


def test_outcomes_say_what_bounds_them() -> None:
    assert "the highest rate that was tried passed: the device may be better" in outcome("rate", steps=["passed"]).notes
    none = outcome("rate", establishment_rate_pps=None, valid=False, steps=["invalid", "failed"])
    assert not none.valid
    assert none.values == {"establishment_rate_cps": None}
    assert none.notes == ("why", "the tester itself failed in 1 of 2 steps", "at no rate were all connections opened")
    assert "the table may be larger" in outcome("table", capacity=64, establishment_rate_pps=1.0).notes[1]
    assert outcome("table", capacity=64, capacity_below=65).notes == ("why",)


def absent(dut: str, **changes: Any) -> str | None:
    text = yaml.safe_dump({
        **BASE, "testbed": {"kind": "local"}, "procedures": PROCEDURES,
        "matrix": {"dut": [dut], "operation": ["nat"], "procedure": ["table"], **changes.pop("matrix", {})}, **changes,
    })  # fmt: skip
    c = campaign.parse(text)
    return sessions.absent(next(iter(c.cells())), c)


def test_devices_that_cannot_clear_their_connections_are_absent_with_the_reason() -> None:
    assert [absent(dut) for dut in ("quiver", "fdio-vpp", "linux", "linux-tuned")] == [None] * 4
    assert absent("dpdk") == "the lab knows no command that clears the connections of dpdk"
    assert absent("quiver", matrix={"operation": ["one-way"]}) == "table needs a connection table: operation nat"
    assert "in-kernel ports" in str(absent("linux", testbed={"sender": "xdp"}))
    text = yaml.safe_dump({**BASE, **NAT, "matrix": {**NAT["matrix"], "operation": ["one-way"]}})
    assert all("operation nat" in str(p.absent) for p in plan(campaign.parse(text)) if p.cell.dut == "a")


def test_clear_commands_name_the_running_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiver_lab.devices.sessions.find", lambda name, _: f"/x/{name}")
    c = campaign.parse(yaml.safe_dump({**BASE, **NAT}))
    cell = next(iter(c.cells()))
    router = sessions.clear_command(cell.model_copy(update={"dut": "quiver"}), c, tmp_path, None)
    assert router == f"/x/quiverctl -s {tmp_path}/cli.sock clear nat44 ed sessions"
    kernel = cell.model_copy(update={"dut": "linux"})
    inside = "nsenter --target 77 --net --mount --"
    assert sessions.clear_command(kernel, c, tmp_path, testbed.Namespace(77)) == f"{inside} /x/conntrack -F"
    monkeypatch.setattr("quiver_lab.devices.sessions.find", lambda name, _: None)
    assert sessions.clear_command(kernel, c, tmp_path, testbed.Namespace(77)).endswith("/quiver_lab/conntrack.py")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"connections": 0}, "connections"),
        ({"open_rate": "fast"}, "rate 'fast'"),
        ({"precision": 1}, "precision"),
        ({"error": 0}, "error"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_place(changes: dict[str, Any], says: str) -> None:
    procedures = {**PROCEDURES, "table": {**PROCEDURES["table"], **changes}}
    with pytest.raises(campaign.CampaignError, match=says):
        campaign.parse(yaml.safe_dump({**BASE, **NAT, "procedures": procedures}))


def test_a_device_without_the_ability_is_told(tmp_path: Path) -> None:
    class Plain:
        def measure(self, rate_pps: float, duration_s: float) -> Any:
            raise AssertionError

        def measure_steps(self, steps: Sequence[Step]) -> Any:
            raise AssertionError

        def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Any:
            raise AssertionError

        def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Any:
            raise AssertionError

    c = campaign.parse(yaml.safe_dump({**BASE, **NAT}))
    with pytest.raises(RuntimeError, match="cannot open connections"):
        execute(next(iter(c.cells())), c.procedures["rate"], 1e9, Plain())
    assert adapter("a", c) is not None


def udp_through(space: testbed.Namespace) -> None:
    """Have the kernel track a connection: a datagram to itself, past a rule that asks for tracking."""
    space.run("nft", "-f", "-", text="table ip t { chain c { type filter hook output priority 0; ct state new counter; }; }")
    space.run("python3", "-c", "import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', 9))")


def test_the_kernels_table_is_emptied() -> None:
    if reason := testbed.lacking():
        pytest.skip(reason)
    if not find("nft", {}) or not Path("/proc/sys/net/netfilter/nf_conntrack_count").exists():
        pytest.skip("nftables and connection tracking are needed")
    count = "/proc/sys/net/netfilter/nf_conntrack_count"
    with testbed.namespace() as space:
        udp_through(space)
        before = int(space.run("cat", count))
        subprocess.run(space.command([sys.executable, "-I", "-S", conntrack.__file__]), check=True)
        assert (before, int(space.run("cat", count))) == (1, 0)


def test_a_refusal_of_the_kernels_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Netlink:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Netlink:
            return self

        def __exit__(self, *_: object) -> None: ...
        def bind(self, _: object) -> None: ...
        def send(self, _: bytes) -> None: ...
        def recv(self, _: int) -> bytes:
            return struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -1)

    monkeypatch.setattr(socket, "socket", Netlink)
    with pytest.raises(OSError, match="Operation not permitted"):
        conntrack.flush()
