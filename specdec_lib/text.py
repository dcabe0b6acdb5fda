"""Text in and out: a byte-pair tokenizer, a word tokenizer, and the corpora.

The byte-pair tokenizer starts from the 256 bytes, so it can spell any text, and
joins the most frequent neighbours again and again. It is trained here, from
scratch, on whatever text the reader has. It needs no compiled package, so it also
runs in a browser.
"""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import heapq
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .files import (
    MAX_BYTES,
    check_size,
    open_file,
    parse_json,
    read_all,
    write_atomically,
)

Pair = tuple[int, int]

BOS, EOS = 0, 1  # then 256 bytes, then one id for each merge
FIRST_BYTE, FIRST_MERGE = 2, 258

# Measured on the book's corpus (target of order 5, draft of order 2, temperature 1,
# a draft token at a tenth of a target call): 500, 750 and 1000 merges give acceptance
# rates of .68, .73 and .77, the best k is 4 for each, and held-out text costs 1.73,
# 1.73 and 1.72 bits a character. Whole words give .86 and a best k of 8. A thousand
# merges are the most readable of those with a best k in the middle.
DEFAULT_MERGES = 1000

# A text is cut into words before any pair is joined, so no piece crosses a space.
# The space goes with the word that follows it. Every character falls in exactly one
# branch, so the words joined together are the text. The limit of 64 characters
# keeps the cost of one word bounded: "words" of a million letters do occur in files.
_WORD = re.compile(
    r" ?[^\W\d_]{1,64}(?:'[^\W\d_]{1,8})?"  # letters: " harbour", " don't"
    r"| ?\d{1,3}"  # digits, in threes
    r"| ?(?:[^\w\s]|_){1,64}"  # punctuation: "," or ' "'
    r"|\n{1,64}"  # line ends
    r"|[^\S\n]{1,64}(?!\S)|[^\S\n]"  # other white space, less a last one
)
_CACHE_LIMIT = 1 << 16
# No word is longer than a space, 64 letters, a mark and 8 letters of 4 bytes each.
_MAX_PIECE = 4 * (1 + 64 + 1 + 8)


