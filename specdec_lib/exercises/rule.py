"""The grader of a whole round: what is kept of the guesses, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..drafts import Proposal
from ..randomness import RandomSource
from . import marking
from .following import Followed, Law, Run, Source, follow, lowest, same
from .graders import Faults, Floats, clipped, residual, rows, scaled, worst
from .marking import Wrong, called, check_callable, show

# In sixths, so that all chances of acceptance and all residuals are sixths too, and so
# are those of the usual faults. Row x is for what follows token x.
TARGET = rows("2 1 3", "0 3 3", "1 3 2")
DRAFT = rows("4 0 2", "3 3 0", "0 2 4")
P, Q = rows("5 3 2", "2 5 3")  # the pair of chapter 5
PAIRS = ((P, Q), *zip(TARGET, DRAFT, strict=True))


# The whole rule

Rule = Callable[[Floats, Floats, list[int], Source], Any]
K = 2  # guesses, where every path is followed


def token_rule(
    p: Floats,
    q: Floats,
    guesses: list[int],
    rng: Source,
    *,
    accept: Callable[[float, float], float] = lambda p, q: p / q,
    repair: Callable[[Floats, Floats], Floats] = lambda p, q: p - q,
    of_next: int = 0,
    bonus: int = -1,
) -> list[int]:
    """The token rule, with a place for each of the usual faults."""
    for i, x in enumerate(guesses):
        if not rng.bernoulli(min(1.0, accept(p[i, x], q[i, x]))):
            row = i + of_next
            left = repair(p[row], q[min(row, len(q) - 1)])
            # Where a fault leaves nothing, an answer would fail; the target will do.
            left = clipped(left) if clipped(left).any() else p[row]
            return [*guesses[:i], rng.categorical(scaled(left))]
    return [*guesses, rng.categorical(p[bonus])]


def _one_uniform(p: Floats, q: Floats, guesses: list[int], rng: Source) -> list[int]:
    u = rng.random()
    for i, x in enumerate(guesses):
        if u >= p[i, x] / q[i, x]:
            return [*guesses[:i], rng.categorical(residual(p[i], q[i]))]
    return [*guesses, rng.categorical(p[-1])]


def _always(p: float, q: float) -> float:
    return 1.0


def of_target(p: Floats, q: Floats) -> Floats:
    return p


def _upside_down(p: Floats, q: Floats) -> Floats:
    return q - p


def _unclipped(p: Floats, q: Floats) -> Floats:
    return np.abs(p - q)


RULE_FAULTS: Faults = {
    "every guess is kept, so the draft writes the text": partial(
        token_rule, accept=_always
    ),
    "p and q were swapped in the acceptance; keep x with probability "
    "min(1, p(x) / q(x))": partial(token_rule, accept=lambda p, q: q / p if p else 1.0),
    "p and q were swapped; the target is p": partial(
        token_rule, accept=lambda p, q: q / p if p else 1.0, repair=_upside_down
    ),
    "a refused token were drawn again from p, not from the residual": partial(
        token_rule, repair=of_target
    ),
    "the residual were upside down, max(q - p, 0)": partial(
        token_rule, repair=_upside_down
    ),
    "the residual were |p - q|, not cut off at 0": partial(
        token_rule, repair=_unclipped
    ),
    "a refused token were drawn from q": partial(token_rule, repair=lambda p, q: q),
    "there were no coin: a guess with p(x) < q(x) is to be kept with probability "
    "p(x) / q(x)": partial(token_rule, accept=lambda p, q: float(p >= q)),
    "a guess were kept with p(x) in place of min(1, p(x) / q(x))": partial(
        token_rule, accept=lambda p, q: p
    ),
    "a refused token were replaced from the row of the next place": partial(
        token_rule, of_next=1
    ),
    "the bonus came from the row of the last guess; the row behind it is p[k]": partial(
        token_rule, bonus=-2
    ),
    "the bonus came from the first row; it is p[k]": partial(token_rule, bonus=0),
    "one uniform number decided over all guesses; each needs its own": _one_uniform,
}


def _texts(first: int, length: int) -> dict[Hashable, float]:
    """The law of the target's next tokens after token ``first``."""
    found: dict[Hashable, float] = {}
    for text in product(range(3), repeat=length):
        chances = [TARGET[a, b] for a, b in zip((first, *text[:-1]), text, strict=True)]
        found[text] = float(np.prod(chances))
    return {text: weight for text, weight in found.items() if weight > 0}


