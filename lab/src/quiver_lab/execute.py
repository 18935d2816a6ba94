"""One run of a procedure as a campaign asks for it: from a cell and a measurer to named values. Pure but for the measurer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from quiver_lab import campaign as c
from quiver_lab import procedures, profiles, units
from quiver_lab.measurer import FullMeasurer, Measurer, Tags
from quiver_lab.procedures import LatencyPoint
from quiver_lab.stateful import Dialogue, Measure, Stateful, StatefulMeasurer, StatefulRequest
from quiver_lab.trial import DISTURBED, Trial


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found."""

    values: dict[str, float | None]
    primary: str
    resolution: float = 0.0
    valid: bool = True
    notes: tuple[str, ...] = ()


def _of_trial(trial: Trial, prefix: str = "") -> dict[str, float | None]:
    """Quantities of one trial, named as the papers' values are."""
    low = [d.latency_ns.min for d in trial.directions if d.latency_ns]
    mean, high, jitter = trial.latency_mean_ns, trial.worst_latency_ns("max"), trial.jitter_ns

    def us(ns: float | None) -> float | None:
        return None if ns is None else ns / 1000

    return {
        f"{prefix}loss_percent": trial.loss_ratio * 100,
        f"{prefix}unsent_percent": trial.unsent_ratio * 100,
        f"{prefix}receive_rate_pps": trial.delivered_pps,
        f"{prefix}latency_min_us": us(min(low) if low else None),
        f"{prefix}latency_mean_us": us(mean),
        f"{prefix}latency_p50_us": us(trial.worst_latency_ns("p50")),
        f"{prefix}latency_p90_us": us(trial.worst_latency_ns("p90")),
        f"{prefix}latency_p99_us": us(trial.worst_latency_ns("p99")),
        f"{prefix}latency_p99_9_us": us(trial.worst_latency_ns("p99_9")),
        f"{prefix}latency_max_us": us(high),
        f"{prefix}jitter_us": us(jitter),
    }


def _for_example(trials: Iterable[tuple[int, Trial]]) -> str:
    """What was wrong with the last of some trials that was not valid."""
    said = [reason for _, trial in trials for reason in trial.reasons if not trial.valid]
    return f" (the last: {said[-1]})" if said else ""


def settled(outcome: Outcome) -> Outcome:
    """An outcome without its primary value is never valid, and says so."""
    if outcome.values.get(outcome.primary) is not None:
        return outcome
    notes = outcome.notes or (f"no {outcome.primary} was found",)
    return replace(outcome, valid=False, notes=notes)


def _at(points: Iterable[LatencyPoint], of: str) -> tuple[dict[str, float | None], list[str]]:
    """Quantities at shares of a rate, and what must be known of them; a trial that is not valid has none."""
    values: dict[str, float | None] = {}
    notes = []
    for point in points:
        share = f"{point.fraction * 100:g}"
        trial = point.trials[0]
        found = _of_trial(trial, f"at_{share}_percent_")
        if trial.valid:
            values |= found
            if not point.lossless:
                notes.append(f"frames were missing at {share} % of {of}")
        else:
            values |= dict.fromkeys(found)
            notes.append(f"at {share} % of {of} the trial was not valid: {'; '.join(trial.reasons) or 'no reason given'}")
    return values, notes


def _search(measurer: Measurer, max_pps: float, duration_s: float, resolution: int) -> tuple[float | None, Outcome]:
    found = procedures.throughput(measurer, max_pps=max_pps, duration_s=duration_s, resolution_pps=resolution)
    notes: tuple[str, ...] = ("the tester, not the device, is the limit",) if found.limited_by_tester else ()
    if found.upper_pps is None:
        notes += ("the highest rate that was tried passed: the device may be better",)
    if found.rate_pps is None:
        notes += ("no rate passed without loss",)
    if found.spoilt:
        notes += (f"{found.spoilt} of {len(found.trials)} trials of the search were not valid{_for_example(found.trials)}",)
    values: dict[str, float | None] = {"throughput_pps": found.rate_pps}
    if found.rate_pps is not None:
        at = next(t for rate, t in reversed(found.trials) if rate == found.rate_pps and t.missing == 0)
        values["latency_at_throughput_us"] = _of_trial(at)["latency_mean_us"]
    return found.rate_pps, Outcome(values, "throughput_pps", float(resolution), not found.limited_by_tester, notes)


