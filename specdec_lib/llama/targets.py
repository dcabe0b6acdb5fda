"""A model by its name, with what is needed to talk to it: of ours, or transformers'."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from ..models import LanguageModel
from ..text import StreamDecoder
from . import fetch, load
from .answers import vocabulary_name
from .gguf_file import MAGIC

LLAMA, TRANSFORMERS = "llama", "transformers"
# What may be a name on the Hugging Face hub, rather than a file that is missing.
HUB_NAME = re.compile(r"[\w-]+|\w[\w.-]*/\w[\w.-]*(?<!\.npz)(?<!\.gguf)", re.ASCII)

Messages = Sequence[Mapping[str, str]]


class Decoder(Protocol):
    """Turns ids into text as they come, as :class:`specdec_lib.text.StreamDecoder`."""

    def feed(self, ids: Iterable[int]) -> str: ...

    def finish(self) -> str: ...


@dataclass(frozen=True)
class Target:
    """A model, and how text becomes its tokens and comes back.

    model
        the language model.
    encode
        encode(text or messages, chat) -> ids: in the chat template, if ``chat`` and
        there is one; else the text as it is, or the contents of the messages.
    decoder
        a new decoder of a stream of ids.
    stop_ids
        what ends an answer.
    vocabulary
        a name of the tokens, see :func:`.answers.vocabulary_name`.
    """

    model: LanguageModel
    encode: Callable[[str | Messages, bool], list[int]]
    decoder: Callable[[], Decoder]
    stop_ids: tuple[int, ...]
    vocabulary: str


def kind_of(name: str | os.PathLike[str] | None) -> str | None:
    """Whose model a name is: "llama", "transformers", or None for a saved pair.

    A GGUF file and the models of ``specdec models list`` are read by our own code; a
    folder, and a name on the Hugging Face hub, by transformers.
    """
    if name is None:
        return None
    name = os.fspath(name)
    if name in fetch.MODELS or name.lower().endswith(".gguf"):
        return LLAMA
    path = Path(name).expanduser()
    if path.is_dir():
        return TRANSFORMERS
    if path.is_file():
        with open(path, "rb") as file:
            return LLAMA if file.read(len(MAGIC)) == MAGIC else None
    if fetch.is_here(name):
        return LLAMA
    return TRANSFORMERS if HUB_NAME.fullmatch(name) else None


def load_target(name: str | os.PathLike[str], *, compiled: bool = False) -> Target:
    """The model of that name.

    ``compiled`` as in :func:`specdec_lib.llama.load`. Raises FileNotFoundError or
    OSError for a model that is not here, ImportError naming the extra for a package
    that is not, ValueError for what is no such model, and for ``compiled`` with a model
    of transformers.
    """
    if kind_of(name) != TRANSFORMERS:
        return _llama(name, compiled)
    if compiled:
        raise ValueError(
            f"compiled is for GGUF files; {name} would be run by transformers"
        )
    return _transformers(os.fspath(name))


def _llama(name: str | os.PathLike[str], compiled: bool) -> Target:
    model, tokenizer = load(name, compiled=compiled)

    def encode(text: str | Messages, chat: bool) -> list[int]:
        if chat and tokenizer.chat_template is not None:
            prompt: list[int] = tokenizer.chat(text).tolist()
            return prompt
        ids: list[int] = tokenizer.encode(_as_text(text)).tolist()
        if tokenizer.bos_id is not None and (tokenizer.add_bos or not ids):
            ids.insert(0, tokenizer.bos_id)
        return ids

    return Target(
        model,
        encode,
        lambda: StreamDecoder(tokenizer),
        tokenizer.stop_ids,
        vocabulary_name(tokenizer.pieces(range(tokenizer.vocab_size))),
    )


def _transformers(name: str) -> Target:
    folder = Path(name).expanduser()
    if folder.is_dir() and not (folder / "config.json").exists():
        raise FileNotFoundError(
            f"the folder {name} holds no config.json, so no model of transformers; "
            "a GGUF file in it is named with its path"
        )
    meant = get_close_matches(name, [*fetch.MODELS, *fetch.others()], 1)
    if meant and not folder.exists():  # before it is asked for in all the world
        raise FileNotFoundError(
            f"there is no file {name}, and no model of that name; "
            f"did you mean {meant[0]}?"
        )
    try:
        import transformers

        from .. import huggingface
    except ImportError as error:
        raise ImportError(
            f"{_not_here(name)}with transformers it needs {error.name}: "
            "pip install 'specdec_lib[hf]'",
            name=error.name,
        ) from error
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
    try:
        if folder.exists():
            model, tokenizer = huggingface.load(name)
        else:
            try:
                model, tokenizer = huggingface.load(name, local_files_only=True)
            except OSError:  # transformers tries for a minute where there is no network
                fetch.check_hub(name)
                model, tokenizer = huggingface.load(name)
    except (OSError, ValueError) as error:
        first = str(error).strip().split("\n")[0]
        raise OSError(
            f"{_not_here(name)}transformers cannot load it: {first}"
        ) from error

    def encode(text: str | Messages, chat: bool) -> list[int]:
        if chat and tokenizer.chat_template is not None:
            if isinstance(text, str):
                text = [{"role": "user", "content": text}]
            prompt = tokenizer.apply_chat_template(
                list(text), add_generation_prompt=True, tokenize=False
            )
            return list(tokenizer(prompt, add_special_tokens=False).input_ids)
        ids = list(tokenizer(_as_text(text)).input_ids)
        return ids or ([] if model.bos_id is None else [model.bos_id])

    stops = {tokenizer.eos_token_id}
    settings = getattr(model.model, "generation_config", None)
    more = getattr(settings, "eos_token_id", None)
    stops.update(more if isinstance(more, list) else [more])
    vocabulary = tokenizer.get_vocab()
    return Target(
        model,
        encode,
        lambda: _Decoder(tokenizer),
        tuple(sorted(id for id in stops if id is not None)),
        vocabulary_name(sorted(vocabulary, key=vocabulary.__getitem__)),
    )


def _not_here(name: str) -> str:
    """How an error about a name begins."""
    if Path(name).expanduser().exists():
        return ""
    known = ", ".join([*fetch.MODELS, *fetch.others()])
    return f"there is no file {name}, and no model of that name among {known}; "


def _as_text(text: str | Messages) -> str:
    if isinstance(text, str):
        return text
    return "\n\n".join(each["content"] for each in text)


class _Decoder:
    """The same with any tokenizer of transformers: by decoding all so far."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._given = 0

    def feed(self, ids: Iterable[int]) -> str:
        self._ids += ids
        return self._more(self._text().rstrip("\ufffd"))  # a begun character waits

    def finish(self) -> str:
        return self._more(self._text())

    def _text(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))

    def _more(self, text: str) -> str:
        new, self._given = text[self._given :], max(self._given, len(text))
        return new
