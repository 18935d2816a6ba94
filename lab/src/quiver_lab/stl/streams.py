"""A profile (``quiver-profile/1``, as ``profiles.py`` makes it) as streams of TRex: raw frames, and what varies in them.

TRex writes the link addresses of its ports where the profile has none. It marks the frames that it counts by their IPv4
identification.
"""

from __future__ import annotations

import base64
import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FCS = 4
IP, SRC, DST, UDP = 14, 26, 30, 34
"""Where a frame has its IPv4 header, addresses, and UDP header."""
TTL = 64
PORTS = ((1024, 65_535), (1, 49_151))
"""Source and destination, drawn where a profile has none (RFC 4814)."""
SRC_BY_FRAME, DST_BY_FRAME = 1, 2
"""TRex's flags: link addresses are those of the frame."""


class UnsayableError(ValueError):
    """A profile that TRex does not make here; one line."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Frames of one kind, evenly spaced."""

    port: int
    count: int
    pps: float
    body: dict[str, Any]
    """Frame and program in TRex's form."""

    def as_json(self, group: int) -> dict[str, Any]:
        """As ``add_stream`` takes it; ``group`` is what it is counted as."""
        rule = {"enabled": True, "stream_id": group, "vxlan": False, "ieee_1588": False, "rule_type": "stats"}
        rate = {"type": "pps", "value": self.pps}
        return {
            "enabled": True, "self_start": True, "isg": 0.0, "next_stream_id": -1, "action_count": 0, **self.body,
            "mode": {"type": "single_burst", "total_pkts": self.count, "rate": rate}, "flow_stats": rule,
        }  # fmt: skip


def bursts(document: Mapping[str, Any], frame_bytes: int, rate_pps: float, duration_s: float) -> list[Burst]:
    """All frames of a trial, by direction."""
    if len(document["streams"]) != 1:
        raise UnsayableError("TRex makes profiles of one stream only here")
    (stream,) = document["streams"]
    count = max(1, round(rate_pps * duration_s))
    ports = range(1 + bool(document.get("bidirectional")))
    return [Burst(port, count, count / duration_s, frames(stream, frame_bytes, bool(port))) for port in ports]


def frames(stream: Mapping[str, Any], frame_bytes: int, mirrored: bool) -> dict[str, Any]:
    """Frame and program of a stream; ``mirrored`` exchanges its addresses and ports."""
    unknown = set(stream) - {"name", "ipv4", "udp", "ethernet"}
    if "ipv4" not in stream or unknown:
        raise UnsayableError(f"TRex makes plain IPv4 and UDP only here, not {', '.join(sorted(unknown)) or 'others'}")
    ethernet, ip, udp = stream.get("ethernet", {}), stream["ipv4"], stream.get("udp", {})
    ends = ("dst", "src") if mirrored else ("src", "dst")
    macs = {side: ethernet.get(end) for side, end in zip(("src", "dst"), ends, strict=True)}
    program: list[dict[str, Any]] = []
    addresses, ports = [], []
    for name, end, offset in zip(("src", "dst"), ends, (SRC, DST), strict=True):
        values = _range(ip[end])
        addresses.append(values.first)
        program += values.written(f"ip_{name}", 4, offset)
    if program:
        program.append({"type": "fix_checksum_ipv4", "pkt_offset": IP})
    drawn_ports = dict(zip(("src", "dst"), PORTS, strict=True))
    for name, end, offset in zip(("src", "dst"), ends, (UDP, UDP + 2), strict=True):
        values = Values(udp[end], udp[end]) if end in udp else Values(*drawn_ports[end], drawn=True)
        ports.append(values.first)
        program += values.written(f"udp_{name}", 2, offset)
    return {
        "packet": {"binary": base64.b64encode(_packet(macs, addresses, ports, frame_bytes)).decode(), "meta": ""},
        # Variables come before what writes them.
        "vm": {"instructions": sorted(program, key=lambda i: i["type"] != "flow_var")},
        "flags": (SRC_BY_FRAME if macs["src"] else 0) | (DST_BY_FRAME if macs["dst"] else 0),
    }


@dataclass(frozen=True, slots=True)
class Values:
    """What a field has, frame by frame: in turn, or drawn."""

    first: int
    last: int
    drawn: bool = False

    def written(self, name: str, size: int, offset: int) -> list[dict[str, Any]]:
        """Instructions that write it; none where it does not vary."""
        if self.first == self.last:
            return []
        return [
            {
                "type": "flow_var", "name": name, "size": size, "op": "random" if self.drawn else "inc",
                "init_value": self.first, "min_value": self.first, "max_value": self.last, "step": 1, "next_var": None,
                "split_to_cores": True,
            },
            {"type": "write_flow_var", "name": name, "pkt_offset": offset, "add_value": 0, "is_big_endian": True},
        ]  # fmt: skip


def _range(field: object) -> Values:
    """The addresses of a field."""
    match field:
        case str():
            address = int(ipaddress.IPv4Address(field))
            return Values(address, address)
        case {"increment": {"first": first, "count": count}}:
            address = int(ipaddress.IPv4Address(first))
            return Values(address, address + int(count) - 1)
        case {"random": {"first": first, "last": last}}:
            return Values(int(ipaddress.IPv4Address(first)), int(ipaddress.IPv4Address(last)), drawn=True)
    raise UnsayableError(f"TRex has no addresses like {field}")


def _packet(macs: Mapping[str, str | None], addresses: list[int], ports: list[int], frame_bytes: int) -> bytes:
    """A frame without FCS; no UDP checksum, as RFC 768 allows: fields change from frame to frame."""
    link = b"".join(bytes.fromhex((macs[end] or "00:" * 5 + "00").replace(":", "")) for end in ("dst", "src"))
    length = frame_bytes - FCS - IP
    head = struct.pack("!BBHHHBBHII", 0x45, 0, length, 0, 0, TTL, 17, 0, *addresses)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + head[12:]
    udp = struct.pack("!HHHH", *ports, length - 20, 0)
    return (link + b"\x08\x00" + head + udp).ljust(frame_bytes - FCS, b"\0")
