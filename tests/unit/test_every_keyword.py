"""Every parameter that may be left out of the main functions changes what they do.

Complete by their signatures.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from faults_kit import OTHER, TARGET

import specdec_lib as sd

MODEL = sd.ModelDraft(OTHER)
GENERATE = {
    "draft": sd.PromptLookup(),
    "k": 1,
    "min_new_tokens": 40,
    "sampler": sd.Sampler(0.3),
    "verify": sd.verify_block,
    "stop_ids": (1,),
    "seed": 5,
    "rng": sd.SeededRandom(5),
}


def left_out(function):
    found = inspect.signature(function).parameters.values()
    return {p.name for p in found if p.default is not p.empty}


def rounds(**options):
    if "rng" in options:
        del options["seed"]
    found = sd.stream(TARGET, [0, 1, 0], max_new_tokens=40, **options)
    return [(r.drafted, r.accepted, r.emitted, r.finish_reason) for r in found]


def test_every_keyword_of_generate_and_stream():
    assert set(GENERATE) == left_out(sd.generate) == left_out(sd.stream)
    for name, value in GENERATE.items():
        base = {"draft": MODEL, "seed": 1}
        if name == "min_new_tokens":  # it puts off a stop
            base["stop_ids"] = (1,)
        assert rounds(**base) != rounds(**{**base, name: value}), name


SENTENCES = [[2, 3, 4, 2, 3, 3, 2, 4], [3, 3, 2, 4, 4, 2], [4, 2, 3, 2]] * 3
FIT = {
    "smoothing": ("kneser-ney", "add-k"),
    "bos_id": ("add-k", 0),
    "eos_id": ("add-k", 1),
    "add_k": ("add-k", 0.1),
    "interpolation": ("jelinek-mercer", 0.2),
    "backoff": ("stupid-backoff", 0.1),
    "discounts": ("kneser-ney", [[0.1, 0.2, 0.3]] * 2),
}


def test_every_keyword_of_an_n_gram_model():
    def law(**options):
        model = sd.NGramModel.fit(SENTENCES, order=2, vocab_size=5, **options)
        return [model.probabilities([token]) for token in (2, 3, 4)]

    assert set(FIT) == left_out(sd.NGramModel.fit) - {"vocabulary"}
    for name, (smoothing, value) in FIT.items():
        base = {"smoothing": smoothing}
        assert np.abs(np.subtract(law(**base), law(**{**base, name: value}))).max() > 0


@pytest.mark.parametrize(
    "name, value, logits",
    [
        ("temperature", 0.5, [0.0, 1.0, 2.0]),
        ("top_k", 2, [0.0, 1.0, 2.0]),
        ("top_p", 0.5, [0.0, 1.0, 2.0]),
        ("processors", (sd.LogitBias({0: 1.0}),), [0.0, 1.0, 2.0]),
    ],
)
def test_every_keyword_of_a_sampler(name, value, logits):
    assert left_out(sd.Sampler) == {"temperature", "top_k", "top_p", "processors"}
    assert (sd.Sampler(**{name: value})(logits) != sd.Sampler()(logits)).any()


LETTERS = "abcde"


class Letters:
    vocab_size = len(LETTERS)

    def encode(self, text):
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(LETTERS[id] for id in ids)


CALL = {
    "k": 1,
    "sampler": sd.Sampler(0.3),
    "verify": sd.verify_block,
    "stop": "b",
    "seed": 5,
    "rng": sd.SeededRandom(5),
}


def test_every_keyword_of_an_engine():
    def done(engine, **options):
        options = options if "rng" in options else {"seed": 1, **options}
        found = engine.complete("aba", max_new_tokens=40, **options)
        kept = [(r.drafted, r.accepted, r.emitted) for r in found.rounds]
        return found.text, found.stop, kept

    engine = sd.Engine(TARGET, Letters(), OTHER)
    assert set(CALL) == left_out(engine.complete) == left_out(engine.stream)
    for name, value in CALL.items():
        assert done(engine) != done(engine, **{name: value}), name
    own = {"draft", "k", "sampler", "verify", "chat", "special"}
    assert left_out(sd.Engine) == own  # the last two: unit/test_engine
    for name in ("k", "sampler", "verify"):
        other = sd.Engine(TARGET, Letters(), OTHER, **{name: CALL[name]})
        assert done(other) == done(engine, **{name: CALL[name]})
    assert done(engine) != done(sd.Engine(TARGET, Letters()))
