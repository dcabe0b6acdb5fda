"""Chapters 3, 8 to 10, 12 and 14, and the notation: tokens and time, beside all
outcomes and beside the loop under a clock."""

from collections import Counter
from fractions import Fraction
from itertools import islice, product
from math import prod

import numpy as np
import pytest
from clock_kit import Clock
from identities_kit import close, identity, random_row, rows

import specdec_lib as sd
from specdec_lib import comparison, decoding, theory
from specdec_lib.draft_length import break_even
from specdec_lib.drafts import SuffixDraft

GREEDY = sd.Sampler(temperature=0)
P, Q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)  # the pencil pair: 1 - TV = 0.7
ALPHAS = [Fraction(i, 10) for i in range(10)]
COSTS = (  # T(n)
    lambda n: 1.0,
    lambda n: 2.5,
    lambda n: 1.0 + 0.1 * (n - 1),
    lambda n: 0.2 * n,
    lambda n: 3.0 + 0.5 * (n > 4) + 0.25 * (n > 8),
)


# -- The loop under a clock


class Counting:
    """Says i + 1 after i; a call over n tokens takes cost(n)."""

    vocab_size, bos_id, context_window = 16, None, None

    def __init__(self, clock, cost):
        self.clock, self.cost = clock, cost

    def start(self):
        return CountingState(self)


class CountingState:
    def __init__(self, model):
        self.model, self.length = model, 0

    def extend(self, tokens):
        self.model.clock.now += self.model.cost(len(tokens))
        self.length += len(tokens)
        size = self.model.vocab_size
        return np.log(np.eye(size)[(np.array(tokens) + 1) % size] + 1e-9)

    def rewind(self, length):
        self.length = length


class Guessing:
    """Guesses for it, `seconds` for each. In round r, `lengths[r]` guesses at most, of
    which `right[r]` are right; both begin again when they are used up."""

    def __init__(self, clock, seconds, right=(99,), lengths=(99,)):
        self.clock, self.seconds = clock, seconds
        self.right, self.lengths = right, lengths

    def start(self, prompt):
        session = Guessing(self.clock, self.seconds, self.right, self.lengths)
        session.last, session.round = prompt[-1], 0
        return session

    def propose(self, k, rng):
        n = min(k, self.lengths[self.round % len(self.lengths)])
        right = self.right[self.round % len(self.right)]
        self.round += 1
        self.clock.now += self.seconds * n
        tokens = [(self.last + 1 + i) % 16 for i in range(n)]
        return sd.Proposal(tuple(tokens[:right]) + (self.last,) * (n - right))

    def commit(self, tokens):
        self.last = tokens[-1]


def timed(cost, draft=None, k=0, rounds=12, seconds=0.0, **how):
    """(seconds, the rounds) of the first so many rounds; the prompt is one token."""
    clock = Clock()
    draft = Guessing(clock, seconds, **how) if k else None
    stream = sd.stream(
        Counting(clock, cost),
        [1],
        draft=draft,
        k=k,
        max_new_tokens=10_000,
        sampler=GREEDY,
    )
    done = list(islice(stream, rounds))
    return clock.now, done


def emitted(done):
    return sum(len(each.emitted) for each in done)


# -- `def-03-cost`, `def-03-draft-cost`


@identity(
    "def-03-cost",
    lambda cost, n: cost(n) / cost(1),
    wrong={
        "the other way round": lambda cost, n: cost(1) / cost(n),
        "for each token": lambda cost, n: cost(n) / cost(1) / n,
        "the seconds": lambda cost, n: cost(n),
    },
)
def test_the_cost_of_a_call(formula):
    """What the library measures, under a clock that only the calls move."""
    ns = (1, 2, 3, 5, 8, 12)
    for cost, context in product(COSTS, (0, 7)):
        clock = Clock()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(comparison, "perf_counter", clock)
            curve = comparison.measure_cost_curve(
                Counting(clock, cost), ns, context=context, repeats=2
            )
        assert all(close(curve(n), formula(cost, n)) for n in ns)


@identity(
    "def-03-draft-cost",
    lambda draft, one: draft / one,
    wrong={
        "the other way round": lambda draft, one: one / draft,
        "the draft's share": lambda draft, one: draft / (draft + one),
    },
)
def test_the_cost_of_a_guess(formula):
    """What the library measures of a draft whose guess takes so long."""
    for cost, seconds, k in product(COSTS, (0.05, 0.4), (1, 4)):
        clock = Clock()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(comparison, "perf_counter", clock)
            patch.setattr(decoding, "perf_counter", clock)
            found = comparison.compare(
                Counting(clock, cost),
                [1],
                draft=Guessing(clock, seconds),
                k=k,
                max_new_tokens=20,
                sampler=GREEDY,
                repeats=1,
            )
        assert close(found.draft_cost, formula(seconds, cost(1)), 1e-9)


