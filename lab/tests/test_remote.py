"""Testbeds of two hosts: descriptions, and commands over SSH against a server of asyncssh's that opens this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml
from typer.testing import CliRunner

from quiver_lab import hosts, remote
from quiver_lab.cli import app
from quiver_lab.hosts import Host, LocalHost
from quiver_lab.processes import CommandError

USER = "lab"


async def shell(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Run what was asked for on this machine, as an sshd does: the command's input ends with the connection."""
    child = await asyncio.create_subprocess_shell(
        process.command or "", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None

    async def forward(reader: Any, writer: Any) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def feed() -> None:
        await forward(process.stdin, child.stdin)
        assert child.stdin is not None
        child.stdin.close()

    feeding = asyncio.ensure_future(feed())
    await asyncio.gather(forward(child.stdout, process.stdout), forward(child.stderr, process.stderr))
    status = await child.wait()
    feeding.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await feeding
    child.stdin.close()
    with contextlib.suppress(asyncssh.Error, OSError):
        process.exit(status if status >= 0 else 128 - status)


@dataclass(frozen=True)
class Sshd:
    port: int
    key: Path
    known_hosts: Path
    loop: asyncio.AbstractEventLoop
    connections: list[asyncssh.SSHServerConnection]

    def spec(self, **more: Any) -> dict[str, Any]:
        return {
            "address": "127.0.0.1", "port": self.port, "user": USER, "key": str(self.key),
            "known_hosts": str(self.known_hosts), "cores": [0], **more,
        }  # fmt: skip

    @contextlib.contextmanager
    def host(self) -> Iterator[hosts.SshHost]:
        with hosts.ssh("box", "127.0.0.1", port=self.port, user=USER, key=self.key, known_hosts=self.known_hosts) as host:
            yield host


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    folder = tmp_path_factory.mktemp("ssh")
    server_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    client_key.write_private_key(str(folder / "id"))
    client_key.write_public_key(str(folder / "id.pub"))
    connections: list[asyncssh.SSHServerConnection] = []

    class Server(asyncssh.SSHServer):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            connections.append(conn)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server, server_host_keys=[server_key], process_factory=shell,
            authorized_client_keys=str(folder / "id.pub"), encoding=None,
        )  # fmt: skip

    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result(120)
    public = server_key.export_public_key().decode().strip()
    (folder / "known").write_text(f"[127.0.0.1]:{acceptor.get_port()} {public}\n")
    yield Sshd(acceptor.get_port(), folder / "id", folder / "known", loop, connections)

    async def close() -> None:
        acceptor.close()
        await acceptor.wait_closed()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        await asyncio.wait(others, timeout=60) if others else None

    asyncio.run_coroutine_threadsafe(close(), loop).result(120)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest, sshd: Sshd) -> Iterator[Host]:
    if request.param == "local":
        yield LocalHost()
        return
    with sshd.host() as over:
        yield over


def test_commands_have_input_output_and_words_as_they_are(host: Host) -> None:
    assert host.run(["cat"], text="a\nb") == "a\nb"
    assert host.run(["printf", "%s|", "two words", "$HOME", "it's", ""]) == "two words|$HOME|it's||"
    assert host.run(["sh", "-c", "echo out; echo err >&2"]) == "out\n"


def test_failures_are_one_line(host: Host) -> None:
    for command, says in (
        (["sh", "-c", "echo one >&2; echo broken >&2; exit 3"], "broken"),
        (["false"], "exit status 1"),
        (["no-such-program-here"], "no-such-program-here"),
    ):
        with pytest.raises(CommandError, match=says) as caught:
            host.run(command)
        assert "\n" not in str(caught.value)
    with pytest.raises(CommandError, match="no end within 0.2 s"):
        host.run(["sleep", "30"], seconds=0.2)
    # And the next one works.
    assert host.run(["echo", "still"]) == "still\n"


def test_programs_are_found_or_not(host: Host) -> None:
    assert str(host.find("sh")).endswith("/sh")
    assert host.find("no-such-program-here") is None


