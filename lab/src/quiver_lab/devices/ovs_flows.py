"""OpenFlow entries that make a switch of two ports what a scenario asks for; port 1 is the left one, 2 the right one.

A switch has no addresses: that it answers for its neighbours, and who these are, are entries as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quiver_lab import profiles
from quiver_lab.campaign import Cell

SIDES = (profiles.LEFT, profiles.RIGHT)
OWN_MACS = ("02:00:00:00:02:01", "02:00:00:00:02:02")
"""Link addresses that the switch routes for, left and right."""
ADVERTISE = 1
"""The table in which a solicitation has become an advertisement."""


@dataclass(frozen=True, slots=True)
class Port:
    """One port of the switch."""

    number: int
    side: profiles.Side
    own_mac: str
    peer_mac: str
    """Of the tester's port behind it."""


def arp_answer(port: Port) -> str:
    """An entry that turns a request for the port's address into the reply."""
    address = port.side.device4
    turned = (
        "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],"
        f"mod_dl_src:{port.own_mac},"
        "set_field:2->arp_op,"
        "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],"
        f"set_field:{port.own_mac}->arp_sha,set_field:{address}->arp_spa,in_port"
    )
    return f"priority=500,arp,in_port={port.number},arp_op=1,arp_tpa={address},actions={turned}"


def neighbour_answer(port: Port) -> Iterator[str]:
    """Entries that turn a solicitation for the port's address into the advertisement (RFC 4861).

    The option can be written only where the message is known to be an advertisement: that takes a second table.
    """
    address = port.side.device6
    turned = (
        "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],"
        f"mod_dl_src:{port.own_mac},"
        f"move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[],set_field:{address}->ipv6_src,"
        # Router, solicited, overriding; the option is the target's link address.
        f"set_field:136->icmpv6_type,set_field:0xe0000000->nd_reserved,set_field:2->nd_options_type,resubmit(,{ADVERTISE})"
    )
    yield f"priority=500,icmp6,in_port={port.number},icmp_type=135,icmp_code=0,nd_target={address},actions={turned}"
    yield (
        f"table={ADVERTISE},priority=500,icmp6,in_port={port.number},icmp_type=136,icmp_code=0,"
        f"actions=set_field:{port.own_mac}->nd_tll,in_port"
    )


def route(prefix: str, port: Port) -> str:
    """An entry of a route: the longest prefix has the highest priority."""
    key = "ipv6,ipv6_dst" if ":" in prefix else "ip,nw_dst"
    length = int(prefix.rpartition("/")[2])
    rewritten = f"dec_ttl,mod_dl_src:{port.own_mac},mod_dl_dst:{port.peer_mac},output:{port.number}"
    return f"priority={100 + length},{key}={prefix},actions={rewritten}"


def flows(cell: Cell, peers: tuple[str, str]) -> Iterator[str]:
    """All entries of a scenario; ``peers`` are the link addresses of the tester's ports."""
    if cell.operation == "cross-connect":
        yield "in_port=1,actions=output:2"
        yield "in_port=2,actions=output:1"
        return
    if cell.operation == "bridge":
        yield "actions=NORMAL"
        return
    ports = [Port(n + 1, side, OWN_MACS[n], peers[n]) for n, side in enumerate(SIDES)]
    mix = cell.operation == "mix"
    if mix:
        yield f"priority=600,dl_vlan={profiles.MIX_TAG},actions=NORMAL"
    for port in ports:
        if mix or cell.ip == 4:
            yield arp_answer(port)
            yield route(port.side.hosts4, port)
        if mix or cell.ip == 6:
            yield from neighbour_answer(port)
            yield route(port.side.hosts6, port)
    if mix or cell.ip == 4:
        yield from (route(prefix, ports[1]) for prefix in profiles.extra_routes(cell.routes))


def stations(cell: Cell) -> Iterator[tuple[int, int, str]]:
    """Port, VLAN and link address of stations that a bridge knows: nothing is flooded."""
    if cell.operation in ("bridge", "mix"):
        vlan = profiles.MIX_TAG if cell.operation == "mix" else 0
        yield from ((n + 1, vlan, mac) for n, mac in enumerate(profiles.STATIONS))
