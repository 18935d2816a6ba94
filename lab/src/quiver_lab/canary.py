"""How fast a core is at this moment: the same small work each time, on whatever core it is asked of.

It needs the standard library alone: the lab reads it around trials, and the benches of the router around each of them.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

WORK = bytes(64 * 1024)
LASTS_S = 0.01
"""Of the processor's time, a reading of one core."""
FAR = 32 * 1024 * 1024
"""Bytes that are copied for the speed of memory: more than a core's own caches hold."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One core at a moment."""

    bytes_per_cpu_s: float
    share: float
    """Of the time, 0 to 1."""


def read_core(core: int) -> Speed | None:
    """Compute on one core; none where this thread may not go there. It goes back where it was."""
    return _timed(core, LASTS_S, _hash)


def read_memory(core: int) -> Speed | None:
    """Copy memory on one core, twice at least; otherwise as `read_core`."""
    source, target = bytearray(FAR), bytearray(FAR)

    def copy() -> int:
        target[:] = source
        return FAR

    copy()
    return _timed(core, 2 * LASTS_S, copy)


def _hash() -> int:
    hashlib.sha256(WORK).digest()
    return len(WORK)


def _timed(core: int, lasts_s: float, work: Callable[[], int]) -> Speed | None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return None
    try:
        began, began_cpu, done = time.perf_counter(), time.thread_time(), 0
        while (used := time.thread_time() - began_cpu) < lasts_s:
            done += work()
        # Once more than the time was up: what was done in it is known.
        wall = max(time.perf_counter() - began, used)
        return Speed(done / used, used / wall)
    finally:
        os.sched_setaffinity(0, before)
