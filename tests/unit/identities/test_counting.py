"""Chapters 1 and 2: what counts say, beside counting again and the library."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise, product
from math import exp, log, prod

import numpy as np
from identities_kit import close, identity, random_rows, rows, texts

import specdec_lib as sd
from specdec_lib.ngram import NGramModel

BOS, VOCABULARY = 0, (1, 2, 3, 4)  # `BOS` is context only
CLOCK = (1, 2, 1, 2, 3, 1, 2, 1, 3)  # `tick` 1, `tock` 2, `ding` 3
DISCOUNTS = (0, Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), 1)


def some_texts():
    """The chapters' clock, and texts drawn at random; token 4 is often unseen."""
    yield CLOCK
    for seed in range(6):
        g = np.random.default_rng(seed)
        yield tuple(g.choice([1, 2, 3, 4], size=30, p=[0.5, 0.3, 0.15, 0.05]).tolist())


class Counts:
    """c(w x), c(w), N(w) and N(. x) of one text, each counted in the plainest way."""

    def __init__(self, text):
        read = (BOS, *text)
        self.pairs = Counter(pairwise(read))
        self.words = Counter(read[1:])
        self.after = Counter(read[:-1])  # how often anything followed
        followers, places = defaultdict(set), defaultdict(set)
        for w, x in self.pairs:
            followers[w].add(x)
            places[x].add(w)
        self.followers = {w: len(followers[w]) for w in (BOS, *VOCABULARY)}
        self.places = {x: len(places[x]) for x in VOCABULARY}


def fitted(text, order=2, **settings):
    return NGramModel.fit(
        [text], order=order, vocab_size=1 + len(VOCABULARY), bos_id=BOS, **settings
    )


# -- `eq-01-relative`


def relative(c, w, x):
    return Fraction(c[w, x], sum(c[w, y] for y in VOCABULARY))


@identity(
    "eq-01-relative",
    relative,
    wrong={
        "the share of w before x": lambda c, w, x: Fraction(
            c[w, x], max(1, sum(c[y, x] for y in VOCABULARY))
        ),
        "the pair's share of all pairs": lambda c, w, x: Fraction(
            c[w, x], sum(c.values())
        ),
    },
)
def test_relative_frequencies_make_the_text_most_likely(formula):
    """Of all rows in the steps that the counts allow, none gives a larger product."""
    assert formula(Counts(CLOCK).pairs, 1, 2) == Fraction(3, 4)  # `tock` after `tick`
    for text in some_texts():
        counts = Counts(text)
        scores = fitted(text, smoothing="stupid-backoff")
        for w in sorted({w for w in counts.after if w != BOS}):
            seen = [counts.pairs[w, x] for x in VOCABULARY]
            row = [formula(counts.pairs, w, x) for x in VOCABULARY]

            def likelihood(row, seen=seen):
                return prod(p**c for p, c in zip(row, seen, strict=True))

            assert sum(row) == 1
            others = rows(len(VOCABULARY), min(sum(seen), 12))
            assert all(likelihood(other) <= likelihood(row) for other in others)
            library = scores.scores([w])
            for x, c in zip(VOCABULARY, seen, strict=True):
                assert c == 0 or close(library[x], formula(counts.pairs, w, x))


# -- `eq-01-chain`


def chain(row_after, text):
    return prod(row_after(text[:i])[x] for i, x in enumerate(text))


