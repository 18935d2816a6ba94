"""Where a reproduction runs: on this machine, or on two hosts that a file describes, with wires between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quiver_lab import beds, facts, site
from quiver_lab.beds import Bed
from quiver_lab.campaign import Campaign, Cell, Testbed
from quiver_lab.reproduce.calibrate import calibrate
from quiver_lab.reproduce.design import Options, Scale
from quiver_lab.runner import Progress, Runner
from quiver_lab.store import Store
from quiver_lab.twohosts import TestbedError


@dataclass(frozen=True, slots=True)
class Place:
    """This machine, or ``bed``."""

    bed: Testbed | None = None

    def options(self, options: Options) -> Options:
        """The same, with cores and ports of the hosts: the campaign's file says nothing of how to get there."""
        if self.bed is None or self.bed.hosts is None:
            return options
        hosts = self.bed.hosts
        if (kind := options.meter.get("meter")) not in (None, "pdu"):
            raise TestbedError(f"--meter {kind} would count this machine's energy, not that of the device's host")
        # In the campaign's file the tester has a core of its own, whatever its host calls it.
        tester = next(n for n in range(len(hosts.dut.cores) + 1) if n not in hosts.dut.cores)
        return replace(options, hosts=True, dut_cores=hosts.dut.cores, tester_core=tester, perf=False)

    def bed_of(self, campaign: Campaign, file: Path | None) -> Bed:
        """The campaign as it is there, with the meter that its own text names."""
        (bed,) = beds.of(campaign, Path(), [file] if file else [])
        own = campaign.testbed
        metered = bed.campaign.testbed.model_copy(update={"meter": own.meter, "pdu": own.pdu})
        return replace(bed, campaign=bed.campaign.model_copy(update={"testbed": metered}))

    def calibrate(self, options: Options) -> tuple[Scale, Scale | None]:
        """Measure the scales there."""
        return calibrate(options, self.bed)

    def run(self, store: Store, bed: Bed, progress: Progress, only: Callable[[Cell], bool] | None) -> None:
        """Make the runs there; results keep what the hosts are, and not how to get there."""
        if self.bed is None:
            Runner(store, progress, only).run()
            return
        where = site.of(bed.campaign)
        store.put_testbed(bed.name, bed.facts(where, facts.machine()))
        Runner(store, progress, only, campaign=bed.campaign, where=where).run()


def parse_meter(text: str) -> dict[str, Any]:
    """Read ``--meter``: ``rapl``, ``ipmi``, or ``pdu:HOST:1,2`` with the outlets that feed the device's host, and no others."""
    kind, _, rest = text.partition(":")
    if kind in ("rapl", "ipmi") and not rest:
        return {"meter": kind}
    host, _, outlets = rest.rpartition(":")
    if kind == "pdu" and host and all(n.isdigit() for n in outlets.split(",")):
        return {"meter": "pdu", "pdu": {"host": host, "outlets": [int(n) for n in outlets.split(",")]}}
    if text:
        raise TestbedError(f"--meter '{text}': write it as rapl, ipmi or pdu:HOST:1,2")
    return {}


def of(file: Path | None) -> Place:
    """The place that a file describes, which must be two hosts; without a file, this machine."""
    if file is None:
        return Place()
    bed = beds.load(file)
    if bed.hosts is None:
        raise TestbedError(f"{file}: a reproduction runs on this machine without --testbed, or on two hosts")
    return Place(bed)
