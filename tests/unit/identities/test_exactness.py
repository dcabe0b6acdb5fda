"""Chapters 4 to 6: what the rules write, beside all outcomes added up."""

from fractions import Fraction
from itertools import product
from math import factorial, log, prod, sqrt

import numpy as np
import pytest
from identities_kit import chance, close, identity, random_rows, rows, texts

import specdec_lib as sd
from specdec_lib import theory
from specdec_lib.verification import lossy

optimize = pytest.importorskip("scipy.optimize", reason="SciPy is not installed")
stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")

GRID = rows(3, 4)
PAIRS = list(product(GRID, GRID))


def floats(row):
    return np.array([float(x) for x in row])


def tv(p, q):
    return sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2


def one_round(p, q, verify=sd.verify_tokens):
    """The library's rule on one guess from q: law of (kept, emitted token)."""
    p, q = floats(p), floats(q)

    def run(rng):
        guess = rng.categorical(q)
        verdict = verify(np.array([p, p]), sd.Proposal((guess,), q[None]), rng)
        return verdict.accepted, guess if verdict.accepted else verdict.next_token

    return sd.exact_distribution(run)


def most_agreement(p, q):
    """The largest Pr[X = Y] of all pairs (X, Y) with these laws: a linear programme."""
    size = len(p)
    sums = np.zeros((2 * size, size * size))
    for x, y in product(range(size), repeat=2):
        sums[x, x * size + y] = sums[size + y, x * size + y] = 1
    best = optimize.linprog(
        -np.eye(size).ravel(), A_eq=sums, b_eq=[*floats(q), *floats(p)]
    )
    return -best.fun


# -- `thm-04-greedy`


class AnyGuess:
    """A draft that guesses all there is, and says nothing of how: every path of it is
    another draft."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def start(self, prompt):
        return self

    def propose(self, k, rng):
        even = np.full(self.vocab_size, 1 / self.vocab_size)
        return sd.Proposal(tuple(rng.categorical(even) for _ in range(k)))

    def commit(self, tokens):
        pass


def best_token(row):
    return min(x for x, value in enumerate(row) if value == max(row))


@identity(
    "thm-04-greedy",
    (best_token, lambda n: n),
    wrong={
        "the highest id on ties": (
            lambda row: max(x for x, value in enumerate(row) if value == max(row)),
            lambda n: n,
        ),
        "a bound of one round less": (best_token, lambda n: n - 1),
    },
)
def test_every_draft_gives_the_greedy_text(formula):
    """All guesses of all rounds, for targets with ties."""
    best, most_rounds = formula
    for seed, size, k in product(range(4), (2, 3), (0, 1, 2)):
        tokens = 4 if size == 2 else 3
        g = np.random.default_rng(seed)
        table = {t: g.integers(0, 3, size) for t in texts(size, tokens)}
        model = sd.FunctionModel(
            lambda seq, table=table, tokens=tokens: table[
                (*seq, *[0] * tokens)[:tokens]
            ].astype(float),
            size,
        )
        prompt = (size - 1,)
        text = list(prompt)
        for _ in range(tokens):
            text.append(best(model.logits_after(tuple(text)).tolist()))

        def run(rng, model=model, size=size, k=k, tokens=tokens, prompt=prompt):
            made = sd.generate(
                model,
                prompt,
                draft=AnyGuess(size),
                k=k,
                max_new_tokens=tokens,
                sampler=sd.Sampler(temperature=0),
                rng=rng,
            )
            return made.tokens, made.metrics.target_calls

        outcomes = sd.exact_distribution(run)
        assert {written for written, _ in outcomes} == {tuple(text[1:])}
        assert max(rounds for _, rounds in outcomes) <= most_rounds(tokens)


# -- `thm-05-token`, `cor-05-acceptance`, `eq-02-overlap`


def kept(p_x, q_x):
    return min(Fraction(1), p_x / q_x)


def what_is_missing(p, q):
    m = sum(max(a - b, 0) for a, b in zip(p, q, strict=True))
    return [max(a - b, 0) / m for a, b in zip(p, q, strict=True)] if m else None


def emitted_law(p, q, keep, replaced):
    """Each guess, kept or replaced: all outcomes of one step."""
    law = [Fraction(0)] * len(p)
    for x, drawn in enumerate(q):
        if not drawn:
            continue
        law[x] += drawn * keep(p[x], drawn)
        rejected = drawn * (1 - keep(p[x], drawn))
        for y, r in enumerate(replaced(p, q) or ()) if rejected else ():
            law[y] += rejected * r
    return law


@identity(
    "thm-05-token",
    (kept, what_is_missing),
    wrong={
        "|p - q| as the residual": (
            kept,
            lambda p, q: [
                abs(a - b) / (2 * tv(p, q)) for a, b in zip(p, q, strict=True)
            ],
        ),
        "the residual upside down": (kept, lambda p, q: what_is_missing(q, p)),
        "the target as the residual": (kept, lambda p, q: p),
        "the ratio upside down": (
            lambda p_x, q_x: min(Fraction(1), q_x / p_x) if p_x else Fraction(1),
            what_is_missing,
        ),
        "always kept": (lambda p_x, q_x: Fraction(1), what_is_missing),
    },
)
def test_the_emitted_token_has_the_law_of_the_target(formula):
    """For all pairs of rows in quarters, zeros too; then the library's own rule."""
    for p, q in PAIRS:
        assert emitted_law(p, q, *formula) == list(p)
    for p, q in PAIRS[::7]:
        library = one_round(p, q)
        law = [sum(library.get((n, y), 0) for n in (0, 1)) for y in range(3)]
        assert close(law, [float(x) for x in p])


