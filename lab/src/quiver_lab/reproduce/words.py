"""How keys and quantities are told to readers: in words, with units."""

from __future__ import annotations

from collections.abc import Mapping

from quiver_lab.campaign import Cell

_KEYS = {
    "operation": "{}",
    "dut": "{}",
    "cpu": "{}",
    "path": "{}",
    "pattern": "{}",
    "evidence": "{}",
    "placement": "{}",
    "ip": "IPv{}",
    "rate_gbit_s": "{} Gbit/s",
    "frame_bytes": "{} B",
    "clock_ghz": "{} GHz",
    "vector_size": "vectors of {}",
    "load": "{} of R+",
}


def count(n: int | str, of: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{n} {of}{'' if str(n) == '1' else 's'}"


def of_keys(keys: Mapping[str, str], *, without: tuple[str, ...] = ()) -> str:
    """A cell as readers say it: ``one-way, 10 Gbit/s, 64 B, vpp, 4 workers``."""
    words = []
    for key, value in keys.items():
        if key in without or not value:
            continue
        if key == "workers":
            words.append(count(value, "core" if keys.get("dut") == "linux" else "worker"))
        else:
            words.append(_KEYS.get(key, key.replace("_", " ") + " {}").format(value))
    return ", ".join(words)


def of_cell(cell: Cell) -> str:
    """What stands beside a published value: device, cores, ports."""
    cores = count(max(1, cell.workers), "worker" if cell.dut in ("quiver", "fdio-vpp") else "core")
    on = "" if cell.link == "none" else f", {cell.link}"
    instance = f", core instance {cell.instance}" if cell.instance else ""
    return f"{cell.dut}, {cores}{instance}{on}"
