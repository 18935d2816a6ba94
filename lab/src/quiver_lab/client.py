"""A client of ``quiver-tester serve``: trials from Python, with ports that stay open between them.

::

    from quiver_lab import client

    with client.start(["memif:socket=/run/t.sock,id=0,role=client", "memif:socket=/run/t.sock,id=1,role=client"]) as tester:
        tester.profile("profile.yaml")
        for rate in ("1Mpps", "2Mpps"):
            trial = tester.trial(rate=rate, size=64, duration=10)
            print(trial.received, trial.lost, trial.directions[0].latency_ns)

It needs no root by itself; the tester does, for most kinds of ports. One request at a time: a tester has one client.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from quiver_lab.processes import CommandError, find, last_line, running, wait_for
from quiver_lab.stateful import Stateful, StatefulRequest
from quiver_lab.tcp import TcpTrial
from quiver_lab.trial import Trial

LISTENS_S = 20.0
SILENCE_S = 30.0
"""For how long a tester may say nothing."""
CLEAR_S = 60.0
"""For how long it waits for the clear command, saying nothing."""


M = TypeVar("M", bound=BaseModel)
Wish = bool | str | None
"""What becomes of a trial that goes on: ``False`` ends it, a text is the rate that it goes on with."""


class TesterError(RuntimeError):
    """A trial that could not be run, or an answer that is none; one line."""

    __test__ = False


def number(value: float) -> str:
    """A number without exponent and without trailing zeros."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def read_trial(line: str) -> Trial:
    """The trial that a tester printed."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise _no_answer(error) from error
    return _read(Trial, document)


def _read(model: type[M], document: object) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _no_answer(error) from error


def _no_answer(error: Exception) -> TesterError:
    return TesterError(f"the tester's answer is none: {' '.join(str(error).split())[:200]}")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trial is, ten times a second."""

    t_s: float
    of_s: float
    sent: int
    received: int


class Port(BaseModel):
    """A port that is open."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    mac: str
    max_frame: int
    """Bytes with FCS."""


class Client:
    """A connection to ``quiver-tester serve``: one request at a time. Errors are ``TesterError``, one line each."""

    def __init__(self, connection: socket.socket, lines: IO[str], log: Path | None = None) -> None:
        """Use a connection; ``log`` is what the tester prints, for what it says when it ends."""
        self._connection = connection
        self._lines = lines
        self._log = log
        self._count = 0

    def ports(self, ports: Sequence[str]) -> tuple[Port, ...]:
        """Open one or two ports, in the notation of ``--port``; those before are closed."""
        answer = self.ask("ports", {"ports": list(ports)})
        found = answer.get("ports") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise TesterError(f"the tester's answer is none: {str(answer)[:200]}")
        return tuple(_read(Port, port) for port in found)

    def profile(self, profile: Mapping[str, Any] | Path | str) -> None:
        """Take a profile for the trials to come: a document as in its YAML, or the path of its file."""
        if isinstance(profile, Mapping):
            self.ask("profile", {"profile": dict(profile)})
        else:
            # The tester may run elsewhere in the file system than we do.
            self.ask("profile", {"file": str(Path(profile).resolve())})

    def trial(
        self,
        *,
        rate: str,
        duration: float,
        size: int | str | list[int] | dict[str, Any] | None = None,
        line_rate: str | None = None,
        settle: float | None = None,
        seed: int | None = None,
        progress: Callable[[Progress], Wish] | None = None,
    ) -> Trial:
        """Run one trial: ``rate`` as ``1.5Mpps``, ``40%`` or ``1Gbps``, ``duration`` in seconds, ``size`` as in a profile.

        ``line_rate`` is what loads in per cent refer to; ``settle`` says for how many seconds it waits for what is under way,
        at most; ``seed`` is that of all that is drawn. ``progress`` is told how far it is. If it returns ``False`` the trial
        ends early, is not valid, and has what there is by then. If it returns a rate, streams without one of their own go on
        with that; what the tester refuses is an error at the end.
        """
        more = {"size": size, "line_rate": line_rate, "settle": settle, "seed": seed}
        keys = {"rate": rate, "duration": duration, **{k: v for k, v in more.items() if v is not None}}
        return _read(Trial, self.ask("trial", keys, silence_s=SILENCE_S + (settle or 0.0), progress=progress))

    def stateful(self, request: StatefulRequest, *, silence_s: float = SILENCE_S) -> Stateful:
        """Measure a gateway's connection table (RFC 9693)."""
        silence = silence_s + CLEAR_S + 2 * request.timeout
        return _read(Stateful, self.ask("stateful", request.as_json(), silence_s=silence, budget_s=request.budget_s))

    def tcp(
        self,
        profile: Mapping[str, Any] | Path | str,
        *,
        rate: float,
        duration: float,
        settle: float = 10.0,
        timeout: float = 5.0,
        most_open: int = 10_000,
        seed: int = 1,
        progress: Callable[[Progress], Wish] | None = None,
    ) -> TcpTrial:
        """Open ``rate`` connections a second for ``duration`` seconds, and say what the profile (``quiver-tcp/1``) has.

        ``settle`` is how long it waits at most for what is open then, ``timeout`` how long an end waits for an answer. In what
        ``progress`` is told, ``sent`` are connections opened, ``received`` those that have ended.
        """
        if isinstance(profile, Mapping):
            keys: dict[str, object] = {"profile": dict(profile)}
        else:
            keys = {"file": str(Path(profile).resolve())}
        keys |= {"rate": rate, "duration": duration, "settle": settle, "timeout": timeout, "most_open": most_open, "seed": seed}
        return _read(TcpTrial, self.ask("tcp", keys, silence_s=SILENCE_S + settle, progress=progress))

    def self_test(self, *, duration: float = 1.0, hold: float | None = None) -> dict[str, Any]:
        """What the tester itself can do, over memif within its process; later trials carry the figures."""
        keys = {"duration": duration, **({} if hold is None else {"hold": hold})}
        answer = self.ask("self-test", keys, silence_s=SILENCE_S + duration + (hold or duration))
        if not isinstance(answer, dict):
            raise TesterError(f"the tester's answer is none: {str(answer)[:200]}")
        return answer

    def _send(self, op: str, keys: Mapping[str, object]) -> int:
        self._count += 1
        self._connection.sendall((json.dumps({"id": self._count, "op": op, **keys}) + "\n").encode())
        return self._count

    def ask(
        self,
        op: str,
        keys: Mapping[str, object] | None = None,
        *,
        silence_s: float = SILENCE_S,
        budget_s: float = math.inf,
        progress: Callable[[Progress], Wish] | None = None,
    ) -> object:
        """Send a request and wait for its reply; progress before it counts as a sign of life, longer silence is an error.

        What progresses for longer than ``budget_s`` is told to end: its reply then says what there is.
        """
        self._connection.settimeout(silence_s)
        until = time.monotonic() + budget_s
        rates: set[object] = set()
        refused = ""
        try:
            mine = self._send(op, keys or {})
            while line := self._lines.readline():
                reply = json.loads(line)
                if not isinstance(reply, dict):
                    raise TesterError(f"the tester's reply to {op} is none: {line.strip()[:200]}")
                if time.monotonic() > until:
                    until = math.inf
                    self._send("abort", {})
                if reply.get("event") == "progress" and progress is not None:
                    told = Progress(*(reply.get(key, 0) for key in ("t_s", "of_s", "sent", "received")))
                    wish = progress(told)
                    if wish is False:
                        progress = None
                        self._send("abort", {})
                    elif isinstance(wish, str):
                        rates.add(self._send("rate", {"rate": wish}))
                if reply.get("id") in rates and reply.get("ok") is False:
                    refused = str(reply.get("error"))
                if reply.get("id") != mine or "event" in reply:
                    continue
                if reply.get("ok") is not True:
                    raise TesterError(str(reply.get("error") or f"{op} failed without a reason"))
                if refused:
                    raise TesterError(f"a change of rate: {refused}")
                return reply.get("data")
        except TimeoutError as error:
            raise TesterError(f"the tester said nothing for {silence_s:g} s after {op}") from error
        except (OSError, ValueError) as error:
            raise TesterError(f"the tester's reply to {op} is none: {' '.join(str(error).split())[:200]}") from error
        said = "" if self._log is None else last_line(self._log.read_text(encoding="utf-8", errors="replace"))
        raise TesterError(f"the tester ended during {op}" + (f": {said}" if said else ""))