def _r_plus(measurer: Measurer, offered_pps: float, spec: c.RPlus) -> Outcome:
    found = procedures.r_plus(measurer, offered_pps=offered_pps, duration_s=spec.duration_s, fractions=spec.fractions)
    values = {**_of_trial(found.trial), "offered_pps": found.offered_pps}
    notes: list[str] = []
    if found.trial.disturbed:
        why = next(reason for reason in found.trial.reasons if reason.startswith(DISTURBED))
        notes.append(f"R+ is not the device's, and shares of it were not measured ({why})")
    elif not found.overloaded:
        why = "; ".join(found.trial.reasons) or "everything that was offered came back"
        notes.append(f"the tester may be the limit, and R+ higher ({why})")
    more, said = _at(found.points, "R+")
    values |= more
    notes += said
    return Outcome(values, "receive_rate_pps", 1 / spec.duration_s, found.valid, tuple(notes))


def _tagged_latency(measurer: FullMeasurer, spec: c.TaggedLatency, line_pps: float) -> Outcome:
    rate, outcome = _search(measurer, line_pps, spec.search_s, spec.resolution_pps)
    if rate is None:
        return replace(outcome, primary="typical_latency_us")
    tags = Tags(spec.tagged_frames, spec.tag_after_s, spec.timestamps)
    found = procedures.tagged_latency(measurer, rate_pps=rate, duration_s=spec.duration_s, tags=tags)
    trial = found.trial
    notes = [*outcome.notes, *trial.reasons]
    if trial.lost:
        notes.append(f"{trial.lost} frames were lost at the throughput")
    if found.frames < spec.tagged_frames:
        notes.append(f"{found.frames} of at least {spec.tagged_frames} tagged frames came back")
    values = {
        **outcome.values,
        "typical_latency_us": None if found.typical_ns is None else found.typical_ns / 1000,
        "worst_case_latency_us": None if found.worst_case_ns is None else found.worst_case_ns / 1000,
        "tagged_frames": float(found.frames),
    }
    valid = outcome.valid and trial.valid and found.frames >= spec.tagged_frames
    return Outcome(values, "typical_latency_us", 0.001, valid, tuple(notes))


def _back_to_back(measurer: Measurer, spec: c.BackToBack, line_pps: float) -> Outcome:
    rate, outcome = _search(measurer, line_pps, spec.search_s, spec.resolution_pps)
    burst = procedures.back_to_back(
        measurer, line_pps=line_pps, throughput_pps=rate or 0.0, longest_s=spec.longest_s, repeats=1
    )
    values = {
        **outcome.values,
        "burst_frames": burst.mean_frames,
        "buffer_time_us": None if burst.at_limit else burst.corrected_buffer_s * 1e6,
    }
    notes = [*outcome.notes, *(["the longest burst that was tried passed"] if burst.at_limit else [])]
    if burst.unproved:
        notes.append(f"of {burst.unproved} lengths no trial was valid")
    return Outcome(values, "burst_frames", 1.0, outcome.valid and not burst.unproved, tuple(notes))


def _recovery(measurer: FullMeasurer, spec: c.Recovery, line_pps: float) -> Outcome:
    rate, outcome = _search(measurer, line_pps, spec.search_s, spec.resolution_pps)
    if rate is None:
        return replace(outcome, primary="recovery_s")
    found = procedures.recovery(
        measurer, throughput_pps=rate, line_pps=line_pps, overload_s=spec.overload_s, after_s=spec.after_s
    )
    notes = [*outcome.notes, *found.reasons, f"recovery is told to {found.resolution_s:g} s"]
    if not found.overloaded:
        notes.append("the overload lost nothing: there was nothing to recover from")
    elif found.recovery_s is None:
        notes.append(f"frames were still lost {spec.after_s:g} s after the overload")
    values = {
        **outcome.values,
        "overload_pps": found.overload_pps,
        "recovery_s": found.recovery_s if found.overloaded else None,
        "recovery_resolution_s": found.resolution_s,
    }
    valid = outcome.valid and found.valid and found.overloaded
    return Outcome(values, "recovery_s", found.resolution_s, valid, tuple(notes))


