"""Text in, text out: a tokenizer around the loop, stop strings, pieces as they come.

    engine = Engine(target, tokenizer, draft)
    engine.complete("The harbour", max_new_tokens=40).text
    for piece in engine.stream("The harbour", max_new_tokens=40): ...

A stream gives one piece for each round, and its pieces joined are the text of
``complete``. No piece ends inside a character, and none shows any part of a stop
string, wherever the borders of tokens and rounds fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Protocol, cast

from .decoding import DraftLength, stream
from .drafts import Draft, ModelDraft
from .metrics import Metrics, Round
from .models import LanguageModel, check_count, check_same_vocabulary
from .randomness import RandomSource
from .sampling import DEFAULT_SAMPLER, Sampler
from .text import StreamDecoder
from .verification import Verify, verify_tokens

Message = Mapping[str, str]
LONGEST_CHARACTER = 4  # bytes
MOST_WAITING = 16  # ids
REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Completion:
    """What :meth:`Engine.complete` returns, or what a stream has brought so far.

    text
        the new text, without the prompt. It ends before the first stop string.
    tokens
        the new tokens. After a stop string: those that ``text`` needs, and no more.
    prompt_tokens
        how many tokens the target was given to begin with.
    finish_reason
        "stop" (a stop id or a stop string came), "length" (max_new_tokens reached),
        "context" (the target's context window is full), or the reason that a stream
        was ended with; None where one was not read to its end.
    stop
        the stop string that was found, or None.
    rounds
        one :class:`Round` for each call of the target. The last one ends with the token
        that completed the stop string, as it ends with a stop id.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    finish_reason: str | None
    stop: str | None
    rounds: tuple[Round, ...]

    @property
    def metrics(self) -> Metrics:
        """The figures of all rounds."""
        return Metrics.from_rounds(self.rounds)


@dataclass(frozen=True, eq=False)
class Engine:
    r"""A target, its tokenizer and a draft, made one.

    target
        the language model that decides.
    tokenizer
        :class:`specdec_lib.Tokenizer`, that of :mod:`specdec_lib.llama`, one of
        ``transformers``, or any with ``encode(text)`` and ``piece_bytes(id)``, or
        ``decode(ids)``.
    draft
        what guesses, or a language model, which then draws its guesses with the
        sampler of each call. None: no guesses.
    k, sampler, verify
        used by each call that does not give its own; as in
        :func:`specdec_lib.generate`.
    chat
        put a prompt that is a text into the tokenizer's chat template, as the words of
        the user.
    special
        read the name of a special token in a text, such as ``<|im_end|>``, as that
        token. False: as the letters it is written in, and messages that hold one are
        refused; what a text from others calls for.

    An engine holds no state of any call, so that several threads may share it as far
    as the tokenizer allows. Raises ValueError where target, tokenizer and draft do not
    have the same ids. (Of target and tokenizer of ``transformers`` either may have
    more: a table that was filled up, tokens that were added.)

    >>> from specdec_lib import Sampler, book_pair
    >>> pair = book_pair()
    >>> engine = Engine(pair.target, pair.tokenizer, pair.draft)
    >>> settings = dict(max_new_tokens=9, sampler=Sampler(temperature=0))
    >>> engine.complete("The harbour", **settings).text
    "'s due.\n\nThen there was"
    >>> list(engine.stream("The harbour", **settings, stop="there"))
    ["'s", ' d', 'ue', '.\n\nThen ']
    """

    target: LanguageModel
    tokenizer: Any
    draft: Draft | LanguageModel | None = None
    _: KW_ONLY
    k: int | DraftLength = 4
    sampler: Sampler = DEFAULT_SAMPLER
    verify: Verify = verify_tokens
    chat: bool = False
    special: bool = False

    def __post_init__(self) -> None:
        if not (hasattr(self.target, "vocab_size") and hasattr(self.target, "start")):
            raise TypeError(f"target must be a language model, got {self.target!r}")
        tokenizer, mine = self.tokenizer, self.target.vocab_size
        spells = hasattr(tokenizer, "piece_bytes") or hasattr(tokenizer, "decode")
        if not (hasattr(tokenizer, "encode") and spells):
            raise TypeError(
                "tokenizer must have encode, and piece_bytes or decode, "
                f"got {tokenizer!r}"
            )
        theirs = mine if self._of_transformers else tokenizer.vocab_size
        if theirs != mine:
            raise ValueError(
                f"tokenizer must have the target's {mine} ids, got {theirs}"
            )
        theirs = getattr(self.draft, "vocab_size", mine)
        if theirs != mine:
            raise ValueError(f"draft must have the target's {mine} ids, got {theirs}")
        check_same_vocabulary(self.target, tokenizer, "tokenizer")
        check_same_vocabulary(self.target, self.draft)
        if self.chat and not self.has_chat:
            raise ValueError("chat must be False: the tokenizer has no chat template")

    @property
    def has_chat(self) -> bool:
        """Whether the tokenizer can make a prompt of messages."""
        return getattr(self.tokenizer, "chat_template", None) is not None

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        if self._of_transformers:
            own = self.tokenizer.eos_token_id
            model = getattr(self.target, "model", None)
            settings = getattr(model, "generation_config", None)
            listed = getattr(settings, "eos_token_id", None)
            ids = [own, *(listed if isinstance(listed, list) else [listed])]
        else:
            default = [getattr(self.tokenizer, "eos_id", None)]
            ids = list(getattr(self.tokenizer, "stop_ids", default))
        return tuple(sorted({id for id in ids if id is not None}))

    def encode(self, prompt: str | Sequence[Message]) -> list[int]:
        """The ids that the target is given for ``prompt``.

        A text is continued as it is, after the token that begins a text where the
        model was trained with one; or, where ``chat`` is set, answered. Messages,
        mappings with a "role" and "content", are put into the chat template.
        Raises ValueError for a text that is not Unicode, and for messages where there
        is no template or the template refuses them.
        """
        if isinstance(prompt, str) and not self.chat:
            return self._ids(prompt, self.special, begin=True)
        messages = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        )
        return self._chat_ids(messages)

    def complete(
        self,
        prompt: str | Sequence[Message],
        *,
        max_new_tokens: int,
        k: int | DraftLength | None = None,
        sampler: Sampler | None = None,
        verify: Verify | None = None,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        rng: RandomSource | None = None,
    ) -> Completion:
        """Continue ``prompt``, or answer it; distributed as by the target alone.

        prompt
            a text or messages, see :meth:`encode`.
        max_new_tokens
            most tokens that are added, >= 0.
        stop
            one or several strings, none of them empty. The text ends before the one
            that is complete first, character by character; of those complete at the
            same character, before the longest. They are looked for in the new text
            only, and compared as they are, without Unicode normalisation.
        seed, rng
            give one of them at most; neither means fresh entropy.

        Other arguments take the place of the engine's own. Raises ValueError or
        TypeError for bad arguments before any work.
        """
        pieces = self.stream(
            prompt,
            max_new_tokens=max_new_tokens,
            k=k,
            sampler=sampler,
            verify=verify,
            stop=stop,
            seed=seed,
            rng=rng,
        )
        for _ in pieces:
            pass
        return pieces.completion

    def stream(
        self,
        prompt: str | Sequence[Message],
        *,
        max_new_tokens: int,
        k: int | DraftLength | None = None,
        sampler: Sampler | None = None,
        verify: Verify | None = None,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        rng: RandomSource | None = None,
    ) -> TextStream:
        """Like :meth:`complete`, one piece of text for each round, as soon as it is
        done. Arguments are checked at the call, not at the first piece."""
        stops = _checked_stops(stop)
        check_count("max_new_tokens", max_new_tokens)
        sampler = self.sampler if sampler is None else sampler
        ids = self.encode(prompt)
        rounds = stream(
            self.target,
            ids,
            draft=self.draft_for(sampler),
            k=self.k if k is None else k,
            max_new_tokens=max_new_tokens,
            sampler=sampler,
            verify=self.verify if verify is None else verify,
            stop_ids=self.stop_ids,
            seed=seed,
            rng=rng,
        )
        if_none = "length" if max_new_tokens == 0 else "context"
        return TextStream(rounds, self.decoder(ids), stops, max(len(ids), 1), if_none)

    def decoder(self, prompt: Sequence[int] = ()) -> Decoder:
        """What turns ids into text as they come, after those of ``prompt``."""
        if hasattr(self.tokenizer, "piece_bytes"):
            return StreamDecoder(self.tokenizer)
        return _WindowDecoder(self._decode, list(prompt))

    def draft_for(self, sampler: Sampler) -> Draft | None:
        """What guesses in a call with this sampler."""
        if hasattr(self.draft, "bos_id"):
            return ModelDraft(cast(LanguageModel, self.draft), sampler)
        return self.draft

    @property
    def _of_transformers(self) -> bool:
        return hasattr(self.tokenizer, "apply_chat_template")

    def _ids(self, text: str, special: bool, *, begin: bool) -> list[int]:
        _check_unicode("prompt", text)
        tokenizer = self.tokenizer
        if self._of_transformers:
            bos, begins = self.target.bos_id, False  # it puts its own there
            choice = {
                "add_special_tokens": begin,
                "split_special_tokens": not special,
            }
        else:
            bos = getattr(tokenizer, "bos_id", None)
            begins = getattr(tokenizer, "add_bos", True)
            knows = hasattr(tokenizer, "chat_template")
            choice = {"special": special} if knows else {}
        ids = [int(id) for id in tokenizer.encode(text, **choice)]
        if begin and bos is not None and (begins or not ids):
            ids.insert(0, bos)
        return ids

    def _chat_ids(self, messages: Sequence[Message]) -> list[int]:
        if not self.has_chat:
            raise ValueError(
                "prompt must be a text: the tokenizer has no chat template for messages"
            )
        for each in messages:
            if not (isinstance(each, Mapping) and {"role", "content"} <= each.keys()):
                raise TypeError(
                    f"prompt must be messages with a role and content, got {each!r}"
                )
            text = each["content"]
            if not self.special and self._ids(text, True, begin=False) != self._ids(
                text, False, begin=False
            ):
                raise ValueError(
                    "prompt must not have the name of a special token in a message"
                )
        try:
            if not self._of_transformers:
                return [int(id) for id in self.tokenizer.chat(messages)]
            text = self.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # a template is a program that is not ours
            raise ValueError(
                f"prompt must be messages that the chat template takes: {error}"
            ) from error
        return self._ids(text, True, begin=False)

    def _decode(self, ids: list[int]) -> str:
        if not self._of_transformers:
            return str(self.tokenizer.decode(ids))
        return str(
            self.tokenizer.decode(
                ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )


class TextStream(Iterator[str]):
    """The pieces of a text, one for each round; a piece may be empty.

    ``completion`` tells at any time what there is so far: its text is the pieces
    joined. A stream is ended before its time by ``end(reason)``, which gives what was
    held back, or by ``close()``, which does not.
    """

    def __init__(
        self,
        rounds: Iterator[Round],
        decoder: Decoder,
        stops: tuple[str, ...],
        prompt_tokens: int,
        if_none: str,
    ) -> None:
        self._source = rounds
        self._decoder = decoder
        self._stops = stops
        self._prompt_tokens = prompt_tokens
        self._if_none = if_none
        self._closed = False
        self._finish_reason: str | None = None
        self._stop: str | None = None
        self._rounds: list[Round] = []
        self._tokens: list[int] = []
        self._ends: list[int] = []  # characters that are known after each token
        self._text = ""
        self._given = 0  # characters of it that were given out

    def __next__(self) -> str:
        if self._closed:
            raise StopIteration
        result = next(self._source, None)
        if result is None:
            self._finish_reason = self._if_none
            self.close()
            raise StopIteration
        for place, token in enumerate(result.emitted):
            self._tokens.append(token)
            self._read(self._decoder.feed([token]))
            self._ends.append(len(self._text))
            if self._stop is not None:
                result = _cut(result, place + 1)
                break
        if self._stop is None and result.finish_reason is not None:
            self._read(self._decoder.finish())
        self._rounds.append(result)
        self._finish_reason = "stop" if self._stop is not None else result.finish_reason
        if self._finish_reason is None:
            return self._give(len(self._text) - self._held())
        self.close()
        if self._stop is not None:
            needed = sum(end < len(self._text) for end in self._ends) + 1
            del self._tokens[needed if self._text else 0 :]
        return self._give(len(self._text))

    def end(self, reason: str) -> str:
        """No further round is made; ``reason`` becomes the finish reason.

        Returns the last piece: what might have become a stop string, and U+FFFD for
        half a character. Nothing where the stream has ended already.
        """
        if self._closed:
            return ""
        self.close()
        self._read(self._decoder.finish())
        self._finish_reason = "stop" if self._stop is not None else reason
        return self._give(len(self._text))

    def close(self) -> None:
        """No further round is made."""
        self._closed = True
        if hasattr(self._source, "close"):
            self._source.close()

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds so far."""
        return self._rounds

    @property
    def completion(self) -> Completion:
        """What there is so far."""
        return Completion(
            self._text[: self._given],
            tuple(self._tokens),
            self._prompt_tokens,
            self._finish_reason,
            self._stop,
            tuple(self._rounds),
        )

    def _read(self, text: str) -> None:
        """Add ``text``, and cut at the stop string that is complete first."""
        self._text += text
        found = []
        for stop in self._stops if text else ():
            at = self._text.find(stop, self._given)
            if at >= 0:
                found.append((at + len(stop), at, stop))
        if found:
            _, at, self._stop = min(found)
            self._text = self._text[:at]

    def _held(self) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        waiting = self._text[self._given :]
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(waiting)), 0, -1):
            if any(stop.startswith(waiting[-length:]) for stop in self._stops):
                return length
        return 0

    def _give(self, end: int) -> str:
        piece, self._given = self._text[self._given : end], end
        return piece


class Decoder(Protocol):
    """Turns ids into text as they come."""

    def feed(self, ids: Iterable[int]) -> str:
        """The text that ``ids`` complete."""

    def finish(self) -> str:
        """What is left at the end."""


class _WindowDecoder:
    """Pieces from a tokenizer that can only decode several ids at once.

    The ids since the text was last complete are decoded behind those before them,
    since many tokenizers spell the first token of a text in another way. What ends in
    U+FFFD may end in half a character, of which the last three at most wait.
    """

    def __init__(self, decode: Callable[[list[int]], str], prompt: list[int]) -> None:
        self._decode = decode
        self._before = prompt  # spelt in full already
        self._new: list[int] = []
        self._shown = decode(prompt)  # what is known of the text of both

    def feed(self, ids: Iterable[int]) -> str:
        self._new += ids
        return self._text(to_the_end=False)

    def finish(self) -> str:
        return self._text(to_the_end=True)

    def _text(self, to_the_end: bool) -> str:
        text = self._decode(self._before + self._new)
        waiting = 0 if to_the_end else _undecided(text)
        changed = waiting and not text.startswith(self._shown)
        if changed and len(self._new) < LONGEST_CHARACTER:
            return ""  # some spell what is before half a character by its bytes too
        end = len(text) - waiting
        piece = text[len(self._shown) : end]
        if not waiting:
            self._before = self._new if piece else self._before + self._new
            self._new = []
            self._shown = self._decode(self._before)
        else:
            self._shown += piece
            self._forget(text[len(self._shown) :])
        return piece

    def _forget(self, waiting: str) -> None:
        """Keep the last few ids alone, where a text that is none goes on and on."""
        if len(self._new) <= MOST_WAITING:
            return
        recent = self._new[-MOST_WAITING // 2 :]
        spelt = self._decode(recent)
        if spelt.endswith(waiting):
            self._before, self._new = [], recent
            self._shown = spelt.removesuffix(waiting)


def _undecided(text: str) -> int:
    """How many of the last characters may be bytes of one that is not complete."""
    ends = len(text) - len(text.rstrip(REPLACEMENT))
    return min(ends, LONGEST_CHARACTER - 1)


def _cut(result: Round, length: int) -> Round:
    """The round, ended by a stop string after ``length`` tokens."""
    accepted = min(result.accepted, length)
    path = None if result.path is None else result.path[:accepted]
    emitted = result.emitted[:length]
    return replace(
        result, emitted=emitted, accepted=accepted, path=path, finish_reason="stop"
    )


def _checked_stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else stop
    if not hasattr(stops, "__iter__"):
        raise TypeError(f"stop must be a string or several, got {stop!r}")
    stops = tuple(stops)
    for each in stops:
        if not isinstance(each, str):
            raise TypeError(f"stop must be strings, got {each!r}")
        if not each:
            raise ValueError("stop must not have an empty string")
        _check_unicode("stop", each)
    return stops


def _check_unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} must be encodable in UTF-8; character {error.start} is a lone "
            "surrogate"
        ) from None
