"""What the lab tells FD.io VPP, which is not on every machine: the same cores and the same way to wait as Quiver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign
from quiver_lab.devices import DeviceError, generator
from quiver_lab.devices.router import FdioVpp, Quiver
from test_campaign import BASE
from test_local import stand_in


def both(**bed: Any) -> tuple[Quiver, FdioVpp, campaign.Cell]:
    text = yaml.safe_dump(
        {**BASE, "testbed": {"kind": "local", "tester_core": 0, **bed}, "matrix": {**BASE["matrix"], "link": ["memif"]}}
    )
    c = campaign.parse(text)
    return Quiver(c), FdioVpp(c), next(iter(c.cells()))


def cpu(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("cpu"))


def test_one_core_is_mains_and_no_worker_strays_to_the_testers() -> None:
    quiver, vpp, cell = both(dut_cores=[1])
    assert cpu(quiver.start_text(cell, Path("/x"))) == "cpu { main-core 1 workers 1 }"
    assert cpu(vpp.start_text(cell, Path("/x"))) == "cpu { main-core 1 }"


def test_with_more_cores_both_have_the_same_workers() -> None:
    quiver, vpp, cell = both(dut_cores=[1, 2])
    assert (
        cpu(quiver.start_text(cell, Path("/x")))
        == cpu(vpp.start_text(cell, Path("/x")))
        == "cpu { main-core 1 corelist-workers 2 }"
    )


def test_its_vectors_are_its_own_and_those_of_its_generator(tmp_path: Path) -> None:
    program = stand_in(tmp_path, "vpp")
    _, vpp, cell = both(dut_cores=[1], binaries={"vpp": program, "vppctl": program})

    def why(**changes: Any) -> str:
        return vpp.absent(cell.model_copy(update=changes)) or ""

    fixed = "VPP's vectors have 256 packets at most, which is fixed when it is built"
    assert why(vector=64) == fixed
    assert why(vector=512, link="pg", operation="one-way") == "VPP's vectors have 256 packets at most"
    assert fixed not in why(vector=256)
    assert why(vector=4, link="pg", operation="one-way") == ""
    assert why(loops="4p0") == "VPP's loops are fixed when it is built"
    assert vpp.experiment(cell.model_copy(update={"vector": 4})) == []
    text = vpp.generator_text(generator.Threads(1, ()), Path("/x"))
    assert cpu(text) == "cpu { main-core 1 }"
    assert "dpdk_plugin.so { disable }" in text


class Told:
    """Plays the machine that VPP runs on: a control program that answers."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.files: dict[str, str] = {}
        self.said: list[list[str]] = []

    def write(self, path: Path, text: str) -> None:
        self.files[str(path)] = text

    def run(self, command: list[str], *, seconds: float) -> str:
        del seconds
        self.said.append(command)
        return self.answer


def test_it_is_told_by_a_file_and_a_refused_command_fails_the_run() -> None:
    _, vpp, _ = both(dut_cores=[1])
    host: Any = Told("pg0\npg1\n")
    vpp.tell(host, "vppctl", Path("/x/cli.sock"), ["a", "b"])
    assert host.files == {"/x/commands.cli": "a\nb\n"}
    assert host.said == [["vppctl", "-s", "/x/cli.sock", "exec", "/x/commands.cli"]]
    with pytest.raises(DeviceError, match="vpp refused a command: unknown input `b'"):
        vpp.tell(Told("unknown input `b'\n"), "vppctl", Path("/x/cli.sock"), ["b"])  # type: ignore[arg-type]


def test_both_wait_as_the_campaign_says() -> None:
    quiver, vpp, _ = both(dut_cores=[1], rx_mode="polling")
    names = ("memif1/0", "memif2/0")
    assert quiver.rx_mode() == vpp.rx_mode() == "polling"
    assert quiver.waiting(names) == (["set interface default rx-mode polling"], [])
    assert vpp.waiting(names) == ([], ["set interface rx-mode memif1/0 polling", "set interface rx-mode memif2/0 polling"])
    for device in both(dut_cores=[1])[:2]:
        assert device.waiting(names) == ([], [])