def overlap(p, q):
    return sum(min(a, b) for a, b in zip(p, q, strict=True))


@identity(
    "eq-02-overlap",
    overlap,
    wrong={
        "the larger one": lambda p, q: sum(map(max, p, q)),
        "a product": lambda p, q: sum(a * b for a, b in zip(p, q, strict=True)),
        "only where both are above 0": lambda p, q: Fraction(
            sum(bool(a and b) for a, b in zip(p, q, strict=True)), len(p)
        ),
    },
)
def test_the_overlap_is_the_most_that_two_draws_can_agree(formula):
    for p, q in PAIRS[::3]:
        assert close(most_agreement(p, q), formula(p, q), 1e-9)
        assert close(theory.acceptance(floats(p), floats(q)), formula(p, q))


@identity(
    "cor-05-acceptance",
    (overlap, lambda p, q: 1 - tv(p, q)),
    wrong={
        "the distance not halved": (overlap, lambda p, q: 1 - 2 * tv(p, q)),
        "the squares": (
            overlap,
            lambda p, q: 1 - sum((a - b) ** 2 for a, b in zip(p, q, strict=True)),
        ),
        "the smaller of p and q alone": (
            lambda p, q: min(p),
            lambda p, q: 1 - tv(p, q),
        ),
    },
)
def test_how_often_a_guess_is_accepted(formula):
    """By all outcomes of the library's rule, which no coupling beats."""
    for p, q in PAIRS:
        common, one_less = (line(p, q) for line in formula)
        assert common == one_less
    for p, q in PAIRS[::7]:
        library = one_round(p, q)
        accepted = sum(w for (n, _), w in library.items() if n)
        assert close(accepted, formula[0](p, q))
        assert close(most_agreement(p, q), accepted, 1e-9)


# -- `thm-05-text`


class Stops:
    """A draft with a row for each text; `goes_on(before, guess)` says whether a guess
    is made after `before`, and may peep at the guess itself."""

    def __init__(self, table, goes_on):
        self.table, self.goes_on = table, goes_on

    def start(self, prompt):
        session = Stops(self.table, self.goes_on)
        session.text = ()
        return session

    def propose(self, k, rng):
        guesses, given = (), []
        while len(guesses) < k:
            before = self.text + guesses
            row = floats(self.table[before])
            guess = rng.categorical(row)
            if not self.goes_on(before, guess):
                break
            guesses += (guess,)
            given.append(row)
        return sd.Proposal(guesses, np.array(given) if given else None)

    def commit(self, tokens):
        self.text += tuple(tokens)


BY_WHAT_STANDS_BEFORE = (
    lambda before, guess: True,
    lambda before, guess: before[-1:] != (1,),
    lambda before, guess: sum(before) % 2 == 0,
)


