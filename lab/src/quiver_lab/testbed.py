"""The local testbed: anonymous network namespaces for tester and device, joined by veth pairs or by memif sockets.

::

     namespace tester            namespace device
    ┌──────────────────┐        ┌──────────────────┐
    │ tester    qlN-t0 ├──veth──┤ qlN-d0   device  │
    │           qlN-t1 ├──veth──┤ qlN-d1           │
    └──────────────────┘        └──────────────────┘

A namespace lives as long as one process of ours in it: nothing is left behind, whatever ends us.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quiver_lab.campaign import Testbed
from quiver_lab.processes import CommandError, find, run, running

_numbers = itertools.count()

MEMIF_RING = 2048
"""Descriptors of a ring to the device. A ring back has twice as many, so that all that is under way has room at its end."""

QUIET = "cd /proc/sys/net/ipv6/conf/default && echo 0 > accept_ra && echo 0 > dad_transmits"
"""No router solicitations and no duplicate address detection among the frames that are counted."""


class Space(Protocol):
    """Where commands run beside ports: a namespace here, or on another host (``farsite.py``)."""

    @property
    def beyond(self) -> Space | None:
        """What the wires of this one lead to: the device's, of a tester's."""

    def command(self, words: Sequence[str]) -> list[str]:
        """The same command inside."""

    def run(self, *words: str, text: str = "") -> str:
        """Run a command inside; failures are a ``CommandError``."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace, with a /sys and a /proc/sys of its own."""

    pid: int
    beyond: Namespace | None = None
    """What the wires of this one lead to: the device's, of a tester's."""

    def command(self, words: Sequence[str]) -> list[str]:
        """The same command inside."""
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", "--", *words]

    def run(self, *words: str, text: str = "") -> str:
        """Run a command inside."""
        return run(self.command(words), text=text)


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    """Have a namespace for the length of a block."""
    script = "mount -t sysfs none /sys && ip link set lo up && echo ready && exec sleep infinity"
    # sleep reads no input; its end is ours.
    with running(["unshare", "--net", "--mount", "--propagation", "private", "--", "sh", "-c", script]) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise CommandError(
                "no network namespace can be made here: root, or a user namespace that owns its network, is needed"
            )
        yield Namespace(process.pid)


@dataclass(frozen=True, slots=True)
class Wires:
    """Two namespaces joined by two wires: veth pairs here, cables between hosts."""

    tester: Space
    device: Space
    tester_ports: tuple[str, str]
    device_ports: tuple[str, str]


@contextlib.contextmanager
def veth_pairs() -> Iterator[Wires]:
    """Make the drawing above."""
    mark = f"ql{os.getpid() % 100_000}{'abcdefghij'[next(_numbers) % 10]}"
    tester_ports, device_ports = (f"{mark}t0", f"{mark}t1"), (f"{mark}d0", f"{mark}d1")
    with namespace() as tester, namespace() as device:
        for space in (tester, device):
            with contextlib.suppress(CommandError):
                space.run("sh", "-c", QUIET)
        with contextlib.suppress(CommandError):
            tester.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
        for t, d in zip(tester_ports, device_ports, strict=True):
            run(["ip", "link", "add", t, "netns", str(tester.pid), "type", "veth",
                 "peer", "name", d, "netns", str(device.pid)])  # fmt: skip
            for space, name in ((tester, t), (device, d)):
                space.run("ip", "link", "set", name, "up")
                if find("ethtool", {}):
                    # Frames as they are: no checksums left to others, no frames put together.
                    with contextlib.suppress(CommandError):
                        space.run("ethtool", "-K", name, "tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off")
        yield Wires(Namespace(tester.pid, device), device, tester_ports, device_ports)


def take_from_programs(space: Space, ports: Sequence[str]) -> None:
    """Have ends of veth pairs take what programs at their other ends send, all of the time.

    They do while they have a program of their own, or GRO. The tester's has one during a trial only, and a router's fast path
    asks each second: without GRO it would stand aside for the first second of each trial.
    """
    for port in ports:
        space.run("ethtool", "-K", port, "gro", "on")


def on_cores(cores: Sequence[int], command: Sequence[str]) -> list[str]:
    """The same command, kept to these cores."""
    return ["taskset", "--cpu-list", ",".join(str(c) for c in cores), *command]


def tester_program(testbed: Testbed) -> str | None:
    """Where quiver-tester is."""
    return find("quiver-tester", testbed.binaries)


def lacking() -> str | None:
    """What the local testbed needs and does not find; none where all is there."""
    for name in ("ip", "nsenter", "unshare", "setpriv", "taskset"):
        if find(name, {}) is None:
            return f"{name} is not installed"
    if os.geteuid() != 0:
        return "network namespaces need root"
    return None


@contextlib.contextmanager
def scratch(name: str, logs: Path) -> Iterator[Path]:
    """A folder for sockets, logs and profiles of one run; its own name follows from the run's.

    It lies where temporary files do, because the path of a socket is at most 107 bytes long. If the block fails, its logs are
    moved to ``logs``.
    """
    with tempfile.TemporaryDirectory(prefix="ql-") as parent:
        folder = Path(parent) / hashlib.sha256(name.encode()).hexdigest()[:8]
        folder.mkdir()
        try:
            yield folder
        except Exception:
            for log in folder.glob("*.log"):
                logs.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(log, logs / f"{name}-{log.name}")
            raise
