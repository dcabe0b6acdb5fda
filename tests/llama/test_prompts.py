"""The prompts that ship, as the real model answers them.

answers.json holds what was read when they were chosen: how many tokens each answer has
within 160, how it begins, and the smallest gap between the two best logits on the way.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib import llama
from specdec_lib.draft_length import copies_that_pay
from specdec_lib.experiments import _repeated
from specdec_lib.prompts import load_prompts

SEEN = json.loads((Path(__file__).parent / "answers.json").read_text(encoding="utf-8"))
PROMPTS = load_prompts()
GREEDY = sd.Sampler(temperature=0)
CURVE = sd.theory.cost_curve([1, 2, 5, 16], [1.0, 1.2, 1.5, 2.3])


@pytest.fixture(scope="module")
def ours(smollm2_path):
    return llama.load("smollm2")


def test_each_has_an_answer_that_was_read():
    assert [prompt.name for prompt in PROMPTS] == list(SEEN)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)
def test_of_40_to_400_tokens(ours, prompt):
    _, tokenizer = ours
    assert 40 <= len(tokenizer.chat(prompt.messages)) <= 400


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)
def test_the_answer_is_the_one_that_was_read(ours, prompt):
    """The same tokens with guesses, no near tie on the way, and no loop."""
    model, tokenizer = ours
    ids = tokenizer.chat(prompt.messages)
    draft, k = copies_that_pay(CURVE)
    said = sd.generate(
        model,
        ids,
        draft=draft,
        k=k,
        max_new_tokens=160,
        sampler=GREEDY,
        stop_ids=tokenizer.stop_ids,
    ).tokens
    assert len(said) == SEEN[prompt.name]["tokens"]
    begins = SEEN[prompt.name]["begins"]
    assert " ".join(tokenizer.decode(said).split()).startswith(begins)
    # One call over all of it: what plain decoding would have chosen at each place.
    rows = model.start().extend_last([*ids, *said[:-1]], len(said))
    assert rows.argmax(axis=1).tolist() == list(said)
    two = np.sort(rows, axis=1)[:, -2:]
    assert (two[:, 1] - two[:, 0]).min() > 1e-3
    assert _repeated(said) < 0.15 * len(said)
