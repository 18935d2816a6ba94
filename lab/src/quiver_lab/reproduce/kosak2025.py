"""Seed 001: zero-loss throughput, both directions, by the number of cores. Tables I to X, figures 2 to 4."""

from __future__ import annotations

from typing import Any

from quiver_lab.campaign import Campaign, Cell
from quiver_lab.published import Cell as Keys
from quiver_lab.published import Published
from quiver_lab.reproduce.design import CANDIDATE, Design, Options, as_keys

FRAMES = ((4, 64), (6, 84))
"""Families and sizes."""
OWN_CLOCK = {"E5-2620": ("1.2", "2.0"), "E5-2667 v4": ("3.2",)}
"""Clock rates of each of the paper's machines that our one clock rate stands beside."""
INSTANCES = {"4": 0, "6": 1, "3": 0, "5": 1, "4+6": 0, "3+5": 0}
"""Which of our core instances stands for the paper's cores."""
NEXT = ("ovs", "ovs-dpdk", "xdp")
"""Devices that the authors announce."""


def document(options: Options) -> dict[str, Any]:
    """Workers by core instance and NUMA node, the kernel by cores, a second clock rate, and what the authors announce."""
    same, best = options.links()
    matrices: list[dict[str, Any]] = []
    for ip, size in FRAMES:
        common = {"operation": ["bidirectional"], "ip": [ip], "frame_bytes": [size], "procedure": ["zero-loss"]}
        near = {"dut": [options.candidate], "link": [same], "numa": ["near"], **common}
        far = {**near, "numa": ["far"]}
        # The order of the papers' columns: first instances first, so that an interrupted campaign has them.
        matrices.append({**near, "workers": [1, 2]})
        matrices.append({"dut": [options.baseline], "link": [same], "workers": [1, 2, 4, 6, 8, 12, 16], **common})
        matrices.append({**near, "workers": [1], "instance": [1]})
        matrices += [{**far, "workers": [1], "instance": [0, 1]}, {**far, "workers": [2]}]
        matrices += [{**near, "workers": [1, 2], "clock_ghz": ["1.2"]}]
        matrices += [{**near, "workers": [1], "instance": [1], "clock_ghz": ["1.2"]}]
        matrices.append(
            {"dut": [options.baseline], "link": [same], "workers": [1, 2, 4, 8, 16], "clock_ghz": ["1.2"], **common}
        )
        if best != same:
            matrices.append({**near, "link": [best], "workers": [1, 2]})
        matrices.append({"dut": list(NEXT), "link": [same], "workers": [1], **common})
    search: dict[str, Any] = {"kind": "throughput", "duration_s": 60, "resolution_pps": 1, "max_rate": "100%"}
    if options.quick:
        search |= {"duration_s": options.trial_s, "resolution_pps": 1000}
    return {
        "line_rate": "10Gbps",
        "matrix": matrices[0],
        "further": matrices[1:],
        "procedures": {"zero-loss": search},
        "repeats": options.repeats if options.quick else 20,
        "rest_s": 0,
        "odd_runs": {"mads": 5, "repeat_at_most": 0 if options.quick else 2},
    }


def keys(cell: Cell, campaign: Campaign) -> Keys:
    """Device, family, size, workers, cores, node and clock."""
    found = as_keys(cell, campaign, "operation", "ip", "frame_bytes", "workers", "clock_ghz")
    return found | {"cores": str(cell.instance), "numa": cell.numa}


def wants(published: Published, campaign: Campaign) -> Keys | str:
    """The same cores by their place; this machine's one clock stands beside each machine's first."""
    del campaign
    cell = dict(published.cell)
    cpu, clock = cell.pop("cpu", ""), cell.pop("clock_ghz", "")
    if not cpu:
        return "not a measured cell"
    # Table III and IV were taken at 1.2 GHz only, IX and X at both.
    own = clock in OWN_CLOCK[cpu]
    cell["clock_ghz"] = "" if own else clock
    if cell["dut"] == "vpp":
        cell |= {"dut": CANDIDATE, "cores": str(INSTANCES[cell["cores"]])}
    else:
        cell |= {"cores": "0", "numa": ""}
    return cell


KOSAK2025 = Design(
    name="kosak2025",
    title="seed 001 (a paper of 2025)",
    differs=(
        "The paper had two machines of 12 and 16 cores with network cards of 10 Gbit/s; here tester and device share one, and "
        "meet on veth (ports that both devices have) or memif (the candidate's best).",
        "This machine's cores run at one clock rate: its values stand beside the paper's at 2.0 and 1.2 GHz (E5-2620) and at "
        "3.2 GHz (E5-2667 v4); for the second rate of the latter there is nothing to lay beside.",
        "Searches have no rates to scale. The search begins at the line rate of 10 Gbit/s.",
        "NAPI polling, which the authors announce, is how the kernel receives here (threaded NAPI on veth).",
        "Latency at the throughput that was found, which they announce too, is among the results.",
    ),
    document=document,
    keys=keys,
    wants=wants,
    x="workers",
    drawn=("throughput_median_pps", "throughput_scale_up"),
)
