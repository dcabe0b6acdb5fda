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
    theory        the closed forms
    draft_length  rules that choose how many guesses to draft
    comparison    plain and speculative decoding, timed fairly
    records       results on disk, and how far they can be trusted
    experiments   sweeps over k, temperature, drafts, prompts and seeds

Beside it, imported only when asked for: llama, a real language model in NumPy, which
needs the extra ``llm``; huggingface, any causal model of transformers, which needs the
extra ``hf``; plots and widgets, which need matplotlib, ipywidgets and anywidget; and
cli, the command line.
"""

from . import theory, verification
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

__version__ = "0.1.0"

__all__ = [
    "CacheModel",
    "Calibration",
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
    "Tokenizer",
    "TreeDraft",
    "TrueChance",
    "UpAndDown",
    "Verdict",
    "book_pair",
    "exact_distribution",
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
