"""Devices under test, by the names that campaigns use."""

from quiver_lab.campaign import Campaign
from quiver_lab.devices.base import Adapter, Bench, DeviceError
from quiver_lab.devices.dpdk import Testpmd
from quiver_lab.devices.external import External
from quiver_lab.devices.grout import Grout
from quiver_lab.devices.l3fwd import L3fwd
from quiver_lab.devices.linux import Linux
from quiver_lab.devices.linux_tuned import LinuxTuned
from quiver_lab.devices.ovs import Ovs, OvsDpdk
from quiver_lab.devices.router import FdioVpp, Quiver
from quiver_lab.devices.simulated import Simulated
from quiver_lab.devices.xdp import Xdp
from quiver_lab.operator import Operator
from quiver_lab.site import Site

LOCAL: dict[str, type[Adapter]] = {
    "quiver": Quiver,
    "linux": Linux,
    "linux-tuned": LinuxTuned,
    "fdio-vpp": FdioVpp,
    "dpdk": Testpmd,
    "l3fwd": L3fwd,
    "grout": Grout,
    "xdp": Xdp,
    "ovs": Ovs,
    "ovs-dpdk": OvsDpdk,
    "external": External,
}
"""Adapters of real devices."""


def adapter(name: str, campaign: Campaign, operator: Operator | None = None, where: Site | None = None) -> Adapter | None:
    """The adapter of a device; none where there is none of that name. ``where`` is the campaign's site, if it was made."""
    if campaign.testbed.kind == "simulated":
        return Simulated(campaign)
    kind = LOCAL.get(name)
    return kind(campaign, operator, where) if kind else None


__all__ = ["LOCAL", "Adapter", "Bench", "DeviceError", "adapter"]
