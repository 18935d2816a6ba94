"""Any box that is reachable only by its ports: somebody configures it by hand, from instructions that the lab prints.

A run goes on when the operator says that the box is configured; then it is checked like any device, so that an instruction that
was not followed is an error before anything is measured. What the box counts, nobody reads: there is no telemetry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from quiver_lab import profiles
from quiver_lab.campaign import Campaign, Cell, ExternalSpec
from quiver_lab.devices.base import (
    Adapter,
    Bench,
    DeviceError,
    check_connectivity,
    make_tester,
    procedure_absent,
    tester_absent,
)
from quiver_lab.operator import Nobody, Operator
from quiver_lab.processes import find, run
from quiver_lab.site import Site


def instructions(cell: Cell, spec: ExternalSpec) -> list[str]:
    """What has to be configured for a cell; cells with the same lines need nothing new."""
    names = ("left", "right")
    out = [
        f"The {name} port of the box: the one that is cabled to the tester's {port.split(',')[0]}."
        for name, port in zip(names, spec.ports, strict=True)
    ]
    if cell.operation in ("bridge", "cross-connect"):
        out.append(
            "Both ports are one Ethernet segment: no addresses, no tags, no spanning tree that keeps a port waiting."
            if cell.operation == "bridge"
            else "What comes in by one port leaves by the other, unchanged, whatever its addresses are."
        )
    else:
        sides = (profiles.LEFT, profiles.RIGHT)
        for name, side in zip(names, sides, strict=True):
            own, peer, hosts = (
                (f"{side.device4}/24", side.tester4, side.hosts4)
                if cell.ip == 4
                else (f"{side.device6}/64", side.tester6, side.hosts6)
            )
            out.append(f"Address of the {name} port: {own}. Route: {hosts} via {peer}.")
        if cell.routes:
            more = profiles.extra_routes(cell.routes)
            span = more[0] if cell.routes == 1 else f"every /24 from {more[0]} to {more[-1]} ({cell.routes} routes)"
            out.append(f"Further routes: {span}, each via {profiles.RIGHT.tester4}.")
        out.append(f"Forwarding of IPv{cell.ip} is on; no filter drops UDP, and no rate is limited.")
    if cell.operation == "nat":
        first, last = profiles.NAT_POOL
        out.append(
            f"Source NAT: what comes from {profiles.LEFT.hosts4} and leaves by the right port gets an address "
            f"of {first} to {last}."
        )
    if cell.workers:
        out.append(f"Forwarding uses {cell.workers} core{'s' if cell.workers > 1 else ''}, where the box lets one choose.")
    return out


class External(Adapter):
    """A box behind two ports of this machine."""

    def __init__(self, campaign: Campaign, operator: Operator | None = None, where: Site | None = None) -> None:
        super().__init__(campaign, operator, where)
        self.operator: Operator = operator or Nobody()

    def absent(self, cell: Cell) -> str | None:
        """Ports, tester, and what cannot be asked of an operator."""
        if self.campaign.testbed.kind == "remote":
            return "a box that is configured by hand is cabled to ports of this machine, not to another host's"
        if self.campaign.testbed.external is None:
            return "testbed.external does not say which ports lead to it"
        if cell.link != "ports":
            return "a box of its own has no veth or memif: link 'ports'"
        if cell.operation == "mix":
            return "the lab has no instructions for MIX"
        if cell.operation == "nat" and cell.ip == 6:
            return "there is no NAT of IPv6"
        if cell.vector or cell.loops or cell.placement or cell.instance or cell.numa or cell.clock_ghz:
            return "vectors, loops, cores and clock of a box of its own are not the lab's to set"
        if cell.ip == 6 and cell.frame_bytes < profiles.SMALLEST_IPV6:
            return f"IPv6 frames of the tester have {profiles.SMALLEST_IPV6} bytes or more"
        how = None if self.campaign.testbed.external.reset else "testbed.external.reset names no command that resets it"
        if reason := procedure_absent(self.campaign, cell, resets=how):
            return reason
        if reason := tester_absent(self.campaign, cell, self.site):
            return reason
        return "taskset is not installed" if find("taskset", {}) is None else None

    @staticmethod
    def _reset(command: Sequence[str]) -> None:
        run(command)

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Have the box configured, and see that it forwards."""
        spec = self.campaign.testbed.external
        if spec is None:
            raise DeviceError("testbed.external does not say which ports lead to it")
        lines: Sequence[str] = instructions(cell, spec)
        self.operator.configure(lines)
        with contextlib.ExitStack() as stack:
            measurer = make_tester(
                self.campaign, cell, folder, spec.ports, None, where=self.site, keep=stack,
                reset=lambda: self._reset(spec.reset),
            )  # fmt: skip
            try:
                check_connectivity(measurer)
            except BaseException:
                # Whoever tries again may have something to repair first.
                self.operator.forget()
                raise
            yield Bench(measurer, {"version": spec.about, "instructions": list(lines), "cores": []})
