"""The Linux kernel as somebody sets it up who runs a router of it, beside the kernel as it comes (``linux.py``).

Each setting is tried, and the result says what became of it: its value, or why it is as it was. Nothing is set outside the
device's namespace: ``net.core.netdev_budget`` and the like are the whole machine's, would change the tester and every other
device of the campaign, and are left alone (a NAPI thread has no such budget anyway).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Cell
from quiver_lab.devices.linux import Linux
from quiver_lab.processes import CommandError

SYSCTLS = {
    # A router's packets are not for sockets of its own: looking for one costs each of them a lookup.
    "net/ipv4/ip_early_demux": "0",
    "net/ipv4/udp_early_demux": "0",
    "net/ipv4/tcp_early_demux": "0",
    # A second lookup of each packet, by its source.
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0",
}
"""What forwarding does without; the lookups of the default variant are those of the distribution's settings."""


def fast_path(ports: tuple[str, str]) -> str:
    """Connections that are known go past the rules: conntrack and routing are asked once each (nftables flowtable)."""
    return (
        "table ip fast {\n flowtable known {\n  hook ingress priority 0;\n"
        f"  devices = {{ {ports[0]}, {ports[1]} }};\n }}\n"
        " chain through {\n  type filter hook forward priority 0;\n"
        f"  ip saddr {profiles.LEFT.hosts4} meta l4proto {{ tcp, udp }} flow add @known\n }}\n}}\n"
    )


def said(error: CommandError) -> str:
    """A command's complaint without the command."""
    return str(error).rpartition(": ")[2]


class LinuxTuned(Linux):
    """The kernel's forwarding with what can be tuned in a namespace."""

    def tune(self, wires: testbed.Wires, cell: Cell, cores: tuple[int, ...], folder: Path) -> dict[str, Any]:
        """Try every setting; say what became of each."""
        device, ports = wires.device, wires.device_ports
        out: dict[str, str] = {}

        def attempt(name: str, value: str, *commands: tuple[str, ...], text: str = "") -> None:
            try:
                for command in commands:
                    device.run(*command, text=text)
                out[name] = value
            except CommandError as error:
                out[name] = f"as it was ({said(error)})"

        for key, value in SYSCTLS.items():
            attempt(key.replace("/", "."), value, ("sh", "-c", f"echo {value} > /proc/sys/{key}"))
        own = (f"echo 0 > /proc/sys/net/ipv4/conf/{port}/rp_filter" for port in ports)
        attempt("net.ipv4.conf.PORT.rp_filter", "0", *(("sh", "-c", line) for line in own))
        attempt("rings", "4096", *(("ethtool", "-G", port, "rx", "4096", "tx", "4096") for port in ports))
        # Frames of a flow go through the stack as a list and leave as they came; translated ones might not.
        if cell.operation == "nat":
            out["gro"] = "on, no lists of frames (they are translated)"
        else:
            attempt("gro", "on, lists of frames", *(("ethtool", "-K", port, "rx-gro-list", "on") for port in ports))
        if len(cores) > 1:
            # A queue has one NAPI thread: what comes after it is spread by flows.
            mask = f"{sum(1 << c for c in cores):x}"
            where = (f"echo {mask} > /sys/class/net/{port}/queues/rx-0/rps_cpus" for port in ports)
            attempt("steering", f"cores {mask} (mask)", *(("sh", "-c", line) for line in where))
        else:
            out["steering"] = "none: one core"
        if cell.operation == "nat":
            attempt("conntrack", "known connections by a flowtable", ("nft", "-f", "-"), text=fast_path(ports))
        else:
            out["conntrack"] = "none: no rule asks for it"
        out["net.core.netdev_budget"] = "as it was (the whole machine's)"
        return {"settings": out}
