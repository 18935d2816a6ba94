"""TRex's streams as a profile of the tester (``quiver-profile/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
MOST_BURSTS = 32
"""Of a stream that begins again."""
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


@dataclass(frozen=True, slots=True)
class Turn:
    """When a stream of a round sends: round after round, where the round has no end."""

    after: api.STLStream | None
    """Who ends before the first round begins."""
    start_us: float
    """From there to its first frame."""
    gap_us: float
    """From one of its turns to the next."""
    rounds: int | None
    """How often; none: as long as the trial lasts."""


def _length_us(stream: api.STLStream) -> float:
    """From a stream's first frame to the end of its last one's time."""
    mode, builder = stream.mode, stream.packet
    pps = mode.pps
    if builder is not None and isinstance(builder.pkt, Layer) and (bits := mode.bps_L1 or mode.bps_L2):
        size = max(MIN_FRAME, len(builder.pkt) + FCS)
        pps = bits / 8 / (size + (L1 if mode.bps_L1 else 0))
    if mode.percentage:
        raise EmitError(f"stream {stream.name} is one of several that begin again, and its rate is a part of a line's")
    if isinstance(mode, api.STLTXSingleBurst):
        return mode.total_pkts / (pps or 1.0) * 1e6
    if isinstance(mode, api.STLTXMultiBurst) and mode.count:
        return mode.count * mode.pkts_per_burst / (pps or 1.0) * 1e6 + (mode.count - 1) * mode.ibg
    raise EmitError(f"stream {stream.name} is followed by {stream.next}, and has no end")


def _followers(given: Sequence[api.STLStream]) -> dict[int, api.STLStream]:
    """Whom each stream starts when it ends."""
    by_name = {s.name: s for s in given if s.name}
    found = {}
    for stream in given:
        if stream.next and stream.next != "-1":
            if stream.next not in by_name:
                raise EmitError(f"stream {stream.name} is followed by {stream.next}, which there is not")
            # Its number of turns is counted when it ends: after the last one it starts nobody.
            if stream.action_count != 1:
                found[id(stream)] = by_name[stream.next]
    return found


def _rounds(given: Sequence[api.STLStream], follower: dict[int, api.STLStream]) -> dict[int, Turn]:
    """Streams that begin again, and when."""
    turns: dict[int, Turn] = {}
    for first in (s for s in given if s.self_start):
        chain: list[api.STLStream] = []
        at: api.STLStream | None = first
        while at is not None and all(at is not s for s in chain):
            chain.append(at)
            at = follower.get(id(at))
        if at is None or id(at) in turns:
            continue
        begin = next(k for k, s in enumerate(chain) if s is at)
        ring = chain[begin:]
        lengths = [_length_us(s) for s in ring]
        period = sum(lengths) + sum(s.isg for s in ring)
        # Whose number of turns is over first ends the round for all.
        last = min(((s.action_count, k) for k, s in enumerate(ring) if s.action_count), default=None)
        offset = 0.0
        for k, (stream, length) in enumerate(zip(ring, lengths, strict=True)):
            offset += stream.isg
            rounds = None if last is None else last[0] - (k > last[1])
            turns[id(stream)] = Turn(chain[begin - 1] if begin else None, offset, period - length, rounds)
            offset += length
    return turns


def _started(given: Sequence[api.STLStream], follower: dict[int, api.STLStream]) -> set[int]:
    """Streams that start by themselves or are started."""
    found: set[int] = set()
    for first in (s for s in given if s.self_start):
        at: api.STLStream | None = first
        while at is not None and id(at) not in found:
            found.add(id(at))
            at = follower.get(id(at))
    return found


def _direction(side: str, given: Sequence[api.STLStream], notes: list[str], both: bool) -> list[dict[str, Any]]:
    names = {id(s): f"{s.name or f's{k}'}{f'-{side}' if both else ''}"[:64] for k, s in enumerate(given)}
    follower = _followers(given)
    turns = _rounds(given, follower)
    started = _started(given, follower)
    before = {id(f): s for s in given if id(s) in started and (f := follower.get(id(s))) is not None and id(f) not in turns}
    made = []
    # A stream waits for one that stands before it.
    for stream in _in_order(given, before, turns):
        name = names[id(stream)]
        turn = turns.get(id(stream))
        if id(stream) not in started:
            notes.append(f"stream {name} is left out: nothing starts it")
            continue
        try:
            one = _stream(stream, notes, alone=len(given) == 1)
        except ValueError as error:
            raise EmitError(f"stream {name}: {error}") from error
        head: dict[str, Any] = {"name": name}
        if side == "right":
            head["from"] = "right"
        if turn is not None:
            made += [{**head, **part} for part in _turns(name, turn, stream, one, names, notes)]
            continue
        # A stream that another one starts waits for it whatever it would do by itself.
        if id(stream) in before:
            head["after"] = names[id(before[id(stream)])]
        if stream.isg:
            head["start"] = us(stream.isg)
        made.append({**head, **one})
    return made


def _in_order(
    given: Sequence[api.STLStream], before: dict[int, api.STLStream], turns: dict[int, Turn]
) -> list[api.STLStream]:
    """The streams, each behind the one that it waits for."""
    ordered: list[api.STLStream] = []

    def put(stream: api.STLStream) -> None:
        if any(stream is s for s in ordered):
            return
        turn = turns.get(id(stream))
        awaited = turn.after if turn is not None else before.get(id(stream))
        if awaited is not None:
            put(awaited)
        ordered.append(stream)

    for stream in given:
        put(stream)
    return ordered


def _turns(
    name: str, turn: Turn, stream: api.STLStream, one: dict[str, Any], names: dict[int, str], notes: list[str]
) -> Iterator[dict[str, Any]]:
    """A stream that begins again: its turns are bursts, with those of the others in the gap."""
    if turn.rounds == 0:
        notes.append(f"stream {name} is left out: another one's number of turns ends before its first")
        return
    burst = one["burst"]
    frames, count = burst["frames"], burst.get("count", 1)
    inner = stream.mode.ibg if isinstance(stream.mode, api.STLTXMultiBurst) else 0.0
    step = (_length_us(stream) + inner) / count
    if count > 1:
        notes.append(f"stream {name} begins again with {count} bursts: each is a stream of its own")
    if count > MOST_BURSTS:
        raise EmitError(f"stream {name} begins again with {count} bursts; up to {MOST_BURSTS} can be said")
    # From the end of a burst to the same one of the next turn.
    gap = turn.gap_us + _length_us(stream) - (step - inner)
    for k in range(count):
        again: dict[str, Any] = {} if turn.rounds == 1 else {"gap": us(gap)}
        if turn.rounds is not None and turn.rounds > 1:
            again["count"] = turn.rounds
        part = {**one, "burst": {"frames": frames, **again}}
        if turn.after is not None:
            part["after"] = names[id(turn.after)]
        if start := turn.start_us + k * step:
            part["start"] = us(start)
        yield part if count == 1 else {**part, "name": f"{name[:58]}-{k + 1}"}


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