# -- `eq-03-intensity`, `eq-03-roof`, `eq-03-ceiling`


def intensity(n, weights, v):
    return Fraction(2 * n * weights, 4 * weights + n * v)


@identity(
    "eq-03-intensity",
    (intensity, lambda n: Fraction(n, 2)),
    wrong={
        "one operation for each weight": (
            lambda n, weights, v: intensity(n, weights, v) / 2,
            lambda n: Fraction(n, 2),
        ),
        "the vectors read once": (
            lambda n, weights, v: Fraction(2 * n * weights, 4 * weights + v),
            lambda n: Fraction(n, 2),
        ),
        "n and not half of it": (intensity, lambda n: Fraction(n)),
    },
)
def test_operations_for_each_byte(formula):
    """Counted on arrays: a multiplication and an addition for each weight and token;
    the bytes of the weights once, those of the vectors in and out for each token."""
    exactly, nearly = formula
    for rows_, columns, n in product((3, 40), (5, 64), (1, 4, 16)):
        matrix = np.ones((rows_, columns), dtype=np.float32)
        vectors = np.ones((columns, n), dtype=np.float32)
        made = matrix @ vectors
        operations = made.size * (columns + columns)  # products, and sums from 0
        moved = matrix.nbytes + vectors.nbytes + made.nbytes
        v = (vectors.nbytes + made.nbytes) // n
        assert exactly(n, matrix.size, v) == Fraction(operations, moved)
    for n in (1, 8, 64):  # vectors that are small beside the weights
        assert abs(exactly(n, 10**9, 1_000) / nearly(n) - 1) < 1e-4


@identity(
    "eq-03-roof",
    lambda peak, bandwidth, i: min(peak, i * bandwidth),
    wrong={
        "the larger": lambda peak, bandwidth, i: max(peak, i * bandwidth),
        "the two added": lambda peak, bandwidth, i: 1 / (1 / peak + 1 / i / bandwidth),
        "bytes for each operation": lambda peak, bandwidth, i: min(peak, bandwidth / i),
    },
)
def test_the_roof(formula):
    """A simulation in small steps: in each, so many bytes may come and so many
    operations may be done, none before its bytes are there."""
    for peak, bandwidth, i in product((6, 100), (4, 50), (0.25, 1.0, 3.0, 40.0)):
        total, steps = 50_000.0, 0
        done = fetched = 0.0
        while done < total:
            steps += 1
            fetched = min(fetched + bandwidth, total / i)
            done = min(done + peak, fetched * i)
        assert abs(total / steps / formula(peak, bandwidth, i) - 1) < 0.02


def ceiling(k, c, ratio):
    return (k + 1) / (k * c + ratio(k + 1))


@identity(
    "eq-03-ceiling",
    ceiling,
    wrong={
        "k tokens a round": lambda k, c, ratio: k / (k * c + ratio(k + 1)),
        "a call for the guesses alone": lambda k, c, ratio: (
            (k + 1) / (k * c + ratio(max(k, 1)))
        ),
        "a guess more": lambda k, c, ratio: (k + 1) / ((k + 1) * c + ratio(k + 1)),
    },
)
def test_the_most_that_a_round_can_gain(formula):
    """Guesses that are all right reach it; others do not go beyond."""
    for cost, k, c in product(COSTS, (0, 1, 2, 4, 8), (0.0, 0.1, 0.5)):
        most = formula(k, c, lambda n, cost=cost: cost(n) / cost(1))
        for right in ((99,), (k, 0), (0,)):
            seconds, done = timed(cost, k=k, seconds=c * cost(1), right=right)
            gained = emitted(done) * cost(1) / seconds
            assert gained <= most + 1e-12
            if right == (99,):
                assert close(gained, most)


# -- `thm-08-tokens`, `eq-08-tokens`, `eq-08-chain`, `eq-08-speedup`


def tokens(alpha, k):
    return (1 - alpha ** (k + 1)) / (1 - alpha)


