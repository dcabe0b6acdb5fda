"""What the spread of some log-ratios allows to say; the model is in the package."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from ..models import check_count

LEVEL = 0.05
IGNORED = 0.01
LIMIT = 0.05
WANTED = 0.9  # the power that "so many more" aims at
MOST = 10_000


@dataclass(frozen=True)
class Judgement:
    """What may be said of one ratio.

    verdict
        "slower", "fine" or "cannot tell".
    change, low, high
        how much slower, and the bounds: 0.05 is 5 % slower, -0.05 is 5 % faster.
    spread
        standard deviation of one log-ratio of this run: about 0.02 for 2 %.
    pairs
        how many there were.
    needed
        where it cannot be told: how many would find ``limit`` nine times out of ten
        with this spread; None where no number does, as the baseline is not known so
        well, and where it can be told.
    """

    verdict: str
    change: float
    low: float
    high: float
    spread: float
    pairs: int
    needed: int | None


def judge(
    log_ratios: ArrayLike,
    baseline: ArrayLike | None = None,
    *,
    level: float = LEVEL,
    tests: int = 1,
    ignored: float = IGNORED,
    limit: float = LIMIT,
) -> Judgement:
    """Whether some ratios of times are larger than those of the baseline.

    log_ratios
        (n,), n >= 2, as :func:`specdec_lib.bench.measure_pairs` gives them: independent
        of one another, about normal.
    baseline
        (m,), m >= 2, of the same kind; None: known to be 0, that is, both alike.
    level, tests
        the chance of a false alarm, 0 < level < 0.5, for all of ``tests`` questions
        together: each has level / tests.
    ignored, limit
        changes that nobody minds, and that nobody wants; 0 <= ignored < limit.

    Raises ValueError for anything else.

    Source: Welch 1947 (standard error and degrees of freedom); Bonferroni.

    >>> judge([0.05, 0.06, 0.055, 0.045]).verdict
    'slower'
    >>> judge([0.001, -0.002, 0.0, 0.002]).verdict
    'fine'
    >>> judge([0.2, -0.1, 0.1, -0.15]).verdict
    'cannot tell'
    """
    _check(level, ignored, limit)
    check_count("tests", tests, least=1)
    x = _checked(log_ratios, "log_ratios")
    parts = [(x.var(ddof=1) / len(x), len(x) - 1)]
    centre = x.mean()
    if baseline is not None:
        y = _checked(baseline, "baseline")
        parts.append((y.var(ddof=1) / len(y), len(y) - 1))
        centre -= y.mean()
    error, freedom = _welch(parts)
    half = t_quantile(1 - level / tests, freedom) * error
    low, high = centre - half, centre + half
    if high < math.log1p(limit):
        verdict = "fine"
    else:
        verdict = "slower" if low > math.log1p(ignored) else "cannot tell"
    spread = float(x.std(ddof=1))
    needed = None
    if verdict == "cannot tell":
        needed = _needed(spread, parts[1:], level / tests, ignored, limit)
    return Judgement(
        verdict,
        float(math.expm1(centre)),
        float(math.expm1(low)),
        float(math.expm1(high)),
        spread,
        len(x),
        needed,
    )


def power(
    effect: float,
    spread: float,
    pairs: int,
    level: float = LEVEL,
    *,
    ignored: float = IGNORED,
    limit: float = LIMIT,
) -> float:
    """How often :func:`judge` says "slower" where something is slower by ``effect``.

    effect
        0.05 is 5 %; > -1.
    spread
        standard deviation of one log-ratio, > 0.
    pairs
        how many, >= 2.

    Normal noise, and no baseline; other arguments as there. At effects of ``ignored``
    and less this is the rate of false alarms, at most ``level``; at ``limit`` itself
    it ends at 1 - level, since with that chance the bound above lies below. Calculated,
    by an integral over what the standard deviation of a sample may be, not simulated.

    >>> [round(power(0.05, 0.03, n), 2) for n in (5, 10, 20, 40)]
    [0.74, 0.94, 0.95, 0.95]
    """
    _check(level, ignored, limit)
    check_count("pairs", pairs, least=2)
    if not effect > -1:
        raise ValueError(f"effect must be above -1, got {effect}")
    if not 0 < spread < math.inf:
        raise ValueError(f"spread must be finite and > 0, got {spread}")
    error = spread / math.sqrt(pairs)
    return _power(effect, error, pairs - 1.0, level, ignored, limit)


def share_found(
    log_ratios: ArrayLike,
    pairs: int,
    level: float = LEVEL,
    *,
    ignored: float = IGNORED,
    limit: float = LIMIT,
) -> float:
    """How often :func:`judge` does say "slower", given ``pairs`` of these at a time.

    They are taken in their order, and none twice; what is left at the end is not used.
    Beside :func:`power` it shows whether the noise is as the model has it. ValueError
    where there are not so many.

    >>> share_found([0.05, 0.06, 0.04, 0.2, -0.2, 0.1], pairs=3)
    0.5
    """
    x = _checked(log_ratios, "log_ratios")
    check_count("pairs", pairs, least=2)
    if len(x) < pairs:
        raise ValueError(f"log_ratios must be {pairs} or more, got {len(x)}")
    groups = x[: len(x) // pairs * pairs].reshape(-1, pairs)
    found = [
        judge(each, level=level, ignored=ignored, limit=limit).verdict == "slower"
        for each in groups
    ]
    return sum(found) / len(found)


def pairs_needed(
    spread: float,
    level: float = LEVEL,
    *,
    ignored: float = IGNORED,
    limit: float = LIMIT,
) -> int | None:
    """The fewest pairs that find a slowness of ``limit`` nine times out of ten.

    By :func:`power`, whose arguments they are. None where that is more than 10,000.

    >>> pairs_needed(0.03)
    8
    """
    _check(level, ignored, limit)
    if not 0 <= spread < math.inf:
        raise ValueError(f"spread must be finite and >= 0, got {spread}")
    return _needed(spread, (), level, ignored, limit)


@lru_cache(maxsize=1024)
def t_quantile(p: float, freedom: float) -> float:
    """The p-quantile of Student's t: below it lies a share of p.

    freedom
        >= 1, any real number.

    With t = sqrt(freedom) tan(angle) the density becomes cos(angle) ** (freedom - 1),
    on a bounded interval, and is added up there.

    >>> round(t_quantile(0.975, 10), 3)
    2.228
    """
    if freedom > 1000:
        z = NormalDist().inv_cdf(p)
        return z + (z**3 + z) / (4 * freedom)
    angle = np.linspace(-np.pi / 2, np.pi / 2, 8_001)
    density = np.cos(angle) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return float(np.sqrt(freedom) * np.tan(np.interp(p, below / below[-1], angle)))


def _welch(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Standard error of a difference, and its degrees of freedom."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0, math.inf
    freedom = total**2 / sum(variance**2 / n for variance, n in parts)
    return math.sqrt(total), freedom


def _power(
    effect: float,
    error: float,
    freedom: float,
    level: float,
    ignored: float,
    limit: float,
) -> float:
    half = t_quantile(1 - level, freedom) * error
    # The estimated error over the true one: a chi variable over the root of freedom.
    u = np.linspace(1e-6, 1 + 12 / math.sqrt(freedom), 801)
    log_density = (freedom - 1) * np.log(u) - freedom * u**2 / 2
    weight = np.exp(log_density - log_density.max())
    ends = math.log1p(ignored) + half * u, math.log1p(limit) - half * u
    z = (np.maximum(*ends) - math.log1p(effect)) / error
    beyond = np.array([0.5 * math.erfc(each / math.sqrt(2)) for each in z])
    return float(weight @ beyond / weight.sum())


def _needed(
    spread: float,
    others: Sequence[tuple[float, float]],
    level: float,
    ignored: float,
    limit: float,
) -> int | None:
    """As :func:`pairs_needed`; ``others`` is what the baseline adds to the error."""
    if spread == 0:
        return 2

    def enough(n: int) -> bool:
        error, freedom = _welch([(spread**2 / n, n - 1.0), *others])
        return _power(limit, error, freedom, level, ignored, limit) >= WANTED

    if not enough(MOST):
        return None
    return bisect_left(range(MOST), True, lo=2, key=enough)


def _checked(values: ArrayLike, name: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be two or more finite numbers, got {array.tolist()!r:.60}"
        )
    return array


def _check(level: float, ignored: float, limit: float) -> None:
    if not 0 < level < 0.5:
        raise ValueError(f"level must be inside 0 .. 0.5, got {level}")
    if not 0 <= ignored < limit < math.inf:
        raise ValueError(
            f"ignored and limit must be 0 <= ignored < limit, got {ignored}, {limit}"
        )
