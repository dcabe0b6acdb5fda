"""The same exactness on a real pair of n-gram models, fitted on a small text."""

import functools

import numpy as np
import pytest
from toys import EXACT, inexactness, merged, plain, total_variation, whole_loop

import specdec_lib as sd
from specdec_lib.ngram import NGramModel

STOP = 4


@functools.cache
def fitted(order):
    """Modified Kneser-Ney on 400 short texts over a, b, c, d, each ended by a stop."""
    g = np.random.default_rng(11)
    likely = g.dirichlet(np.full(4, 0.4), size=(4, 4))
    texts = []
    for _ in range(400):
        text = [0, int(g.integers(4))]
        for _ in range(int(g.integers(2, 9))):
            text.append(int(g.choice(4, p=likely[text[-2], text[-1]])))
        texts.append([*text, STOP])
    return NGramModel.fit(texts, order=order, vocab_size=5, eos_id=STOP)


def test_the_pair_differs_and_depends_on_context():
    target, draft = fitted(3), fitted(2)
    assert (
        np.abs(target.probabilities([0, 1]) - target.probabilities([2, 1])).max() > 0.1
    )
    assert sd.theory.acceptance(
        target.probabilities([0, 1]), draft.probabilities([0, 1])
    ) == pytest.approx(0.75, abs=0.2)


def test_the_loop_reads_what_the_model_says():
    """The state's logits give the model's own probabilities, in every context."""
    target = fitted(3)
    logits = target.start().extend([0, 1, 2, 3])
    for i, row in enumerate(sd.Sampler()(logits)):
        context = [0, 1, 2, 3][: i + 1]
        assert np.abs(row - target.probabilities(context)).max() < EXACT


@pytest.mark.parametrize("temperature", (0.0, 0.5, 1.0, 1.7))
@pytest.mark.parametrize("k", (1, 2, 3))
@pytest.mark.parametrize("stop_ids", ((), (STOP,)))
def test_merged_rounds(temperature, k, stop_ids):
    filters = [(3, 0.8), (None, None), (2, None), (None, 0.8)]
    for top_k, top_p in filters[: 1 if k == 3 else 4]:
        sampler = sd.Sampler(temperature, top_k=top_k, top_p=top_p)
        for draft_sampler in (sampler, sd.Sampler(0.6), sd.Sampler(0)):
            error = inexactness(
                fitted(3),
                sd.ModelDraft(fitted(2), draft_sampler),
                k=k,
                tokens=k + 1,
                sampler=sampler,
                stop_ids=stop_ids,
                way=merged,
            )
            assert error < EXACT, (sampler, draft_sampler)


@pytest.mark.parametrize("temperature", (0.0, 0.5, 1.0, 1.7))
def test_whole_loop(temperature):
    sampler = sd.Sampler(temperature)
    for draft_sampler in (sampler, sd.Sampler(0)):
        draft = sd.ModelDraft(fitted(2), draft_sampler)
        error = inexactness(fitted(3), draft, k=2, tokens=3, sampler=sampler)
        assert error < EXACT


def test_whole_loop_with_a_stop_id_and_a_minimum():
    error = inexactness(
        fitted(3),
        sd.ModelDraft(fitted(2)),
        k=2,
        tokens=3,
        stop_ids=(STOP,),
        min_new_tokens=2,
    )
    assert error < EXACT


def test_processors():
    sampler = sd.Sampler(
        processors=(sd.RepetitionPenalty(1.5), sd.LogitBias({1: 0.5, 3: -np.inf}))
    )
    draft = sd.ModelDraft(fitted(2))
    real = whole_loop(fitted(3), draft, k=2, tokens=3, sampler=sampler)
    assert not any(3 in text for text in real)
    truth = plain(fitted(3), 3, sampler=sampler)
    assert total_variation(real, truth) < EXACT
