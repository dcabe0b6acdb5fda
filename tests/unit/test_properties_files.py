"""Saving and loading are inverse; records do not depend on who made them, and when."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties_kit import (
    CHAINS,
    EXACT,
    TREES,
    a_draft,
    a_model,
    a_prompt,
    a_sampler,
    among,
    examples,
    flips,
    number,
    seeds,
    some_tokens,
    whole,
)

import specdec_lib as sd
from specdec_lib.experiments import Sweep, cut_prompts, sample_prompts, sample_texts
from specdec_lib.files import read_archive, write_archive
from specdec_lib.llama.answers import Answers, prompt_name
from specdec_lib.ngram import SMOOTHINGS
from specdec_lib.prompts import read_prompts
from specdec_lib.records import read_records, write_records
from specdec_lib.text import vocabulary_name

SCALARS = st.characters(exclude_categories=("Cs",))
ODD = [
    "\r",
    "\n",
    "\r\n",
    '"',
    ",",
    "\x00",
    "\u2028",
    "\x85",
    "\x0b",
    "é",
    " ",
    "👩\u200d👩",
]
names = st.lists(among(*ODD) | st.text(SCALARS, max_size=3), max_size=4).map("".join)


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A file's name; what an example before left there is replaced or removed."""
    return tmp_path_factory.getbasetemp() / "properties"


# ---- n-gram models


def same_arrays(one, two):
    assert one.keys() == two.keys()
    for name, array in one.items():
        assert array.dtype == two[name].dtype
        np.testing.assert_array_equal(array, two[name])


def contexts(draw, vocab, order):
    return [some_tokens(draw, vocab, 0, order + 1) for _ in range(3)]


def fitted(draw):
    """Keywords of a fit, every setting drawn, and sequences."""
    vocab, order = draw(whole(2, 6)), draw(whole(1, 5))
    smoothing = draw(among(*SMOOTHINGS))
    bos, eos = draw(among(None, 0)), draw(among(None, vocab - 1))
    settings = dict(order=order, vocab_size=vocab, smoothing=smoothing)
    settings |= dict(bos_id=bos, eos_id=eos)
    if draw(flips):
        settings["add_k"] = draw(number(0.01, 5.0))
        settings["backoff"] = draw(number(0.05, 1.0))
        settings["interpolation"] = [draw(number(0.0, 0.95)) for _ in range(order)]
    if draw(flips):
        triple = [draw(number(0.1, 1.0)), draw(number(0.0, 2.0)), draw(number(0, 3))]
        settings["discounts"] = [triple] * order
    sequences = [
        [*some_tokens(draw, vocab, 0, 14), 1] for _ in range(draw(whole(1, 4)))
    ]
    return settings, sequences


@examples(100)
@given(st.data())
def test_a_saved_n_gram_model_is_the_same_model(place, data):
    settings, sequences = fitted(data.draw)
    model = sd.NGramModel.fit(sequences, **settings)
    model.save(place)
    again = sd.NGramModel.load(place)
    assert again.settings == model.settings
    same_arrays(again.to_arrays(), model.to_arrays())
    for context in contexts(data.draw, model.vocab_size, model.order):
        p = model.probabilities(context)
        np.testing.assert_array_equal(again.probabilities(context), p)
        np.testing.assert_array_equal(again.scores(context), model.scores(context))
        assert again.greedy(context) == model.greedy(context) == p.argmax()
        state = again.start()
        state.extend(context)
        np.testing.assert_array_equal(state.probabilities(), p)
        assert p.sum() == pytest.approx(1.0, abs=1e-9)
        for token in range(model.vocab_size):
            with np.errstate(divide="ignore"):
                expected = np.log(p[token])
            assert model.log_prob(token, context) == pytest.approx(expected)


@examples(80)
@given(st.data())
def test_a_model_of_more_texts_and_one_of_other_settings_need_no_new_count(data):
    settings, sequences = fitted(data.draw)
    _, more = fitted(data.draw)
    vocab = settings["vocab_size"]
    more = [[token % vocab for token in each] for each in more]
    at_once = sd.NGramModel.fit([*sequences, *more], **settings)
    later = sd.NGramModel.fit(sequences, **settings).extend(more)
    same_arrays(later.to_arrays(), at_once.to_arrays())
    backwards = sd.NGramModel.fit([*more, *sequences][::-1], **settings)
    other = data.draw(among(*SMOOTHINGS))
    less = data.draw(whole(1, settings["order"]))
    changed = dict(order=less, smoothing=other, interpolation=0.4, discounts=None)
    fresh = sd.NGramModel.fit([*sequences, *more], **settings | changed)
    turned = at_once.with_settings(**changed)
    for context in contexts(data.draw, vocab, less):
        p = at_once.probabilities(context)
        np.testing.assert_allclose(backwards.probabilities(context), p, rtol=1e-12)
        np.testing.assert_allclose(
            turned.probabilities(context), fresh.probabilities(context), rtol=1e-12
        )