@identity(
    "eq-01-chain",
    chain,
    wrong={
        "no memory": lambda row_after, text: prod(row_after(())[x] for x in text),
        "the first token left out": lambda row_after, text: prod(
            row_after(text[:i])[x] for i, x in enumerate(text) if i
        ),
        "a sum": lambda row_after, text: sum(
            row_after(text[:i])[x] for i, x in enumerate(text)
        ),
    },
)
def test_a_text_has_the_product_of_its_rows(formula):
    """Against the loop itself, every path of it followed; and all texts sum to 1."""
    for seed, length in product((1, 2), (1, 2, 4)):
        table = random_rows(seed, 3, length)

        def logits(sequence, table=table):
            return np.log([float(p) for p in table[sequence[1:]]])

        model = sd.FunctionModel(logits, 3)

        def run(rng, model=model, length=length):
            return sd.generate(model, [0], max_new_tokens=length, rng=rng).tokens

        written = sd.exact_distribution(run)
        said = {text: formula(table.__getitem__, text) for text in texts(3, length)}
        assert sum(said.values()) == 1
        assert all(close(written[text], p) for text, p in said.items())


# -- `eq-01-perplexity`


def by_product(p):
    return prod(p) ** (-1 / len(p))


def by_logarithms(p):
    return exp(-sum(log(x) for x in p) / len(p))


@identity(
    "eq-01-perplexity",
    (by_product, by_logarithms),
    wrong={
        "no root": (lambda p: prod(p) ** -1, by_logarithms),
        "an arithmetic mean": (by_product, lambda p: len(p) / sum(p)),
        "not upside down": (by_product, lambda p: 1 / by_logarithms(p)),
    },
)
def test_perplexity_in_both_ways(formula):
    for line in formula:
        assert close(line([1 / 2, 1 / 4, 1 / 8]), 4)  # by pencil, in the chapter
        assert close(line([1.0] * 3), 1)
        for size, length in product((2, 3, 7), (1, 5)):
            assert close(line([1 / size] * length), size)
        for text in some_texts():
            c = Counts(text)
            size = len(VOCABULARY)
            given = [
                (c.pairs[w, x] + 1) / (c.after[w] + size)
                for w, x in pairwise((BOS, *text))
            ]
            library = fitted(text, smoothing="add-k", add_k=1.0)
            assert close(line(given), library.perplexity(text), 1e-10)


# -- `eq-02-addk`


def add_k(c_wx, c_w, k, size):
    return (c_wx + k) / (c_w + k * size)


@identity(
    "eq-02-addk",
    add_k,
    wrong={
        "k once below": lambda c_wx, c_w, k, size: (c_wx + k) / (c_w + k),
        "nothing below": lambda c_wx, c_w, k, size: (c_wx + k) / max(c_w, 1),
        "no k above": lambda c_wx, c_w, k, size: c_wx / (c_w + k * size),
    },
)
def test_add_k_is_seeing_every_word_k_times_more(formula):
    size = 3
    assert formula(1, 1, 1, size) == 2 / 4  # tick after ding, by pencil
    assert formula(0, 1, 1, size) == 1 / 4
    size = len(VOCABULARY)
    for text in some_texts():
        c = Counts(text)
        for k, w in product((0.01, 1, 2.5, 3), (BOS, *VOCABULARY)):
            library = fitted(text, smoothing="add-k", add_k=k).probabilities([w])
            row = [formula(c.pairs[w, x], c.after[w], k, size) for x in VOCABULARY]
            assert close(sum(row), 1)
            assert close(library[1:], row)
            if k == int(k):  # literally: k sightings more of each word
                seen = [x for (v, x), n in c.pairs.items() if v == w for _ in range(n)]
                seen += list(VOCABULARY) * int(k)
                assert close(row, [seen.count(x) / len(seen) for x in VOCABULARY])


# -- `eq-02-jm`


def mixture(share, c_wx, c_w, shorter):
    return share * Fraction(c_wx, c_w) + (1 - share) * shorter


