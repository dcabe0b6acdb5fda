"""N-gram models: counts, smoothing by hand and by brute force, files, the contract."""

import json
import math
import os
import zipfile
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from specdec_lib import ngram_tables
from specdec_lib.ngram import NGramModel

SMOOTHINGS = ["add-k", "jelinek-mercer", "kneser-ney", "stupid-backoff"]
BOS, EOS = 0, 1


def random_sequences(seed, vocab_size, count=30, longest=12, lowest=2):
    rng = np.random.default_rng(seed)
    return [
        rng.integers(lowest, vocab_size, rng.integers(1, longest)).tolist()
        for _ in range(count)
    ]


# ---- an independent model: dicts of tuples, formulas as on paper


class Reference:
    """The definitions, one n-gram at a time. ``"^"`` marks an unnamed beginning."""

    def __init__(self, sequences, order, vocab_size, bos=None, eos=None, **options):
        self.order, self.options = order, options
        self.mark = "^" if bos is None else bos
        self.words = [w for w in range(vocab_size) if w != bos]
        self.count = Counter()
        for sequence in sequences:
            text = list(sequence)
            if eos is not None and text[-1] != eos:
                text.append(eos)
            if text[0] != self.mark:
                text.insert(0, self.mark)
            pieces = []
            for word in text:
                if word == self.mark:
                    pieces.append([])
                pieces[-1].append(word)
            for piece in pieces:
                for m in range(1, order + 1):
                    for i in range(len(piece) - m + 1):
                        if piece[i : i + m] != [self.mark]:
                            self.count[tuple(piece[i : i + m])] += 1
        self.left = {}
        for gram in self.count:
            if len(gram) > 1:
                self.left.setdefault(gram[1:], set()).add(gram[0])

    def adjusted(self, gram):
        if len(gram) == self.order or gram[0] == self.mark:
            return self.count[gram]
        return len(self.left.get(gram, ()))

    def discounts(self, m):
        given = self.options.get("discounts")
        if given is not None:
            return [0, *given[m - 1]]
        n = Counter(self.adjusted(g) for g in self.count if len(g) == m)
        fall_back = [0, 0.5, 1.0, 1.5]
        if not all(n[i] for i in (1, 2, 3)):
            return fall_back
        y = n[1] / (n[1] + 2 * n[2])
        d = [i - (i + 1) * y * n[i + 1] / n[i] if i else 0 for i in range(4)]
        return d if all(0 <= d[i] <= i for i in range(4)) else fall_back

    def usable(self, context):
        context = list(context)
        if self.mark in context:
            last = len(context) - 1 - context[::-1].index(self.mark)
            context = context[last:]
        return tuple(context[max(0, len(context) - self.order + 1) :])

    def distribution(self, smoothing, context):
        context = self.usable(context)
        p = {w: getattr(self, smoothing)(w, context) for w in self.words}
        if smoothing == "stupid":
            total = sum(p.values())
            p = {w: x / total for w, x in p.items()}
        return p

    def add_k(self, w, h):
        k = self.options.get("add_k", 1.0)
        total = sum(self.count[(*h, v)] for v in self.words)
        return (self.count[(*h, w)] + k) / (total + k * len(self.words))

    def mercer(self, w, h):
        mix = self.options.get("interpolation", 0.75)
        mix = mix if isinstance(mix, float) else mix[len(h)]
        lower = self.mercer(w, h[1:]) if h else 1 / len(self.words)
        total = sum(self.count[(*h, v)] for v in self.words)
        return mix * self.count[(*h, w)] / total + (1 - mix) * lower if total else lower

    def kneser(self, w, h):
        lower = self.kneser(w, h[1:]) if h else 1 / len(self.words)
        counts = {v: self.adjusted((*h, v)) for v in self.words}
        total = sum(counts.values())
        if not total:
            return lower
        d = self.cached_discounts(len(h) + 1)
        kept = sum(d[min(c, 3)] for c in counts.values())
        return (counts[w] - d[min(counts[w], 3)]) / total + kept / total * lower

    def cached_discounts(self, m):
        cache = self.__dict__.setdefault("cache", {})
        if m not in cache:
            cache[m] = self.discounts(m)
        return cache[m]

    def stupid(self, w, h):
        alpha = self.options.get("backoff", 0.4)
        lower = self.stupid(w, h[1:]) if h else 1 / len(self.words)
        total = sum(self.count[(*h, v)] for v in self.words)
        seen = self.count[(*h, w)]
        return seen / total if seen else alpha * lower


