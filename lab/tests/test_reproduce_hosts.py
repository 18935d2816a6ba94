"""A reproduction on two hosts by one command, rehearsed on two network namespaces that pose as hosts, each with an ``sshd``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from quiver_lab.cli import app
from quiver_lab.processes import find
from quiver_lab.reproduce import Options, design, place
from quiver_lab.store import Store
from quiver_lab.twohosts import TestbedError
from test_farsite import Rack, rack
from test_local import need

__all__ = ["rack"]

pytestmark = pytest.mark.xdist_group("hosts")
"""As the other tests with these hosts."""

WORDS = ["--only", "dut=linux", "--only", "operation=one-way", "--only", "frame_bytes=64", "--only", "procedure=at-1-gbit"]


def described(rack: Rack, folder: Path) -> Path:
    file = folder / "rack.yaml"
    file.write_text(yaml.safe_dump(rack.description(line_rate="40Gbps")))
    return file


def test_one_command_leads_from_two_hosts_to_the_papers_tables(rack: Rack, tmp_path: Path) -> None:
    there = rack.links()
    # A thesis's gigabit is what a slow tester can send, divided by this.
    words = ["reproduce", "slavik2025", "--quick", "--testbed", str(described(rack, tmp_path)), "--scale", "1/5000", *WORDS]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, (done.output, done.exception)
    store = Store.open(tmp_path / "o")
    runs = [r for r in store.runs() if r.status != "absent"]
    assert [(r.run.cell.dut, r.run.cell.link, r.testbed, r.status) for r in runs] == [("linux", "ports", "rack", "done")] * 5
    assert all(r.values["receive_rate_pps"] for r in runs)
    # How to get there is nobody else's business, and the campaign is the same on any hosts with these cores.
    for file in ("campaign.yaml", "testbeds/rack.json"):
        text = (tmp_path / "o" / file).read_text(encoding="utf-8")
        assert "127.0.0.1" not in text
        assert str(rack.folder) not in text
    page = (tmp_path / "o" / "report" / "reproduction.html").read_text(encoding="utf-8")
    assert "It ran on two hosts with wires between them (rack)" in page
    assert "Testbed rack: dut" in page
    table = (tmp_path / "o" / "report" / "beside.csv").read_text(encoding="utf-8")
    assert any(line.startswith("2.3,") and "linux, 1 core, ports" in line for line in table.splitlines())
    assert rack.links() == there


def dpdk_tester() -> str:
    """The real program, and not one that was built without DPDK."""
    program = find("quiver-tester", {})
    said = "quiver-tester is not here" if program is None else ""
    if program is not None:
        words = [program, "self-test", "--port=dpdk:none0", "--port=dpdk:none1"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        said = "quiver-tester was built without DPDK" if "without DPDK" in done.stderr else ""
    if said and os.environ.get("QUIVER_CI") == "1":
        pytest.fail(said)
    if said:
        pytest.skip(said)
    return str(program)


def test_cards_that_virtual_devices_play_are_ports_of_dpdk_on_both_hosts(rack: Rack, tmp_path: Path) -> None:
    need("quiver", "quiverctl")
    there = rack.links()
    bed = rack.description(line_rate="40Gbps")
    bed["tester"]["binaries"]["quiver-tester"] = dpdk_tester()
    for wire in bed["wires"]:
        for port in wire.values():
            port["driver"] = "net_af_packet"
    (tmp_path / "rack.yaml").write_text(yaml.safe_dump(bed))
    seen = CliRunner().invoke(app, ["testbed", str(tmp_path / "rack.yaml")])
    assert seen.exit_code == 0, seen.output
    only = ["--only", "dut=quiver", *WORDS]
    words = ["reproduce", "slavik2025", "--quick", "--testbed", str(tmp_path / "rack.yaml"), "--scale", "1/5000", *only]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, (done.output, done.exception)
    runs = [r for r in Store.open(tmp_path / "o").runs() if r.status != "absent"]
    logs = {p.name: p.read_text() for p in (tmp_path / "o" / "logs").glob("*")}
    assert {(r.run.cell.dut, r.status) for r in runs} == {("linux", "done"), ("quiver", "done")}, ([r.why for r in runs], logs)
    assert all(r.values["receive_rate_pps"] for r in runs)
    # The kernel forwards between the same ports, which are its own then.
    router = next(r for r in runs if r.run.cell.dut == "quiver")
    assert router.device["driver"] == "net_af_packet"
    assert "vdev net_af_packet0,iface=" in router.device["start"]
    assert rack.links() == there


def test_the_plan_of_two_hosts_starts_nothing_and_names_what_they_cannot_carry(rack: Rack, tmp_path: Path) -> None:
    file = described(rack, tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "slavik2025", "--quick", "--plan", "--testbed", str(file)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "cells can be measured here" in done.output
    assert "4 workers and a main thread need 5 cores" in done.output or "quiver is not installed" in done.output
    assert list(tmp_path.glob("o*")) == []


def test_all_devices_have_the_same_ports_on_two_hosts() -> None:
    for paper in ("slavik2025", "kosak2025", "linguaglossa2019"):
        document = design(paper).document(Options(hosts=True))
        links = {tuple(m["link"]) for m in (document["matrix"], *document["further"]) if "link" in m}
        assert links == {("ports",)}, paper


@pytest.mark.parametrize("text", ["hwmon", "pdu", "pdu:host", "pdu:host:a", "pdu::1", "rapl:1"])
def test_bad_meters_are_refused(text: str) -> None:
    with pytest.raises(TestbedError, match="write it as rapl"):
        place.parse_meter(text)


def test_meters_are_read_and_only_outlets_count_another_hosts_energy(rack: Rack, tmp_path: Path) -> None:
    assert place.parse_meter("") == {}
    assert place.parse_meter("rapl") == {"meter": "rapl"}
    outlets = place.parse_meter("pdu:192.0.2.7:1,2")
    assert outlets == {"meter": "pdu", "pdu": {"host": "192.0.2.7", "outlets": [1, 2]}}
    there = place.of(described(rack, tmp_path))
    assert there.options(Options(meter=outlets)).meter == outlets
    with pytest.raises(TestbedError, match="this machine's energy"):
        there.options(Options(meter={"meter": "rapl"}))


def test_a_file_of_one_machine_is_no_pair_of_hosts(tmp_path: Path) -> None:
    (tmp_path / "bed.yaml").write_text("schema: quiver-testbed/1\nname: here\nkind: local\n")
    with pytest.raises(TestbedError, match="or on two hosts"):
        place.of(tmp_path / "bed.yaml")
