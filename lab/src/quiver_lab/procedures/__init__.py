"""The measurement procedures: pure functions over a measurer.

None of them knows a clock, a file or a process; all of them return every trial that they asked for.
"""

from quiver_lab.procedures.latency import LatencyPoint, TaggedLatency, latency, pdv, tagged_latency
from quiver_lab.procedures.loss import LossPoint, frame_loss_rate
from quiver_lab.procedures.mlrsearch import PRESETS, Goal, GoalResult, mlrsearch
from quiver_lab.procedures.runs import RPlusResult, SoakResult, fixed_rate, r_plus, soak
from quiver_lab.procedures.sudden import (
    BackToBackResult,
    RecoveryResult,
    ResetResult,
    back_to_back,
    recovery,
    reset,
)
from quiver_lab.procedures.tcp_rate import tcp_rate
from quiver_lab.procedures.throughput import ThroughputResult, throughput

__all__ = [
    "PRESETS", "BackToBackResult", "Goal", "GoalResult", "LatencyPoint", "LossPoint", "RPlusResult", "RecoveryResult",
    "ResetResult", "SoakResult", "TaggedLatency", "ThroughputResult", "back_to_back", "fixed_rate", "frame_loss_rate",
    "latency", "mlrsearch",
    "pdv", "r_plus", "recovery", "reset", "soak", "tagged_latency", "tcp_rate", "throughput",
]  # fmt: skip
