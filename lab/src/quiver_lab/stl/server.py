"""Starts TRex from the operator's folder, beside the tester's ports, and connects to it.

All threads of TRex are on the tester's core (its ``low_end``). They sleep between their turns there (``--sleeps``): two that
spin would keep each other waiting for milliseconds. On veth its ports are packet sockets, and there are no huge pages.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from quiver_lab import testbed
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.client import TesterError
from quiver_lab.processes import CommandError, find, last_line, run, running
from quiver_lab.profiles import Side
from quiver_lab.stl.rpc import Rpc
from quiver_lab.stl.zmtp import Requester, ZmtpError

PROGRAM = "_t-rex-64"
STARTS_S = 60.0
SILENCE_S = 15.0
ARP_TRIES = 10
"""Seconds for which TRex asks for its gateways' link addresses when it starts."""
ENDS_S = 5.0

RING_FRAME = 2048
"""Place of a frame in a packet socket's ring, its header included."""
LARGEST = 1518
"""The largest frame, with FCS: DPDK's packet sockets take no longer ones."""
RING = 8192
"""Places of a ring. TRex's own 256 overflow while its receiver sleeps."""

MEASURES = ("throughput", "mlrsearch", "loss-rate", "fixed-rate", "r-plus", "soak")
"""Procedures that ask for trials at a rate, and for nothing else."""
TIMES = ("latency", "pdv", "tagged-latency")
"""Procedures about times."""

PYTHON = [sys.executable, "-I", "-S", "-c"]

CONNECT = """
import socket, sys, time
for left in range(9, -1, -1):
    try:
        made = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
        break
    except OSError as error:
        if not left:
            sys.exit(f"nothing listens: {error}")
        time.sleep(0.05)
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"."], [made.fileno()])
"""
"""Connects where TRex is, in a network namespace of its own, and hands us the connection."""

PORTS = """
import socket
a, b = socket.socket(), socket.socket()
for s in (a, b):
    s.bind(("127.0.0.1", 0))
print(a.getsockname()[1], b.getsockname()[1])
"""
"""Finds two ports of TCP that are free where TRex will be."""


def folder_of(binaries: Mapping[str, str]) -> Path | None:
    """The operator's TRex: ``testbed.binaries`` or ``TREX`` names its folder, where the program is."""
    named = find("trex", binaries)
    if named is None:
        return None
    folder = Path(named)
    return next((f for f in (folder, folder / "scripts") if (f / PROGRAM).exists()), None)


def absent(campaign: Campaign, cell: Cell) -> str | None:
    """Why TRex cannot make a cell's trials here; none where it can, or where it is not asked to."""
    bed = campaign.testbed
    if bed.tester != "trex" or cell.link == "pg":
        return None
    if folder_of(bed.binaries) is None:
        return f"TRex is not installed (testbed.binaries or TREX names the folder of {PROGRAM})"
    kind = campaign.procedures[cell.procedure].kind
    if cell.link == "memif":
        return "TRex has no memif"
    if cell.ip == 6:
        return "TRex answers no neighbour solicitations: the lab has it send IPv4 only"
    if cell.operation == "mix":
        return "the lab has TRex send no mix of families and tags"
    if cell.frame_bytes > LARGEST:
        return f"frames of TRex have at most {LARGEST} bytes here"
    if kind in TIMES:
        return "the lab takes no times from TRex: on packet sockets its receiver is half a millisecond late by itself"
    if kind not in MEASURES:
        return f"TRex's stateless trials are at one rate: there is no '{kind}' with them"
    return None


def interface(number: int, port: str) -> str:
    """A port of quiver-tester as TRex names it: a packet socket, or a card by its PCI address."""
    driver, _, rest = port.partition(":")
    name = rest.split(",")[0]
    if driver == "dpdk":
        return name
    if driver != "af-packet":
        raise TesterError(f"TRex has no port like {port}: af-packet:INTERFACE or dpdk:PCI")
    ring = f"blocksz={RING_FRAME * 32},framesz={RING_FRAME},framecnt={RING},qdisc_bypass=1"
    return f"--vdev=net_af_packet{number},iface={name},{ring}"


