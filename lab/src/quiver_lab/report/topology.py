"""How tester and device were joined, one drawing for each kind of link. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from quiver_lab import profiles
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.records import RunRecord

BOX, GAP, LINE = (230.0, 92.0), 250.0, 17.0
"""Size of a box, room between two, height of a line of text."""


@dataclass(frozen=True, slots=True)
class Topology:
    """One kind of link."""

    link: str
    title: str
    boxes: tuple[tuple[str, ...], ...]
    """Lines of text of each box, from left to right; of a device by itself there is one."""
    wires: tuple[str, ...]
    """What stands at the wires between two boxes, from above."""


_TITLES = {
    "veth": "Two pairs of virtual Ethernet devices of the kernel",
    "memif": "Shared memory (memif), one socket for each port",
    "pg": "The device makes its frames itself, counts and drops what leaves",
    "ports": "Wires between network cards",
    "none": "A simulated device",
}


def topologies(campaign: Campaign, cells: Iterable[Cell], records: Iterable[RunRecord]) -> list[Topology]:
    """One for each link that cells were measured on."""
    of_link: dict[str, list[Cell]] = {}
    for cell in cells:
        of_link.setdefault(cell.link, []).append(cell)
    facts = [(r.run.cell.link, r.run.cell.dut, r.device) for r in records if r.status == "done"]
    out = []
    for link, members in of_link.items():
        devices = []
        for dut in dict.fromkeys(c.dut for c in members):
            found = next((f for at, name, f in facts if (at, name) == (link, dut)), {})
            cores = ", ".join(str(c) for c in found.get("cores", ()))
            told = [f"core {cores}" if cores else "", str(found.get("driver", "")), str(found.get("rx_mode", ""))]
            devices.append(": ".join(w for w in (dut, ", ".join(w for w in told if w)) if w))
        if link in ("pg", "none"):
            out.append(Topology(link, _TITLES[link], (tuple(devices),), ()))
            continue
        bed = campaign.testbed
        tester = ["quiver-tester", f"core {bed.tester_core}" if bed.kind == "local" else "a host of its own"]
        tester += [f"ports: {bed.sender}"] if link == "veth" else []
        ips = sorted({4 if c.operation == "mix" else c.ip for c in members})
        wires = tuple(_wire(side, ips) for side in (profiles.LEFT, profiles.RIGHT))
        out.append(Topology(link, _TITLES[link], (tuple(tester), tuple(devices)), wires))
    return out


def _wire(side: profiles.Side, ips: Sequence[int]) -> str:
    ends = {4: (side.tester4, side.device4), 6: (side.tester6, side.device6)}[ips[0]]
    return f"{side.name}: {ends[0]} – {ends[1]}"


def svg(topology: Topology) -> str:
    """The drawing."""
    lines = max(len(b) for b in topology.boxes)
    tall = max(BOX[1], LINE * (lines + 1))
    wide = len(topology.boxes) * BOX[0] + (len(topology.boxes) - 1) * GAP
    body = []
    for at, words in enumerate(topology.boxes):
        x = at * (BOX[0] + GAP)
        body.append(
            f'<rect x="{x + 1:.0f}" y="1" width="{BOX[0] - 2:.0f}" height="{tall - 2:.0f}" fill="#eef2f6" stroke="#222"/>'
        )
        top = tall / 2 - LINE * (len(words) - 1) / 2 + 4
        for n, line in enumerate(words):
            body.append(f'<text x="{x + BOX[0] / 2:.0f}" y="{top + n * LINE:.1f}" text-anchor="middle">{escape(line)}</text>')
    for n, said in enumerate(topology.wires):
        y = tall * (n + 1) / (len(topology.wires) + 1)
        body.append(f'<path d="M{BOX[0]:.0f} {y:.1f}h{GAP:.0f}" stroke="#222" fill="none"/>')
        body.append(f'<text x="{BOX[0] + GAP / 2:.0f}" y="{y - 5:.1f}" text-anchor="middle">{escape(said)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {tall:.0f}" width="{wide:.0f}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12"><title>{escape(topology.title)}</title>{"".join(body)}</svg>'
    )