@examples(100)
@given(st.data())
def test_counts_are_those_of_a_search(data):
    settings, sequences = fitted(data.draw)
    model = sd.NGramModel.fit(sequences, **settings)
    bos, eos, order = settings["bos_id"], settings["eos_id"], settings["order"]
    whole_texts = []
    for each in sequences:
        each = each if bos is None or each[0] == bos else [bos, *each]
        each = each if eos is None or each[-1] == eos else [*each, eos]
        cut = [i for i, token in enumerate(each) if token == bos] or [0]
        for start, end in zip(cut, [*cut[1:], len(each)], strict=True):
            whole_texts.append(each[start:end])
    ngram = some_tokens(data.draw, settings["vocab_size"], 1, order)
    if data.draw(flips):
        source = data.draw(among(*map(tuple, whole_texts)))
        at = data.draw(whole(0, len(source) - 1))
        ngram = list(source[at : at + len(ngram)])
    n = len(ngram)
    expected = sum(
        text[i : i + n] == ngram for text in whole_texts for i in range(len(text))
    )
    assert model.count(ngram) == (0 if ngram == [bos] else expected)
    tokens, counts = model.continuations(ngram[:-1])
    assert dict(zip(tokens.tolist(), counts.tolist(), strict=True)).get(
        ngram[-1], 0
    ) == model.count(ngram)


# ---- the other files


@examples(25)
@given(st.data(), st.lists(names, min_size=1, max_size=3), whole(0, 30))
def test_a_saved_pair_and_tokenizer_write_the_same(place, data, texts, merges):
    texts.append("the harbour and the sea")
    smoothing = data.draw(among(*SMOOTHINGS))
    pair = sd.train_pair(texts, order=3, merges=merges, smoothing=smoothing)
    pair.save(place)
    again = sd.Pair.load(place)
    pair.tokenizer.save(place)
    for tokenizer in (again.tokenizer, sd.Tokenizer.load(place)):
        assert tokenizer == pair.tokenizer
        assert hash(tokenizer) == hash(pair.tokenizer)
        for text in texts:
            assert (tokenizer.encode(text) == pair.tokenizer.encode(text)).all()
    settings = dict(max_new_tokens=6, seed=data.draw(whole(0, 99)))
    answers = [
        sd.Engine(each.target, each.tokenizer, each.draft).complete("the", **settings)
        for each in (pair, again)
    ]
    assert answers[0].text == answers[1].text
    assert answers[0].tokens == answers[1].tokens


@examples(80)
@given(st.data(), names)
def test_saved_answers_are_the_same_answers(place, data, name):
    draw = data.draw
    size = draw(whole(1, 9))
    how = (draw(number(0, 500)), draw(number(0, 2)), draw(whole(0, 9)))
    answers = Answers(vocabulary_name([name, "a"]), size, tuple(map(float, how)))
    asked = []
    for _ in range(draw(whole(0, 4))):
        prompt = some_tokens(draw, size, 0, 5)
        asked.append(prompt)
        if not answers.know(prompt):
            answers = answers.with_answer(prompt, some_tokens(draw, size, 0, 9))
    answers.save(place)
    again = Answers.load(place)
    assert again == answers
    assert all(map(again.know, asked))
    assert again.tokens == sum(map(len, answers.texts)) == len(again.history())
    assert prompt_name([1, 2]) != prompt_name([2, 1])


@examples(60)
@given(st.data(), seeds, whole(0, 3))
def test_an_archive_gives_back_its_arrays(place, data, seed, dimensions):
    g = np.random.default_rng(seed)
    arrays = {}
    for i in range(data.draw(whole(0, 3))):
        shape = tuple(g.integers(0, 4, size=dimensions))
        kind = data.draw(among("i1", "u2", "<i8", ">i4", "f4", "f8", "?", "U5"))
        values = (g.normal(size=shape) * 50).astype(kind)
        arrays[f"array {i}"] = values[..., ::-1] if dimensions else values
    write_archive(place, "specdec test", 3, **arrays)
    same_arrays(read_archive(place, "specdec test", 3), arrays)
    with pytest.raises(ValueError, match="version 4"):
        read_archive(place, "specdec test", 4)


@examples(80)
@given(st.lists(names, min_size=1, max_size=4), among("\n", "\r\n", "\r"), flips)
def test_a_file_of_prompts_has_one_a_line(tmp_path_factory, texts, end, last):
    path = tmp_path_factory.getbasetemp() / "prompts.txt"
    texts = [text.replace("\r", " ").replace("\n", " ").strip() for text in texts]
    texts = [text for text in texts if text] or ["a"]
    content = end.join(texts) + (end if last else "")
    path.write_bytes(content.encode())
    texts[0] = texts[0].removeprefix("\ufeff").strip()
    assert [each.text for each in read_prompts(path)] == [t for t in texts if t]


# ---- sweeps and their records


