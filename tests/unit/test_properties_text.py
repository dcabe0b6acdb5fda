"""Any Unicode in and out: tokenizers, pieces of streams, stop strings, answers."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties_kit import (
    ANY,
    EXACT,
    Recipe,
    a_draft,
    a_length,
    among,
    examples,
    flips,
    seeds,
    untimed,
    whole,
)

import specdec_lib as sd
from specdec_lib.engine import _WindowDecoder
from specdec_lib.text import StreamDecoder, WordTokenizer, read_text, sentences, words

ODD = [
    *("e\u0301", "n\u0303\u0323", "\u0301", "\ufe0f", "\u200d"),  # combining, joining
    *("👩\u200d👩\u200d👧", "👍🏽", "🇫🇷", "🙂", "𝔘"),  # several code points, 4 bytes
    *("שלום", "العربية", "\u202e", "\u200f"),  # right to left
    *("\x00", "\x00\x00", "\x7f", "\ufeff", "\ufffd", "\u00ad", "\uffff", "\U0010ffff"),
    *("\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\t"),
    *("漢字", "ｶﾅ", "한", "é", "ß", "İ", "ﬁ", "½", "Ⅷ", "１２"),
    *(" ", "  ", "\u00a0", "\u3000", "the", " the", " harbour", "don't", "_", "12345"),
    *("<bos>", "<eos>", "<unk>", "<|im_end|>", "'", ".", "!?", "a" * 70, "🙂" * 40),
]
SCALARS = st.characters(exclude_categories=("Cs",))  # all of Unicode that is text
texts = st.lists(among(*ODD) | st.text(SCALARS, max_size=4), max_size=8).map("".join)


@cache
def trained(seed: int, merges: int) -> sd.Tokenizer:
    """Trained on pieces of ``ODD`` in some order, over and over."""
    g = np.random.default_rng(seed)
    text = "".join(ODD[i] for i in g.integers(0, len(ODD), size=120))
    return sd.Tokenizer.train([text, text[::-1]], merges=merges)


tokenizers = st.builds(trained, whole(0, 5), among(0, 5, 60, 300))


def split(draw, ids):
    """``ids`` in parts, some of them empty; or one by one."""
    if draw(flips):
        return [[id] for id in ids]
    cuts = sorted(draw(whole(0, len(ids))) for _ in range(draw(whole(0, 5))))
    return [ids[a:b] for a, b in pairwise([0, *cuts, len(ids)])]


# ---- tokenizers


@examples(250)
@given(texts, tokenizers)
def test_a_text_comes_back_from_its_ids(text, tokenizer):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.piece_bytes, ids)) == text.encode()
    assert tokenizer.bos_id not in ids
    assert tokenizer.eos_id not in ids
    assert (tokenizer.encode(text) == ids).all()  # also when it was met before
    fresh = sd.Tokenizer(tokenizer.merges)
    assert (fresh.encode(text) == ids).all()


@examples(60)
@given(st.lists(texts, min_size=1, max_size=4), whole(0, 40), texts)
def test_a_tokenizer_of_any_texts_spells_any_other(corpus, merges, text):
    if not any(corpus):
        corpus.append("a")
    tokenizer = sd.Tokenizer.train(corpus, merges=merges)
    assert tokenizer.vocab_size <= 258 + merges
    assert tokenizer.decode(tokenizer.encode(text)) == text
    for known in corpus:
        assert tokenizer.decode(tokenizer.encode(known)) == known
    assert sd.Tokenizer.train(corpus[::-1], merges=merges) == tokenizer
    # Fewer merges are the first of more.
    less = sd.Tokenizer.train(corpus, merges=merges // 2)
    assert less.merges == tokenizer.merges[: merges // 2]
    assert len(less.encode(text)) >= len(tokenizer.encode(text))


@examples(80)
@given(st.lists(texts, min_size=1, max_size=3))
def test_words_come_back_as_words(corpus):
    if not "".join(corpus).split():
        corpus.append("word")
    tokenizer = WordTokenizer.train(corpus)
    for text in corpus:
        ids = tokenizer.encode(text)
        assert tokenizer.unk_id not in ids
        assert (tokenizer.encode(tokenizer.decode(ids)) == ids).all()
        together = "".join("".join(tokenizer.pieces(ids)).split())
        assert together == "".join(text.split())


# ---- streams of pieces


@examples(150)
@given(st.data(), texts, tokenizers)
def test_no_split_of_a_text_shows_half_a_character(data, text, tokenizer):
    ids = tokenizer.encode(text).tolist()
    stream = StreamDecoder(tokenizer)
    known, read = "", b""
    for part in split(data.draw, ids):
        known += stream.feed(part)
        read += b"".join(map(tokenizer.piece_bytes, part))
        # All whole characters that were read, and nothing else.
        assert known == read.decode(errors="ignore")
        assert text.startswith(known)
    assert stream.finish() == ""
    assert known == text


@examples(150)
@given(st.data(), tokenizers)
def test_any_ids_in_any_parts_join_to_their_decoding(data, tokenizer):
    """Also where they are no UTF-8, as what a model writes may be."""
    draw = data.draw
    high = tokenizer.vocab_size - 1
    # Mostly bytes of characters of several bytes, in any order.
    token = st.one_of(whole(0, high), whole(2 + 0xC0, 2 + 0xF5), whole(2 + 0x80, 0xC1))
    ids = draw(st.lists(token, max_size=12))
    expected = tokenizer.decode(ids)
    stream = StreamDecoder(tokenizer)
    window = _WindowDecoder(tokenizer.decode, [])
    known, of_window = "", ""
    for part in split(draw, ids):
        known += stream.feed(part)
        assert expected.startswith(known)
        of_window += window.feed(part)
        assert expected.startswith(of_window)
    assert known + stream.finish() == expected
    assert of_window + window.finish() == expected
    assert "".join(tokenizer.pieces([])) == ""


@examples(100)
@given(st.data(), texts, tokenizers)
def test_a_decoder_of_whole_ids_alone_shows_no_half_character(data, text, tokenizer):
    """The way for tokenizers that cannot tell the bytes of an id."""
    ids = tokenizer.encode(text).tolist()
    begun = data.draw(whole(0, min(3, len(ids))))
    while begun and not _whole(tokenizer, ids[:begun]):
        begun -= 1
    stream = _WindowDecoder(tokenizer.decode, ids[:begun])
    rest = tokenizer.decode(ids[begun:])
    known = ""
    for id in ids[begun:]:
        known += stream.feed([id])
        assert rest.startswith(known)
    assert known + stream.finish() == rest


def _whole(tokenizer, ids):
    try:
        b"".join(map(tokenizer.piece_bytes, ids)).decode()
    except UnicodeDecodeError:
        return False
    return True


# ---- the engine


def cut(text, stops):
    """What is before the stop string that is complete first, and that string; of
    several complete at one character the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def writer(seed: int, tokenizer: sd.Tokenizer, likely: tuple[int, ...]):
    """A model that writes ``likely`` ids in a random order, now and then <eos>."""
    g = np.random.default_rng(seed)
    rows = np.full((13, tokenizer.vocab_size), -np.inf)
    rows[:, list(likely)] = g.normal(size=(13, len(likely))) * 2
    rows[:, tokenizer.eos_id] = -2.0
    return sd.FunctionModel(
        lambda seq: rows[(seq[-1] * 7 + len(seq)) % 13], tokenizer.vocab_size, bos_id=0
    )