REFERENCE_NAME = dict(
    zip(SMOOTHINGS, ["add_k", "mercer", "kneser", "stupid"], strict=True)
)


def assert_equals_reference(model, reference, contexts, bos):
    name = REFERENCE_NAME[model.settings.smoothing]
    for context in contexts:
        expected = np.zeros(model.vocab_size)
        for word, p in reference.distribution(name, context).items():
            expected[word] = p
        found = model.probabilities(context)
        assert_allclose(found, expected, rtol=0, atol=1e-12)
        assert abs(found.sum() - 1) < 1e-12
        with np.errstate(divide="ignore"):
            logs = [model.log_prob(w, context) for w in range(model.vocab_size)]
            assert_allclose(logs, np.log(found), rtol=0, atol=1e-12)
        assert model.greedy(context) == found.argmax()
        assert model.greedy(context) == found.argmax()


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(("bos", "eos"), [(None, None), (BOS, EOS), (BOS, None)])
def test_equals_brute_force(smoothing, order, bos, eos):
    vocab_size = 6
    sequences = random_sequences(order, vocab_size - 1)  # id 5 is never seen
    if bos is not None:
        sequences[3] = [bos, 2, 3, bos, 3, 2]
        sequences[4] = [bos]
    options = {"order": order, "vocab_size": vocab_size}
    model = NGramModel.fit(
        sequences, bos_id=bos, eos_id=eos, smoothing=smoothing, **options
    )
    reference = Reference(sequences, bos=bos, eos=eos, **options)
    rng = np.random.default_rng(1)
    contexts = [[], [5], [2, 5, 3], *random_sequences(9, vocab_size, 25, 9)]
    contexts += [s[: rng.integers(len(s))] for s in sequences]
    if bos is not None:
        contexts += [[bos], [bos, 3], [2, 3, bos, 3], [bos, bos], [3, 4, bos]]
    assert_equals_reference(model, reference, contexts, bos)


@pytest.mark.parametrize(
    ("smoothing", "option"),
    [
        ("add-k", {"add_k": 0.01}),
        ("jelinek-mercer", {"interpolation": 0.3}),
        ("jelinek-mercer", {"interpolation": [0.9, 0.5, 0.0]}),
        ("kneser-ney", {"discounts": [[0.1, 0.2, 0.3], [0.5, 1, 1.5], [1, 2, 3]]}),
        ("stupid-backoff", {"backoff": 0.1}),
    ],
)
def test_parameters_equal_brute_force(smoothing, option):
    sequences = random_sequences(5, 7)
    options = {"order": 3, "vocab_size": 7} | option
    model = NGramModel.fit(
        sequences, smoothing=smoothing, bos_id=BOS, eos_id=EOS, **options
    )
    reference = Reference(sequences, bos=BOS, eos=EOS, **options)
    assert_equals_reference(model, reference, random_sequences(8, 7, 20, 5), BOS)


def test_estimated_discounts_equal_brute_force():
    """A corpus large enough that nothing falls back to the fixed discounts."""
    rng = np.random.default_rng(0)
    sequences = [(rng.zipf(1.5, 12) % 20 + 2).tolist() for _ in range(300)]
    options = {"order": 4, "vocab_size": 22}
    model = NGramModel.fit(sequences, bos_id=BOS, eos_id=EOS, **options)
    reference = Reference(sequences, bos=BOS, eos=EOS, **options)
    fixed = 0
    for m in range(1, 5):
        expected = reference.discounts(m)[1:]
        fixed += expected == [0.5, 1.0, 1.5]
        assert_allclose(model.discounts[m - 1], expected, atol=1e-12)
    assert fixed < 2
    contexts = [s[:i] for s in sequences[:8] for i in range(4)]
    assert_equals_reference(model, reference, contexts, BOS)


