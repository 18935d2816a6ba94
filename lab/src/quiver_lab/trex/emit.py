"""TRex's streams as a profile of the tester (``quiver-profile/1``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from quiver_lab.trex import api
from quiver_lab.trex.packets import Layer, Raw
from quiver_lab.trex.program import LONGEST_FRAME, EmitError, Values, run

__all__ = ["EmitError", "emit", "text"]

FCS = 4
L1 = 20
"""Preamble, start delimiter and gap of a frame on a line, bytes."""
SIGNATURE = 18
MIN_FRAME = 64
TCP_FLAGS = {"F": "fin", "S": "syn", "R": "rst", "P": "psh", "A": "ack", "U": "urg"}


def emit(name: str, left: Sequence[api.STLStream], right: Sequence[api.STLStream]) -> tuple[dict[str, Any], list[str]]:
    """A profile of the streams of both directions, and notes on what it says otherwise. Raises EmitError."""
    notes: list[str] = []
    streams: list[dict[str, Any]] = []
    for side, given in (("left", left), ("right", right)):
        streams += _direction(side, [s for s in given if s.enabled and not s.dummy_stream], notes, bool(left and right))
    return {"schema": "quiver-profile/1", "name": name[:64], "streams": streams}, list(dict.fromkeys(notes))


def text(document: dict[str, Any], comments: Sequence[str]) -> str:
    """The profile as YAML, comments first."""
    lines = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
    return lines + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


def plain(number: float) -> str:
    """A number without exponent and without trailing zeros."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def us(time: float) -> str:
    """Microseconds as the tester's profiles write a time."""
    return f"{plain(time)}us"


def _direction(side: str, given: Sequence[api.STLStream], notes: list[str], both: bool) -> list[dict[str, Any]]:
    names = {id(s): f"{s.name or f's{k}'}{f'-{side}' if both else ''}"[:64] for k, s in enumerate(given)}
    by_name = {s.name: s for s in given if s.name}
    before: dict[int, api.STLStream] = {}
    for stream in given:
        if stream.next and stream.next != "-1":
            follower = by_name.get(stream.next)
            if follower is None:
                raise EmitError(f"stream {stream.name} is followed by {stream.next}, which there is not")
            if list(given).index(follower) <= list(given).index(stream):
                raise EmitError(f"stream {stream.name} is followed by {stream.next}: streams that begin again cannot be said")
            before[id(follower)] = stream
    made = []
    for stream in given:
        name = names[id(stream)]
        if not stream.self_start and id(stream) not in before:
            notes.append(f"stream {name} is left out: nothing starts it")
            continue
        try:
            one = _stream(stream, notes, alone=len(given) == 1)
        except ValueError as error:
            raise EmitError(f"stream {name}: {error}") from error
        head: dict[str, Any] = {"name": name}
        if side == "right":
            head["from"] = "right"
        # A stream that another one starts waits for it whatever it would do by itself.
        if id(stream) in before:
            head["after"] = names[id(before[id(stream)])]
        if stream.isg:
            head["start"] = us(stream.isg)
        made.append({**head, **one})
    return made


def _stream(stream: api.STLStream, notes: list[str], alone: bool) -> dict[str, Any]:
    builder = stream.packet
    if builder is None or not isinstance(builder.pkt, Layer):
        raise EmitError("its packet is bytes or a capture: `quiver-tester import' reads captures")
    packet = builder.pkt
    headers, smallest = _headers(packet)
    size = max(MIN_FRAME, len(packet) + FCS)
    made: dict[str, Any] = {}
    vm = api.STLScVmRaw(builder.vm) if isinstance(builder.vm, Sequence) else builder.vm
    program = run(packet, vm, stream.random_seed, notes) if vm else None
    if program:
        for (section, key), value in program.fields.items():
            if section.startswith("vlan"):
                headers["vlan"][int(section[4:])][key] = value
            else:
                headers[section][key] = value
    if program and program.sizes:
        made["size"] = _sizes(program.sizes, smallest, notes)
    elif size < smallest and alone and not isinstance(stream.flow_stats, api.STLFlowLatencyStats):
        notes.append(f"frames of {size} bytes have no room for a signature: they are counted only")
        made.update(size=size, signature="none")
    else:
        if size < smallest:
            notes.append(f"frames of {size} bytes have no room for a signature: {smallest} bytes")
        made["size"] = max(size, smallest)
    return {**_load(stream, size, notes), **made, **headers}