@examples(250)
@given(st.data(), tokenizers)
def test_an_answer_is_the_text_of_its_tokens_before_the_first_stop(data, tokenizer):
    draw = data.draw
    some = among(*ODD, *("the", " harbour", "don't", "12345") * 9)
    alphabet = draw(st.lists(some, min_size=1, max_size=4))
    pieces = tokenizer.encode("".join(alphabet)).tolist()[:30]
    likely = tuple(dict.fromkeys([*pieces, *draw(st.lists(whole(2, 257), max_size=2))]))
    target = writer(draw(seeds), tokenizer, likely)
    sampler = sd.Sampler(draw(among(0.0, 0.7, 1.0)))
    prompt = draw(texts)
    rule = draw(among(*ANY))
    chains = ("lookup", "suffixes", "nothing", "certain", "told")
    made = Recipe("", lambda: target)
    draft = a_draft(draw, tokenizer.vocab_size, made, sampler, chains)
    if draw(flips):
        draft = Recipe("the target", lambda: sd.ModelDraft(target, sampler))
    k = a_length(draw)
    settings = dict(
        max_new_tokens=draw(whole(0, 16)),
        k=k() if isinstance(k, Recipe) else k,
        seed=draw(whole(0, 999)),
    )
    engine = sd.Engine(target, tokenizer, draft(), sampler=sampler, verify=ANY[rule])
    ids = engine.encode(prompt)
    assert tokenizer.decode(ids) == prompt
    assert ids[0] == tokenizer.bos_id

    # The same call of the loop, which knows of no text.
    run = sd.generate(
        target,
        ids,
        draft=draft(),
        sampler=sampler,
        verify=ANY[rule],
        stop_ids=[tokenizer.eos_id],
        **settings | {"k": k() if isinstance(k, Recipe) else k},
    )
    # Stop strings that come, over borders of tokens and rounds, or begin to come.
    written = tokenizer.decode(run.tokens)
    stops = []
    for _ in range(draw(whole(0, 2)) if written else 0):
        at = draw(whole(0, len(written) - 1))
        stops.append(written[at : at + draw(whole(1, 6))] + draw(among("", "", "a")))
        if draw(flips):  # one that begins later and is complete sooner
            stops.append(written[at + 1 : at + 2] or "a")

    stream = engine.stream(prompt, **settings, stop=stops)
    parts = list(stream)
    answer = engine.complete(prompt, **settings, stop=stops)
    # Nothing is given out that a stop string takes back.
    assert stream.completion.text == answer.text == "".join(parts)
    assert stream.completion.tokens == answer.tokens
    assert untimed(stream.completion.rounds) == untimed(answer.rounds)

    text, stop = cut(written, stops)
    assert (answer.text, answer.stop) == (text, stop)
    assert answer.tokens == run.tokens[: len(answer.tokens)]
    assert len(answer.tokens) <= settings["max_new_tokens"]
    if stop is None:
        assert answer.tokens == run.tokens
        assert answer.finish_reason == run.finish_reason
        assert untimed(answer.rounds) == untimed(run.rounds)
    else:
        assert answer.finish_reason == "stop"
        # Those that the text needs, and no more.
        assert tokenizer.decode(answer.tokens).startswith(text) or "\ufffd" in text
        if answer.tokens:
            less = StreamDecoder(tokenizer).feed(answer.tokens[:-1])
            assert len(less) < len(text)
        else:
            assert text == ""
    metrics = answer.metrics
    assert metrics.accepted <= metrics.tested <= metrics.drafted
    assert metrics.emitted >= len(answer.tokens)


