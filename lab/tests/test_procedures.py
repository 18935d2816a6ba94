"""The procedures besides the searches, on devices whose answer is known."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiver_lab.measurer import Tags
from quiver_lab.procedures import (
    back_to_back,
    fixed_rate,
    frame_loss_rate,
    latency,
    pdv,
    recovery,
    reset,
    soak,
    tagged_latency,
)
from quiver_lab.procedures.sudden import last_loss
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.trial import SeriesPoint, Trial


def test_loss_rate_ends_after_two_clean_trials() -> None:
    points = frame_loss_rate(SimulatedDevice(capacity_pps=750_000), max_pps=1_000_000, duration_s=60)
    assert [round(p.fraction, 3) for p in points] == [1.0, 0.9, 0.8, 0.7, 0.6]
    assert [round(p.loss_ratio, 4) for p in points] == [0.25, 0.1667, 0.0625, 0.0, 0.0]


def test_loss_rate_goes_down_to_the_last_step_where_loss_never_ends() -> None:
    points = frame_loss_rate(SimulatedDevice(capacity_pps=0), max_pps=1000, duration_s=1)
    assert len(points) == 10
    assert {p.loss_ratio for p in points} == {1.0}


def test_loss_rate_refuses_steps_beyond_the_rfc() -> None:
    with pytest.raises(ValueError, match="10 %"):
        frame_loss_rate(SimulatedDevice(capacity_pps=1), max_pps=1, step=0.2)


def test_loss_is_of_what_was_sent_and_what_was_not_is_a_figure_of_its_own() -> None:
    (trial,) = fixed_rate(SimulatedDevice(capacity_pps=250, tester_max_pps=500), rate_pps=1000, duration_s=2, repeats=1)
    assert (trial.intended, trial.sent, trial.lost, trial.unsent, trial.missing) == (2000, 1000, 500, 1000, 1500)
    assert (trial.loss_ratio, trial.unsent_ratio, trial.missing_ratio) == (0.5, 0.5, 0.75)
    assert not trial.valid


def test_a_trial_without_frames_proves_nothing() -> None:
    (trial,) = fixed_rate(SimulatedDevice(capacity_pps=1, tester_max_pps=0), rate_pps=1000, duration_s=2, repeats=1)
    assert (trial.loss_ratio, trial.unsent_ratio) == (1.0, 1.0)


def test_a_rate_that_was_not_reached_is_not_a_clean_one() -> None:
    points = frame_loss_rate(SimulatedDevice(capacity_pps=1e9, tester_max_pps=750), max_pps=1000, duration_s=10)
    assert [round(p.fraction, 3) for p in points] == [1.0, 0.9, 0.8, 0.7, 0.6]
    assert {p.loss_ratio for p in points} == {0.0}


def test_latency_is_measured_at_every_share_and_says_where_frames_were_lost() -> None:
    device = SimulatedDevice(capacity_pps=95_000)
    points = latency(device, throughput_pps=100_000, duration_s=2, repeats=2)
    assert [p.rate_pps for p in points] == [pytest.approx(n * 10_000) for n in range(1, 11)]
    assert [p.lossless for p in points] == [True] * 9 + [False]
    means = [p.trials[0].latency_mean_ns for p in points]
    assert all(a is not None and b is not None and a <= b for a, b in itertools.pairwise(means))


def test_of_tagged_frames_the_median_and_the_99_9th_percentile_count() -> None:
    device = SimulatedDevice(capacity_pps=1000, base_latency_ns=1000, directions=2)
    found = tagged_latency(device, rate_pps=500, duration_s=120, tags=Tags(500, 60))
    assert (found.typical_ns, found.worst_case_ns, found.frames) == (1500.0, 4500.0, 500)
    assert found.trial.sent == 120_000


@pytest.mark.parametrize("clock", ["card", "kernel"])
def test_times_of_devices_count_where_they_are_asked_for(clock: str) -> None:
    class Device(SimulatedDevice):
        def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
            """Times of the tester's own are ten times as long."""
            trial = super().measure_tagged(rate_pps, duration_s, tags)
            (d,) = trial.directions
            (stream,) = d.streams
            own = {key: value * 10 for key, value in stream["latency_ns"].items()}
            changed = d.model_copy(update={"streams": ({**stream, "latency_ns": own},)})
            return trial.model_copy(update={"directions": (changed,)})

    device = Device(capacity_pps=1000, base_latency_ns=1000)
    found, own = (
        tagged_latency(device, rate_pps=500, duration_s=120, tags=Tags(500, 60, whose)) for whose in (clock, "tester")
    )
    assert (found.typical_ns, found.worst_case_ns, found.frames) == (1500.0, 4500.0, 500)
    assert own.typical_ns == 15_000


