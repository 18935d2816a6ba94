"""The Linux kernel in a namespace: forwarding and source NAT, its work pinned to the device's cores.

Left alone, a veth's receiver runs where its sender runs: the kernel's forwarding would be charged to the tester. So the
device's ends get NAPI (by GRO), each NAPI a thread, and the threads are pinned. They come before all ordinary threads of the
core, as a card's interrupts do. Otherwise a router that polls on that core would keep them from it for milliseconds, and what
arrives meanwhile would be lost in the veth's ring of 256 places. Where the kernel has no threaded NAPI, receive packet steering
moves the work instead. Which of both was used stands in the result.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Cell
from quiver_lab.devices import fed, generator
from quiver_lab.devices.base import (
    Adapter,
    Bench,
    DeviceError,
    check_connectivity,
    cores_of,
    lab_absent,
    machine_absent,
    make_tester,
    wire_ports,
)
from quiver_lab.processes import CommandError


def nat_rules(outside: str) -> str:
    """Source NAT to the pool, for what leaves by the right port."""
    first, last = profiles.NAT_POOL
    return (
        "table ip lab {\n chain post {\n  type nat hook postrouting priority srcnat;\n"
        f"  oifname {outside} ip saddr {profiles.LEFT.hosts4} snat to {first}-{last}\n }}\n}}\n"
    )


THREADED = "threaded NAPI"

NAPI_PRIORITY = "1"
"""Of SCHED_FIFO, the lowest: before ordinary threads, behind the hog of a throttled device."""

NAPI_THREADS = r"""
for comm in /proc/[0-9]*/comm; do
  read -r name <"$comm" 2>/dev/null || continue
  case $name in "napi/$1-"*) pid=${comm#/proc/}; echo "${pid%/comm}";; esac
done
"""
"""Prints the kernel threads that poll a port."""


def napi_threads(space: testbed.Space, port: str) -> list[int]:
    """The kernel threads that poll a port."""
    return [int(pid) for pid in space.run("sh", "-c", NAPI_THREADS, "threads", port).split()]


def pin_receive(space: testbed.Space, port: str, cores: tuple[int, ...]) -> str:
    """Make a port's receive work run on ``cores``, before what else does; says how."""
    mask = f"{sum(1 << c for c in cores):x}"
    space.run("ethtool", "-K", port, "gro", "on")
    with contextlib.suppress(CommandError):
        space.run("sh", "-c", f"echo 1 > /sys/class/net/{port}/threaded")
        threads = napi_threads(space, port)
        for pid in threads:
            space.run("taskset", "--cpu-list", "--pid", ",".join(map(str, cores)), str(pid))
            space.run("chrt", "--fifo", "--pid", NAPI_PRIORITY, str(pid))
        if threads:
            return THREADED
    space.run("sh", "-c", f"for q in /sys/class/net/{port}/queues/rx-*; do echo {mask} > $q/rps_cpus; done")
    return "receive packet steering"


def pin_device(space: testbed.Space, ports: Sequence[str], cores: tuple[int, ...], cell: Cell) -> str:
    """The same of all ports of a device. Where it is throttled, threads must do the work: nothing holds an interrupt up."""
    how = [pin_receive(space, port, cores) for port in ports]
    if cell.throttle != 1 and any(said != THREADED for said in how):
        raise DeviceError("this kernel has no threaded NAPI: work that is done in interrupts cannot be throttled")
    return how[0]


def link_address(space: testbed.Space, port: str) -> str:
    """A port's link address."""
    (link,) = json.loads(space.run("ip", "-j", "link", "show", "dev", port))
    return str(link["address"])


def counters_of(device: testbed.Space) -> dict[str, Any]:
    """What the kernel counts of a namespace's ports."""
    return {"interfaces": json.loads(device.run("ip", "-s", "-j", "link", "show"))}


def configure(device: testbed.Space, ports: tuple[str, str], cell: Cell) -> None:
    """Addresses and routes of a router, or a bridge."""
    device.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
    batch = []
    if cell.operation == "bridge":
        batch += ["link add br0 type bridge", *(f"link set {port} master br0" for port in ports), "link set br0 up"]
    for port, side in zip(ports, (profiles.LEFT, profiles.RIGHT), strict=True):
        if cell.operation == "bridge":
            continue
        if cell.ip == 4:
            batch += [
                f"addr add {side.device4}/24 dev {port}",
                f"route add {side.hosts4} via {side.tester4} dev {port}",
            ]
        else:
            batch += [
                f"addr add {side.device6}/64 dev {port} nodad",
                f"route add {side.hosts6} via {side.tester6} dev {port}",
            ]
    # The further routes are IPv4's.
    if cell.operation != "bridge" and cell.ip == 4:
        batch += [f"route add {p} via {profiles.RIGHT.tester4}" for p in profiles.extra_routes(cell.routes)]
    device.run("ip", "-batch", "-", text="\n".join(batch) + "\n")


class Linux(Adapter):
    """The kernel's own forwarding."""

    throttles = True

    def absent(self, cell: Cell) -> str | None:
        """Tools, rights, and what the cell asks for."""
        if reason := self.site.absent(cell):
            return reason
        if cell.link == "memif":
            return "the kernel has no memif"
        if cell.link == "pg":
            return machine_absent(self.campaign, cell) or fed.absent(self.campaign, cell)
        if cell.link not in self.site.links:
            return "the kernel is measured on veth"
        hosts = self.campaign.testbed.hosts
        if hosts is not None and hosts.ports("dut")[0].interface is None:
            return "the kernel does not forward between ports of DPDK: name the dut's ports by 'interface', too"
        if cell.operation == "cross-connect":
            return "the kernel's forwarding has no cross-connect"
        if cell.operation == "mix":
            return "the lab does not set the kernel up for MIX"
        if cell.vector or cell.loops or cell.placement:
            return "the kernel has no vectors, loops or main thread to set"
        if cell.operation == "nat" and cell.ip == 6:
            return "there is no NAT of IPv6"
        if self.site.program("ethtool") is None:
            return "ethtool is not installed"
        if cell.operation == "nat" and self.site.program("nft") is None:
            return "nftables is not installed"
        if reason := machine_absent(self.campaign, cell):
            return reason
        if cell.workers > (have := len(cores_of(self.campaign, cell))):
            return f"{cell.workers} cores were asked for; testbed.dut_cores gives {have}"
        return lab_absent(self.campaign, cell, self.site, resets="a kernel is not reset without its machine")

    def tune(self, wires: testbed.Wires, cell: Cell, cores: tuple[int, ...], folder: Path) -> dict[str, Any]:
        """What a variant sets beyond that; facts of the result."""
        return {}

    def counters(self, device: testbed.Space, ports: tuple[str, str]) -> dict[str, Any]:
        """What the device counts."""
        return counters_of(device)

    @contextlib.contextmanager
    def feeding(self, cell: Cell) -> Iterator[Bench]:
        """Configure a namespace as a router that is handed its frames from within."""
        cores = generator.cores(self.campaign, cell)
        with testbed.veth_pairs() as wires:
            device, ports = wires.device, wires.device_ports
            configure(device, ports, cell)
            with fed.kernel(cell, wires, cores) as measurer:
                version = device.run("uname", "-r").strip()
                found = {"version": version, "receive": "live frames", "cores": list(cores), "rx_mode": "polling"}
                yield Bench(measurer, found, lambda: counters_of(device))

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Configure a namespace as a router."""
        if cell.link == "pg":
            with self.feeding(cell) as bench:
                yield bench
            return
        cores = cores_of(self.campaign, cell)[: max(1, cell.workers)]
        with contextlib.ExitStack() as stack:
            ground = stack.enter_context(self.site.ground(cell, folder, kernel=True))
            assert ground.wires is not None
            wires = ground.wires
            device, ports = wires.device, wires.device_ports
            configure(device, ports, cell)
            how = pin_device(device, ports, cores, cell)
            if cell.operation == "nat":
                device.run("nft", "-f", "-", text=nat_rules(ports[1]))
            settings = self.tune(wires, cell, cores, folder)
            tester_ports = wire_ports(self.site, cell, wires)
            measurer = make_tester(
                self.campaign, cell, folder, tester_ports, wires.tester, where=self.site, keep=stack, far=ground.far
            )
            check_connectivity(measurer)

            version = ground.device.run(["uname", "-r"]).strip()
            found = {"version": version, "receive": how, "cores": list(cores), **settings}
            yield Bench(measurer, found, lambda: self.counters(device, ports), cores=ground.cores)