# ---- worked by hand: the text 0 1 0 1 2

TEXT = [[0, 1, 0, 1, 2]]


def by_hand(smoothing, order=2, **options):
    return NGramModel.fit(
        TEXT, order=order, vocab_size=4, smoothing=smoothing, **options
    )


def test_counts_by_hand():
    model = by_hand("add-k", order=3)
    assert [model.count([t]) for t in range(4)] == [2, 2, 1, 0]
    assert model.count([0, 1]) == 2
    assert model.count([1, 2]) == 1
    assert model.count([2, 1]) == 0
    assert model.count([3, 1]) == 0
    assert model.count([0, 1, 2]) == 1
    assert model.context_count([1]) == 2
    assert model.context_count([2]) == 0  # the text ends there
    assert model.context_count([]) == 5
    assert model.context_count([3, 3]) == 0
    assert [a.tolist() for a in model.continuations([1])] == [[0, 2], [1, 1]]
    assert [a.tolist() for a in model.continuations([])] == [[0, 1, 2], [2, 2, 1]]
    assert [model.size(m) for m in (1, 2, 3)] == [3, 3, 3]


def test_add_k_by_hand():
    model = by_hand("add-k", add_k=0.5)
    assert_allclose(model.probabilities([1]), np.array([1.5, 0.5, 1.5, 0.5]) / 4)
    assert_allclose(model.probabilities([3]), [0.25] * 4)
    assert_allclose(model.probabilities([]), np.array([2.5, 2.5, 1.5, 0.5]) / 7)


def test_jelinek_mercer_by_hand():
    model = by_hand("jelinek-mercer", interpolation=0.5)
    # unigrams: half of (2, 2, 1, 0) / 5 and half of 1/4
    unigram = np.array([0.325, 0.325, 0.225, 0.125])
    assert_allclose(model.probabilities([]), unigram)
    assert_allclose(
        model.probabilities([0]), 0.5 * np.array([0, 1, 0, 0]) + unigram / 2
    )
    assert_allclose(model.probabilities([3]), unigram)


def test_kneser_ney_by_hand():
    """Different left neighbours: 0 has the beginning and 1, 1 has 0, 2 has 1."""
    model = by_hand("kneser-ney", discounts=[[0.5, 0.75, 0.75], [0.5, 0.75, 0.75]])
    # 4 bigram types; kept back from 2, 1, 1: .75 + .5 + .5, spread over 4 tokens
    kept = 1.75 / 4
    unigram = np.array([1.25, 0.5, 0.5, 0]) / 4 + kept / 4
    assert_allclose(model.probabilities([]), unigram)
    after_0 = np.array([0, 1.25, 0, 0]) / 2 + 0.75 / 2 * unigram
    assert_allclose(model.probabilities([0]), after_0)
    after_1 = np.array([0.5, 0, 0.5, 0]) / 2 + 1 / 2 * unigram
    assert_allclose(model.probabilities([1]), after_1)
    assert_allclose(model.probabilities([2]), unigram)


def test_discounts_by_hand():
    """Unigram counts 1, 1, 1, 2, 2, 3, 4: n1 .. n4 = 3, 2, 1, 1, so Y = 3/7."""
    text = [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6]
    model = NGramModel.fit([text], order=1, vocab_size=8)
    y = Fraction(3, 7)
    expected = [1 - 2 * y * Fraction(2, 3), 2 - 3 * y / 2, 3 - 4 * y]
    assert_allclose(model.discounts, [[float(d) for d in expected]])
    assert_allclose(
        NGramModel.fit([[0]], order=1, vocab_size=2).discounts, [[0.5, 1, 1.5]]
    )


