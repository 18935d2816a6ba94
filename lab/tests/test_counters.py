"""Instructions and clocks from the repository's benches: read, marked, laid beside the paper, and what is missing said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quiver_lab import campaign, findings, hardware
from quiver_lab.findings import Verdict
from quiver_lab.reproduce import counters, design, evidence, page
from quiver_lab.reproduce.counters import BenchFile, Evidence
from quiver_lab.reproduce.linguaglossa2019 import LINGUAGLOSSA2019
from quiver_lab.store import Store, StoreError
from test_reproduce import make

FIGURES = {
    "instructions: ip4-1024 (allocations), instructions": 7.0,
    "instructions: ip4-1024 Ip4Input, instructions": 30.0,
    "instructions: ip4-1024 Ip4Input, calls": 0.5,
    "instructions: ip4-1024 Lookup<V4>, instructions": 70.0,
    "instructions: l2-bridge-10 Bridge, instructions": 167.0,
    "graph-hot: ip4-1024 default": 50.0,
    "graph-hot: ip4-1024 v4": 300.0,
    "graph-hot: ip4-1024 x4 avx2": 44.0,
    "graph: ip4-1024 default": 90.0,
}
CAMPAIGN = """
schema: quiver-campaign/1
name: t
quick: true
testbed: {kind: simulated, devices: {a: {capacity_pps: 1}}}
matrix: {dut: [a], link: [none], procedure: [p]}
procedures: {p: {kind: throughput}}
"""
CORE = {"graph-hot: core default": 1.25}
SMALL = {"instructions-v4: ip4-1024 Ip4Input, instructions": 50.0, "instructions-v4: ip4-1024 Lookup<V4>, instructions": 90.0}
MOVED = {"graph-sizes: core default": 1.24, **CORE}
"""The core's clock moved by less than a hundredth."""
RING = {
    f"graph-sizes: ip4-1024 {name}": value
    for name, value in (("v4", 300.0), ("default", 60.0), ("v512", 58.0), ("v1024", 61.0))
}
MISSES = {"cache: ip4-1024, misses": 0.25, "cache-v4: ip4-1024, misses": 2.0, "cache: l2-bridge-10, misses": 9.0}


def of(figures: dict[str, float], *, perf: str = "not supported", **machine: str) -> Evidence:
    text = {"schema": "quiver-bench/1", "machine": {"processor": "P", **machine}, "figures": figures}
    return Evidence(bench=BenchFile.model_validate(text), perf_lacking=perf)


def values(e: Evidence) -> dict[tuple[int, str], tuple[float, str]]:
    return {(c.vector, c.quantity): (c.value, c.kind) for c in counters.counted(e)}


def test_values_follow_from_the_file_and_say_what_they_are() -> None:
    assert values(of(FIGURES)) == {
        (256, "instructions_per_packet"): (100.0, "simulated"),
        (256, "tsc_clocks_per_packet"): (50.0, "timed"),
        (4, "tsc_clocks_per_packet"): (300.0, "timed"),
    }


def test_instructions_and_clocks_of_two_variants_make_no_quotient() -> None:
    assert not {q for _, q in values(of({**FIGURES, **CORE, **SMALL}))} & {"ipc", "instructions_per_tsc_clock"}
    assert counters.NO_IPC in counters.missing(of(FIGURES), "ipc")


def test_clocks_may_be_wrong_by_what_the_cores_clock_moved() -> None:
    assert counters.drift(of({**CORE, "graph-sizes: core default": 1.0})) == 1.25
    # Known once only, nobody can tell.
    assert counters.drift(of(CORE)) is None
    assert counters.drift(Evidence()) is None


def verdicts(e: Evidence) -> dict[str, findings.Judgement]:
    return {j.finding.id: j for j in evidence.judge(LINGUAGLOSSA2019, [], e)}


def test_findings_get_verdicts_where_the_file_has_small_vectors_and_else_say_what_is_missing() -> None:
    without = verdicts(of({**FIGURES, **CORE}))
    name = "instructions-fall-with-the-vector"
    assert without[name].verdict is Verdict.CANNOT_BE_TOLD
    assert "has vectors of 256 only (scripts/bench --only instructions-v" in without[name].why
    assert "hardware counters: not supported" in without[name].why
    full = verdicts(of({**FIGURES, **SMALL, **CORE}))
    # 100 of 140 instructions.
    assert full["instructions-fall-with-the-vector"].verdict is Verdict.HOLDS
    assert full["ipc-grows-in-forwarding"].verdict is Verdict.CANNOT_BE_TOLD
    assert counters.NO_IPC in full["ipc-grows-in-forwarding"].why
    other = verdicts(of({**FIGURES, **CORE, **{k: v / 3 for k, v in SMALL.items()}, "graph-hot: ip4-1024 v4": 20.0}))
    assert other["instructions-fall-with-the-vector"].verdict is Verdict.CONTRADICTED
    misses = full["instruction-misses-fall"]
    assert (misses.verdict, "no size (scripts/bench --only cache counts them)" in misses.why) == (Verdict.CANNOT_BE_TOLD, True)
    simulated = verdicts(of({**FIGURES, **MISSES}))["instruction-misses-fall"]
    assert (simulated.verdict, simulated.pairs[0].ratio) == (Verdict.HOLDS, 0.125)
    assert simulated.why.endswith("; simulated values, not measured")
    none = verdicts(of({**FIGURES, **MISSES, "cache: ip4-1024, misses": 2.0}))["instruction-misses-fall"]
    assert none.verdict is Verdict.CONTRADICTED
    assert "these trials have none (testbed.counters: perf)" in counters.missing(of(FIGURES, perf=""), "l1i_misses_per_packet")
    assert counters.missing(of(FIGURES), "receive_rate_pps") == ""


