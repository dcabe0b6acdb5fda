"""Training, saving and loading a tokenizer with its two models."""

import numpy as np
import pytest

from specdec_lib.pair import Pair, book_pair, train_pair
from specdec_lib.text import load_corpus

TEXTS = ["the cat sat on the mat\n" * 20, "the dog sat on the cat\n" * 20]


@pytest.fixture(scope="module")
def pair():
    return train_pair(TEXTS, order=3, draft_order=1, merges=20)


def test_a_loaded_pair_is_the_saved_one(pair, tmp_path):
    path = tmp_path / "pair.of.models"
    pair.save(path)
    loaded = Pair.load(path)
    assert [file.name for file in tmp_path.iterdir()] == ["pair.of.models"]
    assert loaded.tokenizer == pair.tokenizer
    for name in ("target", "draft"):
        before, after = getattr(pair, name), getattr(loaded, name)
        assert (after.order, after.bos_id, after.eos_id) == (
            before.order,
            before.bos_id,
            before.eos_id,
        )
        for context in ([], [0], pair.tokenizer.encode("the cat")):
            assert np.array_equal(
                before.probabilities(context), after.probabilities(context)
            )


def test_training_is_deterministic(pair):
    again = train_pair(TEXTS, order=3, draft_order=1, merges=20)
    context = pair.tokenizer.encode("on the")
    assert again.tokenizer == pair.tokenizer
    assert np.array_equal(
        again.target.probabilities(context), pair.target.probabilities(context)
    )


def test_every_cut_file_is_refused_by_name(pair, tmp_path):
    whole = tmp_path / "whole"
    pair.save(whole)
    content = whole.read_bytes()
    cut = tmp_path / "cut"
    for length in [*range(0, len(content), max(1, len(content) // 60))]:
        cut.write_bytes(content[:length])
        with pytest.raises(ValueError, match="cut"):
            Pair.load(cut)


def test_other_files_are_refused(pair, tmp_path):
    other = tmp_path / "other.npz"
    pair.target.save(other)  # a model alone is not a pair
    with pytest.raises(ValueError, match="must be a specdec pair"):
        Pair.load(other)
    np.savez(other, format="specdec pair", version=99)
    with pytest.raises(ValueError, match="version 99"):
        Pair.load(other)
    np.savez(other, format="specdec pair", version=1)
    with pytest.raises(ValueError, match="broken"):
        Pair.load(other)
    with pytest.raises(FileNotFoundError):
        Pair.load(tmp_path / "none")


def test_vocabularies_must_agree(pair, tmp_path):
    odd = Pair(pair.tokenizer, pair.target, train_pair(TEXTS, merges=5).draft)
    odd.save(tmp_path / "odd")
    with pytest.raises(ValueError, match="vocabularies"):
        Pair.load(tmp_path / "odd")


def test_empty_texts_are_refused():
    with pytest.raises(ValueError, match="texts"):
        train_pair(["", ""])


def test_an_empty_text_among_others_is_left_out(pair):
    again = train_pair(["", *TEXTS], order=3, draft_order=1, merges=20)
    assert np.array_equal(again.target.probabilities([]), pair.target.probabilities([]))


def test_the_books_pair_never_saw_the_held_out_text():
    pair = book_pair()
    assert (pair.target.order, pair.draft.order) == (5, 2)
    (held_out, *_) = load_corpus().held_out.texts
    (seen, *_) = load_corpus().train.texts
    perplexity = pair.target.perplexity
    encode = pair.tokenizer.encode
    assert perplexity(encode(held_out)) > 2 * perplexity(encode(seen))
    assert perplexity(encode(held_out)) < pair.draft.perplexity(encode(held_out))
