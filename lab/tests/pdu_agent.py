#!/usr/bin/env python3
"""A power distribution unit of known draw behind snmpd (``pass_persist``): answers for the sensors of its outlets.

Its state is a file that the test writes: what each outlet draws now, and what it has counted. Time is in it, too: nothing here
looks at a clock.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

RARITAN = ".1.3.6.1.4.1.13742.6"
AVAILABLE, VALUE, UNITS, DIGITS = "5.4.3.1.2", "5.4.3.1.4", "3.5.4.1.6", "3.5.4.1.7"
POWER, ENERGY = "5", "8"


def answer(state: dict[str, dict[str, float]], oid: str) -> tuple[str, int] | None:
    """Type and value of an object; none where there is none."""
    for table in (AVAILABLE, VALUE, UNITS, DIGITS):
        unit, _, at = oid.removeprefix(f"{RARITAN}.{table}.").partition(".")
        outlet, _, sensor = at.partition(".")
        if unit != "1" or outlet not in state or sensor not in (POWER, ENERGY):
            continue
        mine = state[outlet]
        digits = int(mine["digits"]) if sensor == POWER else 0
        match table:
            case "5.4.3.1.2":
                return "integer", 1 if sensor in str(mine.get("sensors", "58")) else 2
            case "5.4.3.1.4":
                return "gauge", round(mine["watts"] * 10**digits) if sensor == POWER else int(mine["joules"] / 3600)
            case "3.5.4.1.6":
                return "integer", 3 if sensor == POWER else 5
            case _:
                return "gauge", digits
    return None


def main() -> None:
    """Answer snmpd until it closes our input."""
    for line in sys.stdin:
        match line.strip():
            case "PING":
                print("PONG", flush=True)
            case "get":
                oid = sys.stdin.readline().strip()
                found = answer(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), oid)
                print("NONE" if found is None else f"{oid}\n{found[0]}\n{found[1]}", flush=True)
            case "getnext":
                sys.stdin.readline()
                print("NONE", flush=True)
            case _:
                print("NONE", flush=True)


if __name__ == "__main__":
    main()
