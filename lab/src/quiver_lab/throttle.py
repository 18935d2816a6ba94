"""Throttled devices: a process of higher real-time priority takes the device's cores for most of the time.

A tester on the same machine sends hardly more than a fast device forwards; losses of an overload, which the papers are about,
then are the tester's. A device that has a tenth of its core forwards a tenth, and the same tester overloads it ten times.

How long a window is (``WINDOW_US``) follows from the device's rings. With share ``s`` and windows ``w`` the device is away
for ``w (1 - s) / s``, in which its rings fill up; in a window it forwards at its full rate µ. It must not find its rings empty
before the window ends, or it would have had the core for nothing, and be called slower than its share: a ring of ``D`` frames
is deep enough where ``D >= µ w``, whatever the share. veth's rings have 256 frames: enough for 2.5 million a second in 100 µs.
memif's have 1,024 and more: enough for ten million. Shorter windows are eaten by what it costs to change between processes,
some microseconds each time.

What a throttled device loses in overload is its own; when its frames come is not. So times, clocks and energy are not told of
throttled runs, and procedures that are about times are not run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from quiver_lab import hog
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.processes import CommandError, end, start

WINDOW_US = 100
WITHIN = 0.1
"""By how much of itself the share that the device had may differ from what was asked for; a trial beyond that is disturbed."""
FOR_LOSS = (
    "throughput", "mlrsearch", "loss-rate", "fixed-rate", "r-plus", "soak", "connection-rate", "table-capacity", "tear-down",
)  # fmt: skip
"""Procedures whose answers are rates and losses."""
RT = Path("/proc/sys/kernel")

LONGEST_S = 86_400.0
"""A hog ends by itself after that at the latest."""
ENDS_S = 60.0
"""For how long its account is waited for: a machine that stood still is no reason to lose it."""

Account = dict[str, dict[str, float]]
"""By core: the share that others than the hog ``had``, what was ``taken`` from it, how many ``windows``, the ``longest_us``."""


def lacking() -> str:
    """Why this process cannot have a hog; empty where it can."""
    said: list[str] = []

    def ask() -> None:
        # The policy is a thread's: this one ends with it.
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except OSError as error:
            said.append(f"a throttled device needs SCHED_FIFO: {error.strerror}")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return "".join(said)


def reserved(folder: Path = RT) -> float:
    """The share of a core that the kernel keeps from real-time processes."""
    try:
        runtime, period = (int((folder / f"sched_rt_{name}_us").read_text(encoding="ascii")) for name in ("runtime", "period"))
    except (OSError, ValueError):
        return 0.0
    return 0.0 if runtime < 0 else 1 - runtime / period


def absent(campaign: Campaign, cell: Cell, *, able: bool, folder: Path = RT) -> str | None:
    """Why a throttled cell cannot be measured here; none where it can. ``able``: whether the device's adapter throttles."""
    if cell.throttle == 1:
        return None
    kind = campaign.procedures[cell.procedure].kind
    if kind not in FOR_LOSS:
        return f"a throttled device waits for its core: '{kind}' would measure that"
    bed = campaign.testbed
    if bed.kind == "simulated":
        return None
    if bed.kind == "remote":
        return "the lab throttles devices of its own machine only"
    if cell.link == "pg":
        return "a packet generator is throttled with its device: there is nothing that overloads it"
    if not able:
        return "the lab does not throttle this device"
    keeps = reserved(folder)
    if cell.throttle < keeps - 1e-9:
        return f"the kernel keeps {keeps:.0%} of each core from real-time processes (kernel.sched_rt_runtime_us)"
    return lacking() or None


@contextlib.contextmanager
def alone(core: int) -> Iterator[None]:
    """Wait until no other process of this machine throttles a core: two hogs would leave nothing. The lock ends with us."""
    path = Path(tempfile.gettempdir()) / f"quiver-lab-throttle-{core}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@contextlib.contextmanager
def held(cores: Sequence[int], share: float, seconds: float) -> Iterator[Account]:
    """Leave others ``share`` of these cores while a block runs, of about ``seconds``; what it gives is filled in at the end.

    The hogs end with the block, with this process, or by themselves when the block takes far longer.
    """
    account: Account = {}
    if share == 1:
        yield account
        return
    with contextlib.ExitStack() as stack:
        hogs: dict[int, subprocess.Popen[str]] = {}
        for core in sorted(cores):
            stack.enter_context(alone(core))
            words = (core, share, WINDOW_US, min(2 * seconds + 60, LONGEST_S))
            process = start([sys.executable, "-I", "-S", str(Path(hog.__file__)), *map(str, words)])
            stack.callback(end, process)
            hogs[core] = process
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise CommandError(f"the process that throttles core {core} did not start")
        yield account
        for process in hogs.values():
            process.terminate()
        for core, process in hogs.items():
            try:
                said, _ = process.communicate(timeout=ENDS_S)
                account[str(core)] = json.loads(said)
            except subprocess.TimeoutExpired as error:
                raise CommandError(f"the process that throttles core {core} does not end") from error
            except ValueError as error:
                raise CommandError(f"the process that throttled core {core} ended before the trial did") from error


def disturbed(account: Mapping[str, Mapping[str, float]], share: float) -> tuple[str, ...]:
    """Why a trial does not count as one of this share."""
    out = []
    for core, of in account.items():
        if abs(of["had"] - share) > WITHIN * share:
            out.append(f"the device had {of['had']:.1%} of core {core}, not {share:.1%}")
        elif of["taken"] > WITHIN * share:
            out.append(f"others had {of['taken']:.1%} of core {core} in the time that the throttle held it")
    return tuple(out)


def told(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Values of a run without those that are about times: they tell of the hog."""
    return {k: v for k, v in values.items() if not any(w in k for w in ("latency", "jitter", "pdv", "_clocks", "tear_down_s"))}


def note(share: float, accounts: Sequence[Account]) -> str:
    """What a throttled run says of itself."""
    had = [of["had"] for account in accounts for of in account.values()]
    if not had:
        return f"throttled: the device had {share:.1%} of its capacity"
    return (
        f"throttled: the device had {min(had):.1%} to {max(had):.1%} of its cores ({share:.1%} was asked for), "
        f"{WINDOW_US} µs at a time; no times, clocks or energy are told"
    )