WRONG_TOKENS = {
    "one guess less": lambda alpha, k: (1 - alpha**k) / (1 - alpha),
    "no token of the target": lambda alpha, k: alpha * tokens(alpha, k),
    "the mean of accepted": lambda alpha, k: 1 + k * alpha,
}


@identity("eq-08-tokens", tokens, wrong=WRONG_TOKENS)
def test_tokens_of_a_round_over_all_outcomes(formula):
    """Each guess passes or fails; exact fractions."""
    for alpha, k in product(ALPHAS, range(7)):
        mean = Fraction(0)
        for passes in product((True, False), repeat=k):
            weight = prod((alpha if each else 1 - alpha for each in passes), start=1)
            kept = passes.index(False) if False in passes else k
            mean += weight * (kept + 1)
        assert formula(alpha, k) == mean


@identity(
    "thm-08-tokens",
    lambda alpha, k: tokens(alpha, k) if alpha < 1 else k + 1,
    wrong={
        **{
            slip: lambda alpha, k, other=other: other(alpha, k) if alpha < 1 else k + 1
            for slip, other in WRONG_TOKENS.items()
        },
        "k tokens where all are accepted": lambda alpha, k: (
            tokens(alpha, k) if alpha < 1 else k
        ),
    },
)
def test_tokens_of_a_real_round(formula):
    """The library's loop on the same p and q everywhere, every path of it."""
    for (p, q), k in product(((P, Q), (P, P), ((1, 0, 0), Q)), range(4)):
        alpha = sum(map(min, p, q))

        with np.errstate(divide="ignore"):
            target = sd.FunctionModel(lambda seq, p=p: np.log(np.array(p, float)), 3)
            model = sd.FunctionModel(lambda seq, q=q: np.log(q), 3)

        def run(rng, target=target, model=model, k=k):
            with np.errstate(divide="ignore"):
                first = next(
                    sd.stream(
                        target,
                        [0],
                        draft=sd.ModelDraft(model),
                        k=k,
                        max_new_tokens=k + 1,
                        rng=rng,
                    )
                )
            return len(first.emitted)

        law = sd.exact_distribution(run)
        mean = sum(length * weight for length, weight in law.items())
        if abs(alpha - 1) < 1e-12:
            alpha = 1
        assert close(mean, formula(alpha, k), 1e-9)


def by_place(rates):
    return 1 + sum(prod(rates[: i + 1]) for i in range(len(rates)))


@identity(
    "eq-08-chain",
    by_place,
    wrong={
        "the rates added": lambda rates: 1 + sum(rates),
        "the last product alone": lambda rates: 1 + prod(rates),
        "no token of the target": lambda rates: by_place(rates) - 1,
        "the mean rate": lambda rates: sum(
            (sum(rates) / max(len(rates), 1)) ** i for i in range(len(rates) + 1)
        ),
    },
)
def test_tokens_whatever_hangs_together(formula):
    """Any joint law of passing and failing, drawn at random; all of its outcomes."""
    for seed, k in product(range(5), range(6)):
        outcomes = list(product((True, False), repeat=k))
        g = np.random.default_rng(seed)
        weights = [Fraction(int(w)) for w in g.integers(1, 20, len(outcomes))]
        law = {
            each: w / sum(weights) for each, w in zip(outcomes, weights, strict=True)
        }

        def first_pass(i, law=law):
            return sum(w for passes, w in law.items() if all(passes[:i]))

        mean = sum(
            w * ((passes.index(False) if False in passes else k) + 1)
            for passes, w in law.items()
        )
        rates = [first_pass(i + 1) / first_pass(i) for i in range(k)]
        assert formula(rates) == mean
        assert close(theory.expected_tokens_by_position(rates), mean)


def round_cost(k, c, ratio):
    return k * c + ratio(k + 1)


def gain(n, cost):
    return n / cost


@identity(
    "eq-08-speedup",
    (round_cost, gain),
    wrong={
        "a call for one token": (lambda k, c, ratio: k * c + ratio(1), gain),
        "one guess": (lambda k, c, ratio: c + ratio(k + 1), gain),
        "accepted over cost": (round_cost, lambda n, cost: (n - 1) / cost),
        "the time": (round_cost, lambda n, cost: cost / n),
    },
)
def test_the_cost_of_a_round_and_the_speedup(formula):
    """Seconds of the loop, with rounds that bring this and that."""
    cost_of, speedup = formula
    for cost, k, c in product(COSTS, (1, 3, 6), (0.0, 0.1, 0.5)):

        def ratio(n, cost=cost):
            return cost(n) / cost(1)

        for right in ((99,), (0,), (2, 0, 1)):
            seconds, done = timed(cost, k=k, seconds=c * cost(1), right=right)
            plain, alone = timed(cost, rounds=emitted(done))
            assert emitted(alone) == emitted(done)
            in_units = cost_of(k, c, ratio)
            assert close(seconds / len(done) / cost(1), in_units, 1e-9)
            n = emitted(done) / len(done)
            assert close(plain / seconds, speedup(n, in_units), 1e-9)


