"""Speculative decoding, built from scratch.

The library behind the book of that name. Its core needs NumPy alone:

    randomness    the only two random acts, and their exact enumeration
    sampling      logits to probabilities
    text          tokenizer and corpora
    models        what a language model is
    ngram         n-gram language models
    drafts        what a draft is
    verification  accept or reject
    metrics       every figure, defined once
    decoding      the loop
    theory        the closed forms
"""

from . import theory, verification
from .decoding import Generation, generate, stream
from .drafts import ModelDraft, Proposal
from .metrics import Metrics, Round
from .models import FunctionModel
from .randomness import SeededRandom, exact_distribution
from .sampling import LogitBias, RepetitionPenalty, Sampler
from .verification import Verdict, residual, verify_tokens

__version__ = "0.1.0"

__all__ = [
    "FunctionModel",
    "Generation",
    "LogitBias",
    "Metrics",
    "ModelDraft",
    "Proposal",
    "RepetitionPenalty",
    "Round",
    "Sampler",
    "SeededRandom",
    "Verdict",
    "exact_distribution",
    "generate",
    "residual",
    "stream",
    "theory",
    "verification",
    "verify_tokens",
]
