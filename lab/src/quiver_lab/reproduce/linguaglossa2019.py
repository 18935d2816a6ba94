"""Seed 002: vectors. Figures 5 to 12; the paper prints few numbers, and its figures are not digitised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quiver_lab.campaign import Campaign, Cell
from quiver_lab.published import Cell as Keys
from quiver_lab.published import Published
from quiver_lab.reproduce.design import CANDIDATE, CONTROL, Design, Figure, Options, as_keys

VECTORS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
SHARES = ("10", "25", "50", "75", "100")
"""Per cent of the offered rate, figure 5."""
LOADS = (0.1, 0.5, 0.99)
ROUTES = 130_000
L3FWD_ROUTES = 65_000
"""Its tables are made for so many and few more when it is built."""
OPERATIONS = {("cross-connect", 4): "xc", ("one-way", 4): "ip4", ("one-way", 6): "ip6", ("mix", 4): "mix"}
MOST = "generated-most"
"""The procedure that asks a generator for more than any graph forwards: what it sends is the device's limit."""
OVERLOADS = ("r-plus", MOST)
PLACEMENTS = ("single-core", "main+1-worker", "2-threads-of-one-core", "2-cores")


def _cells(options: Options, **more: object) -> list[dict[str, Any]]:
    """Matrices of cross-connect, IPv4 with the many routes, and MIX."""
    link = options.links()[1]
    common = {"dut": [options.candidate], "link": [link], "workers": [1], "frame_bytes": [64], "pattern": ["static"], **more}
    return [
        {**common, "operation": ["cross-connect"]},
        {**common, "operation": ["one-way"], "routes": [ROUTES]},
        {**common, "operation": ["mix"]},
    ]


