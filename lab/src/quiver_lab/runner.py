"""Runs a campaign: every cell, every repeat, interleaved, with resume.

Order: the first repeat of all cells, then the second of all, and so on, so that what drifts on the machine drifts for all cells
alike. A run is made of trials; each is stored before the next begins. Procedures are deterministic, so a run that was
interrupted is begun again with its stored trials as answers until they end: only the trial in flight is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field

from quiver_lab import facts, testbed
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.devices import Adapter, DeviceError, adapter, sessions
from quiver_lab.energy import Meter, MeterError
from quiver_lab.execute import execute, expected
from quiver_lab.measurer import FullMeasurer, Step
from quiver_lab.meters import make_meter, measure_idle
from quiver_lab.oddity import Latest, odd_runs
from quiver_lab.operator import Operator
from quiver_lab.processes import CommandError
from quiver_lab.records import Energy, RunId, RunRecord, StatefulRecord, TrialRecord
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


def plan(campaign: Campaign) -> list[Planned]:
    """What would be run, and for how long; starts nothing."""
    out = []
    simulated = campaign.testbed.kind == "simulated"
    for cell in campaign.cells():
        trials, seconds = expected(cell, campaign.procedures[cell.procedure], campaign.line_bit_per_s)
        if simulated:
            seconds = 0.0
        else:
            seconds += trials * PER_TRIAL_S + SETUP_S + campaign.rest_s
        why = why_absent(adapter(cell.dut, campaign), cell) or sessions.absent(cell, campaign)
        out.append(Planned(cell, why, trials, seconds))
    return out


def why_absent(device: Adapter | None, cell: Cell) -> str | None:
    """Why a cell cannot be measured here."""
    return f"there is no adapter named '{cell.dut}'" if device is None else device.absent(cell)


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
    open: Callable[[], FullMeasurer]
    """Sets the device up; called when the first new trial is asked for."""
    meter: Meter | None
    idle_watts: float | None
    progress: Progress
    ordinal: int = 0
    device: FullMeasurer | None = field(default=None)

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        return self._trial(rate_pps, duration_s, lambda device: device.measure(rate_pps, duration_s))

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Stored under the first step's rate and the time of all."""
        return self._trial(steps[0].rate_pps, sum(s.duration_s for s in steps), lambda device: device.measure_steps(steps))

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        return self._trial(rate_pps, duration_s, lambda device: device.measure_with_reset(rate_pps, duration_s, reset_after_s))

    def _trial(self, rate_pps: float, duration_s: float, measure: Callable[[FullMeasurer], Trial]) -> Trial:
        ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        known = self.store.trial(self.run, ordinal)
        if known is not None and (known.rate_pps, known.duration_s) == (rate_pps, duration_s):
            return Trial.model_validate(known.trial)
        if self.device is None:
            self.device = self.open()
        before, cores = self.meter.read() if self.meter else None, facts.core_times()
        trial = measure(self.device)
        busy = facts.core_busy(cores, facts.core_times())
        energy = None
        if self.meter and before:
            after = self.meter.read()
            seconds = after.at_s - before.at_s
            if seconds > 0:
                joules = self.meter.joules(before, after)
                energy = Energy(
                    meter=self.meter.name,
                    joules=joules,
                    seconds=seconds,
                    idle_watts=self.idle_watts,
                    step_j=self.meter.step_j,
                )
        self.store.put_trial(
            TrialRecord(
                campaign=self.store.campaign.name,
                campaign_digest=self.store.digest,
                quick=self.store.campaign.quick,
                run=self.run,
                ordinal=ordinal,
                rate_pps=rate_pps,
                duration_s=duration_s,
                trial=trial.model_dump(mode="json", by_alias=True),
                core_busy=busy,
                energy=energy,
            )
        )
        self.progress.trial(self.run, ordinal, trial, rate_pps)
        return trial

    def stateful(self, request: StatefulRequest) -> Stateful:
        known = self.store.stateful(self.run)
        asked = request.as_json()
        if known is not None and known.request == asked:
            return Stateful.model_validate(known.stateful)
        if self.device is None:
            self.device = self.open()
        if not isinstance(self.device, StatefulMeasurer):
            raise DeviceError("whoever measures this device cannot open connections")
        cores = facts.core_times()
        answer = self.device.stateful(request)
        self.store.put_stateful(
            StatefulRecord(
                campaign=self.store.campaign.name,
                campaign_digest=self.store.digest,
                quick=self.store.campaign.quick,
                run=self.run,
                request=asked,
                stateful=answer.model_dump(mode="json", by_alias=True),
                core_busy=facts.core_busy(cores, facts.core_times()),
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
    ) -> None:
        self.store = store
        self.only = only
        """Cells of this call; the others are left for another."""
        self.operator = operator
        """Configures what is configured by hand."""
        self.campaign = store.campaign
        self.progress = progress or Progress()
        self.meter = make_meter(self.campaign)
        self.idle_watts: float | None = None

    def run(self) -> None:
        """Run what is not done yet, then repeat odd runs."""
        planned = [p for p in plan(self.campaign) if self.only is None or p.absent is not None or self.only(p.cell)]
        total_s = sum(p.seconds for p in planned if p.absent is None) * self.campaign.repeats
        if self.meter is not None:
            self.idle_watts = measure_idle(self.meter)
            self.progress.idle(self.idle_watts, self.meter.name)
        with self.meter.running() if self.meter is not None else nullcontext():
            self._all(planned, total_s)

    def _all(self, planned: list[Planned], total_s: float) -> None:
        done_s = 0.0
        for repeat in range(self.campaign.repeats):
            for p in planned:
                run = RunId(cell=p.cell, repeat=repeat, attempt=0)
                if p.absent is not None:
                    if repeat == 0 and self.store.run(run) is None:
                        self._put(run, "absent", why=p.absent)
                    continue
                self._one(run, done_s, total_s)
                done_s += p.seconds
        while odd := list(self._odd()):
            for run in odd:
                self._one(run, total_s, total_s)

    def _odd(self) -> Iterator[RunId]:
        """Next attempts at odd repeats that have attempts left."""
        rule = self.campaign.odd_runs
        for runs in Latest.by_cell(self.store.runs()):
            for record in odd_runs(runs, rule):
                if record.run.attempt < rule.repeat_at_most:
                    yield record.run.model_copy(update={"attempt": record.run.attempt + 1})

    def _one(self, run: RunId, done_s: float, total_s: float) -> None:
        known = self.store.run(run)
        if known is not None and known.status != "failed":
            return
        self.progress.begin(run, done_s, total_s)
        cell = run.cell
        device = adapter(cell.dut, self.campaign, self.operator)
        assert device is not None
        facts_of_device: dict[str, object] = {}
        telemetry: dict[str, object] = {}
        try:
            with ExitStack() as stack:
                benches = []

                def open_device() -> FullMeasurer:
                    name = f"{cell.slug}-r{run.repeat:02}-a{run.attempt}"
                    folder = stack.enter_context(testbed.scratch(name, self.store.root / "logs"))
                    benches.append(stack.enter_context(device.bench(cell, folder)))
                    return benches[0].measurer

                recording = _Recording(self.store, run, open_device, self.meter, self.idle_watts, self.progress)
                outcome = execute(cell, self.campaign.procedures[cell.procedure], self.campaign.line_bit_per_s, recording)
                values = outcome.values
                for bench in benches:
                    facts_of_device, telemetry = dict(bench.facts), dict(bench.telemetry())
                    if recording.ordinal == 1 and bench.readings is not None:
                        values = {**values, **bench.readings()}
        except (DeviceError, TesterError, CommandError, MeterError, ValueError, RuntimeError) as error:
            self._put(run, "failed", why=" ".join(str(error).split()))
            return
        record = RunRecord(
            campaign=self.campaign.name,
            campaign_digest=self.store.digest,
            quick=self.campaign.quick,
            run=run,
            status="done",
            valid=outcome.valid,
            values=values,
            primary=outcome.primary,
            resolution=outcome.resolution,
            notes=outcome.notes,
            trials=recording.ordinal,
            device=facts_of_device,
            telemetry=telemetry,
        )
        self.store.put_run(record)
        self.progress.ended(record)
        if self.campaign.rest_s:
            time.sleep(self.campaign.rest_s)

    def _put(self, run: RunId, status: str, *, why: str) -> None:
        record = RunRecord.model_validate(
            {
                "campaign": self.campaign.name,
                "campaign_digest": self.store.digest,
                "quick": self.campaign.quick,
                "run": run,
                "status": status,
                "why": why,
                "valid": False,
            }
        )
        self.store.put_run(record)
        self.progress.ended(record)