class Tokenizer:
    """A byte-pair tokenizer: ``decode(encode(text)) == text`` for any text.

    Ids: 0 is ``<bos>``, 1 is ``<eos>``, 2 to 257 are the bytes 0 to 255, and 258 + i
    is the i-th merge. ``encode`` never adds ``<bos>`` or ``<eos>``, whatever the text
    says. Two tokenizers are equal when their merges are.

    `merges`: pairs of ids, each id smaller than that of the merge itself. Raises
    ValueError for a pair that is repeated or names an id that does not yet exist, and
    for a piece of more bytes than a word can have (296).

    Source: Sennrich, Haddow and Birch (2016), section 3.2; on bytes as in Radford et
    al. (2019), section 2.2.

    >>> tokenizer = Tokenizer.train(["the harbour, the harbour"], merges=20)
    >>> tokenizer.pieces(tokenizer.encode("the harbour then"))
    ['the', ' harbour', ' ', 'the', 'n']
    """

    bos_id = BOS
    eos_id = EOS

    def __init__(self, merges: Iterable[Sequence[int]] = ()) -> None:
        self._bytes = [b"", b""] + [bytes([value]) for value in range(256)]
        self._rank: dict[Pair, int] = {}  # pair -> its id; a lower id merges first
        for merge in merges:
            new = len(self._bytes)
            left, right = pair = _pair(merge)
            if not (FIRST_BYTE <= left < new and FIRST_BYTE <= right < new):
                raise ValueError(
                    f"merges: merge {new - FIRST_MERGE} is {pair}; "
                    f"both ids must be in {FIRST_BYTE}..{new - 1}"
                )
            if pair in self._rank:
                raise ValueError(f"merges: the pair {pair} is given twice")
            self._rank[pair] = new
            piece = self._bytes[left] + self._bytes[right]
            if len(piece) > _MAX_PIECE:  # a few merges could else fill all memory
                raise ValueError(
                    f"merges: merge {new - FIRST_MERGE} makes a piece of {len(piece)} "
                    f"bytes; no word has more than {_MAX_PIECE}"
                )
            self._bytes.append(piece)
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def train(cls, texts: Iterable[str], *, merges: int = DEFAULT_MERGES) -> Tokenizer:
        """Learn up to `merges` merges from `texts` (at least one that is not empty).

        Each step joins the most frequent pair of neighbours within words; of equally
        frequent pairs the one with the lowest ids. Training stops early when no pair
        occurs twice. Raises TypeError or ValueError for bad arguments.
        """
        if isinstance(merges, bool) or not isinstance(merges, int) or merges < 0:
            raise ValueError(f"merges must be a whole number >= 0; got {merges!r}")
        frequency = Counter(word for text in _checked(texts) for word in _split(text))
        if not frequency:
            raise ValueError("texts must hold at least one character; got none")
        return cls(_learn(frequency, merges))

    @property
    def vocab_size(self) -> int:
        """How many ids there are: 258 and one for each merge."""
        return len(self._bytes)

    @cached_property
    def vocabulary(self) -> str:
        """A name of its tokens, see `vocabulary_name`."""
        return vocabulary_name(piece.decode("latin-1") for piece in self._bytes)

    @property
    def merges(self) -> list[Pair]:
        """The merges in the order in which they were learnt."""
        return list(self._rank)

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of `text`, shape (n,). Raises ValueError for lone surrogates."""
        ids: list[int] = []
        for word in _split(text):
            known = self._cache.get(word)
            if known is None:
                if len(self._cache) >= _CACHE_LIMIT:
                    self._cache.clear()
                known = self._cache[word] = self._encode_word(word)
            ids += known
        return np.array(ids, dtype=np.int64)

    def _encode_word(self, word: str) -> list[int]:
        ids = _byte_ids(word)
        while len(ids) > 1:
            pair = min(
                pairwise(ids),
                key=lambda pair: self._rank.get(pair, math.inf),
            )
            if pair not in self._rank:
                break
            ids = _join(ids, pair, self._rank[pair])
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; ``<bos>`` and ``<eos>`` are left out.

        Bytes that are no UTF-8, as a sampled sequence may hold, become U+FFFD.
        """
        return b"".join(map(self.piece_bytes, ids)).decode("utf-8", errors="replace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One readable string for each of ``ids``: ``' harb'``, ``'our'``, ``'<eos>'``.

        A piece that is only a part of a character is shown by its bytes: ``'\\xc3'``.
        """
        special = {BOS: "<bos>", EOS: "<eos>"}
        return [
            special.get(id)
            or self.piece_bytes(id).decode("utf-8", errors="backslashreplace")
            for id in ids
        ]

    def piece_bytes(self, id: int) -> bytes:
        """The bytes that `id` stands for; none for ``<bos>`` and ``<eos>``."""
        if not 0 <= id < len(self._bytes):
            raise ValueError(f"id must be in 0..{len(self._bytes) - 1}; got {id!r}")
        return self._bytes[id]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to `path` as JSON; an old file is replaced at once."""
        record = {"format": "specdec tokenizer", "version": 1, "merges": self.merges}
        content = json.dumps(record).encode()
        write_atomically(path, lambda file: file.write(content))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read what `save` wrote. Raises ValueError naming the file if it is not."""
        try:
            record: Any = parse_json(read_all(path).decode())
        except ValueError as error:  # not a file, not JSON, or not even UTF-8
            raise ValueError(f"{path}: not a tokenizer file ({error})") from None
        if not isinstance(record, dict) or record.get("format") != "specdec tokenizer":
            raise ValueError(f"{path}: not a tokenizer file")
        if record.get("version") != 1:
            raise ValueError(
                f"{path}: version {record.get('version')!r:.60} of the tokenizer "
                "format; this library reads version 1"
            )
        try:
            return cls(record["merges"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: broken tokenizer file ({error})") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokenizer):
            return NotImplemented
        return self.merges == other.merges

    def __hash__(self) -> int:
        return hash(tuple(self._rank))

    def __repr__(self) -> str:
        return f"<Tokenizer: {self.vocab_size} ids>"


class HasPieces(Protocol):
    """Any tokenizer that can tell the bytes of an id."""

    def piece_bytes(self, id: int) -> bytes:
        """The bytes that ``id`` stands for."""


class StreamDecoder:
    """Turns ids into text as they come, and never gives out half a character.

    >>> tokenizer = Tokenizer()
    >>> stream = StreamDecoder(tokenizer)
    >>> [stream.feed([id]) for id in tokenizer.encode("né")]
    ['n', '', 'é']

    The parts joined, with that of `finish`, are ``tokenizer.decode`` of all the ids.
    """

    def __init__(self, tokenizer: HasPieces) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> str:
        """The text that `ids` complete; the bytes of a begun character are kept."""
        return self._decoder.decode(b"".join(map(self._tokenizer.piece_bytes, ids)))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        return self._decoder.decode(b"", final=True)


def _checked(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str):
        raise TypeError("texts must be several strings; got one, put it in a list")
    return texts


def _pair(merge: Sequence[int]) -> Pair:
    left, right = merge
    if not all(isinstance(id, (int, np.integer)) for id in (left, right)):
        raise ValueError(f"merges must be pairs of ids; got {merge!r}")
    return int(left), int(right)


def _split(text: str) -> list[str]:
    """The words of `text`; joined together they are the text again."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text must be encodable in UTF-8; character {error.start} is the lone "
            f"surrogate {text[error.start]!r}"
        ) from None
    return _WORD.findall(text)


