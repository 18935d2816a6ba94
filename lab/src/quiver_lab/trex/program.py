"""TRex's field programs as the tester's varying fields."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from quiver_lab.trex import api
from quiver_lab.trex.packets import Layer, offset_of

MOST_LISTED = 4096
"""Most values that are written out one by one."""
LONGEST_FRAME = 9212
"""Largest frame of the tester, bytes without FCS."""


class EmitError(ValueError):
    """Something that the tester's profiles cannot say; one line."""


@dataclass(frozen=True)
class Place:
    """A header field that the tester can vary."""

    section: str
    key: str
    at: int
    """Bytes from the start of the frame."""
    width: int
    """Bytes."""
    value: int
    """What the packet has there."""
    show: Callable[[int], Any]
    """How the tester's profiles write a value."""

    @property
    def bits(self) -> int:
        """Its width in bits."""
        return 8 * self.width


def mac(value: int) -> str:
    """A number as an Ethernet address."""
    return ":".join(f"{b:02x}" for b in value.to_bytes(6))


def places(packet: Layer) -> list[Place]:
    """The fields of a packet that can vary."""
    found: list[Place] = []
    at, tags = 0, 0
    for layer in packet.layers():
        kind = type(layer).__name__
        fields: list[tuple[str, str, str, int, Callable[[int], Any]]] = []
        if kind == "Ether":
            fields = [(key, "ethernet", key, 6, mac) for key in ("src", "dst")]
        elif kind == "Dot1Q":
            fields = [("vlan", f"vlan{tags}", "id", 2, int)]
            tags += 1
        elif kind == "IP":
            fields = [(key, "ipv4", key, 4, lambda v: str(ipaddress.IPv4Address(v))) for key in ("src", "dst")]
        elif kind == "IPv6":
            fields = [(key, "ipv6", key, 16, lambda v: str(ipaddress.IPv6Address(v))) for key in ("src", "dst")]
        elif kind in {"UDP", "TCP"}:
            fields = [(old, kind.lower(), new, 2, int) for old, new in (("sport", "src"), ("dport", "dst"))]
        for name, section, key, width, show in fields:
            given = layer.fields[name]
            if isinstance(given, str):
                value = int(given.replace(":", ""), 16) if kind == "Ether" else int(ipaddress.ip_address(given))
            else:
                value = int(given or 0)
            found.append(Place(section, key, at + layer.OFFSETS[name], width, value, show))
        at += layer.size()
    return found


@dataclass(frozen=True)
class Values:
    """The values of a variable, frame by frame."""

    first: int
    last: int
    step: int = 1
    kind: str = "increment"
    listed: tuple[int, ...] = ()
    every: int = 1
    seed: int | None = None
    size: int = 4

    def moved(self, place: Place, shift: int, add: int) -> dict[str, Any] | list[Any]:
        """As a field of the tester's, the variable lying ``shift`` bits above the end of ``place``."""
        mask = ((1 << 8 * self.size) - 1) << shift
        base = place.value & ~mask & ((1 << place.bits) - 1)

        def of(value: int) -> Any:
            return place.show(base | (value + add) << shift & mask)

        if self.listed:
            return [of(v) for v in self.listed]
        run: dict[str, Any] = {"first": of(self.first), "last": of(self.last)}
        step = self.step << shift
        if step != 1:
            # Wide ones as a distance: numbers have 64 bits.
            run["step"] = step if step < 1 << 63 else place.show(step)
        if self.every != 1:
            run["every"] = self.every
        if self.seed is not None:
            run["seed"] = self.seed
        return {self.kind: run}


def _counted(var: api.STLVmFlowVar, cache: int | None, notes: list[str]) -> Values:
    low, high = api.number(var.min_value), api.number(var.max_value)
    step = int(var.step)
    if high < low or step < 1:
        raise EmitError(f"variable {var.name} goes from {low} to {high} by {step}")
    count = (high - low) // step + 1
    if var.op == "random":
        if cache is None:
            return Values(low, high, kind="random", size=var.size)
        if cache <= MOST_LISTED:
            drawn = random.Random(var.name)
            return Values(low, high, listed=tuple(drawn.randint(low, high) for _ in range(cache)), size=var.size)
        notes.append(f"variable {var.name}: drawn anew for each frame, not {cache} times only")
        return Values(low, high, kind="random", size=var.size)
    if var.op not in {"inc", "dec"}:
        raise EmitError(f"variable {var.name} has the operation {var.op!r}")
    start = (low if var.op == "inc" else high) if var.init_value is None else api.number(var.init_value)
    shown = count if cache is None else min(count, cache)
    way = step if var.op == "inc" else -step
    if start != (low if var.op == "inc" else high):
        if shown > MOST_LISTED:
            raise EmitError(f"variable {var.name} begins within its range, at {var.init_value}")
        return Values(
            low, high, listed=tuple(low + (start - low + k * way) % (high - low + 1) for k in range(shown)), size=var.size
        )
    if cache is not None and cache > count and cache % count:
        notes.append(f"variable {var.name}: all its {count} values by turns, where {cache} frames were to repeat")
    return Values(start, start + (shown - 1) * way, step, "increment" if way > 0 else "decrement", size=var.size)