def test_stupid_backoff_by_hand():
    model = by_hand("stupid-backoff")
    assert_allclose(model.scores([]), [0.4, 0.4, 0.2, 0.1])  # 0.4 / 4 for token 3
    assert_allclose(model.scores([1]), [0.5, 0.16, 0.5, 0.04])
    assert_allclose(model.scores([2]), [0.16, 0.16, 0.08, 0.04])
    assert_allclose(model.probabilities([1]), np.array([0.5, 0.16, 0.5, 0.04]) / 1.2)
    longer = by_hand("stupid-backoff", order=3)
    assert_allclose(longer.scores([3, 1]), 0.4 * model.scores([1]))


def test_perplexity_by_hand():
    model = NGramModel.fit(
        [[2]], order=2, vocab_size=3, smoothing="add-k", bos_id=BOS, eos_id=EOS
    )
    # p(2 | bos) = p(eos | 2) = (1 + 1) / (1 + 2); unseen pairs: 1/3, then 1/2
    assert model.perplexity([2]) == pytest.approx(1.5)
    assert model.perplexity([BOS, 2, EOS]) == pytest.approx(1.5)
    assert model.perplexity([1]) == pytest.approx(3)
    assert model.perplexity([2, 2]) == pytest.approx(
        (2 / 3 * 1 / 3 * 2 / 3) ** (-1 / 3)
    )
    with pytest.raises(ValueError, match="tokens must hold at least one token"):
        model.perplexity([])


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("bos", [None, BOS])
def test_perplexity_is_that_of_the_probabilities(smoothing, bos):
    model = NGramModel.fit(
        random_sequences(1, 6), order=3, vocab_size=6, smoothing=smoothing, bos_id=bos
    )
    text = [3, 4, 5, 2, 2, 3]
    first = [] if bos is None else [bos]
    logs = [model.log_prob(t, first + text[:i]) for i, t in enumerate(text)]
    assert model.perplexity(text) == pytest.approx(math.exp(-np.mean(logs)), rel=1e-12)


# ---- sequences


def test_beginnings_and_endings():
    model = NGramModel.fit(
        [[2, 3], [0, 3, 1], [2]], order=2, vocab_size=4, bos_id=0, eos_id=1
    )
    assert model.count([0, 2]) == 2
    assert model.count([0, 3]) == 1
    assert model.count([3, 1]) == 2
    assert model.count([2, 1]) == 1
    assert model.count([1, 0]) == model.count([1, 2]) == model.count([0]) == 0
    assert model.context_count([0]) == 3
    assert model.probabilities([0])[0] == 0
    assert model.log_prob(0, [2]) == -math.inf


def test_nothing_reaches_over_a_beginning():
    apart = NGramModel.fit([[2, 3], [4, 2]], order=3, vocab_size=5, bos_id=0)
    joined = NGramModel.fit([[2, 3, 0, 4, 2]], order=3, vocab_size=5, bos_id=0)
    for context in ([], [0], [0, 4], [3, 0], [3, 4], [2]):
        assert_array_equal(apart.probabilities(context), joined.probabilities(context))
    assert_array_equal(apart.probabilities([3, 0]), apart.probabilities([0]))


def test_arrays_lists_and_iterators_are_alike():
    lists = random_sequences(2, 6)
    expected = NGramModel.fit(lists, order=3, vocab_size=6).probabilities([2, 3])
    for kind in (np.uint8, np.uint64, np.int32):
        arrays = (np.array(s, dtype=kind) for s in lists)
        model = NGramModel.fit(arrays, order=3, vocab_size=6)
        assert_array_equal(model.probabilities([2, 3]), expected)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_one_token_vocabulary(smoothing):
    model = NGramModel.fit([[0, 0]], order=3, vocab_size=1, smoothing=smoothing)
    assert_allclose(model.probabilities([0, 0, 0]), [1])
    assert model.greedy() == 0


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_order_beyond_the_text(smoothing):
    model = NGramModel.fit([[2]], order=8, vocab_size=4, smoothing=smoothing, bos_id=0)
    for context in ([], [0], [2, 2, 2], [0, 2, 3]):
        p = model.probabilities(context)
        assert abs(p.sum() - 1) < 1e-12
        assert (p[1:] > 0).all()


