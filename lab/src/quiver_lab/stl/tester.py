"""The measurer: trials at one rate, made by a TRex that stays open from the first trial of a run to the end of it."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quiver_lab import facts, profiles
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.client import TesterError
from quiver_lab.measurer import Step, Tags
from quiver_lab.processes import CommandError
from quiver_lab.profiles import Side
from quiver_lab.stl.rpc import Rpc
from quiver_lab.stl.server import Place, folder_of, serving
from quiver_lab.stl.streams import Burst, UnsayableError, bursts
from quiver_lab.trial import Trial

NAMES = ("left-to-right", "right-to-left")
SENDING = ("TX", "PAUSE", "PCAP_TX")
"""States of a port that sends."""
STRETCH_S = 0.0003
"""TRex's own time stands still while it is late by more than this. What it is late by less it sends at once: hardly more than a
veth's ring of 256 holds. Its default of 100 µs is what a sleep takes too long."""
SLACK_S, SLACK = 0.03, 0.005
"""What of a trial's time it may be late in the end: what it tells of its ports is 10 ms old."""
SETTLE_S = 0.7
"""After a trial, for frames under way and for TRex's counters of errors, which are half a second old."""
LOOK_S = 0.01
CPU_S = 1.0
"""How often its load is read: it is a mean of about that time."""


@dataclass(frozen=True, slots=True)
class Raw:
    """What TRex says of a trial."""

    lasted_s: Sequence[float]
    """From start to end, of each port that sends."""
    groups: Mapping[str, Any]
    """``get_pgid_stats``."""
    ports: Sequence[Mapping[str, int]]
    """What each port's counters rose by: ``ierrors``, ``oerrors``, and ``refused``, which TRex counted as sent."""
    queue_full: int
    busy: Mapping[str, float]
    """Load of sender and receiver, per cent; empty where the trial was too short."""
    stolen_s: float