@examples(100)
@given(st.data(), tokenizers)
def test_an_answer_that_is_ended_early_gives_what_was_held_back(data, tokenizer):
    draw = data.draw
    likely = tuple(tokenizer.encode(draw(among(*ODD)) + "ab").tolist()[:20])
    target = writer(draw(seeds), tokenizer, likely)
    engine = sd.Engine(target, tokenizer, target, verify=EXACT[draw(among(*EXACT))])
    stops = draw(st.lists(among("ab", "ba", "bab", "abba"), max_size=2))
    settings = dict(max_new_tokens=12, seed=draw(whole(0, 99)), stop=stops)
    stream = engine.stream("", **settings)
    shown = ""
    for _ in range(draw(whole(0, 4))):
        shown += next(stream, "")
        assert stream.completion.text == shown
    shown += stream.end("enough")
    rounds = stream.completion.rounds
    emitted = tuple(token for each in rounds for token in each.emitted)
    text, stop = cut(tokenizer.decode(emitted), stops)
    assert stream.completion.text == shown == text
    assert stream.completion.stop == stop
    assert stream.end("again") == ""
    assert list(stream) == []
    if stop is None and stream.completion.finish_reason != "enough":
        assert stream.completion.finish_reason in ("stop", "length")


# ---- reading text


@examples(100)
@given(text=texts, bom=flips)
def test_a_file_of_any_line_ends_is_read_as_the_same_lines(tmp_path_factory, text, bom):
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    unix = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    for end in ("\n", "\r\n", "\r"):
        content = unix.replace("\n", end).encode()
        path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + content)
        expected = unix if bom else unix.removeprefix("\ufeff")
        assert read_text(path) == expected


@examples(80)
@given(texts)
def test_words_and_sentences_lose_nothing_but_what_they_say(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
    assert all(each == each.strip() and each for each in sentences(text))
    assert words(text) == words(text.lower())
    assert all(each and not set(each) & set(" _.,!?\n") for each in words(text))
