"""Campaigns on a testbed of two hosts: real ``sshd`` in two network namespaces of this machine, veth wires between them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncssh
import pytest
import yaml

from conftest import SSHD_FOLDER
from quiver_lab import beds, campaign, facts, site, testbed
from quiver_lab.commands import LocalHost
from quiver_lab.devices.base import wire_ports
from quiver_lab.devices.linux import Linux
from quiver_lab.devices.router import Quiver, interface_commands
from quiver_lab.farsite import FarSite
from quiver_lab.records import RunId, RunRecord
from quiver_lab.runner import Progress, Runner, plan
from quiver_lab.site import Ground
from quiver_lab.store import Store
from quiver_lab.testbed import Wires
from quiver_lab.trial import Trial
from quiver_lab.twohosts import dpdk_devices
from test_local import CORE, FIXED, FRAMES, RAW, need

# They look at what all runs of this machine leave, so no two of them run at once.
pytestmark = pytest.mark.xdist_group("hosts")

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
QUIVER = [str(Path(os.environ.get(name, "/none"))) for name in ("QUIVER", "QUIVERCTL")]


@dataclass
class Door:
    """Takes connections on the loopback, and gives each to an sshd of its own in a host's namespace."""

    command: list[str]
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection:
                    self.children.append(
                        subprocess.Popen(
                            self.command,
                            stdin=connection.fileno(),
                            stdout=connection.fileno(),
                            stderr=subprocess.DEVNULL,
                            start_new_session=True,
                        )
                    )

    def cut(self) -> None:
        """End all connections, as when the wire to the host is pulled."""
        # Those there are now: whoever is cut off may connect anew at once.
        for child in [*self.children]:
            # The one that a connection has is a child of it. Who was waited for before has no number any more.
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, 9)
                child.wait(60)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


@dataclass(frozen=True)
class Rack:
    """Two hosts and the wires between them."""

    wires: Wires
    dut: Door
    tester: Door
    folder: Path

    @property
    def program(self) -> Path:
        """The tester's program. Results name it, and nothing of the folder of keys."""
        return self.folder.parent / "quiver-tester"

    @property
    def hold(self) -> Path:
        """While there is this file, or what a link in its place leads to, no tester begins."""
        return self.folder / "hold"

    def description(self, **more: Any) -> dict[str, Any]:
        way = {"address": "127.0.0.1", "user": "root", "key": str(self.folder / "id")}
        programs = {"quiver": QUIVER[0], "quiverctl": QUIVER[1]}
        pairs = zip(self.wires.tester_ports, self.wires.device_ports, strict=True)
        return {
            "schema": "quiver-testbed/1", "name": "rack",
            "tester": {**way, "port": self.tester.port, "known_hosts": str(self.folder / "known-tester"), "cores": [CORE],
                       "binaries": {"quiver-tester": str(self.program)}},
            "dut": {**way, "port": self.dut.port, "known_hosts": str(self.folder / "known-dut"),
                    "cores": [0 if CORE else 1], "binaries": programs},
            "wires": [{"tester": {"interface": t}, "dut": {"interface": d}} for t, d in pairs],
            **more,
        }  # fmt: skip

    def links(self) -> dict[str, list[tuple[str, str]]]:
        """Interfaces of both hosts and whether they are up."""
        out = {}
        for name, space in (("tester", self.wires.tester), ("dut", self.wires.device)):
            lines = space.run("ip", "-o", "link", "show", "type", "veth").splitlines()
            out[name] = sorted((x.split()[1].partition("@")[0], "UP" if ",UP" in x else "down") for x in lines)
        return out


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    need("ethtool")
    if SSHD is None:
        if os.environ.get("QUIVER_CI") == "1":
            pytest.fail("sshd is not installed")
        pytest.skip("sshd is not installed")
    folder = tmp_path / "ssh"
    folder.mkdir()
    keys = {name: asyncssh.generate_private_key("ssh-ed25519") for name in ("id", "host")}
    for name, key in keys.items():
        key.write_private_key(str(folder / name))
        (folder / name).chmod(0o600)
    (folder / "authorized").write_bytes(keys["id"].export_public_key())
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        # Each command is run by a shell, and bash below sshd first does what ~/.bashrc says, unless it is a shell's shell.
        "SetEnv SHLVL=1\n"
    )
    SSHD_FOLDER.mkdir(mode=0o755, exist_ok=True)
    with testbed.veth_pairs() as wires, contextlib.ExitStack() as stack:
        doors = {}
        for name, space in (("dut", wires.device), ("tester", wires.tester)):
            door = doors[name] = Door(space.command([SSHD, "-i", "-f", str(folder / "sshd_config")]))
            stack.callback(door.close)
            threading.Thread(target=door.serve, daemon=True).start()
            public = keys["host"].export_public_key().decode().strip()
            (folder / f"known-{name}").write_text(f"[127.0.0.1]:{door.port} {public}\n")
        rack = Rack(wires, doors["dut"], doors["tester"], folder)
        rack.program.write_text(f'#!/bin/sh\nwhile [ -e {rack.hold} ]; do sleep 0.02; done\nexec {RAW} "$@"\n')
        rack.program.chmod(0o755)
        yield rack


