"""The engine: text in, text out, whatever the borders of tokens and rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specdec_lib as sd
from specdec_lib.engine import Engine
from specdec_lib.text import WordTokenizer

GREEDY = sd.Sampler(temperature=0)
ODD = ["é", "한", "🙂", "👩‍👩‍👧", "ñ", "\n", "\ufffd", "ab"]


def writes(ids, vocab_size, begin=1):
    """A model that writes ``ids`` after ``begin`` tokens, then <eos>."""

    def logits(sequence):
        at = len(sequence) - begin
        row = np.zeros(vocab_size)
        row[ids[at] if at < len(ids) else 1] = 50.0
        return row

    return sd.FunctionModel(logits, vocab_size, bos_id=0)


class Knows:
    """A draft that knows the text, up to one place in each round."""

    def __init__(self, ids, wrong):
        self.ids, self.wrong = ids, wrong

    def start(self, prompt):
        return _Knows(self, len(prompt))


class _Knows:
    def __init__(self, draft, begin):
        self.draft, self.at = draft, -begin + 1

    def propose(self, k, rng):
        tokens = list(self.draft.ids[self.at : self.at + k])
        if self.draft.wrong is not None and self.draft.wrong < len(tokens):
            tokens[self.draft.wrong] = 2
        return sd.Proposal(tuple(tokens))

    def commit(self, tokens):
        self.at += len(tokens)


def engine_for(text, tokenizer, wrong=None):
    ids = [*tokenizer.encode(text).tolist(), tokenizer.eos_id]
    target = writes(ids, tokenizer.vocab_size)
    return Engine(target, tokenizer, Knows(ids, wrong), sampler=GREEDY)


def cut(text, stops):
    """The text before the stop string that is complete first: character by character,
    of several at one place the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return text


# Of bytes alone, and with merges that join over parts of characters.
TOKENIZERS = [
    sd.Tokenizer(),
    sd.Tokenizer.train(["the harbour 🙂🙂 é한é한 abab abc the harbour"], merges=40),
]


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(st.sampled_from([*"abc ", *"".join(ODD)]), max_size=14),
    stops=st.lists(
        st.text(st.sampled_from("abc é🙂\ufffd"), min_size=1, max_size=4), max_size=3
    ),
    k=st.integers(0, 7),
    wrong=st.none() | st.integers(0, 3),
    which=st.sampled_from(TOKENIZERS),
)
def test_text_and_stop_strings_do_not_depend_on_tokens_or_rounds(
    text, stops, k, wrong, which
):
    engine = engine_for(text, which, wrong)
    stream = engine.stream("", max_new_tokens=200, k=k, stop=stops)
    pieces = list(stream)
    assert "".join(pieces) == cut(text, stops)
    assert len(pieces) == len(stream.completion.rounds)
    done = engine.complete("", max_new_tokens=200, k=k, stop=stops)
    assert done.tokens == stream.completion.tokens
    assert done.metrics.emitted == stream.completion.metrics.emitted
    assert done.text == cut(text, stops)
    assert done.finish_reason == "stop"
    assert (done.stop is not None) == any(stop in text for stop in stops)


@settings(max_examples=100, deadline=None)
@given(
    text=st.text(st.sampled_from("ab🙂é"), min_size=1, max_size=10),
    stops=st.lists(st.text(st.sampled_from("ab🙂é"), min_size=1, max_size=4)),
    k=st.integers(0, 5),
)
def test_nothing_is_given_out_that_a_stop_string_takes_back(text, stops, k):
    stream = engine_for(text, sd.Tokenizer()).stream(
        "", max_new_tokens=100, k=k, stop=stops
    )
    given_out, whole = "", cut(text, stops)
    for piece in stream:
        given_out += piece
        assert whole.startswith(given_out)
        assert stream.completion.text == given_out
    assert given_out == whole


@settings(max_examples=60, deadline=None)
@given(
    ids=st.lists(st.integers(2, 257) | st.sampled_from([0xE4, 0xBA, 0xBB, 0x82])),
    k=st.integers(0, 4),
)
def test_bytes_that_are_no_text_stream_as_they_decode(ids, k):
    tokenizer = sd.Tokenizer()
    engine = Engine(writes(ids, 258), tokenizer, Knows(ids, None), sampler=GREEDY)
    done = engine.complete("", max_new_tokens=len(ids), k=k)
    assert done.text == tokenizer.decode(ids)
    assert done.tokens == tuple(ids)
    assert done.finish_reason == "length"


def test_a_character_comes_whole():
    pieces = list(engine_for("né🙂", sd.Tokenizer()).stream("", max_new_tokens=9, k=0))
    assert pieces == ["n", "", "é", "", "", "", "🙂", ""]