def configuration(ports: Sequence[str], sides: Sequence[Side | None], core: int, tcp: Sequence[int]) -> str:
    """TRex's own file. Where a port has no side, frames bring their link addresses."""
    interfaces = [interface(number, port) for number, port in enumerate(ports)]
    addresses = [
        {"ip": side.tester4, "default_gw": side.device4} if side else {"dest_mac": "02:00:00:00:00:ff"} for side in sides
    ]
    document = {
        "version": 2, "port_limit": len(ports), "interfaces": interfaces, "port_info": addresses, "low_end": True,
        "low_end_core": core, "zmq_rpc_port": tcp[0], "zmq_pub_port": tcp[1],
    }  # fmt: skip
    return yaml.safe_dump([document], sort_keys=False, width=1000)


@dataclass(frozen=True, slots=True)
class Place:
    """Where TRex runs."""

    folder: Path
    """For its files."""
    ports: tuple[str, str]
    """As quiver-tester takes them, without addresses."""
    space: testbed.Space | None
    """Where its ports are; none where they are this machine's."""

    def there(self, words: Sequence[str]) -> list[str]:
        """The same command beside its ports."""
        return self.space.command(words) if self.space else list(words)

    def refused(self) -> list[int]:
        """Frames of each port that its driver did not take: a packet socket counts them as sent. Of cards none."""
        names = [port.partition(":")[2].split(",")[0] for port in self.ports if port.startswith("af-packet:")]
        if not names:
            return [0 for _ in self.ports]
        said = run(self.there(["cat", *(f"/sys/class/net/{name}/statistics/tx_dropped" for name in names)]))
        return [int(line) for line in said.split()]


@contextlib.contextmanager
def serving(trex: Path, place: Place, sides: Sequence[Side | None], core: int) -> Iterator[Rpc]:
    """Have TRex run for the length of a block, on a core."""
    folder, there = place.folder, place.there
    config, log = folder / "trex.yaml", folder / "trex.log"
    try:
        tcp = [int(word) for word in run(there([*PYTHON, PORTS])).split()]
        config.write_text(configuration(place.ports, sides, core, tcp), encoding="utf-8")
        words = [
            # Its libraries are found from its folder, and what DPDK leaves behind goes with ours.
            "env", "-C", str(trex), f"RUNTIME_DIRECTORY={folder}", f"./{PROGRAM}", "-i", "--stl", "--no-key", "--no-termio",
            "--iom", "0", "--cfg", str(config), "--prefix", "trex", "--software", "--sleeps", "--no-scapy-server",
            "--limit-arp-request", str(ARP_TRIES),
        ]  # fmt: skip
        with running(there(testbed.on_cores([core], words)), log=log, ends_s=ENDS_S) as process:
            try:
                link = Requester(_connect(there, tcp[0], process), SILENCE_S)
            except (CommandError, ZmtpError) as error:
                said = last_line(log.read_text(encoding="utf-8", errors="replace"))
                raise TesterError(f"TRex does not start: {said or error}") from error
            with contextlib.closing(link):
                yield Rpc(link)
    except CommandError as error:
        raise TesterError(str(error)) from error


def _connect(there: Callable[[Sequence[str]], list[str]], port: int, process: subprocess.Popen[str]) -> socket.socket:
    """Connect as soon as TRex listens."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.set_inheritable(theirs.fileno(), True)
        until = time.monotonic() + STARTS_S
        while True:
            words = there([*PYTHON, CONNECT, str(port), str(theirs.fileno())])
            done = subprocess.run(words, pass_fds=[theirs.fileno()], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            if process.poll() is not None:
                raise CommandError(f"it ended with status {process.returncode}")
            if time.monotonic() > until:
                raise CommandError(last_line(done.stderr))
        _, handles, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=handles[0])
