"""Traffic profiles for quiver-tester (schema ``quiver-profile/1``), and the addresses that every device is set up for.

::

    hosts 10.0.0.0/16 ─ tester left 198.18.0.2 ── 198.18.0.1 device 198.19.0.1 ── 198.19.0.2 right tester ─ hosts 10.1.0.0/16
    hosts 2001:2:0:a::/64 ──────── 2001:2:0:1::2 ── ::1            ::1 ── 2001:2:0:2::2 ─────────── hosts 2001:2:0:b::/64

RFC 2544's and RFC 5180's blocks on the links; the hosts behind them stand for the sources and destinations of the traffic.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from quiver_lab.campaign import Cell

NAT_POOL = ("198.19.1.1", "198.19.1.254")
"""Outside addresses of source NAT: a /24, as in seed 000."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the device."""

    name: str
    device4: str
    tester4: str
    hosts4: str
    device6: str
    tester6: str
    hosts6: str


LEFT = Side("left", "198.18.0.1", "198.18.0.2", "10.0.0.0/16", "2001:2:0:1::1", "2001:2:0:1::2", "2001:2:0:a::/64")
RIGHT = Side("right", "198.19.0.1", "198.19.0.2", "10.1.0.0/16", "2001:2:0:2::1", "2001:2:0:2::2", "2001:2:0:b::/64")


def extra_routes(count: int) -> list[str]:
    """Prefixes that no frame of ours goes to: /24s from 20.0.0.0 upwards."""
    first = int(ipaddress.IPv4Address("20.0.0.0"))
    return [f"{ipaddress.IPv4Address(first + n * 256)}/24" for n in range(count)]


def profile(cell: Cell) -> dict[str, Any]:
    """The profile of a cell: one stream a direction, sources in turn, one destination.

    Ports are drawn at random (RFC 4814) but for NAT, where each source has one port, so that there are as many sessions as
    sources (seed 000).
    """
    four = cell.ip == 4
    left, right = (ipaddress.ip_network(s.hosts4 if four else s.hosts6) for s in (LEFT, RIGHT))
    nat = cell.operation == "nat"
    stream: dict[str, Any] = {
        "name": "load",
        "ipv4" if four else "ipv6": {
            "src": {"increment": {"first": str(left[1]), "count": min(cell.sources, 65_534)}},
            "dst": str(right[1]),
        },
        "udp": {"src": 1025, "dst": 12} if nat else {},
    }
    if cell.operation == "cross-connect":
        # Nobody answers for the next hop: any address but a group's will do.
        stream["ethernet"] = {"dst": "02:00:00:00:00:02"}
    return {
        "schema": "quiver-profile/1",
        "name": cell.slug[:64],
        "bidirectional": cell.operation == "bidirectional",
        "streams": [stream],
    }


def port_addresses(side: Side, ip: int) -> str:
    """What a tester's port answers for, as further keys of its text."""
    if ip == 4:
        return f",ip4={side.tester4}/24,gateway={side.device4}"
    return f",ip6={side.tester6}/64,gateway={side.device6}"