def _byte_ids(word: str) -> list[int]:
    return [FIRST_BYTE + byte for byte in word.encode("utf-8")]


def _join(ids: list[int], pair: Pair, new: int) -> list[int]:
    """`ids` with every `pair`, from left to right, replaced by `new`."""
    joined: list[int] = []
    for id in ids:
        if id == pair[1] and joined and joined[-1] == pair[0]:
            joined[-1] = new
        else:
            joined.append(id)
    return joined


def _learn(frequency: Counter[str], merges: int) -> list[Pair]:
    """The first `merges` merges for words with these frequencies."""
    counts = list(frequency.values())
    words = [_byte_ids(word) for word in frequency]
    pairs: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)  # words that had the pair

    def count(index: int, sign: int) -> list[Pair]:
        found = list(pairwise(words[index]))
        for pair in found:
            pairs[pair] += sign * counts[index]
            where[pair].add(index)
        return found

    for index in range(len(words)):
        count(index, +1)
    # A heap of (-count, pair): most frequent first, then lowest ids. An entry whose
    # count is out of date is skipped, since the pair was pushed again when it changed.
    heap = [(-number, pair) for pair, number in pairs.items()]
    heapq.heapify(heap)
    learnt: list[Pair] = []
    while heap and len(learnt) < merges:
        number, best = heapq.heappop(heap)
        if pairs[best] != -number:
            continue
        if pairs[best] < 2:
            break
        changed: set[Pair] = set()
        for index in where.pop(best):
            changed.update(count(index, -1))
            words[index] = _join(words[index], best, FIRST_MERGE + len(learnt))
            changed.update(count(index, +1))
        learnt.append(best)
        for pair in changed:
            if pairs[pair] > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
    return learnt


def vocabulary_name(pieces: Iterable[str]) -> str:
    """A name of ``pieces``, the tokens in the order of their ids.

    The same for the same tokens: 64 letters and digits, by SHA-256.
    """
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


class WordTokenizer:
    """Words and punctuation marks as tokens, for examples worked out by hand.

    Ids: 0 ``<bos>``, 1 ``<eos>``, 2 ``<unk>``, then the words from the most to the
    least frequent, equals in alphabetical order. It loses spacing and unknown words;
    use `Tokenizer` where the text must come back as it was.

    >>> words = WordTokenizer.train(["The sea is cold. The sea is grey."])
    >>> words.decode(words.encode("The sea is blue."))
    'The sea is <unk>.'
    """

    bos_id, eos_id, unk_id = BOS, EOS, 2

    def __init__(self, words: Iterable[str]) -> None:
        self._words = ["<bos>", "<eos>", "<unk>", *words]
        self._id = {word: id for id, word in enumerate(self._words) if id > 2}

    @classmethod
    def train(cls, texts: Iterable[str], *, min_count: int = 1) -> WordTokenizer:
        """The words that occur at least `min_count` times in `texts`."""
        count = Counter(
            word for text in _checked(texts) for word in _WORD_OR_MARK.findall(text)
        )
        if not count:
            raise ValueError("texts must hold at least one word; got none")
        kept = [word for word in count if count[word] >= min_count]
        return cls(sorted(kept, key=lambda word: (-count[word], word)))

    @cached_property
    def vocabulary(self) -> str:
        """A name of its words, see `vocabulary_name`."""
        return vocabulary_name(self._words)

    @property
    def vocab_size(self) -> int:
        """How many ids there are, the three special ones included."""
        return len(self._words)

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of `text`, shape (n,); an unknown word is ``<unk>``."""
        found = _WORD_OR_MARK.findall(text)
        return np.array([self._id.get(w, self.unk_id) for w in found], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        """The words of ``ids`` with a space between, and none before marks like ","."""
        words = self.pieces(id for id in ids if id not in (BOS, EOS))
        return re.sub(r" (?=[,.;:!?)](?: |$))", "", " ".join(words))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One word for each of ``ids``."""
        ids = list(ids)
        for id in ids:
            if not 0 <= id < self.vocab_size:
                raise ValueError(f"ids must be in 0..{self.vocab_size - 1}; got {id!r}")
        return [self._words[id] for id in ids]