# -- `thm-08-marginal`, `eq-08-marginal`


def pays(alpha, k, m, s):
    return alpha ** (k + 1) / m > s


def threshold(m):
    return m[0]


def mean_tokens(alpha, k):
    return sum(alpha**i for i in range(k + 1))


@identity(
    "thm-08-marginal",
    (pays, threshold),
    wrong={
        "the guess before it": (
            lambda alpha, k, m, s: alpha**k / m > s,
            threshold,
        ),
        "one token for each unit": (
            lambda alpha, k, m, s: alpha ** (k + 1) / m > 1,
            threshold,
        ),
        "the second price": (pays, lambda m: m[1]),
    },
)
def test_one_more_guess(formula):
    """In fractions, for prices that stay and prices that rise."""
    worth, least = formula
    steps = [Fraction(i, 40) for i in (1, 4, 10, 30)]
    longest = 30
    for alpha, first, rise in product(ALPHAS[1:], steps, (0, Fraction(1, 50), 1)):
        m = [first + rise * k for k in range(longest)]
        cost = [1 + sum(m[:k]) for k in range(longest)]
        s = [mean_tokens(alpha, k) / cost[k] for k in range(longest)]
        up = [s[k + 1] > s[k] for k in range(longest - 1)]
        assert up == [worth(alpha, k, m[k], s[k]) for k in range(longest - 1)]
        assert up[0] == (alpha > least(m))
        if False in up:
            before = up.index(False)
            assert not any(up[before:])
            assert s.index(max(s)) == before
            if rise == 0:
                assert theory.best_k(float(alpha), float(first)) == before
    for alpha in ALPHAS[1:]:  # part 1 asks nothing of the order of the prices
        g = np.random.default_rng(int(alpha * 10))
        m = [Fraction(int(i), 20) for i in g.integers(1, 30, 12)]
        cost = [1 + sum(m[:k]) for k in range(13)]
        s = [mean_tokens(alpha, k) / cost[k] for k in range(13)]
        for k in range(12):
            assert (s[k + 1] > s[k]) == worth(alpha, k, m[k], s[k])


def race(alpha, k, m):
    return (1 / alpha) ** (k + 1) < 1 + (1 - alpha) * (k + 1 / m)


@identity(
    "eq-08-marginal",
    race,
    wrong={
        "a guess less": lambda alpha, k, m: (
            (1 / alpha) ** k < 1 + (1 - alpha) * (k + 1 / m)
        ),
        "no 1": lambda alpha, k, m: (1 / alpha) ** (k + 1) < (1 - alpha) * (k + 1 / m),
        "m and not 1 / m": lambda alpha, k, m: (
            (1 / alpha) ** (k + 1) < 1 + (1 - alpha) * (k + m)
        ),
    },
)
def test_an_exponential_against_a_line(formula):
    for alpha, k, c, slope in product(
        ALPHAS[1:], range(8), (0, Fraction(1, 10)), (Fraction(1, 50), Fraction(1, 4))
    ):

        def speedup(k, alpha=alpha, c=c, slope=slope):
            return mean_tokens(alpha, k) / (k * c + 1 + slope * k)

        assert formula(alpha, k, c + slope) == (speedup(k + 1) > speedup(k))


# -- `prop-09-limits`


def cold_limit(p, q):
    return int(p.index(max(p)) == q.index(max(q)))


def hot_limit(p, q):
    support = [{x for x, value in enumerate(row) if value} for row in (p, q)]
    return Fraction(len(support[0] & support[1]), max(map(len, support)))


