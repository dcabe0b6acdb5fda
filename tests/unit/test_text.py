"""The tokenizers, the streams of pieces, and the corpora."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specdec_lib as sd
import specdec_lib.text
from specdec_lib.metrics import Metrics
from specdec_lib.pair import book_pair
from specdec_lib.text import (
    Corpus,
    Document,
    StreamDecoder,
    Tokenizer,
    WordTokenizer,
    corpus_counts,
    load_corpus,
    read_corpus,
    sentences,
    stdlib_corpus,
    words,
)

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # three people, one picture
NASTY = [
    "",
    " ",
    "\n",
    "\x00",
    "a\x00b",
    "line\r\nline\rline\n",
    "\n\n\n  indented\t\ttabs \n",
    "trailing spaces   ",
    "\ufeffbyte-order mark",
    "caf\u00e9 cafe\u0301 \u4e2d\u6587 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    FAMILY + " \U0001f1e6\U0001f1fa",
    "<bos><eos><unk>",
    "don't 'quote' don''t it's_",
    "12345 1,234.5 x_1 __init__ \u00b2 \u2167 \u0663",
    "\u00a0no-break\u2003em\u2028line separator\x85next",
    "\ufffd \ufffe \U0010ffff",
    "a" * 1000,
    " " * 1000 + "x",
]
PROSE = (
    "The harbour was quiet. Edda wrote the log in the harbour office, and the cat "
    "slept on the log. The boats in the harbour waited for the tide.\n"
) * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([PROSE], merges=50)


# --- byte pairs ---------------------------------------------------------------


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_decoding_inverts_encoding_for_hard_texts(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    trained_on_it = Tokenizer.train([text * 3, "x"], merges=50)
    assert trained_on_it.decode(trained_on_it.encode(text)) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_decoding_inverts_encoding(text):
    tokenizer = Tokenizer.train([PROSE], merges=30)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert ids.dtype == np.int64
    assert ids.ndim == 1
    assert b"".join(map(tokenizer.piece_bytes, ids)) == text.encode()


def test_training_worked_by_hand():
    # Words: "ab" three times (once as " ab"), "abc" twice (" abc").
    # Pairs: a+b 5; " "+a 3; b+c 2. First ab. Then " "+ab 3, then " ab"+c 2. Then none
    # occurs twice: "ab" alone has no pair, " ab" and " abc" are single pieces.
    tokenizer = Tokenizer.train(["ab ab abc", "ab abc"], merges=10)
    a, b, c, space = (2 + ord(letter) for letter in "abc ")
    assert tokenizer.merges == [(a, b), (space, 258), (259, c)]
    assert tokenizer.vocab_size == 261
    ids = tokenizer.encode("abc ab abc")
    assert tokenizer.pieces(ids) == ["ab", "c", " ab", " abc"]
    assert ids.tolist() == [258, c, 259, 260]


def test_ties_go_to_the_lowest_ids():
    tokenizer = Tokenizer.train(["zy zy ba ba"], merges=1)
    # Each twice: z+y, b+a, and " "+b twice, " "+z once; the lowest is " "+b.
    assert tokenizer.merges == [(2 + ord(" "), 2 + ord("b"))]


def test_overlapping_pairs_join_from_the_left():
    tokenizer = Tokenizer.train(["aaaaa"], merges=1)
    assert tokenizer.pieces(tokenizer.encode("aaaaa")) == ["aa", "aa", "a"]


def slow_byte_pairs(text: str, merges: int) -> list[tuple[int, int]]:
    """Count every pair anew at every step, over the split that `encode` shows."""
    words = [[2 + b for b in w.encode()] for w in specdec_lib.text._split(text)]
    learnt = []
    for new in range(258, 258 + merges):
        counts: dict[tuple[int, int], int] = {}
        for word in words:
            for i in range(len(word) - 1):
                counts[word[i], word[i + 1]] = counts.get((word[i], word[i + 1]), 0) + 1
        if not counts or max(counts.values()) < 2:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        learnt.append(best)
        for index, word in enumerate(words):
            joined, i = [], 0
            while i < len(word):
                hit = tuple(word[i : i + 2]) == best
                joined.append(new if hit else word[i])
                i += 2 if hit else 1
            words[index] = joined
    return learnt


@given(st.text("ab c\n'", max_size=200))
def test_training_is_that_of_a_slow_count(text):
    assert Tokenizer.train([text + "x"], merges=12).merges == slow_byte_pairs(
        text + "x", 12
    )


def test_training_on_prose_is_that_of_a_slow_count(tokenizer):
    assert tokenizer.merges == slow_byte_pairs(PROSE, 50)


def test_training_is_deterministic_and_order_of_texts_does_not_matter():
    lines = PROSE.splitlines(keepends=True)
    assert Tokenizer.train(lines) == Tokenizer.train(reversed(lines))
    assert Tokenizer.train(lines, merges=5) != Tokenizer.train(lines, merges=6)
    assert hash(Tokenizer.train(lines)) == hash(Tokenizer.train(lines))


def test_encoding_the_training_text_applies_the_merges(tokenizer):
    assert tokenizer.pieces(tokenizer.encode(" the harbour")) == [" the", " harbour"]


def test_encoding_does_not_depend_on_what_was_encoded_before(tokenizer, monkeypatch):
    texts = ["the harbour log", "a log of the harbour", "tide, tide; and tide"]
    fresh = [Tokenizer(tokenizer.merges).encode(text).tolist() for text in texts]
    monkeypatch.setattr(specdec_lib.text, "_CACHE_LIMIT", 2)
    worn = Tokenizer(tokenizer.merges)
    for _ in range(3):
        assert [worn.encode(text).tolist() for text in texts] == fresh
        assert len(worn._cache) <= 2


def test_special_ids_are_skipped_by_decode_and_named_by_pieces(tokenizer):
    ids = [tokenizer.bos_id, *tokenizer.encode("log"), tokenizer.eos_id]
    assert tokenizer.decode(ids) == "log"
    assert tokenizer.pieces(ids)[0] == "<bos>"
    assert tokenizer.pieces(ids)[-1] == "<eos>"
    assert tokenizer.piece_bytes(tokenizer.eos_id) == b""
    assert not {0, 1} & set(tokenizer.encode("<bos> <eos> \x00\x01").tolist())


def test_broken_bytes_are_shown_and_replaced():
    tokenizer = Tokenizer()
    first, second = tokenizer.encode("\u00e9")
    assert tokenizer.pieces([first, second]) == ["\\xc3", "\\xa9"]
    assert tokenizer.decode([first]) == "\ufffd"
    assert tokenizer.decode([second, first, second]) == "\ufffd\u00e9"


def test_words_without_end_are_encoded_quickly(tokenizer):
    text = "harbour" * 30_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("id", [-1, 258 + 50, 10**9])
def test_an_id_outside_the_vocabulary_is_named(tokenizer, id):
    for method in (tokenizer.decode, tokenizer.pieces, StreamDecoder(tokenizer).feed):
        with pytest.raises(ValueError, match=rf"0\.\.307; got {id}"):
            method([id])


def test_lone_surrogates_are_named(tokenizer):
    with pytest.raises(ValueError, match=r"character 2 .* surrogate '\\udcff'"):
        tokenizer.encode("ab\udcff")
    with pytest.raises(ValueError, match="surrogate"):
        Tokenizer.train(["\ud800"])


def test_bad_training_arguments_are_named():
    with pytest.raises(TypeError, match="texts must be several strings"):
        Tokenizer.train("one string")
    with pytest.raises(ValueError, match="texts must hold at least one character"):
        Tokenizer.train(["", ""])
    for merges in (-1, 2.5, True):
        with pytest.raises(ValueError, match="merges must be a whole number"):
            Tokenizer.train(["a"], merges=merges)


@pytest.mark.parametrize(
    "merges, message",
    [
        ([(258, 5)], r"merge 0 is \(258, 5\); both ids must be in 2\.\.257"),
        ([(1, 5)], "merge 0"),
        ([(5, 6), (7, 259)], r"merge 1 .* 2\.\.258"),
        ([(5, 6), (5, 6)], r"pair \(5, 6\) is given twice"),
        ([(5, 6.5)], "pairs of ids"),
    ],
)
def test_bad_merges_are_named(merges, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer(merges)


# --- files --------------------------------------------------------------------


def test_saved_and_loaded_is_the_same(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("old")
    tokenizer.save(path)
    loaded = Tokenizer.load(str(path))
    assert loaded == tokenizer
    assert loaded.encode(PROSE).tolist() == tokenizer.encode(PROSE).tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_failed_save_leaves_the_old_file(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text("old")

    def fail(*args):  # by then the new file is written, but not in its place
        raise OSError("disk full")

    monkeypatch.setattr("specdec_lib.files.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        tokenizer.save(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "not a tokenizer file"),
        (b"\xff\xfe", "not a tokenizer file"),
        (b"[1, 2]", "not a tokenizer file"),
        (b'{"format": "other"}', "not a tokenizer file"),
        (b'{"format": "specdec tokenizer", "version": 2}', "version 2"),
        (b'{"format": "specdec tokenizer", "version": 1}', "broken"),
        (
            b'{"format": "specdec tokenizer", "version": 1, "merges": [[2]]}',
            "broken",
        ),
        (b'{"format": "specdec tokenizer", "version": 1, "merges": 3}', "broken"),
    ],
)
def test_a_broken_tokenizer_file_is_named(tmp_path, content, message):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"broken\.json: .*{message}"):
        Tokenizer.load(path)


def test_a_missing_tokenizer_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        Tokenizer.load(tmp_path / "nowhere.json")


# --- streams ------------------------------------------------------------------


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_a_stream_never_holds_half_a_character(tokenizer, text):
    stream = StreamDecoder(tokenizer)
    parts = [stream.feed([id]) for id in tokenizer.encode(text)]
    assert stream.finish() == ""
    assert "".join(parts) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in part for part in parts)


@given(st.lists(st.integers(0, 257), max_size=40), st.integers(1, 5))
def test_a_stream_of_any_ids_joins_to_their_decoding(ids, step):
    stream = StreamDecoder(Tokenizer())
    parts = [stream.feed(ids[i : i + step]) for i in range(0, len(ids), step)]
    assert "".join(parts) + stream.finish() == Tokenizer().decode(ids)


def test_a_stream_that_ends_within_a_character():
    stream = StreamDecoder(Tokenizer())
    assert stream.feed(Tokenizer().encode("\U0001f41f")[:3]) == ""
    assert stream.finish() == "\ufffd"


# --- words --------------------------------------------------------------------


def test_words_by_hand():
    tokenizer = WordTokenizer.train(["b a b, c", "b, c"])
    # b 3, then "," and c 2 each, then a.
    assert tokenizer.pieces(range(7)) == ["<bos>", "<eos>", "<unk>", *"b,ca"]
    assert tokenizer.vocab_size == 7
    assert tokenizer.encode("a, zebra <unk>").tolist() == [6, 4, 2, 2, 2, 2]
    assert tokenizer.decode([0, 3, 4, 6, 1]) == "b, a"
    assert WordTokenizer.train(["a b b"], min_count=2).vocab_size == 4


def test_words_are_read_back_with_usual_spacing():
    text = "It's a harbour-master, said Tom; isn't it?"
    tokenizer = WordTokenizer.train([text])
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_word_tokenizer_names_bad_arguments():
    with pytest.raises(ValueError, match="at least one word"):
        WordTokenizer.train([" "])
    with pytest.raises(TypeError, match="several strings"):
        WordTokenizer.train("text")
    for id in (-1, 4):
        with pytest.raises(ValueError, match=rf"0\.\.3; got {id}"):
            WordTokenizer.train(["a"]).decode([id])


# --- corpora ------------------------------------------------------------------


def test_the_corpus_is_as_large_and_varied_as_the_book_says():
    corpus = load_corpus()
    counts = corpus_counts(corpus)
    assert counts["sentences"] >= 3_000
    assert counts["words"] >= 35_000
    assert counts["distinct_sentences"] >= 0.99
    assert counts["distinct_4grams"] >= 0.85
    assert all(text.isascii() for text in corpus.texts)
    assert sum(len(text) for text in corpus.texts) < 1_000_000


def test_the_corpus_is_split_by_document():
    corpus = load_corpus()
    names = [document.name for document in corpus.documents]
    assert names == sorted(names)
    held_out = [document.name for document in corpus.held_out.documents]
    assert held_out == sorted(corpus.held_out_names)
    assert len(held_out) >= 2
    train = [document.name for document in corpus.train.documents]
    assert sorted(train + held_out) == names
    assert not set(train) & set(held_out)


def test_the_default_merges_give_the_book_a_best_draft_length_in_the_middle():
    """Acceptance in .5 to .8, and k = 4 faster than 2 or 10 at a cost ratio of .1."""
    pair = book_pair()
    draft = sd.ModelDraft(pair.draft)
    speedup = {}
    for k in (2, 4, 10):
        rounds = [
            round
            for seed in range(3)
            for round in sd.generate(
                pair.target, [], draft=draft, k=k, max_new_tokens=1000, seed=seed
            ).rounds
        ]
        metrics = Metrics.from_rounds(rounds)
        assert 0.5 < metrics.acceptance_rate < 0.8
        speedup[k] = metrics.tokens_per_call / (1 + 0.1 * k)
    assert speedup[4] > 1.05 * speedup[2]
    assert speedup[4] > 1.05 * speedup[10]


def test_the_standard_library_is_read_from_the_running_python():
    corpus = stdlib_corpus()
    assert 2_000_000 < sum(map(len, corpus.texts)) < 3_500_000
    names = [document.name for document in corpus.documents]
    assert names == sorted(names)
    assert corpus == stdlib_corpus()
    assert len(corpus.held_out.documents) == 5
    (heapq,) = stdlib_corpus(["heapq"]).texts
    assert "def heappush(heap, item):" in heapq


@pytest.mark.parametrize("name", ["no_such_module", "sys", "json.nothing", "numpy"])
def test_a_missing_module_is_named(name):
    with pytest.raises(FileNotFoundError, match=f"no Python source of '{name}'"):
        stdlib_corpus(["heapq", name])


def test_reading_a_file(tmp_path):
    path = tmp_path / "notes.rst"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n caf\xc3\xa9")
    assert read_corpus(path) == Corpus(
        (Document("notes.rst", "one\ntwo\nthree\n caf\u00e9"),)
    )
    assert read_corpus(str(path)).held_out.documents == ()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_reading_a_folder(tmp_path):
    for name in ("b.txt", "a/z.md", "a/b/c.py", ".git/x.txt", "a/.y.txt", "pic.png"):
        write(tmp_path / name, name.encode())
    write(tmp_path / "a/__init__.py", b"")
    assert [d.name for d in read_corpus(tmp_path).documents] == [
        "a/b/c.py",
        "a/z.md",
        "b.txt",
    ]
    (only,) = read_corpus(tmp_path, suffixes=[".png"]).documents
    assert only == Document("pic.png", "pic.png")


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 1000])
def test_an_undecodable_byte_is_named_wherever_it_lies(tmp_path, shift):
    """Also across the border between two blocks of 2**20 bytes."""
    offset = 2**20 - 2 + shift
    path = tmp_path / "bad.txt"
    for tail in (b"\xff..", b"\xe2\x82x", b"\xf0\x9f"):
        path.write_bytes(b"a" * offset + tail)
        with pytest.raises(ValueError, match=rf"bad\.txt: not UTF-8.* {offset} "):
            read_corpus(path)
        with pytest.raises(ValueError, match=rf"bad\.txt: not UTF-8.* {offset} "):
            read_corpus(tmp_path)


def test_characters_across_blocks_are_whole(tmp_path):
    path = tmp_path / "fish.txt"
    text = "a" * (2**20 - 2) + "\U0001f41f\r\n" * 3
    path.write_bytes(text.encode())
    assert read_corpus(path).texts == [text.replace("\r\n", "\n")]


def test_nothing_to_read_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_corpus(tmp_path / "nowhere.txt")
    with pytest.raises(FileNotFoundError, match=r"no file ending in \.txt, \.md"):
        read_corpus(tmp_path)
    for content in (b"", b" \n\n", b"\xef\xbb\xbf"):
        write(tmp_path / "empty.txt", content)
        with pytest.raises(ValueError, match=r"empty\.txt: the file is empty"):
            read_corpus(tmp_path / "empty.txt")
    with pytest.raises(ValueError, match="all 1 files in it are empty"):
        read_corpus(tmp_path)


def test_a_file_larger_than_allowed_is_named(tmp_path):
    write(tmp_path / "long.txt", b"x" * 101)
    assert read_corpus(tmp_path, max_bytes=101).texts == ["x" * 101]
    with pytest.raises(ValueError, match=r"long\.txt: larger than max_bytes = 100"):
        read_corpus(tmp_path, max_bytes=100)


def test_reading_stops_at_the_limit(tmp_path):
    """A file of four gigabytes, none of it on the disk, must not be read to its end."""
    path = tmp_path / "endless.txt"
    path.touch()
    os.truncate(path, 2**32)
    with pytest.raises(ValueError, match="larger than max_bytes"):
        read_corpus(path, max_bytes=2**21)


def test_counting_by_hand():
    text = (
        "A Title\n\n"
        'The cat saw the dog. The cat saw the\ndog run! "Why?" said Tom.\n\n'
        '"Go." He went, e.g. home.'
    )
    assert sentences(text) == [
        "A Title",
        "The cat saw the dog.",
        "The cat saw the dog run!",
        '"Why?" said Tom.',
        '"Go."',
        "He went, e.g. home.",
    ]
    assert words("Half-done? It's 2 o'clock_") == ["half-done", "it's", "2", "o'clock"]
    counts = corpus_counts(Corpus((Document("one", text), Document("two", "A Title"))))
    # Runs of four: 2 and 3 in the two cat sentences, 2 the same; 2 in the last one
    # (he went e g home), which has five words.
    assert counts == {
        "documents": 2,
        "characters": len(text) + 7,
        "words": 2 + 5 + 6 + 3 + 1 + 5 + 2,
        "distinct_words": 16,  # a title the cat saw dog run why said tom go ...
        "sentences": 7,
        "distinct_sentences": 6 / 7,
        "distinct_4grams": 5 / 7,
    }
