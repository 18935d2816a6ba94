"""Other machines, over SSH, by the methods of ``commands.py``.

What is started on another host ends with us, as here: a shell of ours stands between it and the connection, and ends it when
its own input ends, which it does when the connection closes, whatever closes it.

::

    we ── thread with an event loop ── SSH ── sh ──┬── command
                                                   └── waits for the end of input, then ends the command
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import shlex
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import asyncssh

from quiver_lab.commands import Host, LocalHost, Running
from quiver_lab.processes import CommandError, last_line

__all__ = ["Host", "LocalHost", "Running", "SshHost", "ssh"]

T = TypeVar("T")
TIMED_OUT, TIMED_OUT_KILLED = 124, 137
"""What ``timeout`` of the GNU core utilities ends with."""

LATE_S = 60.0
"""How much longer than a host's own bound its answer may take, before the host is given up."""

GUARD = (
    'exec 3<&0; "$@" </dev/null 3<&- & p=$!; '
    "(cat <&3; kill -TERM $p; n=0; while kill -0 $p && [ $n -lt $ENDS ]; do sleep 0.1; n=$((n+1)); done; kill -KILL $p)"
    " >/dev/null 2>&1 & w=$!; exec 3<&-; wait $p; s=$?; kill $w 2>/dev/null; exit $s"
)
"""Runs its arguments until they end or its input does; kills them ``ENDS`` tenths of a second after that."""


class _Remote:
    """A command that goes on on another host."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self.process = process

    def poll(self) -> int | None:
        status = self.process.returncode
        return status if status is not None else (-1 if self.process.is_closing() else None)


class SshHost:
    """Another machine, over one SSH connection that lives as long as a block."""

    def __init__(self, name: str, connection: asyncssh.SSHClientConnection, loop: asyncio.AbstractEventLoop,
                 binaries: Mapping[str, str]) -> None:  # fmt: skip
        self._name, self._connection, self._loop, self._binaries = name, connection, loop, dict(binaries)

    @property
    def name(self) -> str:
        """For messages."""
        return self._name

    def _wait(self, work: Coroutine[None, None, T], what: str, seconds: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise CommandError(f"{self._name}: {what}: no end within {seconds:g} s") from None
        except (asyncssh.Error, OSError) as error:
            raise CommandError(f"{self._name}: {what}: {_words(error)}") from error
        except BaseException:
            future.cancel()
            raise

    def run(self, command: Sequence[str], *, text: str = "", seconds: float = 30.0) -> str:
        """Run a command to its end; where it takes too long, the host itself ends it, connection or not."""
        bounded = ["timeout", "--kill-after=2", f"{seconds:g}", *command]

        async def work() -> asyncssh.SSHCompletedProcess:
            async with self._connection.create_process(shlex.join(bounded)) as process:
                # A command that reads nothing may have ended before anything can be written to it.
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(text)
                    process.stdin.write_eof()
                return await process.wait()

        done = self._wait(work(), " ".join(command), seconds + LATE_S)
        if done.returncode in (TIMED_OUT, TIMED_OUT_KILLED):
            raise CommandError(f"{self._name}: {' '.join(command)}: no end within {seconds:g} s")
        out, err = (str(x or "") for x in (done.stdout, done.stderr))
        if done.returncode != 0:
            said = last_line(err) or last_line(out) or f"exit status {done.returncode}"
            raise CommandError(f"{self._name}: {' '.join(command)}: {said}")
        return out

    def find(self, program: str) -> str | None:
        """Path of a program, as the description names it or from the host's PATH."""
        named = self._binaries.get(program)
        test = f"test -x {shlex.quote(named)} && echo {shlex.quote(named)}" if named else f"command -v {shlex.quote(program)}"
        try:
            return last_line(self.run(["sh", "-c", f'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; {test}'])) or None
        except CommandError:
            # An answer of the host's, unless it cannot be asked at all.
            self.run(["true"])
            return None

    def write(self, path: Path, text: str) -> None:
        """Write a file there."""
        self.run(["sh", "-c", 'cat > "$1"', "write", str(path)], text=text)

    @contextlib.contextmanager
    def running(self, command: Sequence[str], *, log: Path, ends_s: float = 5.0) -> Iterator[Running]:
        """Have a command run for the length of a block; afterwards it has ended."""
        words = shlex.join(["env", f"ENDS={round(10 * ends_s)}", "sh", "-c", GUARD, "guard", *command])

        async def copy(process: asyncssh.SSHClientProcess[bytes]) -> None:
            # Each line is there as soon as it comes: others wait for what a log says.
            with log.open("wb", buffering=0) as file, contextlib.suppress(asyncssh.Error, OSError):
                while data := await process.stdout.read(1 << 16):
                    file.write(data)

        async def begin() -> tuple[asyncssh.SSHClientProcess[bytes], asyncio.Task[None]]:
            process = await self._connection.create_process(words, stderr=asyncssh.STDOUT, encoding=None)
            return process, asyncio.create_task(copy(process))

        async def finish(process: asyncssh.SSHClientProcess[bytes], copying: asyncio.Task[None]) -> None:
            if process.returncode is None and not process.is_closing():
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write_eof()
            await copying
            await process.wait_closed()

        what = " ".join(command)
        process, copying = self._wait(begin(), what, 30.0)
        try:
            yield _Remote(process)
        finally:
            self._wait(finish(process, copying), f"the end of {what}", ends_s + LATE_S)


def _words(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return " ".join(str(reason).split()) or type(error).__name__


@contextlib.contextmanager
def ssh(
    name: str, address: str, *, port: int = 22, user: str | None = None, key: Path | None = None,
    known_hosts: Path | None = None, binaries: Mapping[str, str] | None = None, seconds: float = 30.0,
) -> Iterator[SshHost]:  # fmt: skip
    """Connect to a host, which must be a known one, for the length of a block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=f"ssh {name}", daemon=True)
    thread.start()
    where = f"{name} ({address} port {port})"

    async def connect() -> asyncssh.SSHClientConnection:
        more: dict[str, object] = {}
        if user is not None:
            more["username"] = user
        if key is not None:
            more |= {"client_keys": [str(key)], "agent_path": None}
        if known_hosts is not None:
            more["known_hosts"] = str(known_hosts)
        return await asyncssh.connect(
            address,
            port,
            config=None,
            connect_timeout=seconds,
            keepalive_interval=10,
            **more,
        )

    async def close(connection: asyncssh.SSHClientConnection) -> None:
        connection.close()
        await connection.wait_closed()

    try:
        try:
            connection = asyncio.run_coroutine_threadsafe(connect(), loop).result(seconds + 5)
        except (asyncssh.Error, OSError, ValueError, TimeoutError) as error:
            raise CommandError(f"{where}: {_words(error)}") from error
        try:
            yield SshHost(name, connection, loop, binaries or {})
        finally:
            with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
                asyncio.run_coroutine_threadsafe(close(connection), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