def test_clocks_stand_in_where_rates_are_the_testers() -> None:
    with_clocks = verdicts(of({**FIGURES, **RING, **MOVED}))
    for name in ("knee-near-256", "small-vectors-are-slower", "penalty-past-512"):
        assert with_clocks[name].verdict is Verdict.HOLDS
        assert with_clocks[name].why.startswith("by clocks of the benches: 1 of 1 pair")
        assert "no receive_rate_pps was measured" in with_clocks[name].why
        assert verdicts(of(FIGURES))[name].verdict is Verdict.CANNOT_BE_TOLD
    # Of trials: what the router's nodes count.
    (cell,) = campaign.parse(CAMPAIGN).cells()

    def node(pattern: str, clocks: float) -> evidence.Known:
        keys = {"dut": "candidate", "operation": "ip4", "pattern": pattern}
        return evidence.Known(cell, keys, {"graph_clocks": tuple(clocks + n / 10 for n in range(5))}, "")

    for clocks, verdict in ((105.0, Verdict.HOLDS), (115.0, Verdict.CONTRADICTED)):
        known = [node("static", 100.0), node("uniform", clocks)]
        judged = {j.finding.id: j for j in evidence.judge(LINGUAGLOSSA2019, known, of(FIGURES))}["static-to-uniform"]
        assert (judged.verdict, judged.why.startswith("by clocks of the nodes that forward: ")) == (verdict, True)
    slower = {
        **RING,
        "graph-sizes: ip4-1024 default": 70.0,
        "graph-sizes: ip4-1024 v4": 60.0,
        "graph-sizes: ip4-1024 v1024": 50.0,
    }
    other = verdicts(of({**FIGURES, **slower, **MOVED}))
    for name in ("knee-near-256", "small-vectors-are-slower", "penalty-past-512"):
        assert other[name].verdict is Verdict.CONTRADICTED


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make("linguaglossa2019", tmp_path_factory.mktemp("c") / "o", repeats=1)


def test_the_page_shows_them_beside_the_figures_and_reads_result_files_only(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panel(name: str) -> list[str]:
        text, _ = page.build(store, design("linguaglossa2019"), tmp_path / name)
        assert text.exists()
        return [
            row
            for row in (tmp_path / name / "beside.csv").read_text().splitlines()
            if row.startswith(("6a clocks,", "6b,", "6c,", "6d,"))
        ]

    assert panel("none") == []
    file = tmp_path / "bench.json"
    file.write_text(of({**FIGURES, **SMALL, **MISSES, **RING}).bench.model_dump_json(by_alias=True))  # type: ignore[union-attr]
    monkeypatch.setattr(hardware, "lacking", lambda: "perf: no such counter")
    counters.keep(store, file)
    file.unlink()
    rows = panel("some")
    assert any(row.startswith("6b,") and ",100.0," in row and "simulated, by callgrind" in row for row in rows)
    assert any(row.startswith("6a clocks,") and "vector_size=512" in row and ",58.0," in row for row in rows)
    assert any(row.startswith("6d,") and ",0.25," in row and "simulated, by callgrind in a cache" in row for row in rows)
    assert any(row.startswith("6c,") and "tsc_clocks_per_packet" in row and ",50.0," in row for row in rows)
    text = (tmp_path / "some" / "reproduction.html").read_text()
    assert "not from trials" in text
    assert "perf: no such counter" in text
    # What the paper says of the figure stays.
    assert "around 10%" in text
    assert store.archive(tmp_path / "a.tar.xz") == 3 + len(list(store.trials())) + len(list(store.runs()))
    (store.root / counters.FILE).write_text("{}x")
    with pytest.raises(StoreError, match="evidence.json"):
        counters.kept(store)
    (store.root / counters.FILE).unlink()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "top: "),
        ('{"schema": "quiver-bench/2", "machine": {}, "figures": {}}', "schema: "),
        ('{"schema": "quiver-bench/1", "machine": {}, "figures": {"a": -1}}', "figures.a: "),
        ('{"schema": "quiver-bench/1", "machine": {}}', "figures: "),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "b.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=says) as caught:
        counters.read_bench(file)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="No such file"):
        counters.read_bench(tmp_path / "none.json")


def test_the_committed_file_is_read() -> None:
    file = counters.checkout()
    assert file is not None
    found = values(counters.gather(None))
    assert found[256, "instructions_per_packet"][0] > 0
    assert json.loads(file.read_text())["schema"] == "quiver-bench/1"


@pytest.mark.parametrize(
    ("said", "lacking"),
    [
        ("1234567,,instructions,100.0,,", ""),
        ("<not supported>,,instructions,0,100.00,,", "perf stat -e instructions: <not supported>"),
        ("", "perf stat -e instructions: no answer"),
    ],
)
def test_the_probe_of_perf_tells_what_it_said(monkeypatch: pytest.MonkeyPatch, said: str, lacking: str) -> None:
    def answer(*_: Any) -> str:
        return said

    monkeypatch.setattr(hardware, "run", answer)
    assert hardware.lacking() == lacking


def test_clocks_that_were_taken_once_judge_nothing_where_nobody_knows_how_far_the_clock_moved() -> None:
    judged = verdicts(of({**FIGURES, **RING, **CORE}))["knee-near-256"]
    assert judged.verdict is Verdict.CANNOT_BE_TOLD
    # A clock that moved by a tenth leaves a difference of a twentieth open.
    judged = verdicts(of({**FIGURES, **RING, "graph-sizes: core default": 1.375, **CORE}))["knee-near-256"]
    assert judged.verdict is Verdict.CANNOT_BE_TOLD
    assert judged.interval is not None
    assert judged.interval.high > 1.05