@identity(
    "prop-09-limits",
    (cold_limit, hot_limit),
    wrong={
        "the smaller set": (
            cold_limit,
            lambda p, q: (
                hot_limit(p, q)
                * max(sum(map(bool, p)), sum(map(bool, q)))
                / min(sum(map(bool, p)), sum(map(bool, q)))
            ),
        ),
        "the union": (
            cold_limit,
            lambda p, q: Fraction(
                sum(bool(a and b) for a, b in zip(p, q, strict=True)),
                sum(bool(a or b) for a, b in zip(p, q, strict=True)),
            ),
        ),
        "always 1 when cold": (lambda p, q: 1, hot_limit),
    },
)
def test_the_two_ends_of_the_temperature(formula):
    """By the library's sampler, for all rows in sixths with one most probable token."""
    cold, hot = formula
    single = [row for row in rows(3, 6) if row.count(max(row)) == 1]
    with np.errstate(divide="ignore"):
        logits = {row: np.log([float(x) for x in row]) for row in single}
    ends = [
        {row: sd.Sampler(temperature=t)(logits[row]) for row in single}
        for t in (0.005, 1e7)
    ]
    for p, q in product(single, single):
        for line, at in zip((cold, hot), ends, strict=True):
            accepted = np.minimum(at[p], at[q]).sum()
            assert close(accepted, line(p, q), 1e-6)


# -- `eq-10-chance`


def chance_of_a_copy(count, followed, rivals, doubt, matched):
    return count / (followed + rivals + doubt / matched)


@identity(
    "eq-10-chance",
    chance_of_a_copy,
    wrong={
        "no rivals": lambda count, followed, rivals, doubt, matched: (
            count / (followed + doubt / matched)
        ),
        "the whole doubt": lambda count, followed, rivals, doubt, matched: (
            count / (followed + rivals + doubt)
        ),
        "the share": lambda count, followed, rivals, doubt, matched: count / followed,
    },
)
def test_the_chance_of_a_copy(formula):
    """Longest match, counts and rivals found by looking at every place of the text."""
    texts = [
        list(b"banana"),
        list(b"abracadabra abracad"),
        [1, 1, 1, 1],
        [1, 2, 1, 3, 1],
    ]
    for seed in range(8):
        texts.append(np.random.default_rng(seed).integers(0, 3, 40).tolist())
    several = 0
    for text in texts:
        session = SuffixDraft(threshold=0.0).start(text)
        guess = session.propose(1).tokens
        for matched in range(len(text) - 1, 0, -1):
            end = text[-matched:]
            places = range(len(text) - matched)
            behind = Counter(
                text[i + matched] for i in places if text[i : i + matched] == end
            )
            if behind:
                break
        assert session.match == matched
        assert behind[guess[0]] == max(behind.values())
        several += len(behind) > 1
        said = formula(
            behind[guess[0]],
            sum(behind.values()),
            len(behind) - 1,
            session.doubt,
            matched,
        )
        assert close(session.chances[0], said)
    assert several > 3


# -- `thm-12-rule`


def goes_on(reached, rate, m):
    return reached > rate * m


class Places:
    """Rounds in which the draft sees, before each guess, how likely it is accepted.

    A round goes down a tree of signals: `chances[signals]` is the chance of the guess
    that follows, once those signals were seen; each next signal is as likely as the
    others. The draft never learns whether a guess was accepted.
    """

    def __init__(self, seed, depth, signals=2):
        g = np.random.default_rng(seed)
        self.depth, self.signals = depth, signals
        self.chances = {}
        for length in range(1, depth + 1):
            for seen in product(range(signals), repeat=length):
                self.chances[seen] = Fraction(int(g.integers(2, 20)), 20)

    def reached(self, seen):
        """The chance that this guess and all before it are accepted."""
        return prod(
            (self.chances[seen[: i + 1]] for i in range(len(seen))), start=Fraction(1)
        )

    def means(self, policy, c, times):
        """(tokens, time) of a round, on average; the policy says whether to go on."""

        def follow(seen, weight):
            n = len(seen)
            if n == self.depth:
                return Fraction(0), Fraction(0)
            brought = taken = Fraction(0)
            for signal in range(self.signals):
                now = (*seen, signal)
                if not policy(now):
                    continue
                share = weight / self.signals
                more = follow(now, share)
                brought += share * self.reached(now) + more[0]
                price = c + (times(n + 2) - times(n + 1)) / times(1)
                taken += share * price + more[1]
            return brought, taken

        brought, taken = follow((), Fraction(1))
        return 1 + brought, 1 + taken

    def policies(self):
        """All of them: the sets of signals after which one goes on."""

        def below(seen):
            if len(seen) == self.depth:
                return [frozenset()]
            ways = [
                [frozenset(), *(rest | {(*seen, s)} for rest in below((*seen, s)))]
                for s in range(self.signals)
            ]
            return [frozenset().union(*each) for each in product(*ways)]

        return below(())


