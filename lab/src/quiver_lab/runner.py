"""Runs a campaign: every cell, every repeat, interleaved, with resume.

Order: the first repeat of all cells, then the second of all, and so on, so that what drifts on the machine drifts for all cells
alike. A run is made of trials; each is stored before the next begins. Procedures are deterministic, so a run that was
interrupted is begun again with its stored trials as answers until they end: only the trial in flight is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from quiver_lab import facts, testbed
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.devices import Adapter, DeviceError, adapter
from quiver_lab.energy import Meter, MeterError, Rapl, SimulatedPdu
from quiver_lab.execute import execute, expected
from quiver_lab.measurer import Measurer
from quiver_lab.oddity import Latest, odd_runs
from quiver_lab.processes import CommandError
from quiver_lab.records import Energy, RunId, RunRecord, TrialRecord
from quiver_lab.store import Store
from quiver_lab.tester import TesterError
from quiver_lab.trial import Trial

SETUP_S = 4.0
"""About what it takes to set a device up and check it; only for the estimate."""
PER_TRIAL_S = 1.0
"""About what a trial takes beside its traffic."""
IDLE_S = 5.0
"""For how long the idle draw is measured."""


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
        out.append(Planned(cell, why_absent(adapter(cell.dut, campaign), cell), trials, seconds))
    return out


def why_absent(device: Adapter | None, cell: Cell) -> str | None:
    """Why a cell cannot be measured here."""
    return f"there is no adapter named '{cell.dut}'" if device is None else device.absent(cell)


class Progress:
    """Told what happens; says nothing by itself."""

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
    open: Callable[[], Measurer]
    """Sets the device up; called when the first new trial is asked for."""
    meter: Meter | None
    idle_watts: float | None
    progress: Progress
    ordinal: int = 0
    device: Measurer | None = field(default=None)

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        known = self.store.trial(self.run, ordinal)
        if known is not None and (known.rate_pps, known.duration_s) == (rate_pps, duration_s):
            return Trial.model_validate(known.trial)
        if self.device is None:
            self.device = self.open()
        before, cores = self.meter.read() if self.meter else None, facts.core_times()
        trial = self.device.measure(rate_pps, duration_s)
        busy = facts.core_busy(cores, facts.core_times())
        energy = None
        if self.meter and before:
            after = self.meter.read()
            seconds = after.at_s - before.at_s
            if seconds > 0:
                joules = self.meter.joules(before, after)
                energy = Energy(meter=self.meter.name, joules=joules, seconds=seconds, idle_watts=self.idle_watts)
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


def make_meter(campaign: Campaign) -> Meter | None:
    """The campaign's meter."""
    match campaign.testbed.meter:
        case "rapl":
            return Rapl(facts.now_s)
        case "simulated":
            return SimulatedPdu(facts.now_s, campaign.testbed.simulated_watts)
        case "none":
            return None


def measure_idle(meter: Meter, seconds: float = IDLE_S) -> float:
    """Mean draw in watts while nothing is measured."""
    before = meter.read()
    time.sleep(seconds)
    after = meter.read()
    return meter.joules(before, after) / (after.at_s - before.at_s)


class Runner:
    """Runs one campaign into one store."""

    def __init__(self, store: Store, progress: Progress | None = None) -> None:
        self.store = store
        self.campaign = store.campaign
        self.progress = progress or Progress()
        self.meter = make_meter(self.campaign)
        self.idle_watts: float | None = None

    def run(self) -> None:
        """Run what is not done yet, then repeat odd runs."""
        planned = plan(self.campaign)
        total_s = sum(p.seconds for p in planned if p.absent is None) * self.campaign.repeats
        done_s = 0.0
        if self.meter is not None:
            self.idle_watts = measure_idle(self.meter)
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
        device = adapter(cell.dut, self.campaign)
        assert device is not None
        facts_of_device: dict[str, object] = {}
        telemetry: dict[str, object] = {}
        try:
            with ExitStack() as stack:
                benches = []

                def open_device() -> Measurer:
                    name = f"{cell.slug}-r{run.repeat:02}-a{run.attempt}"
                    folder = stack.enter_context(testbed.scratch(name, self.store.root / "logs"))
                    benches.append(stack.enter_context(device.bench(cell, folder)))
                    return benches[0].measurer

                recording = _Recording(self.store, run, open_device, self.meter, self.idle_watts, self.progress)
                outcome = execute(cell, self.campaign.procedures[cell.procedure], self.campaign.line_bit_per_s, recording)
                for bench in benches:
                    facts_of_device, telemetry = dict(bench.facts), dict(bench.telemetry())
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
            values=outcome.values,
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
