"""Instructions, clocks and cache misses, where no trial can tell them: from the repository's benches.

Kinds of values, which stand beside each of them:

- *simulated*: instructions a packet that callgrind counted in the loops of the nodes that forward (bench ``instructions``), and
  misses of an L1 instruction cache of 32 KiB that it simulated for the whole turn through the graph (bench ``cache``).
- *timed*: clocks a packet that the bench took, without a router around the nodes: on buffers in the cache (``graph-hot``),
  and on 16,384 of them by turns (``graph-sizes``).
- instructions a *clock* are not told by benches: instructions are those of the AVX2 variant, clocks those of the widest variant
  that the processor has. Their quotient would be of two programs.
- values of ``perf_event`` take their place where trials have them (``hardware.py``); ``perf_lacking`` tells why they have not.

What the file lacks is named; nothing is put in its place.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quiver_lab import hardware
from quiver_lab.reproduce.design import CANDIDATE
from quiver_lab.store import Store, StoreError

USUAL = "docs/figures/bench.json"
FILE = "evidence.json"
OPERATIONS = {"l2-xconnect": "xc", "ip4-1024": "ip4", "ip4-bgp": "ip4", "ip6-few": "ip6", "ip6-bgp": "ip6"}
"""The paper's operations by the paths of the benches; bridging is none of the paper's."""
FULL = 256
"""Packets of the vectors that benches have unless they say otherwise."""

HOW = {
    "l1i_misses_per_packet": "by callgrind in a cache of 32 KiB, 8 ways, 64-byte lines; a turn of the graph, without ports",
    "instructions_per_packet": "by callgrind in the loops of the nodes that forward",
    "ring_clocks_per_packet": "by the time stamp counter, the same nodes, 16,384 buffers by turns",
    "tsc_clocks_per_packet": "by the time stamp counter, the same nodes, buffers in the cache",
}
"""What each quantity is."""

NEEDS = {
    "instructions_per_packet": ("instructions_per_packet", "instructions", "instructions-v"),
    "l1i_misses_per_packet": ("l1i_misses_per_packet", "cache misses", "cache"),
    "ring_clocks_per_packet": ("ring_clocks_per_packet", "clocks", "graph-sizes"),
}
"""What a quantity follows from, in words, and the benches that count it."""

Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BenchFile(BaseModel):
    """What ``scripts/bench`` writes."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)
    schema_: Literal["quiver-bench/1"] = Field(alias="schema")
    machine: dict[str, str]
    figures: dict[str, Finite]


class Evidence(BaseModel):
    """What a reproduction keeps of it, in ``evidence.json`` beside the results."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    schema_: Literal["quiver-lab-evidence/1"] = Field(alias="schema", default="quiver-lab-evidence/1")
    bench: BenchFile | None = None
    lacking: str = ""
    """Why there is no bench file."""
    perf_lacking: str = ""
    """Why hardware counters cannot be read; empty where they can."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One value."""

    path: str
    vector: int
    quantity: str
    value: float
    kind: Literal["simulated", "timed"]

    @property
    def keys(self) -> dict[str, str]:
        """As a cell's."""
        return {
            "dut": CANDIDATE, "operation": OPERATIONS[self.path], "path": self.path, "vector_size": str(self.vector),
            "evidence": self.kind,
        }  # fmt: skip


def checkout() -> Path | None:
    """The bench file of the checkout that this package is run from."""
    file = Path(__file__).resolve().parents[4] / USUAL
    return file if file.exists() else None


def read_bench(path: Path) -> BenchFile:
    """Read a bench file; errors are one line."""
    try:
        return BenchFile.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(x) for x in first["loc"]) or "top"
        raise ValueError(f"{path}: {place}: {first['msg']}") from error


def gather(bench: Path | None) -> Evidence:
    """What is here now."""
    file = bench or checkout()
    found = read_bench(file) if file else None
    return Evidence(bench=found, lacking="" if found else f"no {USUAL} (--bench names one)", perf_lacking=hardware.lacking())


def keep(store: Store, bench: Path | None) -> None:
    """Write the evidence beside the results, once: a page reads result files only."""
    path = store.root / FILE
    if not path.exists() or bench is not None:
        text = json.dumps(gather(bench).model_dump(mode="json", by_alias=True), indent=1, sort_keys=True)
        part = path.with_name(f".{FILE}.part")
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)


