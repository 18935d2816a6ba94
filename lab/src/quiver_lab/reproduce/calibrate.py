"""How fast this machine's kernel forwards and its tester sends: what the scale of a paper's fixed rates follows from."""

from __future__ import annotations

import math
from pathlib import Path

from quiver_lab import campaign as campaigns
from quiver_lab import testbed
from quiver_lab.devices import adapter
from quiver_lab.devices.base import DeviceError
from quiver_lab.reproduce.design import Options, Scale
from quiver_lab.trial import Trial

SEED_TOP_PPS = 40e9 / (64 * 8)
"""64-byte frames of 40 Gbit/s on layer 2."""
SEED_KERNEL_PPS = SEED_TOP_PPS * (1 - 0.9543)
"""What the thesis's kernel delivered of them (table 2.6: 95.43 % lost)."""
OFFERED_PPS = 5e6
SECONDS = 2.0


def scale_of(sent_pps: float, delivered_pps: float) -> Scale:
    """The scale at which the kernel is as deep in overload as the thesis's, or else as deep as the tester can drive it.

    ``sent_pps`` is what the tester sent at most, in one direction; both ways it can send half of it each.
    """
    if sent_pps <= 0 or delivered_pps <= 0:
        raise ValueError("nothing was sent or nothing came back: give --scale by hand")
    deep, most = delivered_pps / SEED_KERNEL_PPS, sent_pps / 2 / SEED_TOP_PPS
    # A whole divisor, so that rates stay readable; never more than the tester can do.
    divisor = math.ceil(1 / min(deep, most))
    kernel = f"the kernel forwarded {delivered_pps / 1e6:.3g} Mpps of 64 B, the thesis's {SEED_KERNEL_PPS / 1e6:.3g}"
    tester = f"the tester sent {sent_pps / 1e6:.3g} Mpps, the thesis's highest is {SEED_TOP_PPS / 1e6:.4g} in each direction"
    if deep <= most:
        return Scale(1 / divisor, f"1/{divisor}: {kernel}, so that it is as deep in overload; {tester}")
    depth = SEED_TOP_PPS / divisor / delivered_pps
    return Scale(
        1 / divisor,
        f"1/{divisor}: {tester}. {kernel[0].upper()}{kernel[1:]}: at the highest rate it is offered {depth:.2g} times what it "
        f"forwards, in the thesis {SEED_TOP_PPS / SEED_KERNEL_PPS:.3g} times; the tester cannot drive it deeper",
    )


def calibrate(options: Options) -> Scale:
    """Measure both with the baseline, one trial of 64-byte frames on veth."""
    document = {
        "schema": "quiver-campaign/1",
        "name": "calibration",
        "quick": True,
        "testbed": {
            "kind": "local",
            "tester_core": options.tester_core,
            "dut_cores": list(options.dut_cores),
            "sender": options.sender,
        },
        "matrix": {"dut": [options.baseline], "link": ["veth"], "workers": [len(options.dut_cores)], "procedure": ["r"]},
        "procedures": {"r": {"kind": "r-plus", "offered": f"{OFFERED_PPS:.0f}pps", "duration_s": SECONDS}},
        "repeats": 1,
    }
    campaign = campaigns.Campaign.model_validate(document)
    (cell,) = campaign.cells()
    device = adapter(cell.dut, campaign)
    if device is None or (why := device.absent(cell)) is not None:
        raise DeviceError(f"the scale cannot be measured with {cell.dut} ({why if device else 'no adapter'}): give --scale")
    with testbed.scratch("calibration", Path()) as folder, device.bench(cell, folder) as bench:
        return of_trial(bench.measurer.measure(OFFERED_PPS, SECONDS))


def of_trial(trial: Trial) -> Scale:
    """The scale that one trial of overload gives."""
    sent = trial.sent / trial.duration_s / len(trial.directions)
    return scale_of(sent, trial.delivered_pps)
