"""DPDK's testpmd as a cross-connect: what a device costs that does nothing but move frames."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from quiver_lab.campaign import Cell
from quiver_lab.devices.base import Adapter, Bench, DeviceError, check_connectivity, lab_absent, make_tester, wire_ports
from quiver_lab.processes import last_line
from quiver_lab.testbed import MEMIF_RING
from quiver_lab.twohosts import KERNEL_DRIVERS, VIRTUAL_DRIVERS, dpdk_devices

PROGRAM = "dpdk-testpmd"


class Testpmd(Adapter):
    """``dpdk-testpmd`` in its io mode."""

    __test__ = False

    def absent(self, cell: Cell) -> str | None:
        """Program, cores, and what the cell asks for."""
        if reason := self.site.absent(cell):
            return reason
        if self.site.program(PROGRAM) is None:
            return f"{PROGRAM} is not installed"
        if cell.operation != "cross-connect":
            return "testpmd does not route"
        if cell.vector or cell.loops or cell.placement:
            return "testpmd has no vectors, loops or main thread to set"
        if cell.link not in self.site.links:
            return "it needs a link: veth or memif"
        if cell.workers > 1:
            return "two ports of one queue have work for one core"
        return lab_absent(self.campaign, cell, self.site)

    def arguments(self, cell: Cell, folder: Path, ports: tuple[str, str], *, cards: bool = False) -> list[str]:
        """The program's arguments. It wants a main core of its own: with one core both are put on it."""
        core = self.campaign.testbed.dut_cores[-1]
        if cell.link == "memif":
            devices = [
                f"--vdev=net_memif{n},role=server,id=0,socket={folder / side}.sock,socket-abstract=no"
                for n, side in enumerate(("left", "right"))
            ]
        elif cards:
            devices = [f"--allow={p}" for p in ports]
        else:
            devices = [f"--vdev={name}" for name in dpdk_devices("net_af_packet", ports)]
        return [
            *([] if cards else ["--no-huge", "-m", "256", "--no-pci"]), "--no-telemetry", f"--file-prefix=lab{folder.name}",
            f"--lcores=0@{core},1@{core}", *devices,
            "--", "--forward-mode=io", "--auto-start", "--stats-period=1", "--no-mlockall", "--total-num-mbufs=16384",
        ]  # fmt: skip

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Start testpmd between the tester's ports."""
        program = self.site.program(PROGRAM)
        assert program is not None
        log = folder / "testpmd.log"
        with contextlib.ExitStack() as stack:
            ground = stack.enter_context(self.site.ground(cell, folder))
            ports, space = ("", ""), None
            command = [program]
            cards = ground.drivers[0] not in (*KERNEL_DRIVERS, *VIRTUAL_DRIVERS)
            if ground.wires is not None:
                wires = ground.wires
                ports, space = wires.device_ports, wires.tester
                tester_ports = wire_ports(self.site, cell, wires)
                command = wires.device.command([program])
            else:
                tester_ports = (
                    f"memif:socket={folder}/left.sock,id=0,role=client,ring={MEMIF_RING}",
                    f"memif:socket={folder}/right.sock,id=0,role=client,ring={MEMIF_RING}",
                )
            words = self.arguments(cell, ground.folder, ports, cards=cards)
            process = stack.enter_context(ground.device.running([*command, *words], log=log))
            until = time.monotonic() + 30
            while "start packet forwarding" not in (said := log.read_text(encoding="utf-8", errors="replace")):
                if process.poll() is not None:
                    raise DeviceError(f"testpmd ended at once: {last_line(said)}")
                if time.monotonic() > until:
                    raise DeviceError("testpmd did not begin to forward within 30 s")
                time.sleep(0.05)
            measurer = make_tester(
                self.campaign, cell, folder, tester_ports, space, where=self.site, keep=stack, far=ground.far
            )
            check_connectivity(measurer)
            yield Bench(measurer, {"version": PROGRAM, "cores": [self.campaign.testbed.dut_cores[-1]]}, cores=ground.cores)