@identity(
    "thm-05-text",
    (BY_WHAT_STANDS_BEFORE, lambda p, q, text: chance(p, text)),
    wrong={
        "a guess that depends on itself": (
            (lambda before, guess: guess != 1,),
            lambda p, q, text: chance(p, text),
        ),
        "the draft's law": (
            BY_WHAT_STANDS_BEFORE,
            lambda p, q, text: chance(q, text),
        ),
        "the first token only": (
            BY_WHAT_STANDS_BEFORE,
            lambda p, q, text: p[()][text[0]],
        ),
    },
)
def test_any_number_of_tokens_has_the_law_of_the_target(formula):
    """Every path of the loop that is shipped; rows that differ after every text."""
    rules, law = formula
    length = 3
    for seed, k, goes_on in product((1, 2), (0, 1, 2, 3), rules):
        p, q = random_rows(seed, 3, length), random_rows(seed + 10, 3, length)
        target = sd.FunctionModel(lambda seq, p=p: np.log(floats(p[seq[1:]])), 3)

        def run(rng, target=target, q=q, goes_on=goes_on, k=k):
            draft = Stops(q, goes_on)
            return sd.generate(
                target, [0], draft=draft, k=k, max_new_tokens=length, rng=rng
            ).tokens

        written = sd.exact_distribution(run)
        for text in texts(3, length):
            assert close(written[text], law(p, q, text))


# -- `prop-06-law`


def law_of_a_test(q, a, r):
    refused = sum(q_x * (1 - a_x) for q_x, a_x in zip(q, a, strict=True))
    law = [q[y] * a[y] + refused * r[y] for y in range(len(q))]
    return law, 1 - refused


def without_replacement(q, a, r):
    _, accepted = law_of_a_test(q, a, r)
    return [q[y] * a[y] + (1 - a[y]) * r[y] for y in range(len(q))], accepted


@identity(
    "prop-06-law",
    law_of_a_test,
    wrong={
        "each token replaced by itself": without_replacement,
        "normalised in place of replaced": lambda q, a, r: (
            [
                q[y] * a[y] / max(law_of_a_test(q, a, r)[1], Fraction(1, 9))
                for y in range(len(q))
            ],
            law_of_a_test(q, a, r)[1],
        ),
        "the refused counted as accepted": lambda q, a, r: (
            law_of_a_test(q, a, r)[0],
            1 - law_of_a_test(q, a, r)[1],
        ),
    },
)
def test_the_law_of_any_test(formula):
    """All guesses and all replacements; then four rules of the library."""
    for q, r, a in product(GRID, GRID, product((0, 1), repeat=3)):
        law, yes = [Fraction(0)] * 3, Fraction(0)
        for (x, drawn), (y, put) in product(enumerate(q), enumerate(r)):
            law[x if a[x] else y] += drawn * put
            yes += drawn * put * a[x]
        assert formula(q, a, r) == (law, yes)
    for p, q in PAIRS[::11]:
        best = int(floats(p).argmax())
        certain = [int(y == best) for y in range(3)]
        for rule, a, r in (
            (lossy.verify_argmax, certain, certain),
            (lossy.probability_threshold(0.3), [x > 0.3 for x in p], certain),
            (
                lossy.ratio_threshold(0.7),
                [a > 0.7 * b for a, b in zip(p, q, strict=True)],
                p,
            ),
            (
                lossy.logit_ratio(0.35),
                [b * 0.65 > a for a, b in zip(p, q, strict=True)],
                p,
            ),
        ):
            found = one_round(p, q, rule)
            law, yes = formula(q, a, r)
            assert close(
                [found.get((0, y), 0) + found.get((1, y), 0) for y in range(3)],
                [float(x) for x in law],
            )
            assert close(sum(w for (n, _), w in found.items() if n), float(yes))


# -- `thm-06-price`


def price(p, q, law):
    """The two bounds."""
    return 1 - tv(law, q), 1 - tv(p, q) + tv(law, p)


def mixed(p, q, w):
    return [(1 - w) * a + w * b for a, b in zip(p, q, strict=True)]


