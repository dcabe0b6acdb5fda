"""The sweeps that ``specdec sweep`` can be asked for, as importable functions.

Each takes plain values alone, so that a recipe of one is some hundred bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..drafts import PromptLookup, SuffixDraft
from ..experiments import Sweep, cut_prompts, sample_prompts
from ..pair import Pair, train_pair
from ..prompts import load_prompts
from ..sampling import Sampler
from ..text import load_corpus, read_corpus
from ..verification import verify_block, verify_tokens

RULES = {"tokens": verify_tokens, "block": verify_block}
COPIES = {"lookup": PromptLookup, "suffix": SuffixDraft}
ORDERS = range(1, 9)


def pair_sweep(
    *,
    model: str | None = None,
    corpus: str | None = None,
    training: Mapping[str, Any] | None = None,
    drafts: Sequence[str] = ("model",),
    text: str | None = None,
    prompts: int = 24,
    prompt_tokens: int = 16,
    top_k: int | None = None,
    top_p: float | None = None,
    rule: str = "tokens",
    **settings: Any,
) -> Sweep:
    """A sweep over n-gram models.

    model
        file of a pair; None: one is trained.
    corpus, training
        file or folder to train on, the text that ships where None; and keyword
        arguments of :func:`specdec_lib.train_pair`.
    drafts
        "model", the pair's own; "order-1" to "order-8", trained on the same text;
        "lookup" and "suffix", copies from the text so far.
    text, prompts, prompt_tokens
        so many pieces of so many tokens, cut from the text at this path. Where it is
        None: from that held out of the text that ships, and for a text or a model of
        your own, written by the target.
    top_k, top_p
        of :class:`specdec_lib.Sampler`.
    rule
        "tokens" or "block".
    settings
        others of :class:`specdec_lib.experiments.Sweep`.

    Raises ValueError for a draft that there is not, and what reading and training do.
    """
    training = dict(training or {})
    texts: list[str] = []
    if model is None:
        own = read_corpus(corpus) if corpus else load_corpus().train
        texts = own.texts
    _check_drafts(drafts, model)
    pair = Pair.load(model) if model else train_pair(texts, **training)
    made: dict[str, Any] = {}
    for name in drafts:
        if name in COPIES:
            made[name] = COPIES[name]()
        elif name == "model":
            made[name] = pair.draft
        else:
            order = int(name.removeprefix("order-"))
            made[name] = train_pair(texts, **training | {"draft_order": order}).draft
    sampler = Sampler(1.0, top_k, top_p)
    if text is None and (model or corpus):
        starts = sample_prompts(
            pair.target, count=prompts, length=prompt_tokens, sampler=sampler
        )
    else:
        source = read_corpus(text) if text else load_corpus().held_out
        documents = {
            d.name: pair.tokenizer.encode(d.text).tolist() for d in source.documents
        }
        try:
            starts = cut_prompts(documents, count=prompts, length=prompt_tokens)
        except ValueError as error:
            raise ValueError(f"text {text or 'that ships'}: {error}") from None
    return Sweep(
        pair.target, made, starts, sampler=sampler, verify=RULES[rule], **settings
    )


def _check_drafts(names: Iterable[str], model: str | None) -> None:
    orders = [f"order-{n}" for n in ORDERS] if model is None else []
    there = ["model", *COPIES, *orders]
    for name in names:
        if name not in there:
            raise ValueError(f"draft must be one of {', '.join(there)}, got {name}")


def real_sweep(
    *,
    model: str,
    compiled: bool = False,
    drafts: Sequence[str] = ("suffix",),
    kind: str | None = None,
    prompts: int = 24,
    top_k: int | None = None,
    top_p: float | None = None,
    rule: str = "tokens",
    **settings: Any,
) -> Sweep:
    """A sweep over a real model, on the requests that ship, in its chat template.

    model
        "smollm2", a GGUF file, or for ``transformers`` a folder or a name.
    drafts
        "lookup", "suffix", or the name of another model with the same tokens.
    kind, prompts
        so many requests of a kind of :func:`specdec_lib.prompts.load_prompts`; of all
        kinds where None.

    Other arguments as in :func:`pair_sweep` and :func:`specdec_lib.llama.load`, which
    says what is raised where a model is not here.
    """
    from ..llama.targets import load_target

    every = load_prompts(kind)
    if prompts > len(every):
        raise ValueError(f"prompts must be {len(every)} or less, got {prompts}")
    some = [every[i * len(every) // prompts] for i in range(prompts)]
    target = load_target(model, compiled=compiled)
    made: dict[str, Any] = {}
    for name in drafts:
        if name in COPIES:
            made[name] = COPIES[name]()
            continue
        draft = load_target(name, compiled=compiled)
        if draft.vocabulary != target.vocabulary:
            raise ValueError(
                f"draft must have the tokens of {model}, {name} has others"
            )
        made[name] = draft.model
    return Sweep(
        target.model,
        made,
        {each.name: tuple(target.encode(each.messages, True)) for each in some},
        sampler=Sampler(1.0, top_k, top_p),
        verify=RULES[rule],
        stop_ids=target.stop_ids,
        **settings,
    )
