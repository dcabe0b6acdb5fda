"""Any Unicode through the tokenizer of a real model; guesses of an n-gram model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties_kit import (
    among,
    examples,
    flips,
    ngram_model,
    seeds,
    some_tokens,
    whole,
)

import specdec_lib as sd
from specdec_lib.ngram import SMOOTHINGS
from specdec_lib.text import StreamDecoder

pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from specdec_lib.llama.answers import NGramGuesses
from specdec_lib.llama.gguf_file import GGUFFile
from specdec_lib.llama.tokenizer import LlamaTokenizer

ODD = [
    *(
        "e\u0301",
        "\u0301",
        "\u200d",
        "👩\u200d👩\u200d👧",
        "👍🏽",
        "🇫🇷",
        "𝔘",
        "שלום",
        "\u202e",
    ),
    *("\x00", "\x7f", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "\u00ad"),
    *("\n", "\r\n", "\r", "\x0b", "\x85", "\u2028", "\t", " ", "   ", "\u3000"),
    *("漢字", "한", "é", "İ", "½", "１２", "1234567", "don't", "I'LL", "snake_case"),
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>", "<|im_", "a" * 70),
]
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>", "<repo_name>")
# Control characters that no one writes, and bytes that begin no assigned character.
MISSING = {4, 6, 19, 20, 22, 29, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
SCALARS = st.characters(exclude_categories=("Cs",))
texts = st.lists(among(*ODD) | st.text(SCALARS, max_size=4), max_size=8).map("".join)


@pytest.fixture(scope="session")
def tokenizer(smollm2_path):
    return LlamaTokenizer.from_file(GGUFFile(smollm2_path))


@examples(300)
@given(given=texts)
def test_a_text_comes_back_from_the_ids_of_a_real_vocabulary(tokenizer, given):
    """But for the few bytes that this vocabulary has no token for, which are lost."""
    ids = tokenizer.encode(given, special=False)
    spelt = bytes(byte for byte in given.encode() if byte not in MISSING)
    text = spelt.decode(errors="replace")
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.piece_bytes, ids)) == spelt
    # Names of special tokens apart, they are read no other way.
    if not any(name in given for name in SPECIAL):
        assert tokenizer.encode(given).tolist() == ids.tolist()
    stream = StreamDecoder(tokenizer)
    known, read = "", b""
    for id in ids.tolist():
        known += stream.feed([id])
        read += tokenizer.piece_bytes(id)
        assert text.startswith(known)
        if spelt == given.encode():
            assert known == read.decode(errors="ignore")
    assert known + stream.finish() == text


@examples(150)
@given(data=st.data())
def test_any_ids_of_a_real_vocabulary_stream_to_their_decoding(tokenizer, data):
    high = tokenizer.vocab_size - 1
    ids = [data.draw(whole(0, high)) for _ in range(data.draw(whole(0, 12)))]
    ids += tokenizer.encode(data.draw(among(*ODD)), special=False).tolist()[:-1]
    expected = tokenizer.decode(ids)
    stream, known = StreamDecoder(tokenizer), ""
    for id in ids:
        known += stream.feed([id])
        assert expected.startswith(known)
    assert known + stream.finish() == expected


@examples(100)
@given(data=st.data(), seed=seeds)
def test_guesses_of_n_grams_are_those_of_a_model_draft(data, seed):
    """The same proposals without the rows of all probabilities."""
    draw = data.draw
    vocab = draw(whole(2, 6))
    order, smoothing = draw(whole(1, 4)), draw(among(*SMOOTHINGS))
    model = ngram_model(seed, vocab, order, smoothing, None, None)
    threshold = draw(among(0.05, 0.3, 0.8))
    greedy = sd.Sampler(temperature=0)
    slow = sd.ModelDraft(model, greedy, least=threshold, draw_last=False)
    prompt = tuple(some_tokens(draw, vocab, 1, 8))
    fast = NGramGuesses(model, threshold).start(prompt)
    known = slow.start(prompt)
    for _ in range(draw(whole(1, 4))):
        k = draw(whole(1, 6))
        proposal = fast.propose(k)
        expected = known.propose(k, sd.SeededRandom(0))
        assert proposal.tokens == expected.tokens
        assert proposal.probabilities is None
        new = tuple(some_tokens(draw, vocab, 1, 3))
        if proposal.tokens and draw(flips):
            new = proposal.tokens[: draw(whole(1, len(proposal.tokens)))] + new
        fast.commit(new)
        known.commit(new)
