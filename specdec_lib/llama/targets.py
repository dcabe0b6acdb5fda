"""A model by its name, with what is needed to talk to it: of ours, or transformers'."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from ..engine import Engine, Message
from ..models import LanguageModel
from ..text import vocabulary_name
from . import fetch, load
from .gguf_file import MAGIC

LLAMA, TRANSFORMERS = "llama", "transformers"
# What may be a name on the Hugging Face hub, rather than a file that is missing.
HUB_NAME = re.compile(r"[\w-]+|\w[\w.-]*/\w[\w.-]*(?<!\.npz)(?<!\.gguf)", re.ASCII)


@dataclass(frozen=True)
class Target:
    """A model by its name.

    engine
        it and its tokenizer; special tokens in a prompt are read as such.
    vocabulary
        a name of the tokens, see :func:`specdec_lib.text.vocabulary_name`.
    """

    engine: Engine
    vocabulary: str

    @property
    def model(self) -> LanguageModel:
        """The language model."""
        return self.engine.target

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """What ends an answer."""
        return self.engine.stop_ids

    def encode(self, text: str | Sequence[Message], chat: bool) -> list[int]:
        """The ids of a text or messages: in the chat template, if ``chat`` and there
        is one; else the text as it is, or the contents of the messages."""
        if chat and self.engine.has_chat:
            return replace(self.engine, chat=True).encode(text)
        if not isinstance(text, str):
            text = "\n\n".join(each["content"] for each in text)
        return self.engine.encode(text)


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
    if path.exists():  # a pipe, say, of which reading it tells
        return None
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
    return Target(
        Engine(model, tokenizer, special=True),
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
    vocabulary = tokenizer.get_vocab()
    return Target(
        Engine(model, tokenizer, special=True),
        vocabulary_name(sorted(vocabulary, key=vocabulary.__getitem__)),
    )


def _not_here(name: str) -> str:
    """How an error about a name begins."""
    if Path(name).expanduser().exists():
        return ""
    known = ", ".join([*fetch.MODELS, *fetch.others()])
    return f"there is no file {name}, and no model of that name among {known}; "
