"""How many guesses to draft: rules that choose, and what one more guess is worth.

Two things may choose. A draft may stop by its own confidence, guess by guess:
``ModelDraft(..., least=..., chance=...)``; here are chances for it. Or k may be an
object that looks at what earlier rounds brought: :class:`RecentAcceptance`,
:class:`UpAndDown`, :class:`PayingLength`. Neither changes the text's distribution, only
its cost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .decoding import stream
from .drafts import ModelDraft, SuffixDraft, SuffixHistory
from .drafts.model import Chance, largest_probability
from .metrics import Round
from .models import LanguageModel, check_count
from .sampling import DEFAULT_SAMPLER, Sampler
from .theory import best_k
from .verification import Verify, verify_tokens

__all__ = [
    "Calibration",
    "Chance",
    "PayingLength",
    "RecentAcceptance",
    "TrueChance",
    "UpAndDown",
    "break_even",
    "copies_that_pay",
    "judged_guesses",
    "largest_probability",
]

# The value of one more guess


def break_even(
    rate: float,
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
    *,
    n: int = 0,
) -> float:
    """The chance above which guess n + 1 of a round pays.

    That is the chance that it and all n before it are accepted: it then brings one
    token more. It takes c + (T(n + 2) - T(n + 1)) / T(1) more time, in which the
    policy would have made ``rate`` times as many tokens elsewhere.

    rate
        tokens per T(1) that the policy itself attains, > 0: its speedup.
    draft_cost, verify_cost
        as in :func:`specdec_lib.theory.speedup`.
    n
        guesses that are drafted already, >= 0.

    Stopping at the first guess that does not pay is the best of all rules, at the rate
    of that best rule, where this chance never rises while a round goes on and T is a
    straight line or bends upwards. It never rises where the chance of a guess is known
    before its cost is paid, and where it is not known but the same for all. Otherwise
    a guess may pay by what it tells of the next ones, and this rule stops too soon.

    Source: the ratio of means is that of renewal-reward processes (Ross 1996, section
    3.6); the rule is the one-step look-ahead of a monotone stopping problem (Chow,
    Robbins and Siegmund 1971). Huang et al. 2025 (SpecDec++) find such a threshold.

    >>> round(break_even(2.4, 0.1), 12)
    0.24
    """
    if not 0 < rate < np.inf:
        raise ValueError(f"rate must be finite and > 0, got {rate}")
    _check_amount("draft_cost", draft_cost)
    check_count("n", n)
    more = 0.0 if verify_cost is None else verify_cost(n + 2) - verify_cost(n + 1)
    return float(rate * (draft_cost + more))


def _check_amount(name: str, value: float) -> None:
    if not 0 <= value < np.inf:
        raise ValueError(f"{name} must be finite and >= 0, got {value}")


# Chances that a guess is accepted


@dataclass(frozen=True)
class Calibration:
    """A chance read off a table: confidence -> the share that was accepted.

    bounds
        increasing; the bins are those below, between and above (a confidence equal to
        a bound belongs to the bin above it).
    chances
        one more than bounds, each in [0, 1].
    confidence
        the number that is looked up, from (row, sequence).

    :meth:`fit` makes one. Give it to ``ModelDraft(..., chance=...)``.
    """

    bounds: tuple[float, ...]
    chances: tuple[float, ...]
    confidence: Chance = largest_probability

    def __post_init__(self) -> None:
        if len(self.chances) != len(self.bounds) + 1:
            raise ValueError(
                f"chances must be one more than bounds, got {len(self.chances)} and "
                f"{len(self.bounds)}"
            )
        if any(not a < b for a, b in zip(self.bounds, self.bounds[1:], strict=False)):
            raise ValueError(f"bounds must increase, got {self.bounds}")
        if not all(0 <= chance <= 1 for chance in self.chances):
            raise ValueError(f"chances must be in [0, 1], got {self.chances}")

    @classmethod
    def fit(
        cls,
        confidences: ArrayLike,
        accepted: ArrayLike,
        *,
        bins: int = 10,
        monotone: bool = True,
        confidence: Chance = largest_probability,
    ) -> Calibration:
        """From guesses that were judged; use it on other texts than those.

        confidences, accepted
            (n,) each: the confidence in each guess, and whether it was accepted (or
            how likely that was, in [0, 1]). :func:`judged_guesses` collects them.
        bins
            at most so many, of about n / bins guesses each.
        monotone
            join neighbouring bins until no chance is below that of a lower confidence
            (the pool adjacent violators rule, Ayer et al. 1955).

        >>> table = Calibration.fit([.2, .3, .8, .9], [0, 1, 1, 1], bins=2)
        >>> table.bounds, table.chances
        ((0.8,), (0.5, 1.0))
        """
        x = np.asarray(confidences, dtype=np.float64)
        y = np.asarray(accepted, dtype=np.float64)
        if x.shape != y.shape or x.ndim != 1 or not len(x):
            raise ValueError(
                "confidences and accepted must have the same shape (n,), n >= 1, got "
                f"{x.shape} and {y.shape}"
            )
        if not np.isfinite(x).all():
            raise ValueError("confidences must be finite")
        if not (y.min() >= 0 and y.max() <= 1):
            raise ValueError("accepted must be in [0, 1]")
        check_count("bins", bins, least=1)
        ordered = np.sort(x)
        at = [i * len(x) // bins for i in range(1, bins)]
        bounds = sorted({float(b) for b in ordered[at]} - {float(ordered[0])})
        bin_of = np.searchsorted(bounds, x, side="right")
        counts = np.bincount(bin_of, minlength=len(bounds) + 1)
        sums = np.bincount(bin_of, y, minlength=len(bounds) + 1)
        pools: list[list[float]] = []  # sum, count, first bound above
        for i, (total, count) in enumerate(zip(sums, counts, strict=True)):
            end = bounds[i] if i < len(bounds) else np.inf
            pools.append([float(total), float(count), end])
            while (
                monotone
                and len(pools) > 1
                and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]
            ):
                total, count, end = pools.pop()
                pools[-1] = [pools[-1][0] + total, pools[-1][1] + count, end]
        chances = tuple(min(1.0, total / count) for total, count, _ in pools)
        return cls(tuple(end for _, _, end in pools[:-1]), chances, confidence)

    def of(self, confidence: float) -> float:
        """The chance at a confidence."""
        return self.chances[bisect_right(self.bounds, confidence)]

    def __call__(self, row: NDArray[np.float64], sequence: Sequence[int] = ()) -> float:
        return self.of(self.confidence(row, sequence))


def judged_guesses(
    target: LanguageModel,
    draft: ModelDraft,
    prompts: Sequence[Sequence[int]],
    *,
    k: int = 4,
    max_new_tokens: int = 200,
    sampler: Sampler = DEFAULT_SAMPLER,
    verify: Verify = verify_tokens,
    confidence: Chance = largest_probability,
    seed: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What ``draft`` was confident of, and what was accepted: for Calibration.fit.

    Decodes after each of ``prompts``, k guesses a round without stopping early. Returns
    the confidence in each guess that was tested (n,), and 1 or 0 for accepted or not
    (n,). Other arguments as in :func:`specdec_lib.generate`; prompt i has the seed
    ``seed + i``. TypeError for another kind of draft.
    """
    if not isinstance(draft, ModelDraft):
        raise TypeError(f"draft must be a ModelDraft, got {draft!r}")
    seen: list[float] = []

    def note(row: NDArray[np.float64], sequence: Sequence[int]) -> float:
        seen.append(confidence(row, sequence))
        return 1.0

    watched = replace(draft, least=1.0, chance=note)
    confidences: list[float] = []
    accepted: list[bool] = []
    for i, prompt in enumerate(prompts):
        for each in stream(
            target,
            prompt,
            draft=watched,
            k=k,
            max_new_tokens=max_new_tokens,
            sampler=sampler,
            verify=verify,
            seed=seed + i,
        ):
            confidences += seen[: each.tested]
            accepted += [place < each.accepted for place in range(each.tested)]
            seen.clear()
    return np.array(confidences), np.array(accepted, dtype=np.float64)


