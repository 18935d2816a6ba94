"""The look at whether frames come through before anything is measured."""

from __future__ import annotations

import pytest

from quiver_lab.devices.base import CHECKS, DeviceError, check_connectivity
from quiver_lab.trial import Direction, Trial


class Scripted:
    """A measurer of which each trial loses so many frames in a hundred, the last figure for ever."""

    def __init__(self, *lost: int) -> None:
        self.lost = lost
        self.trials = 0

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        lost = self.lost[min(self.trials, len(self.lost) - 1)]
        self.trials += 1
        good = Direction(name="back", intended=100, sent=100, received=100, lost=0)
        bad = Direction(name="there", intended=100, sent=100, received=100 - lost, lost=lost)
        return Trial(duration_s=duration_s, valid=True, directions=(good, bad))


@pytest.mark.parametrize(("lost", "trials"), [((0,), 1), ((10,), 1), ((100, 11, 1), 3), ((*[100] * (CHECKS - 1), 0), CHECKS)])
def test_the_first_trial_that_comes_through_is_enough(lost: tuple[int, ...], trials: int) -> None:
    measurer = Scripted(*lost)
    check_connectivity(measurer)
    assert measurer.trials == trials


@pytest.mark.parametrize(
    ("lost", "words"), [(100, "no connectivity: of 100 frames there"), (11, "bad connectivity: .* 11 were lost")]
)
def test_a_device_through_which_nothing_comes_is_not_measured(lost: int, words: str) -> None:
    measurer = Scripted(lost)
    with pytest.raises(DeviceError, match=words):
        check_connectivity(measurer)
    assert measurer.trials == CHECKS
