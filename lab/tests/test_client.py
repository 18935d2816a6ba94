"""The tester from Python: what is asked over its socket, what comes back, and the real program."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quiver_lab import client
from quiver_lab.client import Client, Progress, TesterError
from quiver_lab.processes import find
from quiver_lab.simulate import SimulatedDevice

REPORT = SimulatedDevice(capacity_pps=1e6).measure(1000, 1).model_dump(mode="json", by_alias=True)
PROFILE = {"name": "p", "streams": [{"name": "load", "from": "left", "ipv4": {}, "udp": {}}]}


class Served:
    """A socket on which one client is served by a function of its requests."""

    def __init__(self, folder: Path, answer: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> None:
        self.path, self.asked, self.answer = folder / "serve.sock", [], answer  # type: ignore[var-annotated]
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        connection, _ = self.listener.accept()
        with connection, connection.makefile("r") as lines:
            for line in lines:
                request = json.loads(line)
                self.asked.append(request)
                for said in self.answer(request):
                    connection.sendall((json.dumps({"id": request["id"], **said}) + "\n").encode())

    def close(self) -> None:
        self.thread.join()
        self.listener.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[Callable[[dict[str, Any]], list[dict[str, Any]]]], Served]]:
    made: list[Served] = []

    def serve(answer: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Served:
        made.append(Served(tmp_path, answer))
        return made[0]

    yield serve
    for one in made:
        one.close()


def ok(data: object) -> list[dict[str, Any]]:
    return [{"ok": True, "data": data}]


def test_ports_profile_and_trial_are_asked_as_the_contract_has_them(served: Any, tmp_path: Path) -> None:
    port = {"name": "a", "mac": "02:00:00:00:00:01", "max_frame": 9022}
    tester = served(lambda request: ok({"ports": {"ports": [port]}, "profile": {}}.get(request["op"], REPORT)))
    with client.connect(tester.path) as c:
        (found,) = c.ports(["tap:a"])
        assert (found.name, found.max_frame) == ("a", 9022)
        c.profile(PROFILE)
        c.profile(tmp_path / "x" / ".." / "p.yaml")
        trial = c.trial(rate="1kpps", duration=1, size=[64, 128], settle=0.5)
        assert (trial.received, trial.valid) == (1000, True)
    assert [{k: v for k, v in r.items() if k != "id"} for r in tester.asked] == [
        {"op": "ports", "ports": ["tap:a"]},
        {"op": "profile", "profile": PROFILE},
        {"op": "profile", "file": str(tmp_path / "p.yaml")},
        {"op": "trial", "rate": "1kpps", "duration": 1, "size": [64, 128], "settle": 0.5},
    ]


def test_progress_is_told_and_may_end_the_trial(served: Any) -> None:
    told: list[Progress] = []

    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["op"] == "abort":
            return [*ok(None), {"id": 1, "ok": True, "data": {**REPORT, "valid": False, "aborted": True}}]
        return [{"event": "progress", "t_s": 0.1, "of_s": 9.0, "sent": 5, "received": 4}] * 2

    def enough(progress: Progress) -> bool:
        told.append(progress)
        return False

    tester = served(answer)
    with client.connect(tester.path) as c:
        trial = c.trial(rate="1kpps", duration=9, progress=enough)
    assert not trial.valid
    assert told == [Progress(0.1, 9.0, 5, 4)]
    assert [r["op"] for r in tester.asked] == ["trial", "abort"]


@pytest.mark.parametrize(
    ("data", "call"),
    [
        ({"schema": "quiver-trial/2"}, lambda c: c.trial(rate="1pps", duration=1)),
        ([], lambda c: c.ports(["tap:a"])),
        ({"ports": [{"name": 1}]}, lambda c: c.ports(["tap:a"])),
        ("x", lambda c: c.self_test()),
    ],
)
def test_an_answer_that_is_none_is_one_line(served: Any, data: object, call: Callable[[Client], object]) -> None:
    tester = served(lambda _: ok(data))
    with client.connect(tester.path) as c, pytest.raises(TesterError, match="the tester's answer is none") as caught:
        call(c)
    assert "\n" not in str(caught.value)


def test_where_nobody_serves_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TesterError, match="no tester serves on"), client.connect(tmp_path / "none"):
        pass
    monkeypatch.setenv("QUIVER_TESTER", str(tmp_path / "none"))
    with pytest.raises(TesterError, match="quiver-tester is not installed"), client.start():
        pass


def test_the_real_tester_sends_to_itself_over_memif(tmp_path: Path) -> None:
    if find("quiver-tester", {}) is None:
        if os.environ.get("QUIVER_CI") == "1":
            pytest.fail("quiver-tester is not here")
        pytest.skip("quiver-tester is not here")
    ends = [f"memif:socket={tmp_path}/m.sock,id=0,role={role},dst-mac=02:00:00:00:00:09" for role in ("server", "client")]
    told: list[Progress] = []
    with client.start(ends) as tester:
        with pytest.raises(TesterError):
            tester.profile({"streams": 1})
        tester.profile(PROFILE)
        trial = tester.trial(rate="10kpps", duration=0.5, size=64, progress=told.append)
        (direction,) = trial.directions
        assert direction.intended == 5000
        assert direction.sent == direction.received + direction.lost
        assert told
        ended = tester.trial(rate="10kpps", duration=600, size=64, progress=lambda p: p.sent < 100)
        assert not ended.valid
        assert ended.duration_s < 600
        # Long trials that end by themselves: what is asked for comes in time on any machine.
        wishes: Iterator[client.Wish] = iter(["5kpps", None, None, False])
        faster = tester.trial(rate="1kpps", duration=600, size=64, progress=lambda _: next(wishes, False))
        (direction,) = faster.directions
        assert 600_000 < direction.intended < 3_000_000
        assert direction.sent == direction.received + direction.lost
        wishes = iter(["fast", None, None, False])
        with pytest.raises(TesterError, match="a change of rate: `fast' is no rate"):
            tester.trial(rate="1kpps", duration=600, size=64, progress=lambda _: next(wishes, False))
        # Ports and profile are still there.
        assert tester.trial(rate="1kpps", duration=0.1, size=128).intended == 100
        kind = {"name": "a", "port": 80, "request": 100, "response": 20_000}
        connections = {"name": "c", "clients": "10.0.0.1-10.0.0.9", "servers": "10.1.0.1", "connections": [kind]}
        tcp = tester.tcp(connections, rate=200, duration=0.5, settle=60, timeout=60, progress=told.append)
        assert tcp.opened == tcp.established == tcp.completed > 0
        assert tcp.response_bytes == 20_000 * tcp.completed
        assert tcp.connect_ns is not None
        assert tcp.connect_ns.count == tcp.opened
        assert tcp.connections[0].name == "a"
        with pytest.raises(TesterError, match="missing field `clients`"):
            tester.tcp({"name": "c"}, rate=1, duration=1)
