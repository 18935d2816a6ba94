"""Names of quantities as readers see them: in words, with the unit."""

from __future__ import annotations

import re

_UNITS = {
    "percent": "%", "us": "µs", "pps": "packets/s", "cps": "connections/s", "s": "s", "wh": "Wh", "watts": "W",
    "packets": "packets", "frames": "frames", "clocks": "clocks", "connections": "connections", "bps": "bit/s",
}  # fmt: skip
_PLAIN = {
    "ipc": "instructions a clock",
    "graph_clocks": "clocks a packet, nodes that forward",
    "lookup_clocks": "clocks a packet, lookup",
    "l1i_misses_per_packet": "misses of the L1 instruction cache a packet",
    "instructions_per_packet": "instructions a packet",
    "tsc_clocks_per_packet": "clocks a packet, buffers in the cache",
    "ring_clocks_per_packet": "clocks a packet, 16,384 buffers by turns",
    "throughput_scale_up": "scale-up, P(n) / P(1) / n",
    "throughput_relative_to_half": "relative to half as many cores, P(n) / P(n/2)",
}
_SHARE = re.compile(r"at_([0-9.]+)_percent_(.+)")
_LOSS_AT = re.compile(r"loss_at_([0-9.]+)_percent")


def of_quantity(quantity: str) -> str:
    """A quantity with its unit: ``loss, %``."""
    if quantity in _PLAIN:
        return _PLAIN[quantity]
    if share := _SHARE.fullmatch(quantity):
        return f"{of_quantity(share[2])} (at {share[1]} % of the rate)"
    if loss := _LOSS_AT.fullmatch(quantity):
        return f"loss at {loss[1]} % of the highest rate, %"
    if quantity.endswith("_per_wh"):
        return f"{quantity.removesuffix('_per_wh').replace('_', ' ')} per Wh"
    stem, _, unit = quantity.rpartition("_")
    return f"{stem.replace('_', ' ')}, {_UNITS[unit]}" if stem and unit in _UNITS else quantity.replace("_", " ")
