"""A campaign's testbeds on a Dask cluster: a worker that offers the resource ``testbed-NAME`` makes the runs of that testbed.

Trials come back by a queue of one place, and are stored here before the worker is two ahead. A run whose worker dies is begun
again with these trials as answers, on whichever worker offers the testbed then: only the trials in flight are lost. Dask would
begin it again by itself, with what was known at first; a mark that each beginning leaves with the scheduler prevents that.
"""

from __future__ import annotations

import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import distributed

from quiver_lab import site
from quiver_lab.beds import Bed
from quiver_lab.campaign import Campaign
from quiver_lab.meters import measure_idle
from quiver_lab.processes import CommandError
from quiver_lab.records import RunId, RunRecord, StatefulRecord, TrialRecord
from quiver_lab.runner import Progress, Runner
from quiver_lab.spread import Survey, survey
from quiver_lab.store import Store
from quiver_lab.trial import Trial

WORKER_S = 60.0
"""For how long a testbed may be without a worker before it is given up."""
LIVES = 5
"""How many workers one run may cost."""


TAKEN_S = 60.0
"""For how long a trial may wait to be taken."""


@dataclass(frozen=True)
class Known:
    """What a run has already."""

    trials: tuple[TrialRecord, ...]
    stateful: StatefulRecord | None


class AgainError(RuntimeError):
    """A run that Dask itself began a second time."""


def resource(bed: Bed) -> str:
    """What a worker offers that can reach a testbed: ``dask worker … --resources "testbed-NAME=1"``."""
    return f"testbed-{bed.name}"


class _Relay(Store):
    """A worker's store: what is written also goes to whoever asked for the run."""

    tell: Callable[[tuple[str, str]], None] = staticmethod(lambda _: None)

    def put_trial(self, record: TrialRecord) -> None:
        """Store and send a trial."""
        super().put_trial(record)
        self.tell(("trial", record.model_dump_json(by_alias=True)))

    def put_stateful(self, record: StatefulRecord) -> None:
        """Store and send a measurement."""
        super().put_stateful(record)
        self.tell(("stateful", record.model_dump_json(by_alias=True)))

    def put_run(self, record: RunRecord) -> None:
        """Store and send a run."""
        super().put_run(record)
        self.tell(("run", record.model_dump_json(by_alias=True)))


def _survey(bed: Bed) -> Survey:
    """On a worker: what its testbed can do."""
    return survey(bed, site.of(bed.campaign))


def _carry(bed: Bed, text: str, run: RunId, known: Known, token: str) -> None:
    """On a worker: one run, told by the queue ``token``; the event of the same name says that it was begun.

    By a client of its own, closed before the run is over: the one that Dask gives to workers is closed with the worker, when
    the scheduler goes too, and then complains.
    """
    worker = distributed.get_worker()
    with distributed.Client(worker.scheduler.address, security=worker.security, set_as_default=False, timeout=30) as client:
        begun = distributed.Event(token, client=client)
        if begun.is_set():
            raise AgainError(token)
        begun.set()
        stop = distributed.Event(_stop(token), client=client)
        queue = distributed.Queue(token, client=client, maxsize=1)
        with tempfile.TemporaryDirectory(prefix="ql-run-") as folder:
            store = _Relay(Path(folder), bed.campaign, text)
            for record in known.trials:
                store.put_trial(record)
            if known.stateful is not None:
                store.put_stateful(known.stateful)
            # Where nobody takes it, whoever asked is gone, and the testbed is to be free again.
            store.tell = partial(queue.put, timeout=TAKEN_S)
            runner = Runner(store, campaign=bed.campaign, stopped=stop.is_set)
            meter = runner.meter
            if meter is not None:
                runner.idle_watts = measure_idle(meter)
            with meter.running() if meter is not None else nullcontext():
                runner.measure(run)
            for log in sorted((Path(folder) / "logs").glob("*.log")):
                queue.put((f"log {log.name}", log.read_text(encoding="utf-8", errors="replace")))


def _stop(token: str) -> str:
    """The event that ends the runs of one session."""
    return token.split("/", maxsplit=1)[0] + "/stop"