_WORD_OR_MARK = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Document:
    """A text and its name: a file's path, or a module's name."""

    name: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """``documents`` in a fixed order; ``held_out_names`` are held out from training."""

    documents: tuple[Document, ...]
    held_out_names: frozenset[str] = frozenset()

    @property
    def train(self) -> Corpus:
        """The documents to train on."""
        return self._select(held_out=False)

    @property
    def held_out(self) -> Corpus:
        """The documents to measure on; none, unless the corpus names some."""
        return self._select(held_out=True)

    def _select(self, held_out: bool) -> Corpus:
        return Corpus(
            tuple(
                document
                for document in self.documents
                if (document.name in self.held_out_names) == held_out
            )
        )

    @property
    def texts(self) -> list[str]:
        """The text of each document."""
        return [document.text for document in self.documents]


HELD_OUT = frozenset({"10_the_unclaimed_parcel", "15_school_essays"})


def load_corpus() -> Corpus:
    """The book's own corpus: a year in the harbour town of Ostrey.

    Sixteen documents written for this book, two of them held out.
    """
    folder = resources.files("specdec_lib") / "data" / "corpus"
    files = [file for file in folder.iterdir() if file.name.endswith(".txt")]
    if not files:
        raise FileNotFoundError("the corpus that ships with specdec_lib is missing")
    return Corpus(
        tuple(
            Document(
                file.name.removesuffix(".txt"),
                _unix_lines(file.read_text(encoding="utf-8")),
            )
            for file in sorted(files, key=lambda file: file.name)
        ),
        HELD_OUT,
    )


# Modules that are plain Python, and the same in kind, from Python 3.11 to 3.13.
_STDLIB = """
    argparse ast base64 bdb bisect calendar cmd code codeop colorsys configparser
    contextlib copy csv dataclasses difflib doctest email.message fileinput fnmatch
    fractions ftplib functools getopt gettext graphlib gzip heapq html.parser
    http.client inspect ipaddress json.decoder linecache locale logging.handlers
    mailbox mimetypes netrc optparse pickle pkgutil plistlib pprint queue random
    reprlib sched selectors shelve shlex shutil smtplib socketserver statistics
    subprocess tarfile tempfile textwrap threading timeit tokenize trace traceback
    typing unittest.case urllib.parse weakref
"""
STDLIB_MODULES = tuple(_STDLIB.split())
STDLIB_HELD_OUT = frozenset({"csv", "heapq", "shelve", "textwrap", "urllib.parse"})


def stdlib_corpus(modules: Sequence[str] = STDLIB_MODULES) -> Corpus:
    """The source of Python's own standard library: a larger text everybody has.

    `modules`: names of modules of the standard library written in Python. It is read
    from the Python that runs, so figures differ a little between versions. Raises
    FileNotFoundError naming a module whose source is not there.
    """
    home = os.path.dirname(dataclasses.__file__)  # also right inside a zip file
    documents = []
    for name in sorted(set(modules)):
        *packages, _ = name.split(".")
        spec = PathFinder.find_spec(name, [os.path.join(home, *packages)])
        source = getattr(spec and spec.loader, "get_source", lambda name: None)(name)
        if source is None:
            raise FileNotFoundError(
                f"modules: no Python source of {name!r} in the standard library"
            )
        documents.append(Document(name, source))
    return Corpus(tuple(documents), STDLIB_HELD_OUT.intersection(modules))