def a_sweep(draw, many=3):
    vocab = draw(whole(2, 4))
    target = a_model(draw, vocab, bos_id=0)
    sampler = a_sampler(draw, vocab)
    tree = draw(among(False, False, True))
    kinds = TREES if tree else (*CHAINS, "liar")
    rule = "verify_tree" if tree else draw(among(*EXACT))

    def some(of, low=1):
        return draw(st.lists(of, min_size=low, max_size=many, unique=True))

    drafts = {
        name: a_draft(draw, vocab, target, sampler, kinds)() for name in some(names)
    }
    return Sweep(
        target(),
        drafts,
        {name: a_prompt(draw, vocab, most=5) for name in some(names)},
        ks=some(whole(0, 4)),
        temperatures=some(among(0.0, 0.5, 1.0)),
        seeds=some(whole(0, 9)),
        max_new_tokens=draw(whole(1, 6)),
        sampler=sampler,
        verify=EXACT[rule],
        stop_ids=draw(among((), (0,))),
    )


@examples(60)
@given(st.data())
def test_records_do_not_depend_on_order_or_on_who_made_them(data):
    sweep = a_sweep(data.draw, many=2)
    expected = sweep.run()
    order = np.random.default_rng(data.draw(seeds))

    def in_any_order(given, cells):
        for i in order.permutation(len(cells)):
            yield cells[i], given.run_cell(cells[i])

    assert sweep.run(runner=in_any_order) == expected
    # Parts of the sweep, each on its own.
    parts = {}
    for draft in sweep.drafts:
        for k in sweep.ks[::-1]:
            one = replace(sweep, drafts={draft: sweep.drafts[draft]}, ks=(k,))
            parts |= dict(zip(one.cells(), one.run(), strict=True))
    assert [parts[cell] for cell in sweep.cells()] == expected


@examples(60)
@given(st.data())
def test_a_sweep_goes_on_from_any_part_of_its_file(place, data):
    sweep = a_sweep(data.draw, many=2)
    expected = sweep.run()
    lines = [json.dumps(record) + "\n" for record in expected]
    order = np.random.default_rng(data.draw(seeds)).permutation(len(lines))
    kept = data.draw(whole(0, len(lines)))
    content = "".join(lines[i] for i in order[:kept])
    if kept < len(lines):  # a last line that was cut off
        line = lines[order[kept]]
        content += line[: data.draw(whole(0, len(line) - 1))]
    place.write_bytes(content.encode())
    ran = []

    def noted(given, cells):
        for cell in cells:
            ran.append(cell)
            yield cell, given.run_cell(cell)

    assert sweep.run(place, runner=noted) == expected
    cells = sweep.cells()
    assert sorted(ran) == sorted(cells[i] for i in order[kept:])
    stored = read_records(place)
    assert sorted(map(str, stored)) == sorted(map(str, expected))
    assert sweep.run(place, runner=noted) == expected
    assert len(ran) == len(lines) - kept  # nothing was run twice


@examples(60)
@given(st.data(), among("", ".csv", ".jsonl"))
def test_written_records_are_read_as_they_were(place, data, suffix):
    records = a_sweep(data.draw, many=2).run()
    path = place.with_suffix(suffix)
    write_records(records, path)
    again = read_records(path)
    if suffix == ".csv":  # a table has all columns in each row
        columns = dict.fromkeys(name for record in records for name in record)
        records = [{name: r.get(name) for name in columns} for r in records]
    assert again == records
    for one, two in zip(again, records, strict=True):
        assert list(map(type, one.values())) == list(map(type, two.values()))


@examples(40)
@given(st.data())
def test_prompts_of_a_target_are_its_own_writing(data):
    draw = data.draw
    vocab, count, length = draw(whole(2, 4)), draw(whole(1, 4)), draw(whole(1, 6))
    target = a_model(draw, vocab, bos_id=0)()
    sampler, seed = a_sampler(draw, vocab), draw(whole(0, 99))
    settings = dict(length=length, sampler=sampler, seed=seed)
    prompts = sample_prompts(target, count=count, **settings)
    assert len(prompts) == count
    assert prompts == sample_prompts(target, count=count, **settings)
    assert (
        prompts.items() <= sample_prompts(target, count=count + 1, **settings).items()
    )
    for tokens in prompts.values():
        assert len(tokens) == length
        assert tokens[0] == 0
    texts = sample_texts(target, tokens=length * count, stop_ids=[1], **settings)
    assert sum(len(text) - 1 for text in texts) == length * count
    for text in texts[:-1]:
        assert len(text) == length + 1 or text[-1] == 1
    short = draw(whole(1, length))
    pieces = draw(whole(1, count * (length - short + 1)))
    cut = cut_prompts(prompts, count=pieces, length=short)
    assert len(cut) == pieces
    for name, tokens in cut.items():
        source, at = name.rsplit("@", 1)
        start = int(at)
        assert prompts[source][start : start + len(tokens)] == tokens
