"""Seed 000: a thesis. Fixed rates of 1, 10, 25 and 40 Gbit/s (layer 2), five sizes, forwarding one and both ways, NAT.

Tables 2.3 to 2.14 and the figures that follow from them, and table 2.3 of the draft (seed 003: 500 + 500 Mbit/s).
"""

from __future__ import annotations

from typing import Any

from quiver_lab.campaign import Campaign, Cell
from quiver_lab.published import Cell as Keys
from quiver_lab.published import Published
from quiver_lab.reproduce.design import CANDIDATE, CAPACITY, Design, Figure, Options, Scale, as_keys

RATES = ("1", "10", "25", "40")
SIZES = (64, 512, 889, 1280, 1518)
WORKERS = (1, 4, 10)
KERNEL_CORES = 10
"""Of the thesis; ours has what the device's cores allow."""


WARM = "-warm"
BEST = "-best"
"""Ends the names of procedures whose rates have the scale of the candidate's best ports."""
CAPACITY_SIZES = (64, 512)
"""Those at which the thesis's devices were in overload."""
SHARE = 0.25
"""Of its core that a throttled device has. With less, one that polls hardly has its turn, and the kernel helps it out."""
QUICK_S = 1.0
"""Of quick trials. There are more than a thousand; repeats scatter by more than a longer trial would gain."""


def _name(rate: str, more: str = "") -> str:
    return f"at-{rate}-gbit{more}"


def document(options: Options) -> dict[str, Any]:
    """240 cells of the thesis and 4 of its draft on the ports that all have, and the candidate's on its best."""
    same, best = options.links()
    cores = min(KERNEL_CORES, len(options.dut_cores))
    operations = ["one-way", "bidirectional", "nat"]
    common = {"sources": [254], "frame_bytes": list(SIZES), "operation": operations, "procedure": [_name(r) for r in RATES]}
    draft = {"sources": [254], "frame_bytes": [64], "operation": ["bidirectional"], "procedure": [_name("0.5")]}
    # NAT has a /16 of sources.
    nat = {**common, "operation": ["nat"], "sources": [65_534], "procedure": [_name(r, WARM) for r in RATES]}
    plain = {**common, "operation": ["one-way", "bidirectional"]}
    overloads = [
        {**plain, "frame_bytes": list(CAPACITY_SIZES), "procedure": [CAPACITY]},
        {**nat, "frame_bytes": list(CAPACITY_SIZES), "procedure": [CAPACITY]},
    ]
    parts: tuple[dict[str, Any], ...] = (plain, nat, draft, *overloads)
    matrices: list[dict[str, Any]] = []
    for part in parts:
        matrices.append({"dut": [options.candidate], "link": [same], "workers": list(WORKERS), **part})
        matrices.append({"dut": [options.baseline], "link": [same], "workers": [cores], **part})
    if not options.hosts:
        # Between hosts the tester can do what the thesis's did.
        matrices += throttled(options, plain)
    scales = {"": options.scale} | ({BEST: options.best_scale} if options.best_scale else {})
    of_best = BEST if options.best_scale else ""
    if best != same:
        for part in parts:
            names = [n if n == CAPACITY else f"{n}{of_best}" for n in part["procedure"]]
            matrices.append({**part, "dut": [options.candidate], "link": [best], "workers": [1], "procedure": names})
    seconds = QUICK_S if options.quick else 120

    def fixed(rate: str, scale: Scale, warm_up_s: float = 0) -> dict[str, Any]:
        scaled = f"{float(rate) * 1e9 * scale.factor:.0f}bps"
        return {"kind": "fixed-rate", "rate": scaled, "duration_s": seconds, "warm_up_s": warm_up_s}

    return {
        "line_rate": "40Gbps",
        "matrix": matrices[0],
        "further": matrices[1:],
        "procedures": {
            **{_name(r, own): fixed(r, scale) for own, scale in scales.items() for r in ("0.5", *RATES)},
            # A /16 of sessions is not opened within a short trial.
            **{_name(r, WARM + own): fixed(r, scale, options.trial_s) for own, scale in scales.items() for r in RATES},
            CAPACITY: {"kind": "r-plus", "offered": "100%", "duration_s": seconds},
        },
        "repeats": options.repeats if options.quick else 20,
        "rest_s": 0 if options.quick else 60,
        # A device in overload scatters: only what the tester could not do is repeated.
        "odd_runs": {"mads": 1000, "repeat_at_most": 0 if options.quick else 2},
    }


