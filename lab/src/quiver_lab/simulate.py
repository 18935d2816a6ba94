"""Devices that exist only as arithmetic: the procedures are tested on them, and ``quiver-lab`` can be tried without a router.

A simulated device forwards up to a capacity; what exceeds it first fills a buffer, then is lost. Noise depends on nothing but
the seed, the rate, the duration and how often that pair was asked for, so that the same search meets the same device again.
Only ``disturbed_s`` depends on the traffic before.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from quiver_lab.measurer import TAGGED, Step, Tags
from quiver_lab.procedures.tcp_rate import tcp_rate
from quiver_lab.stateful import Found, Phase, Stateful, StatefulRequest
from quiver_lab.stateful import Step as Step9693
from quiver_lab.tcp import TcpTrial
from quiver_lab.trial import Direction, Latency, Pdv, SeriesPoint, Trial

_INTERVAL_S = 0.1


@dataclass
class SimulatedDevice:
    """A device and its tester in one."""

    capacity_pps: float
    """What it forwards without loss, per direction; 0 is a dead device."""
    directions: int = 1
    seed: int = 0
    noise: float = 0.0
    """Relative standard deviation of the capacity from trial to trial."""
    stray_loss: float = 0.0
    """Chance that a trial loses one frame although the rate is below the capacity."""
    inversion_pps: tuple[float, float] | None = None
    """A band of rates below the capacity in which it loses frames."""
    buffer_frames: int = 0
    tester_max_pps: float = float("inf")
    """What the tester can send: beyond it trials are invalid."""
    spoilt: float = 0.0
    """Chance that a neighbour on the machine spoils a trial: part of it is not sent, and frames are lost."""
    disturbed_s: tuple[float, float] | None = None
    """From when to when, in seconds of traffic, every trial is spoilt."""
    base_latency_ns: float = 10_000.0
    recovery_s: float = 0.0
    """For how long it goes on losing after an overload has ended."""
    reset_s: float = 0.0
    """For how long it forwards nothing after a reset."""
    table_connections: int = 0
    """Connections that it has room for."""
    connection_rate_cps: float = 100_000.0
    tear_down_rate_cps: float = 1_000_000.0
    calls: list[tuple[float, float]] = field(default_factory=list)
    """Every trial that was asked for: rate and duration."""
    _asked: Counter[tuple[float, float]] = field(default_factory=Counter)
    _clock_s: float = 0.0

    def _random(self, rate_pps: float, duration_s: float) -> random.Random:
        key = (rate_pps, duration_s)
        self._asked[key] += 1
        return random.Random(f"{self.seed}/{rate_pps!r}/{duration_s!r}/{self._asked[key]}")

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        """Run one trial in no time."""
        self.calls.append((rate_pps, duration_s))
        chance = self._random(rate_pps, duration_s)
        capacity = self.capacity_pps * max(0.0, chance.gauss(1.0, self.noise)) if self.noise else self.capacity_pps
        intended = max(1, round(rate_pps * duration_s))
        sent = min(intended, round(self.tester_max_pps * duration_s)) if self.tester_max_pps < rate_pps else intended
        room = int(capacity * duration_s + 0.5) + (self.buffer_frames if capacity else 0)
        if self._is_spoilt(chance, duration_s):
            sent -= max(1, sent // 5)
            room //= 2
        lost = max(0, sent - room)
        band = self.inversion_pps
        if lost == 0 and band is not None and band[0] <= rate_pps <= band[1]:
            lost = max(1, sent // 1000)
        if lost == 0 and self.stray_loss and chance.random() < self.stray_loss:
            lost = 1
        load = min(1.0, rate_pps / capacity) if capacity else 1.0
        return self._trial(intended, sent, lost, duration_s, load)

    def _is_spoilt(self, chance: random.Random, duration_s: float) -> bool:
        began, self._clock_s = self._clock_s, self._clock_s + duration_s
        if self.disturbed_s is not None and began < self.disturbed_s[1] and self._clock_s > self.disturbed_s[0]:
            return True
        return bool(self.spoilt) and chance.random() < self.spoilt

    def _trial(self, intended: int, sent: int, lost: int, duration_s: float, load: float) -> Trial:
        received = sent - lost
        # The mean wait of a queue with random arrivals and constant service, bounded where the formula has no value.
        wait = load / (2 * (1 - min(load, 0.99)))
        mean = self.base_latency_ns * (1 + wait)
        latency = Latency(
            count=received, min=self.base_latency_ns, mean=mean, stdev=mean / 4, p50=mean, p90=mean * 1.5,
            p99=mean * 2, p99_9=mean * 3, p99_99=mean * 4, p99_999=mean * 5, max=mean * 6,
        ) if received else None  # fmt: skip
        pdv = Pdv(
            p50=mean - self.base_latency_ns, p99=latency.p99 - latency.min,
            p99_9=latency.p99_9 - latency.min, max=latency.max - latency.min,
        ) if latency else None  # fmt: skip
        one = {
            "intended": intended, "sent": sent, "unsent": intended - sent, "received": received, "lost": lost,
            "tx_pps": sent / duration_s, "rx_pps": received / duration_s,
            "latency_ns": latency, "jitter_ns": mean / 10 if latency else None, "pdv_ns": pdv,
        }  # fmt: skip
        names = ("left-to-right", "right-to-left")[: self.directions]
        return Trial(
            tester={"version": "simulated"},
            duration_s=duration_s,
            valid=sent == intended,
            reasons=() if sent == intended else (f"sent {sent} of {intended} frames: the sender is too slow",),
            clock="simulated",
            engine="simulated",
            directions=tuple(Direction.model_validate({"name": name, **one}) for name in names),
        )

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Run steps of changing rate; after an overload the device goes on losing for ``recovery_s``."""
        points: list[SeriesPoint] = []
        now = 0.0
        losing_until = 0.0
        for step in steps:
            for _ in range(round(step.duration_s / _INTERVAL_S)):
                now += _INTERVAL_S
                sent = round(step.rate_pps * _INTERVAL_S)
                lost = max(0, sent - round(self.capacity_pps * _INTERVAL_S))
                if lost:
                    losing_until = now + self.recovery_s
                elif now <= losing_until + 1e-9:
                    lost = min(1, sent)
                points.append(SeriesPoint(t_s=round(now, 6), sent=sent, received=sent - lost, lost=lost))
        sent, lost = sum(p.sent for p in points), sum(p.lost for p in points)
        trial = self._trial(sent, sent, lost, now, 1.0)
        return trial.model_copy(
            update={"directions": tuple(d.model_copy(update={"series": tuple(points)}) for d in trial.directions)}
        )

    def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
        """Run one trial in no time; tagged frames wait as all do."""
        trial = self.measure(rate_pps, duration_s)
        found = []
        for d in trial.directions:
            mine = d.latency_ns and d.latency_ns.model_copy(update={"count": tags.count})
            taken = {"latency_ns": mine and mine.model_dump(mode="json")}
            stream = {"name": f"load{TAGGED}", **taken, "timestamps": taken}
            found.append(d.model_copy(update={"streams": (stream,)}))
        return trial.model_copy(update={"directions": tuple(found)})

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        """Run one trial in which nothing passes for ``reset_s`` from ``reset_after_s`` on."""
        sent = round(rate_pps * duration_s)
        away_s = max(0.0, min(self.reset_s, duration_s - reset_after_s))
        lost = round(min(rate_pps, self.capacity_pps) * away_s) + max(0, round((rate_pps - self.capacity_pps) * duration_s))
        return self._trial(sent, sent, min(sent, lost), duration_s, 0.5)

    def stateful(self, request: StatefulRequest) -> Stateful:
        """Measure the device's connection table in no time, by the steps of ``quiver-tester``'s searches."""
        table = SimulatedTable(self)
        return table.measure(request)


