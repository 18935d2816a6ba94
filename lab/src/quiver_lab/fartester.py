"""Drives ``quiver-tester`` on another host: one process a trial there, its answer by the log that comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from quiver_lab.processes import CommandError, last_line
from quiver_lab.site import Far
from quiver_lab.stateful import Stateful, StatefulRequest
from quiver_lab.tester import NOT_VALID, QuiverTester, TesterError, read_trial
from quiver_lab.trial import Trial


@dataclass(frozen=True)
class FarTester(QuiverTester):
    """A measurer on another host; ``profile`` is here, and copied there before each trial."""

    far: Far | None = None

    def _run(self, rate_pps: float, duration_s: float, meanwhile: Callable[[], None] | None = None) -> Trial:
        assert self.far is not None
        host, profile = self.far.host, self.far.folder / self.profile.name
        log = self.profile.with_name("trial.log")
        until = time.monotonic() + duration_s + self.grace_s
        try:
            host.write(profile, self.profile.read_text(encoding="utf-8"))
            words = replace(self, profile=profile).arguments(rate_pps, duration_s)
            with host.running(words, log=log) as process:
                if meanwhile is not None:
                    meanwhile()
                while (status := process.poll()) is None:
                    if time.monotonic() > until:
                        raise TesterError(f"the tester did not end within {duration_s + self.grace_s:g} s")
                    time.sleep(0.01)
        except CommandError as error:
            raise TesterError(str(error)) from error
        # Its log is whole only now.
        said = log.read_text(encoding="utf-8", errors="replace")
        if status not in (0, NOT_VALID):
            lost = "its connection is gone" if status < 0 else f"the tester ended with status {status}"
            raise TesterError(f"{host.name}: {lost}" if status < 0 else last_line(said) or lost)
        # Its warnings come by the same way.
        return read_trial(next((line for line in reversed(said.splitlines()) if line.startswith("{")), said[:200]))

    def stateful(self, request: StatefulRequest) -> Stateful:
        """Not yet: ``serve``'s socket is on the other host."""
        raise TesterError("connection tables are measured where the tester is on this machine")


def place(tester: QuiverTester, far: Far, profile: Path) -> FarTester:
    """The same tester on another host."""
    return FarTester(
        command=tester.command, ports=tester.ports, profile=profile, frame_bytes=tester.frame_bytes,
        line_rate=tester.line_rate, grace_s=tester.grace_s, reset=tester.reset, far=far,
    )  # fmt: skip
