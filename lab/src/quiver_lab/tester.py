"""Drives ``quiver-tester``: one process a trial, JSON back; a measurement of a connection table over ``serve``'s socket."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quiver_lab.client import Client, TesterError, number, read_trial, serving
from quiver_lab.measurer import TAGGED, Step, Tags
from quiver_lab.procedures.tcp_rate import tcp_rate
from quiver_lab.processes import last_line, run
from quiver_lab.stateful import Dialogue, Stateful, StatefulRequest
from quiver_lab.tcp import TcpTrial
from quiver_lab.trial import Trial

__all__ = ["NOT_VALID", "QuiverTester", "TesterError", "number", "read_trial", "stepped", "tagged"]

NOT_VALID = 3
"""Exit status of a trial that ran and is not valid: its report says why."""


def stepped(document: dict[str, Any], steps: Sequence[Step], frame_bytes: int | None) -> dict[str, Any]:
    """A profile in which each stream has a burst for each step, at the step's rate, right after the one before."""
    shares = sum(float(s.get("share", 1)) for s in document["streams"])
    streams = []
    for stream in document["streams"]:
        for n, step in enumerate(steps):
            rate = step.rate_pps * float(stream.get("share", 1)) / shares
            burst = {key: value for key, value in stream.items() if key != "share"}
            burst |= {
                "name": f"{stream['name']}-{n}",
                "rate": f"{number(rate)}pps",
                "size": stream.get("size", frame_bytes),
                "burst": {"frames": max(1, round(rate * step.duration_s))},
            }
            if n:
                burst["after"] = f"{stream['name']}-{n - 1}"
            streams.append(burst)
    return {**document, "streams": streams}


def tagged(document: dict[str, Any], tags: Tags, duration_s: float, frame_bytes: int | None) -> dict[str, Any]:
    """A profile in which each stream has another one of tagged frames, alike but for its rate, in the last part of a trial."""
    rate = math.ceil(tags.count / (duration_s - tags.after_s) + 1)
    out = []
    for stream in document["streams"]:
        own = {key: value for key, value in stream.items() if key != "share"}
        own |= {
            "name": f"{stream['name']}{TAGGED}", "rate": f"{rate}pps", "size": stream.get("size", frame_bytes),
            "start": f"{number(tags.after_s)}s",
        }  # fmt: skip
        if tags.timestamps != "tester":
            own["timestamps"] = tags.timestamps
        out += [stream, own]
    return {**document, "streams": out}


@dataclass(frozen=True)
class QuiverTester:
    """A measurer: ports, profile and frame size are fixed."""

    command: Sequence[str]
    """How the program is started, with everything before ``trial``: namespace, core."""
    ports: Sequence[str]
    profile: Path
    frame_bytes: int | None
    """None: each stream of the profile has its own."""
    line_rate: str
    grace_s: float = 30.0
    """How much longer than the trial it may take."""
    reset: Callable[[], None] | None = None
    """Resets the device."""
    clear: str | None = None
    """Command of the shell that empties the device's connection table."""

    def arguments(self, rate_pps: float, duration_s: float) -> list[str]:
        """The whole command of one trial."""
        ports = [x for port in self.ports for x in ("--port", port)]
        size = [] if self.frame_bytes is None else ["--size", str(self.frame_bytes)]
        return [
            *self.command, "trial", *ports, "--profile", str(self.profile), "--rate", f"{number(rate_pps)}pps",
            *size, "--duration", number(duration_s), "--line-rate", self.line_rate, "--json",
        ]  # fmt: skip

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        """Run one trial."""
        return self._run(rate_pps, duration_s)

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Run steps as bursts of which each begins when the one before has ended."""
        document = json.loads(self.profile.read_text(encoding="utf-8"))
        file = self.profile.with_name("steps.json")
        file.write_text(json.dumps(stepped(document, steps, self.frame_bytes), indent=1) + "\n", encoding="utf-8")
        return replace(self, profile=file)._run(steps[0].rate_pps, sum(s.duration_s for s in steps))

    def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
        """Run one trial with tagged frames beside the load."""
        document = json.loads(self.profile.read_text(encoding="utf-8"))
        file = self.profile.with_name("tagged.json")
        file.write_text(json.dumps(tagged(document, tags, duration_s, self.frame_bytes), indent=1) + "\n", encoding="utf-8")
        return replace(self, profile=file)._run(rate_pps, duration_s)

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        """Run one trial, and reset the device while it goes on.

        When the tester's first frame leaves is not known here: the reset comes as much later as the tester takes to begin.
        """
        if self.reset is None:
            raise TesterError("the lab does not know how to reset this device")
        reset = self.reset

        def meanwhile() -> None:
            time.sleep(reset_after_s)
            reset()

        return self._run(rate_pps, duration_s, meanwhile)

    def _run(self, rate_pps: float, duration_s: float, meanwhile: Callable[[], None] | None = None) -> Trial:
        process = subprocess.Popen(
            self.arguments(rate_pps, duration_s),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            if meanwhile is not None:
                meanwhile()
            out, err = process.communicate(timeout=duration_s + self.grace_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise TesterError(f"the tester did not end within {duration_s + self.grace_s:g} s") from error
        except BaseException:
            # Ctrl-C goes to us alone: hand it on, so that the tester takes its ports down.
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            raise
        if process.returncode not in (0, NOT_VALID):
            raise TesterError(last_line(err) or f"the tester ended with status {process.returncode}")
        return read_trial(last_line(out))

    def stateful(self, request: StatefulRequest) -> Stateful:
        """Measure a connection table, or connections of TCP, through ``serve`` on a socket beside the profile."""
        folder = self.profile.parent
        with serving(self.command, folder, clear=self.clear) as client:
            client.ports(self.ports)
            if request.dialogue is not None:
                return self._tcp_rate(client, request, request.dialogue)
            return client.stateful(request, silence_s=self.grace_s)

    def _tcp_rate(self, client: Client, request: StatefulRequest, dialogue: Dialogue) -> Stateful:
        """Search for the highest rate of connections; the device's table is emptied before each trial where it has one."""
        until = time.monotonic() + request.budget_s
        profile = {
            "name": "tcp-rate",
            "clients": request.initiators,
            "servers": request.responders,
            "connections": [
                {
                    "name": "object", "port": 80, "request": dialogue.request_bytes, "response": dialogue.response_bytes,
                    "exchanges": dialogue.exchanges,
                }
            ],
        }  # fmt: skip

        def measure(cps: float) -> TcpTrial:
            if self.clear is not None:
                run(["sh", "-c", self.clear])
            # What is open in the end has as long as a connection that nobody answers.
            settle = request.timeout + 1
            return client.tcp(profile, rate=cps, duration=dialogue.duration_s, settle=settle, timeout=request.timeout)

        return tcp_rate(measure, request, is_over=lambda: time.monotonic() > until)