def read_corpus(
    path: str | os.PathLike[str],
    *,
    suffixes: Sequence[str] = (".txt", ".md", ".py"),
    max_bytes: int = MAX_BYTES,
) -> Corpus:
    """Read a file, or every file with one of `suffixes` in a folder and those in it.

    Files are UTF-8, with or without a byte-order mark; line ends become ``\\n``. They
    come in the order of their paths. In a folder, hidden files and folders and empty
    files are passed over, and pipes. Raises FileNotFoundError where there is nothing to
    read, and ValueError, naming the file, for one that is empty, not UTF-8, or a pipe,
    and where all of them together are larger than `max_bytes`.
    """
    path = Path(path)
    if not path.is_dir():
        document = Document(path.name, read_text(path, max_bytes))
        if not document.text.strip():
            raise ValueError(f"{path}: the file is empty")
        return Corpus((document,))
    files = sorted(
        file
        for file in path.rglob("*")
        if file.name.endswith(tuple(suffixes))
        and file.is_file()
        # relative to `path`, which may itself lie in a hidden folder
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not files:
        raise FileNotFoundError(f"{path}: no file ending in {', '.join(suffixes)}")
    sizes = [file.stat().st_size for file in files]
    for file, size in zip([*files, path], [*sizes, sum(sizes)], strict=True):
        check_size(file, size, max_bytes)
    documents = (
        Document(file.relative_to(path).as_posix(), read_text(file, max_bytes))
        for file in files
    )
    corpus = Corpus(tuple(each for each in documents if each.text.strip()))
    if not corpus.documents:
        raise ValueError(f"{path}: all {len(files)} files in it are empty")
    return corpus


def read_text(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> str:
    """The text of one UTF-8 file, read in pieces; see :func:`read_corpus`.

    ValueError for other bytes and for more than ``max_bytes``.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts: list[str] = []
    size = 0  # bytes given to the decoder
    with open_file(path) as file:
        check_size(path, os.fstat(file.fileno()).st_size, max_bytes)
        while block := file.read(2**20):
            waiting = len(decoder.getstate()[0])  # bytes of a character begun before
            try:
                parts.append(decoder.decode(block))
            except UnicodeDecodeError as error:
                raise _not_utf8(path, size - waiting + error.start) from None
            size += len(block)
            check_size(path, size, max_bytes)
    waiting = len(decoder.getstate()[0])
    if waiting:
        raise _not_utf8(path, size - waiting)
    return _unix_lines("".join(parts).removeprefix("\ufeff"))


def _not_utf8(path: str | os.PathLike[str], offset: int) -> ValueError:
    return ValueError(f"{path}: not UTF-8; the byte at offset {offset} is undecodable")


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def words(text: str) -> list[str]:
    """The words of `text` in lower case, without marks: for counting.

    >>> words("Don't wait, Tom!")
    ["don't", 'wait', 'tom']
    """
    return re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text.lower())


def sentences(text: str) -> list[str]:
    """The sentences of `text`: for counting.

    Paragraphs are parted by blank lines. A sentence ends with ``.``, ``!`` or ``?``
    and the quotes after it, unless a small letter follows, or with its paragraph. So a
    heading is one, and "Dr. Pike" are two.

    >>> sentences('"Is it cold?" said Tom. It was.')
    ['"Is it cold?" said Tom.', 'It was.']
    """
    return [
        sentence
        for paragraph in re.split(r"\n\s*\n", text)
        for sentence in re.split(_SENTENCE_END, " ".join(paragraph.split()))
        if sentence
    ]


_SENTENCE_END = re.compile(r"""(?<=[.!?]) (?![a-z])|(?<=[.!?]["')]) (?![a-z])""")


def corpus_counts(corpus: Corpus) -> dict[str, float]:
    """How large a corpus is, and how little it repeats itself.

    ``documents``, ``characters``, ``words``, ``distinct_words``, ``sentences``; and two
    shares in 0..1: ``distinct_sentences``, and ``distinct_4grams``, runs of four words
    within a sentence, without regard to capitals.
    """
    split = [sentence for text in corpus.texts for sentence in sentences(text)]
    split_words = [words(sentence) for sentence in split]
    every = [word for sentence in split_words for word in sentence]
    runs = [
        tuple(sentence[i : i + 4])
        for sentence in split_words
        for i in range(len(sentence) - 3)
    ]
    return {
        "documents": len(corpus.documents),
        "characters": sum(map(len, corpus.texts)),
        "words": len(every),
        "distinct_words": len(set(every)),
        "sentences": len(split),
        "distinct_sentences": len(set(split)) / max(len(split), 1),
        "distinct_4grams": len(set(runs)) / max(len(runs), 1),
    }
