"""Latency at shares of the throughput, latency of tagged frames, and delay variation.

RFC 2544, section 26.2, extended as seed 002 does it; RFC 8219, sections 7.2 and 7.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quiver_lab.measurer import TAGGED, Measurer, TaggingMeasurer, Tags
from quiver_lab.trial import Latency, Trial

TENTHS = tuple(n / 10 for n in range(1, 11))
"""10 to 100 % of the throughput."""


@dataclass(frozen=True, slots=True)
class LatencyPoint:
    """Latency at one share of the throughput."""

    fraction: float
    rate_pps: float
    trials: tuple[Trial, ...]

    @property
    def lossless(self) -> bool:
        """Whether the samples are of all frames: latency of what survives an overload is another thing."""
        return all(t.valid and t.missing == 0 for t in self.trials)


def latency(
    measurer: Measurer,
    *,
    throughput_pps: float,
    fractions: Sequence[float] = TENTHS,
    duration_s: float = 120.0,
    repeats: int = 20,
) -> tuple[LatencyPoint, ...]:
    """Measure at each share, ``repeats`` times (the RFC asks for at least 20 of at least 120 s)."""
    if throughput_pps <= 0 or repeats < 1 or not fractions:
        raise ValueError("latency needs a throughput above 0, at least one share and at least one repeat")
    points = []
    for fraction in fractions:
        rate = throughput_pps * fraction
        points.append(LatencyPoint(fraction, rate, tuple(measurer.measure(rate, duration_s) for _ in range(repeats))))
    return tuple(points)


def pdv(measurer: Measurer, *, rate_pps: float, duration_s: float = 60.0, repeats: int = 20) -> tuple[tuple[float, Trial], ...]:
    """Packet delay variation by RFC 8219, section 7.3.1: the 99.9th percentile less the minimum, in ns; with each run's trial.

    Of several directions the larger counts. A run in which no latency was taken is an error, not a zero.
    """
    values = []
    for _ in range(repeats):
        trial = measurer.measure(rate_pps, duration_s)
        taken = [d.latency_ns for d in trial.directions if d.latency_ns]
        if not taken:
            raise ValueError("no latency in this trial: delay variation cannot be told")
        values.append((max(x.p99_9 - x.min for x in taken), trial))
    return tuple(values)


@dataclass(frozen=True, slots=True)
class TaggedLatency:
    """What tagged frames tell of one trial at the throughput (RFC 8219, section 7.2)."""

    typical_ns: float | None
    """The median of their latencies; none where no tagged frame came back."""
    worst_case_ns: float | None
    """The 99.9th percentile."""
    frames: int
    """Tagged frames that came back, of the stream that has the fewest."""
    trial: Trial


def tagged_latency(measurer: TaggingMeasurer, *, rate_pps: float, duration_s: float = 120.0, tags: Tags) -> TaggedLatency:
    """Time tagged frames in the last part of one trial; of several streams and directions the larger latencies count."""
    if not 0 <= tags.after_s < duration_s or tags.count < 1:
        raise ValueError(f"{tags.count} tagged frames from {tags.after_s:g} s on in a trial of {duration_s:g} s")
    trial = measurer.measure_tagged(rate_pps, duration_s, tags)
    streams = [s for d in trial.directions for s in d.streams if str(s.get("name", "")).endswith(TAGGED)]
    # The tester's own times stand in the stream, those of devices in an object of theirs.
    accounts = [s if tags.timestamps == "tester" else s.get("timestamps") or {} for s in streams]
    taken = [None if a.get("latency_ns") is None else Latency.model_validate(a["latency_ns"]) for a in accounts]
    known = [x for x in taken if x is not None]
    if not known or len(known) < len(taken):
        return TaggedLatency(None, None, 0, trial)
    return TaggedLatency(max(x.p50 for x in known), max(x.p99_9 for x in known), min(x.count for x in known), trial)