def document(rack: Rack, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "quiver-campaign/1", "name": "far", "quick": True, "line_rate": "10Mbps",
        "testbed": {"kind": "remote", "hosts": rack.description()},
        "matrix": {"dut": ["linux", "quiver"], "link": ["ports"], "procedure": ["p"]},
        "procedures": {"p": FIXED},
        "repeats": 1, "odd_runs": {"repeat_at_most": 0}, **changes,
    }  # fmt: skip


def runner(folder: Path, keys: dict[str, Any], progress: Progress | None = None, *, resume: bool = False) -> Runner:
    text = yaml.safe_dump(keys)
    c = campaign.parse(text)
    store = Store.create(folder, c, text, facts.machine(), resume=resume)
    (bed,) = beds.of(c, folder)
    where = site.of(bed.campaign)
    store.put_testbed(bed.name, bed.facts(where, {}))
    return Runner(store, progress, campaign=bed.campaign, where=where)


def wait_until(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 300
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def ours(rack: Rack) -> set[str]:
    """Folders that are kept for a run, and the hosts' commands that speak of one."""
    folders = {str(path) for path in Path("/tmp").glob("quiver-lab-*") if path.is_dir()}
    return folders | set(commands(rack).values())


def trials(rack: Rack) -> list[int]:
    """The hosts' processes that measure."""
    return [pid for pid, text in commands(rack).items() if "/trial" in text or " trial " in text]


def commands(rack: Rack) -> dict[int, str]:
    """What the hosts run for a lab. Other tests beside this one have hosts, and so network namespaces, of their own."""
    hosts = {space.run("readlink", "/proc/self/ns/net").strip() for space in (rack.wires.tester, rack.wires.device)}
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "/tmp/quiver-lab-" in text and str((folder / "ns/net").readlink()) in hosts:
                found[int(folder.name)] = text
    return found


def has_quiver() -> bool:
    return all(Path(name).exists() for name in QUIVER)


@pytest.mark.parametrize(
    ("bed", "says"),
    [
        ({"kind": "remote"}, "'kind: remote' has its hosts described in 'file', or in place by 'hosts'"),
        ({"kind": "local", "file": "rack.yaml"}, "'file' and 'hosts' are those of 'kind: remote'"),
        ({"kind": "remote", "file": "rack.yaml", "meter": "rapl"}, "would count this machine's energy"),
    ],
)
def test_a_campaign_says_where_its_hosts_are_described(bed: dict[str, Any], says: str) -> None:
    keys = {"schema": "quiver-campaign/1", "name": "far", "quick": True, "testbed": bed,
            "matrix": {"dut": ["linux"], "procedure": ["p"]}, "procedures": {"p": FIXED}}  # fmt: skip
    with pytest.raises(campaign.CampaignError, match=says):
        campaign.parse(yaml.safe_dump(keys))


def test_ports_of_dpdk_stand_in_the_configuration_of_the_router(tmp_path: Path) -> None:
    cards = [{"tester": {"interface": f"e{n}"}, "dut": {"pci": f"0000:02:00.{n}"}} for n in (0, 1)]
    way = {"address": "192.0.2.1", "cores": [3]}
    hosts = {
        "schema": "quiver-testbed/1",
        "name": "rack",
        "tester": way,
        "dut": {**way, "address": "192.0.2.2"},
        "wires": cards,
    }
    keys = {"schema": "quiver-campaign/1", "name": "far", "quick": True, "testbed": {"kind": "remote", "hosts": hosts},
            "matrix": {"dut": ["quiver"], "link": ["ports"], "procedure": ["p"]}, "procedures": {"p": FIXED}}  # fmt: skip
    (bed,) = beds.of(campaign.parse(yaml.safe_dump(keys)), tmp_path)
    (cell,) = bed.campaign.cells()
    assert "the kernel does not forward between ports of DPDK" in str(Linux(bed.campaign).absent(cell))
    router = Quiver(bed.campaign)
    ground = Ground(LocalHost(), Path("/x"), None, drivers=("vfio-pci", "vfio-pci"))
    text = router.start_text(cell, ground.folder, [card["dut"]["pci"] for card in cards])
    assert "cpu { main-core 3 workers 1 }" in text
    assert "dpdk { dev 0000:02:00.0 { name left } dev 0000:02:00.1 { name right } }" in text
    assert interface_commands(cell, ("", ""), ground) == ([], ("left", "right"))
    played = router.start_text(cell, ground.folder, dpdk_devices("net_af_packet", ("e0", "e1")))
    assert "dpdk { vdev net_af_packet0,iface=e0 { name left } vdev net_af_packet1,iface=e1 { name right } }" in played
    xdp = replace(ground, drivers=("af-xdp", "af-xdp"), macs=("02::1", "02::2"))
    assert interface_commands(cell, ("e0", "e1"), xdp) == (
        [f"create interface af_xdp host-if e{n} name {name} num-rx-queues all" for n, name in ((0, "left"), (1, "right"))],
        ("left", "right"),
    )


def test_a_campaign_runs_on_two_hosts_over_ssh(rack: Rack, tmp_path: Path) -> None:
    before, there = ours(rack), rack.links()
    run = runner(tmp_path / "o", document(rack))
    run.run()
    store = run.store
    records = {r.run.cell.dut: r for r in store.runs()}
    logs = {p.name: p.read_text() for p in (tmp_path / "o" / "logs").glob("*")}
    assert records["linux"].status == "done", (records["linux"].why, logs)
    if has_quiver():
        assert records["quiver"].status == "done", (records["quiver"].why, logs)
        assert records["quiver"].device["version"].startswith("quiver v")
        assert "ip4" in records["quiver"].telemetry["runtime"]
    else:
        assert records["quiver"].why == "quiver is not installed (testbed.binaries or QUIVER names it)"
    assert records["linux"].device["receive"] in ("threaded NAPI", "receive packet steering")
    assert records["linux"].testbed == "rack"
    for t in store.trials():
        assert Trial.model_validate(t.trial).received >= 0.9 * FRAMES
        assert t.testbed == "rack"
        # Of the device's machine all cores, of the tester's its own.
        assert len(t.core_busy) == os.cpu_count()
        assert list(t.tester_busy) == [str(CORE)]
    machines = store.testbeds["rack"]["machines"]
    assert machines["dut"]["kernel"] == machines["tester"]["kernel"] == os.uname().release
    assert machines["dut"]["memory_kib"] == facts.machine()["memory_kib"]
    # How to get there is nobody else's business.
    assert str(rack.folder) not in (tmp_path / "o" / "testbeds" / "rack.json").read_text()
    assert rack.links() == there
    wait_until(lambda: not ours(rack) - before, f"left behind: {ours(rack) - before}")


class CutsAt(Progress):
    """Ends the connections while a run goes on."""

    def __init__(self, rack: Rack) -> None:
        self.rack = rack
        self.seen: list[str] = []
        self.threads: list[threading.Thread] = []

    def begin(self, run: RunId, done_s: float, total_s: float) -> None:
        self.seen.append(f"{run.cell.dut} {run.repeat}")
        if len(self.seen) == 3:
            # Its tester stands still until it is cut off: it could be done before.
            self.rack.hold.touch()
            self.threads.append(threading.Thread(target=self.cut))
            self.threads[0].start()

    def cut(self) -> None:
        # The tester's second process is the one that measures.
        wait_until(lambda: bool(trials(self.rack)), "nothing is measured")
        for door in (self.rack.dut, self.rack.tester):
            door.cut()
        self.rack.hold.unlink()

    def ended(self, record: RunRecord) -> None:
        self.seen.append(record.status)


def test_a_connection_that_dies_leaves_nothing_and_its_run_is_made_again(rack: Rack, tmp_path: Path) -> None:
    before, there = ours(rack), rack.links()
    keys = document(rack, matrix={"dut": ["linux"], "link": ["ports"], "procedure": ["p"]}, repeats=3)
    progress = CutsAt(rack)
    run = runner(tmp_path / "o", keys, progress)
    run.run()
    for thread in progress.threads:
        thread.join()
    # The others go on.
    assert progress.seen == ["linux 0", "done", "linux 1", "failed", "linux 2", "done"]
    wait_until(lambda: rack.links() == there, f"the ports are not back: {rack.links()}")
    wait_until(lambda: not ours(rack) - before, f"left behind: {ours(rack) - before}")
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "o" / "trials").rglob("*.json")}
    runner(tmp_path / "o", keys, resume=True).run()
    assert [(r.run.repeat, r.status, r.why) for r in run.store.runs()] == [(n, "done", "") for n in range(3)]
    assert [t.run.repeat for t in run.store.trials()] == [0, 1, 2]
    assert all(p.stat().st_mtime_ns == at for p, at in kept.items())
    assert rack.links() == there


