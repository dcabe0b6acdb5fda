"""From what ``--model`` names to an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..comparison import SIZES, measure_cost_curve
from ..decoding import DraftLength
from ..draft_length import copies_that_pay
from ..drafts import Draft, SuffixDraft
from ..engine import Engine
from ..llama.targets import kind_of, load_target
from ..models import LanguageModel
from ..pair import Pair, book_pair

PAIR_K = 4
CONTEXT = 128  # tokens before the calls that are timed


def load_engine(
    model: str | None = None, *, compiled: bool = False, k: int | None = None
) -> tuple[str, Engine]:
    """A name for the model and an engine of it.

    None is the book's n-gram pair, counted here in a moment; a file made by ``specdec
    train`` another pair; "smollm2" or a GGUF file a model of :mod:`specdec_lib.llama`;
    any other folder or name one of ``transformers``. These last ones guess by copying
    from the text: ``k`` tokens a round, or, where that is None, as many as pay by what
    a call costs here and now, which takes a moment to measure. Pairs guess 4.

    Raises what loading raises: OSError, ImportError, ValueError.
    """
    if model is None or kind_of(model) is None:
        if compiled:
            raise ValueError("compiled is for GGUF files, not for a pair of n-grams")
        pair = book_pair() if model is None else Pair.load(model)
        name = "book" if model is None else Path(model).stem
        length = PAIR_K if k is None else k
        return name, Engine(pair.target, pair.tokenizer, pair.draft, k=length)
    name = Path(model).stem if Path(model).exists() else model
    engine = load_target(model, compiled=compiled).engine
    draft, copied = _copies(engine.target, k)
    # A prompt from others is letters, whatever it says.
    return name, replace(engine, draft=draft, k=copied, special=False)


def _copies(model: LanguageModel, k: int | None) -> tuple[Draft, int | DraftLength]:
    window = model.context_window
    if k is not None or (window is not None and window <= SIZES[-1]):
        return SuffixDraft(), PAIR_K if k is None else k
    context = CONTEXT if window is None else min(CONTEXT, window - SIZES[-1])
    curve = measure_cost_curve(model, context=context, repeats=3)
    return copies_that_pay(curve, max_k=SIZES[-1] - 1)
