"""Reproductions on simulated devices: every row and column, what is absent and why, ours beside the published, verdicts."""

from __future__ import annotations

import csv
import hashlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from quiver_lab import campaign, facts, findings, published, runner
from quiver_lab.campaign import Campaign
from quiver_lab.devices.router import runtime_readings
from quiver_lab.findings import Measured
from quiver_lab.published import PAPERS
from quiver_lab.report import drawing as drawings_of
from quiver_lab.reproduce import DESIGNS, Options, Scale, campaign_text, capacity, command, design, evidence, page
from quiver_lab.reproduce.beside import NO_DATA, NO_ENERGY, NOT_PUBLISHED, Panel, overload, panels
from quiver_lab.reproduce.calibrate import SEED_KERNEL_PPS, SEED_TOP_PPS, SEED_WORKER_PPS, scale_of, scale_of_best
from quiver_lab.reproduce.design import Design
from quiver_lab.reproduce.evidence import Known
from quiver_lab.store import Store, StoreError

SIMULATED: dict[str, Any] = {
    "kind": "simulated",
    "devices": {"quiver": {"capacity_pps": 400_000, "base_latency_us": 5}, "linux": {"capacity_pps": 40_000}},
}


def make(paper: str, folder: Path, **changes: Any) -> Store:
    options = Options(**{"testbed": SIMULATED, "scale": Scale(1 / 100, "a hundredth"), **changes})
    text = campaign_text(design(paper), options)
    store = Store.create(folder, campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(store).run()
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """Every paper's campaign, run once."""
    # Papers of fixed rates at a hundredth: then simulated devices lose what the papers' do.
    scales = {"slavik2025": Scale(1 / 100, "a hundredth")}
    return {p: make(p, tmp_path_factory.mktemp(p) / "o", repeats=1, scale=scales.get(p, Scale(1, "none"))) for p in PAPERS}


@pytest.fixture(params=PAPERS)
def done(request: pytest.FixtureRequest, stores: dict[str, Store]) -> tuple[str, Store]:
    return str(request.param), stores[str(request.param)]


def laid(paper: str, store: Store) -> tuple[list[Known], list[Panel]]:
    d = design(paper)
    known = evidence.known_cells(store, d)
    return known, panels(d, store.campaign, known, published.load(paper))


def local(paper: str, **changes: Any) -> Campaign:
    return campaign.parse(campaign_text(design(paper), Options(**changes)))


@pytest.mark.parametrize("paper", ["slavik2025", "kosak2025"])
def test_every_printed_cell_has_one_of_ours(paper: str) -> None:
    c, d = local(paper), design(paper)
    cells = [d.keys(cell, c) for cell in c.cells()]
    asked = 0
    for p in published.load(paper):
        wanted = d.wants(p, c)
        if p.kind == "prose" or isinstance(wanted, str):
            # Ratios of two cells have no cell of their own.
            assert p.kind in ("prose", "derived"), p
            continue
        if p.kind == "derived" and paper == "kosak2025":
            continue
        asked += 1
        assert any(all(keys.get(k) == v for k, v in wanted.items()) for keys in cells), p
    assert asked > 200


def test_extent_of_the_thesis() -> None:
    d, c = design("slavik2025"), local("slavik2025")
    all_same = [cell for cell in c.cells() if cell.link == "veth" and cell.procedure != "capacity"]
    same = [cell for cell in all_same if cell.throttle == 1]
    # Twelve tables of twenty rows, and the draft's four.
    assert len(same) == 244
    # Three rates of two sizes, one way and both ways, of two devices.
    assert len(all_same) - len(same) == 24
    hosts = local("slavik2025", hosts=True)
    assert {cell.throttle for cell in hosts.cells()} == {1}
    assert {d.keys(x, c)["rate_gbit_s"] for x in same} == {"0.5", "1", "10", "25", "40"}
    assert {x.sources for x in same if x.operation == "nat"} == {65_534}
    full = local("slavik2025", quick=False)
    assert (full.repeats, full.rest_s) == (20, 60)
    assert {getattr(p, "duration_s", 0) for p in full.procedures.values()} == {120}


@pytest.mark.parametrize("paper", PAPERS)
def test_quick_and_full_have_the_same_cells(paper: str) -> None:
    quick, full = local(paper), local(paper, quick=False)
    assert [c.slug for c in quick.cells()] == [c.slug for c in full.cells()]
    assert quick.quick
    assert not full.quick
    assert quick.repeats >= 5
    assert all(getattr(p, "duration_s", 1) >= 1 for p in quick.procedures.values())
    assert (full.repeats, full.reproduces) == ({"linguaglossa2019": 10}.get(paper, 20), paper)


def test_the_page_of_the_thesis_compares_capacities(stores: dict[str, Store], tmp_path: Path) -> None:
    page.build(stores["slavik2025"], design("slavik2025"), tmp_path)
    html = (tmp_path / "reproduction.html").read_text(encoding="utf-8")
    assert html.count("one worker with NAT beside one without") == 1
    assert "78 are within 2 points" in html
    ratios = list(csv.DictReader((tmp_path / "capacity.csv").read_text(encoding="utf-8").splitlines()))
    assert [r["ratio"] for r in ratios] == [r.text for r in capacity.RATIOS]
    nat = ratios[1]
    # Simulated devices forward as much with NAT as without; a single repeat gives no verdict.
    assert float(nat["here"]) == pytest.approx(1, abs=0.05)
    assert nat["verdict"] == "cannot be told"
    places = list(csv.DictReader((tmp_path / "predicted.csv").read_text(encoding="utf-8").splitlines()))
    deep = next(r for r in places if "rate_gbit_s=40;dut=candidate;workers=1" in r["cell"] and "one-way" in r["cell"])
    assert float(deep["published_loss_percent"]) == 89.53
    assert float(deep["by_ours_none"]) == pytest.approx(89.5, abs=0.5)
    page.build(stores["kosak2025"], design("kosak2025"), tmp_path / "other")
    assert not (tmp_path / "other" / "capacity.csv").exists()


def test_scale_keeps_the_ratios_of_the_rates() -> None:
    from quiver_lab import units  # noqa: PLC0415

    c = local("slavik2025", scale=Scale(1 / 250, "x"))
    rate = {n: units.parse_rate(getattr(p, "rate", ""), 64) for n, p in c.procedures.items() if n != "capacity"}
    assert rate["at-40-gbit"] == pytest.approx(SEED_TOP_PPS / 250)
    for a in ("1", "10", "25"):
        assert rate["at-40-gbit"] / rate[f"at-{a}-gbit"] == pytest.approx(40 / float(a))
        assert rate[f"at-{a}-gbit"] == rate[f"at-{a}-gbit-warm"]


def test_the_candidates_best_ports_have_rates_of_their_own() -> None:
    from quiver_lab import units  # noqa: PLC0415

    c = local("slavik2025", scale=Scale(1 / 120, "x"), best_scale=Scale(1 / 20, "y"))
    d = design("slavik2025")
    seen = set()
    for cell in c.cells():
        if cell.procedure == "capacity":
            continue
        rate = units.parse_rate(getattr(c.procedures[cell.procedure], "rate", ""), 64)
        printed = float(d.keys(cell, c)["rate_gbit_s"]) * 1e9 / 512
        assert rate == pytest.approx(printed / (20 if cell.link == "memif" else 120), rel=1e-5)
        seen.add(cell.link)
    assert seen == {"veth", "memif"}


def test_the_thesis_worker_is_what_its_tables_give() -> None:
    known = capacity.of_paper(published.load("slavik2025"))["one-way", "candidate", "1", "64"]
    assert statistics.median(known.values()) == pytest.approx(SEED_WORKER_PPS, rel=0.02)


def test_the_scale_follows_from_the_kernel_or_from_the_tester() -> None:
    deep = scale_of(sent_pps=1e9, delivered_pps=SEED_KERNEL_PPS / 50)
    assert deep.factor == pytest.approx(1 / 50)
    assert "as deep in overload" in deep.reason
    shallow = scale_of(sent_pps=1e6, delivered_pps=1e6)
    assert shallow.factor * SEED_TOP_PPS <= 1e6 / 2
    assert "cannot drive it deeper" in shallow.reason
    best = scale_of_best(sent_pps=1e9, delivered_pps=SEED_WORKER_PPS / 2)
    assert best.factor == pytest.approx(1 / 2)
    assert "one worker" in best.reason
    with pytest.raises(ValueError, match="--scale by hand"):
        scale_of(0, 1)


@pytest.mark.parametrize(("text", "factor"), [("1/200", 0.005), ("0.5", 0.5), ("1", 1.0)])
def test_scales_are_read(text: str, factor: float) -> None:
    assert command.parse_scale(text).factor == pytest.approx(factor)


@pytest.mark.parametrize("text", ["0", "2", "1/0", "x", "-1", "nan"])
def test_bad_scales_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as"):
        command.parse_scale(text)


def test_what_this_machine_cannot_carry_has_a_reason() -> None:
    for paper in PAPERS:
        c = local(paper)
        why = {p.cell.slug: p.absent for p in runner.plan(c)}
        for cell in c.cells():
            # Beside a packet generator the tester's core is the device's second one.
            cores = 2 if cell.link == "pg" else 1
            if cell.workers > cores or cell.numa == "far" or cell.clock_ghz or cell.instance:
                assert why[cell.slug], cell.slug
    lines = command.summary(c, runner.plan(c), lambda s: f"{s:.0f} s")
    assert "131 cells × 5 repeats" in lines[0]
    assert any("placement 2-cores needs 3 cores" in line for line in lines)


def test_each_place_has_a_value_or_says_why(done: tuple[str, Store]) -> None:
    paper, store = done
    known, all_panels = laid(paper, store)
    assert any(not k.why for k in known)
    for panel in all_panels:
        assert panel.rows or panel.note, panel.title
        for row in panel.rows:
            for entry in row.entries:
                assert entry.ours, (panel.title, row.keys, entry.quantity)
                for o in entry.ours:
                    assert (o.value is not None) or o.why, (panel.title, row.keys, entry.quantity)
                if entry.published is None:
                    assert entry.published_text == NO_DATA
                elif entry.published.value is None:
                    assert entry.published_text == NOT_PUBLISHED
                else:
                    assert f"seed {entry.published.seed}, line {entry.published.line}" in entry.source


def test_a_reproduction_is_a_page_tables_and_drawings(
    done: tuple[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper, store = done
    drawn = page.draw

    def few(d: Design, all_panels: Sequence[Panel]) -> list[tuple[Panel, list[drawings_of.Figure]]]:
        return [(panel, mine[:1] if i < 2 else []) for i, (panel, mine) in enumerate(drawn(d, all_panels))]

    monkeypatch.setattr(page, "draw", few)
    path, judgements = page.build(store, design(paper), tmp_path)
    text = path.read_text(encoding="utf-8")
    assert "Scale of all rates" in text
    archive = next(tmp_path.glob("*.tar.xz"))
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in text
    assert len(judgements) == len(findings.load(paper))
    for j in judgements:
        assert j.why
    with (tmp_path / "beside.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(r["here"] or r["why"] for r in rows)
    assert all(r["published"] for r in rows)
    assert all((r["seed"] and r["line"]) or r["published"] == NO_DATA for r in rows)
    drawings = list(tmp_path.glob("*.svg"))
    assert drawings
    for drawing in drawings[:4]:
        ElementTree.parse(drawing)
    assert "\\begin{tabular}" in (tmp_path / "beside.tex").read_text(encoding="utf-8")
    again, _ = page.build(Store.open(store.root), design(paper), tmp_path / "again")
    assert again.read_bytes() == path.read_bytes()


def test_the_thesis_gives_means_and_no_energy_without_a_meter(stores: dict[str, Store]) -> None:
    store = stores["slavik2025"]
    known, all_panels = laid("slavik2025", store)
    table = next(p for p in all_panels if p.name == "2.6")
    row = next(r for r in table.rows if r.keys["frame_bytes"] == "64" and r.keys["dut"] == "vpp" and r.keys["workers"] == "1")
    by = {e.quantity: e for e in row.entries}
    assert by["loss_percent"].published_text == "89.53"
    # 40 Gbit/s over 100 are 781 kpps of 64 B, of which 400 pass.
    assert by["loss_percent"].ours[0].value == pytest.approx((1 - 400_000 / (SEED_TOP_PPS / 100)) * 100, abs=0.01)
    assert by["energy_wh"].ours[0].why == NO_ENERGY
    assert by["packets_per_wh"].ours[0].why == NO_ENERGY
    kernel = next(r for r in table.rows if r.keys["frame_bytes"] == "64" and r.keys["dut"] == "linux")
    assert kernel.keys["workers"] == "10"
    assert next(e for e in kernel.entries if e.quantity == "loss_percent").ours[0].who == "linux, 1 core"
    nat = next(p for p in all_panels if p.name == "2.11")
    empty = [e for r in nat.rows for e in r.entries if e.published_text == NOT_PUBLISHED]
    # What the thesis leaves empty, ours fill.
    assert any(o.value is not None for e in empty for o in e.ours)
    depths = overload(known, published.load("slavik2025"), store.campaign, design("slavik2025"))
    assert any(theirs == pytest.approx(1 / (1 - 0.9543)) for _, theirs, _ in depths)


def test_energy_of_a_meter_stands_beside_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quiver_lab.meters.IDLE_S", 0.01)
    bed = {**SIMULATED, "meter": "simulated", "simulated_watts": 200.0}
    text = campaign_text(design("slavik2025"), Options(testbed=bed, repeats=1, scale=Scale(0.01, "x")))
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    only = command.parse_only(["procedure=at-10-gbit", "frame_bytes=64", "operation=one-way"])
    runner.Runner(store, only=only).run()
    _, all_panels = laid("slavik2025", store)
    row = next(r for p in all_panels if p.name == "2.4" for r in p.rows if r.keys["frame_bytes"] == "64")
    energy = next(e for e in row.entries if e.quantity == "energy_wh").ours[0]
    assert energy.value == pytest.approx(200 * 120 / 3600, rel=0.02)


def test_statistics_of_kosak_are_those_of_the_repeats(tmp_path: Path) -> None:
    noisy = {"kind": "simulated", "devices": {n: {"capacity_pps": 90_000, "noise": 0.02} for n in ("quiver", "linux")}}
    text = campaign_text(design("kosak2025"), Options(testbed=noisy, repeats=4))
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(store, only=command.parse_only(["dut=linux", "ip=4"])).run()
    known, all_panels = laid("kosak2025", store)
    table = next(p for p in all_panels if p.name == "V")
    rows = {r.keys["workers"]: {e.quantity: e.ours[0] for e in r.entries} for r in table.rows}
    one = next(k for k in known if k.keys["dut"] == "linux" and k.keys["ip"] == "4" and k.keys["workers"] == "1" and not k.why)
    values = one.values["throughput_pps"]
    assert rows["1"]["throughput_median_pps"].value == statistics.median(values)
    assert rows["1"]["throughput_stdev_pps"].value == pytest.approx(statistics.stdev(values))
    assert rows["1"]["throughput_dispersion_percent"].value == pytest.approx(
        (max(values) - min(values)) / statistics.median(values) * 100
    )
    # Simulated workers add up.
    assert rows["2"]["throughput_relative_to_half"].value == pytest.approx(2, rel=0.1)
    assert rows["8"]["throughput_scale_up"].value == pytest.approx(1, rel=0.1)
    slow = next(p for p in all_panels if p.name == "VI")
    assert all("clock rate" in o.why for r in slow.rows for e in r.entries for o in e.ours)


def test_verdicts_come_out_both_ways_by_the_devices(tmp_path: Path) -> None:
    def verdicts(kernel: float) -> dict[str, str]:
        bed = {"kind": "simulated", "devices": {"quiver": {"capacity_pps": 100_000}, "linux": {"capacity_pps": kernel}}}
        text = campaign_text(design("kosak2025"), Options(testbed=bed, repeats=3))
        store = Store.create(tmp_path / str(kernel), campaign.parse(text), text, facts.machine(), resume=False)
        runner.Runner(store, only=command.parse_only(["workers=1"])).run()
        known = evidence.known_cells(store, design("kosak2025"))
        return {j.finding.id: j.verdict.value for j in evidence.judge(design("kosak2025"), known)}

    tenth, same = verdicts(10_000), verdicts(100_000)
    assert tenth["kernel-outperformed-by-an-order-of-magnitude"] == "holds"
    assert same["kernel-outperformed-by-an-order-of-magnitude"] == "contradicted"
    assert tenth["far-numa-node-costs-a-sixth"] == "cannot be told"
    # Three repeats are too few to say how far values scatter.
    assert tenth["results-are-stable"] == "cannot be told"


def test_devices_are_judged_on_the_same_ports_and_shown_each_on_its_best(tmp_path: Path) -> None:
    d = design("kosak2025")
    finding = next(f for f in findings.load("kosak2025") if f.id == "kernel-outperformed-by-an-order-of-magnitude")

    def measured(dut: str, link: str, pps: float) -> Measured:
        return Measured({"dut": dut, "link": link, "workers": "1", "ip": "4"}, "throughput_pps", (pps,) * 3)

    kernel, veth, memif = measured("linux", "veth", 10), measured("candidate", "veth", 12), measured("candidate", "memif", 100)
    assert [ports for ports, _ in evidence.comparisons(finding, [veth, memif, kernel])] == [
        "same ports: veth", "each on its best ports: memif beside veth",
    ]  # fmt: skip
    (cell, *_) = local("kosak2025").cells()
    known = [Known(cell, m.cell, {m.quantity: m.values}, "") for m in (kernel, veth, memif)]
    found = {j.ports: j for j in evidence.judge(d, known) if j.finding.id == finding.id}
    assert {ports: (j.verdict.value, [x.ratio for x in j.pairs]) for ports, j in found.items()} == {
        "same ports: veth": ("direction only", [1.2]),
        "each on its best ports: memif beside veth": ("precondition not met", [10.0]),
    }
    assert "the ports are not the same" in found["each on its best ports: memif beside veth"].why
    # No choice: one comparison, of everything.
    assert evidence.comparisons(finding, [veth, kernel]) == [("", [veth, kernel])]
    other = next(f for f in findings.load("kosak2025") if f.id == "two-workers-double-the-rate")
    assert evidence.comparisons(other, [veth, memif, kernel]) == [("", [veth, memif, kernel])]


def test_a_verdict_says_why_its_cells_are_absent_and_what_it_rests_on(tmp_path: Path) -> None:
    d = design("slavik2025")
    text = campaign_text(d, Options(testbed=SIMULATED, repeats=5, scale=Scale(0.01, "x")))
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    only = ["operation=one-way", "dut=linux", "frame_bytes=64"]
    runner.Runner(store, only=command.parse_only(only)).run()
    by = {j.finding.id: j for j in evidence.judge(d, evidence.known_cells(store, d))}
    assert by["kernel-drops-in-every-size"].verdict.value == "holds"
    assert "4 not run yet" in by["kernel-drops-in-every-size"].why
    assert "not run yet" in by["kernel-drops-more-than-half"].why
    # The rest is run afterwards, and what is there is kept.
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("r*.json")}
    runner.Runner(store, only=command.parse_only(only[:2])).run()
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    by = {j.finding.id: j for j in evidence.judge(d, evidence.known_cells(store, d))}
    assert "not run yet" not in by["kernel-drops-in-every-size"].why


@pytest.mark.parametrize("word", ["frame_bytes", "colour=red", ""])
def test_bad_restrictions_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        command.parse_only([word])


def test_restrictions_that_leave_nothing_are_refused_with_the_values_there_are() -> None:
    planned = runner.plan(command.begin("kosak2025", Options(), None, scale=None, resume=False, measure=None)[1])
    assert 0 < len(command.choose(planned, ["workers=1"])) < len(planned)
    with pytest.raises(ValueError, match=r"no cell is like that; there are workers=1\|"):
        command.choose(planned, ["workers=99"])


def test_a_folder_is_gone_on_with_by_its_own_campaign_only(stores: dict[str, Store]) -> None:
    store = stores["kosak2025"]
    d, c, text = command.begin("kosak2025", Options(), store.root, scale=None, resume=True, measure=None)
    assert (d.name, c.repeats) == ("kosak2025", 1)
    assert text == (store.root / "campaign.yaml").read_text()
    with pytest.raises(StoreError, match="holds kosak2025"):
        command.begin("slavik2025", Options(), store.root, scale=None, resume=True, measure=None)
    with pytest.raises(ValueError, match="one of"):
        command.begin("nobody1999", Options(), None, scale=None, resume=False, measure=None)


def test_the_scale_is_measured_once_and_stands_in_the_campaign(tmp_path: Path) -> None:
    asked = []

    def measure(options: Options) -> tuple[Scale, Scale | None]:
        asked.append(options)
        return Scale(1 / 77, "measured"), Scale(1 / 11, "measured on memif")

    _, c, _ = command.begin("slavik2025", Options(), tmp_path / "o", scale=None, resume=False, measure=measure)
    assert (c.scale.factor, c.scale.reason, len(asked)) == (1 / 77, "measured", 1)
    assert [(link, s.factor, s.reason) for link, s in c.scale.links.items()] == [("memif", 1 / 11, "measured on memif")]
    _, c, _ = command.begin("slavik2025", Options(), tmp_path / "o", scale="1/9", resume=False, measure=measure)
    assert c.scale.factor == pytest.approx(1 / 9)
    assert len(asked) == 1
    _, c, _ = command.begin("kosak2025", Options(), tmp_path / "o", scale=None, resume=False, measure=measure)
    assert (c.scale.factor, len(asked)) == (1, 1)


def test_shares_of_r_plus_are_cells_of_their_own(stores: dict[str, Store]) -> None:
    store = stores["linguaglossa2019"]
    d = DESIGNS["linguaglossa2019"]
    known, all_panels = laid("linguaglossa2019", store)
    values = evidence.measured(known)
    found = {m.cell["load"] for m in values if m.quantity == "latency_mean_us" and "load" in m.cell}
    assert found == {"0.1", "0.5", "0.99"}
    ten = next(p for p in all_panels if p.name == "10")
    assert len(ten.rows) == 9
    said = {
        (r.keys["operation"], r.keys["load"]): e.published_text
        for r in ten.rows
        for e in r.entries
        if e.quantity == "latency_mean_us"
    }
    assert said["xc", "0.99"] == "24.3"
    assert said["ip4", "0.1"] == NO_DATA
    assert all(e.published is None for p in all_panels if p.name == "6a" for r in p.rows for e in r.entries)
    assert "over 8 million packets per second" in next(p for p in all_panels if p.name == "6a").note
    verdicts = {j.finding.id: j for j in evidence.judge(d, known)}
    near = verdicts["latency-grows-near-capacity"]
    assert len(near.pairs) == 3
    assert all(x.ratio >= 2 for x in near.pairs)
    # One repeat judges nothing.
    assert near.verdict.value == "cannot be told"
    assert "3 without an interval (it takes three repeats a side)" in near.why
    assert verdicts["ipc-grows-in-forwarding"].verdict.value == "cannot be told"


def test_runtime_of_a_router_is_read() -> None:
    text = """Thread 1 quiver_wk_0
             Name                 State         Calls          Vectors        Suspends      Packet-Clocks   Vectors/Call
arp-input                        active                  2               2               0          3.91e3            1.00
ethernet-input                   active              10000         2560000               0          9.47e1          256.00
ip4-lookup                       active              10000         2560000               0          5.60e1          256.00
ip4-rewrite                      fused               10000         2560000               0          0.00e0          256.00
clock-process                   time wait               17               0              17          1.23e4            0.00
"""
    assert runtime_readings(text) == {
        "node_ethernet-input_clocks": 94.7, "node_ip4-lookup_clocks": 56.0, "vector_mean_packets": 256.0, "lookup_clocks": 56.0,
    }  # fmt: skip
    assert runtime_readings("") == {}


def test_overload_is_what_was_missing() -> None:
    from quiver_lab.procedures import r_plus  # noqa: PLC0415
    from quiver_lab.simulate import SimulatedDevice  # noqa: PLC0415

    found = r_plus(SimulatedDevice(capacity_pps=1000), offered_pps=5000, duration_s=2, fractions=(0.1, 0.99))
    assert found.overloaded
    assert found.trial.delivered_pps == 1000
    assert [p.rate_pps for p in found.points] == [100, 990]
    slow = r_plus(SimulatedDevice(capacity_pps=9000, tester_max_pps=4000), offered_pps=5000, duration_s=2)
    assert slow.trial.missing > 0
    assert not slow.overloaded
    assert not r_plus(SimulatedDevice(capacity_pps=9000), offered_pps=5000, duration_s=2).overloaded
    with pytest.raises(ValueError, match="nothing came back"):
        r_plus(SimulatedDevice(capacity_pps=0), offered_pps=5000, duration_s=2, fractions=(0.5,))


def test_a_rate_that_was_the_testers_bears_no_finding(tmp_path: Path) -> None:
    # At a hundredth of the line rate the simulated device is never busy.
    d = design("linguaglossa2019")
    text = campaign_text(d, Options(testbed=SIMULATED, repeats=1, scale=Scale(1 / 100, "x")))
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(store, only=command.parse_only(["procedure=r-plus", "operation=cross-connect"])).run()
    known = evidence.known_cells(store, d)
    by = {j.finding.id: j for j in evidence.judge(d, known)}
    assert by["knee-near-256"].verdict.value == "cannot be told"
    assert "of 1 cells no run was valid (the tester may be the limit" in by["knee-near-256"].why
    shown = [o for p in panels(d, store.campaign, known, published.load(d.name)) if p.name == "6a"
             for r in p.rows if r.keys["operation"] == "xc" for e in r.entries if e.quantity == "receive_rate_pps"
             for o in e.ours]  # fmt: skip
    assert len(shown) == 9
    assert all(o.value and not o.valid and "not valid: the tester may be the limit" in o.why for o in shown)


def test_runs_that_are_not_valid_judge_nothing_whatever_the_quantity(tmp_path: Path) -> None:
    # The tester sends a tenth of what the device could take: every search ends at the tester's rate.
    bed = {"kind": "simulated", "devices": {n: {"capacity_pps": 1e6, "tester_max_pps": 1e5} for n in ("quiver", "linux")}}
    d = design("kosak2025")
    text = campaign_text(d, Options(testbed=bed, repeats=1))
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(store, only=command.parse_only(["workers=1"])).run()
    known = evidence.known_cells(store, d)
    measured_cells = [k for k in known if not k.why]
    assert measured_cells
    assert all(k.doubtful and not k.values for k in measured_cells)
    assert evidence.measured(known) == []
    assert {j.verdict.value for j in evidence.judge(d, known)} == {"cannot be told"}


def test_of_some_repeats_the_valid_ones_count(tmp_path: Path) -> None:
    d = design("kosak2025")
    text = campaign_text(d, Options(testbed=SIMULATED, repeats=3))
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(store, only=command.parse_only(["workers=1", "dut=linux", "ip=4"])).run()
    (file, *_) = sorted((tmp_path / "o" / "runs").rglob("r01-a0.json"))
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "valid": False, "values": {**record["values"], "throughput_pps": 1.0}}))
    known = [k for k in evidence.known_cells(store, d) if k.left_out]
    assert [(k.left_out, len(k.values["throughput_pps"]), min(k.values["throughput_pps"]) > 1) for k in known] == [(1, 2, True)]
    assert "1 of 3 repeats were not valid and are left out" in known[0].notes