class _Sender(Runner):
    """Has each run made by a worker."""

    def __init__(self, place: OnCluster, store: Store, progress: Progress, stopped: Callable[[], bool]) -> None:
        # The meter is the worker's.
        quiet = place.bed.campaign.testbed.model_copy(update={"meter": "none", "pdu": None, "sensors": ()})
        super().__init__(store, progress, campaign=place.bed.campaign.model_copy(update={"testbed": quiet}), stopped=stopped)
        self._place = place

    def measure(self, run: RunId) -> None:
        for _ in range(LIVES):
            if self._life(run):
                return
        self._put(run, "failed", why=f"{LIVES} workers died of it, or with it")

    def _life(self, run: RunId) -> bool:
        """Have a worker make the run; whether it lived to its end."""
        place, client = self._place, self._place.client
        token = f"{place.session}/{uuid.uuid4().hex}"
        trials: list[TrialRecord] = []
        while (record := self.store.trial(run, len(trials))) is not None:
            trials.append(record)
        known = Known(tuple(trials), self.store.stateful(run))
        queue = distributed.Queue(token, client=client, maxsize=1)
        future = client.submit(
            _carry, place.bed, place.text, run, known, token,
            key=token, pure=False, retries=0, resources={resource(place.bed): 1},
        )  # fmt: skip
        alone: float | None = None
        try:
            while True:
                over = future.done()
                if self._take(queue):
                    continue
                if over:
                    break
                if self.stopped():
                    distributed.Event(_stop(token), client=client).set()
                if place.offered():
                    alone = None
                elif (alone := alone or time.monotonic()) + WORKER_S < time.monotonic():
                    raise CommandError(f"no worker has offered {resource(place.bed)} for {WORKER_S:g} s")
            error = future.exception()
        finally:
            future.cancel()
            queue.close()
        if isinstance(error, AgainError | distributed.KilledWorker):
            return False
        if error is not None:
            raise error
        return True

    def _take(self, queue: distributed.Queue) -> bool:
        """Store what a worker tells; whether it told anything."""
        try:
            kind, text = queue.get(timeout=0.2)
        except TimeoutError:
            return False
        match kind:
            case "trial":
                trial = TrialRecord.model_validate_json(text)
                self.store.put_trial(trial)
                self.progress.trial(trial.run, trial.ordinal, Trial.model_validate(trial.trial), trial.rate_pps)
            case "stateful":
                self.store.put_stateful(StatefulRecord.model_validate_json(text))
            case "run":
                record = RunRecord.model_validate_json(text)
                self.store.put_run(record)
                self.progress.ended(record)
            case name:
                file = self.store.root / "logs" / Path(name.removeprefix("log ")).name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        return True


class OnCluster:
    """A testbed that workers of a cluster reach."""

    def __init__(self, bed: Bed, text: str, client: distributed.Client, session: str) -> None:
        self.bed, self.text, self.client, self.session = bed, text, client, session

    def offered(self) -> bool:
        """Whether a worker that is there offers it."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return any(resource(self.bed) in w.get("resources", {}) for w in workers)

    def survey(self) -> Survey:
        """Have a worker look at it."""
        until = time.monotonic() + WORKER_S
        while not self.offered():
            if time.monotonic() > until:
                raise CommandError(f"no worker offers {resource(self.bed)} (dask worker --resources {resource(self.bed)}=1)")
            time.sleep(0.2)
        try:
            found: Survey = self.client.submit(_survey, self.bed, pure=False, resources={resource(self.bed): 1}).result()
        except distributed.KilledWorker as error:
            raise CommandError(f"its worker died: {error}") from error
        return found

    def runner(self, store: Store, progress: Progress, stopped: Callable[[], bool]) -> Runner:
        """Whoever sends its runs."""
        return _Sender(self, store, progress, stopped)


@contextmanager
def places(beds: list[Bed], campaign: Campaign, text: str, address: str) -> Iterator[list[OnCluster]]:
    """The testbeds of a campaign on the cluster at ``address``, or ``local``: one of this machine, made for the block."""
    with _cluster(beds, address) as where:
        try:
            client = distributed.Client(where, timeout=30)
        except (OSError, ValueError) as error:
            raise CommandError(f"cluster {address}: {' '.join(str(error).split())}") from error
        with client:
            session = f"{campaign.name}-{uuid.uuid4().hex}"
            yield [OnCluster(bed, text, client, session) for bed in beds]


@contextmanager
def _cluster(beds: list[Bed], address: str) -> Iterator[Any]:
    if address != "local":
        yield address
        return
    # Every worker may do every testbed's work, so that one that dies leaves nobody waiting.
    offers = {resource(bed): 1 for bed in beds}
    cluster = distributed.LocalCluster(
        n_workers=max(2, len(beds)), threads_per_worker=len(beds), processes=True, resources=offers,
        # Without an address the scheduler would take port 8787, which another cluster of this machine may have.
        dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}, silence_logs=logging.CRITICAL,
        preload=["quiver_lab.uninterrupted"],
    )  # fmt: skip
    try:
        yield cluster
    finally:
        with suppress(TimeoutError):
            cluster.close(timeout=10)