def test_a_stop_string_early_in_a_long_round():
    # FAULTS: pieces "x", "a", "b", "y" in one round, stop "ab".
    engine = engine_for("xaby", sd.Tokenizer())
    done = engine.complete("", max_new_tokens=9, k=8, stop="ab")
    assert (done.text, done.stop, done.finish_reason) == ("x", "ab", "stop")
    assert engine.tokenizer.decode(done.tokens) == "x"
    (only,) = done.rounds
    assert engine.tokenizer.decode(only.emitted) == "xab"
    assert (only.accepted, only.tested, only.finish_reason) == (3, 3, "stop")
    assert done.metrics.emitted == 3


def test_tokens_are_those_that_the_text_needs():
    tokenizer = sd.Tokenizer.train(["xab xab xab"], merges=2)
    assert tokenizer.pieces(tokenizer.encode("xab")) == ["xab"]
    done = engine_for("xab", tokenizer).complete("", max_new_tokens=9, stop="ab")
    assert (done.text, len(done.tokens)) == ("x", 1)
    done = engine_for("xab", tokenizer).complete("", max_new_tokens=9, stop="xa")
    assert (done.text, done.tokens) == ("", ())


def test_of_stop_strings_that_end_together_the_longest_counts():
    engine = engine_for("1234", sd.Tokenizer())
    assert engine.complete("", max_new_tokens=9, stop=["3", "23"]).text == "1"
    # "2" is complete before "1234" is, whatever comes after.
    assert engine.complete("", max_new_tokens=9, stop=["1234", "2"]).text == "1"
    # Nor does it depend on where tokens end.
    whole = sd.Tokenizer.train(["abc abc"], merges=2)
    assert whole.pieces(whole.encode("abc")) == ["abc"]
    engine = engine_for("abc", whole)
    assert engine.complete("", max_new_tokens=9, stop=["abc", "b"]).text == "a"


def test_what_was_held_back_is_given_at_the_end():
    engine = engine_for("say a", sd.Tokenizer())
    stream = engine.stream("", max_new_tokens=5, k=0, stop="ab")
    assert list(stream) == ["s", "", "ay", " ", "a"]
    assert stream.completion.finish_reason == "length"


def test_stop_strings_are_looked_for_in_the_new_text_only():
    tokenizer = sd.Tokenizer()
    ids = tokenizer.encode("b").tolist()
    engine = Engine(writes(ids, 258, begin=2), tokenizer, sampler=GREEDY)
    assert engine.complete("a", max_new_tokens=1, stop="ab").text == "b"


@pytest.fixture(scope="module")
def pair():
    return sd.train_pair(["The harbour was cold. The harbour wall was colder."] * 3)


@pytest.mark.parametrize("temperature", [0, 0.7, 1])
@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_those_of_generate(pair, temperature, seed):
    sampler = sd.Sampler(temperature)
    engine = Engine(pair.target, pair.tokenizer, pair.draft, sampler=sampler, k=3)
    done = engine.complete("The har", max_new_tokens=12, seed=seed)
    alone = sd.generate(
        pair.target,
        [0, *pair.tokenizer.encode("The har")],
        draft=sd.ModelDraft(pair.draft, sampler),
        k=3,
        max_new_tokens=12,
        sampler=sampler,
        stop_ids=[1],
        seed=seed,
    )
    assert done.tokens == alone.tokens
    assert done.finish_reason == alone.finish_reason
    assert done.text == pair.tokenizer.decode(alone.tokens)
    assert done.prompt_tokens == 1 + len(pair.tokenizer.encode("The har"))
    assert done.metrics.accepted == alone.metrics.accepted
    mine = engine.complete("The har", max_new_tokens=12, rng=sd.SeededRandom(seed))
    assert mine.tokens == alone.tokens


def test_a_call_may_take_other_settings(pair):
    engine = Engine(pair.target, pair.tokenizer, pair.draft)
    options = dict(max_new_tokens=12, sampler=GREEDY, seed=1)
    plain = engine.complete("The har", **options, k=0)
    block = engine.complete("The har", **options, k=5, verify=sd.verify_block)
    assert plain.tokens == block.tokens
    assert plain.metrics.drafted == 0 < block.metrics.accepted


def test_a_draft_that_is_no_model_is_used_as_it_is(pair):
    draft = sd.PromptLookup()
    engine = Engine(pair.target, pair.tokenizer, draft)
    assert engine.draft_for(GREEDY) is draft
    assert engine.complete("The harbour. The", max_new_tokens=5).tokens


def test_no_rounds():
    engine = engine_for("ab", sd.Tokenizer())
    done = engine.complete("", max_new_tokens=0)
    assert (done.text, done.tokens, done.rounds) == ("", (), ())
    assert (done.finish_reason, done.metrics.acceptance_rate) == ("length", None)
    small = sd.FunctionModel(lambda s: np.zeros(258), 258, 0, context_window=3)
    done = Engine(small, sd.Tokenizer()).complete("ab", max_new_tokens=5)
    assert (done.text, done.finish_reason) == ("", "context")


def test_a_stream_may_be_left(pair):
    engine = Engine(pair.target, pair.tokenizer, pair.draft)
    stream = engine.stream("The", max_new_tokens=50, k=1, seed=0)
    first = next(stream)
    stream.close()
    assert list(stream) == []
    assert stream.completion.text == first
    assert stream.completion.finish_reason is None
    assert len(stream.rounds) == 1


