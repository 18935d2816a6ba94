"""Throughput and multi-goal search on devices whose answer is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from quiver_lab.procedures import PRESETS, Goal, mlrsearch, throughput
from quiver_lab.procedures.mlrsearch import BudgetError
from quiver_lab.simulate import SimulatedDevice


@given(capacity=st.integers(1, 2_000_000), top=st.integers(1, 2_000_000), directions=st.sampled_from([1, 2]))
@settings(max_examples=60)
def test_throughput_is_exact(capacity: int, top: int, directions: int) -> None:
    device = SimulatedDevice(capacity_pps=capacity, directions=directions)
    found = throughput(device, max_pps=top, duration_s=60)
    assert found.rate_pps == min(capacity, top)
    assert found.upper_pps == (None if capacity >= top else capacity + 1)
    assert len(found.trials) <= 2 + math.ceil(math.log2(top + 1))


def test_throughput_stops_at_the_resolution() -> None:
    device = SimulatedDevice(capacity_pps=777_777)
    found = throughput(device, max_pps=1_000_000, duration_s=60, resolution_pps=1000)
    assert found.rate_pps is not None
    assert found.upper_pps is not None
    assert found.rate_pps <= 777_777 < found.upper_pps
    assert found.upper_pps - found.rate_pps <= 1000


def test_throughput_of_a_dead_device_is_none_and_not_zero() -> None:
    found = throughput(SimulatedDevice(capacity_pps=0), max_pps=1000, duration_s=1)
    assert found.rate_pps is None
    assert found.upper_pps == 1


def test_a_tester_that_is_too_slow_is_named() -> None:
    found = throughput(SimulatedDevice(capacity_pps=1e6, tester_max_pps=400_000), max_pps=1e6, duration_s=60)
    assert found.rate_pps == 400_000
    assert found.limited_by_tester


def test_rates_far_out_of_the_testers_reach_are_not_asked_for() -> None:
    found = throughput(SimulatedDevice(capacity_pps=1e6, tester_max_pps=100_000), max_pps=1e6, duration_s=60)
    assert found.rate_pps == 100_000
    assert found.limited_by_tester
    asked = [rate for rate, _ in found.trials]
    assert asked.count(1_000_000) == 1
    assert not [rate for rate in asked if 120_000 < rate < 1_000_000]
    assert found.upper_pps is not None
    assert found.upper_pps <= 105_500
    assert asked.count(found.upper_pps) == 9, "at its limit the search asks three times, and comes back twice"
    assert len(asked) < 20


def test_throughput_below_a_loss_inversion_is_what_the_search_reports_when_it_meets_it() -> None:
    device = SimulatedDevice(capacity_pps=900_000, inversion_pps=(450_000, 550_000))
    found = throughput(device, max_pps=1_000_000, duration_s=60)
    assert found.rate_pps == 449_999


def test_a_search_without_loss_survives_spoilt_trials() -> None:
    found = [
        throughput(
            SimulatedDevice(capacity_pps=7e6, spoilt=0.2, seed=seed), max_pps=14_880_952, duration_s=2, resolution_pps=1000
        )
        for seed in range(400)
    ]
    rates = sorted(f.rate_pps or 0 for f in found)
    # The fifth percentile; without trying again it is 2.3 Mpps.
    assert rates[20] > 6.99e6
    assert rates[-1] <= 7e6
    assert sum(f.limited_by_tester for f in found) <= 4
    assert all(f.spoilt == sum(not t.valid for _, t in f.trials) for f in found)


@pytest.mark.parametrize("began_s", [0, 7, 13])
def test_a_multi_goal_search_survives_a_disturbed_minute(began_s: float) -> None:
    device = SimulatedDevice(capacity_pps=7e6, disturbed_s=(began_s, began_s + 60.0))
    found = mlrsearch(device, [PRESETS["ndr"], PRESETS["pdr"]], max_pps=14_880_952)
    assert all(r.spoilt >= 50 for r in found)
    for r in found:
        assert r.lower_pps is not None
        assert r.lower_pps == pytest.approx(7e6 / (1 - r.goal.loss_ratio), rel=r.goal.relative_width * 1.01)
        assert not r.limited_by_tester


def test_a_multi_goal_search_survives_spoilt_trials() -> None:
    for seed in range(20):
        device = SimulatedDevice(capacity_pps=7e6, spoilt=0.2, seed=seed)
        (found,) = mlrsearch(device, [PRESETS["ndr"]], max_pps=14_880_952)
        assert found.lower_pps is not None
        assert found.lower_pps == pytest.approx(7e6, rel=0.0051)


def test_a_multi_goal_search_says_that_the_tester_was_the_limit() -> None:
    (found,) = mlrsearch(SimulatedDevice(capacity_pps=7e6, tester_max_pps=1e6), [PRESETS["ndr"]], max_pps=14_880_952)
    assert found.lower_pps == pytest.approx(1e6, rel=0.0051)
    assert found.limited_by_tester


@pytest.mark.parametrize("bad", [{"max_pps": 0}, {"max_pps": 10, "min_pps": 20}, {"max_pps": 10, "resolution_pps": 0}])
def test_throughput_refuses_nonsense(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="rates|resolution"):
        throughput(SimulatedDevice(capacity_pps=1), duration_s=1, **bad)  # type: ignore[arg-type]


class _Oracle(AbstractMeasurer):  # type: ignore[misc]
    """The reference implementation's view of a simulated device."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        # Whole frames per second, as ours: loads between two of them are the same load here.
        trial = self.device.measure(round(intended_load), intended_duration)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=trial.intended,
            loss_count=trial.missing,
        )