def _reset(measurer: FullMeasurer, spec: c.Reset, line_pps: float) -> Outcome:
    rate, outcome = _search(measurer, line_pps, spec.search_s, spec.resolution_pps)
    if rate is None:
        return replace(outcome, primary="reset_s")
    found = procedures.reset(measurer, rate_pps=rate, duration_s=spec.duration_s, reset_after_s=spec.reset_after_s)
    notes = [*outcome.notes, *found.reasons]
    if found.reset_s is None:
        notes.append(f"it did not come back within {spec.duration_s - spec.reset_after_s:g} s")
    elif found.lost == 0:
        notes.append("the reset lost nothing")
    values = {**outcome.values, "reset_s": found.reset_s, "reset_lost_frames": float(found.lost)}
    return Outcome(values, "reset_s", 1 / rate, outcome.valid and found.valid, tuple(notes))


StatefulSpec = c.ConnectionRate | c.TableCapacity | c.TearDown | c.TcpRate


def request_of(cell: c.Cell, spec: StatefulSpec, line_bit_per_s: float) -> StatefulRequest:
    """What is asked of the tester: as many initiators as the cell has sources, and one responder."""
    measures: dict[str, Measure] = {
        "connection-rate": "establishment-rate", "table-capacity": "capacity", "tear-down": "tear-down-rate",
    }  # fmt: skip
    first, last, responder = profiles.ends(cell)
    if isinstance(spec, c.TcpRate):
        return StatefulRequest(
            "tcp-rate",
            connections=0,
            open_pps=spec.max_cps,
            size=0,
            initiators=f"{first}-{last}",
            responders=responder,
            timeout=spec.timeout_s,
            precision=spec.precision,
            budget_s=spec.budget_s,
            dialogue=Dialogue(spec.duration_s, spec.request_bytes, spec.response_bytes, spec.exchanges),
        )
    request = StatefulRequest(
        measures[spec.kind],
        connections=spec.connections,
        open_pps=units.parse_rate(spec.open_rate, cell.frame_bytes, line_bit_per_s),
        size=cell.frame_bytes,
        initiators=f"{first}-{last}",
        responders=responder,
        timeout=spec.timeout_s,
        budget_s=spec.budget_s,
    )
    match spec:
        case c.ConnectionRate():
            return replace(request, precision=spec.precision)
        case c.TableCapacity():
            return replace(request, precision=spec.precision, error=spec.error)
        case c.TearDown():
            return request


def execute_stateful(cell: c.Cell, spec: StatefulSpec, line_bit_per_s: float, measurer: StatefulMeasurer) -> Outcome:
    """Run a procedure of a connection table once: one measurement of the tester's."""
    return of_stateful(spec, measurer.stateful(request_of(cell, spec, line_bit_per_s)))


def of_stateful(spec: StatefulSpec, answer: Stateful) -> Outcome:
    """What a measurement of a connection table says, as named values."""
    found, notes = answer.found, list(answer.reasons)
    spoilt = sum(1 for step in answer.steps if step.verdict == "invalid")
    if spoilt:
        notes.append(f"the tester itself failed in {spoilt} of {len(answer.steps)} steps")
    match spec:
        case c.ConnectionRate():
            rate = found.establishment_rate_pps
            first = next((s for s in answer.steps if s.verdict != "invalid"), None)
            if first is not None and first.verdict == "passed":
                notes.append("the highest rate that was tried passed: the device may be better")
            if rate is None:
                notes.append("at no rate were all connections opened")
            values: dict[str, float | None] = {"establishment_rate_cps": rate}
            return Outcome(values, "establishment_rate_cps", (rate or 0.0) * spec.precision, answer.valid, tuple(notes))
        case c.TcpRate():
            return _of_tcp(spec, answer, notes)
        case c.TableCapacity():
            if found.capacity is not None and found.capacity_below is None:
                notes.append("as many connections as these addresses and ports allow were open: the table may be larger")
            values = {"capacity_connections": found.capacity, "establishment_rate_cps": found.establishment_rate_pps}
            return Outcome(values, "capacity_connections", float(spec.error), answer.valid, tuple(notes))
        case c.TearDown():
            values = {
                "tear_down_rate_cps": found.tear_down_rate_cps,
                "tear_down_s": found.tear_down_s,
                "tear_down_empty_s": found.tear_down_empty_s,
                "left_connections": found.left,
            }
            return Outcome(values, "tear_down_rate_cps", 0.0, answer.valid, tuple(notes))