@pytest.mark.parametrize("bits", [1, 15, 16, 17, 31, 32, 33, 40])
def test_ascending_order(bits):
    rng = np.random.default_rng(bits)
    values = rng.integers(0, 2**bits, 500)
    values[::3] = values[0]
    expected = sorted(range(500), key=lambda i: values[i])  # stable
    assert ngram_tables._ascending(values, 2**bits - 1).tolist() == expected


def test_more_contexts_than_sixteen_bits():
    """All that a dict counts, on a text with over 2**16 different bigrams."""
    text = np.random.default_rng(0).integers(0, 400, 120_000)
    model = NGramModel.fit([text], order=3, vocab_size=400)
    words = text.tolist()
    counts = Counter(zip(words, words[1:], words[2:], strict=False))
    assert model.size(2) > 2**16
    assert model.size(3) == len(counts)
    for gram in list(counts)[:3000]:
        assert model.count(gram) == counts[gram]


def test_large_vocabulary():
    model = NGramModel.fit(
        [[70_000, 99_999, 70_000, 99_999]], order=3, vocab_size=100_000
    )
    assert model.count([70_000, 99_999]) == 2
    assert model.greedy([70_000]) == 99_999


# ---- more text, other settings


def assert_same_model(left, right):
    assert left.settings == right.settings
    for a, b in zip(left._tables, right._tables, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype
            assert_array_equal(x, y)
    for context in ([], [2], [3, 2], [4, 3, 2]):
        assert_array_equal(left.probabilities(context), right.probabilities(context))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize(("bos", "eos"), [(None, None), (BOS, EOS)])
def test_extend_equals_fitting_all(smoothing, order, bos, eos):
    options = {"order": order, "vocab_size": 8, "smoothing": smoothing}
    options |= {"bos_id": bos, "eos_id": eos}
    first, second, third = (random_sequences(s, 8, 20) for s in (1, 2, 3))
    grown = NGramModel.fit(first, **options)
    before = grown.probabilities([2, 3])
    bigger = grown.extend(second).extend(third)
    assert_same_model(bigger, NGramModel.fit(first + second + third, **options))
    assert_array_equal(grown.probabilities([2, 3]), before)


def test_extend_beyond_narrow_counts():
    model = NGramModel.fit([[2] * 200], order=3, vocab_size=8)
    grown = model.extend([[2] * 200])
    assert grown.count([2, 2]) == 398
    assert_same_model(grown, NGramModel.fit([[2] * 200] * 2, order=3, vocab_size=8))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 4])
def test_with_settings_equals_fitting(smoothing, order):
    sequences = random_sequences(4, 9)
    base = NGramModel.fit(sequences, order=4, vocab_size=9, bos_id=BOS)
    changed = base.with_settings(smoothing=smoothing, order=order, add_k=0.1)
    options = {"order": order, "vocab_size": 9, "bos_id": BOS, "add_k": 0.1}
    assert_same_model(
        changed, NGramModel.fit(sequences, smoothing=smoothing, **options)
    )


def test_with_settings_refuses_what_needs_new_counts():
    model = NGramModel.fit(TEXT, order=2, vocab_size=4)
    with pytest.raises(ValueError, match=r"order must be inside 1 \.\. 2, got 3"):
        model.with_settings(order=3)
    with pytest.raises(ValueError, match="vocab_size can only be chosen in fit"):
        model.with_settings(vocab_size=5)