def _oracle(device: SimulatedDevice, goals: list[Goal], top: int) -> dict[str, tuple[float | None, float | None]]:
    config = Config()
    theirs = {
        g.name: SearchGoal(
            loss_ratio=g.loss_ratio,
            exceed_ratio=g.exceed_ratio,
            relative_width=g.relative_width,
            initial_trial_duration=g.initial_trial_s,
            final_trial_duration=g.final_trial_s,
            duration_sum=g.duration_sum_s,
            preceding_targets=g.preceding_targets,
            fail_fast=False,
        )
        for g in goals
    }
    config.goals = list(theirs.values())
    config.min_load = 1.0
    config.max_load = float(top)
    config.warmup_duration = 0.0
    config.search_duration_max = 1e9
    results = MultipleLossRatioSearch(config).search(_Oracle(device), debug=lambda _: None)
    out = {}
    for name, goal in theirs.items():
        bounds = results[goal]
        low, high = bounds.relevant_lower_bound, bounds.relevant_upper_bound
        out[name] = (None if low is None else float(low), None if high is None else float(high))
    return out


@pytest.mark.parametrize("capacity", [3_000, 123_456, 777_777, 1_999_990, 5_000_000])
def test_multi_goal_search_and_the_reference_find_the_same_bounds(capacity: int) -> None:
    goals = [PRESETS["ndr"], PRESETS["pdr"], PRESETS["rfc2544"], PRESETS["tst009"]]
    mine, theirs = SimulatedDevice(capacity_pps=capacity), SimulatedDevice(capacity_pps=capacity)
    expected = _oracle(theirs, goals, 2_000_000)
    for result in mlrsearch(mine, goals, max_pps=2_000_000):
        low, high = expected[result.goal.name]
        knee = min(2_000_000, capacity / (1 - result.goal.loss_ratio))
        assert result.lower_pps is not None
        assert result.lower_pps <= knee + 1
        assert result.lower_pps >= knee * (1 - result.goal.relative_width) - 1
        # Both lie within one width below the knee, so within one width of each other.
        assert low is not None
        assert result.lower_pps == pytest.approx(low, rel=result.goal.relative_width * 1.01)
        assert (result.upper_pps is None) == (high is None)
    # Neither wastes trials against the other.
    spent, reference = (sum(d for _, d in device.calls) for device in (mine, theirs))
    assert spent <= reference * 1.5