def test_a_lab_that_is_killed_leaves_nothing_and_resumes_to_the_same_trials(rack: Rack, tmp_path: Path) -> None:
    before, there = ours(rack), rack.links()
    (tmp_path / "rack.yaml").write_text(yaml.safe_dump(rack.description()))
    keys = document(rack, testbed={"kind": "remote", "file": "rack.yaml"}, repeats=2)
    keys["matrix"]["dut"] = ["linux"]
    (cell,) = campaign.parse(yaml.safe_dump(document(rack, matrix=keys["matrix"]))).cells()
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(keys))
    folder = tmp_path / "o"
    words = [sys.executable, "-m", "quiver_lab", "run", str(tmp_path / "c.yaml"), "--out", str(folder)]

    def stored() -> list[str]:
        return sorted(p.name for p in folder.glob("trials/*/r*.json"))

    # It does not go on before it is killed.
    rack.hold.symlink_to(folder / "trials" / cell.slug / "r00-a0-0000.json")
    process = subprocess.Popen(words)
    try:
        wait_until(lambda: bool(stored()), "no trial was stored")
        wait_until(lambda: bool(trials(rack)), "nothing is measured")
    finally:
        process.kill()
        process.wait()
    assert stored() == ["r00-a0-0000.json"]
    wait_until(lambda: rack.links() == there, f"the ports are not back: {rack.links()}")
    wait_until(lambda: not ours(rack) - before, f"left behind: {ours(rack) - before}")
    rack.hold.unlink()
    done = subprocess.run([*words, "--resume"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert stored() == ["r00-a0-0000.json", "r01-a0-0000.json"]
    assert rack.links() == there


@pytest.mark.parametrize(
    ("ports", "called"),
    [
        ([{"pci": "0000:01:00.0"}, {"pci": "0000:01:00.1"}], ("0000:01:00.0", "0000:01:00.1")),
        (
            [{"interface": name, "driver": "net_af_packet"} for name in ("e0", "e1")],
            ("net_af_packet0,iface=e0", "net_af_packet1,iface=e1"),
        ),
    ],
    ids=["cards", "virtual devices"],
)
def test_ports_of_the_tester_that_are_dpdks_have_a_core_each(ports: list[dict[str, str]], called: tuple[str, str]) -> None:
    cards = [{"tester": port, "dut": {"interface": f"eth{n}"}} for n, port in enumerate(ports)]
    hosts = {"tester": {"address": "192.0.2.1", "cores": [2, 4, 6]}, "dut": {"address": "192.0.2.2", "cores": [1]}}
    described = {"schema": "quiver-testbed/1", "name": "cards", "wires": cards, **hosts}
    matrix = {"dut": ["linux"], "link": ["ports"], "procedure": ["p"]}
    keys = {"schema": "quiver-campaign/1", "name": "c", "matrix": matrix, "procedures": {"p": {"kind": "throughput"}},
            "testbed": {"kind": "remote", "hosts": described}}  # fmt: skip
    c = campaign.parse(yaml.safe_dump(keys))
    wires = SimpleNamespace(tester_ports=tuple(port.get("pci", port.get("interface")) for port in ports))
    made = wire_ports(FarSite(c), next(iter(c.cells())), wires)  # type: ignore[arg-type]
    assert made == tuple(f"dpdk:{name},tx-core={core},rx-core={core}" for name, core in zip(called, (2, 4), strict=True))


def test_what_two_hosts_cannot_carry_is_absent_with_the_reason(rack: Rack, tmp_path: Path) -> None:
    cards = [{"tester": {"pci": f"ffff:01:00.{n}"}, "dut": {"pci": f"ffff:02:00.{n}"}} for n in (0, 1)]
    every = {"dut": ["linux", "quiver", "external", "fdio-vpp"], "link": ["ports", "veth"], "procedure": ["p"]}

    def why(**changes: Any) -> dict[tuple[str, str], str | None]:
        keys = document(rack, matrix=every)
        keys["testbed"]["hosts"] |= changes
        c = campaign.parse(yaml.safe_dump(keys))
        (bed,) = beds.of(c, tmp_path)
        return {(p.cell.dut, p.cell.link): p.absent for p in plan(bed.campaign)}

    found = why()
    assert found["linux", "ports"] is None
    assert found["linux", "veth"] == "a testbed of two hosts has wires of its own: link 'ports'"
    assert "cabled to ports of this machine" in str(found["external", "ports"])
    assert "vpp is not installed" in str(found["fdio-vpp", "ports"]) or found["fdio-vpp", "ports"] is None
    assert "there is no device ffff:02:00.0" in str(why(wires=cards)["quiver", "ports"])
    assert "the wires carry 1Mbps" in str(why(line_rate="1Mbps")["linux", "ports"])
    names = [{"tester": {"interface": f"no{n}"}, "dut": {"interface": f"no{n}"}} for n in (0, 1)]
    assert "dut: there is no interface no0" in str(why(wires=names)["linux", "ports"])
    rack.wires.device.run("ip", "addr", "add", "192.0.2.9/24", "dev", rack.wires.device_ports[0])
    assert "has addresses, so it is used for something else" in str(why()["linux", "ports"])
