"""Speculative decoding, built from scratch.

The library behind the book of that name. Its core needs NumPy alone:

    randomness    the only two random acts, and their exact enumeration
    sampling      logits to probabilities
    files         files that are written whole or not at all
    prompts       requests for a real model, grounded and open
    text          tokenizer and corpora
    models        what a language model is
    ngram         n-gram language models (their tables: ngram_tables)
    pair          the tokenizer, target and draft that the book uses
    drafts        what a draft is; models, copies, mixtures and trees that guess
    verification  accept or reject
    metrics       every figure, defined once
    decoding      the loop
    engine        text in, text out: stop strings, pieces as they come
    theory        the closed forms
    draft_length  rules that choose how many guesses to draft
    comparison    plain and speculative decoding, timed fairly
    workers       work shared out over processes, none of it lost
    records       results on disk, and how far they can be trusted
    experiments   sweeps over k, temperature, drafts, prompts and seeds
    exercises     graders for what readers write themselves

Beside it, imported only when asked for: llama, a real language model in NumPy, which
needs the extra ``llm``; huggingface, any causal model of transformers, which needs the
extra ``hf`` (as attributes these two are imported when first named); plots and widgets,
which need matplotlib, ipywidgets and anywidget; bench, fair timing and a gate that
finds what became slower; scale, sweeps on all cores or on Ray (extra ``scale``);
tracking, runs kept in MLflow (extra ``track``); service, the engine behind HTTP, which
needs the extra ``serve``; and cli, the command line.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from . import exercises, theory, verification
from .decoding import Generation, generate, stream
from .draft_length import (
    Calibration,
    PayingLength,
    RecentAcceptance,
    TrueChance,
    UpAndDown,
)
from .drafts import (
    CacheModel,
    FirstOf,
    ModelDraft,
    PromptLookup,
    Proposal,
    SuffixAutomaton,
    SuffixDraft,
    SuffixHistory,
    TreeDraft,
    tree_shape,
)
from .engine import Completion, Engine, TextStream
from .metrics import Metrics, Round
from .models import FunctionModel
from .ngram import NGramModel
from .pair import Pair, book_pair, train_pair
from .randomness import SeededRandom, exact_distribution
from .sampling import LogitBias, RepetitionPenalty, Sampler
from .text import Tokenizer
from .verification import (
    Verdict,
    residual,
    verify_block,
    verify_tokens,
    verify_tree,
)

if TYPE_CHECKING:
    from . import huggingface as huggingface
    from . import llama as llama

__version__ = "0.1.0"

__all__ = [
    "CacheModel",
    "Calibration",
    "Completion",
    "Engine",
    "FirstOf",
    "FunctionModel",
    "Generation",
    "LogitBias",
    "Metrics",
    "ModelDraft",
    "NGramModel",
    "Pair",
    "PayingLength",
    "PromptLookup",
    "Proposal",
    "RecentAcceptance",
    "RepetitionPenalty",
    "Round",
    "Sampler",
    "SeededRandom",
    "SuffixAutomaton",
    "SuffixDraft",
    "SuffixHistory",
    "TextStream",
    "Tokenizer",
    "TreeDraft",
    "TrueChance",
    "UpAndDown",
    "Verdict",
    "book_pair",
    "exact_distribution",
    "exercises",
    "generate",
    "residual",
    "stream",
    "theory",
    "train_pair",
    "tree_shape",
    "verification",
    "verify_block",
    "verify_tokens",
    "verify_tree",
]

_WHEN_NAMED = ("huggingface", "llama")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> ModuleType:
        """The parts that need more than the core, imported when they are asked for.

        ImportError names the extra where a package is missing.
        """
        if name in _WHEN_NAMED:
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_WHEN_NAMED})
