"""The graded exercises, by label: the truth, and the faults that are common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ..sampling import Sampler
from ..verification.exact import one_hot
from . import marking
from .following import Law, Source
from .graders import (
    Accepts,
    Draws,
    Floats,
    Function,
    Numbers,
    Texts,
    TwoWords,
    clipped,
    law_of,
    number,
    residual,
    row,
    rows,
    scaled,
    token,
    tokens,
)
from .marking import Grader, Wrong, show
from .rule import DRAFT, PAIRS, TARGET, P, Q, TheRule, WithoutCoin, of_target


def _copied(text: list[int], match: int, k: int, *, first: bool = False) -> list[int]:
    """What followed the last ``match`` tokens at their latest (first) earlier place."""
    places = [
        i for i in range(match, len(text)) if text[i - match : i] == text[-match:]
    ]
    place = places[0 if first else -1] if places and match else len(text)
    return text[place : place + k]


def _lookup(text: list[int], max_match: int, k: int, **options: Any) -> list[int]:
    for match in range(min(max_match, len(text)), 0, -1):
        if found := _copied(text, match, max(k, 1), **options):
            return found[:k]
    return []


def _emitted(guesses: list[int], choices: list[int]) -> list[int]:
    n = _agreeing(guesses, choices)
    return [*guesses[:n], choices[n]]


def _agreeing(guesses: list[int], choices: list[int]) -> int:
    n = 0
    while n < len(guesses) and guesses[n] == choices[n]:
        n += 1
    return n


def _all_agreeing(guesses: list[int], choices: list[int]) -> list[int]:
    same_place = [g for g, c in zip(guesses, choices, strict=False) if g == c]
    return [*same_place, choices[len(same_place)]]


def _tempered(p: Floats, T: float, top_k: int) -> Floats:
    tempered: Floats = Sampler(temperature=T, top_k=top_k)(np.log(p))
    return tempered


def _overlap(p: Floats, q: Floats) -> float:
    return float(np.minimum(p, q).sum())


def _cut(p: Floats, q: Floats, T: float, top_k: int) -> float:
    return _overlap(_tempered(p, T, top_k), _tempered(q, T, top_k))


def _cut_unscaled(p: Floats, q: Floats, T: float, top_k: int) -> float:
    rows = [_tempered(row, T, len(row)) for row in (p, q)]
    rows = [row * (_tempered(row, 1, top_k) > 0) for row in rows]
    return _overlap(*rows)


def _expected(alpha: float, k: int) -> float:
    return float(sum(alpha**i for i in range(k + 1)))


def _speedup(alpha: float, k: int, c: float) -> float:
    return _expected(alpha, k) / (1 + c * k)


def _lenient(
    p: Floats,
    q: Floats,
    theta: float,
    accept: Callable[[Floats, Floats, float], Floats] = lambda p, q, theta: np.minimum(
        1, p / (theta * q)
    ),
    repair: Callable[[Floats, Floats, float], Floats] = lambda p, q, theta: p - q,
) -> Floats:
    kept: Floats = q * accept(p, q, theta)
    law: Floats = kept + (1 - kept.sum()) * scaled(clipped(repair(p, q, theta)))
    return law


def _pair(value: Any, what: str, parts: str) -> tuple[Any, Any]:
    try:
        first, second = value
    except (TypeError, ValueError):
        raise Wrong(
            f"what {what} returns is {marking.brief(value)}, not {parts}"
        ) from None
    return first, second


def _token_and_row(value: Any, what: str) -> Hashable:
    token, row = _pair(value, what, "a token and a row")
    token = marking.as_token(token, "the token")
    numbers = marking.as_numbers(row, "the row", 4)
    return token, tuple(numbers.round(9).tolist())


def _token_and_kept(value: Any, what: str) -> Hashable:
    token, kept = _pair(value, what, "a token, and True or False")
    return marking.as_token(token, "the token"), marking.as_truth(kept, "the second")


def _top(raw: Floats, k: int) -> Floats:
    return scaled(raw * (raw >= np.sort(raw)[-k]))


def _honest(raw: Floats, k: int) -> Law:
    row = _top(raw, k)
    told = tuple(row.round(9).tolist())
    return {(x, told): float(w) for x, w in enumerate(row) if w > 0}


def _proposes(
    drawn: Callable[[Floats, int], Floats], told: Callable[[Floats, int], Floats]
) -> Callable[..., Any]:
    return lambda raw, k, rng: (rng.categorical(drawn(raw, k)), told(raw, k))


def _argmax(raw: Floats, k: int) -> Floats:
    return one_hot(int(raw.argmax()), len(raw))


def _raw(raw: Floats, k: int) -> Floats:
    return raw


RAW = rows("1 4 2 3")[0]


def _two(
    p: Floats,
    q: Floats,
    rng: Source,
    second: Callable[[Floats, Floats], Floats] = residual,
    last: Callable[[Floats, Floats, Floats], Floats] = lambda p, r, q: residual(r, q),
) -> tuple[int, bool]:
    owed = p
    for _ in range(2):
        x = rng.categorical(q)
        if rng.bernoulli(min(1.0, owed[x] / q[x])):
            return x, True
        owed = second(p, q)
    return rng.categorical(last(p, owed, q)), False


def _enough(both: Law) -> None:
    kept = sum(both.get((x, True), 0.0) for x in range(3))
    if kept < _overlap(TARGET[0], DRAFT[0]) + 1e-9:
        raise Wrong(
            f"the token is the target's, but a guess is kept with {show(kept)}, no "
            "more often than with one guess: does the second one have a chance?"
        )


def _point(
    p: Floats,
    x: int,
    rng: Source,
    accept: Callable[[Floats, int], float] = lambda p, x: p[x],
    without: bool = True,
) -> int:
    if rng.bernoulli(accept(p, x)):
        return x
    left = p * (np.arange(len(p)) != x) if without else p
    return rng.categorical(scaled(left))


PALINDROMES = frozenset(
    half + half[::-1] for half in ("aabb", "abab", "abba", "baab", "baba", "bbaa")
)
FAIR = frozenset(
    "".join("a" if i in places else "b" for i in range(8))
    for places in combinations(range(8), 4)
    if sum(places) == 14
)
ALPHAS = tuple((a, k) for a in (0.5, 0.8, 1.0, 0.0) for k in (0, 1, 2, 5))
PRICED = tuple((a, k, c) for a in (0.5, 0.9) for k in (0, 1, 3) for c in (0.0, 0.2))
TEXTS = (
    ([0, 1, 2, 3, 0, 1], 3),
    ([5, 1, 7, 1, 8, 9, 1], 2),
    ([4, 4, 4, 4], 3),
    ([1, 2, 3], 3),
    ([7], 2),
    ([3, 6, 3, 6, 5, 3], 1),
)
LOOKUPS = (
    ([0, 1, 2, 3, 0, 1], 2, 3),
    ([9, 1, 2, 5, 3, 2, 6, 1, 2], 2, 2),
    ([9, 1, 2, 5, 3, 2, 6, 1, 2], 1, 2),
    ([1, 2, 5, 1, 2, 6, 1, 2], 3, 1),
    ([1, 2, 3], 3, 4),
    ([4, 4, 4, 4], 2, 3),
    ([8], 2, 3),
    ([3, 1, 3], 5, 1),
)
VERDICTS: tuple[tuple[list[int], list[int]], ...] = (
    ([1, 2, 3], [1, 5, 3, 7]),
    ([1, 2, 3], [1, 2, 3, 4]),
    ([1, 2, 3], [4, 2, 3, 9]),
    ([], [6]),
    ([2, 2, 2, 2], [2, 2, 2, 0, 2]),
    ([5, 1], [5, 1, 1]),
)
THREE = tuple(
    (np.array(p), np.array(q), T, k)
    for p, q in (((0.5, 0.3, 0.2), (0.2, 0.5, 0.3)), ((0.6, 0.1, 0.3), (0.5, 0.3, 0.2)))
    for T, k in ((1, 3), (1, 2), (2.0, 2), (0.5, 3), (0, 2), (1, 1))
)

# From label to what is asked for there, by name, and in the order of the exercise.
TASKS: Mapping[str, Mapping[str, Grader]] = {
    "ex-01-two": {
        "two_words": TwoWords(),
    },
    "ex-01-bits": {
        "bits_per_character": Function(
            "p, characters",
            (
                (np.array([0.5, 0.25, 0.125]), 4),
                (np.array([1.0, 0.1]), 10),
                (np.array([0.01, 0.02, 0.5, 0.3]), 3),
            ),
            lambda p, n: float(-np.log2(p).sum() / n),
            {
                "these are natural logarithms; bits have the base 2": lambda p, n: (
                    float(-np.log(p).sum() / n)
                ),
                "the sign: a logarithm of a probability is negative": lambda p, n: (
                    float(np.log2(p).sum() / n)
                ),
                "that is per token; divide by the characters": lambda p, n: float(
                    -np.log2(p).mean()
                ),
                "that is a perplexity; wanted is its logarithm": lambda p, n: float(
                    2 ** (-np.log2(p).sum() / n)
                ),
            },
            number,
        ),
    },
    "ex-02-clock": {
        "tock_after_ding": Numbers(
            1 / 12,
            {
                "1/6 is a half of 3/9, how often `tock` stands, or p_new without "
                "the half: ask in how many places it stands, and give it that "
                "share of what the discount took.": 1 / 6,
                "0 is the count alone: what the discount took is shared out.": 0,
                "1/10 leaves out the beginning, which is a place too.": 1 / 10,
            },
        ),
    },
    "ex-03-c": {
        "steepest": Numbers(
            0.275,
            {
                "0.375 leaves out the draft: four guesses cost 0.4.": 0.375,
                "0.15 counts four tokens; four right guesses bring five.": 0.15,
                "0.22 divides by five; T(5) is 4 steps above T(1).": 0.22,
            },
        ),
    },
    "ex-04-copy": {
        "copy": Function(
            "sequence, k, rng",
            tuple((text, k, None) for text, k in TEXTS),
            lambda text, k, rng: _copied(text, 1, k),
            {
                "it takes the first place, not the last": lambda text, k, rng: _copied(
                    text, 1, k, first=True
                ),
                "does it find the last token itself, behind which there is "
                "nothing? Look further up": lambda text, k, rng: [],
                "it guesses the found token itself, "
                "not what followed": lambda text, k, rng: (
                    text[-1:] + _copied(text, 1, max(k - 1, 0))
                    if _copied(text, 1, 1)
                    else []
                ),
                "it copies all; at most k are wanted": lambda text, k, rng: _copied(
                    text, 1, len(text)
                ),
            },
            tokens,
        ),
    },
    "ex-04-verdict": {
        "emitted": Function(
            "guesses, choices",
            VERDICTS,
            _emitted,
            {
                "only the guesses come out; the row behind them gives one "
                "token more": lambda g, c: g[: _agreeing(g, c)],
                "where all guesses are kept the bonus is dropped": lambda g, c: (
                    _emitted(g, c)[: max(1, len(g))]
                ),
                "it keeps every guess that agrees; behind the first that does "
                "not, no choice was made on true text": _all_agreeing,
                "the last token comes from the last row; it is the row behind "
                "the kept guesses": lambda g, c: [*g[: _agreeing(g, c)], c[-1]],
                "the rows are taken without being checked": lambda g, c: list(c),
                "every guess is kept; the target has to agree": lambda g, c: [
                    *g,
                    c[-1],
                ],
                "the guess that does not agree is kept too": lambda g, c: (
                    [
                        *g[: _agreeing(g, c) + 1],
                        c[min(_agreeing(g, c) + 1, len(g))],
                    ]
                ),
            },
            tokens,
        ),
    },
    "ex-05-a": {
        "accepts": Accepts(),
        "residual": Function(
            "p, q",
            (*PAIRS, rows("6 4", "8 2"), rows("0 1 0 1", "2 1 1 0")),
            lambda p, q: residual(np.array(p), np.array(q)),
            {
                "that is p itself, with what the accepted guesses gave": lambda p, q: p,
                "it does not sum to 1; divide by its sum": lambda p, q: clipped(p - q),
                "negative shares are left in; cut off at 0, then divide by "
                "the sum": lambda p, q: p - q,
                "it is upside down: p - q is missing, not q - p": lambda p, q: residual(
                    q, p
                ),
                "it is |p - q|; where q is larger nothing is missing": lambda p, q: (
                    scaled(np.abs(p - q))
                ),
                "that is what was accepted, min(p, q); wanted is what is "
                "missing": lambda p, q: scaled(np.minimum(p, q)),
            },
            row,
        ),
    },
    "ex-05-b": {
        "propose": Draws(
            "raw, k, rng",
            tuple(((RAW, k), _honest(RAW, k)) for k in (2, 3, 4, 1)),
            {
                "the report is the unfiltered row; it has to be the one that "
                "was drawn from": _proposes(_top, _raw),
                "the token is drawn from the unfiltered row, and the filter is "
                "in the report alone": _proposes(_raw, _top),
                "nothing is filtered": _proposes(_raw, _raw),
                "the report does not sum to 1": _proposes(
                    _top, lambda raw, k: raw * (_top(raw, k) > 0)
                ),
                "the token is always the most probable one, and the report "
                "says that it was drawn": _proposes(_argmax, _top),
                "the token is always the most probable one, and the report "
                "is the unfiltered row": _proposes(_argmax, _raw),
            },
            _token_and_row,
            210,
        ),
    },
    "ex-05-e": {
        "two_guesses": Draws(
            "p, q, rng",
            (((TARGET[0], DRAFT[0]), law_of(TARGET[0])),),
            {
                "the second guess is judged against p again; after a refusal "
                "only the residual is still owed": partial(_two, second=of_target),
                "the last resort is the residual of p; it is that of what was "
                "owed to the second guess": partial(
                    _two, last=lambda p, r, q: residual(p, q)
                ),
                "the last resort is p; it is the residual of what was owed to "
                "the second guess": partial(_two, last=lambda p, r, q: p),
                "every guess is kept": lambda p, q, rng: (rng.categorical(q), True),
            },
            _token_and_kept,
            12,
            lambda outcome: outcome[0],
            _enough,
        ),
    },
    "ex-05-f": {
        "rule": TheRule(),
    },
    "ex-06-yes": {
        "no_coin": WithoutCoin(),
    },
    "ex-06-lenience": {
        "lenient": Function(
            "p, q, theta",
            ((P, Q, 0.7), (P, Q, 1.0), (P, Q, 0.4), (*rows("2 3 1", "1 2 3"), 0.8)),
            _lenient,
            {
                "theta stands above; it is multiplied to q, below, so that "
                "more is accepted": partial(
                    _lenient, accept=lambda p, q, t: np.minimum(1, t * p / q)
                ),
                "theta is not used": partial(
                    _lenient, accept=lambda p, q, t: np.minimum(1, p / q)
                ),
                "the residual has theta too; it was to be the usual one": partial(
                    _lenient, repair=lambda p, q, t: p - t * q
                ),
                "these are the accepted guesses alone; refused ones are "
                "replaced": lambda p, q, t: np.minimum(q, p / t),
                "the residual is weighed with TV(p, q); fewer guesses are "
                "refused now, so it gets less": lambda p, q, t: (
                    np.minimum(q, p / t) + clipped(p - q)
                ),
            },
            row,
        ),
    },
    "ex-07-a": {
        "acceptance": Function(
            "p, q",
            (*PAIRS, rows("2 1 1", "18 1 1"), rows("1 3 0", "1 0 3"), (P, P)),
            _overlap,
            {
                "that is the distance TV, the share that is refused": lambda p, q: (
                    1 - _overlap(p, q)
                ),
                "that is how often two separate draws agree": lambda p, q: float(
                    (p * q).sum()
                ),
                "that is a plain mean over tokens; weigh each with q, as the "
                "draft draws them": lambda p, q: float(
                    np.minimum(
                        1, np.divide(p, q, where=q > 0, out=np.ones(len(p)))
                    ).mean()
                ),
                "the tokens are weighed with p; they are drawn from q": lambda p, q: (
                    float(
                        (
                            p
                            * np.minimum(
                                1, np.divide(p, q, where=q > 0, out=np.ones(len(p)))
                            )
                        ).sum()
                    )
                ),
                "that is for a draft which always guesses its favourite": lambda p, q: (
                    float(p[q.argmax()])
                ),
                "TV is half of the sum of |p - q|": lambda p, q: float(
                    1 - np.abs(p - q).sum()
                ),
            },
            number,
        ),
    },
    "ex-08-a": {
        "tokens": Function(
            "alpha, k",
            ALPHAS,
            _expected,
            {
                "the sum ends one power too early; with k guesses the last is "
                "alpha^k": lambda a, k: _expected(a, k) - a**k,
                "only accepted guesses are counted; each call adds one token "
                "of the target's own": lambda a, k: _expected(a, k) - 1,
                "that would be right if a guess could stand behind a refused "
                "one": lambda a, k: 1 + a * k,
                "the sum has one power too many": lambda a, k: _expected(a, k + 1),
            },
            number,
        ),
        "speedup": Function(
            "alpha, k, c",
            PRICED,
            _speedup,
            {
                "the draft is called k times, not k + 1": lambda a, k, c: (
                    _expected(a, k) / (1 + c * (k + 1))
                ),
                "every guess is a call of the draft; it costs c k": lambda a, k, c: (
                    _expected(a, k) / (1 + c)
                ),
                "the draft is not free": lambda a, k, c: _expected(a, k),
                "only accepted guesses are counted; each call adds one token "
                "of the target's own": lambda a, k, c: (
                    (_expected(a, k) - 1) / (1 + c * k)
                ),
            },
            number,
        ),
    },
    "ex-09-b": {
        "cut": Function(
            "p, q, T, k",
            THREE,
            _cut,
            {
                "temperature and filter are on one side alone, "
                "the target's": lambda p, q, T, k: _overlap(_tempered(p, T, k), q),
                "temperature and filter are on one side alone, "
                "the draft's": lambda p, q, T, k: _overlap(p, _tempered(q, T, k)),
                "temperature is on one side alone, the target's": lambda p, q, T, k: (
                    _overlap(_tempered(p, T, k), _tempered(q, 1, k))
                ),
                "temperature is on one side alone, the draft's": lambda p, q, T, k: (
                    _overlap(_tempered(p, 1, k), _tempered(q, T, k))
                ),
                "the filter is on one side alone, the target's": lambda p, q, T, k: (
                    _overlap(_tempered(p, T, k), _tempered(q, T, len(q)))
                ),
                "after the filter the rest has to be scaled to sum to 1": _cut_unscaled,
                "nothing is filtered": lambda p, q, T, k: _cut(p, q, T, len(p)),
                "T is not used": lambda p, q, T, k: _cut(p, q, 1, k),
            },
            number,
        ),
    },
    "ex-10-a": {
        "lookup": Function(
            "text, max_match, k",
            LOOKUPS,
            _lookup,
            {
                "it copies from the first place; the latest is wanted": partial(
                    _lookup, first=True
                ),
                "one matching token decides, and not the "
                "longest match": lambda text, m, k: _lookup(text, 1, k),
                "it looks for the longest match only; where there is none, try "
                "a shorter one": lambda text, m, k: _copied(text, min(m, len(text)), k),
                "does it find the end of the text itself, behind which there "
                "is nothing?": lambda text, m, k: [],
                "at most k tokens are wanted": lambda text, m, k: _lookup(
                    text, m, len(text)
                ),
            },
            tokens,
        ),
    },
    "ex-10-b": {
        "first_token": Numbers(
            (0.75, 0.25),
            {
                "(0.6, 0.4) would come out if the draft said what it does: it "
                "is certain of token 0, and reports (0.8, 0.2).": (0.6, 0.4),
                "(0.8, 0.2) is the report; the draft always guesses token 0.": (
                    0.8,
                    0.2,
                ),
                "(0.9, 0.1) draws again from p after a refusal; the residual "
                "of the report is all on token 1.": (0.9, 0.1),
            },
        ),
    },
    "ex-11-a": {
        "kept": Numbers(
            (3 / 4, 7 / 8, 1.0),
            {
                "these are the pairs alone; add the first guesses.": (
                    1 / 4,
                    3 / 8,
                    1 / 2,
                ),
                "the block rule is given the token rule's weights: a ratio "
                "above 1 pays back a debt.": (3 / 4, 3 / 4, 1.0),
            },
        ),
    },
    "ex-12-a": {
        "lengths": Numbers(
            (5, 1),
            {
                "7 and 1 are best at the rate 1; with them the rate is higher, "
                "so the bar is too: go on until nothing changes.": (7, 1),
                "first the rounds of 0.8, then those of 0.4.": (1, 5),
                "one less in both: the guess at which alpha^n is still above "
                "the bar pays.": (4, 0),
                "one more in both: the guess at which alpha^n has fallen below "
                "the bar does not pay.": (6, 2),
            },
        ),
    },
    "ex-14-a": {
        "break_even": Numbers(
            (1.4, 1.2, 1.08),
            {
                "calls without guesses cost 1 each, not nothing.": (1.4, 0.7, 0.28),
                "that is what a call costs more; it costs 1 in any case.": (
                    0.4,
                    0.2,
                    0.08,
                ),
                "only some of the calls are dear; take the mean.": (1.4, 1.4, 1.4),
            },
        ),
    },
    "ex-17-abba": {
        "orders": Texts(
            FAIR,
            {
                "palindromes are right, and not all: the sum of the places "
                "decides, and it may be the same for others.": PALINDROMES,
            },
        ),
    },
    "ex-a-argmax": {
        "point": Draws(
            "p, x, rng",
            tuple(((TARGET[2], x), law_of(TARGET[2])) for x in range(3)),
            {
                "a refused guess is drawn again from the whole of p; it has "
                "had its chance, so leave it out": partial(_point, without=False),
                "the guess is always kept": partial(_point, accept=lambda p, x: 1.0),
                "the guess is judged as if it had been drawn from a q": partial(
                    _point, accept=lambda p, x: min(1.0, p[x] / Q[x])
                ),
                "that is always the target's favourite; the output has to have "
                "the distribution p": lambda p, x, rng: int(p.argmax()),
            },
            token,
            60,
        ),
    },
}