def test_multi_goal_search_on_a_noisy_knee_agrees_with_the_reference() -> None:
    goals = [PRESETS["ndr"], PRESETS["pdr"]]
    for seed in range(5):
        make = {"capacity_pps": 500_000.0, "noise": 0.004, "seed": seed}
        expected = _oracle(SimulatedDevice(**make), goals, 1_000_000)  # type: ignore[arg-type]
        for result in mlrsearch(SimulatedDevice(**make), goals, max_pps=1_000_000):  # type: ignore[arg-type]
            low, _ = expected[result.goal.name]
            assert low is not None
            assert result.lower_pps is not None
            # The knee itself is blurred by 0.4 % (one standard deviation).
            assert result.lower_pps == pytest.approx(low, rel=0.02)


@given(
    capacity=st.integers(2, 3_000_000),
    loss=st.sampled_from([0.0, 0.005, 0.1]),
    exceed=st.sampled_from([0.0, 0.5]),
    width=st.sampled_from([0.001, 0.005, 0.05]),
)
@settings(max_examples=80)
def test_bounds_enclose_the_knee(capacity: int, loss: float, exceed: float, width: float) -> None:
    goal = Goal("g", loss, exceed, final_trial_s=4, duration_sum_s=12, relative_width=width)
    (found,) = mlrsearch(SimulatedDevice(capacity_pps=capacity), [goal], max_pps=1_000_000)
    knee = capacity / (1 - loss)
    # Counts are whole frames: on a few frames a second the ratio moves in steps.
    slack = 1 + 0.3 / (1 - loss)
    assert found.lower_pps is not None
    assert found.lower_pps <= knee + slack
    if found.upper_pps is None:
        assert found.lower_pps == 1_000_000
    else:
        assert found.upper_pps >= knee - slack
        assert found.upper_pps - found.lower_pps <= max(1, found.upper_pps * width * 1.000001)
    assert found.conditional_throughput_pps is not None
    assert found.lower_pps * (1 - loss) - 1e-6 <= found.conditional_throughput_pps <= found.lower_pps


def test_relevant_lower_bound_lies_below_a_loss_inversion() -> None:
    device = SimulatedDevice(capacity_pps=900_000, inversion_pps=(400_000, 600_000))
    goal = Goal("g", 0.0, 0.0, final_trial_s=2, duration_sum_s=2)
    (found,) = mlrsearch(device, [goal], max_pps=500_000)
    assert found.lower_pps is not None
    assert found.lower_pps < 400_000


def test_dead_device_has_no_lower_bound() -> None:
    goal = Goal("g", 0.0, 0.0, final_trial_s=1, duration_sum_s=1, initial_trial_s=1, preceding_targets=0)
    (found,) = mlrsearch(SimulatedDevice(capacity_pps=0), [goal], max_pps=1000)
    assert found.lower_pps is None
    assert found.upper_pps == 1
    assert found.conditional_throughput_pps is None


def test_half_of_the_time_may_be_bad_where_the_goal_says_so() -> None:
    device = SimulatedDevice(capacity_pps=500_000, stray_loss=0.3, seed=3)
    strict, lenient = (mlrsearch(device, [Goal("g", 0.0, exceed, 1, 21)], max_pps=1_000_000)[0] for exceed in (0.0, 0.5))
    assert lenient.lower_pps is not None
    assert lenient.lower_pps > 490_000
    assert strict.lower_pps is None or strict.lower_pps < 400_000


def test_a_search_keeps_to_its_budget() -> None:
    device = SimulatedDevice(capacity_pps=500_000)
    with pytest.raises(BudgetError, match="100 s"):
        mlrsearch(device, [PRESETS["rfc2544"]], max_pps=1_000_000, budget_s=100)
    assert sum(d for _, d in device.calls) <= 100


@pytest.mark.parametrize(
    "bad", [{"loss_ratio": 1.0}, {"exceed_ratio": -0.1}, {"initial_trial_s": 99.0}, {"preceding_targets": 0}]
)
def test_goals_that_cannot_be_reached_are_refused(bad: dict[str, float]) -> None:
    kwargs: dict[str, float] = {"loss_ratio": 0.0, "exceed_ratio": 0.0, "final_trial_s": 10.0, "duration_sum_s": 20.0}
    with pytest.raises(ValueError, match="goal g"):
        Goal("g", **{**kwargs, **bad})  # type: ignore[arg-type]