def test_tagged_frames_that_do_not_come_back_have_no_latency() -> None:
    found = tagged_latency(SimulatedDevice(capacity_pps=0), rate_pps=500, duration_s=2, tags=Tags(5, 1))
    assert (found.typical_ns, found.worst_case_ns, found.frames) == (None, None, 0)
    with pytest.raises(ValueError, match="5 tagged frames from 2 s on in a trial of 2 s"):
        tagged_latency(SimulatedDevice(capacity_pps=1), rate_pps=500, duration_s=2, tags=Tags(5, 2))


def test_delay_variation_is_the_high_percentile_less_the_minimum() -> None:
    values = pdv(SimulatedDevice(capacity_pps=1000, base_latency_ns=1000), rate_pps=500, duration_s=1, repeats=3)
    # Half load: mean = 1000 * (1 + 0.5 / (2 * 0.5)) = 1500; the simulated 99.9th percentile is three times that.
    assert [value for value, _ in values] == [3500.0, 3500.0, 3500.0]


def test_delay_variation_without_latency_is_an_error() -> None:
    with pytest.raises(ValueError, match="no latency"):
        pdv(SimulatedDevice(capacity_pps=0), rate_pps=500, duration_s=1, repeats=1)


@given(buffer=st.integers(1, 5000), share=st.floats(0.1, 0.9))
@settings(max_examples=40)
def test_back_to_back_finds_the_buffer(buffer: int, share: float) -> None:
    line = 1_000_000.0
    device = SimulatedDevice(capacity_pps=line * share, buffer_frames=buffer)
    found = back_to_back(device, line_pps=line, throughput_pps=line * share, repeats=2)
    assert not found.at_limit
    # While the burst arrives, the device forwards: what remains is the buffer.
    assert found.corrected_buffer_s * line == pytest.approx(buffer, abs=2)


def test_back_to_back_at_the_line_rate_says_that_it_found_no_end() -> None:
    found = back_to_back(SimulatedDevice(capacity_pps=2e6), line_pps=1e6, throughput_pps=1e6, repeats=1)
    assert found.at_limit
    assert found.corrected_buffer_s == 0


@pytest.mark.parametrize("seconds", [0.0, 0.1, 1.5, 4.0])
def test_recovery_time_is_told_to_the_interval(seconds: float) -> None:
    device = SimulatedDevice(capacity_pps=100_000, recovery_s=seconds)
    found = recovery(device, throughput_pps=100_000, line_pps=1e6, overload_s=5, after_s=5)
    assert found.overloaded
    assert found.recovery_s == pytest.approx(seconds, abs=1e-6)


def test_recovery_that_never_ends_or_never_began_is_told() -> None:
    forever = SimulatedDevice(capacity_pps=100_000, recovery_s=1e9)
    assert recovery(forever, throughput_pps=100_000, line_pps=1e6, overload_s=2, after_s=2).recovery_s is None
    strong = SimulatedDevice(capacity_pps=1e9)
    assert not recovery(strong, throughput_pps=100_000, line_pps=1e6, overload_s=2, after_s=2).overloaded


