"""Statistics, each named exactly; pure functions over numbers.

Quantities of seed 001 keep its definitions: *dispersion* is (maximum - minimum) / median in per cent, *relative to half as
many cores* is P(n) / P(n/2), *relative scale-up* is S(n) = P(n) / P(1) / n.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """One cell's repeats."""

    count: int
    median: float
    minimum: float
    maximum: float
    mean: float
    stdev: float | None
    """Of the sample (n - 1); none of a single value."""
    dispersion_percent: float | None
    """None where the median is 0."""


def summary(values: Sequence[float]) -> Summary:
    """Summarise at least one value."""
    if not values:
        raise ValueError("no values to summarise")
    middle = statistics.median(values)
    low, high = min(values), max(values)
    return Summary(
        count=len(values),
        median=middle,
        minimum=low,
        maximum=high,
        mean=statistics.fmean(values),
        stdev=statistics.stdev(values) if len(values) > 1 else None,
        dispersion_percent=dispersion_percent(low, high, middle),
    )


def dispersion_percent(minimum: float, maximum: float, median: float) -> float | None:
    """(maximum - minimum) / median in per cent (seed 001, formula 1); none where the median is 0."""
    return (maximum - minimum) / median * 100 if median else None


def relative_to_half(by_cores: Mapping[int, float]) -> dict[int, float]:
    """P(n) / P(n/2) for every n whose half was measured too."""
    return {n: by_cores[n] / by_cores[n // 2] for n in sorted(by_cores) if n % 2 == 0 and by_cores.get(n // 2)}


def scale_up(by_cores: Mapping[int, float]) -> dict[int, float]:
    """S(n) = P(n) / P(1) / n (seed 001, formula 2)."""
    one = by_cores.get(1)
    if not one:
        raise ValueError("scale-up needs the performance of one core, above 0")
    return {n: by_cores[n] / one / n for n in sorted(by_cores)}


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    level: float


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled."""
    middle = statistics.median(values)
    return statistics.median(abs(v - middle) for v in values)


def odd_values(values: Sequence[float], *, mads: float = 5.0, floor: float = 0.0) -> tuple[int, ...]:
    """Indices of values further than ``mads`` median absolute deviations from the median.

    ``floor`` is the smallest deviation worth the name (a search's resolution): where most repeats agree exactly, the deviation
    is 0 and every other value would be odd. Below three values nothing is odd.
    """
    if len(values) < 3:
        return ()
    middle = statistics.median(values)
    limit = mads * max(mad(values), floor)
    return tuple(i for i, v in enumerate(values) if abs(v - middle) > limit)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B."""

    count_a: int
    count_b: int
    median_a: float
    median_b: float
    ratio: float | None
    """Median of A over median of B; none where the latter is 0."""
    p_value: float
    """Two-sided Mann-Whitney U: exact without ties, normal approximation with tie correction otherwise."""
    cliffs_delta: float
    """Effect size from -1 (all of A below all of B) to 1; |d| < 0.147 is called negligible, < 0.33 small, < 0.474 medium."""

    @property
    def effect(self) -> str:
        """The effect size in a word (thresholds of Romano et al. 2006)."""
        size = abs(self.cliffs_delta)
        for limit, word in ((0.147, "negligible"), (0.33, "small"), (0.474, "medium")):
            if size < limit:
                return word
        return "large"


def compare(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Compare two cells' repeats; order and pairing do not matter, interleave the runs all the same."""
    if not a or not b:
        raise ValueError("both sides need at least one value")
    tied = len(set(a) | set(b)) < len(a) + len(b)
    if len(set(a) | set(b)) == 1:
        u, p = len(a) * len(b) / 2, 1.0
    else:
        from scipy import stats as scipy_stats  # noqa: PLC0415  (a command that needs none of this starts half a second sooner)

        test = scipy_stats.mannwhitneyu(a, b, alternative="two-sided", method="asymptotic" if tied else "exact")
        u, p = float(test.statistic), float(test.pvalue)
    median_a, median_b = statistics.median(a), statistics.median(b)
    return Comparison(
        count_a=len(a),
        count_b=len(b),
        median_a=median_a,
        median_b=median_b,
        ratio=median_a / median_b if median_b else None,
        p_value=p,
        cliffs_delta=2 * u / (len(a) * len(b)) - 1,
    )


def smallest_p(count_a: int, count_b: int) -> float:
    """Smallest two-sided p that so many values can give: with 3 against 3 no difference ever gets below 0.1."""
    return 2 / math.comb(count_a + count_b, count_a)


def stability_warnings(values: Sequence[float], *, dispersion_limit_percent: float = 10.0) -> tuple[str, ...]:
    """What makes a cell's figures doubtful, in words."""
    found = []
    if len(values) < 3:
        found.append(f"only {len(values)} repeat{'s' if len(values) != 1 else ''}")
    if not values:
        return tuple(found)
    s = summary(values)
    if s.dispersion_percent is not None and s.dispersion_percent > dispersion_limit_percent:
        found.append(f"dispersion {s.dispersion_percent:.1f} % is above {dispersion_limit_percent:g} %")
    if len(values) >= 6:
        from scipy import stats as scipy_stats  # noqa: PLC0415  (see above)

        # A trend over the repeats says that the machine changed while it was measured.
        tau = scipy_stats.kendalltau(range(len(values)), values)
        if float(tau.pvalue) < 0.05:
            found.append(f"values drift from repeat to repeat (Kendall's tau {float(tau.statistic):+.2f})")
    return tuple(found)