@identity(
    "thm-06-price",
    (price, mixed),
    wrong={
        "half a point for a point": (
            lambda p, q, law: (1 - tv(law, q), 1 - tv(p, q) + tv(law, p) / 2),
            mixed,
        ),
        "no price": (lambda p, q, law: (1 - tv(law, q), 1 - tv(p, q)), mixed),
        "a square as the price": (
            lambda p, q, law: (1 - tv(law, q), 1 - tv(p, q) + tv(law, p) ** 2),
            mixed,
        ),
        "the uniform law mixed in": (
            price,
            lambda p, q, w: [(1 - w) * a + w * Fraction(1, 3) for a in p],
        ),
    },
)
def test_acceptance_has_a_price(formula):
    """The mixtures pay exactly that. No rule pays less, whatever its coins and whatever
    it puts in place of the refused."""
    bounds, mixture = formula
    for p, q, w in product(GRID, GRID, (0, Fraction(1, 4), Fraction(1, 2), 1)):
        law = mixture(p, q, w)
        assert emitted_law(law, q, kept, what_is_missing) == law
        assert overlap(law, q) == bounds(p, q, law)[0] == bounds(p, q, law)[1]
    grid = rows(3, 2)
    coins = list(product((Fraction(0), Fraction(1, 3), Fraction(1)), repeat=3))
    for q, a, r in product(rows(3, 3), coins, grid):
        law, alpha = law_of_a_test(q, a, r)
        for p in grid:
            first, second = bounds(p, q, law)
            assert alpha <= first <= second


# -- `eq-05-samples`, `eq-06-pearson`, `eq-06-shift`, `eq-06-samples`


def kl(a, b):
    return sum(x * log(x / y) for x, y in zip(a, b, strict=True))


def deviation(weights, law, base):
    """Of log law / base, under `weights`."""
    scores = [log(x / y) for x, y in zip(law, base, strict=True)]
    mean = sum(w * s for w, s in zip(weights, scores, strict=True))
    squares = sum(w * (s - mean) ** 2 for w, s in zip(weights, scores, strict=True))
    return sqrt(squares)


def samples(z0, z1):
    def n(law, p):
        s0, s1 = deviation(p, law, p), deviation(law, law, p)
        return ((z0 * s0 + z1 * s1) / (kl(law, p) + kl(p, law))) ** 2

    return n


def errors(law, p, n, z0):
    """(false alarms, faults found) of the test of chapters 5 and 6 on n samples of two
    kinds: exact, by the binomial law of how many are of the first."""
    scores = [log(x / y) for x, y in zip(law, p, strict=True)]
    counts = np.arange(n + 1)
    total = counts * scores[0] + (n - counts) * scores[1]
    s0 = deviation(p, law, p)
    high = total > n * -kl(p, law) + z0 * s0 * sqrt(n)
    return [float(stats.binom.pmf(counts, n, w[0])[high].sum()) for w in (p, law)]


LAWS = [  # the law with the fault, and the target's; of two kinds of text
    ((0.52, 0.48), (0.5, 0.5)),
    ((0.31, 0.69), (0.3, 0.7)),
    ((0.29, 0.71), (0.3, 0.7)),
    ((0.11, 0.89), (0.1, 0.9)),
    ((0.095, 0.905), (0.1, 0.9)),
]


def sample_sizes(z0, z1, alarms, found):
    def check(formula):
        assert close(stats.norm.isf(alarms), z0, 5e-4)
        assert close(stats.norm.isf(1 - found), z1, 5e-4)
        for law, p in LAWS:
            n = int(np.ceil(formula(law, p)))
            false, hits = errors(law, p, n, z0)
            assert abs(false / alarms - 1) < 0.15
            assert abs(hits - found) < 0.01

    return check


@identity(
    "eq-05-samples",
    samples(3.090, 1.645),
    wrong={
        "no square": lambda law, p: samples(3.090, 1.645)(law, p) ** 0.5,
        "the other constants": samples(1.645, 1.282),
        "one divergence": lambda law, p: 4 * samples(3.090, 1.645)(law, p),
        "variances": lambda law, p: (
            (
                (
                    3.090 * deviation(p, law, p) ** 2
                    + 1.645 * deviation(law, law, p) ** 2
                )
                / (kl(law, p) + kl(p, law))
            )
            ** 2
        ),
    },
)
def test_samples_that_reveal_a_fault(formula):
    """One false alarm in a thousand, and 95 of a hundred faults found."""
    sample_sizes(3.090, 1.645, 0.001, 0.95)(formula)
    for law, p in LAWS[:3]:  # small faults hang on one number
        chi2 = sum((a - b) ** 2 / b for a, b in zip(law, p, strict=True))
        assert abs(formula(law, p) / (22.4 / chi2) - 1) < 0.05


