"""What this host can measure, and what would make its results better."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from quiver_lab import facts, hardware, testbed
from quiver_lab.energy import POWERCAP, MeterError, Rapl
from quiver_lab.processes import find
from quiver_lab.sensors import HWMON, sensors

State = Literal["good", "could", "bad"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    state: State
    """good; could be better; bad: something cannot be measured."""
    what: str
    remedy: str = ""


def checks(proc: Path = facts.PROC, sys: Path = facts.SYS) -> Iterator[Check]:
    """Look at everything that results depend on."""
    machine = facts.machine(proc, sys)
    cores = os.cpu_count() or 1
    if cores >= 4:
        yield Check("good", f"{cores} cores: tester and device have their own, and some are left")
    elif cores >= 2:
        yield Check(
            "could", f"{cores} cores: one for the tester and one for the device; rates are for comparison on this machine only"
        )
    else:
        yield Check("bad", "one core: tester and device take time from each other", "use a machine with two or more")
    if machine["virtual"]:
        yield Check(
            "could",
            "a virtual machine: its cores may be taken away in the middle of a trial",
            "repeat more, look at dispersion",
        )
    governor = machine["governor"]
    if governor is None:
        yield Check("could", "the clock rate of the cores cannot be seen or set here")
    elif governor == "performance":
        yield Check("good", "the cores keep their clock rate (governor performance)")
    else:
        yield Check("could", f"the clock rate follows the load (governor {governor})", "cpupower frequency-set -g performance")
    if machine["isolated_cores"]:
        yield Check("good", f"cores {machine['isolated_cores']} are kept free of other work")
    else:
        yield Check("could", "no core is kept free of other work", "boot with isolcpus= for the cores of tester and device")
    if machine["smt"] == "on":
        yield Check("could", "cores are shared by two threads each", "echo off > /sys/devices/system/cpu/smt/control")
    try:
        pages = int((proc / "sys/vm/nr_hugepages").read_text(encoding="ascii"))
    except (OSError, ValueError):
        pages = 0
    if pages:
        yield Check("good", f"{pages} huge pages are reserved")
    else:
        yield Check("could", "no huge pages: packet memory lies on small ones", "sysctl vm.nr_hugepages=512")
    yield from _programs()
    if why := hardware.lacking():
        yield Check(
            "could",
            f"no hardware counters ({why}): instructions and cache misses are simulated",
            "a machine of its own, and perf",
        )
    else:
        yield Check("good", "hardware counters can be read (testbed.counters: perf)")
    yield from _meters(sys)


def _meters(sys: Path) -> Iterator[Check]:
    found = []
    with contextlib.suppress(MeterError):
        Rapl(facts.now_s, sys / "class/powercap" if sys != facts.SYS else POWERCAP)
        found.append("RAPL")
    names = [s.name for s in sensors(sys / "class/hwmon" if sys != facts.SYS else HWMON)]
    if names:
        found.append(f"hwmon: {', '.join(names)}")
    if find("ipmitool", {}) is not None and any((sys / "class/ipmi").glob("ipmi*")):
        found.append("IPMI")
    if found:
        yield Check("good", f"energy can be measured ({'; '.join(found)})")
    else:
        yield Check(
            "could",
            "no energy meter in this machine: reports say packets per busy core-second and call nothing energy",
            "an outlet that counts, asked by SNMP (testbed.meter: pdu)",
        )


def _programs() -> Iterator[Check]:
    lacking = testbed.lacking()
    if lacking is None:
        yield Check("good", "network namespaces and their tools are here")
    else:
        yield Check("bad", f"the local testbed does not work: {lacking}", "run as root, with iproute2 and util-linux")
    for name, state, use in (
        ("quiver-tester", "bad", "nothing but simulated devices can be measured without it"),
        ("quiver", "bad", "the router itself"),
        ("quiverctl", "bad", "configures the router"),
        ("ethtool", "could", "needed for the kernel as a device"),
        ("nft", "could", "needed for source NAT by the kernel"),
        ("vpp", "could", "FD.io VPP as a device"),
        ("dpdk-testpmd", "could", "DPDK's testpmd as a device"),
        ("dpdk-l3fwd", "could", "DPDK's example l3fwd as a device"),
        ("grout", "could", "DPDK's graph router as a device"),
        ("ovs-vswitchd", "could", "Open vSwitch as a device"),
        ("clang", "could", "compiles the program of the device xdp"),
    ):
        where = find(name, {})
        if where:
            yield Check("good", f"{name} is here")
        else:
            yield Check("bad" if state == "bad" else "could", f"{name} is not here: {use}")