def test_results_that_counted_the_unsent_as_lost_are_not_read(tmp_path: Path) -> None:
    d = design("kosak2025")
    text = campaign_text(d, Options(testbed=SIMULATED, repeats=1))
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(store, only=command.parse_only(["workers=1", "dut=linux", "ip=4"])).run()
    (file, *_) = sorted((tmp_path / "o" / "runs").rglob("r00-a0.json"))
    file.write_text(file.read_text().replace("quiver-lab-run/2", "quiver-lab-run/1"))
    with pytest.raises(StoreError, match="never sent as lost"):
        list(store.runs())


def test_bars_of_ours_do_not_carry_the_papers_processor(stores: dict[str, Store]) -> None:
    _, all_panels = laid("kosak2025", stores["kosak2025"])
    drawn = page.draw(design("kosak2025"), [p for p in all_panels if p.name == "IX"])
    names = [s.name for _, mine in drawn for f in mine for s in f.series]
    assert any("3.2 GHz" in n for n in names if n.startswith("published"))
    assert names
    ours = [n for n in names if n.startswith("here")]
    assert ours
    assert not any("GHz" in n or "cores 4" in n or "E5" in n for n in ours)


def test_notes_that_differ_in_numbers_are_said_once() -> None:
    notes = ["1 % left 3.1 ms late", "1 % left 12 ms late", "a link went down"]
    assert evidence.one_of_a_kind(notes) == (notes[0], notes[2])
