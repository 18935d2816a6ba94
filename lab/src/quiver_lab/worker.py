"""A process that makes a testbed's runs for a lab elsewhere (``cluster.py``): ``quiver-lab worker``, started by the lab.

It speaks in lines of JSON, and with the lab alone::

    worker ── hello ──────────────────▶ lab      who it is
           ◀─ bed ────────────────────          the testbed, and the campaign as it is there
           ◀─ survey ── survey ───────▶         what the testbed can do
           ◀─ run ── trial, run, … ───▶         each record as it is made; ``may`` before each new trial, answered by ``stop``
                  ── over ────────────▶

The lab's end of its input is the end of the lab: then what is under way is broken off, and the testbed given back.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, TypeAdapter

from quiver_lab import __version__, campaign, site
from quiver_lab.beds import Bed
from quiver_lab.campaign import Testbed
from quiver_lab.meters import measure_idle
from quiver_lab.records import RunId, RunRecord, StatefulRecord, TrialRecord
from quiver_lab.runner import Runner, StoppedError
from quiver_lab.spread import Survey, survey
from quiver_lab.store import Store

HELLO = {"kind": "hello", "schema": "quiver-worker/1", "version": __version__}
"""A worker's first line: both sides must be of one version."""
SURVEY = TypeAdapter(Survey)


def described(bed: Bed, text: str) -> dict[str, Any]:
    """A testbed and a campaign's text, as a worker is told of them."""
    testbed = bed.campaign.testbed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"kind": "bed", "name": bed.name, "described": bed.described, "testbed": testbed, "campaign": text}


def bed_of(message: Mapping[str, Any]) -> Bed:
    """The testbed that a message describes."""
    whole = campaign.parse(message["campaign"])
    testbed = Testbed.model_validate(message["testbed"])
    return Bed(message["name"], whole.model_copy(update={"testbed": testbed}), message["described"])


class _Lab:
    """The other side."""

    def __init__(self, asks: IO[str], answers: IO[str]) -> None:
        self._answers = answers
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(asks,), daemon=True).start()

    def _listen(self, asks: IO[str]) -> None:
        for line in asks:
            self._asked.put(line)
        # As Ctrl-C does in a lab that measures by itself, wherever the work is. To that thread, or its waits would go on.
        with suppress(ProcessLookupError):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def hear(self) -> dict[str, Any]:
        """Wait for the next message."""
        message: dict[str, Any] = json.loads(self._asked.get())
        return message

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()

    def stopped(self) -> bool:
        """Ask whether the next trial is not to be made: the answer comes after everything that was sent before is stored."""
        self.say({"kind": "may"})
        return bool(self.hear()["stop"])


class _Relay(Store):
    """A worker's store: what is written also goes to the lab."""

    lab: _Lab | None = None

    def _tell(self, kind: str, record: BaseModel) -> None:
        if self.lab is not None:
            self.lab.say({"kind": kind, "record": record.model_dump(mode="json", by_alias=True)})

    def put_trial(self, record: TrialRecord) -> None:
        """Store and send a trial."""
        super().put_trial(record)
        self._tell("trial", record)

    def put_stateful(self, record: StatefulRecord) -> None:
        """Store and send a measurement."""
        super().put_stateful(record)
        self._tell("stateful", record)

    def put_run(self, record: RunRecord) -> None:
        """Store and send a run."""
        super().put_run(record)
        self._tell("run", record)


@contextmanager
def _alone(bed: Bed) -> Iterator[None]:
    """Wait for whoever still has the testbed from this machine: a worker whose lab has just gone, or another lab's."""
    if bed.campaign.testbed.kind == "simulated":
        yield
        return
    path = Path(tempfile.gettempdir()) / f"quiver-lab-{os.getuid()}-{bed.name}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


class _Worker:
    def __init__(self, lab: _Lab, bed: Bed, text: str) -> None:
        self._lab, self._bed, self._text = lab, bed, text
        self._idle_watts: float | None = None

    def survey(self, _: Mapping[str, Any]) -> None:
        """Say what the testbed can do."""
        found = survey(self._bed, site.of(self._bed.campaign))
        self._lab.say({"kind": "survey", "survey": SURVEY.dump_python(found, mode="json", by_alias=True)})

    def run(self, message: Mapping[str, Any]) -> None:
        """Make a run, of which some trials may be known."""
        with _alone(self._bed), tempfile.TemporaryDirectory(prefix="ql-run-") as folder:
            store = _Relay(Path(folder), self._bed.campaign, self._text)
            for record in message["trials"]:
                store.put_trial(TrialRecord.model_validate(record))
            if message["stateful"] is not None:
                store.put_stateful(StatefulRecord.model_validate(message["stateful"]))
            store.lab = self._lab
            runner = Runner(store, campaign=self._bed.campaign, stopped=self._lab.stopped)
            if (meter := runner.meter) is not None and self._idle_watts is None:
                self._idle_watts = measure_idle(meter)
            runner.idle_watts = self._idle_watts
            stopped = False
            with meter.running() if meter is not None else nullcontext():
                try:
                    runner.measure(RunId.model_validate(message["run"]))
                except StoppedError:
                    stopped = True
            for log in sorted((Path(folder) / "logs").glob("*.log")):
                text = log.read_text(encoding="utf-8", errors="replace")
                self._lab.say({"kind": "log", "name": log.name, "text": text})
        self._lab.say({"kind": "over", "stopped": stopped})


def serve(asks: IO[str], answers: IO[str]) -> None:
    """Do what the lab asks for until it is gone."""
    with suppress(BrokenPipeError, KeyboardInterrupt):
        lab = _Lab(asks, answers)
        lab.say(HELLO)
        try:
            message = lab.hear()
            worker = _Worker(lab, bed_of(message), message["campaign"])
            does = {"survey": worker.survey, "run": worker.run}
            while True:
                message = lab.hear()
                does[message["kind"]](message)
        except BrokenPipeError:
            raise
        except Exception as error:
            lab.say({"kind": "wrong", "why": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})


def main() -> None:
    """Serve the lab at standard input and output."""
    asks, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What anything here prints is no message, and nothing else reads the lab's.
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    serve(asks, answers)
    # At once: the thread that listens may be waiting for the lab, and would be waited for.
    os._exit(0)
