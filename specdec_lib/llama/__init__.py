"""A real language model in NumPy: a Llama, from the file to the text.

    gguf_file     what is in a GGUF file
    quantised     weights of few bits
    config        the sizes of a Llama, and its weights
    reading       from the file to these
    linear        the one product that takes all the time
    forward       from tokens to logits, in functions of a few lines
    model         the same as a language model: start, extend, rewind, trees
    template      chat templates, run within bounds
    tokenizer     text to ids and back, chat template
    fetch         where the files of weights come from
    answers       what a model answered before, to copy guesses from
    targets       a model by its name, with its tokenizer; also those of transformers
    command       what ``specdec generate`` and ``specdec models`` do

Needs more than the core: ``pip install specdec_lib[llm]``.

>>> from specdec_lib import llama
>>> model, tokenizer = llama.load("smollm2")  # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .config import Config, Layer, Weights
from .fetch import find
from .model import LlamaModel, LlamaState

if TYPE_CHECKING:
    from .tokenizer import LlamaTokenizer

__all__ = [
    "Config",
    "Layer",
    "LlamaModel",
    "LlamaState",
    "Weights",
    "load",
]


def load(
    name: str | os.PathLike[str], *, dtype: Any = np.float32, compiled: bool = False
) -> tuple[LlamaModel, LlamaTokenizer]:
    """A model and its tokenizer, from a file of weights on this machine.

    name
        "smollm2", once ``specdec models get smollm2`` has fetched it, another name of
        ``specdec models list``, or the path of any GGUF file of the Llama architecture.
    dtype
        float32, or float64 where rounding has to be out of the way.
    compiled
        keep the weights as the few bits they are in the file, and multiply by the
        compiled kernel: faster, and the same but for rounding. Needs float32 and
        ``pip install specdec_lib[fast]``.

    Nothing is fetched. Raises FileNotFoundError for a model that is not here,
    ImportError for a package that is not, and ValueError for a file that is broken, of
    another architecture, or with weights that are NaN or infinite.
    """
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    if compiled and dtype != np.float32:
        raise ValueError(f"dtype must be float32 where compiled, got {dtype}")
    path = find(name)
    try:
        if compiled:
            from . import kernel  # noqa: F401  (what it needs is asked for first)
        import threadpoolctl  # noqa: F401  (used by linear)

        from .gguf_file import GGUFFile
        from .reading import check_finite, read_config, read_weights
        from .tokenizer import LlamaTokenizer
    except ImportError as error:
        extra = "fast" if error.name == "numba" else "llm"
        raise ImportError(
            f"this needs {error.name}: pip install 'specdec_lib[{extra}]'",
            name=error.name,
        ) from error
    file = GGUFFile(path)
    config = read_config(file)
    tokenizer = LlamaTokenizer.from_file(file)
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, "
            f"the embedding {config.vocab_size}"
        )
    weights = read_weights(file, config, dtype, compiled=compiled)
    model = LlamaModel(
        config, weights, bos_id=tokenizer.bos_id, vocabulary=tokenizer.vocabulary
    )
    check_finite(file, model)  # also compiles, or takes what was compiled before
    return model, tokenizer
