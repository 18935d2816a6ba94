"""A look at whether the hosts of a testbed (``twohosts.py``) are as described."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from quiver_lab import hosts
from quiver_lab.doctor import Check
from quiver_lab.hosts import Host
from quiver_lab.processes import CommandError
from quiver_lab.twohosts import HostSpec, Nic, RemoteTestbed, TestbedError, load, parse

__all__ = ["HostSpec", "Nic", "RemoteTestbed", "TestbedError", "checks", "connected", "load", "look", "parse", "port_trouble"]

PCI = "/sys/bus/pci"
CARD = r"""
card=$1/devices/$2; driver=none; loaded=no; addressed=none; named=
[ -d "$card" ] || { echo missing; exit; }
[ ! -e "$card/driver" ] || driver=$(basename "$(readlink "$card/driver")")
[ ! -d "$1/drivers/$3" ] || loaded=yes
for net in "$card"/net/*; do
  [ -e "$net" ] || continue
  named=$named,${net##*/}
  [ -z "$(ip -o addr show dev "${net##*/}" scope global)" ] || addressed=${net##*/}
done
echo "$driver $loaded $addressed ${named:-,}"
"""
"""Says of a card what it is bound to, whether a driver is loaded, which of its interfaces has addresses, and their names."""

NEEDS = {"tester": ("quiver-tester",), "dut": ("quiver", "quiverctl")}
"""Programs of each host."""


@contextlib.contextmanager
def connected(name: str, spec: HostSpec) -> Iterator[Host]:
    """A described host, for the length of a block."""
    with hosts.ssh(
        name, spec.address, port=spec.port, user=spec.user, key=spec.key, known_hosts=spec.known_hosts, binaries=spec.binaries
    ) as host:
        yield host


def checks(bed: RemoteTestbed) -> Iterator[Check]:
    """Whether both hosts are as described; changes nothing on them."""
    for side, spec, nics in (
        ("tester", bed.tester, bed.ports("tester")),
        ("dut", bed.dut, bed.ports("dut")),
    ):
        try:
            with connected(side, spec) as host:
                yield from look(side, host, spec, nics)
        except CommandError as error:
            yield Check("bad", str(error), "see that ssh reaches it with this user, key and known_hosts")


def look(side: str, host: Host, spec: HostSpec, nics: Sequence[Nic]) -> Iterator[Check]:
    """What one host has."""
    yield Check("good", f"{side}: {host.run(['uname', '-sr']).strip()} answers")
    count = int(host.run(["nproc", "--all"]))
    lacking = [c for c in spec.cores if c >= count]
    if lacking:
        yield Check("bad", f"{side}: it has {count} cores; cores {', '.join(map(str, lacking))} are not there", "correct cores")
    else:
        yield Check("good", f"{side}: cores {', '.join(map(str, spec.cores))} of {count} are there")
    for program in NEEDS[side]:
        where = host.find(program)
        yield (
            Check("good", f"{side}: {program} is {where}")
            if where
            else Check("bad", f"{side}: {program} is not installed", f"{side}.binaries names it")
        )
    for nic in nics:
        if trouble := port_trouble(host, nic):
            yield Check("bad", f"{side}: {trouble[0]}", trouble[1])
        else:
            yield Check("good", f"{side}: {nic.place} {_found(host, nic)}")
    if any(nic.pci for nic in nics):
        pages = host.run(["sh", "-c", "cat /proc/sys/vm/nr_hugepages 2>/dev/null || echo 0"]).strip()
        if pages == "0":
            yield Check("could", f"{side}: no huge pages are reserved, which DPDK wants", "sysctl vm.nr_hugepages=1024")
        else:
            yield Check("good", f"{side}: {pages} huge pages are reserved")


def port_trouble(host: Host, nic: Nic) -> tuple[str, str] | None:
    """What keeps a port from being used as described, and what to do about it."""
    if nic.pci is None:
        name = nic.interface
        # What has addresses may be somebody's way to the host.
        words = (
            f"test -e /sys/class/net/{name} && {{ ip -o addr show dev {name} scope global | grep -c . || true; }} || echo none"
        )
        match host.run(["sh", "-c", words]).strip():
            case "none":
                return f"there is no interface {name}, or somebody measures with it", "ip link lists them"
            case "0":
                return None
            case _:
                return f"{name} has addresses, so it is used for something else", f"ip addr flush dev {name}"
    driver, loaded, addressed, names = _card(host, nic)
    if driver == "missing":
        return f"there is no device {nic.pci}", "lspci -D lists them"
    if addressed != "none":
        trouble = f"{nic.pci} is {addressed}, which has addresses, so it is used for something else"
        return trouble, f"ip addr flush dev {addressed}"
    if nic.interface is not None and names and nic.interface not in names:
        return f"{nic.pci} is {', '.join(names)}, not {nic.interface}", "correct 'interface'"
    if driver == nic.driver:
        return None
    if not loaded:
        return f"{nic.pci} is for {nic.driver}, which is not loaded", f"modprobe {nic.driver}"
    if host.run(["id", "-u"]).strip() != "0":
        remedy = f"log in as root, or dpdk-devbind.py --bind {nic.driver} {nic.pci}"
        return f"{nic.pci} is not bound to {nic.driver}, and only root can bind it", remedy
    return None


def _card(host: Host, nic: Nic) -> tuple[str, bool, str, list[str]]:
    """Driver of a card, whether its other one is loaded, its interface with addresses, all of its interfaces."""
    said = host.run(["sh", "-c", CARD, "card", PCI, str(nic.pci), nic.driver]).split()
    if len(said) < 4:
        return "missing", False, "none", []
    return said[0], said[1] == "yes", said[2], [name for name in said[3].split(",") if name]


def _found(host: Host, nic: Nic) -> str:
    """How a port without trouble was found."""
    if nic.pci is None:
        return "is there, and nobody else's"
    driver = _card(host, nic)[0]
    if driver == nic.driver:
        return f"is bound to {driver}"
    return f"is bound to {'no driver' if driver == 'none' else driver}; a run binds it to {nic.driver}, and back"