class TrueChance:
    """1 - TV(p, q), the true chance: it asks the target itself, so it is no policy.

    What a draft would gain that knew how likely each guess is accepted, and not which:
    a bound for what confidence can do.

    sampler, draft_sampler
        of the target and of the draft; the same where the second is not given.
    """

    def __init__(
        self,
        target: LanguageModel,
        sampler: Sampler = DEFAULT_SAMPLER,
        draft_sampler: Sampler | None = None,
    ) -> None:
        self._sampler = sampler
        self._greedy_draft = (draft_sampler or sampler).temperature == 0
        self._state = target.start()
        self._read: list[int] = []  # what the state holds

    def __call__(self, row: NDArray[np.float64], sequence: Sequence[int]) -> float:
        p = self._sampler(self._logits_after(list(sequence)), sequence)
        if self._greedy_draft:
            return float(p[row.argmax()])
        return min(1.0, float(np.minimum(p, row).sum()))

    def _logits_after(self, sequence: list[int]) -> NDArray[np.floating]:
        # Most of it was read the last time; a few steps back find where they part. The
        # last token is read anew, since its logits are what is asked for.
        keep = min(len(self._read), len(sequence) - 1)
        while self._read[:keep] != sequence[:keep]:
            keep -= 1
        if keep < len(self._read):
            self._state.rewind(keep)
        self._read = sequence
        logits: NDArray[np.floating] = self._state.extend(sequence[keep:])[-1]
        return logits