@contextlib.contextmanager
def serving(command: Sequence[str], folder: Path, *, clear: str | None = None) -> Iterator[Client]:
    """Have a tester that serves for the length of a block; it ends what it does when we go."""
    path, log = folder / "serve.sock", folder / "serve.log"
    more = ["--clear", clear] if clear else []
    with running([*command, "serve", "--socket", str(path), *more], log=log) as process:
        try:
            wait_for(path, process, what="the tester", log=log)
        except CommandError as error:
            raise TesterError(str(error)) from error
        with socket.socket(socket.AF_UNIX) as connection:
            _connect(connection, path, process)
            with connection.makefile("r", encoding="utf-8") as lines:
                yield Client(connection, lines, log)


@contextlib.contextmanager
def start(ports: Sequence[str] = (), *, command: Sequence[str] = (), clear: str | None = None) -> Iterator[Client]:
    """Start a tester, open its ports, and end it with the block.

    ``command`` is what comes before ``serve``: ``quiver-tester`` from ``QUIVER_TESTER`` or ``PATH`` unless given, such as
    ``["taskset", "-c", "2", "quiver-tester"]``. ``clear`` empties the device's connection table.
    """
    program = find("quiver-tester", {})
    if not command and program is None:
        raise TesterError("quiver-tester is not installed (QUIVER_TESTER names it)")
    with (
        tempfile.TemporaryDirectory(prefix="quiver-") as folder,
        serving(command or [str(program)], Path(folder), clear=clear) as client,
    ):
        if ports:
            client.ports(ports)
        yield client


@contextlib.contextmanager
def connect(path: Path | str) -> Iterator[Client]:
    """Connect to a tester that serves already."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError as error:
            raise TesterError(f"no tester serves on {path}: {error.strerror}") from error
        with connection.makefile("r", encoding="utf-8") as lines:
            yield Client(connection, lines)


def _connect(connection: socket.socket, path: Path, process: subprocess.Popen[str]) -> None:
    """Connect to a socket whose file is there; between its making and its listening it refuses."""
    until = time.monotonic() + LISTENS_S
    while True:
        try:
            connection.connect(str(path))
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until or not isinstance(error, ConnectionRefusedError):
                raise TesterError(f"the tester does not listen on its socket: {error.strerror}") from error
        time.sleep(0.01)
