"""Intervals of medians and of their ratios, exact for few repeats, and when several pairs contradict more than chance would.

*Ratio of two medians*: the Mann-Whitney test turned round. All ratios of a value of one side and a value of the other are put
in order; the k-th smallest and the k-th largest bound the interval, where k follows from the distribution of the test's U. It
is exact where both sides scatter alike about their medians, whatever the distribution.

*Median*: the sign test turned round, by order statistics; exact for any continuous distribution.

Levels are two-sided; 90 % leaves 5 % beyond each bound, which is what a claim in one direction, or "it lies within a range"
(two one-sided tests), is judged at. Three repeats a side are the fewest that give an interval of a ratio, five one of a median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from quiver_lab.stats import Interval

LEVEL = 0.90
_EPSILON = 1e-12


@cache
def arrangements(n: int, m: int) -> tuple[int, ...]:
    """In how many orders of ``n`` and ``m`` values U is 0, 1, … n·m."""
    if n == 0 or m == 0:
        return (1,)
    out = [0] * (n * m + 1)
    # The largest value belongs to the first side, and beats all m of the other, or to the second.
    for u, count in enumerate(arrangements(n - 1, m)):
        out[u + m] += count
    for u, count in enumerate(arrangements(n, m - 1)):
        out[u] += count
    return tuple(out)


def _rank(counts: Sequence[int], total: int, level: float) -> int:
    """The largest k of which the k smallest outcomes together have at most the tail's probability; 0 where there is none."""
    tail, below = (1 - level) / 2, 0
    for k, count in enumerate(counts):
        below += count
        if below / total > tail + _EPSILON:
            return k
    return 0


def of_ratio(a: Sequence[float], b: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Interval of median(a) / median(b); none where so few values cannot give one of this level."""
    k = _rank(arrangements(len(a), len(b)), math.comb(len(a) + len(b), len(a)), level)
    if k == 0:
        return None
    ratios = sorted(_ratio(x, y) for x in a for y in b)
    return Interval(ratios[k - 1], ratios[-k], level)


def _ratio(x: float, y: float) -> float:
    if y == 0:
        return 1.0 if x == 0 else math.inf
    return x / y


def of_median(values: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Interval of the median; none where so few values cannot give one of this level."""
    n = len(values)
    k = _rank([math.comb(n, i) for i in range(n + 1)], 2**n, level)
    if k == 0:
        return None
    ordered = sorted(values)
    return Interval(ordered[k - 1], ordered[-k], level)


def more_than_chance(count: int, of: int, *, level: float = LEVEL) -> bool:
    """Whether more of some pairs lie beyond a bound than chance explains: each does so in (1 - level) / 2 of cases."""
    tail = (1 - level) / 2
    by_chance = sum(math.comb(of, i) * tail**i * (1 - tail) ** (of - i) for i in range(count, of + 1))
    return count > 0 and by_chance <= tail + _EPSILON
