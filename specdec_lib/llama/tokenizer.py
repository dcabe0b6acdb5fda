"""The tokenizer that a GGUF file brings along: byte pairs, special tokens, chat.

The work is done by the ``tokenizers`` package; here is how the file's lists become one
of its tokenizers, and how text comes back from ids.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from ..sampling import is_integer
from ..text import vocabulary_name
from .gguf_file import GGUFFile

# How a text is cut into words before byte pairs are joined, by the name in the file.
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PATTERNS = {
    "llama-bpe": "|".join((_CONTRACTIONS, _LETTERS, r"\p{N}{1,3}", _REST)),
    "qwen2": "|".join((_CONTRACTIONS, _LETTERS, r"\p{N}", _REST)),
}
SAME_AS = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}
DIGIT_BY_DIGIT = {"smollm", "starcoder", "refact", "command-r"}
GPT2 = {"gpt-2", "gpt2"}
CONTROL, USER_DEFINED = 3, 4  # kinds of tokens that are no words


class LlamaTokenizer:
    """Text to ids and back, as the model was trained.

    tokens
        the V pieces, in the letters that stand for bytes (see :func:`byte_letters`).
    merges
        pairs of pieces, two strings with a space between, in their order.
    kinds
        V numbers: 3 for a special token, 4 for a word that is never cut, 1 otherwise.
    pre
        the name of the way in which text is first cut into words.
    bos_id, eos_id, stop_ids
        the tokens that begin and end a text, and all those that end an answer.
    add_bos
        whether the model was trained on texts that begin with ``bos_id``; ``encode``
        leaves that to the caller.
    chat_template
        a Jinja template that makes a prompt from messages, or None.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        kinds: Sequence[int],
        *,
        pre: str,
        bos_id: int | None = None,
        eos_id: int | None = None,
        stop_ids: Sequence[int] = (),
        add_bos: bool = False,
        chat_template: str | None = None,
    ) -> None:
        if not isinstance(tokens, list | tuple) or not isinstance(merges, list | tuple):
            raise TypeError("tokens and merges must be lists of strings")
        if len(kinds) != len(tokens):
            raise ValueError(
                f"kinds must be {len(tokens)} numbers, one a token, got {len(kinds)}"
            )
        if not all(isinstance(token, str) for token in tokens):
            raise TypeError("tokens must be strings")
        if not all(is_integer(kind) for kind in kinds):
            raise TypeError("kinds must be whole numbers")
        if not isinstance(pre, str) or not isinstance(add_bos, bool):
            raise TypeError(
                f"pre must be a string and add_bos a bool, got {pre!r:.80}, "
                f"{add_bos!r:.80}"
            )
        if not isinstance(chat_template, str | None):
            raise TypeError(
                f"chat_template must be a string, got {chat_template!r:.80}"
            )
        given = {"bos_id": [bos_id], "eos_id": [eos_id], "stop_ids": stop_ids}
        for name, id in ((name, id) for name, ids in given.items() for id in ids):
            if id is not None and not is_integer(id):
                raise TypeError(f"{name} must be an integer, got {id!r}")
            if id is not None and not 0 <= id < len(tokens):
                raise ValueError(
                    f"{name} must be inside 0 .. {len(tokens) - 1}, got {id}"
                )
        self._tokens = list(tokens)
        self._merges = [_two(merge) for merge in merges]
        _check_pieces(self._tokens, self._merges)
        self._pre = _pre_tokenizer(pre)
        self._ignore_merges = SAME_AS.get(pre, pre) == "llama-bpe"
        self._kinds = np.array(kinds)
        self.bos_id = bos_id
        self.eos_id = eos_id
        ends = {*stop_ids, *([] if eos_id is None else [eos_id])}
        self.stop_ids = tuple(sorted(ends))
        self.add_bos = add_bos
        self.chat_template = chat_template
        letters = byte_letters()
        self._bytes = [
            b"" if kind == CONTROL
            else token.encode() if kind == USER_DEFINED
            else bytes(letters[each] for each in token if each in letters)
            for token, kind in zip(tokens, kinds, strict=True)
        ]  # fmt: skip

    @classmethod
    def from_file(cls, file: GGUFFile) -> LlamaTokenizer:
        """The tokenizer of a GGUF file; ValueError for a kind that is not read."""
        kind = file.field("tokenizer.ggml.model")
        if kind != "gpt2":
            raise ValueError(
                f"{file.path}: tokenizer.ggml.model must be 'gpt2' (byte pairs), "
                f"got {kind!r:.80}"
            )

        def of(name: str, *default: Any) -> Any:
            return file.field(f"tokenizer.ggml.{name}", *default)

        tokens, merges = of("tokens"), of("merges")
        others = ("eot", "eom")  # end of turn, end of message
        stops = [of(f"{x}_token_id", None) for x in others]
        try:
            return cls(
                tokens,
                merges,
                of("token_type", [1] * len(tokens)),
                pre=of("pre", "gpt-2"),
                bos_id=of("bos_token_id", None),
                eos_id=of("eos_token_id", None),
                stop_ids=[id for id in stops if id is not None],
                add_bos=of("add_bos_token", False),
                chat_template=file.field("tokenizer.chat_template", None),
            )
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from error
        except (TypeError, AttributeError) as error:  # a number for a string, say
            raise ValueError(
                f"{file.path}: a field of its tokenizer is of the wrong kind: {error}"
            ) from error

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return len(self._tokens)

    @functools.cached_property
    def vocabulary(self) -> str:
        """A name of the tokens, see :func:`specdec_lib.text.vocabulary_name`."""
        return vocabulary_name(self._tokens)

    def encode(self, text: str, *, special: bool = True) -> NDArray[np.int64]:
        """The ids of ``text``, (n,); nothing is added.

        The name of a special token, such as ``<|im_end|>``, is read as that token;
        with ``special=False`` as the letters it is written in, which is what a text
        from others calls for. A byte that the vocabulary has no token for is left out
        (SmolLM2's lacks 21 of 256, six of them control characters). Raises ValueError
        for lone surrogates.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"text must be encodable in UTF-8; character {error.start} is the "
                f"lone surrogate {text[error.start]!r}"
            ) from None
        tokenizer = self._with_special if special else self._without_special
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; special tokens are left out.

        Bytes that are no UTF-8, as a sampled sequence may hold, become U+FFFD.
        """
        return b"".join(map(self.piece_bytes, ids)).decode("utf-8", errors="replace")

    def piece_bytes(self, id: int) -> bytes:
        """The bytes that ``id`` stands for; none for a special token."""
        if not 0 <= id < len(self._bytes):
            raise ValueError(f"id must be in 0..{len(self._bytes) - 1}; got {id!r}")
        return self._bytes[id]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One readable string for each of ``ids``: ``' harb'``, ``'<|im_end|>'``.

        A piece that is only a part of a character is shown by its bytes: ``'\\xc3'``.
        """
        return [
            self.piece_bytes(id).decode("utf-8", errors="backslashreplace")
            or self._tokens[id]
            for id in ids
        ]

    def chat_text(
        self, messages: str | Sequence[Mapping[str, str]], *, answer: bool = True
    ) -> str:
        """The prompt that ``messages`` make, by the file's own template.

        ``messages`` are mappings with a "role" ("system", "user", "assistant") and
        "content", or the text of one user. With ``answer`` the prompt goes on to where
        the assistant speaks. ValueError where the file has no template, where the
        template will not have these messages, and where it does not come to an end:
        see :func:`.template.render`.
        """
        if self.chat_template is None:
            raise ValueError("messages: this model's file has no chat template")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        for each in messages:
            if not (isinstance(each, Mapping) and {"role", "content"} <= each.keys()):
                raise TypeError(f"messages must have a role and content, got {each!r}")
        names = {"bos_token": self.bos_id, "eos_token": self.eos_id}
        from .template import render  # imports jinja2, which nothing else here needs

        return render(
            self.chat_template,
            messages=messages,
            add_generation_prompt=answer,
            **{k: "" if id is None else self._tokens[id] for k, id in names.items()},
        )

    def chat(
        self, messages: str | Sequence[Mapping[str, str]], *, answer: bool = True
    ) -> NDArray[np.int64]:
        """The ids of :meth:`chat_text`, (n,)."""
        return self.encode(self.chat_text(messages, answer=answer))

    @functools.cached_property
    def _with_special(self) -> tokenizers.Tokenizer:
        tokenizer = self._byte_pairs()
        for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
            ids = np.flatnonzero(self._kinds == kind)
            # One by one in the order of their ids: that is how they were numbered.
            tokenizer.add_tokens(
                [
                    tokenizers.AddedToken(
                        self._tokens[id], special=special, normalized=False
                    )
                    for id in ids
                    if self._tokens[id]
                ]
            )
        return tokenizer

    @functools.cached_property
    def _without_special(self) -> tokenizers.Tokenizer:
        return self._byte_pairs()

    def _byte_pairs(self) -> tokenizers.Tokenizer:
        vocabulary = {token: id for id, token in enumerate(self._tokens)}
        model = tokenizers.models.BPE(
            vocab=vocabulary, merges=self._merges, ignore_merges=self._ignore_merges
        )
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = self._pre
        return tokenizer

    def __repr__(self) -> str:
        return f"<LlamaTokenizer: {self.vocab_size} ids>"


@functools.cache
def byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in a byte-level vocabulary, and the byte.

    Visible letters of Latin-1 stand for themselves; the other 68 bytes, blanks among
    them, for the letters from U+0100 on. Source: Radford et al. (2019), section 2.2.

    >>> byte_letters()["A"], byte_letters()["\\u0120"]
    (65, 32)
    """
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}


def _two(merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right) or " " in right:
        raise ValueError(f"merges must be two pieces with a space, got {merge!r:.80}")
    return left, right


def _check_pieces(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
    """ValueError unless each token is there once, and whatever a merge needs or makes
    is among them."""
    ids: dict[str, int] = {}
    for id, token in enumerate(tokens):
        first = ids.setdefault(token, id)
        if token and first != id:
            raise ValueError(f"tokens {first} and {id} are the same, {token!r:.80}")
    for left, right in merges:
        for piece in (left, right, left + right):
            if piece not in ids:
                raise ValueError(
                    f"merges do not fit the tokens: {left + ' ' + right!r:.80} needs "
                    f"{piece!r:.80}, which is none"
                )


def _pre_tokenizer(name: str) -> Any:
    """How the text is cut into words, and these into the letters of their bytes."""
    pattern = PATTERNS.get(SAME_AS.get(name, name))
    if pattern is not None:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    by_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in GPT2:
        return by_words
    if name in DIGIT_BY_DIGIT:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, by_words])
    known = sorted({*PATTERNS, *SAME_AS, *DIGIT_BY_DIGIT, *GPT2})
    raise ValueError(f"pre must be one of {', '.join(known)}, got {name!r:.80}")
