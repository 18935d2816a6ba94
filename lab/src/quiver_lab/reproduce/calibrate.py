"""How fast this machine's kernel forwards and its tester sends: what the scale of a paper's fixed rates follows from."""

from __future__ import annotations

import math
from pathlib import Path

from quiver_lab import campaign as campaigns
from quiver_lab import testbed, units
from quiver_lab.campaign import Testbed
from quiver_lab.devices import adapter
from quiver_lab.devices.base import DeviceError
from quiver_lab.reproduce.design import Options, Scale
from quiver_lab.trial import Trial

SEED_TOP_PPS = 40e9 / (64 * 8)
"""64-byte frames of 40 Gbit/s on layer 2."""
SEED_KERNEL_PPS = SEED_TOP_PPS * (1 - 0.9543)
"""What the thesis's kernel delivered of them (table 2.6: 95.43 % lost)."""
SEED_WORKER_PPS = 8.16e6
"""What one worker of its VPP delivered, one way: the median of three rates (``capacity.of_paper``)."""
OFFERED_PPS = {"veth": 5e6, "memif": 20e6, "ports": SEED_TOP_PPS}
SECONDS = 2.0
REACH = 0.5
"""Of the most that the tester sends, what it sends in time while it receives as well."""


def scale_of(sent_pps: float, delivered_pps: float) -> Scale:
    """The scale at which the kernel is as deep in overload as the thesis's, or else as deep as the tester can drive it."""
    return _scale(sent_pps, delivered_pps, "the kernel", SEED_KERNEL_PPS)


def scale_of_best(sent_pps: float, delivered_pps: float) -> Scale:
    """The same of the candidate on its best ports, held against one worker of the thesis's VPP."""
    return _scale(sent_pps, delivered_pps, "one worker", SEED_WORKER_PPS)


def _scale(sent_pps: float, delivered_pps: float, who: str, seed_pps: float) -> Scale:
    """``sent_pps`` is what the tester sent at most, in one direction; both ways it can send half of it each, less in time."""
    if sent_pps <= 0 or delivered_pps <= 0:
        raise ValueError("nothing was sent or nothing came back: give --scale by hand")
    deep, most = delivered_pps / seed_pps, sent_pps * REACH / 2 / SEED_TOP_PPS
    # A whole divisor, so that rates stay readable; never more than the tester can do.
    divisor = math.ceil(1 / min(deep, most))
    device = f"{who} forwarded {delivered_pps / 1e6:.3g} Mpps of 64 B, the thesis's {seed_pps / 1e6:.3g}"
    tester = (
        f"the tester sent {sent_pps / 1e6:.3g} Mpps at most, and half of that in time; the thesis's highest is "
        f"{SEED_TOP_PPS / 1e6:.4g} in each direction"
    )
    if deep <= most:
        return Scale(1 / divisor, f"1/{divisor}: {device}, so that it is as deep in overload; {tester}")
    depth = SEED_TOP_PPS / divisor / delivered_pps
    return Scale(
        1 / divisor,
        f"1/{divisor}: {tester}. {device[0].upper()}{device[1:]}: at the highest rate it is offered {depth:.2g} times what it "
        f"forwards, in the thesis {SEED_TOP_PPS / seed_pps:.3g} times; the tester cannot drive it deeper",
    )


def calibrate(options: Options, bed: Testbed | None = None) -> tuple[Scale, Scale | None]:
    """Measure tester and baseline on the ports that all have, and the candidate on its best, by an overload of 64 B each.

    Without the candidate's best ports there is one scale. ``bed`` is the testbed where it is not this machine.
    """
    same, best = options.links()
    cores = len(options.dut_cores)
    common = of_trial(_overload(options, bed, options.baseline, same, cores))
    if best == same:
        return common, None
    try:
        own = _overload(options, bed, options.candidate, best, 1)
    except DeviceError:
        # Its cells on these ports will be absent, for the same reason.
        return common, None
    return common, scale_of_best(own.sent / own.duration_s / len(own.directions), own.delivered_pps)


def _overload(options: Options, bed: Testbed | None, dut: str, link: str, workers: int) -> Trial:
    offered = OFFERED_PPS[link]
    if bed is not None and bed.hosts is not None:
        offered = min(offered, units.parse_bit_per_s(bed.hosts.line_rate) / (64 * 8))
    document = {
        "schema": "quiver-campaign/1",
        "name": "calibration",
        "quick": True,
        "testbed": {
            "kind": "local",
            "tester_core": options.tester_core,
            "dut_cores": list(options.dut_cores),
            "sender": options.sender,
            "rx_mode": "polling",
        },
        "matrix": {"dut": [dut], "link": [link], "workers": [workers], "procedure": ["r"]},
        "procedures": {"r": {"kind": "r-plus", "offered": f"{offered:.0f}pps", "duration_s": SECONDS}},
        "repeats": 1,
    }
    campaign = campaigns.Campaign.model_validate(document)
    if bed is not None:
        campaign = campaign.model_copy(update={"testbed": bed})
    (cell,) = campaign.cells()
    device = adapter(cell.dut, campaign)
    if device is None or (why := device.absent(cell)) is not None:
        raise DeviceError(f"the scale cannot be measured with {cell.dut} ({why if device else 'no adapter'}): give --scale")
    with testbed.scratch("calibration", Path()) as folder, device.bench(cell, folder) as bench:
        return bench.measurer.measure(offered, SECONDS)


def of_trial(trial: Trial) -> Scale:
    """The scale that one trial of overload gives."""
    sent = trial.sent / trial.duration_s / len(trial.directions)
    return scale_of(sent, trial.delivered_pps)
