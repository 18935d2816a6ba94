"""Makes the meter that a campaign names, and measures the idle draw."""

from __future__ import annotations

import os
import time

from quiver_lab import facts
from quiver_lab.campaign import Campaign
from quiver_lab.energy import Meter, Rapl, SimulatedPdu
from quiver_lab.pdu import pdu
from quiver_lab.processes import find
from quiver_lab.sensors import hwmon, ipmi

IDLE_S = 5.0
"""For how long the idle draw is measured."""
COMMUNITY = "QUIVER_PDU_COMMUNITY"
"""Takes the place of ``testbed.pdu.community``, which stands in every copy of the results."""


def make_meter(campaign: Campaign) -> Meter | None:
    """The campaign's meter."""
    bed = campaign.testbed
    match bed.meter:
        case "rapl":
            return Rapl(facts.now_s)
        case "hwmon":
            return hwmon(facts.now_s, bed.sensors, bed.sample_s)
        case "ipmi":
            return ipmi(facts.now_s, find("ipmitool", bed.binaries), bed.sample_s)
        case "pdu":
            assert bed.pdu is not None  # The campaign file was checked.
            return pdu(facts.now_s, bed.pdu, os.environ.get(COMMUNITY) or bed.pdu.community, bed.sample_s)
        case "simulated":
            return SimulatedPdu(facts.now_s, bed.simulated_watts)
        case "none":
            return None


def measure_idle(meter: Meter, seconds: float | None = None) -> float:
    """Mean draw in watts while nothing is measured."""
    meter = meter.for_idle()
    with meter.running():
        before = meter.read()
        time.sleep(IDLE_S if seconds is None else seconds)
        after = meter.read()
    return meter.joules(before, after) / (after.at_s - before.at_s)