def test_words():
    words = WordTokenizer.train(["The sea is cold. The sea is grey."])
    ids = words.encode("sea is grey.").tolist()
    engine = Engine(writes(ids, words.vocab_size, begin=2), words, sampler=GREEDY)
    stream = engine.stream("The", max_new_tokens=9, k=0)
    assert list(stream) == [" sea", " is", " grey", ".", ""]


class TwoWays:
    """A tokenizer that can only decode, and spells the first token of a text without
    its space: ▁ opens a word, and a character may lie in several tokens."""

    chat_template = None
    all = ("", "▁sea", "▁is", *[bytes([b]) for b in "🙂é".encode()])
    eos_token_id = None

    def __len__(self):
        return len(self.all)

    def apply_chat_template(self, messages, **options):
        raise AssertionError

    def encode(self, text, add_special_tokens, split_special_tokens):
        assert text == "▁sea"
        return [1]

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        assert skip_special_tokens
        assert not clean_up_tokenization_spaces
        out, run = "", b""
        for each in [*(self.all[id] for id in ids), ""]:
            if isinstance(each, bytes):
                run += each
                continue
            try:
                out += run.decode()
            except UnicodeDecodeError:
                out += "\ufffd" * len(run)  # one for each byte
            run, out = b"", out + each.replace("▁", " ")
        return out.removeprefix(" ")


def test_a_tokenizer_that_can_only_decode():
    tokenizer = TwoWays()
    ids = [2, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8, 1]
    target = writes(ids, 12, begin=1)  # a table that is longer than the tokens are
    engine = Engine(target, tokenizer, sampler=GREEDY)
    stream = engine.stream("▁sea", max_new_tokens=len(ids), k=0)
    assert [piece for piece in stream if piece] == [" is", "🙂", "🙂", "é", " sea"]
    # A token without letters between two words takes no space away.
    engine = Engine(writes([2, 0, 1], 12), tokenizer, sampler=GREEDY)
    stream = engine.stream("▁sea", max_new_tokens=3, k=0)
    assert list(stream) == [" is", "", " sea"]


class Chats(sd.Tokenizer):
    """Has a template, and a special token: a tilde."""

    chat_template = "…"

    def encode(self, text, special=True):
        ids = super().encode(text)
        return np.where(ids == ord("~") + 2, 1, ids) if special else ids

    def chat(self, messages):
        return [0, *self.encode("~".join(m["content"] for m in messages) + "~")]


def test_chat():
    chats = Chats()
    flat = sd.FunctionModel(lambda s: np.zeros(258), 258, bos_id=0)
    engine = Engine(flat, chats, chat=True)
    message = {"role": "user", "content": "hi"}
    assert engine.encode("hi") == engine.encode([message]) == chats.chat([message])
    with pytest.raises(ValueError, match="name of a special token"):
        engine.encode("h~i")
    assert Engine(flat, chats, chat=True, special=True).encode("h~i")
    # A text to go on with: the tilde is a letter, unless asked otherwise.
    assert Engine(flat, chats).encode("h~") == [0, ord("h") + 2, ord("~") + 2]
    assert Engine(flat, chats, special=True).encode("h~") == [0, ord("h") + 2, 1]
    with pytest.raises(TypeError, match="role and content"):
        engine.encode([{"role": "user"}])


@pytest.mark.parametrize(
    "change, kind, message",
    [
        (dict(stop=""), ValueError, "stop must not have an empty string"),
        (dict(stop=["a", 1]), TypeError, "stop must be strings, got 1"),
        (dict(stop=3), TypeError, "stop must be a string or several, got 3"),
        (dict(max_new_tokens=-1), ValueError, "max_new_tokens"),
        (dict(max_new_tokens=1.5), TypeError, "max_new_tokens"),
        (dict(k=-1), ValueError, "k must be"),
        (dict(prompt="\ud800"), ValueError, "prompt must be .* lone surrogate"),
        (dict(stop=["a", "\ud800"]), ValueError, "stop must be encodable"),
        (dict(prompt=[{"role": "user", "content": ""}]), ValueError, "chat template"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(pair, change, kind, message):
    engine = Engine(pair.target, pair.tokenizer, pair.draft)
    arguments = {"prompt": "The", "max_new_tokens": 3, **change}
    for method in (engine.complete, engine.stream):
        with pytest.raises(kind, match=message):
            method(**arguments)


def test_bad_parts_are_refused(pair):
    with pytest.raises(TypeError, match="target must be a language model"):
        Engine(None, pair.tokenizer)
    with pytest.raises(TypeError, match="tokenizer must have encode"):
        Engine(pair.target, object())
    with pytest.raises(ValueError, match="the target's .* ids, got 258"):
        Engine(pair.target, sd.Tokenizer())
    with pytest.raises(ValueError, match="no chat template"):
        Engine(pair.target, pair.tokenizer, chat=True)