def _load(stream: api.STLStream, size: int, notes: list[str]) -> dict[str, Any]:
    mode = stream.mode
    if mode.bps_L1 or mode.bps_L2:
        bits = float(mode.bps_L1 or mode.bps_L2 or 0)
        text = f"{plain(bits)}bps{'L1' if mode.bps_L1 else ''}"
        pps = bits / 8 / (size + (L1 if mode.bps_L1 else 0))
    elif mode.percentage:
        text, pps = f"{plain(mode.percentage)}%", 0.0
    else:
        pps = 1.0 if mode.pps is None else float(mode.pps)
        text = f"{plain(pps)}pps"
    burst: dict[str, Any] = {}
    if isinstance(mode, api.STLTXSingleBurst):
        burst = {"frames": mode.total_pkts}
    elif isinstance(mode, api.STLTXMultiBurst):
        burst = {"frames": mode.pkts_per_burst, "count": mode.count, "gap": us(mode.ibg)}
        if mode.count == 0:
            del burst["count"]
    if stream.action_count:
        notes.append("streams that follow one another do so once: numbers of rounds are left out")
    if burst:
        return {"rate": text, "burst": burst}
    # TRex scales all but latency streams to the rate of the measurement.
    if isinstance(stream.flow_stats, api.STLFlowLatencyStats) or mode.percentage:
        return {"rate": text}
    return {} if pps == 1.0 else {"share": pps}


def _sizes(values: Values, smallest: int, notes: list[str]) -> Any:
    low, high = sorted((values.first, values.last))
    least, most = max(low + FCS, smallest), min(high, LONGEST_FRAME) + FCS
    if (least, most) != (low + FCS, high + FCS):
        notes.append(f"frame sizes from {least} to {most} bytes, not {low + FCS} to {high + FCS}")
    if values.kind == "random":
        return {"random": {"min": least, "max": most}}
    sizes = values.listed or tuple(range(values.first, values.last + (1 if values.kind == "increment" else -1),
                                         values.step if values.kind == "increment" else -values.step))  # fmt: skip
    return [size + FCS for size in sizes if least <= size + FCS <= most]


def _headers(packet: Layer) -> tuple[dict[str, Any], int]:
    """The headers of a stream, and the smallest frame that holds them and a signature."""
    layers = [layer for layer in packet.layers() if not isinstance(layer, Raw)]
    kinds = [type(layer).__name__ for layer in layers]
    rest = kinds[1:]
    while rest and rest[0] == "Dot1Q":
        rest = rest[1:]
    if (
        kinds[:1] != ["Ether"]
        or len(rest) > 2
        or not set(rest[:1]) <= {"IP", "IPv6"}
        or not set(rest[1:]) <= {"UDP", "TCP", "ICMP"}
    ):
        raise EmitError(f"headers {'/'.join(kinds)} are not among those of the tester")
    made: dict[str, Any] = {}
    for layer, kind in zip(layers, kinds, strict=True):
        have = layer.fields
        if kind == "Ether":
            made["ethernet"] = {key: have[key] for key in ("src", "dst") if have[key] is not None}
            if have["type"] is not None and not rest:
                raise EmitError("an EtherType of its own")
        elif kind == "Dot1Q":
            made.setdefault("vlan", []).append({"id": int(have["vlan"]), "priority": int(have["prio"])})
        elif kind in {"IP", "IPv6"}:
            v4 = kind == "IP"
            if v4 and (have["frag"] or str(have["flags"]) in {"1", "MF"}):
                raise EmitError("fragments")
            section = {"src": have["src"], "dst": have["dst"], "ttl": int(have["ttl" if v4 else "hlim"])}
            made["ipv4" if v4 else "ipv6"] = {**section, "dscp": int(have["tos" if v4 else "tc"]) >> 2}
        elif kind == "ICMP":
            if have["type"] != 8 and have["type"] != "echo-request":
                raise EmitError("an ICMP message that is no echo request")
            made["icmp"] = {"id": int(have["id"])}
        else:
            made[kind.lower()] = {"src": int(have["sport"]), "dst": int(have["dport"])}
            if kind == "TCP":
                made["tcp"]["flags"] = [TCP_FLAGS[f] for f in str(have["flags"])]
    return made, max(MIN_FRAME, sum(layer.size() for layer in layers) + SIGNATURE + FCS)
