"""A process that takes a core from all others at a fixed share of the time; ``throttle.py`` runs it as a program of its own.

``hog.py CORE SHARE WINDOW_US SECONDS``: others have ``SHARE`` of the core, ``WINDOW_US`` at a time. It prints ``ready`` when it
begins, and its account when it is told to end, after ``SECONDS`` at the latest. It needs nothing but the standard library, so
that it starts at once.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from dataclasses import dataclass

PRIORITY = 40
"""Of SCHED_FIFO: above all devices of the lab's, below threads of the kernel that must not wait."""
LONGEST = 4
"""Of the usual time, for how long it holds the core at most: a machine that stood still is no reason to hold others up."""


@dataclass
class Ledger:
    """Who had the core for how long, in nanoseconds, and for how long the hog must hold it now. Pure.

    Wake-ups are late, most of all on virtual machines. So the hog never asks the clock whether its turn is over, but holds the
    core for as long as makes up for the window that there was.
    """

    share: float
    window_ns: int
    windows: int = 0
    left_ns: int = 0
    """Left to others."""
    held_ns: int = 0
    taken_ns: int = 0
    """Of the time held: what the hog did not have all the same, by the account of its own processor's time."""
    longest_ns: int = 0
    """The longest window."""
    debt_ns: float = 0.0

    def woke(self, away_ns: int, own_ns: int = 0) -> float:
        """It slept, and used ``own_ns`` of the core for going and coming; for how long it must hold the core now."""
        left, ratio = max(0, away_ns - own_ns), (1 - self.share) / self.share
        self.windows += 1
        self.left_ns += left
        self.longest_ns = max(self.longest_ns, left)
        self.held_ns += own_ns
        self.debt_ns = min(self.debt_ns + left * ratio - own_ns, LONGEST * self.window_ns * ratio)
        return self.debt_ns

    def held(self, for_ns: int, own_ns: int) -> None:
        """It held the core for so long, of which it had ``own_ns``."""
        self.held_ns += for_ns
        self.taken_ns += max(0, for_ns - own_ns)
        self.debt_ns -= for_ns

    def account(self) -> dict[str, float]:
        """What a result says of it: the share that others had, and of all time what was taken from the hog."""
        every = max(1, self.left_ns + self.held_ns)
        return {
            "had": self.left_ns / every,
            "taken": self.taken_ns / every,
            "windows": float(self.windows),
            "longest_us": self.longest_ns / 1000,
        }


def main(core: int, share: float, window_us: int, seconds: float) -> None:
    """Run until SIGTERM, the end of the time, or the end of whoever started it (``processes.start``)."""
    going = True

    def stop(_number: int, _frame: object) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    gc.disable()
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    ledger, now, used, window_s = Ledger(share, window_us * 1000), time.perf_counter_ns, time.thread_time_ns, window_us / 1e6
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    at, own = now(), used()
    end = at + int(seconds * 1e9)
    while going and at < end:
        time.sleep(window_s)
        woke, before = now(), used()
        until = woke + ledger.woke(woke - at, before - own)
        while (at := now()) < until:
            pass
        own = used()
        ledger.held(at - woke, own - before)
    sys.stdout.write(json.dumps(ledger.account()) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