# Lengths chosen by what earlier rounds brought


class UpAndDown:
    """Up where all guesses were accepted, down where one was rejected.

    It asks for ``start`` guesses at first, then for ``up`` more after a round in which
    as many as it asked for came and were accepted, for ``down`` less after a
    rejection, always ``least`` to ``most``. Costs do not enter.

    Source: the "heuristic" schedule of the transformers library (+2, -1, from 5, at
    least 1, and no most); there it also goes up where fewer guesses came than asked
    for.
    """

    def __init__(
        self,
        start: int = 5,
        *,
        up: int = 2,
        down: int = 1,
        least: int = 1,
        most: int = 16,
    ) -> None:
        check_count("least", least, least=1)  # from 0 guesses it would never come back
        check_count("most", most, least=least)
        check_count("start", start, least=least)
        check_count("up", up)
        check_count("down", down)
        if start > most:
            raise ValueError(f"start must be at most {most}, got {start}")
        self.k, self.up, self.down = int(start), int(up), int(down)
        self.least, self.most = int(least), int(most)

    def next_k(self) -> int:
        return self.k

    def observe(self, round: Round) -> None:
        if round.accepted < round.tested:
            self.k = max(self.least, self.k - self.down)
        elif round.accepted == self.k:
            self.k = min(self.most, self.k + self.up)

    def __repr__(self) -> str:
        return (
            f"UpAndDown({self.k}, up={self.up}, down={self.down}, "
            f"least={self.least}, most={self.most})"
        )


@dataclass
class _Tries:
    """When to draft one guess though none pays, to see whether that has changed.

    After 1 round without guesses; after 2 more where the guess is rejected, then 4, 8,
    .., at most ``patience``; after 1 again where one is accepted.
    """

    patience: int
    wait: int = 1  # rounds without guesses until a try
    idle: int = 0  # rounds without guesses so far

    def __post_init__(self) -> None:
        check_count("patience", self.patience, least=1)

    @property
    def due(self) -> bool:
        return self.idle >= self.wait

    def observe(self, *, guessed: bool, failed: bool) -> None:
        """Told whether the round had guesses, and whether it was a try in vain."""
        if not guessed:
            self.idle += 1
            return
        self.idle = 0
        self.wait = min(2 * self.wait, self.patience) if failed else 1


def _check_memory(decay: float, prior: float, weight: float) -> None:
    """How fast earlier rounds fade, and what stands in for those before the first."""
    if not 0 < decay < 1:
        raise ValueError(f"decay must be inside 0 .. 1, got {decay}")
    if not 0 <= prior <= 1:
        raise ValueError(f"prior must be in [0, 1], got {prior}")
    if not 0 < weight < np.inf:
        raise ValueError(f"weight must be finite and > 0, got {weight}")


