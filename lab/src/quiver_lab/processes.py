"""The one place that starts processes. Everything started here ends with us, ``kill -9`` included."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


class CommandError(RuntimeError):
    """A command that failed; one line with the command and what it said."""


def find(name: str, binaries: Mapping[str, str]) -> str | None:
    """Path of a program: as the campaign names it, from the environment (``QUIVER_TESTER`` …), or from PATH."""
    named = binaries.get(name) or os.environ.get(name.upper().replace("-", "_"))
    if named:
        return named if os.access(named, os.X_OK) else None
    # A plain user's PATH lacks the folders of ip, ethtool and nft.
    return shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")


def last_line(text: str) -> str:
    """The last line that says anything."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def run(command: Sequence[str], *, text: str = "", seconds: float = 30.0) -> str:
    """Run a command to its end and return what it printed."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError as error:
        raise CommandError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(command)}: no end within {seconds:g} s") from error
    if done.returncode:
        # nft, clang and others go on after it with a drawing of the place.
        named = next((line for line in done.stderr.splitlines() if "error: " in line.lower()), "")
        said = named.strip() or last_line(done.stderr) or last_line(done.stdout) or f"exit status {done.returncode}"
        raise CommandError(f"{' '.join(command)}: {said}")
    return done.stdout


def start(command: Sequence[str], *, log: Path | None = None) -> subprocess.Popen[str]:
    """Start a command that goes on; the kernel kills it when we die. Output goes to ``log``, or comes back by a pipe."""
    guarded = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    if log is None:
        return subprocess.Popen(guarded, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with log.open("w", encoding="utf-8") as file:
        return subprocess.Popen(
            guarded, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )


def end(process: subprocess.Popen[str], *, seconds: float = 5.0) -> None:
    """Ask a process to end, then make it."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def running(command: Sequence[str], *, log: Path | None = None, ends_s: float = 5.0) -> Iterator[subprocess.Popen[str]]:
    """Have a process run for the length of a block; it has ``ends_s`` seconds to end by itself."""
    process = start(command, log=log)
    try:
        yield process
    finally:
        end(process, seconds=ends_s)


def wait_for(path: Path, process: subprocess.Popen[str], *, what: str, log: Path, seconds: float = 20.0) -> None:
    """Wait until a starting process has made ``path``; its end or too long a time is an error that cites its log."""
    until = time.monotonic() + seconds
    while not path.exists():
        if process.poll() is not None:
            raise CommandError(f"{what} ended at once: {last_line(log.read_text(encoding='utf-8', errors='replace'))}")
        if time.monotonic() > until:
            raise CommandError(f"{what} did not start within {seconds:g} s")
        time.sleep(0.02)