@identity(
    "eq-02-jm",
    mixture,
    wrong={
        "the shares exchanged": lambda share, c_wx, c_w, shorter: mixture(
            1 - share, c_wx, c_w, shorter
        ),
        "back-off in its place": lambda share, c_wx, c_w, shorter: (
            Fraction(c_wx, c_w) if c_wx else (1 - share) * shorter
        ),
    },
)
def test_a_mixture_of_all_orders(formula):
    """Down to the uniform distribution; a context never seen has no say."""

    def mixed(read, context, x, share):
        """The recursion, over the text as it is."""
        n = len(context)
        ends = [i for i in range(n, len(read)) if read[i - n : i] == context and i]
        if n == 0:
            shorter = Fraction(1, len(VOCABULARY))
        else:
            shorter = mixed(read, context[1:], x, share)
        if not ends:
            return shorter
        hits = sum(read[i] == x for i in ends)
        return formula(share, hits, len(ends), shorter)

    assert mixed((BOS, *CLOCK), (3,), 2, Fraction(3, 4)) == Fraction(1, 4) * (
        Fraction(3, 4) * Fraction(3, 9) + Fraction(1, 4) * Fraction(1, 4)
    )  # `tock` after `ding`: the first term is zero
    for text in list(some_texts())[:4]:
        read = (BOS, *text)
        for share, order in product((0, Fraction(1, 3), Fraction(3, 4)), (1, 2, 3)):
            model = fitted(
                text, order, smoothing="jelinek-mercer", interpolation=float(share)
            )
            for context in product(VOCABULARY, repeat=order - 1):
                row = [mixed(read, context, x, share) for x in VOCABULARY]
                assert sum(row) == 1
                assert close(model.probabilities(context)[1:], row)


# -- `eq-02-absolute`, `eq-02-continuation`, `eq-02-marginal`


def discounted(c_wx, c_w, n_w, d, shorter):
    taken = d * Fraction(n_w, c_w)
    return Fraction(max(c_wx - d, 0)) / c_w + taken * shorter


def in_new_places(places, x):
    return Fraction(places[x], sum(places[y] for y in VOCABULARY))


@identity(
    "eq-02-absolute",
    discounted,
    wrong={
        "taken once, not from each": lambda c_wx, c_w, n_w, d, shorter: (
            Fraction(max(c_wx - d, 0)) / c_w + Fraction(d) / c_w * shorter
        ),
        "taken from every sighting": lambda c_wx, c_w, n_w, d, shorter: (
            Fraction(max(c_wx - d, 0)) / c_w + d * shorter
        ),
        "nothing taken": lambda c_wx, c_w, n_w, d, shorter: (
            Fraction(c_wx) / c_w + d * Fraction(n_w, c_w) * shorter
        ),
    },
)
def test_what_is_taken_goes_to_the_shorter_context(formula):
    half = Fraction(1, 2)
    assert formula(3, 4, 2, half, 0) == Fraction(5, 8)  # after tick, by pencil
    assert formula(1, 4, 2, half, 0) == Fraction(1, 8)
    assert formula(0, 4, 2, half, 1) == Fraction(2, 8)
    for text, d in product(some_texts(), DISCOUNTS):
        c = Counts(text)
        model = fitted(text, discounts=((0, 0, 0), (float(d),) * 3))
        for w in sorted(c.after):
            row = [
                formula(
                    c.pairs[w, x],
                    c.after[w],
                    c.followers[w],
                    d,
                    in_new_places(c.places, x),
                )
                for x in VOCABULARY
            ]
            assert sum(row) == 1
            assert close(model.probabilities([w])[1:], row)


@identity(
    "eq-02-continuation",
    in_new_places,
    wrong={
        "one place more for each": lambda places, x: Fraction(
            places[x] + 1, sum(places.values()) + len(VOCABULARY)
        ),
        "places over all contexts": lambda places, x: Fraction(
            places[x], 1 + len(VOCABULARY)
        ),
    },
)
def test_places_and_not_sightings(formula):
    """What the library's shortest context has, where nothing is taken from it."""
    for text in some_texts():
        places = {
            x: sum((w, x) in set(pairwise((BOS, *text))) for w in (BOS, *VOCABULARY))
            for x in VOCABULARY
        }
        model = fitted(text, discounts=((0, 0, 0), (1, 1, 1)))
        row = [formula(places, x) for x in VOCABULARY]
        assert sum(row) == 1
        assert close(model.probabilities(())[1:], row)