@identity(
    "eq-06-samples",
    samples(1.645, 1.282),
    wrong={
        "no square": lambda law, p: samples(1.645, 1.282)(law, p) ** 0.5,
        "chapter 5's constants": samples(3.090, 1.645),
        "half of it": lambda law, p: samples(1.645, 1.282)(law, p) / 2,
    },
)
def test_tokens_that_reveal_a_rule(formula):
    """Five false alarms in a hundred, and nine of ten rules found."""
    sample_sizes(1.645, 1.282, 0.05, 0.9)(formula)


def counts_of(n, kinds=3):
    for cut in product(range(n + 1), repeat=kinds - 1):
        if sum(cut) <= n:
            yield (*cut, n - sum(cut))


def multinomial(counts, law):
    ways = factorial(sum(counts)) // prod(map(factorial, counts))
    return ways * prod(w**c for w, c in zip(law, counts, strict=True))


def pearson(counts, p):
    n = sum(counts)
    return sum((c - n * w) ** 2 / (n * w) for c, w in zip(counts, p, strict=True))


@identity(
    "eq-06-pearson",
    pearson,
    wrong={
        "no square": lambda counts, p: sum(
            abs(c - sum(counts) * w) / (sum(counts) * w)
            for c, w in zip(counts, p, strict=True)
        ),
        "the count below": lambda counts, p: sum(
            (c - sum(counts) * w) ** 2 / max(c, 1)
            for c, w in zip(counts, p, strict=True)
        ),
    },
)
def test_pearsons_statistic(formula):
    """SciPy's, for all counts; where p is true its mean is exactly 2, the degrees of
    freedom, and it is above `-2 * log(0.05)` in about 5 % of cases."""
    p = (0.5, 0.3, 0.2)
    for n in (1, 6, 15):
        for counts in counts_of(n):
            expected = [n * w for w in p]
            assert close(formula(counts, p), stats.chisquare(counts, expected)[0], 1e-9)
        mean = sum(multinomial(c, p) * formula(c, p) for c in counts_of(n))
        assert close(mean, 2, 1e-9)
    assert close(-2 * log(0.05), stats.chi2.isf(0.05, 2))
    beyond = sum(
        multinomial(c, p) for c in counts_of(80) if formula(c, p) > -2 * log(0.05)
    )
    assert abs(beyond - 0.05) < 0.005


def shift(n, law, p):
    return n * sum((a - b) ** 2 / b for a, b in zip(law, p, strict=True))


@identity(
    "eq-06-shift",
    shift,
    wrong={
        "the law below": lambda n, law, p: (
            n * sum((a - b) ** 2 / a for a, b in zip(law, p, strict=True))
        ),
        "no n": lambda n, law, p: shift(1, law, p),
        "the root of n": lambda n, law, p: shift(sqrt(n), law, p),
    },
)
def test_how_far_pearsons_statistic_is_shifted(formula):
    """All counts under the wrong law. The mean grows by the shift with each sample, and
    the noncentral law tells how often the test rejects."""
    p, law, cut = (0.5, 0.3, 0.2), (0.55, 0.3, 0.15), -2 * log(0.05)

    def mean(n):
        return sum(multinomial(c, law) * pearson(c, p) for c in counts_of(n))

    for n in (1, 5, 20):
        assert close(mean(n + 1) - mean(n), formula(n + 1, law, p) - formula(n, law, p))
        spread = sum(a * (1 - a) / b for a, b in zip(law, p, strict=True))
        assert close(mean(n), spread + formula(n, law, p), 1e-9)
    n = 150
    rejected = sum(multinomial(c, law) for c in counts_of(n) if pearson(c, p) > cut)
    assert abs(rejected - stats.ncx2.sf(cut, 2, formula(n, law, p))) < 0.02
