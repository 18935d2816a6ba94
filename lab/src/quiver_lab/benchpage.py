"""Tables of ``docs/performance.md``, written from what benches print.

A table stands between two marks, with the machine of its run above it. All figures of a table are of one run of one bench.
What a neighbour disturbed is not written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

BEGIN = "<!-- {}: make bench ARGS=--write writes this table -->"
"""The mark above the table of a bench."""
END = "<!-- end -->"

CASES = {
    "ip4": "IPv4, 1,024 destinations",
    "ip4, vectors of 4": "the same, vectors of 4",
    "ip6": "IPv6, one route",
    "cross-connect": "L2 cross-connect",
    "bridge, 1 address": "L2 bridge, one static address",
    "bridge, 100,000 addresses": "L2 bridge, 100,000 static addresses",
    "nat44, 65,536 sessions": "NAT44, 65,536 sessions in random order",
    "ip4, full table": "IPv4, full table, 64 next hops, random destinations",
    "ip6, full table": "IPv6, full table, 64 next hops, random destinations",
    "acl, 1,000 rules": "access list, 1,000 rules",
    "acl, 65,536 sessions": "access list, 65,536 sessions in random order",
    "edge": "edge, with an access list of 1,000 rules and its sessions",
}
"""What the page calls the cases of ``beside_vpp``; others keep their names."""


class NoTableError(Exception):
    """A bench has measured less than its table shows."""


def number(value: float) -> str:
    """As many digits as tell something: 7.41, 47.5, 1,207."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def spread(figure: Mapping[str, float], text: Callable[[float], str] = number) -> str:
    """Median (least – most), or the median alone where all are alike."""
    median, least, most = (text(figure[key]) for key in ("median", "least", "most"))
    return median if least == most else f"{median} ({least} – {most})"


def objects(output: str) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines of an output."""
    yield from (json.loads(line) for line in output.splitlines() if line.startswith("{"))


def beside_vpp(output: str) -> list[str]:
    """Clocks of both routers, and Quiver's share."""
    lines = ["| case | VPP | Quiver | ratio |", "|---|---:|---:|---:|"]
    for row in objects(output):
        if row["vpp"] is None or row["quiver"] is None:
            raise NoTableError("VPP was not measured: QUIVER_VPP names it")
        ratio = spread(row["ratio"], "{:.2f}".format)
        lines.append(f"| {CASES.get(row['case'], row['case'])} | {spread(row['vpp'])} | {spread(row['quiver'])} | {ratio} |")
    return lines


def memif(output: str) -> list[str]:
    """What the source sent and got back through each device, and the device's clocks."""
    lines = ["| device and path | sent, M packets/s | received, M/s | clocks |", "|---|---:|---:|---:|"]
    for row in objects(output):
        clocks = spread(row["clocks"]) if row["clocks"] else ""
        lines.append(f"| {row['case']} | {spread(row['sent'])} | {spread(row['received'])} | {clocks} |")
    return lines


def tables(output: str) -> list[str]:
    """Build, memory and batches of the lookup structures."""
    lines = ["| structure | build, ms | memory, MB | clocks per lookup (batch) |", "|---|---:|---:|---:|"]
    for row in json.loads(output[output.index("[") :]):
        for way in row["ways"]:
            if way["way"] == "batch":
                clocks = {"median": way["clocks_median"], "least": way["clocks_min"], "most": way["clocks_max"]}
                name = f"{row['table']}, {row['prefixes']:,} prefixes, {row['structure']}"
                lines.append(f"| {name} | {row['build_ms']:.0f} | {row['own_bytes'] / 1e6:.1f} | {spread(clocks)} |")
    return lines


WRITERS: Mapping[str, Callable[[str], list[str]]] = {"beside_vpp": beside_vpp, "memif": memif, "tables": tables}
"""By the name of the bench."""


def rewritten(page: str, bench: str, output: str, machine: str) -> str:
    """The page with the table of a bench made anew.

    Raises ``NoTableError`` where the page has no place for it, or the bench has measured less than it shows.
    """
    lines: Sequence[str] = WRITERS[bench](output)
    if len(lines) < 3:
        raise NoTableError(f"{bench} has printed no figures")
    mark = BEGIN.format(bench)
    place = re.compile(re.escape(mark) + r"\n.*?" + re.escape(END), re.DOTALL)
    text = "\n".join([mark, "", machine, "", *lines, "", END])
    page, count = place.subn(lambda _: text, page)
    if count != 1:
        raise NoTableError(f"the page has {count} places for {bench}: one begins with {mark} and ends with {END}")
    return page