def points(*counts: tuple[int, int]) -> tuple[SeriesPoint, ...]:
    """Intervals of a tenth of a second: sent and received."""
    return tuple(
        SeriesPoint(t_s=round((n + 1) / 10, 3), sent=sent, received=received, lost=sent - received)
        for n, (sent, received) in enumerate(counts)
    )


def test_a_queue_that_drains_is_not_taken_for_loss() -> None:
    # Ten frames stay under way for an interval, none is lost.
    assert last_loss(points((50, 40), (50, 50), (20, 30))) is None
    # Twenty-five are lost in the second interval, in which the queue is full; it drains in those after it.
    assert last_loss(points((50, 40), (50, 20), (20, 25), (20, 25), (20, 25), (20, 20))) == pytest.approx(0.2)
    # Three are lost in the third, which the ten under way hide; eleven would not be hidden.
    assert last_loss(points((50, 40), (50, 50), (50, 47), (50, 50), (0, 10))) == pytest.approx(0.1)
    assert last_loss(points((50, 40), (50, 50), (50, 39), (50, 50), (0, 10))) == pytest.approx(0.3)


@given(
    flows=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 8)), min_size=2, max_size=30),
)
@settings(max_examples=200)
def test_a_loss_is_never_told_later_than_it_was(flows: list[tuple[int, int, int]]) -> None:
    """Random frames sent, lost and under way; where nothing is under way, the answer is exact."""
    under_way, counts, last = 0, [], None
    for n, (sent, wanted, kept) in enumerate(flows):
        lost = min(wanted, sent)
        keep = 0 if n == len(flows) - 1 else min(kept, under_way + sent - lost)
        counts.append((sent, under_way + sent - lost - keep))
        under_way = keep
        last = round((n + 1) / 10, 3) if lost else last
    found = last_loss(points(*counts))
    assert (found is None) == (last is None)
    if found is not None and last is not None:
        assert found <= last
        assert found == last or any(kept for _, _, kept in flows)


def test_a_device_that_is_away_at_the_end_did_not_come_back() -> None:
    class Away(SimulatedDevice):
        """The tester began late, so that less is missing than the time after the reset."""

        def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
            trial = self._trial(200, 200, 90, duration_s, 0.5)
            (direction,) = trial.directions
            return trial.model_copy(
                update={"directions": (direction.model_copy(update={"series": points((110, 110), (90, 0), (0, 0))}),)}
            )

    found = reset(Away(capacity_pps=1e6), rate_pps=10, duration_s=20, reset_after_s=10)
    assert (found.lost, found.reset_s) == (90, None)


@pytest.mark.parametrize("seconds", [0.0, 0.25, 3.0])
def test_reset_time_is_lost_frames_over_the_rate(seconds: float) -> None:
    for directions in (1, 2):
        device = SimulatedDevice(capacity_pps=1e6, reset_s=seconds, directions=directions)
        found = reset(device, rate_pps=1000, duration_s=20, reset_after_s=5)
        assert found.reset_s == pytest.approx(seconds, abs=0.001)


def test_a_device_that_does_not_come_back_has_no_reset_time() -> None:
    assert reset(SimulatedDevice(capacity_pps=1e6, reset_s=99), rate_pps=1000, duration_s=20).reset_s is None


def test_soak_keeps_every_slice_and_names_the_worst() -> None:
    found = soak(SimulatedDevice(capacity_pps=500, stray_loss=0.5, seed=1), rate_pps=400, total_s=25, slice_s=10)
    assert [t.duration_s for t in found.slices] == [10, 10, 5]
    assert found.intended == 10_000
    assert found.lost == sum(t.lost for t in found.slices)
    assert found.loss_ratio == found.lost / 10_000
    assert found.slices[found.worst].loss_ratio == max(t.loss_ratio for t in found.slices)
