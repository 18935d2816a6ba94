"""Runs a campaign: every cell, every repeat, interleaved, with resume.

Order: the first repeat of all cells, then the second of all, and so on, so that what drifts on the machine drifts for all cells
alike; within a repeat the cells' order is drawn. A trial that the machine disturbed is made again (``noise.py``).

A run is made of trials; each is stored before the next begins. Procedures are deterministic, so a run that was interrupted is
begun again with its stored trials as answers until they end: only the trial in flight is lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace

from quiver_lab import facts, hardware, noise, processes, site, testbed, throttle
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.devices import Adapter, Bench, DeviceError, adapter, generator, sessions
from quiver_lab.devices.base import cores_of
from quiver_lab.energy import Meter, MeterError
from quiver_lab.execute import execute, expected
from quiver_lab.measurer import FullMeasurer, Step, Tags
from quiver_lab.meters import make_meter, measure_idle
from quiver_lab.noise import Canary, CoreCanary, Watch
from quiver_lab.oddity import Latest, odd_runs
from quiver_lab.operator import Operator
from quiver_lab.processes import CommandError
from quiver_lab.records import Energy, RunId, RunRecord, StatefulRecord, TrialRecord
from quiver_lab.site import Site
from quiver_lab.stateful import Stateful, StatefulMeasurer, StatefulRequest
from quiver_lab.store import Store
from quiver_lab.tester import TesterError
from quiver_lab.trial import Trial

SETUP_S = 2.0
"""About what it takes to set a device up and check it; only for the estimate."""
PER_TRIAL_S = 1.0
"""About what a trial takes beside its traffic."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell with what it will cost."""

    cell: Cell
    absent: str | None
    trials: int
    seconds: float
    """One run."""


def plan(campaign: Campaign, where: Site | None = None) -> list[Planned]:
    """What would be run, and for how long; starts nothing. ``where`` is the campaign's site, if it was made already."""
    out = []
    where = where or site.of(campaign)
    simulated = campaign.testbed.kind == "simulated"
    for cell in campaign.cells():
        trials, seconds = expected(cell, campaign.procedures[cell.procedure], campaign.line_bit_per_s)
        if simulated:
            seconds = 0.0
        else:
            seconds += trials * PER_TRIAL_S + SETUP_S + campaign.rest_s
        device = adapter(cell.dut, campaign, None, where)
        why = why_absent(device, cell) or sessions.absent(cell, campaign)
        why = why or throttle.absent(campaign, cell, able=device is not None and device.throttles)
        out.append(Planned(cell, why, trials, seconds))
    return out


def why_absent(device: Adapter | None, cell: Cell) -> str | None:
    """Why a cell cannot be measured here."""
    return f"there is no adapter named '{cell.dut}'" if device is None else device.absent(cell)


class StoppedError(Exception):
    """The campaign is to stop: raised between two trials."""


class Progress:
    """Told what happens; says nothing by itself."""

    def idle(self, watts: float, meter: str) -> None:
        """Say what is drawn while nothing is measured."""

    def begin(self, run: RunId, done_s: float, total_s: float) -> None:
        """Say that a run begins, and how much of the estimated time is behind."""

    def trial(self, run: RunId, ordinal: int, trial: Trial, rate_pps: float) -> None:
        """Say that a trial ended."""

    def ended(self, record: RunRecord) -> None:
        """Say that a run ended."""