class RecentAcceptance:
    """The k that is best at the acceptance rate of the last rounds.

    The rate is accepted / tested, each round counting ``decay`` times what the one
    after it counts, so that the last 1 / (1 - decay) rounds or so matter. Before the
    first it is ``prior``, as from ``weight`` tested guesses, which fade like the rest.
    The best k is :func:`specdec_lib.theory.best_k` of that rate, to two digits.

    At k = 0 nothing is tested and nothing would ever change. So after 1 round without
    guesses it drafts one to see; after 2 more where that is rejected, then 4, 8, ..,
    at most ``patience``; after 1 again where one is accepted. A draft that has become
    perfect is found after at most ``patience`` rounds, and after some s guesses k is 1
    or more for good: decay^s < 1 - draft_cost where T(2) = T(1). A useless draft costs
    c + T(2) / T(1) - 1 for each of its guesses: with the defaults and c = 0.1 these are
    22 at first, then 6 tries, then one in ``patience`` + 1 rounds.

    draft_cost, verify_cost
        as in :func:`specdec_lib.theory.speedup`.
    max_k
        k is 0 .. max_k, >= 1.
    decay
        inside 0 .. 1.
    prior, weight
        a rate in [0, 1]; > 0.
    patience
        rounds, >= 1.
    """

    def __init__(
        self,
        draft_cost: float,
        verify_cost: Callable[[int], float] | None = None,
        *,
        max_k: int = 16,
        decay: float = 0.95,
        prior: float = 0.7,
        weight: float = 4.0,
        patience: int = 32,
    ) -> None:
        check_count("max_k", max_k, least=1)
        self._tries = _Tries(patience)
        _check_memory(decay, prior, weight)
        self._best = tuple(  # by the rate in hundredths: a round then only looks it up
            best_k(i / 100, draft_cost, verify_cost, max_k=max_k) for i in range(101)
        )
        self._decay = decay
        self._accepted, self._tested = prior * weight, weight

    @property
    def rate(self) -> float:
        """The acceptance rate as it is thought to be."""
        return self._accepted / self._tested

    def _best_k(self) -> int:
        return self._best[int(100 * self.rate + 0.5)]

    def next_k(self) -> int:
        k = self._best_k()
        return 1 if k == 0 and self._tries.due else k

    def observe(self, round: Round) -> None:
        in_vain = self._best_k() == 0 and not round.accepted
        self._tries.observe(guessed=round.tested > 0, failed=in_vain)
        if round.tested:
            self._accepted = self._decay * self._accepted + round.accepted
            self._tested = self._decay * self._tested + round.tested

    def __repr__(self) -> str:
        return f"RecentAcceptance(rate={self.rate:.2f}, next_k={self.next_k()})"


class PayingLength:
    """The k that would have been best in the last rounds, and never a dear mistake.

    For drafts that do not always guess, such as those that copy: only rounds with
    guesses teach it something. It looks back at these, each counting ``decay`` times
    what the one after it counts, and asks of every k what they would have brought and
    taken had at most k guesses been drafted. It takes the k with the most tokens for
    the time; k = 0 where none is better than that. Before the first round it is as if
    ``weight`` rounds had been seen, in which each guess was accepted with ``prior``.

    Where a draft gave as many guesses as it was asked for, it could have given more.
    They are thought to cost what guesses cost, and, where all before them were
    accepted, to be accepted at the rate of the last rounds.

    **Never dear.** It keeps account of what guesses have cost and brought, in units of
    a plain call of the target, and drafts only what it could lose. At every moment

        time <= plain time + credit + allowance * tokens

    where plain time is one unit for each token that came out; so, by the measured
    costs, n tokens never take longer than n + credit + allowance * n plain calls. What
    it has gained it may lose again, up to ``most``.

    At k = 0 nothing would ever change. So after 1 round without guesses it asks for one
    to see; after 2 more where that is rejected, then 4, 8, .., at most ``patience``;
    after 1 again where one is accepted.

    verify_cost, draft_cost
        as in :func:`specdec_lib.theory.speedup`; ``verify_cost`` is asked for 1 to
        max_k + 1. A draft that copies costs nothing.
    max_k
        k is 0 .. max_k, >= 1.
    decay
        inside 0 .. 1.
    prior, weight
        a rate in [0, 1]; > 0.
    allowance, credit, most
        each >= 0, ``most`` at least ``credit``.
    patience
        rounds, >= 1.

    Rounds must be of chains: ValueError for one that guessed a tree.

    Source: our own.

    >>> from specdec_lib.theory import cost_curve
    >>> policy = PayingLength(cost_curve([1, 9], [1.0, 1.8]))
    >>> policy.next_k()
    4
    """

    def __init__(
        self,
        verify_cost: Callable[[int], float],
        draft_cost: float = 0.0,
        *,
        max_k: int = 8,
        decay: float = 0.9,
        prior: float = 0.7,
        weight: float = 2.0,
        allowance: float = 0.01,
        credit: float = 1.0,
        most: float = 4.0,
        patience: int = 32,
    ) -> None:
        check_count("max_k", max_k, least=1)
        self._tries = _Tries(patience)
        _check_amount("draft_cost", draft_cost)
        _check_memory(decay, prior, weight)
        _check_amount("allowance", allowance)
        _check_amount("credit", credit)
        if not most >= credit:
            raise ValueError(f"most must be at least credit = {credit}, got {most}")
        calls = [float(verify_cost(n)) for n in range(1, max_k + 2)]
        if not all(0 < call < np.inf for call in calls):
            raise ValueError(f"verify_cost must be finite and > 0, got {calls}")
        # What k guesses take beyond a plain call.
        self._extra = [
            call / calls[0] - 1 + k * draft_cost for k, call in enumerate(calls)
        ]
        self._decay, self._allowance, self._most = decay, allowance, most
        self.balance = float(credit)  # plain calls that may be lost
        # The last rounds with guesses, and of each k: what they would have brought
        # beyond a token, and taken beyond a plain call, had there been at most k.
        self._rounds = float(weight)
        self._gains = [weight * gain for gain in _run_lengths(prior, max_k)]
        self._costs = [weight * extra for extra in self._extra]
        self._accepted, self._tested = prior * weight, float(weight)
        self._asked, self._trying = 0, False

    def next_k(self) -> int:
        best = max(range(len(self._extra)), key=self._pace)
        self._trying = best == 0
        payable = [k for k, extra in enumerate(self._extra) if extra <= self.balance]
        if self._trying:
            self._asked = int(self._tries.due and 1 in payable)
        else:
            self._asked = max([0, *payable], key=self._pace)
        return self._asked

    def _pace(self, k: int) -> float:
        """Tokens per plain call, had there been at most k guesses."""
        return (self._rounds + self._gains[k]) / (self._rounds + self._costs[k])

    def observe(self, round: Round) -> None:
        if round.parents is not None:
            raise ValueError("rounds must be of chains, got one with a tree of guesses")
        n, gain = len(round.drafted), len(round.emitted) - 1
        earned = self._allowance * len(round.emitted) + gain - self._extra[n]
        self.balance = min(self._most, self.balance + earned)
        in_vain = self._trying and not round.accepted
        self._tries.observe(guessed=n > 0, failed=in_vain)
        if not n:
            return
        decay = self._decay
        self._accepted = decay * self._accepted + round.accepted
        self._tested = decay * self._tested + round.tested
        self._rounds = decay * self._rounds + 1
        all_passed = n == self._asked == round.accepted
        more = _run_lengths(self._accepted / self._tested, len(self._extra) - 1)
        for k, extra in enumerate(self._extra):
            gained = float(min(k, gain))
            if all_passed and k > n:
                gained = n + more[k - n]
            # The draft might have gone on where it gave all that it was asked for.
            taken = extra if n == self._asked else self._extra[min(k, n)]
            self._gains[k] = decay * self._gains[k] + gained
            self._costs[k] = decay * self._costs[k] + taken

    def __repr__(self) -> str:
        return f"PayingLength(balance={self.balance:.2f}, next_k={self.next_k()})"