def _of_tcp(spec: c.TcpRate, answer: Stateful, notes: list[str]) -> Outcome:
    """What connections were like at the highest rate that passed."""
    rate = answer.found.establishment_rate_pps
    best = next((s.phase_1 for s in answer.steps if s.verdict == "passed" and s.phase_1.rate_pps == rate), None)
    if rate == spec.max_cps:
        notes.append("the highest rate that was tried passed: the device may be better")
    if rate is None:
        notes.append("at no rate did all connections say what they had to")
    told = (best.model_extra or {}) if best else {}

    def us(times: str, key: str) -> float | None:
        found = told.get(times)
        return found[key] / 1000 if found else None

    values: dict[str, float | None] = {
        "tcp_rate_cps": rate,
        "connect_p99_us": us("connect_ns", "p99"),
        "exchange_mean_us": us("exchange_ns", "mean"),
        "exchange_p99_us": us("exchange_ns", "p99"),
        "responses_bps": told.get("response_bps"),
    }
    return Outcome(values, "tcp_rate_cps", (rate or 0.0) * spec.precision, answer.valid, tuple(notes))


def execute(cell: c.Cell, spec: c.Procedure, line_bit_per_s: float, measurer: FullMeasurer) -> Outcome:
    """Run ``spec`` once. What found no value is not valid."""
    return settled(_execute(cell, spec, line_bit_per_s, measurer))


def _execute(cell: c.Cell, spec: c.Procedure, line_bit_per_s: float, measurer: FullMeasurer) -> Outcome:

    def pps(text: str) -> float:
        return units.parse_rate(text, cell.frame_bytes, line_bit_per_s)

    match spec:
        case c.Throughput():
            return _search(measurer, pps(spec.max_rate), spec.duration_s, spec.resolution_pps)[1]
        case c.ConnectionRate() | c.TableCapacity() | c.TearDown() | c.TcpRate():
            if not isinstance(measurer, StatefulMeasurer):
                raise RuntimeError(f"{cell.procedure}: whoever measures here cannot open connections")
            return execute_stateful(cell, spec, line_bit_per_s, measurer)
        case c.Mlrsearch():
            goals = [procedures.PRESETS[name] for name in spec.goals]
            found = procedures.mlrsearch(measurer, goals, max_pps=pps(spec.max_rate), budget_s=spec.budget_s)
            values: dict[str, float | None] = {}
            for r in found:
                values[f"{r.goal.name}_pps"] = r.conditional_throughput_pps
                values[f"{r.goal.name}_lower_bound_pps"] = r.lower_pps
            primary = f"{goals[0].name}_lower_bound_pps"
            said = []
            for r in found:
                if r.lower_pps is None:
                    said.append(f"{r.goal.name}: no rate is a lower bound")
                if r.limited_by_tester:
                    said.append(f"{r.goal.name}: the tester, not the device, is the limit")
            if found[0].spoilt:
                said.append(f"{found[0].spoilt} trials of the search were not valid")
            valid = all(r.lower_pps is not None and not r.limited_by_tester for r in found)
            return Outcome(values, primary, (values[primary] or 0.0) * goals[0].relative_width, valid, tuple(said))
        case c.LossRate():
            points = procedures.frame_loss_rate(measurer, max_pps=pps(spec.max_rate), duration_s=spec.duration_s)
            values = {f"loss_at_{round(p.fraction * 100)}_percent": p.loss_ratio * 100 for p in points}
            clean = [p.rate_pps for p in points if p.trial.valid and p.loss_ratio == 0]
            values["highest_clean_rate_pps"] = max(clean, default=None)
            return Outcome(values, "highest_clean_rate_pps", valid=all(p.trial.valid for p in points))
        case c.Latency():
            rate, outcome = _search(measurer, pps(spec.max_rate), spec.search_s, spec.resolution_pps)
            if rate is None:
                return outcome
            shares = procedures.latency(
                measurer, throughput_pps=rate, fractions=spec.fractions, duration_s=spec.duration_s, repeats=1
            )
            more, said = _at(shares, "the throughput")
            return replace(outcome, values=outcome.values | more, notes=(*outcome.notes, *said))
        case c.TaggedLatency():
            return _tagged_latency(measurer, spec, pps(spec.max_rate))
        case c.BackToBack():
            return _back_to_back(measurer, spec, pps(spec.max_rate))
        case c.Recovery():
            return _recovery(measurer, spec, pps(spec.max_rate))
        case c.Reset():
            return _reset(measurer, spec, pps(spec.max_rate))
        case c.FixedRate():
            if spec.warm_up_s:
                measurer.measure(pps(spec.rate), spec.warm_up_s)
            (trial,) = procedures.fixed_rate(measurer, rate_pps=pps(spec.rate), duration_s=spec.duration_s, repeats=1)
            return Outcome(_of_trial(trial), "receive_rate_pps", 1 / spec.duration_s, trial.valid, trial.reasons)
        case c.RPlus():
            return _r_plus(measurer, pps(spec.offered), spec)
        case c.Pdv():
            ((value, trial),) = procedures.pdv(measurer, rate_pps=pps(spec.rate), duration_s=spec.duration_s, repeats=1)
            return Outcome({"pdv_us": value / 1000}, "pdv_us", 0.001, trial.valid, trial.reasons)
        case c.Soak():
            run = procedures.soak(measurer, rate_pps=pps(spec.rate), total_s=spec.total_s, slice_s=spec.slice_s)
            return Outcome(
                {
                    "loss_percent": run.loss_ratio * 100,
                    "unsent_percent": run.unsent / run.intended * 100,
                    "lost_frames": float(run.lost),
                    "worst_slice_loss_percent": run.slices[run.worst].loss_ratio * 100,
                    "worst_slice": float(run.worst),
                },
                "loss_percent",
                valid=all(t.valid for t in run.slices),
            )