def kept(store: Store) -> Evidence:
    """The evidence beside the results."""
    path = store.root / FILE
    if not path.exists():
        return Evidence(lacking="these results keep no figures of the benches", perf_lacking="not looked for")
    try:
        return Evidence.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise StoreError(f"{path}: {' '.join(str(error).split())[:300]}") from error


_INSTRUCTIONS = re.compile(r"instructions(?:-v([0-9]+))?: (\S+) (\S+), instructions")
_CLOCKS = re.compile(r"graph-hot: (\S+) (?:default|v([0-9]+))")
_RING = re.compile(r"graph-sizes: (\S+) (?:default|v([0-9]+))")
_MISSES = re.compile(r"cache(?:-v([0-9]+))?: (\S+), misses")
NO_IPC = (
    "the benches' instructions are those of the AVX2 variant, their clocks those of the widest: no quotient is made of them"
)
_CORE_BY_TSC = ": core default"
"""Ends the names of clocks of the core for each of the time stamp counter's."""


def counted(evidence: Evidence) -> list[Counted]:
    """Every value that follows from the bench file."""
    if evidence.bench is None:
        return []
    instructions: dict[tuple[str, int], float] = {}
    clocks: dict[tuple[str, int], float] = {}
    misses: dict[tuple[str, int], float] = {}
    ring: dict[tuple[str, int], float] = {}
    for key, value in evidence.bench.figures.items():
        if (m := _INSTRUCTIONS.fullmatch(key)) and m[2] in OPERATIONS and not m[3].startswith("("):
            at = (m[2], int(m[1] or FULL))
            instructions[at] = instructions.get(at, 0.0) + value
        elif (m := _CLOCKS.fullmatch(key)) and m[1] in OPERATIONS:
            clocks[m[1], int(m[2] or FULL)] = value
        elif (m := _RING.fullmatch(key)) and m[1] in OPERATIONS:
            ring[m[1], int(m[2] or FULL)] = value
        elif (m := _MISSES.fullmatch(key)) and m[2] in OPERATIONS:
            misses[m[2], int(m[1] or FULL)] = value
    out = [
        Counted(path, vector, "l1i_misses_per_packet", value, "simulated") for (path, vector), value in sorted(misses.items())
    ]
    for (path, vector), value in sorted(instructions.items()):
        out.append(Counted(path, vector, "instructions_per_packet", value, "simulated"))
    for (path, vector), value in sorted(clocks.items()):
        out.append(Counted(path, vector, "tsc_clocks_per_packet", value, "timed"))
    for (path, vector), value in sorted(ring.items()):
        out.append(Counted(path, vector, "ring_clocks_per_packet", value, "timed"))
    return out


def drift(evidence: Evidence) -> float | None:
    """By what factor clocks of the bench file may be wrong: how much the core's clock moved against the counter's meanwhile.

    None where the file has the core's clock only once or never; nobody knows then how much it moved.
    """
    if evidence.bench is None:
        return None
    clocks = [v for k, v in evidence.bench.figures.items() if k.endswith(_CORE_BY_TSC) and v > 0]
    return max(clocks) / min(clocks) if len(clocks) > 1 else None


def missing(evidence: Evidence, quantity: str) -> str:
    """What a finding on a quantity would need and is not there; empty where the quantity is none of these."""
    why = evidence.perf_lacking or "these trials have none (testbed.counters: perf)"
    perf = f"hardware counters: {why}"
    if quantity == "ipc":
        return f"{perf}; {NO_IPC}"
    if quantity not in NEEDS:
        return ""
    if evidence.bench is None:
        return f"{perf}; {evidence.lacking}"
    of, words, benches = NEEDS[quantity]
    sizes = sorted({c.vector for c in counted(evidence) if c.quantity == of})
    lacks = f"of {words} the bench file has vectors of {', '.join(map(str, sizes)) or 'no size'}"
    if sizes in ([], [FULL]):
        lacks += f"{' only' if sizes else ''} (scripts/bench --only {benches} counts {'smaller ones' if sizes else 'them'})"
    return f"{perf}; {lacks}"