@dataclass
class _Recording:
    """A measurer that stores each trial, and answers from the store what was measured before."""

    store: Store
    run: RunId
    open: Callable[[], Bench]
    """Sets the device up; called when the first new trial is asked for."""
    testbed: str
    meter: Meter | None
    idle_watts: float | None
    progress: Progress
    stopped: Callable[[], bool]
    perf: str | None = None
    """Path of ``perf``, where hardware counters are wanted."""
    cores: Sequence[int] = ()
    """The device's."""
    watch: Watch | None = None
    """Tells which trials the machine disturbed."""
    per_packet: dict[str, float] = field(default_factory=dict)
    """What the counters say of the last trial."""
    hogs: list[throttle.Account] = field(default_factory=list)
    """Of a throttled device, what it had in each trial."""
    ordinal: int = 0
    asked: int = 0
    """How many trials the procedure asked for; the others were repetitions of disturbed ones."""
    disturbed: list[tuple[str, ...]] = field(default_factory=list)
    """Of each trial that the machine disturbed, by what."""
    bench: Bench | None = field(default=None)

    def _ready(self) -> Bench:
        """The device, set up; nothing new begins when the campaign is to stop."""
        if self.stopped():
            raise StoppedError
        if self.bench is None:
            self.bench = self.open()
        return self.bench

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        return self._trial(rate_pps, duration_s, lambda device: device.measure(rate_pps, duration_s))

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Stored under the first step's rate and the time of all."""
        return self._trial(steps[0].rate_pps, sum(s.duration_s for s in steps), lambda device: device.measure_steps(steps))

    def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
        return self._trial(rate_pps, duration_s, lambda device: device.measure_tagged(rate_pps, duration_s, tags))

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        return self._trial(rate_pps, duration_s, lambda device: device.measure_with_reset(rate_pps, duration_s, reset_after_s))

    def _trial(self, rate_pps: float, duration_s: float, measure: Callable[[FullMeasurer], Trial]) -> Trial:
        """A trial, made again as long as the machine disturbs it, the campaign allows and there is hope."""
        self.asked += 1
        spec = self.store.campaign.procedures[self.run.cell.procedure]
        for again in range(1 + self.store.campaign.noise.repeat_at_most):
            if again and self.bench is not None and self.bench.forget is not None:
                self.bench.forget()
            trial, disturbed = self._once(rate_pps, duration_s, measure)
            if not disturbed:
                return trial
            self.disturbed.append(disturbed)
            if again and trial.out_of_reach:
                # A neighbour is gone the second time, as a rule; a tester that is too slow stays so.
                break
            # That nothing was lost to a device with more of its core than it should have had proves nothing.
            if self.run.cell.throttle == 1 and noise.counts_all_the_same(trial, spec):
                return trial
        return noise.marked(trial, disturbed)

    def _once(
        self, rate_pps: float, duration_s: float, measure: Callable[[FullMeasurer], Trial]
    ) -> tuple[Trial, tuple[str, ...]]:
        """One trial, stored or from the store, and what disturbed it."""
        ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        known = self.store.trial(self.run, ordinal)
        if known is not None and (known.rate_pps, known.duration_s) == (rate_pps, duration_s):
            self.hogs.append(known.throttle)
            return self._seen(Trial.model_validate(known.trial), known.hardware), known.disturbed
        bench = self._ready()
        speeds = [self.watch.read()] if self.watch else []
        share = self.run.cell.throttle
        # What a hog takes is neither the device's work nor its energy.
        meter, perf = (self.meter, self.perf) if share == 1 else (None, None)
        before, cores = meter.read() if meter else None, bench.cores()
        with hardware.counted(perf, self.cores, duration_s) as counts, self._held(duration_s) as account:
            trial = measure(bench.measurer)
        self.hogs.append(account)
        later = bench.cores()
        energy = None
        if meter and before:
            after = meter.read()
            seconds = after.at_s - before.at_s
            if seconds > 0:
                joules = meter.joules(before, after)
                energy = Energy(
                    meter=meter.name,
                    joules=joules,
                    seconds=seconds,
                    idle_watts=self.idle_watts,
                    step_j=meter.step_j,
                )
        speeds += [self.watch.read()] if self.watch else []
        disturbed = self.watch.disturbed(trial, speeds) if self.watch else ()
        disturbed += throttle.disturbed(account, share)
        first, last = [{c: (s.bytes_per_cpu_s, s.share) for c, s in x.items()} for x in speeds] or [{}, {}]
        self.store.put_trial(
            TrialRecord(
                campaign=self.store.campaign.name,
                campaign_digest=self.store.digest,
                quick=self.store.campaign.quick,
                testbed=self.testbed,
                run=self.run,
                ordinal=ordinal,
                rate_pps=rate_pps,
                duration_s=duration_s,
                trial=trial.model_dump(mode="json", by_alias=True),
                core_busy=facts.core_busy(cores.device, later.device) if share == 1 else {},
                tester_busy=facts.core_busy(cores.tester, later.tester),
                energy=energy,
                speed_before=first,
                speed_after=last,
                disturbed=disturbed,
                throttle=account,
                hardware=counts,
            )
        )
        self.progress.trial(self.run, ordinal, trial, rate_pps)
        return self._seen(trial, counts), disturbed

    def _held(self, duration_s: float) -> AbstractContextManager[throttle.Account]:
        """The device's cores, throttled as the cell says, about this long."""
        cores = () if self.store.campaign.testbed.kind == "simulated" else self.cores
        return throttle.held(cores, self.run.cell.throttle, duration_s)

    def noise_notes(self) -> tuple[str, ...]:
        """What a run says of trials that the machine disturbed."""
        if not self.disturbed:
            return ()
        said = (
            f"the machine disturbed {len(self.disturbed)} of {self.ordinal} trials (the last: {'; '.join(self.disturbed[-1])})"
        )
        again = self.ordinal - self.asked
        return (f"{said}; {again} were made again" if again else said,)

    def _seen(self, trial: Trial, counts: Mapping[str, float]) -> Trial:
        self.per_packet = hardware.per_packet(counts, trial.received / trial.duration_s)
        return trial

    def stateful(self, request: StatefulRequest) -> Stateful:
        known = self.store.stateful(self.run)
        asked = request.as_json()
        if known is not None and known.request == asked:
            return Stateful.model_validate(known.stateful)
        bench = self._ready()
        if not isinstance(bench.measurer, StatefulMeasurer):
            raise DeviceError("whoever measures this device cannot open connections")
        cores = bench.cores()
        with self._held(request.budget_s) as account:
            answer = bench.measurer.stateful(request)
        self.hogs.append(account)
        if wrong := throttle.disturbed(account, self.run.cell.throttle):
            answer = answer.model_copy(update={"valid": False, "reasons": (*answer.reasons, *wrong)})
        self.store.put_stateful(
            StatefulRecord(
                campaign=self.store.campaign.name,
                campaign_digest=self.store.digest,
                quick=self.store.campaign.quick,
                testbed=self.testbed,
                run=self.run,
                request=asked,
                stateful=answer.model_dump(mode="json", by_alias=True),
                core_busy=facts.core_busy(cores.device, bench.cores().device) if not account else {},
            )
        )
        return answer


