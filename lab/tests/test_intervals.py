"""Intervals of ratios and medians: known distributions, and as often right as their level says."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from scipy import stats as scipy_stats

from quiver_lab import intervals


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (3, 3), (4, 2), (5, 5)])
def test_orders_are_counted_as_by_trying_all(n: int, m: int) -> None:
    found: Counter[int] = Counter()
    for mine in itertools.combinations(range(n + m), n):
        others = [x for x in range(n + m) if x not in mine]
        found[sum(a > b for a in mine for b in others)] += 1
    assert intervals.arrangements(n, m) == tuple(found[u] for u in range(n * m + 1))


def test_three_a_side_give_the_widest_and_fewer_none() -> None:
    found = intervals.of_ratio([10, 11, 12], [1, 2, 4])
    assert found is not None
    assert (found.low, found.high, found.level) == (10 / 4, 12 / 1, 0.90)
    assert intervals.of_ratio([10, 11, 12], [1, 2]) is None
    assert intervals.of_ratio([10], [1]) is None
    assert intervals.of_ratio([10, 11, 12], [1, 2, 4], level=0.95) is None


def test_five_a_side_leave_the_outermost_out() -> None:
    a, b = [1.0, 2.0, 4.0, 8.0, 16.0], [1.0, 1.1, 1.2, 1.3, 1.4]
    found = intervals.of_ratio(a, b)
    ratios = sorted(x / y for x in a for y in b)
    # Of 252 orders 1 + 1 + 2 + 3 + 5 have U at most 4: 4.8 %.
    assert found is not None
    assert (found.low, found.high) == (ratios[4], ratios[-5])


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 4), (5, 5), (3, 8)])
def test_the_true_ratio_lies_within_as_often_as_the_level_says(n: int, m: int) -> None:
    chance, inside, rounds = random.Random(7), 0, 4000
    for _ in range(rounds):
        a = [3 * math.exp(chance.gauss(0, 0.3)) for _ in range(n)]
        b = [2 * math.exp(chance.gauss(0, 0.3)) for _ in range(m)]
        found = intervals.of_ratio(a, b)
        assert found is not None
        inside += found.low <= 1.5 <= found.high
    # Not below 90 % by more than three standard errors; three a side give exactly 90.
    assert inside / rounds > 0.90 - 3 * math.sqrt(0.9 * 0.1 / rounds)
    assert (n, m) != (3, 3) or inside / rounds < 0.92


def test_an_interval_leaves_one_out_where_the_test_tells_them_apart() -> None:
    chance = random.Random(1)
    for _ in range(300):
        a, b = ([chance.gauss(mean, 1) + 10 for _ in range(5)] for mean in (0.0, chance.choice([0.0, 1.5])))
        found = intervals.of_ratio(a, b)
        assert found is not None
        p = scipy_stats.mannwhitneyu(a, b, alternative="two-sided", method="exact").pvalue
        assert (p <= 0.10) == (not found.low <= 1 <= found.high)


def test_none_beside_none_is_as_much() -> None:
    found = intervals.of_ratio([0, 0, 0], [0, 0, 0])
    assert found is not None
    assert (found.low, found.high) == (1, 1)
    more = intervals.of_ratio([1, 2, 3], [0, 0, 0])
    assert more is not None
    assert more.low == math.inf


def test_a_median_takes_five_values() -> None:
    assert intervals.of_median([1, 2, 3, 4]) is None
    found = intervals.of_median([5, 1, 2, 3, 4])
    assert found is not None
    assert (found.low, found.high) == (1, 5)
    wide = intervals.of_median(range(1, 21))
    # 6 of 20 below the median by chance: 5.8 %; 5: 2.1 %.
    assert wide is not None
    assert (wide.low, wide.high) == (6, 15)


def test_one_pair_of_many_beyond_a_bound_is_chance() -> None:
    assert intervals.more_than_chance(1, 1)
    assert not intervals.more_than_chance(1, 2)
    assert intervals.more_than_chance(2, 4)
    assert not intervals.more_than_chance(2, 10)
    assert not intervals.more_than_chance(0, 1)
