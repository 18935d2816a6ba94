"""Campaign files: what they make, and that their errors are one line with the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign
from quiver_lab.execute import execute, expected
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.trial import Trial

BASE: dict[str, Any] = {
    "schema": "quiver-campaign/1",
    "name": "t",
    "quick": True,
    "testbed": {"kind": "simulated", "devices": {"a": {"capacity_pps": 1000}, "b": {"capacity_pps": 2000}}},
    "matrix": {"dut": ["a", "b"], "link": ["none"], "procedure": ["p"]},
    "procedures": {"p": {"kind": "throughput", "duration_s": 2}},
    "repeats": 2,
}


def text(**changes: Any) -> str:
    return yaml.safe_dump({**BASE, **changes})


def error_of(**changes: Any) -> str:
    with pytest.raises(campaign.CampaignError) as caught:
        campaign.parse(text(**changes), "c.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_combination_is_a_cell_but_for_what_is_excluded() -> None:
    matrix = {**BASE["matrix"], "operation": ["one-way", "nat"], "frame_bytes": [64, 512, 1518], "workers": [1, 2]}
    c = campaign.parse(text(matrix=matrix, exclude=[{"operation": "nat", "workers": 2}, {"dut": "b", "frame_bytes": 512}]))
    cells = list(c.cells())
    assert len(cells) == 2 * 2 * 3 * 2 - 2 * 3 - (2 * 2 - 1)
    assert len({cell.slug for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": "other/1"}, "c.yaml: schema: "),
        ({"name": "Bad Name"}, "c.yaml: name: "),
        ({"extra": 1}, "c.yaml: extra: "),
        ({"line_rate": "fast"}, "line rate 'fast': write it as"),
        ({"matrix": {**BASE["matrix"], "procedure": ["q"]}}, "'q' is not among procedures: p"),
        ({"matrix": {**BASE["matrix"], "dut": ["zz"]}}, "zz: not among testbed.devices"),
        ({"matrix": {**BASE["matrix"], "frame_bytes": [63]}}, "matrix.frame_bytes.0"),
        ({"procedures": {"p": {"kind": "guess"}}}, "procedures.p"),
        ({"procedures": {"p": {"kind": "fixed-rate", "rate": "quick"}}}, "rate 'quick'"),
        ({"procedures": {"p": {"kind": "mlrsearch", "goals": ["zero"]}}}, "['zero'] are not known: rfc2544"),
        ({"exclude": [{"colour": 1}]}, "unknown keys ['colour']"),
        ({"repeats": 0}, "repeats"),
        ({"testbed": {"kind": "local", "tester_core": 1, "dut_cores": [0, 1]}}, "tester's core is among the device's"),
    ],
)
def test_errors_name_the_place(changes: dict[str, Any], says: str) -> None:
    assert says in error_of(**changes)


def test_a_file_that_is_no_campaign_is_one_line(tmp_path: Path) -> None:
    for content in ("", "[", "- 1", "a: b: c"):
        with pytest.raises(campaign.CampaignError) as caught:
            campaign.parse(content, "c.yaml")
        assert "\n" not in str(caught.value)
    with pytest.raises(campaign.CampaignError, match="No such file"):
        campaign.load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "throughput", "duration_s": 59},
        {"kind": "loss-rate", "duration_s": 2},
        {"kind": "latency", "search_s": 60, "duration_s": 60},
        {"kind": "latency", "search_s": 2, "duration_s": 120},
        {"kind": "pdv", "rate": "10pps", "duration_s": 30},
        {"kind": "tagged-latency", "tag_after_s": 30},
        {"kind": "tagged-latency", "tagged_frames": 499},
        {"kind": "tagged-latency", "duration_s": 119},
    ],
)
def test_trials_shorter_than_the_rfcs_need_to_be_called_quick(spec: dict[str, Any]) -> None:
    assert "quick: true" in error_of(quick=False, procedures={"p": spec})
    campaign.parse(text(procedures={"p": spec}))


SPECS: list[dict[str, Any]] = [
    {"kind": "throughput", "duration_s": 2},
    {"kind": "mlrsearch", "goals": ["ndr", "pdr"]},
    {"kind": "loss-rate", "duration_s": 2},
    {"kind": "latency", "search_s": 2, "duration_s": 2},
    {"kind": "tagged-latency", "search_s": 2, "duration_s": 2, "tag_after_s": 1, "tagged_frames": 5},
    {"kind": "back-to-back", "search_s": 2},
    {"kind": "fixed-rate", "rate": "300000pps", "duration_s": 2},
    {"kind": "pdv", "rate": "50%", "duration_s": 2},
    {"kind": "soak", "rate": "300kpps", "total_s": 25, "slice_s": 10},
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: str(s["kind"]))
def test_every_procedure_runs_and_keeps_to_its_estimate(spec: dict[str, Any]) -> None:
    c = campaign.parse(text(line_rate="1Gbps", procedures={"p": spec}))
    cell = next(iter(c.cells()))
    device = SimulatedDevice(capacity_pps=500_000, buffer_frames=100)
    outcome = execute(cell, c.procedures["p"], c.line_bit_per_s, device)
    assert outcome.primary in outcome.values
    assert outcome.values[outcome.primary] is not None
    trials, seconds = expected(cell, c.procedures["p"], c.line_bit_per_s)
    assert len(device.calls) <= trials
    # The lowest rates still send one frame, which takes a little longer than they say.
    assert sum(d for _, d in device.calls) <= seconds * 1.001
    assert all(
        name.endswith(("_pps", "_percent", "_us", "_frames", "worst_slice")) or "percent" in name for name in outcome.values
    )


def test_known_device_gives_known_values() -> None:
    c = campaign.parse(text(line_rate="1Gbps", procedures={"p": SPECS[3]}))
    cell = next(iter(c.cells()))
    values = execute(
        cell, c.procedures["p"], c.line_bit_per_s, SimulatedDevice(capacity_pps=500_000, base_latency_ns=1000)
    ).values
    assert values["throughput_pps"] == 500_000
    # Half load of that device: 1 µs and half as much again.
    assert values["at_50_percent_latency_mean_us"] == pytest.approx(1.5)
    assert values["at_50_percent_loss_percent"] == 0
    dead = execute(cell, c.procedures["p"], c.line_bit_per_s, SimulatedDevice(capacity_pps=0))
    assert dead.values == {"throughput_pps": None}
    assert "no rate passed" in dead.notes[0]
    assert not dead.valid


def test_a_search_without_a_result_is_not_valid_and_says_why() -> None:
    c = campaign.parse(text(line_rate="1Gbps", procedures={"p": {"kind": "mlrsearch", "goals": ["ndr", "pdr"]}}))
    cell = next(iter(c.cells()))
    outcome = execute(cell, c.procedures["p"], c.line_bit_per_s, SimulatedDevice(capacity_pps=5e5, spoilt=1.0))
    assert outcome.values["ndr_lower_bound_pps"] is None
    assert not outcome.valid
    assert any("trials of the search were not valid" in n for n in outcome.notes)


def test_a_trial_that_is_not_valid_has_no_latency_at_a_share() -> None:
    c = campaign.parse(text(line_rate="1Gbps", procedures={"p": SPECS[3]}))
    cell = next(iter(c.cells()))

    class SpoiltLater(SimulatedDevice):
        """Everything after the search is spoilt."""

        def measure(self, rate_pps: float, duration_s: float) -> Trial:
            trial = super().measure(rate_pps, duration_s)
            return trial.model_copy(update={"valid": False, "reasons": ("disturbed",)}) if rate_pps == 250_000 else trial

    outcome = execute(cell, c.procedures["p"], c.line_bit_per_s, SpoiltLater(capacity_pps=500_000))
    assert outcome.values["throughput_pps"] == 500_000
    assert outcome.values["at_50_percent_latency_mean_us"] is None
    assert any("the trial was not valid: disturbed" in n for n in outcome.notes)