def expected_counts(c, d, x):
    """The lines of the chapter's derivation, from top to bottom."""
    contexts = sorted(c.after)
    new = in_new_places(c.places, x)
    kept = sum(max(c.pairs[w, x] - d, 0) for w in contexts)
    return [
        sum(
            c.after[w] * discounted(c.pairs[w, x], c.after[w], c.followers[w], d, new)
            for w in contexts
        ),
        kept + d * sum(c.followers[w] for w in contexts) * new,
        c.words[x] - d * c.places[x] + d * c.places[x],
        c.words[x],
    ]


def with_relative_frequencies(c, d, x):
    lines = expected_counts(c, d, x)
    share = Fraction(c.words[x], sum(c.words.values()))
    kept = sum(max(c.pairs[w, x] - d, 0) for w in c.after)
    return [lines[0], kept + d * sum(c.followers.values()) * share, *lines[2:]]


@identity(
    "eq-02-marginal",
    expected_counts,
    wrong={
        "sightings in place of places": with_relative_frequencies,
        "nothing given back": lambda c, d, x: [
            *expected_counts(c, d, x)[:2],
            c.words[x] - d * c.places[x],
            c.words[x],
        ],
    },
)
def test_each_token_is_expected_as_often_as_it_came(formula):
    """Line by line in fractions, and by the library's own probabilities."""
    for text, d in product(some_texts(), DISCOUNTS):
        c = Counts(text)
        model = fitted(text, discounts=((0, 0, 0), (float(d),) * 3))
        contexts = sorted(c.after)
        assert sum(c.followers[w] for w in contexts) == sum(c.places.values())
        library = sum(model.probabilities([w]) * c.after[w] for w in contexts)
        for x in VOCABULARY:
            assert formula(c, d, x) == [text.count(x)] * 4
            assert close(library[x], text.count(x), 1e-10)


# -- `eq-02-discounts`


def discount(n, j):
    y = Fraction(n[1], n[1] + 2 * n[2])
    return j - (j + 1) * y * Fraction(n[j + 1], n[j])


@identity(
    "eq-02-discounts",
    discount,
    wrong={
        "n1 + n2 below": lambda n, j: (
            j - (j + 1) * Fraction(n[1], n[1] + n[2]) * Fraction(n[j + 1], n[j])
        ),
        "j in place of j + 1": lambda n, j: (
            j - j * Fraction(n[1], n[1] + 2 * n[2]) * Fraction(n[j + 1], n[j])
        ),
        "the ratio upside down": lambda n, j: (
            j
            - (j + 1)
            * Fraction(n[1], n[1] + 2 * n[2])
            * Fraction(n[j], max(n[j + 1], 1))
        ),
    },
)
def test_three_discounts(formula):
    """Read off the library's probabilities: a token seen j times has (j - D_j) / N
    more than one that was never seen."""
    by_hand = {1: 4, 2: 2, 3: 1, 4: 1}
    assert [formula(by_hand, j) for j in (1, 2, 3)] == [
        Fraction(1, 2),
        Fraction(5, 4),
        1,
    ]
    for n in (
        {1: 4, 2: 2, 3: 1, 4: 1},
        {1: 9, 2: 5, 3: 3, 4: 1},
        {1: 6, 2: 4, 3: 2, 4: 0},
    ):
        y = Fraction(n[1], n[1] + 2 * n[2])
        assert formula(n, 1) == y  # "D_1 is Y itself"
        times = [j for j in (1, 2, 3, 4) for _ in range(n[j])] + [7]
        text = [token for token, j in enumerate(times) for _ in range(j)]
        unseen = len(times)
        model = NGramModel.fit([text], order=1, vocab_size=unseen + 1)
        p = model.probabilities(())
        for token, j in enumerate(times):
            more = (p[token] - p[unseen]) * len(text)
            assert close(j - more, formula(n, min(j, 3)), 1e-9)