def expected(cell: c.Cell, spec: c.Procedure, line_bit_per_s: float) -> tuple[int, float]:
    """Trials and seconds of traffic that one run will take, about (an upper bound for searches)."""

    def steps(text: str, resolution: int) -> int:
        top = units.parse_rate(text, cell.frame_bytes, line_bit_per_s)
        return 1 + math.ceil(math.log2(max(2.0, top / resolution)))

    count: Callable[[str, int], int] = steps
    match spec:
        case c.Throughput():
            n = count(spec.max_rate, spec.resolution_pps)
            return n, n * spec.duration_s
        case c.Mlrsearch():
            seconds = sum(procedures.PRESETS[g].duration_sum_s * 4 for g in spec.goals)
            return 30 * len(spec.goals), min(spec.budget_s, seconds)
        case c.LossRate():
            return 10, 10 * spec.duration_s
        case c.Latency():
            n = count(spec.max_rate, spec.resolution_pps)
            return n + len(spec.fractions), n * spec.search_s + len(spec.fractions) * spec.duration_s
        case c.TaggedLatency():
            n = count(spec.max_rate, spec.resolution_pps)
            return n + 1, n * spec.search_s + spec.duration_s
        case c.BackToBack():
            n = count(spec.max_rate, spec.resolution_pps)
            burst = max(1, int(units.parse_rate(spec.max_rate, cell.frame_bytes, line_bit_per_s) * spec.longest_s))
            # Bursts halve: together they last about twice the longest.
            return n + 1 + math.ceil(math.log2(burst + 1)), n * spec.search_s + 2 * spec.longest_s
        case c.Recovery():
            n = count(spec.max_rate, spec.resolution_pps)
            return n + 1, n * spec.search_s + spec.overload_s + spec.after_s
        case c.Reset():
            n = count(spec.max_rate, spec.resolution_pps)
            return n + 1, n * spec.search_s + spec.duration_s
        case c.RPlus():
            n = 1 + len(spec.fractions)
            return n, n * spec.duration_s
        case c.Soak():
            return math.ceil(spec.total_s / spec.slice_s), spec.total_s
        case c.FixedRate():
            return 2 if spec.warm_up_s else 1, spec.duration_s + spec.warm_up_s
        case c.Pdv():
            return 1, spec.duration_s
        case c.TcpRate():
            # Halved until it passes, then down to the precision.
            return 1, min(spec.budget_s, (4 + math.ceil(math.log2(1 / spec.precision))) * spec.duration_s)
        case c.ConnectionRate() | c.TableCapacity() | c.TearDown():
            # One measurement of many steps; how many the device decides.
            one = spec.connections / units.parse_rate(spec.open_rate, cell.frame_bytes, line_bit_per_s)
            tries = {"connection-rate": 8, "table-capacity": 20, "tear-down": 2}[spec.kind]
            return 1, min(spec.budget_s, tries * (2.25 * one + 2 * spec.timeout_s))
