"""What the lab tells FD.io VPP, which is not on every machine: the same cores and the same way to wait as Quiver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from quiver_lab import campaign
from quiver_lab.devices.router import FdioVpp, Quiver
from test_campaign import BASE


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


def test_both_wait_as_the_campaign_says() -> None:
    quiver, vpp, _ = both(dut_cores=[1], rx_mode="polling")
    names = ("memif1/0", "memif2/0")
    assert quiver.rx_mode() == vpp.rx_mode() == "polling"
    assert quiver.waiting(names) == (["set interface default rx-mode polling"], [])
    assert vpp.waiting(names) == ([], ["set interface rx-mode memif1/0 polling", "set interface rx-mode memif2/0 polling"])
    for device in both(dut_cores=[1])[:2]:
        assert device.waiting(names) == ([], [])