@dataclass
class TrexTester:
    """A measurer: ports, profile and frame size are fixed."""

    open: Callable[[], contextlib.AbstractContextManager[Rpc]]
    """Starts TRex."""
    document: Mapping[str, Any]
    frame_bytes: int
    ports: Sequence[str]
    core: int
    refused: Callable[[], Sequence[int]]
    """Frames that the driver of each port did not take."""
    keep: contextlib.ExitStack
    """What ends with the run."""
    _rpc: Rpc | None = field(default=None)
    _handles: list[str] = field(default_factory=list)
    _version: str = ""
    _groups: int = 0

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        """Run one trial."""
        try:
            sent = bursts(self.document, self.frame_bytes, rate_pps, duration_s)
        except UnsayableError as error:
            raise TesterError(str(error)) from error
        rpc = self._ready()
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        numbered = {self._groups + n: burst for n, burst in enumerate(sent, start=1)}
        self._groups += len(sent)
        raw = self._run(rpc, numbered, duration_s)
        asked = Asked(numbered, self.ports, self.frame_bytes, duration_s)
        return trial_of(raw, asked, version=self._version, started=started)

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Not with TRex: cells that need it are absent."""
        raise TesterError("TRex's trials are at one rate here")

    def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
        """Not with TRex: cells that need it are absent."""
        raise TesterError("TRex tags no frames here")

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        """Not with TRex: cells that need it are absent."""
        raise TesterError("no device is reset while TRex sends")

    def _ready(self) -> Rpc:
        """A TRex that runs and whose ports are ours."""
        if self._rpc is None:
            rpc = self.keep.enter_context(self.open())
            version = rpc.call("get_version")
            self._version = str(version.get("version")) if isinstance(version, dict) else ""
            rpc.call("set_global_cfg", {"sched_max_stretch": STRETCH_S})
            self._handles = []
            for port in range(len(self.ports)):
                asked = {"port_id": port, "user": "quiver-lab", "session_id": os.getpid(), "force": True}
                self._handles.append(str(rpc.call("acquire", asked)))
                rpc.call("set_port_attr", self._of(port, attr={"promiscuous": {"enabled": True}}))
            self._rpc = rpc
        return self._rpc

    def _of(self, port: int, **more: object) -> dict[str, object]:
        return {"port_id": port, "handler": self._handles[port], **more}

    def _run(self, rpc: Rpc, numbered: Mapping[int, Burst], duration_s: float) -> Raw:
        for port in range(len(self.ports)):
            rpc.call("remove_all_streams", self._of(port))
        for group, burst in numbered.items():
            rpc.call("add_stream", self._of(burst.port, stream_id=group, stream=burst.as_json(group)))
        before, stolen = self._counters(rpc), facts.stolen_s(self.core)
        began: dict[int, float] = {}
        for port in sorted({b.port for b in numbered.values()}):
            once = {"type": "raw", "op": "abs", "value": 1.0}
            began[port] = time.monotonic()
            rpc.call("start_traffic", self._of(port, mul=once, duration=-1.0, force=True))
        lasted, busy = self._wait(rpc, began, duration_s)
        time.sleep(SETTLE_S)
        groups = rpc.call("get_pgid_stats", {"pgids": list(numbered)})
        after = self._counters(rpc)
        for port in began:
            rpc.call("remove_rx_filters", self._of(port))
        rose = [{key: b[key] - a[key] for key in a} for a, b in zip(before, after, strict=True)]
        queue_full = rose[-1]["queue_full"]
        return Raw(lasted, groups, rose[:-1], queue_full, busy, facts.stolen_s(self.core) - stolen)

    def _wait(self, rpc: Rpc, began: Mapping[int, float], duration_s: float) -> tuple[list[float], dict[str, float]]:
        """Wait for the end, and make one where TRex is late."""
        last = duration_s * (1 + SLACK) + SLACK_S
        lasted: dict[int, float] = {}
        busy: dict[str, float] = {}
        while len(lasted) < len(began):
            # The lab may share a core with the device: it looks rarely before the end.
            ahead = min(began.values()) + duration_s - time.monotonic()
            time.sleep(max(LOOK_S, min(ahead, CPU_S)))
            if ahead > CPU_S:
                load = rpc.call("get_global_stats")
                for name, key in (("sender", "m_cpu_util"), ("receiver", "m_rx_cpu_util")):
                    busy[name] = max(busy.get(name, 0.0), _number(load, key))
            for port in began.keys() - lasted.keys():
                state = rpc.call("get_port_status", {"port_id": port})
                so_far = time.monotonic() - began[port]
                if not isinstance(state, dict) or state.get("state") not in SENDING:
                    lasted[port] = so_far
                elif so_far > last:
                    rpc.call("stop_traffic", self._of(port))
                    lasted[port] = so_far
        return [lasted[port] for port in sorted(lasted)], busy

    def _counters(self, rpc: Rpc) -> list[dict[str, int]]:
        """Errors of each port, and of the whole in the end."""
        try:
            refused = self.refused()
        except (CommandError, ValueError) as error:
            raise TesterError(f"what the tester's ports refused cannot be read: {error}") from error
        found = []
        for port, dropped in enumerate(refused):
            stats = rpc.call("get_port_stats", {"port_id": port})
            found.append({key: int(_number(stats, key)) for key in ("ierrors", "oerrors")} | {"refused": dropped})
        return [*found, {"queue_full": int(_number(rpc.call("get_global_stats"), "m_total_queue_full"))}]


def _number(of: object, key: str) -> float:
    value = of.get(key) if isinstance(of, Mapping) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TesterError(f"TRex does not tell {key}: {str(of)[:200]}")
    return float(value)


def _counted(groups: Mapping[str, Any], group: int, what: str, port: int) -> int:
    """Frames of a group that a port sent (``tp``) or received (``rp``)."""
    try:
        value = groups["flow_stats"][str(group)][what].get(str(port), 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise TesterError(f"TRex does not tell what became of group {group}: {str(groups)[:200]}") from error
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TesterError(f"TRex counted {value!r} frames of group {group}")
    return value


@dataclass(frozen=True, slots=True)
class Asked:
    """What a trial was to be."""

    bursts: Mapping[int, Burst]
    """By the group that TRex counts them as."""
    ports: Sequence[str]
    frame_bytes: int
    duration_s: float


def trial_of(raw: Raw, asked: Asked, *, version: str, started: str) -> Trial:
    """A trial from what TRex says of it."""
    numbered, ports, duration_s = asked.bursts, asked.ports, asked.duration_s
    bits = asked.frame_bytes * 8
    directions, reasons = [], []
    for tx in sorted({b.port for b in numbered.values()}):
        rx, lasted = 1 - tx, raw.lasted_s[tx]
        mine = {group: burst for group, burst in numbered.items() if burst.port == tx}
        intended = sum(b.count for b in mine.values())
        counted = sum(_counted(raw.groups, group, "tp", tx) for group in mine)
        refused = min(raw.ports[tx]["refused"], counted)
        sent = counted - refused
        received = sum(_counted(raw.groups, group, "rp", rx) for group in mine)
        name = NAMES[tx]
        # TRex tells what came, not which frames: more than were sent are some that came twice.
        again = max(0, received - sent)
        if counted < intended:
            reasons.append(f"{name}: {intended - counted} frames were not sent in time{_why(raw)}")
        if refused:
            reasons.append(f"{name}: the sending device refused {refused} frames")
        if counted > intended:
            reasons.append(f"{name}: TRex sent {counted} frames where {intended} were asked for")
        if again:
            reasons.append(f"{name}: {again} frames more came back than were sent")
        if missed := raw.ports[rx]["ierrors"]:
            reasons.append(f"{name}: TRex's receive ring was full: it missed {missed} frames")
        if failed := raw.ports[tx]["oerrors"]:
            reasons.append(f"{name}: {failed} frames could not be handed to the port")
        directions.append(
            {
                "name": name, "tx": ports[tx], "rx": ports[rx], "intended": max(intended, counted), "sent": sent,
                "unsent": max(intended, counted) - sent, "received": received - again, "lost": sent - received + again,
                "duplicated": again, "tx_pps": sent / max(lasted, duration_s), "rx_pps": received / max(lasted, duration_s),
                "tx_l2_bps": sent * bits / max(lasted, duration_s),
                "rx_l2_bps": received * bits / max(lasted, duration_s),
            }
        )  # fmt: skip
    return Trial.model_validate(
        {
            "schema": "quiver-trial/1", "tester": {"name": "TRex", "version": version}, "started": started,
            "duration_s": duration_s, "settle_s": SETTLE_S, "valid": not reasons, "reasons": reasons, "clock": "tsc",
            "engine": "trex", "directions": directions,
            "cpu": [{"thread": name, "busy": share / 100} for name, share in raw.busy.items()],
            "machine": {"stolen_s": raw.stolen_s},
            "trex": {"queue_full": raw.queue_full, "lasted_s": list(raw.lasted_s)},
        }
    )  # fmt: skip


def _why(raw: Raw) -> str:
    """What TRex says of its own limits."""
    said = [f"its {name} was {share:.0f} % busy" for name, share in raw.busy.items()]
    if raw.queue_full:
        said.append(f"its queue was full {raw.queue_full} times")
    return f" ({', '.join(said)})" if said else ""


def make(campaign: Campaign, cell: Cell, place: Place, keep: contextlib.ExitStack) -> TrexTester:
    """A tester for a cell; TRex starts with the first trial."""
    bed = campaign.testbed
    trex = folder_of(bed.binaries)
    if trex is None:
        raise TesterError("TRex is not installed")
    # A device that bridges has no addresses: its frames bring their own.
    routed = cell.operation not in ("cross-connect", "bridge")
    sides: tuple[Side | None, ...] = (profiles.LEFT, profiles.RIGHT) if routed else (None, None)
    return TrexTester(
        open=lambda: serving(trex, place, sides, bed.tester_core),
        document=profiles.profile(cell),
        frame_bytes=cell.frame_bytes,
        ports=place.ports,
        refused=place.refused,
        core=bed.tester_core,
        keep=keep,
    )
