"""Where commands run: this machine, or another (``hosts.py``), behind the same few methods."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from quiver_lab import processes
from quiver_lab.processes import CommandError, last_line


class Running(Protocol):
    """A command that goes on."""

    def poll(self) -> int | None:
        """Its exit status, or none while it runs."""


class Host(Protocol):
    """A machine that runs commands."""

    @property
    def name(self) -> str:
        """For messages."""

    def run(self, command: Sequence[str], *, text: str = "", seconds: float = 30.0) -> str:
        """Run a command to its end and return what it printed; failures are a ``CommandError``."""

    def find(self, program: str) -> str | None:
        """Path of a program; none where it is not installed."""

    def write(self, path: Path, text: str) -> None:
        """Write a file there."""

    def running(self, command: Sequence[str], *, log: Path, ends_s: float = 5.0) -> AbstractContextManager[Running]:
        """Have a command run for the length of a block; ``log``, a file here, gets what it prints.

        It is asked to end, and killed after ``ends_s`` seconds.
        """


def wait_for(host: Host, path: Path, process: Running, *, what: str, log: Path, seconds: float = 20.0) -> None:
    """Wait until a starting process has made ``path`` there; its end or too long a time is an error that cites its log."""
    until = time.monotonic() + seconds
    while host.run(["sh", "-c", 'test -e "$1" && echo there || true', "test", str(path)]).strip() != "there":
        if process.poll() is not None:
            raise CommandError(f"{what} ended at once: {last_line(log.read_text(encoding='utf-8', errors='replace'))}")
        if time.monotonic() > until:
            raise CommandError(f"{what} did not start within {seconds:g} s")
        time.sleep(0.02)


class LocalHost:
    """This machine."""

    name = "this machine"

    def __init__(self, binaries: Mapping[str, str] | None = None) -> None:
        self._binaries = dict(binaries or {})

    def run(self, command: Sequence[str], *, text: str = "", seconds: float = 30.0) -> str:
        """Run a command to its end."""
        return processes.run(command, text=text, seconds=seconds)

    def find(self, program: str) -> str | None:
        """Path of a program."""
        return processes.find(program, self._binaries)

    def write(self, path: Path, text: str) -> None:
        """Write a file."""
        path.write_text(text, encoding="utf-8")

    @contextlib.contextmanager
    def running(self, command: Sequence[str], *, log: Path, ends_s: float = 5.0) -> Iterator[Running]:
        """Have a command run for the length of a block."""
        with processes.running(command, log=log, ends_s=ends_s) as process:
            yield process