# ---- bad arguments


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([], "sequences must hold at least one sequence"),
        ([[1], []], r"sequences\[1\] must hold at least one token"),
        ([[1, 4]], "sequences must be inside 0 .. 3, got 4"),
        ([[1, -1]], "sequences must be inside 0 .. 3, got -1"),
        ([[[1, 2]]], r"sequences\[0\] must be one-dimensional"),
        ([1, 2], r"sequences\[0\] must be one-dimensional"),
    ],
)
def test_bad_sequences(sequences, message):
    with pytest.raises(ValueError, match=message):
        NGramModel.fit(sequences, order=2, vocab_size=4)


def test_sequences_of_other_types():
    for bad in ([[1.0, 2.0]], [["a"]], [[True, False]]):
        with pytest.raises(TypeError, match=r"sequences\[0\] must be integers"):
            NGramModel.fit(bad, order=2, vocab_size=4)


def test_nothing_but_beginnings():
    with pytest.raises(ValueError, match="a token besides bos_id"):
        NGramModel.fit([[0], [0, 0]], order=2, vocab_size=4, bos_id=0)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"order": 0}, ValueError),
        ({"order": 9}, ValueError),
        ({"order": 2.0}, TypeError),
        ({"order": True}, TypeError),
        ({"vocab_size": 0}, ValueError),
        ({"vocab_size": "4"}, TypeError),
        ({"smoothing": "laplace"}, ValueError),
        ({"bos_id": 4}, ValueError),
        ({"bos_id": -1}, ValueError),
        ({"bos_id": 1, "eos_id": 1}, ValueError),
        ({"eos_id": 1.5}, TypeError),
        ({"add_k": 0}, ValueError),
        ({"add_k": math.nan}, ValueError),
        ({"add_k": "much"}, TypeError),
        ({"add_k": [1.0, 2.0]}, ValueError),
        ({"backoff": "half"}, TypeError),
        ({"discounts": [[1, 2, 3], [1, 2]]}, TypeError),
        ({"interpolation": "half"}, TypeError),
        ({"interpolation": 1.0}, ValueError),
        ({"interpolation": [0.5]}, ValueError),
        ({"interpolation": math.nan}, ValueError),
        ({"backoff": 0.0}, ValueError),
        ({"backoff": 1.1}, ValueError),
        ({"discounts": [[0.5, 1, 1.5]]}, ValueError),
        ({"discounts": [[0.5, 1, 1.5], [1.5, 1, 1]]}, ValueError),
    ],
)
def test_bad_settings(change, error):
    given = {"order": 2, "vocab_size": 4} | change
    with pytest.raises(error, match=next(reversed(change))):
        NGramModel.fit(TEXT, **given)


def test_bad_queries():
    model = NGramModel.fit(TEXT, order=2, vocab_size=4)
    for call in (model.probabilities, model.scores, model.greedy, model.perplexity):
        with pytest.raises(ValueError, match=r"inside 0 \.\. 3, got 4"):
            call([4])
    with pytest.raises(TypeError, match="context must be integers"):
        model.probabilities([0.5])
    with pytest.raises(ValueError, match="token must be inside"):
        model.log_prob(4, [0])
    with pytest.raises(TypeError, match="token must be an integer"):
        model.log_prob("a", [0])
    with pytest.raises(ValueError, match="ngram must have 1 to 2 tokens, got 3"):
        model.count([0, 1, 0])
    with pytest.raises(ValueError, match="ngram must have 1 to 2 tokens, got 0"):
        model.count([])
    with pytest.raises(ValueError, match="context must have 0 to 1 tokens, got 2"):
        model.context_count([0, 1])
    with pytest.raises(ValueError, match="smoothing must be kneser-ney"):
        _ = model.with_settings(smoothing="add-k").discounts


def test_kneser_ney_without_unigram_discount_may_give_zero():
    model = by_hand("kneser-ney", discounts=[[0, 0, 0], [0.5, 0.5, 0.5]])
    assert model.probabilities([0])[3] == 0
    assert model.log_prob(3, [0]) == -math.inf
    assert model.perplexity([0, 3]) == math.inf


