"""Traffic profiles for quiver-tester (schema ``quiver-profile/1``), and the addresses that every device is set up for.

::

    hosts 10.0.0.0/16 ─ tester left 198.18.0.2 ── 198.18.0.1 device 198.19.0.1 ── 198.19.0.2 right tester ─ hosts 10.1.0.0/16
    hosts 2001:2:0:a::/64 ──────── 2001:2:0:1::2 ── ::1            ::1 ── 2001:2:0:2::2 ─────────── hosts 2001:2:0:b::/64

RFC 2544's and RFC 5180's blocks on the links; the hosts behind them stand for the sources and destinations of the traffic.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quiver_lab.campaign import Cell

NAT_POOL = ("198.19.1.1", "198.19.1.254")
"""Outside addresses of source NAT: a /24, as in seed 000."""


FIRST_ROUTE = "20.0.0.0"


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
    """/24s from 20.0.0.0 upwards: where traffic goes by the patterns of seed 002, and nothing does otherwise."""
    first = int(ipaddress.IPv4Address(FIRST_ROUTE))
    return [f"{ipaddress.IPv4Address(first + n * 256)}/24" for n in range(count)]


STATIONS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
"""Link addresses left and right of a device that bridges: nobody answers for them."""

TESTER_MACS = ("02:00:00:00:01:01", "02:00:00:00:01:02")
"""Of the tester's memif ports in MIX: it asks for one gateway only, so the device must know the other family's neighbours."""

MIX_TAG = 100
"""802.1Q tag of the bridged third of MIX."""

SMALLEST_IPV6 = 84
"""Bytes with FCS of the smallest IPv6/UDP frame that holds the tester's signature; seed 001 used the same size."""

SMALLEST_TAGGED = 68
"""The same of a tagged IPv4/UDP frame."""


def _addresses(cell: Cell, ip: int) -> dict[str, Any]:
    left, right = (ipaddress.ip_network(s.hosts4 if ip == 4 else s.hosts6) for s in (LEFT, RIGHT))
    source, target = str(left[1]), right[1]
    last = target + 65_533
    if cell.routes and ip == 4 and cell.pattern != "sources":
        # The lookup is of the many routes, not of the one beside them.
        target = ipaddress.IPv4Address(FIRST_ROUTE) + 1
        last = target + 256 * cell.routes - 2
    match cell.pattern:
        case "sources":
            return {"src": {"increment": {"first": source, "count": min(cell.sources, 65_534)}}, "dst": str(target)}
        case "static":
            return {"src": source, "dst": str(target)}
        case "round-robin":
            return {"src": source, "dst": {"increment": {"first": str(target), "count": 255}}}
        case "uniform":
            drawn = {"random": {"first": source, "last": str(left[65_534]), "seed": 1}}
            return {"src": drawn, "dst": {"random": {"first": str(target), "last": str(last), "seed": 2}}}


def profile(cell: Cell) -> dict[str, Any]:
    """The profile of a cell: one stream a direction, of MIX three.

    Ports are drawn at random (RFC 4814) but for NAT, where each source has one port, so that there are as many sessions as
    sources (seed 000), and for the patterns of seed 002, which vary addresses only.
    """
    fixed = cell.operation == "nat" or cell.pattern != "sources"
    udp = {"src": 1025, "dst": 12} if fixed else {}

    def stream(name: str, ip: int, **more: object) -> dict[str, Any]:
        return {"name": name, "ipv4" if ip == 4 else "ipv6": _addresses(cell, ip), "udp": udp, **more}

    a, b = STATIONS
    match cell.operation:
        case "cross-connect":
            streams = [stream("load", cell.ip, ethernet={"dst": b})]
        case "bridge":
            streams = [stream("load", cell.ip, ethernet={"src": a, "dst": b})]
        case "mix":
            streams = [
                stream("ip4", 4, size=cell.frame_bytes),
                stream("ip6", 6, size=max(cell.frame_bytes, SMALLEST_IPV6)),
                stream("l2", 4, size=max(cell.frame_bytes, SMALLEST_TAGGED), vlan=[{"id": MIX_TAG}],
                       ethernet={"src": a, "dst": b}),
            ]  # fmt: skip
        case _:
            streams = [stream("load", cell.ip)]
    return {
        "schema": "quiver-profile/1",
        "name": cell.slug[:64],
        "bidirectional": cell.operation == "bidirectional",
        "streams": streams,
    }


def ends(cell: Cell) -> tuple[str, str, str]:
    """First and last of a cell's IPv4 sources, and the host that they speak to: the ends of connections."""
    left, right = (ipaddress.ip_network(s.hosts4) for s in (LEFT, RIGHT))
    return str(left[1]), str(left[min(cell.sources, 65_534)]), str(right[1])


def port_addresses(side: Side, families: Sequence[int]) -> str:
    """What a tester's port answers for, as further keys of its text."""
    texts = {4: f",ip4={side.tester4}/24", 6: f",ip6={side.tester6}/64"}
    # One gateway: its link address is the same in both families.
    gateway = {4: side.device4, 6: side.device6}[families[0]] if families else ""
    return "".join(texts[f] for f in families) + (f",gateway={gateway}" if gateway else "")
