"""Outlets of a rack's power distribution unit, by SNMP: Raritan PX2 and PX3 (PDU2-MIB).

Two quantities of an outlet can be counted. Its active energy is the unit's own count, in whole watt-hours: right for an hour of
measuring, useless for a minute, in which a server draws less than ten; so each result carries the step. Its active power is
sampled (``Sampled``), which is right for short trials as far as the unit is quick to see a change: it averages over seconds.

SNMP version 2c, read-only. The unit must be set to answer it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from quiver_lab.campaign import PduSpec
from quiver_lab.energy import JOULES_PER_WATT_HOUR, Meter, MeterError, Reading, Sampled, forward

RARITAN = "1.3.6.1.4.1.13742.6"
"""``raritan.pdu2`` of PDU2-MIB; all objects below are indexed by unit, outlet and sensor."""
AVAILABLE = f"{RARITAN}.5.4.3.1.2"
"""``measurementsOutletSensorIsAvailable``: true is 1."""
VALUE = f"{RARITAN}.5.4.3.1.4"
"""``measurementsOutletSensorValue``: an integer that ``DIGITS`` makes a number."""
UNITS = f"{RARITAN}.3.5.4.1.6"
"""``outletSensorUnits``."""
DIGITS = f"{RARITAN}.3.5.4.1.7"
"""``outletSensorDecimalDigits``."""
ACTIVE_POWER, ACTIVE_ENERGY = 5, 8
"""``SensorTypeEnumeration``."""
WATT, WATT_HOUR = 3, 5
"""``SensorUnitsEnumeration``."""
ANSWERS_S = 1.0
"""After which an agent that did not answer is asked again."""


class Get(Protocol):
    """Asks an agent."""

    def __call__(self, oids: Sequence[str]) -> list[int]:
        """Integers of these objects, in their order."""


class SnmpGet:
    """Asks by SNMP version 2c."""

    def __init__(self, host: str, port: int, community: str, *, timeout_s: float | None = None, retries: int = 2) -> None:
        self._where = (host, port)
        self._community = community
        self._timeout_s = ANSWERS_S if timeout_s is None else timeout_s
        self._retries = retries

    def __call__(self, oids: Sequence[str]) -> list[int]:
        """Ask for all of them in one message."""
        try:
            return asyncio.run(self._ask(oids))
        except OSError as error:
            raise MeterError(f"{self}: {error}") from error

    def __str__(self) -> str:
        return f"SNMP agent {self._where[0]}:{self._where[1]}"

    async def _ask(self, oids: Sequence[str]) -> list[int]:
        # Slow to import, and most campaigns have no such meter.
        from pysnmp.error import PySnmpError  # noqa: PLC0415
        from pysnmp.hlapi.v1arch import asyncio as snmp  # noqa: PLC0415

        dispatcher = snmp.SnmpDispatcher()
        try:
            target = await snmp.UdpTransportTarget.create(self._where, timeout=self._timeout_s, retries=self._retries)
            wanted = [snmp.ObjectType(snmp.ObjectIdentity(oid)) for oid in oids]
            failed, status, index, answers = await snmp.get_cmd(
                dispatcher, snmp.CommunityData(self._community, mpModel=1), target, *wanted, lookupMib=False
            )
        except PySnmpError as error:
            raise MeterError(f"{self}: {' '.join(str(error).split())}") from error
        finally:
            dispatcher.transport_dispatcher.close_dispatcher()
        if failed:
            raise MeterError(f"{self}: {failed}")
        if status:
            where = oids[int(index) - 1] if index else "the request"
            raise MeterError(f"{self}: {status.prettyPrint()} at {where}")
        out = []
        for oid, (_, value) in zip(oids, answers, strict=True):
            try:
                out.append(int(value))
            except (TypeError, ValueError):
                raise MeterError(f"{self}: {oid}: no number: {value.prettyPrint() or type(value).__name__}") from None
        return out


class Outlets:
    """The outlets of one unit, as numbers with their units."""

    def __init__(self, get: Get, unit: int, outlets: Sequence[int], *, sensor: int) -> None:
        self._get = get
        self._outlets = list(outlets)
        self._at = [f"{unit}.{outlet}.{sensor}" for outlet in outlets]
        quantity, expected = {ACTIVE_POWER: ("active power", WATT), ACTIVE_ENERGY: ("active energy", WATT_HOUR)}[sensor]
        for outlet, at in zip(outlets, self._at, strict=True):
            available, units = get([f"{AVAILABLE}.{at}", f"{UNITS}.{at}"])
            if available != 1:
                raise MeterError(f"{get}: outlet {outlet} does not tell its {quantity}")
            if units != expected:
                raise MeterError(f"{get}: outlet {outlet}: {quantity} in unit {units}, not {expected}")
        self.digits = get([f"{DIGITS}.{at}" for at in self._at])

    def values(self) -> dict[str, float]:
        """Value of each outlet now."""
        values = self._get([f"{VALUE}.{at}" for at in self._at])
        return {f"outlet {o}": v / 10**d for o, v, d in zip(self._outlets, values, self.digits, strict=True)}


class EnergyCounter(Meter):
    """The outlets' own count of active energy."""

    name = "pdu-energy"

    def __init__(self, clock: Callable[[], float], outlets: Outlets, idle: Meter) -> None:
        self._clock = clock
        self._outlets = outlets
        self._idle = idle
        self.step_j = sum(JOULES_PER_WATT_HOUR / 10**d for d in outlets.digits)

    def read(self) -> Reading:
        """Read all outlets."""
        counted = self._outlets.values()
        return Reading(self._clock(), {o: round(wh * JOULES_PER_WATT_HOUR * 1e6) for o, wh in counted.items()})

    def joules(self, before: Reading, after: Reading) -> float:
        """Sum of the outlets' differences."""
        return forward(before, after)

    def for_idle(self) -> Meter:
        """The same outlets' power: a few seconds are less than a step."""
        return self._idle


def pdu(clock: Callable[[], float], spec: PduSpec, community: str, every_s: float = 1.0) -> Meter:
    """A meter of a unit's outlets."""
    get = SnmpGet(spec.host, spec.port, community)
    power = Outlets(get, spec.unit, spec.outlets, sensor=ACTIVE_POWER)
    sampled = Sampled("pdu-power", clock, lambda: sum(power.values().values()), every_s)
    if spec.count == "power":
        return sampled
    return EnergyCounter(clock, Outlets(get, spec.unit, spec.outlets, sensor=ACTIVE_ENERGY), sampled)
