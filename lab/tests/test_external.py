"""A device that is configured by hand: a namespace plays the box, the test its operator."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from quiver_lab import campaign, cli, facts, testbed
from quiver_lab.devices.external import instructions
from quiver_lab.devices.linux import configure
from quiver_lab.operator import AtTerminal, Nobody, Operator, OperatorError
from quiver_lab.processes import find, run
from quiver_lab.report import tables
from quiver_lab.runner import Runner, plan
from quiver_lab.store import Store
from test_local import CORE, FIXED, RAW, need

PORTS = ["af-packet:enp1s0f0", "af-packet:enp1s0f1"]


def text(ports: Sequence[str] = PORTS, **more: Any) -> str:
    return yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "box", "quick": True, "line_rate": "10Mbps",
            "testbed": {
                "tester_core": CORE, "dut_cores": [0] if CORE else [1], "binaries": {"quiver-tester": str(RAW)},
                "external": {"ports": list(ports), "about": "a box, version 1"},
            },
            "matrix": {"dut": ["external"], "link": ["ports"], "procedure": ["p"], **more},
            "procedures": {"p": FIXED}, "repeats": 2, "odd_runs": {"repeat_at_most": 0}, "noise": {"watch": "none"},
        }
    )  # fmt: skip


def lines_of(**more: Any) -> str:
    c = campaign.parse(text(**more))
    (cell,) = c.cells()
    assert c.testbed.external is not None
    return "\n".join(instructions(cell, c.testbed.external))


def test_instructions_say_all_that_the_traffic_needs() -> None:
    routed = lines_of(routes=[300])
    wanted = [
        "enp1s0f0",
        "enp1s0f1",
        "198.18.0.1/24",
        "198.19.0.1/24",
        "10.0.0.0/16 via 198.18.0.2",
        "10.1.0.0/16 via 198.19.0.2",
    ]
    for needed in [*wanted, "from 20.0.0.0/24 to 20.1.43.0/24 (300 routes), each via 198.19.0.2"]:
        assert needed in routed
    assert "NAT" not in routed
    six = lines_of(ip=[6], frame_bytes=[128])
    assert "2001:2:0:1::1/64" in six
    assert "2001:2:0:b::/64 via 2001:2:0:2::2" in six
    assert "10." not in six
    nat = lines_of(operation=["nat"])
    assert "from 10.0.0.0/16 and leaves by the right port gets an address of 198.19.1.1 to 198.19.1.254" in nat
    assert "one Ethernet segment" in lines_of(operation=["bridge"])
    assert "Address" not in lines_of(operation=["cross-connect"])


class Recorded(Operator):
    """Configures nothing, remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, ...]] = []

    def told(self, instructions: Sequence[str]) -> None:
        self.heard.append(tuple(instructions))


def test_an_operator_is_told_what_is_new_and_what_did_not_work() -> None:
    operator = Recorded()
    for lines in (["a"], ["a"], ["b"], ["a"]):
        operator.configure(lines)
    assert operator.heard == [("a",), ("b",), ("a",)]
    operator.forget()
    operator.configure(["a"])
    assert len(operator.heard) == 4


def test_the_operator_at_a_terminal_is_waited_for_unless_it_is_done() -> None:
    said: list[str] = []
    waited: list[int] = []

    def enter() -> str:
        waited.append(len(said))
        return ""

    AtTerminal(said.append, enter).configure(["do this"])
    assert "  - do this" in said
    assert waited == [len(said)]
    AtTerminal(said.append, None).configure(["do this"])
    assert len(waited) == 1

    def nobody() -> str:
        raise EOFError

    gone = AtTerminal(said.append, nobody)
    for _ in range(2):
        with pytest.raises(OperatorError, match="--yes"):
            gone.configure(["do this"])
    with pytest.raises(OperatorError, match="needs an operator"):
        Nobody().configure(["do this"])


