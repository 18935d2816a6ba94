"""Devices that are only arithmetic, under a campaign like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from quiver_lab.campaign import Cell
from quiver_lab.devices.base import Adapter, Bench, machine_absent
from quiver_lab.simulate import SimulatedDevice


class Simulated(Adapter):
    """One of ``testbed.devices``; larger frames and translation cost it nothing, further workers add up."""

    throttles = True

    def absent(self, cell: Cell) -> str | None:
        """Whether the cell's device is described."""
        if cell.dut not in self.campaign.testbed.devices:
            return f"{cell.dut} is not among testbed.devices"
        return machine_absent(self.campaign, cell)

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Make the device; its noise differs from run to run by the folder's name."""
        spec = self.campaign.testbed.devices[cell.dut]
        device = SimulatedDevice(
            capacity_pps=spec.capacity_pps * max(1, cell.workers) * cell.throttle,
            directions=2 if cell.operation == "bidirectional" else 1,
            noise=spec.noise,
            stray_loss=spec.stray_loss,
            buffer_frames=spec.buffer_frames,
            tester_max_pps=float("inf") if spec.tester_max_pps is None else spec.tester_max_pps,
            spoilt=spec.spoilt,
            base_latency_ns=spec.base_latency_us * 1000,
            recovery_s=spec.recovery_s,
            reset_s=spec.reset_s,
            table_connections=spec.table_connections,
            connection_rate_cps=spec.connection_rate_cps * max(1, cell.workers) * cell.throttle,
            tear_down_rate_cps=spec.tear_down_rate_cps,
            seed=sum(ord(c) * 31**i for i, c in enumerate(folder.name)) % 2**32,
        )
        yield Bench(device, {"simulated": spec.model_dump(), "rx_mode": "polling"})