def variables(lines: Iterable[api.Instruction], cache: int | None, notes: list[str]) -> dict[str, Values]:
    """All variables of a program by name; ``cache`` bounds the different frames."""
    found: dict[str, Values] = {}
    for line in lines:
        if isinstance(line, api.STLVmFlowVar):
            found[line.name] = _counted(line, cache, notes)
            if line.next_var:
                raise EmitError(f"variable {line.name} moves another one, {line.next_var}")
        elif isinstance(line, api.STLVmFlowVarRepeatableRandom):
            high = (1 << 8 * line.size) - 1 if line.max_value is None else api.number(line.max_value)
            limit = line.limit if cache is None else min(line.limit, cache)
            if not 1 <= limit <= MOST_LISTED:
                raise EmitError(f"variable {line.name} repeats after {limit} values (up to {MOST_LISTED} can be)")
            # Values are the same for the same seed, but not TRex's: its generator is its own.
            drawn = random.Random(line.seed if line.seed is not None else line.name)
            low = api.number(line.min_value)
            found[line.name] = Values(low, high, listed=tuple(drawn.randint(low, high) for _ in range(limit)), size=line.size)
        elif isinstance(line, api.STLVmTupleGen):
            low, high = api.number(line.ip_min), api.number(line.ip_max)
            addresses, ports = high - low + 1, line.port_max - line.port_min + 1
            if addresses < 1 or ports < 1:
                raise EmitError(f"variable {line.name} has no tuple")
            if min(line.limit_flows, cache or line.limit_flows) < addresses * ports:
                ports = max(1, min(line.limit_flows, cache or line.limit_flows) // addresses)
                notes.append(f"variable {line.name}: {addresses * ports} tuples, {ports} ports of each address")
            found[f"{line.name}.ip"] = Values(low, high)
            found[f"{line.name}.port"] = Values(line.port_min, line.port_min + ports - 1, every=addresses, size=2)
    return found


@dataclass
class Program:
    """What a program does to a packet."""

    fields: dict[tuple[str, str], Any]
    """By section and key of a stream."""
    sizes: Values | None = None
    """Frame sizes without FCS, where they vary."""


def run(packet: Layer, vm: api.STLScVmRaw, seed: int, notes: list[str]) -> Program:
    """Read a field program. Raises EmitError, or ValueError for a place that is not in the packet."""
    lines = vm.instructions()
    if vm.split_by_field:
        notes.append(f"{vm.split_by_field} counts for each sending thread by itself")
    found = variables(lines, vm.cache_size or None, notes)
    program = Program({})
    trimmed: str | None = None
    for line in lines:
        if isinstance(line, api.STLVmTrimPktSize):
            trimmed = line.fv_name
            program.sizes = found[trimmed]
    ends = places(packet)
    for line in lines:
        if not isinstance(line, api.STLVmWrFlowVar):
            if isinstance(line, (api.STLVmFixIpv4, api.STLVmFixChecksumHw)):
                offset_of(packet, line.offset if isinstance(line, api.STLVmFixIpv4) else line.l3_offset)
            continue
        if line.fv_name not in found:
            raise EmitError(f"there is no variable {line.fv_name} to write to {line.pkt_offset}")
        if line.fv_name == trimmed and str(line.pkt_offset) in {"IP.len", "UDP.len", "IPv6.plen"}:
            continue  # lengths are right by themselves
        values = found[line.fv_name]
        at = offset_of(packet, line.pkt_offset) + line.offset_fixup
        place = next((p for p in ends if p.at <= at and at + values.size <= p.at + p.width), None)
        if place is None or not line.is_big:
            raise EmitError(f"{line.fv_name} is written to {line.pkt_offset}, which is no field that the tester varies")
        if values.kind == "random" and not values.listed:
            values = Values(**{**values.__dict__, "seed": seed or None})
        program.fields[place.section, place.key] = values.moved(
            place, 8 * (place.at + place.width - at - values.size), line.add_val
        )
    return program
