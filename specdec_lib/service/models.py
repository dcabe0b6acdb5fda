"""From what ``--model`` names to an engine."""

from __future__ import annotations

from pathlib import Path

from ..drafts import SuffixDraft
from ..engine import Engine
from ..llama.targets import TRANSFORMERS, kind_of
from ..pair import Pair, book_pair


def load_engine(
    model: str | None = None, *, compiled: bool = False, k: int = 4
) -> tuple[str, Engine]:
    """A name for the model and an engine of it.

    None is the book's n-gram pair, counted here in a moment; a file made by ``specdec
    train`` another pair; "smollm2" or a GGUF file a model of :mod:`specdec_lib.llama`;
    any other folder or name one of ``transformers``. These last ones guess by copying
    from the text. Raises what loading raises: OSError, ImportError, ValueError.
    """
    kind = None if model is None else kind_of(model)
    if model is None or kind is None:
        pair = book_pair() if model is None else Pair.load(model)
        name = "book" if model is None else Path(model).stem
        return name, Engine(pair.target, pair.tokenizer, pair.draft, k=k)
    name = Path(model).stem if Path(model).exists() else model
    if kind != TRANSFORMERS:
        from .. import llama

        llama_model, own = llama.load(model, compiled=compiled)
        return name, Engine(llama_model, own, SuffixDraft(), k=k)
    if compiled:
        raise ValueError(f"compiled is for GGUF files; transformers would run {model}")
    from .. import huggingface

    hf_model, theirs = huggingface.load(model)
    return name, Engine(hf_model, theirs, SuffixDraft(), k=k)