def _run_lengths(rate: float, most: int) -> list[float]:
    """rate + rate^2 + .. + rate^k for k = 0 .. most: guesses that pass, of k."""
    sums = [0.0]
    for k in range(1, most + 1):
        sums.append(sums[-1] + rate**k)
    return sums


# Below this chance guesses of a draft that copies are not worth their place in a call,
# however cheap: measured on the model's answers, .05 gained nothing over .1.
LEAST_THRESHOLD = 0.05


def copies_that_pay(
    verify_cost: Callable[[int], float],
    *,
    history: SuffixHistory | None = None,
    max_k: int = 15,
) -> tuple[SuffixDraft, PayingLength]:
    """A draft that copies, and its length, for a target with these costs.

    The draft guesses on as long as all its guesses hold with a chance of at least
    T(2) / T(1) - 1: what a first guess has to bring to pay for itself where nothing
    else is gained, see :func:`break_even`. Later guesses cost less in most curves, but
    their chances are the less well known. The length guards against a text on which
    these chances are wrong.

    verify_cost, max_k
        as for :class:`PayingLength`; a curve measured up to 16 tokens by
        :func:`specdec_lib.comparison.measure_cost_curve` serves for max_k = 15.
    history
        other texts to copy from, or None.

    >>> from specdec_lib.theory import cost_curve
    >>> draft, k = copies_that_pay(cost_curve([1, 2, 16], [1.0, 1.2, 2.0]))
    >>> round(draft.threshold, 12), k.next_k()
    (0.2, 6)
    """
    k = PayingLength(verify_cost, max_k=max_k)  # which also checks the costs
    threshold = verify_cost(2) / verify_cost(1) - 1
    threshold = min(max(threshold, LEAST_THRESHOLD), 1.0)
    return SuffixDraft(history, threshold=threshold), k
