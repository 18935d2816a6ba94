"""Rates and sizes: what a rate text means in frames per second.

Frame sizes are bytes with FCS. Rates in bit/s are of layer 2 (frame with FCS) unless they end in ``L1``, which counts
preamble and inter-frame gap too. All rates are per direction.
"""

from __future__ import annotations

import re

PREAMBLE_AND_GAP_BYTES = 20
"""What a frame costs on the wire beyond itself: 7 + 1 of preamble, 12 of gap (IEEE 802.3)."""

_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PPS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMG]?)pps")
_BPS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]?)bps(L1|L2)?")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")


class RateError(ValueError):
    """A rate text that means nothing."""


def l1_pps(bit_per_s: float, frame_bytes: int) -> float:
    """Frames per second that fill a line of ``bit_per_s`` (RFC 2544's theoretical maximum frame rate)."""
    return bit_per_s / ((frame_bytes + PREAMBLE_AND_GAP_BYTES) * 8)


def l2_pps(bit_per_s: float, frame_bytes: int) -> float:
    """Frames per second whose own bytes, FCS included, make ``bit_per_s``."""
    return bit_per_s / (frame_bytes * 8)


def parse_bit_per_s(text: str) -> float:
    """Read a line rate such as ``10Gbps``, in bit/s."""
    match = _BPS.fullmatch(text.strip())
    if match is None or match[3] is not None:
        raise RateError(f"line rate '{text}': write it as 10Gbps or 100Mbps")
    return float(match[1]) * _PREFIX[match[2]]


def parse_rate(text: str, frame_bytes: int, line_bit_per_s: float | None = None) -> float:
    """Frames per second of ``100000pps``, ``1.5Mpps``, ``1Gbps`` (L2), ``1GbpsL1`` or ``50%`` of the line rate."""
    text = text.strip()
    if match := _PPS.fullmatch(text):
        return float(match[1]) * _PREFIX[match[2]]
    if match := _BPS.fullmatch(text):
        bit_per_s = float(match[1]) * _PREFIX[match[2]]
        return l1_pps(bit_per_s, frame_bytes) if match[3] == "L1" else l2_pps(bit_per_s, frame_bytes)
    if match := _PERCENT.fullmatch(text):
        if line_bit_per_s is None:
            raise RateError(f"rate '{text}': a percentage needs a line rate")
        return l1_pps(line_bit_per_s, frame_bytes) * float(match[1]) / 100
    raise RateError(f"rate '{text}': write it as 100000pps, 1.5Mpps, 1Gbps, 1GbpsL1 or 50%")


def si(value: float, unit: str = "") -> str:
    """Print a value with four significant digits and a prefix: ``1.234 M``."""
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".rstrip()