# ---- the contract of a language model


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 4])
def test_state_equals_probabilities(smoothing, order):
    model = NGramModel.fit(
        random_sequences(6, 7),
        order=order,
        vocab_size=7,
        smoothing=smoothing,
        bos_id=BOS,
    )
    text = [BOS, 3, 4, 6, 2, 2, BOS, 5, 3]
    state = model.start()
    logits = np.concatenate([state.extend(text[:4]), state.extend(text[4:])])
    assert state.length == 9
    assert logits.shape == (9, 7)
    assert logits.dtype == np.float64
    with np.errstate(divide="ignore"):
        for i in range(9):
            expected = model.probabilities(text[: i + 1])
            assert_array_equal(logits[i], np.log(expected))
    assert_array_equal(state.probabilities(), model.probabilities(text))
    assert state.greedy() == model.greedy(text)


def test_state_rewinds():
    model = NGramModel.fit(random_sequences(6, 7), order=4, vocab_size=7, bos_id=BOS)
    text = [BOS, 3, 4, 6, 2, 2, 5]
    state = model.start()
    once = state.extend(text)
    for length in range(len(text) + 1):
        state.rewind(length)
        assert state.length == length
        assert_array_equal(state.extend(text[length:]), once[length:])
    state.rewind(3)
    fresh = model.start()
    assert_array_equal(state.extend([2, 2])[1], fresh.extend([BOS, 3, 4, 2, 2])[4])
    for bad in (-1, 6):
        with pytest.raises(
            ValueError, match=rf"length must be inside 0 \.\. 5, got {bad}"
        ):
            state.rewind(bad)
    assert state.length == 5


def test_state_refuses_bad_tokens_unchanged():
    state = NGramModel.fit(TEXT, order=2, vocab_size=4).start()
    state.extend([1])
    for bad, error in (([0, 4], ValueError), ([0, -1], ValueError), ([0.5], TypeError)):
        with pytest.raises(error, match="tokens"):
            state.extend(bad)
    assert state.length == 1
    assert state.extend([]).shape == (0, 4)


def test_states_and_models_share_nothing():
    model = NGramModel.fit(TEXT, order=2, vocab_size=4)
    one, two = model.start(), model.start()
    one.extend([0])
    assert two.length == 0
    model.probabilities([])[:] = 9
    model.scores([3])[:] = 9
    assert_allclose(model.probabilities([]).sum(), 1)
    assert model.context_window is None
    assert (model.vocab_size, model.bos_id, model.eos_id) == (4, None, None)


# ---- files


def saved(tmp_path, **options):
    options = {"order": 3, "vocab_size": 8, "bos_id": BOS, "eos_id": EOS} | options
    model = NGramModel.fit(random_sequences(1, 8), **options)
    path = tmp_path / "model"
    model.save(path)
    return model, path


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("bos", [None, BOS])
def test_load_gives_what_was_saved(tmp_path, smoothing, bos):
    discounts = [[0.1, 0.2, 0.3]] * 3
    model, path = saved(
        tmp_path,
        smoothing=smoothing,
        bos_id=bos,
        discounts=discounts,
        interpolation=np.array([0.1, 0.2, 1 / 3]),
        add_k=np.float64(0.1),
    )
    loaded = NGramModel.load(path)
    assert_same_model(model, loaded)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]  # nothing added or left
    more = random_sequences(2, 8)
    assert_same_model(model.extend(more), loaded.extend(more))


@pytest.mark.parametrize("order", [1, 8])
def test_load_at_the_outer_orders(tmp_path, order):
    model, path = saved(tmp_path, order=order)
    assert_same_model(model, NGramModel.load(str(path)))


def test_save_replaces_and_leaves_the_old_file_on_failure(tmp_path, monkeypatch):
    model, path = saved(tmp_path)
    model.save(path)
    before = path.read_bytes()

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(os.name == "nt", reason="Windows replaces no open file")
def test_save_never_writes_into_the_old_file(tmp_path):
    """Who has it open goes on reading what was there."""
    model, path = saved(tmp_path)
    before = path.read_bytes()
    with open(path, "rb") as old:
        model.extend([[2, 3]]).save(path)
        assert old.read() == before
    assert path.read_bytes() != before


