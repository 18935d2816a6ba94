"""Routers for the tests of clients: started in a folder of their own, ended by signal."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

START_S = 120.0


class Router:
    """A router without devices, with the sockets of the binary API and of the statistics."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quiver-clients-")
        self.folder = Path(self._folder.name)
        self.api = self.folder / "api.sock"
        self.stats = self.folder / "stats.sock"
        self._log = (self.folder / "log").open("wb")
        words = f"unix {{ nodaemon runtime-dir {self.folder} }} socksvr {{ default }} statseg {{ default update-interval 0.1 }}"
        words += " buffers { buffers-per-numa 16384 page-size 4K }"
        self._process = subprocess.Popen([os.environ["QUIVER_BIN"], *words.split()], stderr=self._log)
        end = time.monotonic() + START_S
        # Sockets are there early; a signal ends the router cleanly from this line on.
        while " is running" not in self.log() or not (self.api.exists() and self.stats.exists()):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the router does not start: {self.log()}")
            time.sleep(0.01)

    def log(self) -> str:
        """What the router has said."""
        return (self.folder / "log").read_text()

    def __enter__(self) -> Router:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        code = self._process.wait(timeout=START_S)
        self._log.close()
        log = self.log()
        self._folder.cleanup()
        if code != 0 and error is None:
            raise RuntimeError(f"the router ended with {code}: {log}")
        if error is not None:
            print(log)
