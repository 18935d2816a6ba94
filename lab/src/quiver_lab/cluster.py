"""A campaign's testbeds in the hands of worker processes (``worker.py``): on this machine, or wherever a command reaches.

A worker is a process that we start, and its input and output are all that joins us: ``ssh``'s, where it is on another host. So
there is no service to set up, nobody else can speak to it, and either side's end is the other's end of file, at once: nothing
here waits for a time. A worker stores nothing: each record comes back before its next trial begins. A run whose worker dies is
begun again by the next worker with these trials as answers: only the trial in flight is lost.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import IO, Any

from quiver_lab import __version__, worker
from quiver_lab.beds import Bed
from quiver_lab.processes import CommandError, last_line
from quiver_lab.records import RunId, RunRecord, StatefulRecord, TrialRecord
from quiver_lab.runner import Progress, Runner, StoppedError
from quiver_lab.spread import Here, Place, Survey
from quiver_lab.store import Store
from quiver_lab.trial import Trial

LIVES = 5
"""How many workers one run may cost."""
LEAVE_S = 10.0
"""For how long a worker that is to end may take to give its testbed back, before it is killed."""
LOCAL = (sys.executable, "-m", "quiver_lab", "worker")

Command = tuple[str, ...]


class DiedError(Exception):
    """A worker that is gone."""


class _Process:
    """One worker, from its start to its end."""

    def __init__(self, command: Command, bed: Bed, text: str) -> None:
        self._said: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (closed by end)
        try:
            # In a session of its own: Ctrl-C at a terminal is for us, who end the trials in flight in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                encoding="utf-8",
                start_new_session=True,
            )
        except OSError as error:
            self._said.close()
            raise CommandError(f"worker {command[0]}: {error.strerror or error}") from error
        self.pid = self._process.pid
        self._reads = threading.Lock()
        try:
            self._greet(shlex.join(command))
            self.say(worker.described(bed, text))
        except DiedError as error:
            raise CommandError(f"worker `{shlex.join(command)}' ended at once: {self._last_words()}") from error
        except BaseException:
            self.end()
            raise

    def _greet(self, name: str) -> None:
        line = self._line()
        try:
            hello = json.loads(line)
        except ValueError:
            hello = line.strip()
        if not isinstance(hello, dict) or hello.get("schema") != worker.HELLO["schema"]:
            raise CommandError(f"worker `{name}' says {str(hello)[:200]!r}: the command is to start `quiver-lab worker'")
        if hello != worker.HELLO:
            raise CommandError(f"worker `{name}' is quiver-lab {hello.get('version')}, and this is {__version__}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        with self._reads:
            line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise DiedError
        return line

    def _last_words(self) -> str:
        """What it said last; ends it."""
        status = self._leave()
        self._said.seek(0)
        said = last_line(self._said.read())
        self.end()
        return said or f"exit status {status}"

    def say(self, message: dict[str, Any]) -> None:
        """Send it a message."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise DiedError from error

    def hear(self) -> dict[str, Any]:
        """Wait for its next message."""
        message: dict[str, Any] = json.loads(self._line())
        if message["kind"] == "wrong":
            raise CommandError(f"its worker failed: {message['why']}\n{message['trace']}")
        return message

    def _leave(self) -> int:
        """Have it end, in order where it can; its exit status."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            return self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def end(self) -> None:
        """End it."""
        self._leave()
        self._said.close()
        # After a second Ctrl-C a thread may be reading, and closing would wait for it.
        if self._process.stdout is not None and self._reads.acquire(blocking=False):
            self._process.stdout.close()
            self._reads.release()


class OnWorker:
    """A testbed that workers make the runs of: one at a time, started by these commands in turn."""

    def __init__(self, bed: Bed, text: str, commands: Sequence[Command]) -> None:
        self.bed, self._text = bed, text
        self._commands, self._count = cycle(commands), len(commands)
        self.process: _Process | None = None
        self._over = False

    def begin(self) -> _Process:
        """The worker; started where there is none. A ``CommandError`` where none can be."""
        if self._over:
            raise StoppedError
        if self.process is not None:
            return self.process
        wrong: list[str] = []
        for _ in range(self._count):
            try:
                self.process = _Process(next(self._commands), self.bed, self._text)
            except CommandError as error:
                wrong.append(str(error))
            else:
                return self.process
        raise CommandError("; ".join(wrong))

    def end(self) -> None:
        """End the worker, where there is one."""
        process, self.process = self.process, None
        if process is not None:
            process.end()

    def close(self) -> None:
        """End the worker, and start no other."""
        self._over = True
        self.end()

    def survey(self) -> Survey:
        """Have the worker look at it."""
        process = self.begin()
        try:
            process.say({"kind": "survey"})
            return worker.SURVEY.validate_python(process.hear()["survey"])
        except DiedError as error:
            self.end()
            raise CommandError("its worker died") from error

    def runner(self, store: Store, progress: Progress, stopped: Callable[[], bool]) -> Runner:
        """Whoever sends its runs."""
        return _Sender(self, store, progress, stopped)


class _Sender(Runner):
    """Has each run made by a worker."""

    def __init__(self, place: OnWorker, store: Store, progress: Progress, stopped: Callable[[], bool]) -> None:
        # The meter is the worker's.
        quiet = place.bed.campaign.testbed.model_copy(update={"meter": "none", "pdu": None, "sensors": ()})
        super().__init__(store, progress, campaign=place.bed.campaign.model_copy(update={"testbed": quiet}), stopped=stopped)
        self._place = place

    def measure(self, run: RunId) -> None:
        for _ in range(LIVES):
            if self.stopped():
                raise StoppedError
            try:
                self._life(self._place.begin(), run)
            except DiedError:
                self._place.end()
            else:
                return
        self._put(run, "failed", why=f"{LIVES} workers died of it, or with it")

    def _life(self, process: _Process, run: RunId) -> None:
        """Have a worker make the run."""
        trials: list[Any] = []
        while (record := self.store.trial(run, len(trials))) is not None:
            trials.append(record.model_dump(mode="json", by_alias=True))
        stateful = self.store.stateful(run)
        process.say({
            "kind": "run", "run": run.model_dump(mode="json", by_alias=True), "trials": trials,
            "stateful": None if stateful is None else stateful.model_dump(mode="json", by_alias=True),
        })  # fmt: skip
        while (message := process.hear())["kind"] != "over":
            if message["kind"] == "may":
                process.say({"kind": "answer", "stop": self.stopped()})
            else:
                self._take(message)
        if message["stopped"]:
            raise StoppedError

    def _take(self, message: dict[str, Any]) -> None:
        """Store what a worker tells."""
        match message["kind"]:
            case "trial":
                trial = TrialRecord.model_validate(message["record"])
                self.store.put_trial(trial)
                self.progress.trial(trial.run, trial.ordinal, Trial.model_validate(trial.trial), trial.rate_pps)
            case "stateful":
                self.store.put_stateful(StatefulRecord.model_validate(message["record"]))
            case "run":
                record = RunRecord.model_validate(message["record"])
                self.store.put_run(record)
                self.progress.ended(record)
            case "log":
                file = self.store.root / "logs" / Path(message["name"]).name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(message["text"], encoding="utf-8")


def commands(words: Sequence[str], names: Sequence[str]) -> dict[str, list[Command]]:
    """The commands that start each testbed's workers, of words ``[NAME=]COMMAND`` where ``local`` is a command too."""
    found: dict[str, list[Command]] = {name: [] for name in names}
    for word in words:
        named = re.match(r"([a-z0-9][a-z0-9-]*)=", word)
        text = word[named.end() :] if named else word
        if named and named[1] not in found:
            raise CommandError(f"--cluster {word}: there is no testbed {named[1]} (there are {', '.join(names)})")
        try:
            command = LOCAL if text == "local" else tuple(shlex.split(text))
        except ValueError as error:
            raise CommandError(f"--cluster {word}: {error}") from error
        if not command or "://" in command[0]:
            raise CommandError(
                f"--cluster {word}: local, or a command that starts `quiver-lab worker' (ssh HOST quiver-lab worker)"
            )
        for name in [named[1]] if named else names:
            found[name].append(command)
    return found


@contextmanager
def places(beds: Sequence[Bed], text: str, words: Sequence[str]) -> Iterator[list[Place]]:
    """The testbeds of a campaign with their workers, which live as long as the block; one without any is measured from here."""
    by = commands(words, [bed.name for bed in beds])
    with ExitStack() as stack:
        out: list[Place] = []
        for bed in beds:
            if not by[bed.name]:
                out.append(Here(bed))
                continue
            place = OnWorker(bed, text, by[bed.name])
            stack.callback(place.close)
            out.append(place)
        yield out