@identity(
    "thm-12-rule",
    goes_on,
    wrong={
        "the price alone": lambda reached, rate, m: reached > m,
        "twice the rate": lambda reached, rate, m: reached > 2 * rate * m,
        "a chance of one half": lambda reached, rate, m: reached > Fraction(1, 2),
    },
)
def test_going_on_while_it_pays_is_the_best_policy(formula):
    """Of all policies, with signals that come as the round goes on; in fractions."""
    convex = (
        lambda n: Fraction(1),
        lambda n: 1 + Fraction(n - 1, 20),
        lambda n: 2 + Fraction((n - 1) ** 2, 30),
    )
    for seed, times, c in zip(
        range(6), convex * 2, (Fraction(1, 10), Fraction(2, 5)) * 3, strict=True
    ):
        places = Places(seed, 3)
        best = Fraction(0)
        for allowed in places.policies():
            brought, taken = places.means(allowed.__contains__, c, times)
            best = max(best, brought / taken)

        def rule(seen, places=places, best=best, c=c, times=times):
            n = len(seen) - 1
            price = c + (times(n + 2) - times(n + 1)) / times(1)
            bar = break_even(
                float(best), float(c), lambda n: float(times(n) / times(1)), n=n
            )
            assert close(bar, best * price)
            return formula(places.reached(seen), best, price)

        brought, taken = places.means(rule, c, times)
        assert brought / taken == best


# -- `eq-14-rounds`


def by_rounds(n, cost, scored):
    return n * cost(1) / sum(cost(each) for each in scored)


@identity(
    "eq-14-rounds",
    by_rounds,
    wrong={
        "the guesses alone": lambda n, cost, scored: (
            n * cost(1) / sum(cost(max(each - 1, 1)) for each in scored)
        ),
        "one call of the mean length": lambda n, cost, scored: (
            n * cost(1) / (len(scored) * cost(max(scored)))
        ),
        "rounds in place of tokens": lambda n, cost, scored: (
            len(scored) * cost(1) / sum(cost(each) for each in scored)
        ),
    },
)
def test_seconds_by_the_rounds(formula):
    """Copies that cost nothing and often are none: the loop's seconds, both ways."""
    for cost, lengths, right in product(
        COSTS, ((4, 0, 2), (0,), (1, 4, 4, 0)), ((99,), (0, 3), (1,))
    ):
        seconds, done = timed(cost, k=4, right=right, lengths=lengths)
        plain, _ = timed(cost, rounds=emitted(done))
        scored = [len(each.drafted) + 1 for each in done]
        said = formula(emitted(done), cost, scored)
        assert close(plain / seconds, said, 1e-9)
    cost = {1: 20, 3: 24, 5: 28}.get  # by pencil, in the chapter
    assert close(formula(3, cost, [1, 1, 1]), 1)


# -- `eq-run-figures`


def figures(drafted, tested, accepted, made, calls):
    return accepted / tested, accepted / drafted, made / calls


@identity(
    "eq-run-figures",
    figures,
    wrong={
        "all drafted as tested": lambda drafted, tested, *more: figures(
            drafted, drafted, *more
        ),
        "the accepted as emitted": lambda drafted, tested, accepted, made, calls: (
            figures(drafted, tested, accepted, accepted, calls)
        ),
    },
)
def test_the_figures_of_a_run(formula):
    """Counted by hand over rounds of the loop, and asked of the library's metrics."""
    for seed, k, limit in product(range(3), (1, 4), (7, 40)):
        g = np.random.default_rng(seed)
        p, q = ([float(x) for x in random_row(g, 3)] for _ in range(2))
        target, model = (
            sd.FunctionModel(lambda seq, row=row: np.log(row), 3) for row in (p, q)
        )
        draft = sd.ModelDraft(model)
        run = sd.generate(
            target, [0], draft=draft, k=k, max_new_tokens=limit, seed=seed
        )
        drafted = tested = accepted = made = 0
        for each in run.rounds:
            drafted += len(each.drafted)
            for guess, came in zip(each.drafted, each.emitted, strict=False):
                tested += 1
                accepted += guess == came
            made += len(each.emitted)
        assert made == limit
        found = run.metrics
        said = formula(drafted, tested, accepted, made, len(run.rounds))
        assert close(
            (found.acceptance_rate, found.draft_efficiency, found.tokens_per_call), said
        )
