"""Files that were cut, changed or forged: refused by name, or still what they say."""

import io
import json
import struct
import tomllib
import zipfile

import numpy as np
import pytest
from hostile_kit import (
    REFUSED,
    assert_distribution,
    at_most,
    attempt,
    flipped,
    truncated,
)

import specdec_lib as sd
from specdec_lib import records
from specdec_lib.bench import suite
from specdec_lib.files import read_archive, write_archive
from specdec_lib.llama.answers import Answers
from specdec_lib.ngram import SMOOTHINGS, NGramModel, Settings
from specdec_lib.pair import Pair, train_pair
from specdec_lib.prompts import read_prompts
from specdec_lib.text import Tokenizer

V = 6
TEXT = [[0, 2, 3, 2, 3, 4, 1], [0, 5, 2, 3, 4, 4, 1], [0, 2, 3, 5, 1]]


def fitted(smoothing="kneser-ney", order=3, bos=0):
    ids = {"bos_id": bos, "eos_id": 1} if bos is not None else {}
    return NGramModel.fit(TEXT, order=order, vocab_size=V, smoothing=smoothing, **ids)


def assert_model(model):
    """A distribution after every context of up to two tokens, and a best token."""
    size = model.vocab_size
    contexts = [(), *((a,) for a in range(size))]
    contexts += [(a, b) for a in range(size) for b in range(size)]
    for context in contexts:
        assert_distribution(model.probabilities(context), size)
        assert 0 <= model.greedy(context) < size