class Runner:
    """Runs one campaign into one store."""

    def __init__(
        self,
        store: Store,
        progress: Progress | None = None,
        only: Callable[[Cell], bool] | None = None,
        operator: Operator | None = None,
        *,
        campaign: Campaign | None = None,
        where: Site | None = None,
        stopped: Callable[[], bool] = lambda: False,
        canary: Canary | None = None,
    ) -> None:
        self.store = store
        self.only = only
        """Cells of this call; the others are left for another."""
        self.operator = operator
        """Configures what is configured by hand."""
        self.campaign = campaign or store.campaign
        """The store's, with the testbed of this call in its place."""
        self.site = where or site.of(self.campaign)
        self.stopped = stopped
        """Asked before each new trial; then ``run`` ends with ``StoppedError``."""
        self.testbed = self.campaign.testbed.title
        self.progress = progress or Progress()
        self.meter = make_meter(self.campaign)
        self.idle_watts: float | None = None
        bed = self.campaign.testbed
        if canary is None and bed.kind == "local":
            canary = CoreCanary((bed.tester_core, *bed.dut_cores))
        # Simulated devices have no machine; of far ones only the tester's own account is known.
        self.watch = Watch(self.campaign.noise, canary, str(bed.tester_core))

    def run(self, planned: Sequence[Planned] | None = None) -> None:
        """Run what is not done yet, then repeat odd runs; ``planned`` are the cells of this call, all of them by default."""
        if planned is None:
            cells = plan(self.campaign, self.site)
            planned = [p for p in cells if self.only is None or p.absent is not None or self.only(p.cell)]
        total_s = sum(p.seconds for p in planned if p.absent is None) * self.campaign.repeats
        if self.meter is not None:
            self.idle_watts = measure_idle(self.meter)
            self.progress.idle(self.idle_watts, self.meter.name)
        with self.meter.running() if self.meter is not None else nullcontext():
            self._all(planned, total_s)

    def _all(self, planned: Sequence[Planned], total_s: float) -> None:
        done_s = 0.0
        slugs = {p.cell.slug for p in planned}
        for repeat in range(self.campaign.repeats):
            for p in self._in_order(planned, repeat):
                run = RunId(cell=p.cell, repeat=repeat, attempt=0)
                if p.absent is not None:
                    if repeat == 0 and self.store.run(run) is None:
                        self._put(run, "absent", why=p.absent)
                    continue
                self._one(run, done_s, total_s)
                done_s += p.seconds
        while odd := list(self._odd(slugs)):
            for run in odd:
                self._one(run, total_s, total_s)

    def _in_order(self, planned: Sequence[Planned], repeat: int) -> list[Planned]:
        """The cells of one repeat. Drawn: what changes on the machine again and again must not meet the same cell each time."""
        ordered = list(planned)
        if self.campaign.order == "random":
            random.Random(f"{self.store.digest}/{repeat}").shuffle(ordered)
        return ordered

    def _odd(self, slugs: Container[str]) -> Iterator[RunId]:
        """Next attempts at odd repeats of these cells that have attempts left."""
        rule = self.campaign.odd_runs
        for runs in Latest.by_cell(r for r in self.store.runs() if r.run.cell.slug in slugs):
            for record in odd_runs(runs, rule):
                if record.run.attempt < rule.repeat_at_most:
                    yield record.run.model_copy(update={"attempt": record.run.attempt + 1})

    def _one(self, run: RunId, done_s: float, total_s: float) -> None:
        known = self.store.run(run)
        if known is not None and known.status != "failed":
            return
        self.progress.begin(run, done_s, total_s)
        self.measure(run)
        if self.campaign.rest_s:
            time.sleep(self.campaign.rest_s)

    def measure(self, run: RunId) -> None:
        """Do one run, and store it."""
        cell = run.cell
        device = adapter(cell.dut, self.campaign, self.operator, self.site)
        assert device is not None
        facts_of_device: dict[str, object] = {}
        telemetry: dict[str, object] = {}
        try:
            with ExitStack() as stack:
                benches: list[Bench] = []

                def open_device() -> Bench:
                    name = f"{cell.slug}-r{run.repeat:02}-a{run.attempt}"
                    folder = stack.enter_context(testbed.scratch(name, self.store.root / "logs"))
                    benches.append(stack.enter_context(device.bench(cell, folder)))
                    return benches[0]

                recording = _Recording(
                    self.store, run, open_device, self.testbed, self.meter, self.idle_watts, self.progress, self.stopped,
                    perf=self._perf(), cores=self._cores(cell), watch=self._watch(cell),
                )  # fmt: skip
                outcome = execute(cell, self.campaign.procedures[cell.procedure], self.campaign.line_bit_per_s, recording)
                values = {**outcome.values, **(recording.per_packet if recording.asked == 1 else {})}
                for bench in benches:
                    facts_of_device, telemetry = dict(bench.facts), dict(bench.telemetry())
                    # Readings are over all trials since the device was set up, or was told to forget.
                    alone = recording.ordinal == 1 or (recording.asked == 1 and bench.forget is not None)
                    if alone and bench.readings is not None:
                        values = {**values, **bench.readings()}
        except (DeviceError, TesterError, CommandError, MeterError, ValueError, RuntimeError) as error:
            self._put(run, "failed", why=" ".join(str(error).split()))
            return
        notes = (*outcome.notes, *recording.noise_notes())
        if cell.throttle != 1:
            values = throttle.told(values)
            notes = (throttle.note(cell.throttle, recording.hogs), *notes)
        record = RunRecord(
            campaign=self.campaign.name,
            campaign_digest=self.store.digest,
            quick=self.campaign.quick,
            testbed=self.testbed,
            run=run,
            status="done",
            valid=outcome.valid,
            values=values,
            primary=outcome.primary,
            resolution=outcome.resolution,
            notes=notes,
            trials=recording.ordinal,
            device=facts_of_device,
            telemetry=telemetry,
        )
        self.store.put_run(record)
        self.progress.ended(record)

    def _cores(self, cell: Cell) -> tuple[int, ...]:
        """The device's."""
        return generator.cores(self.campaign, cell) if cell.link == "pg" else cores_of(self.campaign, cell)

    def _watch(self, cell: Cell) -> Watch:
        """Without a tester, none of the cores is its own, and one may be idle."""
        if cell.link != "pg":
            return self.watch
        return replace(self.watch, tester_core="", cores=frozenset(map(str, self._cores(cell))))

    def _perf(self) -> str | None:
        bed = self.campaign.testbed
        return processes.find("perf", bed.binaries) if bed.counters == "perf" and bed.kind == "local" else None

    def _put(self, run: RunId, status: str, *, why: str) -> None:
        record = RunRecord.model_validate(
            {
                "campaign": self.campaign.name,
                "campaign_digest": self.store.digest,
                "quick": self.campaign.quick,
                "testbed": "" if status == "absent" else self.testbed,
                "run": run,
                "status": status,
                "why": why,
                "valid": False,
            }
        )
        self.store.put_run(record)
        self.progress.ended(record)