def _tables(guesses: Sequence[int]) -> tuple[Floats, Floats]:
    """The rows p and q around these guesses, after token 0."""
    before = [0, *guesses]
    return TARGET[before], DRAFT[before[:-1]]


def _round(rule: Rule, k: int = K) -> Run:
    """One round after token 0, and the target's own tokens behind it, k + 1 in all;
    with the number of tokens that the round itself brought."""

    def run(acts: RandomSource, rng: Source) -> Hashable:
        guesses: list[int] = []
        for _ in range(k):
            guesses.append(acts.categorical(DRAFT[[0, *guesses][-1]]))
        text = rule(*_tables(guesses), guesses, rng)
        brought = len(text)
        while len(text) <= k:
            text = [*text, acts.categorical(TARGET[text[-1]])]
        return tuple(text), brought

    return run


def _text(outcome: Any) -> Any:
    """Of an outcome of :func:`_round`, without the number of tokens it brought."""
    return outcome[0]


def _brought(found: Followed) -> float:
    law: Any = found.law
    return float(sum(weight * n for (_, n), weight in law.items()))


def _difference(truth: Law, found: Law) -> str:
    """The first place at which two laws of text differ, and by how much."""
    for n in range(1, K + 2):
        ours, theirs = _beginnings(truth, n), _beginnings(found, n)
        if not same(ours, theirs):
            break
    text = worst(ours, theirs)
    before = text[:-1]
    p, q = (table[(0, *before)[-1]] for table in (TARGET, DRAFT))
    should, does = (
        _beginnings(law, n).get(text, 0.0) / _beginnings(law, n - 1)[before]
        for law in (truth, found)
    )
    after = f"after {show(before)}, " if before else ""
    return (
        f"{after}at p = {show(p)}, q = {show(q)} token {text[-1]} comes out with "
        f"{show(does)}, should be {show(should)}"
    )


def _beginnings(texts: Law, n: int) -> dict[Any, float]:
    """The law of the first n tokens."""
    found: dict[Any, float] = {}
    for text, weight in texts.items():
        first = text[:n]  # type: ignore[index]
        found[first] = found.get(first, 0.0) + weight
    return found