def _generated(options: Options, six: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same cells without a tester, as far as the packet generator has their traffic: figures 5, 6a, 8, 9 and 11."""
    matrices = [
        *_cells(options, procedure=[f"generated-{s}" for s in SHARES])[:2],
        *_cells(options, vector=list(VECTORS), procedure=[MOST])[:2],
        *_cells(options, pattern=["round-robin", "uniform"], vector=[256], procedure=[MOST])[1:2],
        {**six, "vector": [256], "procedure": [MOST]},
    ]
    for four_six in ({"ip": [4], "frame_bytes": [64], "routes": [ROUTES]}, {"ip": [6], "frame_bytes": [84]}):
        matrices.append({**six, **four_six, "vector": [256], "loops": ["1p0", "4p0", "1p4", "4p4"], "procedure": [MOST]})
    for placement, workers in zip(PLACEMENTS, (1, 1, 2, 2), strict=True):
        placed = {"placement": [placement], "workers": [workers], "vector": [256], "procedure": [MOST]}
        matrices += [*_cells(options, **placed)[:2], {**six, **placed}]
    return [m | {"link": ["pg"]} for m in matrices]


def document(options: Options) -> dict[str, Any]:
    """Every figure's cells, each measured once."""
    link = options.links()[1]
    overload, latency = {"procedure": ["r-plus"]}, {"procedure": ["latency"]}
    six = {
        "dut": [options.candidate], "link": [link], "workers": [1], "operation": ["one-way"], "ip": [6], "frame_bytes": [84],
        "pattern": ["static"],
    }  # fmt: skip
    matrices = [
        *_cells(options, vector=list(VECTORS), **overload),
        *_cells(options, procedure=[f"load-{s}" for s in SHARES]),
        *_cells(options, pattern=["round-robin", "uniform"], vector=[256], **overload),
        *_cells(options, **latency),
        {**six, "vector": [256], **overload},
    ]
    for four_six in ({"ip": [4], "frame_bytes": [64], "routes": [ROUTES]}, {"ip": [6], "frame_bytes": [84]}):
        matrices.append({**six, **four_six, "vector": [256], "loops": ["1p0", "4p0", "1p4", "4p4"], **overload})
    if not options.hosts and not options.testbed:
        matrices += _generated(options, six)
    for placement, workers in zip(PLACEMENTS, (1, 1, 2, 2), strict=True):
        placed = {"placement": [placement], "workers": [workers], "vector": [256], **overload}
        matrices += [*_cells(options, **placed)[:2], {**six, **placed}]
        matrices.append({**six, **placed, "clock_ghz": ["3.6"]})
        # Its vectors are its own.
        matrices.append({**_cells(options, **placed)[1], "dut": ["l3fwd"], "vector": [0], "routes": [L3FWD_ROUTES]})
    seconds = options.trial_s if options.quick else 60
    line = 10e9 / (84 * 8) * options.scale.factor
    return {
        "line_rate": "10Gbps",
        "matrix": matrices[0],
        "further": matrices[1:],
        "procedures": {
            "r-plus": {"kind": "r-plus", "offered": f"{line:.0f}pps", "duration_s": seconds},
            "latency": {"kind": "r-plus", "offered": f"{line:.0f}pps", "duration_s": seconds, "fractions": list(LOADS)},
            **{
                f"load-{s}": {"kind": "fixed-rate", "rate": f"{line * float(s) / 100:.0f}pps", "duration_s": seconds}
                for s in SHARES
            },
            MOST: {"kind": "r-plus", "offered": "1000Mpps", "duration_s": seconds},
            # The paper's own rates: no tester has to send them.
            **{
                f"generated-{s}": {
                    "kind": "fixed-rate",
                    "rate": f"{10e9 / (84 * 8) * float(s) / 100:.0f}pps",
                    "duration_s": seconds,
                }
                for s in SHARES
            },
        },
        "repeats": options.repeats if options.quick else 10,
        "rest_s": 0,
        "odd_runs": {"mads": 5, "repeat_at_most": 0 if options.quick else 2},
    }


def keys(cell: Cell, campaign: Campaign) -> Keys:
    """Operation as the paper calls it, vector size, pattern, loops, placement; what stands for itself is spelt out."""
    found = as_keys(cell, campaign)
    width, _, distance = cell.loops.partition("p")
    found |= {
        "operation": OPERATIONS[cell.operation, cell.ip],
        "vector_size": str(cell.vector or 256),
        "pattern": cell.pattern,
        "placement": cell.placement or "as-it-comes",
        "multi_loop": width or "own",
        "prefetch": ("on" if distance != "0" else "off") if distance else "own",
    }
    if cell.clock_ghz:
        found["clock_ghz"] = cell.clock_ghz
    share = cell.procedure.rpartition("-")[2]
    if share.isdigit():
        found["share_percent"] = share
    elif cell.procedure == "latency":
        found["shares_of"] = "r-plus"
    return found


def wants(published: Published, campaign: Campaign) -> Keys | str:
    """Numbers of the prose stand beside the cells that they speak of."""
    del campaign
    cell = dict(published.cell)
    if "placement" in cell:
        cell.pop("clock_ghz", None)
        return cell | {"dut": CANDIDATE, "quantity": "receive_rate_pps"}
    if "load" in cell:
        return cell | {"dut": CANDIDATE}
    return "said of a figure as a whole"


_BY_VECTOR = {"pattern": ("static",), "placement": ("as-it-comes",), "multi_loop": ("own",)}

LINGUAGLOSSA2019 = Design(
    name="linguaglossa2019",
    title="seed 002 (a paper of 2019)",
    differs=(
        "The paper had network cards of 10 Gbit/s under DPDK; here tester and device share a machine and meet on memif.",
        "R+ is the receive rate while more is offered than the device can forward. On memif what its ring has no room for is "
        "never sent, and is missing all the same.",
        "The paper's 130,000 routes are of a public table, with prefixes of many lengths; ours are /24s.",
        "MIX is a third each of IPv4, IPv6 (84 B, the smallest that the tester can sign) and bridging under an 802.1Q tag "
        "(68 B).",
        "l3fwd has 65,000 of these routes, in its table for many (fib): for more it would have to be changed.",
        "Vector size and loops are set while the router runs; the paper built VPP anew for each.",
        "IPv6 frames have 84 B.",
        "The tester sends in batches of 64: vectors of about 64 at any load and limit are the tester's, not the device's. So "
        "figures 5, 6a, 8, 9 and 11 are shown by the router's own packet generator (pg) as well: cross-connect, IPv4 and "
        "IPv6. Its rates hold the work of making the frames; where that work differs, between the patterns of figure 9, "
        "clocks of the graph are compared.",
        "Of VPP's vectors the packet generator sets what they begin with; its loops are fixed when it is built.",
    ),
    document=document,
    keys=keys,
    wants=wants,
    figures=(
        Figure(
            "5",
            "Figure 5: vector size by load",
            {"share_percent": SHARES},
            ("operation", "link", "share_percent"),
            ("vector_mean_packets",),
        ),
        Figure(
            "6a",
            "Figure 6a: rate by largest vector",
            _BY_VECTOR | {"operation": ("xc", "ip4", "mix"), "procedure": OVERLOADS},
            ("operation", "link", "vector_size"),
            ("receive_rate_pps", "vector_mean_packets"),
        ),
        *(
            Figure(
                name,
                f"Figure {name}: {words}",
                _BY_VECTOR | {"operation": ("xc", "ip4", "mix"), "procedure": ("r-plus",)},
                ("operation", "vector_size"),
                (quantity,),
            )
            for name, words, quantity in (
                ("6b", "instructions a packet", "instructions_per_packet"),
                ("6c", "instructions a clock", "ipc"),
                ("6d", "misses of the L1 instruction cache", "l1i_misses_per_packet"),
            )
        ),
        Figure(
            "7",
            "Figure 7: clocks by node",
            _BY_VECTOR | {"vector_size": ("256",), "procedure": ("r-plus",)},
            ("operation",),
            (
                "graph_clocks",
                "lookup_clocks",
                "node_ethernet-input_clocks",
                "node_ip4-input_clocks",
                "node_ip4-rewrite_clocks",
                "node_ip6-input_clocks",
                "node_ip6-rewrite_clocks",
                "node_l2-input_clocks",
                "node_memif-input_clocks",
            ),
        ),
        Figure(
            "8",
            "Figure 8: multi-loop and prefetch",
            {"multi_loop": ("1", "4")},
            ("operation", "link", "multi_loop", "prefetch"),
            ("graph_clocks", "receive_rate_pps"),
        ),
        Figure(
            "9",
            "Figure 9: rate by pattern",
            {
                "vector_size": ("256",),
                "placement": ("as-it-comes",),
                "multi_loop": ("own",),
                "operation": ("xc", "ip4", "mix"),
                "procedure": OVERLOADS,
            },
            ("operation", "link", "pattern"),
            ("receive_rate_pps", "graph_clocks"),
        ),
        Figure(
            "10",
            "Figure 10: latency by load",
            {"load": tuple(str(x) for x in LOADS)},
            ("operation", "load"),
            ("latency_min_us", "latency_mean_us", "latency_p99_us", "latency_max_us"),
        ),
        Figure(
            "11",
            "Figure 11: core placements",
            {"dut": (CANDIDATE, CONTROL), "placement": PLACEMENTS},
            ("operation", "link", "placement", "clock_ghz"),
            ("receive_rate_pps",),
        ),
        Figure(
            "12",
            "Figure 12: against l3fwd",
            {"placement": PLACEMENTS, "operation": ("ip4",)},
            ("dut", "placement"),
            ("receive_rate_pps",),
        ),
    ),
    average="mean",
    counters=True,
)