def throttled(options: Options, plain: dict[str, Any]) -> list[dict[str, Any]]:
    """Devices with a part of their core, at the rates and sizes of which the thesis says what is lost.

    They forward in the thread that receives, or have at least a path that does. Without one a device starves, since receiving
    comes first: so translation is left out.
    """
    same, _ = options.links()
    # Nothing is lost at the lowest rate.
    lossy = {"link": [same], "workers": [1], "frame_bytes": list(CAPACITY_SIZES), "procedure": plain["procedure"][1:]}
    return [{**plain, **lossy, "throttle": [SHARE], "dut": [dut]} for dut in (options.candidate, options.baseline)]


def keys(cell: Cell, campaign: Campaign) -> Keys:
    """Operation, rate, size, device, workers; overloads have no rate of the paper's."""
    if cell.procedure == CAPACITY:
        return as_keys(cell, campaign, "operation", "frame_bytes", "workers") | {"load": CAPACITY}
    rate = cell.procedure.removeprefix("at-").removesuffix(BEST).removesuffix(WARM).removesuffix("-gbit")
    return as_keys(cell, campaign, "operation", "frame_bytes", "workers") | {"rate_gbit_s": rate}


def wants(published: Published, campaign: Campaign) -> Keys | str:
    """The same, VPP's place taken; the kernel on as many of ten cores as there are."""
    if "rate_gbit_s" not in published.cell:
        return "not a measured cell"
    cell = {"frame_bytes": "64", **published.cell}
    if cell["dut"] == "vpp":
        return cell | {"dut": CANDIDATE}
    return cell | {"dut": "linux", "workers": str(min(KERNEL_CORES, len(campaign.testbed.dut_cores)))}


SLAVIK2025 = Design(
    name="slavik2025",
    title="seed 000 (a thesis of 2025) and its draft, seed 003",
    differs=(
        "The thesis had two hosts with network cards of 100 Gbit/s; here tester and device share a machine and meet on veth "
        "(ports that all devices have) or memif (the candidate's best).",
        "The kernel has 10 cores in the thesis; here it has those of testbed.dut_cores. Threads of NAPI that are pinned to "
        "them and come before ordinary ones, or receive packet steering, take the place of spread interrupts.",
        "Queues are one a port; in the thesis as many as workers.",
        "Rates are of layer 2, as in the thesis, and multiplied by the scale factor of the ports: one for those that all "
        "devices have, one for the candidate's best, where it is as deep in overload as the thesis's VPP-1 or as the tester "
        "can drive it.",
        "Losses are measured a second time with devices that have a quarter of their core: a tester on the same machine hardly "
        "overloads a whole one. They stand in a table of their own. Findings about overload take them where whole devices "
        "were not overloaded.",
        "Sources are a /24 a direction; with NAT a /16, translated to a pool of a /24.",
        "Energy is read where the machine has a meter; it is that of trials of 120 s at the power measured.",
    ),
    document=document,
    keys=keys,
    wants=wants,
    figures=(
        Figure(
            "throttled",
            "Losses of devices that have a quarter of their core",
            {"throttle": (f"{SHARE:g}",)},
            ("operation", "dut", "rate_gbit_s", "frame_bytes"),
            ("loss_percent",),
        ),
    ),
    by_capacity=True,
    average="mean",
    x="frame_bytes",
    drawn=("loss_percent", "latency_mean_us", "jitter_us", "bytes_per_wh"),
)