class TheRule:
    """``rule(p, q, guesses, rng)``: the tokens that a round emits.

    p is (k + 1, V), q is (k, V). Every exact rule passes that keeps as many guesses as
    the token rule, the block rule too.
    """

    takes = "p, q, guesses, rng"
    faults = RULE_FAULTS
    cells = 6

    def grade(self, answer: Any, name: str) -> None:
        check_callable(answer, name, self.takes)
        rule = partial(self._safely, answer, name)
        found = follow(_round(rule), self.cells)
        texts, truth = found.after(_text), _texts(0, K + 1)
        on_grid = same(texts.law, truth)
        if not on_grid:
            why = self._fault(texts.law)
            if why or not texts.agrees_off_the_grid(truth):
                raise Wrong(f"{_difference(truth, texts.law)}{why}.")
        if max(found.after(lambda outcome: outcome[1]).law) == K:  # type: ignore[type-var]
            raise Wrong(
                "where all guesses are kept no token is added: the bonus is dropped. "
                f"The last row, p[k], gives one more, so that {K + 1} tokens come out."
            )
        if on_grid:
            self._check_amount(_brought(found))
        self._check_edges(rule, name)

    def arguments(self, p: Floats, q: Floats, guesses: list[int]) -> list[Any]:
        return [p, q, guesses]

    def _safely(
        self,
        answer: Callable[..., Any],
        name: str,
        p: Floats,
        q: Floats,
        guesses: list[int],
        rng: Source,
    ) -> list[int]:
        """What it emits, which must be some first guesses and one more token."""
        result = called(answer, name, [*self.arguments(p, q, guesses), rng])
        if hasattr(result, "accepted") and hasattr(result, "next_token"):
            result = [*guesses[: result.accepted], result.next_token]
        what = f"what {name} returns for the guesses {show(guesses)}"
        tokens = list(marking.as_tokens(result, what))
        k = len(guesses)
        if not tokens:
            raise Wrong(
                f"{what} is empty: a round brings at least one token, as a refused "
                "guess is replaced, and with no guesses left there is the bonus."
            )
        if not all(0 <= token < p.shape[1] for token in tokens):
            raise Wrong(
                f"{what} is {show(tokens)}, not tokens from 0 to {p.shape[1] - 1}."
            )
        if len(tokens) > k + 1 or tokens[:-1] != guesses[: len(tokens) - 1]:
            raise Wrong(
                f"{what} is {show(tokens)}: all but its last token have to be the "
                "first guesses. What was guessed behind a refused token goes with it."
            )
        return tokens

    def _fault(self, found: Law) -> str:
        for why, rule in self.faults.items():
            if same(follow(_round(rule), self.cells).after(_text).law, found):
                return f": it looks as if {why}"
        return ""

    def _check_amount(self, brought: float) -> None:
        least = _brought(follow(_round(token_rule), self.cells))
        if brought < least - 1e-9:
            raise Wrong(
                f"the text is the target's, but a round brings {show(brought)} tokens "
                f"on average, where it could bring {show(least)}: guesses are refused "
                "that could be kept."
            )

    def _check_edges(self, rule: Rule, name: str) -> None:
        p, q = rows("1 0", "1 1"), rows("1 1")
        if rule(p, q, [1], lowest())[0] == 1:
            raise Wrong(
                "where the uniform number is exactly 0, a guess is kept that has "
                "probability 0 in p: ask for u < p / q, and not for <=."
            )
        sure = np.eye(3)
        for guesses, wants in (
            ([], [2]),
            ([0, 1, 2, 0], [0, 1, 2, 0, 1]),
            ([0, 1, 2, 0], [0, 1, 0]),
            ([1, 1, 1, 2], [1, 1, 1, 0]),
        ):
            padded = [*wants, *[2] * (len(guesses) + 1 - len(wants))]
            tokens = rule(
                sure[padded], sure[np.array(guesses, dtype=int)], guesses, lowest()
            )
            if tokens != wants:
                raise Wrong(
                    f"where the target is certain of {show(wants)} and the guesses are "
                    f"{show(guesses)}, {show(tokens)} comes out: is the loop made for "
                    f"{K} guesses?"
                )


class WithoutCoin(TheRule):
    """A :class:`TheRule` as the library calls it, that keeps x where q(x) <= p(x)."""

    takes = "rows, proposal, rng"
    cells = 12

    @staticmethod
    def _made(
        repair: Callable[[Floats, Floats], Floats],
        accept: Callable[[float, float], float] = lambda p, q: float(q <= p),
    ) -> Rule:
        return partial(token_rule, accept=accept, repair=repair)

    @property
    def faults(self) -> Faults:  # type: ignore[override]
        return {
            "the residual were the usual one; but refused are now whole guesses, "
            "so that more is owed, p(x) where q(x) > p(x)": self._made(
                lambda p, q: p - q
            ),
            "a refused token were drawn again from p": self._made(of_target),
            "the comparison were the wrong way round: keep x where "
            "q(x) <= p(x)": self._made(
                lambda p, q: p - q * (q > p), lambda p, q: float(p <= q)
            ),
        }

    def arguments(self, p: Floats, q: Floats, guesses: list[int]) -> list[Any]:
        return [p, Proposal(tuple(guesses), q)]

    def _check_amount(self, brought: float) -> None:
        made = self._made(lambda p, q: p - q * (q <= p))
        kept = follow(_round(made), self.cells)
        if abs(brought - _brought(kept)) > 1e-9:
            raise Wrong(
                f"the text is the target's, but a round brings {show(brought)} tokens "
                f"on average, where keeping x if and only if q(x) <= p(x) brings "
                f"{show(_brought(kept))}."
            )