def assert_tokenizer(tokenizer):
    for text in ("the harbour, the harbour", "né 漢\0\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def assert_pair(pair):
    assert_tokenizer(pair.tokenizer)
    for model in (pair.target, pair.draft):
        assert_distribution(model.probabilities(), model.vocab_size)


def assert_answers(answers):
    for text in answers.texts:
        assert all(0 <= token < answers.vocab_size for token in text)
    answers.history()


def assert_records(found):
    assert all(isinstance(record, dict) for record in found)


def assert_prompts(prompts):
    assert prompts
    assert all(isinstance(prompt.text, str) for prompt in prompts)


def _ngrams(path):
    fitted(order=2).save(path)


def _pair(path):
    train_pair(["the harbour, the harbour"], order=2, merges=3).save(path)


def _tokenizer(path):
    Tokenizer.train(["the harbour, the harbour"], merges=9).save(path)


def _answers(path):
    answers = Answers("v", 9, (4.0, 0.0, 0.0)).with_answer([1, 2], [3, 4, 5])
    answers.with_answer([1], []).with_answer([3], [8, 0]).save(path)


def _records(path):
    key = {"draft": "a, b", "temperature": 1.0, "k": 2, "seed": 0}
    rows = [key | {"prompt": f"p{i}", "emitted": i, "x": None} for i in range(4)]
    records.write_records(rows, path)


def _baseline(path):
    baseline = {
        "format": suite.FORMAT,
        "version": suite.VERSION,
        "machine": {"cpu": "a"},
        "log_ratios": {name: [0.1, 0.2] for name in suite.RATIOS},
        "counts": {"tokens": 3},
    }
    suite.write_baseline(baseline, path)


def _prompts(path):
    path.write_text('[[prompt]]\ntext = "A poem."\nexample = ["a", "b"]\n')


# name of the file -> how it is written, read, what has to hold of it, step
KINDS = {
    "model.npz": (_ngrams, NGramModel.load, assert_model, 1),
    "pair.npz": (_pair, Pair.load, assert_pair, 5),
    "tokenizer.json": (_tokenizer, Tokenizer.load, assert_tokenizer, 1),
    "answers.npz": (_answers, Answers.load, assert_answers, 2),
    "records.jsonl": (_records, records.read_records, assert_records, 1),
    "records.csv": (_records, records.read_records, assert_records, 1),
    "baseline.json": (_baseline, suite.read_baseline, dict, 1),
    "prompts.toml": (_prompts, read_prompts, assert_prompts, 1),
}


@pytest.mark.parametrize("name", KINDS)
def test_cut_at_every_length(tmp_path, tried, name):
    write, read, check, step = KINDS[name]
    path = tmp_path / name
    write(path)
    whole, loaded = path.read_bytes(), 0
    check(read(path))
    for content in truncated(whole, step):
        found = attempt(read, path, content)
        if found is not None:
            loaded += 1
            check(found)
    tried(f"{name} cut short", len(whole[::step]))
    if name.startswith("records"):  # whole lines may be read, and no more than these
        return
    # only a line end, or what TOML does not need, may be missing
    allowed = {"baseline.json": 1, "prompts.toml": len(whole)}
    assert loaded <= allowed.get(name, 0)


def test_records_that_were_cut_are_the_first_ones(tmp_path, tried):
    path = tmp_path / "records.jsonl"
    _records(path)
    whole = records.read_records(path)
    content = path.read_bytes()
    for cut in truncated(content):
        path.write_bytes(cut)
        assert records.read_records(path) == whole[: cut.count(b"\n")]
    tried("records.jsonl cut short", len(content))


@pytest.mark.parametrize("name", KINDS)
def test_every_byte_flipped(tmp_path, tried, name):
    write, read, check, step = KINDS[name]
    path = tmp_path / name
    write(path)
    whole, n = path.read_bytes(), 0
    text = not name.endswith("npz")
    masks = (1, 2, 16, 32, 255) if text else (255,)
    for content in flipped(whole, step, masks):
        n += 1
        found = attempt(read, path, content)
        if found is not None:
            check(found)
    tried(f"{name} with a byte changed", n)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("bos", (0, None))
def test_every_byte_of_the_counts_flipped_behind_the_checksum(smoothing, bos, tried):
    """What a checksum cannot tell: a forged model is refused or a distribution."""
    arrays = fitted(smoothing, bos=bos).to_arrays()
    n = loaded = 0
    for name, array in arrays.items():
        if name == "settings":
            continue
        for mask in (1, 2, 128):
            for content in flipped(array.tobytes(), masks=(mask,)):
                n += 1
                forged = np.frombuffer(content, array.dtype)
                try:
                    model = NGramModel.from_arrays(arrays | {name: forged})
                except ValueError:
                    continue
                loaded += 1
                assert_model(model)
    tried("n-gram models forged by a byte", n)
    assert 0 < loaded < n


def test_every_byte_of_the_settings_flipped(tried):
    arrays = fitted().to_arrays()
    text = str(arrays["settings"]).encode()
    n = 0
    for content in flipped(text, masks=(1, 2, 4, 16)):
        n += 1
        forged = np.array(content.decode("latin-1"))
        try:
            model = NGramModel.from_arrays(arrays | {"settings": forged})
        except ValueError:
            continue
        assert_model(model)
    tried("n-gram models forged by a byte", n)


LARGE = (2**31, 2**40, 2**53, 2**60, 2**62, 2**63 - 1)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_counts_that_no_text_has(smoothing, tried):
    """Two counts of 2**62 add up to less than nothing."""
    arrays = fitted(smoothing).to_arrays()
    n = 0
    for name in ("seen_1", "seen_2", "seen_3"):
        for count in (*LARGE, 2**64 - 1):
            for places in (slice(2, None), slice(2, 3)):
                n += 1
                forged = arrays[name].astype(np.uint64)
                forged[places] = count
                try:
                    model = NGramModel.from_arrays(arrays | {name: forged})
                except ValueError as error:
                    refused = str(error)
                    assert name in refused
                    continue
                assert_model(model)
    tried("n-gram models with huge counts", n)


def test_what_begins_a_sequence_is_never_predicted(tried):
    for bos in (0, None):
        model = fitted("add-k", bos=bos)
        arrays = model.to_arrays()
        boundary = V if bos is None else bos
        seen = np.zeros_like(arrays["seen_1"])
        seen[boundary] = 3
        with pytest.raises(ValueError, match=f"seen_1 must be 0 at {boundary}"):
            NGramModel.from_arrays(arrays | {"seen_1": seen})
        token = arrays["token_2"].copy()
        start = arrays["start_2"]
        at = start[2] if bos == 0 else start[3] - 1  # where it keeps the order
        token[at] = boundary
        with pytest.raises(ValueError, match=f"token_2 must not be {boundary}"):
            NGramModel.from_arrays(arrays | {"token_2": token})
    tried("n-gram models that predict a beginning", 4)


@pytest.mark.parametrize(
    "options",
    [
        {"smoothing": "add-k", "add_k": 1e100},
        {"smoothing": "add-k", "add_k": 5e-324},
        {"smoothing": "stupid-backoff", "backoff": 1e-30},
        {"smoothing": "jelinek-mercer", "interpolation": 1 - 2**-53},
        {"smoothing": "jelinek-mercer", "interpolation": 0.0},
        {"smoothing": "kneser-ney", "discounts": [[1, 2, 3]] * 8},
        {"smoothing": "kneser-ney", "discounts": [[5e-324] * 3] * 8},
    ],
    ids=str,
)
def test_settings_at_their_ends(options, tried):
    model = NGramModel.fit(TEXT, order=8, vocab_size=V, **options)
    assert_model(model)
    assert_distribution(model.probabilities([5] * 7), V)
    tried("settings at their ends")


def test_settings_beyond_their_ends(tried):
    bad = {"add_k": [1e101, 1e308, -1.0, 0.0, np.inf, np.nan]}
    bad["backoff"] = [1e-31, 5e-324, 0.0, -1.0, 2.0, np.inf, np.nan]
    bad["interpolation"] = [-1e-9, 1.0, np.nan, np.inf]
    for name, values in bad.items():
        for value in values:
            with pytest.raises(ValueError, match=name):
                Settings(order=2, vocab_size=3, **{name: value})
    tried("settings beyond their ends", sum(map(len, bad.values())))


# ---- sizes that are not there


def npy(header: str, data: bytes = b"", version=(1, 0)) -> bytes:
    """An array file with this header, true or not."""
    text = header.encode() + b"\n"
    form = "<H" if version == (1, 0) else "<I"
    head = b"\x93NUMPY" + bytes(version) + struct.pack(form, len(text))
    return head + text + data


def header(shape, dtype="|u1") -> str:
    return f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"


FORGED = {
    "a trillion bytes": npy(header("(1000000000000,)")),
    "a trillion numbers": npy(header("(1000000000000,)", "<f8"), bytes(64)),
    "50 MB of 64 bytes": npy(header("(50000000,)"), bytes(64)),
    "two axes": npy(header("(30000, 30000)"), bytes(64)),
    "one huge string": npy(header("()", "<U250000000")),
    "no bytes for each": npy(header("(1000000000000,)", "|V0")),
    "less than nothing": npy(header("(-5,)"), bytes(64)),
    "more than it says": npy(header("(5,)"), bytes(64)),
    "a pickle": npy(header("(1,)", "|O"), bytes(8)),
    "a nested head": npy("(" * 300 + ")" * 300),
    "a program": npy("__import__('os').abort()"),
    "another version": npy(header("(1,)"), bytes(1), (2, 0)),
    "a later version": npy(header("(1,)"), bytes(1), (9, 0)),
    "no array": b"hello",
    "nothing": b"",
}


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("kind", ("model.npz", "pair.npz", "answers.npz"))
def test_arrays_that_are_not_as_long_as_they_say(tmp_path, tried, kind, what):
    write, read, *_ = KINDS[kind]
    path = tmp_path / kind
    write(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    victim = next(name for name in parts if "tokens" in name or "seen_1" in name)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in (parts | {victim: FORGED[what]}).items():
            archive.writestr(name, part)
    with at_most(3):
        assert attempt(read, path, content.getvalue()) is None
    tried("arrays that lie about their size")


def test_an_archive_that_unpacks_to_more_than_it_is(tmp_path, tried):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("seen_1.npy", npy(header("(40000000,)"), bytes(40_000_000)))
    content = path.read_bytes()
    assert len(content) < 100_000
    for read in (NGramModel.load, Pair.load, Answers.load):
        with at_most(3):
            assert attempt(read, path, content) is None
    tried("archives that unpack to more than they are", 3)


def test_members_on_top_of_each_other(tmp_path, tried):
    """A thousand names for the same bytes would be a thousand arrays."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a.npy", npy(header("(100000,)"), bytes(100_000)))
        first = archive.infolist()[0]
        archive.filelist += [first] * 1000
    path = tmp_path / "overlap.npz"
    with at_most(5):
        assert attempt(NGramModel.load, path, content.getvalue()) is None
    tried("archives that unpack to more than they are")


@pytest.mark.parametrize("version", (0, 2, -1, 2**40))
@pytest.mark.parametrize("kind", ("model.npz", "pair.npz", "answers.npz"))
def test_other_versions(tmp_path, tried, kind, version):
    write, read, *_ = KINDS[kind]
    path = tmp_path / kind
    write(path)
    with np.load(path) as archive:
        content = dict(archive)
    content["version"] = np.array(version)
    with open(path, "wb") as file:
        np.savez(file, **content)
    with pytest.raises(ValueError, match=f"{kind} must be .* of version {version}"):
        read(path)
    tried("other versions")


@pytest.mark.parametrize(
    "head",
    [
        {"format": np.array("x" * 10_000)},
        {"version": np.array(np.inf)},
        {"version": np.array([1, 1])},
        {"version": np.array("one")},
        {"format": np.arange(9)},
    ],
    ids=lambda head: str(head)[:30],
)
def test_a_head_that_is_none(tmp_path, tried, head):
    path = tmp_path / "model.npz"
    with open(path, "wb") as file:
        np.savez(file, **({"format": np.array("f"), "version": np.array(1)} | head))
    with pytest.raises(ValueError, match=r"model\.npz") as caught:
        read_archive(path, "f", 1)
    assert len(str(caught.value)) < 400
    tried("heads that are none")


@pytest.mark.parametrize("kind", ("target", "draft"))
def test_a_pair_whose_parts_do_not_belong_together(tmp_path, tried, kind):
    path = tmp_path / "pair.npz"
    pair = train_pair(["the harbour, the harbour"], order=2, merges=3)
    Pair(pair.tokenizer, target=pair.target, draft=pair.draft).save(path)
    parts = {"target": pair.target, "draft": pair.draft} | {kind: fitted()}
    Pair(pair.tokenizer, **parts).save(path)
    with pytest.raises(ValueError, match=r"pair\.npz is a broken pair: vocabularies"):
        Pair.load(path)
    tried("pairs of other vocabularies")


# ---- text files


DEEP = 100_000


@pytest.mark.parametrize(
    "name, content",
    [
        ("tokenizer.json", "[" * DEEP),
        ("tokenizer.json", '{"a":' * DEEP),
        ("records.jsonl", "[" * DEEP + "\n"),
        ("baseline.json", '{"a":' * DEEP),
        ("prompts.toml", "a = " + "[" * DEEP),
        ("prompts.toml", "a = " + "{a = " * DEEP),
    ],
    ids=lambda text: text[:14],
)
def test_nested_without_end(tmp_path, tried, name, content):
    assert attempt(KINDS[name][1], tmp_path / name, content.encode()) is None
    tried("texts nested without end")


def test_settings_nested_without_end(tried):
    arrays = fitted().to_arrays()
    for text in ("[" * DEEP, '{"order":' * DEEP):
        with pytest.raises(ValueError, match="nested too deeply"):
            NGramModel.from_arrays(arrays | {"settings": np.array(text)})
    tried("texts nested without end", 2)


def test_merges_that_double(tmp_path, tried):
    """Forty merges of twins would make a piece of a terabyte."""
    path = tmp_path / "tokenizer.json"
    merges = [[99, 99], *([258 + i, 258 + i] for i in range(40))]
    content = {"format": "specdec tokenizer", "version": 1, "merges": merges}
    with at_most(3):
        assert attempt(Tokenizer.load, path, json.dumps(content).encode()) is None
    with pytest.raises(ValueError, match="merge 8 makes a piece of 512 bytes"):
        Tokenizer(merges)
    tried("merges that double", 2)


def test_the_longest_word_still_becomes_one_piece():
    word = " " + "𝒜" * 64 + "'" + "𝒜" * 8
    tokenizer = Tokenizer.train([word * 2], merges=400)
    assert len(tokenizer.encode(word)) == 1
    assert len(tokenizer.piece_bytes(tokenizer.vocab_size - 1)) == len(word.encode())


@pytest.mark.parametrize(
    "merges",
    ["ab", [[2]], [[2, 3, 4]], [["a", "b"]], [[2.0, 3.0]], [[None, 2]], {"a": 1}, 7,
     None, [[2, 10**30]], [[-1, 2]], [[0, 2]], [[2, 258]], [[2, 3], [2, 3]], [2, 3]],
    ids=str,
)  # fmt: skip
def test_merges_that_are_none(tmp_path, tried, merges):
    path = tmp_path / "tokenizer.json"
    content = {"format": "specdec tokenizer", "version": 1, "merges": merges}
    assert attempt(Tokenizer.load, path, json.dumps(content).encode()) is None
    tried("merges that are none")


KEY = {"draft": "a", "temperature": 1.0, "k": 2, "seed": 0, "prompt": "p"}


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(KEY | {"draft": ["a"]}).encode(),
        json.dumps(KEY | {"prompt": {"a": 1}}).encode(),
        b"null", b"7", b'"text"', b"[]", b"{}", b"", b"\0" * 50, b"\xff\xfe\x00",
        b"9" * 5000, b"{" * 50,
        json.dumps(KEY).encode() + b"\n" + json.dumps(KEY).encode(),
    ],
    ids=lambda content: repr(content[:20]),
)  # fmt: skip
def test_lines_that_are_no_records(tmp_path, tried, content):
    path = tmp_path / "records.jsonl"
    assert attempt(records.read_records, path, content + b"\n") is None
    path.write_bytes(content + b"\n")
    with pytest.raises(REFUSED, match=r"records\.jsonl, line \d"):
        records.open_log(path)
    assert path.read_bytes() == content + b"\n"
    tried("lines that are no records", 2)


HEAD = "draft,temperature,k,seed,prompt,x"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n\n", b"\xff\xfe", b"a,b\n1,2", b"\0" * 20,
        f"{HEAD}\na,1.0,2,0,p".encode(),
        f"{HEAD}\na,1.0,2,0,p,word".encode(),
        f"{HEAD}\na,1.0,2,0,p,\u00b2".encode(),
        f"{HEAD}\na,1.0,2,0,p,{'9' * 5000}".encode(),
        f"{HEAD}\n\"{'a' * 200_000}\",1.0,2,0,p,1".encode(),
        f"{HEAD}\na,1.0,2,0,caf".encode() + b"\xe9,1",
    ],
    ids=lambda content: repr(content[-20:]),
)  # fmt: skip
def test_tables_that_are_none(tmp_path, tried, content):
    assert attempt(records.read_records, tmp_path / "t.csv", content) is None
    tried("tables that are none")


@pytest.mark.parametrize(
    "content",
    [
        "", "prompt = 3", "prompt = []", 'prompt = ["a"]', "[prompt]\ntext = 3",
        "[[prompt]]", "[[prompt]]\ntext = 3", "[[prompt]]\ntext = 'a'\nother = 3",
        "[[prompt]]\ntext = 'a'\nexample = ['a']",
        "[[prompt]]\ntext = 'a'\nexample = 3",
        "[[prompt]]\ntext = 'a'\nexample = [1, 2]", "\0", "[[prompt",
    ],
    ids=lambda content: content[-25:],
)  # fmt: skip
def test_prompts_that_are_none(tmp_path, tried, content):
    assert attempt(read_prompts, tmp_path / "p.toml", content.encode()) is None
    tried("prompts that are none")


@pytest.mark.parametrize(
    "change",
    [
        {"log_ratios": sorted(suite.RATIOS)}, {"log_ratios": 3}, {"log_ratios": {}},
        {"counts": []}, {"machine": None}, {"format": ["a"]}, {"version": 10**30},
        {"log_ratios": dict.fromkeys(suite.RATIOS, 3)},
        {"log_ratios": {name: [] for name in suite.RATIOS}},
    ],
    ids=lambda change: str(change)[:30],
)  # fmt: skip
def test_baselines_that_are_none(tmp_path, tried, change):
    path = tmp_path / "baseline.json"
    _baseline(path)
    content = json.loads(path.read_text()) | change
    assert attempt(suite.read_baseline, path, json.dumps(content).encode()) is None
    tried("baselines that are none")


def answers_file(path, **changes):
    content = {
        "vocabulary": np.array("v"),
        "vocab_size": np.array(9),
        "how": np.zeros(3),
        "prompts": np.array(["a", "b"]),
        "lengths": np.array([3, 2]),
        "tokens": np.array([1, 2, 3, 4, 5]),
    } | changes
    write_archive(path, "specdec set of answers", 1, **content)


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": np.array([-1, 6])}, {"lengths": np.array([6, -1])},
        {"lengths": np.array([2**63 - 1, 2**63 - 1])},
        {"lengths": np.array([3.0, 2.0])},
        {"lengths": np.array([[3, 2]])}, {"lengths": np.array([3])},
        {"lengths": np.array([3, 1])}, {"vocab_size": np.array(np.inf)},
        {"vocab_size": np.array(np.nan)}, {"vocab_size": np.array(5)},
        {"vocab_size": np.array([9, 9])}, {"vocab_size": np.array(-1)},
        {"tokens": np.array([1, 2, 3, 4, -5])}, {"tokens": np.zeros(5)},
        {"tokens": np.zeros((5, 1), int)}, {"prompts": np.array("a")},
        {"how": np.array(0.0)},
    ],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_answers_that_are_none(tmp_path, tried, change):
    path = tmp_path / "answers.npz"
    answers_file(path)
    assert len(Answers.load(path).texts) == 2
    answers_file(path, **change)
    assert attempt(Answers.load, path, path.read_bytes()) is None
    tried("answers that are none")


def test_the_checks_here_would_see_a_model_that_is_none():
    broken = fitted()
    broken._unigram = broken._unigram * 1.01
    with pytest.raises(AssertionError):
        assert_model(broken)
    assert tomllib.loads('a = "b"') == {"a": "b"}
    assert sd.NGramModel is NGramModel
