"""Tables of the page about performance are those of one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiver_lab import benchpage
from quiver_lab.benchpage import NoTableError, rewritten

PAGE = Path(__file__).resolve().parents[2] / "docs/performance.md"


def figure(median: float, least: float, most: float) -> dict[str, float]:
    return {"median": median, "least": least, "most": most}


def test_each_table_is_written_in_its_place_and_nothing_else() -> None:
    row = {
        "case": "ip6",
        "vpp": figure(1207, 1155.4, 1207.4),
        "quiver": figure(23.81, 23.6, 24.4),
        "ratio": figure(0.351, 0.351, 0.354),
    }
    other = "<!-- tables: make bench ARGS=--write writes this table -->\nkept\n<!-- end -->\n"
    mark = "<!-- beside_vpp: make bench ARGS=--write writes this table -->"
    page = f"before\n{mark}\nold\n| a |\n<!-- end -->\nbetween\n{other}after\n"
    new = rewritten(page, "beside_vpp", f"text\n{json.dumps(row)}\n", "A machine.")
    assert new == (
        f"before\n{mark}\n\nA machine.\n\n"
        "| case | VPP | Quiver | ratio |\n|---|---:|---:|---:|\n"
        "| IPv6, one route | 1,207 (1,155 – 1,207) | 23.8 (23.6 – 24.4) | 0.35 |\n\n"
        f"<!-- end -->\nbetween\n{other}after\n"
    )
    assert rewritten(new, "beside_vpp", json.dumps(row), "A machine.") == new


def test_what_was_not_measured_is_not_written() -> None:
    page = PAGE.read_text(encoding="utf-8")
    row = {"case": "ip4", "vpp": None, "quiver": figure(1, 1, 1), "ratio": None}
    for output, why in [("", "no figures"), (json.dumps(row), "VPP was not measured")]:
        with pytest.raises(NoTableError, match=why):
            rewritten(page, "beside_vpp", output, "")
    with pytest.raises(NoTableError, match="0 places for memif"):
        rewritten(
            "", "memif", json.dumps({"case": "a", "sent": figure(1, 1, 1), "received": figure(1, 1, 1), "clocks": None}), ""
        )


def test_the_page_has_a_place_for_every_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for bench in benchpage.WRITERS:
        assert page.count(benchpage.BEGIN.format(bench) + "\n") == 1, bench
    assert page.count(benchpage.END) == len(benchpage.WRITERS)


def test_lookup_structures_are_told_by_their_batches() -> None:
    way = {"clocks_median": 49.8, "clocks_min": 49.0, "clocks_max": 50.5}
    row = {
        "table": "IPv6 real", "structure": "poptrie", "prefixes": 160147, "build_ms": 139.6, "own_bytes": 12_700_000,
        "ways": [{"way": "plain"} | way, {"way": "batch"} | way],
    }  # fmt: skip
    assert benchpage.tables(f"[{json.dumps(row)}]")[2:] == [
        "| IPv6 real, 160,147 prefixes, poptrie | 140 | 12.7 | 49.8 (49.0 – 50.5) |"
    ]
