"""Connections of TCP a second (RFC 9411, 7.2): the highest rate at which all are opened, say what they have to, and are closed.

The answer has the form of one about a connection table (``stateful.py``): a step for each rate that was tried.
"""

from __future__ import annotations

from collections.abc import Callable

from quiver_lab.stateful import Found, Phase, Stateful, StatefulRequest, Step
from quiver_lab.tcp import TcpTrial

ATTEMPTS = 3
"""Trials at one rate, as long as none of them is valid."""
FAILED = 1e-5
"""Part of the connections that may fail: RFC 9411 bounds failed transactions by 0.001 %."""


def passed(trial: TcpTrial) -> bool:
    """All that was to be opened was, and next to none failed."""
    return trial.opened == trial.intended and trial.completed >= trial.opened * (1 - FAILED) and trial.opened > 0


def tcp_rate(
    measure: Callable[[float], TcpTrial], request: StatefulRequest, *, is_over: Callable[[], bool] = lambda: False
) -> Stateful:
    """Search between nothing and ``request.open_pps`` connections a second; ``is_over`` says that time is up."""
    steps: list[Step] = []
    low, high, invalid, late = 0.0, request.open_pps, "", False
    at = high
    while True:
        trial = measure(at)
        for _ in range(ATTEMPTS - 1):
            if trial.valid or is_over():
                break
            steps.append(_step(at, trial))
            trial = measure(at)
        steps.append(_step(at, trial))
        if trial.valid and passed(trial):
            low = at
        else:
            high = at
            invalid = "" if trial.valid else (trial.reasons or ("no reason given",))[-1]
        if low >= high or high - low <= request.precision * high or high < 1.0:
            break
        if late := is_over():
            break
        at = (low + high) / 2
    reasons: list[str] = []
    if late:
        reasons.append("the search took too long, and was ended")
    if invalid:
        reasons.append(f"at {high:g} connections/s no trial was valid, so the tester may be the limit (the last: {invalid})")
    return Stateful(
        schema="quiver-stateful/1",
        measure="tcp-rate",
        settings=request.as_json(),
        valid=not reasons,
        reasons=tuple(reasons),
        found=Found(establishment_rate_pps=low or None),
        steps=tuple(steps),
    )


def _step(rate: float, trial: TcpTrial) -> Step:
    """A rate that was tried, with what a reader of the record asks for."""
    more = {
        "failed": {name: getattr(trial, name) for name in ("reset", "timed_out", "corrupted", "unfinished")},
        "connect_ns": None if trial.connect_ns is None else trial.connect_ns.model_dump(),
        "exchange_ns": None if trial.exchange_ns is None else trial.exchange_ns.model_dump(),
        "response_bps": trial.response_bps,
        "retransmitted": trial.client.retransmitted + trial.server.retransmitted,
    }
    phase = Phase.model_validate(
        {
            "rate_pps": rate, "intended": trial.intended, "sent": trial.opened, "received": trial.completed,
            "connections": trial.completed, "valid": trial.valid, "reasons": trial.reasons, **more,
        }
    )  # fmt: skip
    if not trial.valid:
        return Step(connections=trial.opened, phase_1=phase, verdict="invalid")
    return Step(connections=trial.opened, phase_1=phase, verdict="passed" if passed(trial) else "failed")