def wait_until(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 120
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def started(log: Path) -> int:
    """The process that said its number."""
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "it did not begin")
    return int(log.read_text().split()[0])


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    # The second is a process that went between the opening and the reading.
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_goes_on_ends_with_its_block(host: Host, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with host.running(["sh", "-c", "echo $$; exec sleep 600"], log=log) as process:
        pid = started(log)
        assert (process.poll(), is_there(pid)) == (None, True)
    wait_until(lambda: not is_there(pid), "it goes on")


def test_what_ends_by_itself_says_how(host: Host, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with host.running(["sh", "-c", "echo said; echo more >&2; exit 7"], log=log) as process:
        wait_until(lambda: process.poll() is not None, "it goes on")
        assert process.poll() == 7
    assert sorted(log.read_text().split()) == ["more", "said"]


def test_what_goes_on_ends_with_the_connection(sshd: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with contextlib.suppress(CommandError), sshd.host() as host, host.running(["sh", "-c", "echo $$; exec sleep 600"], log=log):
        pid = started(log)
        # As when we die: nobody says good-bye.
        sshd.loop.call_soon_threadsafe(sshd.connections[-1].abort)
        wait_until(lambda: not is_there(pid), "it outlives the connection")
        with pytest.raises(CommandError, match="box: true: "):
            host.run(["true"])


def test_hosts_that_cannot_be_reached_are_one_line(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "none").write_text("")
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(tmp_path / "other"))
    good: dict[str, Any] = {"port": sshd.port, "user": USER, "key": sshd.key, "known_hosts": sshd.known_hosts}
    for changes, says in (
        ({"known_hosts": tmp_path / "none"}, "[Hh]ost key"),
        ({"key": tmp_path / "other"}, "[Pp]ermission denied"),
        ({"key": tmp_path / "missing"}, "No such file"),
        ({"port": 1}, "refused|Connect call failed"),
    ):
        with pytest.raises(CommandError, match=says) as caught, hosts.ssh("box", "127.0.0.1", **{**good, **changes}):
            pass
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("box (127.0.0.1 port ")


NIC = {"pci": "ffff:01:00.0"}
VIRTUAL = {"driver": "net_af_packet"}
DUT = [{"pci": f"ffff:02:00.{n}"} for n in (0, 1)]
BED: dict[str, Any] = {
    "schema": "quiver-testbed/1",
    "name": "rack",
    "tester": {"address": "192.0.2.1", "cores": [0, 1]},
    "dut": {"address": "192.0.2.2", "cores": [2, 3]},
    "wires": [{"tester": {"pci": f"ffff:01:00.{n}"}, "dut": DUT[n]} for n in (0, 1)],
}


def test_a_description_is_read() -> None:
    bed = remote.parse(yaml.safe_dump(BED))
    assert (bed.tester.port, bed.wires[1].dut.pci, bed.wires[0].dut.driver) == (22, "ffff:02:00.1", "vfio-pci")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": "quiver-testbed/2"}, "schema: "),
        ({"dut": {"address": "x", "cores": []}}, "dut.cores: "),
        ({"dut": {"address": "x", "cores": [1, 1]}}, "dut.cores: a core is named twice"),
        ({"dut": {"address": "x", "cores": [0], "password": "p"}}, "dut.password: "),
        ({"dut": {"address": "192.0.2.1", "cores": [1]}}, r"share cores \[1\]"),
        ({"wires": BED["wires"][:1]}, "wires"),
        ({"wires": [BED["wires"][0]] * 2}, "both end in the tester's ffff:01:00.0"),
        ({"wires": [{"tester": {"pci": "eth0"}, "dut": NIC}] * 2}, "wires.0.tester.pci: "),
        ({"wires": [{"tester": {"driver": "vfio-pci"}, "dut": NIC}] * 2}, "by 'pci', by 'interface', or by both"),
        (
            {"wires": [{"tester": {"interface": "e", "driver": "af-xdp", **NIC}, "dut": NIC}] * 2},
            "'af-xdp' does not drive ffff",
        ),
        ({"wires": [{**BED["wires"][n], "dut": {"interface": "e0", **DUT[n]}} for n in (0, 1)]}, "both end in the dut's e0"),
        ({"wires": [{"tester": {"interface": "e0", "driver": "vfio-pci"}, "dut": NIC}] * 2}, "'vfio-pci' does not drive e0"),
        ({"wires": [{"tester": NIC, "dut": {"interface": "e0", "driver": "xdp"}}] * 2}, "'xdp' ports are the tester's alone"),
        ({"wires": [BED["wires"][0], {**BED["wires"][1], "dut": {"interface": "e0"}}]}, "one of the dut's ports is DPDK's"),
        (
            {"wires": [{**BED["wires"][n], "dut": {"interface": f"e{n}", **w}} for n, w in ((0, VIRTUAL), (1, {}))]},
            "one of the dut's ports is DPDK's",
        ),
        ({"wires": [{"tester": {**NIC, **VIRTUAL}, "dut": NIC}] * 2}, "'net_af_packet' does not drive ffff"),
        ({"line_rate": "fast"}, "line rate 'fast'"),
    ],
)
def test_a_description_that_cannot_be_is_one_line_with_the_place(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(remote.TestbedError, match=says) as caught:
        remote.parse(yaml.safe_dump({**BED, **changes}), "bed.yaml")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("bed.yaml: ")


@pytest.mark.parametrize("text", ["", "[", "- 1"])
def test_a_file_that_is_no_description_is_one_line(text: str) -> None:
    with pytest.raises(remote.TestbedError, match="bed.yaml: ") as caught:
        remote.parse(text, "bed.yaml")
    assert "\n" not in str(caught.value)


def test_hosts_are_looked_at(sshd: Sshd, tmp_path: Path) -> None:
    program = shutil.which("true")
    cores = os.cpu_count() or 1
    document = {
        **BED,
        "tester": sshd.spec(binaries={"quiver-tester": program}),
        "dut": sshd.spec(cores=[cores + 7], binaries={"quiver": "/no/such", "quiverctl": program}),
    }
    bed = remote.parse(yaml.safe_dump(document))
    said = {c.what: c.state for c in remote.checks(bed)}
    assert said[f"tester: Linux {os.uname().release} answers"] == "good"
    assert said[f"tester: cores 0 of {cores} are there"] == "good"
    assert said[f"tester: quiver-tester is {program}"] == "good"
    assert said[f"dut: it has {cores} cores; cores {cores + 7} are not there"] == "bad"
    assert said["dut: quiver is not installed"] == "bad"
    assert said["dut: there is no device ffff:02:00.0"] == "bad"
    file = tmp_path / "bed.yaml"
    file.write_text(yaml.safe_dump({**document, "dut": {**document["dut"], "port": 1}}))
    done = CliRunner().invoke(app, ["testbed", str(file)])
    assert done.exit_code == 1
    assert "dut (127.0.0.1 port 1): " in done.output
    assert "see that ssh reaches it" in done.output


class Answers(LocalHost):
    """A host whose card is bound to what it says."""

    def __init__(self, said: str, user: str) -> None:
        super().__init__({"quiver-tester": str(shutil.which("true"))})
        self.said, self.user = said, user

    def run(self, command: Any, *, text: str = "", seconds: float = 30.0) -> str:
        if command[0] == "id":
            return self.user
        return f"{self.said}\n" if remote.PCI in command else super().run(command, text=text, seconds=seconds)


@pytest.mark.parametrize(
    ("said", "user", "state", "says"),
    [
        ("vfio-pci yes none ,", "1000", "good", "is bound to vfio-pci"),
        ("ixgbe yes none ,eth0", "0", "good", "is bound to ixgbe; a run binds it to vfio-pci, and back"),
        ("none yes none ,", "0", "good", "is bound to no driver; a run binds it to vfio-pci, and back"),
        ("ixgbe yes none ,eth0", "1000", "bad", "is not bound to vfio-pci, and only root can bind it"),
        ("ixgbe no none ,eth0", "0", "bad", "is for vfio-pci, which is not loaded"),
        ("ixgbe yes eth0 ,eth0", "0", "bad", "is eth0, which has addresses, so it is used for something else"),
    ],
)
def test_cards_are_bound_to_their_driver_where_nothing_forbids_it(said: str, user: str, state: str, says: str) -> None:
    bed = remote.parse(yaml.safe_dump(BED))
    found = [c for c in remote.look("tester", Answers(said, user), bed.tester, [bed.wires[0].tester]) if "ffff" in c.what]
    assert [(c.state, c.what.removeprefix("tester: ffff:01:00.0 ")) for c in found] == [(state, says)]
