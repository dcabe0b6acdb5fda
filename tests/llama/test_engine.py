"""The engine around the real model, with our tokenizer and with transformers'."""

from __future__ import annotations

import pytest

import specdec_lib as sd
from specdec_lib import llama
from specdec_lib.service.models import load_engine

GREEDY = sd.Sampler(temperature=0)
COPIES = "naïve 🙂 한국\n" * 4
QUESTION = "Write the word naïve, a smile 🙂 and 한국."
MESSAGES = [
    {"role": "system", "content": "You copy."},
    {"role": "user", "content": "Copy: naïve 🙂 한국, naïve 🙂 한국, naïve 🙂 한국"},
]


@pytest.fixture(scope="module")
def engine(smollm2_path):
    model, tokenizer = llama.load(smollm2_path)
    return sd.Engine(model, tokenizer, sd.SuffixDraft(), sampler=GREEDY)


def test_a_text_streams_whole_characters(engine):
    stream = engine.stream(COPIES, max_new_tokens=40)
    pieces = list(stream)
    done = stream.completion
    assert "".join(pieces) == done.text == engine.tokenizer.decode(done.tokens)
    assert any(ord(letter) > 0x1000 for letter in done.text)  # or it tells nothing
    assert not any("\ufffd" in piece for piece in pieces)
    plain = engine.complete(COPIES, max_new_tokens=40, k=0)
    assert plain.tokens == done.tokens
    assert done.metrics.accepted > 0
    stop = done.text[5:8]
    cut = engine.complete(COPIES, max_new_tokens=40, stop=stop)
    assert cut.text == done.text.partition(stop)[0]


def test_the_end_of_an_answer_is_found(engine):
    question = [{"role": "user", "content": "Say yes."}]
    done = engine.complete(question, max_new_tokens=200)
    assert done.finish_reason == "stop"
    assert done.tokens[-1] in engine.stop_ids
    assert done.stop is None
    assert "<|im_end|>" not in done.text


def test_prompts(engine):
    tokenizer = engine.tokenizer
    assert engine.encode("a<|im_end|>") == list(
        tokenizer.encode("a<|im_end|>", special=False)
    )
    chat = sd.Engine(engine.target, tokenizer, chat=True)
    assert chat.encode("Hello") == list(tokenizer.chat("Hello"))
    with pytest.raises(ValueError, match="special token"):
        chat.encode("Hello<|im_end|>")


def test_the_services_engine(smollm2_path):
    name, engine = load_engine(str(smollm2_path), k=3)
    assert name == smollm2_path.stem
    assert engine.k == 3
    assert engine.has_chat
    _, paying = load_engine("smollm2")
    assert isinstance(paying.k, sd.PayingLength)
    one, other = (
        each.complete(MESSAGES, max_new_tokens=12, sampler=GREEDY)
        for each in (engine, paying)
    )
    assert one.text == other.text


def test_transformers_tokenizer_gives_the_same(engine, smollm2_path):
    pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="it is not installed")
    theirs = transformers.AutoTokenizer.from_pretrained(
        str(smollm2_path.parent), gguf_file=smollm2_path.name
    )
    other = sd.Engine(engine.target, theirs, sd.SuffixDraft(), sampler=GREEDY)
    for prompt in ("", QUESTION, "a<|im_end|>b", MESSAGES):
        if prompt or engine.tokenizer.add_bos:
            assert other.encode(prompt) == engine.encode(prompt)
    assert other.stop_ids == engine.stop_ids
    for prompt in (QUESTION, COPIES, MESSAGES):
        stream = other.stream(prompt, max_new_tokens=30)
        pieces = list(stream)
        alone = engine.complete(prompt, max_new_tokens=30)
        assert "".join(pieces) == alone.text
        assert stream.completion.tokens == alone.tokens
        assert not any(piece.endswith("\ufffd") for piece in pieces)
    with pytest.raises(ValueError, match="special token"):
        other.encode([{"role": "user", "content": "<|im_start|>system"}])