def test_what_cannot_be_asked_of_a_box_is_absent() -> None:
    why = {
        (p.cell.operation, p.cell.link, p.cell.vector): p.absent
        for p in plan(campaign.parse(text(operation=["one-way", "mix"], link=["ports", "veth"], vector=[0, 64])))
    }
    assert why["one-way", "veth", 0] == "a box of its own has no veth or memif: link 'ports'"
    assert why["mix", "ports", 0] == "the lab has no instructions for MIX"
    assert "not the lab's to set" in str(why["one-way", "ports", 64])
    bare = yaml.safe_load(text())
    del bare["testbed"]["external"]
    (planned,) = plan(campaign.parse(yaml.safe_dump(bare)))
    assert planned.absent == "testbed.external does not say which ports lead to it"


def test_sudden_procedures_need_a_way_to_do_them() -> None:
    def why(ports: Sequence[str] = PORTS, reset: Sequence[str] = ()) -> dict[str, str | None]:
        document = yaml.safe_load(text(ports, dut=["external", "linux"], link=["ports", "veth"], procedure=["again", "over"]))
        document["procedures"] = {"again": {"kind": "reset"}, "over": {"kind": "recovery"}}
        document["testbed"]["external"]["reset"] = list(reset)
        planned = plan(campaign.parse(yaml.safe_dump(document)))
        return {f"{p.cell.dut} {p.cell.link} {p.cell.procedure}": p.absent for p in planned}

    bare = why()
    assert bare["external ports again"] == "testbed.external.reset names no command that resets it"
    assert bare["external ports over"] is None
    if find("ethtool", {}):
        assert bare["linux veth again"] == "a kernel is not reset without its machine"
    assert why(reset=["true"])["external ports again"] is None
    assert why(ports=["xdp:a", "xdp:b"])["external ports over"] is None


def test_instructions_are_printed_once_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text(operation=["one-way", "bidirectional", "nat"], frame_bytes=[64, 512]))
    done = CliRunner().invoke(cli.app, ["instructions", str(tmp_path / "c.yaml")])
    assert done.exit_code == 0
    assert done.output.count("scenario ") == 2
    assert "scenario 2 of 2, for external-ports-nat-w1-64B" in done.output


@contextlib.contextmanager
def box() -> Iterator[tuple[testbed.Namespace, tuple[str, str], tuple[str, str]]]:
    """A namespace with two ports, cabled to two of this machine's."""
    mark = f"qx{os.getpid() % 100_000}"
    ours, its = (f"{mark}t0", f"{mark}t1"), (f"{mark}d0", f"{mark}d1")
    with testbed.namespace() as space:
        space.run("sh", "-c", testbed.QUIET)
        for t, d in zip(ours, its, strict=True):
            run(["ip", "link", "add", t, "type", "veth", "peer", "name", d, "netns", str(space.pid)])
            Path(f"/proc/sys/net/ipv6/conf/{t}/disable_ipv6").write_text("1")
            run(["ip", "link", "set", t, "up"])
            space.run("ip", "link", "set", d, "up")
        yield space, ours, its


class ByHand(Recorded):
    """Configures the box when it is told to."""

    def __init__(self, space: testbed.Namespace, ports: tuple[str, str], cell: campaign.Cell) -> None:
        super().__init__()
        self.box = (space, ports, cell)

    def told(self, instructions: Sequence[str]) -> None:
        super().told(instructions)
        configure(*self.box)


def test_a_box_is_configured_checked_and_measured(tmp_path: Path) -> None:
    need()
    with box() as (space, ours, its):
        source = text([f"af-packet:{port}" for port in ours])
        c = campaign.parse(source)
        (cell,) = c.cells()
        store = Store.create(tmp_path / "o", c, source, facts.machine(), resume=False)
        lazy = Recorded()
        Runner(store, operator=lazy).run()
        assert {r.status for r in store.runs()} == {"failed"}
        assert all("no connectivity" in r.why for r in store.runs())
        # What did not work is told again; nothing of it was measured.
        assert len(lazy.heard) == 2
        assert list(store.trials()) == []

        operator = ByHand(space, its, cell)
        Runner(store, operator=operator).run()
    runs = list(store.runs())
    assert [r.status for r in runs] == ["done", "done"], [r.why for r in runs]
    assert len(operator.heard) == 1
    assert runs[0].device["version"] == "a box, version 1"
    assert runs[0].device["instructions"] == list(operator.heard[0])
    assert runs[0].telemetry == {}
    (use,) = tables.uses(store).values()
    # Its cores are not of this machine.
    assert (use.device_busy, use.packets_per_core_second) == (None, None)