def test_load_of_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        NGramModel.load(tmp_path / "none.npz")


def test_load_of_broken_files(tmp_path):
    _, path = saved(tmp_path)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[:-30], whole[: len(whole) // 2], whole[40:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model.* is not a saved n-gram model"):
            NGramModel.load(path)


def test_load_with_any_byte_changed(tmp_path):
    """It is refused, or the byte was not content (a date, say) and all is there."""
    model, path = saved(tmp_path)
    whole = path.read_bytes()
    refused = 0
    places = range(0, len(whole), 11)
    for i in places:
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :])
        try:
            loaded = NGramModel.load(path)
        except ValueError:
            refused += 1
        else:
            assert_same_model(model, loaded)
    assert refused > len(places) / 2


def test_load_of_foreign_files(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ValueError, match="not a saved n-gram model"):
        NGramModel.load(path)
    np.save(tmp_path / "model.npy", np.zeros(3))
    with pytest.raises(ValueError, match="not a saved n-gram model"):
        NGramModel.load(tmp_path / "model.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("format.txt", "text")
    with pytest.raises(ValueError, match="not a saved n-gram model"):
        NGramModel.load(path)


def test_load_never_unpickles(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = tmp_path / "model.npz"
    np.savez(path, format=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match="not a saved n-gram model"):
        NGramModel.load(path)
    assert not (tmp_path / "sprung").exists()


def rewritten(path, **changes):
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    content |= changes
    with open(path, "wb") as file:
        np.savez(file, **{k: v for k, v in content.items() if v is not None})


def test_load_of_another_version(tmp_path):
    _, path = saved(tmp_path)
    rewritten(path, version=np.array(99))
    with pytest.raises(ValueError, match=r"of version 1, got .* of version 99"):
        NGramModel.load(path)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("seen_1", lambda a: a[:-1]),
        ("seen_1", lambda a: a * 0),
        ("seen_1", lambda a: a.astype(float)),
        ("seen_2", lambda a: a * 0),
        ("seen_2", lambda a: a[:-1]),
        ("start_2", lambda a: a[:-1]),
        ("start_2", lambda a: a + 1),
        ("start_3", lambda a: np.r_[a[:1], a[1:-1][::-1], a[-1:]]),
        ("token_2", lambda a: a[::-1]),
        ("token_2", lambda a: a.astype(np.int64) - 5),
        ("token_3", lambda a: np.where(np.arange(len(a)) == len(a) - 1, 200, a)),
        ("suffix_3", lambda a: a.astype(int) + 10_000),
        ("suffix_2", lambda a: a[None]),
        ("suffix_2", lambda a: None),
    ],
)
def test_load_of_inconsistent_tables(tmp_path, name, spoil):
    _, path = saved(tmp_path)
    with np.load(path) as archive:
        array = archive[name]
    rewritten(path, **{name: spoil(array)})
    with pytest.raises(
        ValueError, match=r"model is a broken n-gram model: .*_\d|length"
    ):
        NGramModel.load(path)


def test_load_of_bad_settings(tmp_path):
    _, path = saved(tmp_path)
    for text in (
        "{",
        "[]",
        "{}",
        json.dumps({"order": 99, "vocab_size": 8}),
        '{"x": 1}',
    ):
        rewritten(path, settings=np.array(text))
        with pytest.raises(ValueError, match="is a broken n-gram model"):
            NGramModel.load(path)


# ---- size


def test_memory_per_token():
    """At most 40 bytes a token, on text in which most 5-grams are new."""
    rng = np.random.default_rng(0)
    text = np.minimum(rng.zipf(1.3, 200_000), 5000) - 1
    model = NGramModel.fit([text], order=5, vocab_size=5000)
    assert model.size(5) > 0.8 * len(text)
    assert model.nbytes <= 40 * len(text)