@dataclass
class SimulatedTable:
    """A measurement of a simulated device's connection table."""

    device: SimulatedDevice
    steps: list[Step9693] = field(default_factory=list)

    def passes(self, connections: int, pps: float, alpha: float) -> bool:
        """Open so many connections and validate them."""
        opened = min(connections, self.device.table_connections)
        if pps > self.device.connection_rate_cps:
            opened = min(opened, int(opened * self.device.connection_rate_cps / pps))
        whole = opened == connections

        def phase(rate: float) -> Phase:
            return Phase(rate_pps=rate, intended=connections, sent=connections, received=opened, connections=opened, valid=True)

        validation = phase(pps * alpha) if whole else None
        verdict: Literal["passed", "failed"] = "passed" if whole else "failed"
        self.steps.append(
            Step9693(connections=connections, clear_s=0.0, phase_1=phase(pps), validation=validation, verdict=verdict)
        )
        return whole

    def rate(self, connections: int, most: float, precision: float, alpha: float) -> float | None:
        """The highest rate that passes."""
        low, high, at = 0.0, most, most
        while True:
            if self.passes(connections, at, alpha):
                low = at
            else:
                high = at
            if low >= high or high - low <= precision * high or (low == 0.0 and high < 1.0):
                return low or None
            at = (low + high) / 2

    def measure(self, request: StatefulRequest) -> Stateful:
        """Find what is asked for."""
        device, r = self.device, request
        match r.measure:
            case "establishment-rate":
                found = Found(establishment_rate_pps=self.rate(r.connections, r.open_pps, r.precision, r.alpha))
            case "capacity":
                found = self.capacity(r)
            case "tcp-rate":
                return tcp_rate(lambda cps: self.connected(cps, r), r)
            case "tear-down-rate":
                if self.passes(r.connections, r.open_pps, r.alpha):
                    took = r.connections / device.tear_down_rate_cps
                    found = Found(connections=r.connections, tear_down_s=took, tear_down_empty_s=0.0, left=0,
                                  tear_down_rate_cps=device.tear_down_rate_cps)  # fmt: skip
                else:
                    found = Found()
        reasons: tuple[str, ...] = ()
        if found == Found() and r.measure == "tear-down-rate":
            reasons = (f"not all of {r.connections} connections were open: ask for less, or for less a second",)
        if r.measure == "capacity" and found.capacity is None:
            reasons = (f"{r.connections} connections are too many to begin with: none of the rates tried opens them",)
        return Stateful(
            measure=r.measure, settings=r.as_json(), valid=not reasons, reasons=reasons, found=found, steps=tuple(self.steps)
        )

    def connected(self, cps: float, r: StatefulRequest) -> TcpTrial:
        """A trial of connections: those beyond the device's rate are not answered."""
        assert r.dialogue is not None
        opened = math.ceil(cps * r.dialogue.duration_s)
        done = min(opened, int(self.device.connection_rate_cps * r.dialogue.duration_s))
        said = done * r.dialogue.exchanges
        times = Latency(count=done, min=1e5, mean=2e5, stdev=0, p50=2e5, p90=2e5, p99=3e5, p99_9=3e5, max=4e5) if done else None
        segments = {"sent": 10 * opened, "received": 10 * done, "retransmitted": 0, "strange": 0}
        seconds = r.dialogue.duration_s
        return TcpTrial.model_validate(
            {
                "schema": "quiver-tcp-trial/1", "duration_s": seconds, "valid": True,
                "opened": opened, "established": done, "completed": done, "reset": 0, "timed_out": opened - done,
                "corrupted": 0, "unfinished": 0, "exchanges": said, "request_bytes": said * r.dialogue.request_bytes,
                "response_bytes": said * r.dialogue.response_bytes, "connect_ns": times, "exchange_ns": times,
                "intended": opened, "not_opened": 0, "most_open": 1, "opened_cps": opened / seconds,
                "established_cps": done / seconds, "exchanges_per_s": said / seconds,
                "request_bps": 8 * said * r.dialogue.request_bytes / seconds,
                "response_bps": 8 * said * r.dialogue.response_bytes / seconds,
                "client": segments, "server": segments, "connections": (),
            }
        )  # fmt: skip

    def capacity(self, r: StatefulRequest) -> Found:
        """Double until the connections do not fit, then halve."""
        pps = self.rate(r.connections, r.open_pps, r.precision, r.alpha)
        if pps is None:
            return Found(capacity_below=r.connections)
        fits, fails = r.connections, None
        while fails is None:
            if self.passes(fits * 2, pps, r.alpha):
                fits *= 2
            else:
                fails = fits * 2
        while fails - fits > r.error:
            middle = (fits + fails) // 2
            if self.passes(middle, pps, r.alpha):
                fits = middle
            else:
                fails = middle
        return Found(capacity=fits, capacity_below=fails, establishment_rate_pps=pps)
