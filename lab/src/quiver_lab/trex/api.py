"""What ``from trex_stl_lib.api import *`` gives a profile: TRex's names, kept as plain records.

Names, arguments and their defaults are TRex's, because profiles use them; nothing behind them is.
"""

# ruff: noqa: N803, A002

from __future__ import annotations

import binascii
import ipaddress
import os
import random
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from quiver_lab.trex.packets import ICMP, IP, TCP, UDP, Dot1Q, Ether, IPv6, Layer, Raw

__all__ = [
    "ICMP", "IP", "TCP", "UDP", "CTRexVmInsFixHwCs", "Dot1Q", "Ether", "IPv6", "Layer", "Raw", "STLFlowLatencyStats", "STLFlowStats",
    "STLPktBuilder", "STLProfile", "STLScVmRaw", "STLStream", "STLTXCont", "STLTXMultiBurst", "STLTXSingleBurst", "STLVM",
    "STLVmFixChecksumHw", "STLVmFixIpv4", "STLVmFlowVar", "STLVmFlowVarRepeatableRandom", "STLVmTrimPktSize", "STLVmTupleGen",
    "STLVmWrFlowVar", "binascii", "os", "random", "socket", "struct", "sys",
]  # fmt: skip


def number(value: int | str) -> int:
    """A value of a variable: a number, or an address as one."""
    if isinstance(value, str):
        return int(ipaddress.ip_address(value))
    return int(value)


class CTRexVmInsFixHwCs:
    """Numbers of layer 4, for :class:`STLVmFixChecksumHw`."""

    L4_TYPE_UDP = 11
    L4_TYPE_TCP = 13
    L4_TYPE_IP = 17


class Instruction:
    """A line of a field program."""


@dataclass
class STLVmFlowVar(Instruction):
    """A variable that counts up (``inc``), down (``dec``) or is drawn (``random``) for each frame."""

    name: str
    init_value: int | str | None = None
    min_value: int | str = 0
    max_value: int | str = 255
    size: int = 4
    step: int = 1
    op: str = "inc"
    split_to_cores: bool = True
    next_var: str | None = None


@dataclass
class STLVmFlowVarRepeatableRandom(Instruction):
    """A variable that takes ``limit`` drawn values by turns."""

    name: str
    size: int = 4
    limit: int = 100
    seed: int | None = None
    min_value: int | str = 0
    max_value: int | str | None = None
    split_to_cores: bool = True
    next_var: str | None = None


@dataclass
class STLVmTupleGen(Instruction):
    """Addresses and ports that belong together: the address counts for each frame, the port when addresses begin again."""

    name: str
    ip_min: int | str = "0.0.0.1"
    ip_max: int | str = "0.0.0.10"
    port_min: int = 1025
    port_max: int = 65535
    limit_flows: int = 100_000
    flags: int = 0


@dataclass
class STLVmWrFlowVar(Instruction):
    """Writes a variable into the frame."""

    fv_name: str
    pkt_offset: int | str
    offset_fixup: int = 0
    add_val: int = 0
    is_big: bool = True


@dataclass
class STLVmFixIpv4(Instruction):
    """The IPv4 checksum anew: the tester's are always right."""

    offset: int | str


@dataclass
class STLVmFixChecksumHw(Instruction):
    """Checksums anew: the tester's are always right."""

    l3_offset: int | str
    l4_offset: int | str
    l4_type: int


@dataclass
class STLVmTrimPktSize(Instruction):
    """Cuts the frame to a variable's value, bytes without FCS."""

    fv_name: str


@dataclass
class STLScVmRaw:
    """A field program; ``cache_size`` bounds the different frames."""

    list_of_commands: Sequence[Instruction] = ()
    cache_size: int | None = None
    split_by_field: str | None = None

    def instructions(self) -> list[Instruction]:
        """Its lines."""
        return list(self.list_of_commands)


