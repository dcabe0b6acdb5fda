"""N-gram models against NLTK's formulas and against KenLM's estimates."""

import math
from pathlib import Path

import numpy as np
import pytest
from nltk.lm import KneserNeyInterpolated, Lidstone
from nltk.util import everygrams

from specdec_lib.ngram import NGramModel

DATA = Path(__file__).parent / "data"


# ---- NLTK


def training_text(seed, vocab_size=8, count=60):
    """Sentences of tokens 2 and up, each between 0 and 1."""
    rng = np.random.default_rng(seed)
    return [
        [0, *(rng.zipf(1.4, rng.integers(1, 12)) % (vocab_size - 2) + 2).tolist(), 1]
        for _ in range(count)
    ]


def fitted(peer, order, sentences):
    """NLTK looks up words only, so a token stands there as its digits."""
    words = [[str(w) for w in sentence] for sentence in sentences]
    peer.fit(
        [everygrams(sentence, max_len=order) for sentence in words],
        [w for sentence in words for w in sentence],
    )
    return peer


def score(peer, word, context):
    return peer.score(str(word), [str(w) for w in context])


def full_contexts(sentences, order):
    """Contexts of the whole order - 1 tokens, seen ones and others.

    NLTK has no rule of its own for shorter ones.
    """
    seen = {
        tuple(s[i : i + order - 1])
        for s in sentences
        for i in range(len(s) - order + 1)
    }
    return sorted(seen)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("add_k", [1.0, 0.1])
def test_add_k_equals_nltk_lidstone(order, add_k):
    sentences = training_text(order)
    peer = fitted(Lidstone(add_k, order), order, [s[1:] for s in sentences])
    model = NGramModel.fit(
        [s[1:] for s in sentences],
        order=order,
        vocab_size=len(peer.vocab),  # NLTK's <UNK> is in it: our token 0
        smoothing="add-k",
        add_k=add_k,
    )
    words = [int(w) for w in peer.vocab if w.isdigit()]
    contexts = full_contexts([s[1:] for s in sentences], order)
    contexts += [(1,) * (order - 1), (2, 1, 2, 1)[: order - 1]]
    assert len(contexts) >= 3
    for context in contexts:
        for word in words:
            expected = math.log(score(peer, word, context))
            assert model.log_prob(word, context) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("order", [2, 3, 4, 5])
@pytest.mark.parametrize("discount", [0.1, 0.75])
def test_kneser_ney_equals_nltk(order, discount):
    """One discount for all, none for unigrams, is NLTK's interpolated formula."""
    sentences = training_text(order)
    peer = fitted(KneserNeyInterpolated(order, discount=discount), order, sentences)
    vocab_size = 8
    model = NGramModel.fit(
        sentences,
        order=order,
        vocab_size=vocab_size,
        bos_id=0,
        eos_id=1,
        discounts=[[0.0] * 3] + [[discount] * 3] * (order - 1),
    )
    contexts = full_contexts(sentences, order)
    assert len(contexts) > 5
    for context in contexts:
        found = model.probabilities(context)
        expected = [0.0] + [score(peer, w, context) for w in range(1, vocab_size)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        for word in range(1, vocab_size):
            if expected[word] > 0:
                log = math.log(expected[word])
                assert model.log_prob(word, context) == pytest.approx(log, abs=1e-12)


# ---- KenLM: data/kenlm_train.arpa is what `lmplz -o 4
# --discount_fallback` wrote for kenlm_train.txt

# what lmplz printed
KENLM_DISCOUNTS = [
    [0.5, 1, 1.5],  # its fall-back, as the unigrams have too few counts of counts
    [0.554839, 1.34867, 2.26022],
    [0.791453, 1.45507, 0.738706],
    [0.90566, 1.54717, 3],
]


def kenlm_text(name):
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines]


def vocabulary():
    words = sorted({w for s in kenlm_text("kenlm_train.txt") for w in s})
    return {w: i for i, w in enumerate(["<s>", "</s>", "<unk>", *words])}


