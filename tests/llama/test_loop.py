"""The loop with a Llama as target: exact, and greedy text the same by every way."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llama_kit import plain_logits, toy

import specdec_lib as sd
from specdec_lib.llama import LlamaModel

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from toys import OTHER, inexactness, merged

SMALL = toy(8, vocab_size=3, width=8, hidden=8, heads=2, kv_heads=1, head_width=4)
TARGET = SMALL.model(bos_id=0)
BIG = toy(9, layers=2, context_window=200)


@pytest.mark.parametrize("temperature", (1.0, 0.6, 0))
@pytest.mark.parametrize("k", (1, 2))
def test_exact(temperature, k):
    sampler = sd.Sampler(temperature)
    draft = sd.ModelDraft(OTHER, sampler)
    for model in (TARGET, SMALL.model(np.float32)):
        off = inexactness(model, draft, k=k, tokens=3, sampler=sampler, way=merged)
        assert off < (1e-12 if model is TARGET else 1e-5)
    assert inexactness(TARGET, draft, k=k, tokens=2, sampler=sampler) < 1e-12


def test_as_a_draft():
    draft = sd.ModelDraft(TARGET, sd.Sampler())
    assert inexactness(OTHER, draft, k=2, tokens=3, way=merged) < 1e-12
    assert inexactness(TARGET, draft, k=2, tokens=2) < 1e-12


def greedy_by_hand(prompt, n):
    text = list(prompt)
    for _ in range(n):
        text.append(int(plain_logits(BIG, text)[-1].argmax()))
    return tuple(text[len(prompt) :])


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_greedy_text(dtype):
    prompt = [5, 6, 7, 5, 6]
    expected = greedy_by_hand(prompt, 25)
    model = BIG.model(dtype)
    plain = sd.generate(model, prompt, max_new_tokens=25, sampler=sd.Sampler(0))
    assert plain.tokens == expected
    other = toy(9, layers=1).model()
    for draft in (sd.PromptLookup(), sd.SuffixDraft(), sd.ModelDraft(other)):
        for k in (1, 3, 8):
            guessed = sd.generate(
                model,
                prompt,
                draft=draft,
                k=k,
                max_new_tokens=25,
                sampler=sd.Sampler(0),
            )
            assert guessed.tokens == expected


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_greedy_texts_part_only_where_two_tokens_are_all_but_equal(dtype):
    """A call for several rows rounds in another way than calls for one; that may turn a
    tie, and is no excuse for anything else. In float64 nothing parts at all."""
    exact, model = BIG.model(), BIG.model(dtype)
    near = BIG.weights(dtype)  # the target again, but for its first layer
    near = LlamaModel(BIG.config, replace(near, layers=near.layers[1:] * 2))
    drafts = [
        (sd.ModelDraft(near, sd.Sampler(0)), sd.verify_tokens),
        (
            sd.TreeDraft(near, shape=sd.tree_shape((2, 2, 1)), draw="best"),
            sd.verify_tree,
        ),
        (sd.PromptLookup(), sd.verify_tokens),
        (sd.SuffixDraft(threshold=0), sd.verify_block),
    ]
    g = np.random.default_rng(3)
    for k in (1, 2, 4, 7):
        prompt = g.integers(0, 37, size=int(g.integers(1, 12))).tolist()
        options = {"max_new_tokens": 40, "sampler": sd.Sampler(0)}
        plain = sd.generate(model, prompt, **options).tokens
        for draft, verify in drafts:
            options |= {"draft": draft, "verify": verify, "k": k}
            text = sd.generate(model, prompt, **options).tokens
            if text != plain:
                assert dtype == np.float32
                same = [a == b for a, b in zip(text, plain, strict=True)].index(False)
                row = np.sort(exact.start().extend([*prompt, *plain[:same]])[-1])
                assert row[-1] - row[-2] < 1e-4


class Guesser:
    """Trees of guesses, some of them right."""

    def __init__(self, right, start):
        self.right, self.at = list(right), start

    def start(self, prompt):
        return Guesser(self.right, 0)

    def propose(self, k, rng):
        right = self.right[self.at : self.at + 3]
        if len(right) < 3 or k < 3:
            return sd.Proposal(())
        wrong = [(token + 1) % 37 for token in right]
        tokens = (wrong[0], right[0], wrong[1], right[1], right[2], wrong[2])
        return sd.Proposal(tokens, None, (-1, -1, 1, 1, 3, 0))

    def commit(self, tokens):
        self.at += len(tokens)


def test_trees_in_the_loop():
    prompt = [5, 6, 7, 5, 6]
    expected = greedy_by_hand(prompt, 25)
    for dtype in (np.float32, np.float64):
        guessed = sd.generate(
            BIG.model(dtype),
            prompt,
            draft=Guesser(expected, 0),
            k=4,
            max_new_tokens=25,
            sampler=sd.Sampler(0),
            verify=sd.verify_tree,
        )
        assert guessed.tokens == expected
        assert guessed.metrics.target_calls < 10


def test_the_end_of_the_window():
    model = toy(3, context_window=12).model()
    done = sd.generate(
        model, [1] * 5, draft=sd.PromptLookup(), max_new_tokens=50, seed=1
    )
    assert (len(done.tokens), done.finish_reason) == (7, "context")


def test_every_prompt_against_every_k_up_to_the_end_of_the_window():
    """As target and as draft, whose own window may end before or after."""
    window = 7
    ends = toy(9, context_window=window).model()
    shorter, longer = (toy(8, context_window=n).model() for n in (4, 9))
    greedy = sd.Sampler(0)
    for length in range(1, window + 1):
        prompt = [5, 6, 7, 5, 6, 7, 5][:length]
        text = list(prompt)
        while len(text) < window:
            text.append(int(ends.start().extend(text)[-1].argmax()))
        for k in range(window + 2):
            for draft, verify in (
                (sd.PromptLookup(), sd.verify_tokens),
                (sd.ModelDraft(shorter, greedy), sd.verify_block),
                (sd.ModelDraft(longer, greedy), sd.verify_tokens),
                (sd.TreeDraft(longer, greedy, sd.tree_shape((2, 1))), sd.verify_tree),
            ):
                options = {"k": k, "max_new_tokens": 20, "sampler": greedy}
                found = sd.generate(ends, prompt, draft=draft, verify=verify, **options)
                assert found.tokens == tuple(text[length:])
                assert found.finish_reason == "context"


def test_no_prompt():
    assert len(sd.generate(TARGET, [], max_new_tokens=2, seed=0).tokens) == 2
    with pytest.raises(ValueError, match="prompt must not be empty"):
        sd.generate(SMALL.model(), [], max_new_tokens=2)


def test_it_is_a_language_model():
    model: sd.models.LanguageModel = TARGET
    assert isinstance(model, LlamaModel)


@pytest.mark.parametrize("tree", (False, True))
def test_a_prompt_is_read_without_its_rows(monkeypatch, tree):
    """Logits of a prompt nobody asks for are not worked out."""
    from specdec_lib.llama import forward

    prompt, worked_out = [5, 6, 7, 5, 6], []
    expected = greedy_by_hand(prompt, 8)

    def counted(x, *rest, logits=forward.logits):
        worked_out.append(len(x))
        return logits(x, *rest)

    monkeypatch.setattr(forward, "logits", counted)
    draft = Guesser(expected, 0) if tree else sd.PromptLookup()
    done = sd.generate(
        BIG.model(),
        prompt,
        draft=draft,
        k=4,
        max_new_tokens=8,
        sampler=sd.Sampler(0),
        verify=sd.verify_tree if tree else sd.verify_tokens,
    )
    assert done.tokens == expected
    assert worked_out == [len(each.drafted) + 1 for each in done.rounds]


def test_a_draft_reads_a_prompt_without_its_rows(monkeypatch):
    from specdec_lib.llama import forward

    prompt, worked_out = [5, 6, 7, 5, 6], []

    def counted(x, *rest, logits=forward.logits):
        worked_out.append(len(x))
        return logits(x, *rest)

    monkeypatch.setattr(forward, "logits", counted)
    session = sd.ModelDraft(BIG.model(), sd.Sampler(0)).start(prompt)
    guesses = session.propose(3, sd.SeededRandom(0)).tokens
    assert guesses == greedy_by_hand(prompt, 3)
    assert worked_out == [1, 1, 1]