class STLVM(STLScVmRaw):
    """The same, written line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Instruction] = []

    def instructions(self) -> list[Instruction]:
        """Its lines."""
        return list(self.lines)

    def var(self, name: str, min_value: int | str, max_value: int | str, size: int, op: str, **more: Any) -> None:
        """Add a variable."""
        self.lines.append(STLVmFlowVar(name, min_value=min_value, max_value=max_value, size=size, op=op, **more))

    def repeatable_random_var(self, fv_name: str, size: int, limit: int, seed: int | None = None, **more: Any) -> None:
        """Add a variable of drawn values that repeat."""
        self.lines.append(STLVmFlowVarRepeatableRandom(fv_name, size=size, limit=limit, seed=seed, **more))

    def tuple_var(self, name: str, **more: Any) -> None:
        """Add addresses and ports that belong together."""
        self.lines.append(STLVmTupleGen(name, **more))

    def write(
        self, fv_name: str, pkt_offset: int | str, offset_fixup: int = 0, add_val: int = 0, byte_order: str = "big"
    ) -> None:
        """Write a variable into the frame."""
        self.lines.append(STLVmWrFlowVar(fv_name, pkt_offset, offset_fixup, add_val, byte_order == "big"))

    def trim(self, fv_name: str) -> None:
        """Cut the frame."""
        self.lines.append(STLVmTrimPktSize(fv_name))

    def fix_chksum(self, offset: int | str = "IP") -> None:
        """Make the IPv4 checksum right."""
        self.lines.append(STLVmFixIpv4(offset))

    def fix_chksum_hw(self, l3_offset: int | str, l4_offset: int | str, l4_type: int) -> None:
        """Make checksums right."""
        self.lines.append(STLVmFixChecksumHw(l3_offset, l4_offset, l4_type))

    def set_cached(self, cache_size: int) -> None:
        """Bound the different frames."""
        self.cache_size = cache_size


@dataclass
class STLPktBuilder:
    """A frame and its field program."""

    pkt: Layer | str | None = None
    pkt_buffer: bytes | None = None
    vm: STLScVmRaw | Sequence[Instruction] | None = None
    path_relative_to_profile: bool = False
    build_raw: bool = False
    remove_fcs: bool = True


@dataclass
class Mode:
    """How a stream departs; the load is one of the four, 1 frame a second unless given."""

    pps: float | None = None
    bps_L1: float | None = None
    bps_L2: float | None = None
    percentage: float | None = None


@dataclass
class STLTXCont(Mode):
    """Without an end."""


@dataclass
class STLTXSingleBurst(Mode):
    """So many frames, once."""

    total_pkts: int = 1

    def __init__(self, pps: float | None = None, total_pkts: int = 1, **load: float | None) -> None:
        super().__init__(pps=pps, **load)
        self.total_pkts = total_pkts


@dataclass
class STLTXMultiBurst(Mode):
    """``count`` bursts with ``ibg`` microseconds between them."""

    pkts_per_burst: int = 1
    ibg: float = 0.0
    count: int = 1

    def __init__(
        self, pps: float | None = None, pkts_per_burst: int = 1, ibg: float = 0.0, count: int = 1, **load: float | None
    ) -> None:
        super().__init__(pps=pps, **load)
        self.pkts_per_burst, self.ibg, self.count = pkts_per_burst, ibg, count


@dataclass
class STLFlowStats:
    """Counts of its own; every stream of the tester has them."""

    pg_id: int | None = None


@dataclass
class STLFlowLatencyStats(STLFlowStats):
    """Latency of its own, at a rate of its own."""


@dataclass
class STLStream:
    """A stream."""

    name: str | None = None
    packet: STLPktBuilder | None = None
    mode: Mode = field(default_factory=lambda: STLTXCont(pps=1))
    enabled: bool = True
    self_start: bool = True
    isg: float = 0.0
    flow_stats: STLFlowStats | None = None
    next: str | None = None
    stream_id: int | None = None
    action_count: int = 0
    random_seed: int = 0
    mac_src_override_by_pkt: int | None = None
    mac_dst_override_mode: int | None = None
    dummy_stream: bool = False
    start_paused: bool = False
    core_id: int = -1


class STLProfile:
    """Several streams."""

    def __init__(self, streams: STLStream | Iterable[STLStream] = ()) -> None:
        self.streams = [streams] if isinstance(streams, STLStream) else list(streams)

    def get_streams(self) -> list[STLStream]:
        """The streams."""
        return self.streams

    @staticmethod
    def load_pcap(*_: Any, **__: Any) -> NoReturn:
        """Refuse: captures are imported by the tester."""
        raise ValueError("the profile plays a capture: import that with `quiver-tester import'")
