"""Drives ``quiver-tester``: one process a trial, JSON back."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from quiver_lab.processes import last_line
from quiver_lab.trial import Trial


class TesterError(RuntimeError):
    """A trial that could not be run, or an answer that is none; one line."""

    __test__ = False


def number(value: float) -> str:
    """A number without exponent and without trailing zeros."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class QuiverTester:
    """A measurer: ports, profile and frame size are fixed."""

    command: Sequence[str]
    """How the program is started, with everything before ``trial``: namespace, core."""
    ports: Sequence[str]
    profile: Path
    frame_bytes: int
    line_rate: str
    grace_s: float = 30.0
    """How much longer than the trial it may take."""

    def arguments(self, rate_pps: float, duration_s: float) -> list[str]:
        """The whole command of one trial."""
        ports = [x for port in self.ports for x in ("--port", port)]
        return [
            *self.command, "trial", *ports, "--profile", str(self.profile), "--rate", f"{number(rate_pps)}pps",
            "--size", str(self.frame_bytes), "--duration", number(duration_s), "--line-rate", self.line_rate, "--json",
        ]  # fmt: skip

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        """Run one trial."""
        process = subprocess.Popen(
            self.arguments(rate_pps, duration_s),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
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
        if process.returncode:
            raise TesterError(last_line(err) or f"the tester ended with status {process.returncode}")
        try:
            answer = json.loads(last_line(out))
            return Trial.model_validate(answer)
        except (ValueError, ValidationError) as error:
            raise TesterError(f"the tester's answer is none: {' '.join(str(error).split())[:200]}") from error