def kenlm_model(discounts):
    ids = vocabulary()
    return NGramModel.fit(
        [[ids[w] for w in sentence] for sentence in kenlm_text("kenlm_train.txt")],
        order=4,
        vocab_size=len(ids),
        bos_id=0,
        eos_id=1,
        discounts=discounts,
    )


def arpa_entries():
    """(words, log10 p) of every n-gram in the file."""
    for line in (DATA / "kenlm_train.arpa").read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if len(fields) > 1:
            yield fields[1].split(), float(fields[0])


def test_discounts_equal_kenlm():
    """All but those of unigrams, whose counts of counts KenLM takes differently."""
    np.testing.assert_allclose(
        kenlm_model(None).discounts[1:], KENLM_DISCOUNTS[1:], rtol=0, atol=1e-5
    )


def test_kneser_ney_equals_every_estimate_of_kenlm():
    ids = vocabulary()
    model = kenlm_model(KENLM_DISCOUNTS)
    compared = [0] * 5
    for words, log10 in arpa_entries():
        if words != ["<s>"]:  # KenLM gives it a placeholder
            *context, token = (ids[w] for w in words)
            found = model.log_prob(token, context) / math.log(10)
            assert found == pytest.approx(log10, abs=1e-5), words
            compared[len(words)] += 1
    assert compared[1] == len(ids) - 1
    assert compared[2:] == [model.size(m) for m in (2, 3, 4)]


def test_kneser_ney_equals_kenlm_on_new_text():
    """Back-off, sentence ends and unknown words, as KenLM's own query takes them."""
    kenlm = pytest.importorskip(
        "kenlm", reason="KenLM's Python module is not installed"
    )
    peer = kenlm.Model(str(DATA / "kenlm_train.arpa"))
    ids, model = vocabulary(), kenlm_model(KENLM_DISCOUNTS)
    lengths = set()
    for sentence in kenlm_text("kenlm_heldout.txt"):
        tokens = [0, *(ids.get(w, ids["<unk>"]) for w in sentence), 1]
        scores = list(peer.full_scores(" ".join(sentence)))
        assert len(scores) == len(tokens) - 1
        for i, (log10, length, _) in enumerate(scores, 1):
            found = model.log_prob(tokens[i], tokens[:i]) / math.log(10)
            assert found == pytest.approx(log10, abs=1e-5)
            lengths.add(length)
    assert lengths == {1, 2, 3, 4}


def test_kneser_ney_equals_kenlm_after_any_words():
    """Word by word from KenLM's own states: sentences of words thrown together, some
    of them unknown, so that every length of match is backed off from."""
    kenlm = pytest.importorskip(
        "kenlm", reason="KenLM's Python module is not installed"
    )
    peer = kenlm.Model(str(DATA / "kenlm_train.arpa"))
    ids, model = vocabulary(), kenlm_model(KENLM_DISCOUNTS)
    words = sorted(w for w in ids if w not in ("<s>", "</s>"))
    known = [w for s in kenlm_text("kenlm_train.txt") for w in s]
    g = np.random.default_rng(0)
    compared = 0
    for _ in range(150):
        sentence, state = [], kenlm.State()
        peer.BeginSentenceWrite(state)
        while len(sentence) < 12:
            if g.random() < 0.5:  # a run of the text, so that long contexts match
                at = int(g.integers(len(known) - 4))
                sentence += known[at : at + 4]
            else:
                sentence.append(words[int(g.integers(len(words)))])
        tokens, after = [0], kenlm.State()
        for word in [*sentence, "</s>"]:
            log10 = peer.BaseScore(state, word, after)
            found = model.log_prob(ids[word], tokens) / math.log(10)
            assert found == pytest.approx(log10, abs=1e-5), (sentence, word)
            tokens.append(ids[word])
            state, after = after, state
            compared += 1
    assert compared > 1800
