"""Any causal language model of ``transformers`` as a target or a draft.

The model keeps keys and values of what it has read in a ``DynamicCache``; rewinding is
cropping that cache in every layer. The cache is always one that keeps every token:
where a layer attends to the last few only, its mask says so, and a rewind finds what
it needs.

Needs more than the core: ``pip install specdec_lib[hf]``.

>>> from specdec_lib import huggingface
>>> model, tokenizer = huggingface.load("gpt2")  # doctest: +SKIP
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .models import (
    check_count,
    check_parents,
    check_path,
    check_rewind,
    check_tokens,
    node_depths,
)
from .text import vocabulary_name

try:
    import torch
    import transformers
except ImportError as error:
    raise ImportError(
        f"this needs {error.name}: pip install 'specdec_lib[hf]'", name=error.name
    ) from error

Floats = NDArray[np.floating]

ROUNDINGS = 1000  # two ways to the same logits differ by no more of them


class HuggingFaceModel:
    """A causal language model of ``transformers``, loaded and in evaluation mode.

    model
        what ``AutoModelForCausalLM.from_pretrained`` gives, on any device.
    bos_id
        token that an empty prompt starts from; the configuration's where not given.
    context_window
        most tokens of a sequence; the configuration's where not given, and no limit
        where it has none.
    vocab_size
        use only so many ids, those of the tokenizer. Some models have more rows of
        logits than there are tokens, and two models of one tokenizer may differ there.
    vocabulary
        a name of what the ids stand for, as :func:`load` makes it of the tokenizer; a
        target takes no draft of another one. None: nobody said.

    Logits are float32, or float64 for a model of that type. To learn what the model
    can do, a few tokens are read at once: ``reads_trees`` is whether a tree of guesses
    takes one call. That is so in float32 and float64, where every layer sees all that
    came before, and the model takes a mask and positions; elsewhere a tree is read
    branch by branch.

    Where the model changes its rotary angles with the length of what it reads at once
    (RoPE scaling "dynamic" or "longrope"), ``transformers`` itself gives other logits
    token by token than at once, beyond the length from which it does so.

    Raises TypeError for what is no model of ``transformers``, and ValueError for one
    that is in training mode, not causal, or cannot be rewound (a state-space model).
    """

    def __init__(
        self,
        model: Any,
        *,
        bos_id: int | None = None,
        context_window: int | None = None,
        vocab_size: int | None = None,
        vocabulary: str | None = None,
    ) -> None:
        _check_model(model)
        if context_window is not None:
            check_count("context_window", context_window, 1)
        if vocab_size is not None:
            check_count("vocab_size", vocab_size, 1)
        self.model = model
        self.vocabulary = vocabulary
        config = model.config.get_text_config()
        taken = inspect.signature(model.forward).parameters
        # Versions differ in the name.
        self._cache_name = "cache" if "cache" in taken else "past_key_values"
        self._keeps_last = "logits_to_keep" in taken
        width = self._width()
        if vocab_size is not None and vocab_size > width:
            raise ValueError(
                f"vocab_size must be at most the model's {width}, got {vocab_size}"
            )
        self._vocab_size = vocab_size or width
        window = getattr(config, "max_position_embeddings", None)
        self._context_window: int | None = window
        if bos_id is None:
            own = getattr(config, "bos_token_id", None)
            if isinstance(own, int) and 0 <= own < self._vocab_size:
                bos_id = own
        else:
            check_tokens([bos_id], self._vocab_size, "bos_id")
        self._bos_id = bos_id
        self._check_contract()
        self.reads_trees = self._finds_trees_right()
        if context_window is not None:
            self._context_window = min(context_window, window or context_window)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def bos_id(self) -> int | None:
        return self._bos_id

    @property
    def context_window(self) -> int | None:
        return self._context_window

    def start(self) -> HuggingFaceState:
        """A new, empty sequence."""
        return (HuggingFaceTreeState if self.reads_trees else HuggingFaceState)(self)

    def __repr__(self) -> str:
        return f"<HuggingFaceModel: {type(self.model).__name__}, {self.vocab_size} ids>"

    def _width(self) -> int:
        """How many logits the model gives after a token."""
        try:
            with torch.no_grad():
                out = self.model(torch.tensor([[0]], device=self.model.device))
            return int(out.logits.shape[-1])
        except Exception as error:
            raise ValueError(
                "model must give logits for the tokens it reads, got "
                f"{type(self.model).__name__}, which fails: {error}"
            ) from error

    def _logits(
        self,
        tokens: Sequence[int],
        cache: Any,
        rows: int,
        positions: Sequence[int] | None = None,
        mask: Any = None,
    ) -> Floats:
        """One call of the model over ``tokens``, after what is in ``cache``; (rows, V).

        The cache grows by the tokens.
        """
        device = self.model.device
        options: dict[str, Any] = {self._cache_name: cache}
        if self._keeps_last:
            options["logits_to_keep"] = max(rows, 1)  # 0 means all of them
        if positions is not None:
            options["position_ids"] = torch.tensor([positions], device=device)
            options["attention_mask"] = mask
        with torch.no_grad():
            out = self.model(
                input_ids=torch.tensor([tokens], dtype=torch.long, device=device),
                use_cache=True,
                **options,
            )
            logits = out.logits[0, out.logits.shape[1] - rows :, : self._vocab_size]
            if logits.dtype != torch.float64:
                logits = logits.float()
            return np.array(logits.cpu().numpy())

    def _check_contract(self) -> None:
        """ValueError unless later tokens change no earlier row, and a rewind leaves
        nothing behind."""
        first, second, third = 0, self._vocab_size // 2, self._vocab_size - 1
        state = HuggingFaceState(self)
        name = type(self.model).__name__
        try:
            rows = state.extend([first, second, third])
            state.rewind(1)
            again = state.extend([third, second])
            state.rewind(1)
            whole = state.extend([second, third])
            fresh = HuggingFaceState(self).extend([first, third, second])
        except Exception as error:
            raise ValueError(
                "model must read on from a cache that can be cropped, which "
                f"{name} does not: {error}"
            ) from error
        if not self._same(rows[:1], fresh[:1]):
            raise ValueError(
                f"model must be causal, but {name} gives other logits for a token when "
                "what follows it is changed"
            )
        if not (self._same(again, fresh[1:]) and self._same(whole, rows[1:])):
            raise ValueError(
                f"model must forget what is rewound, but {name} gives other logits "
                "after a rewind than from scratch"
            )

    def _finds_trees_right(self) -> bool:
        """Whether a small tree gives the rows of its branches."""
        if self._precision() > torch.finfo(torch.float32).eps:
            return False  # rounding would hide a wrong mask
        if not _sees_everything(self.model.config.get_text_config()):
            return False
        first, second, third = 0, self._vocab_size // 2, self._vocab_size - 1
        state = HuggingFaceTreeState(self)
        try:
            state.extend([second, first])
            tokens, parents = [first, third, second, third, first], [-1, -1, 0, 1, 2]
            rows = state.extend_tree(tokens, parents)
            state.keep([1, 3])
            after = state.extend([second])
        except Exception:
            return False  # it takes no such mask
        branches = [first, second, first], [third, third, second]
        one, other = (
            HuggingFaceState(self).extend([second, first, *branch])[2:]
            for branch in branches
        )
        return self._same(rows[[0, 2, 4]], one) and self._same(
            np.concatenate([rows[[1, 3]], after]), other
        )

    def _same(self, a: Floats, b: Floats) -> bool:
        """Whether rows of logits are equal but for rounding."""
        bound = ROUNDINGS * self._precision() * np.abs(b).max()
        return bool(np.abs(a - b).max() <= bound)

    def _precision(self) -> float:
        """The relative rounding of a product; float32 may be told to round more."""
        dtype = self.model.dtype
        if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
            dtype = torch.float16
        return float(torch.finfo(dtype).eps)


class HuggingFaceState:
    """One sequence, by its tokens and the model's cache for them."""

    def __init__(self, model: HuggingFaceModel) -> None:
        self._model = model
        self._tokens: list[int] = []
        # None after a call that failed half-way: some layers may have read more than
        # others, so that all is read again.
        self._cache: Any = transformers.DynamicCache()

    @property
    def length(self) -> int:
        """Number of tokens read so far."""
        return len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> Floats:
        """Read ``tokens`` in one call of the model; return (len(tokens), V) logits."""
        return self.extend_last(tokens, len(tokens))

    def extend_last(self, tokens: Sequence[int], rows: int) -> Floats:
        """Read ``tokens``; return (rows, V), the logits after the last ``rows``.

        ValueError unless 0 <= rows <= len(tokens).
        """
        new = self._check(tokens, len(tokens))
        check_count("rows", rows)
        if rows > len(new):
            raise ValueError(f"rows must be at most {len(new)}, got {rows}")
        if not new:
            return self._read_nothing()
        logits = self._read(new, rows)
        self._tokens += new
        return logits

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, in every layer."""
        length = check_rewind(length, self.length)
        self._crop(self.length - length)
        del self._tokens[length:]

    def _check(self, tokens: Sequence[int], more: int) -> list[int]:
        """``tokens``, ids of the model, if ``more`` positions are left for them."""
        new: list[int] = check_tokens(tokens, self._model.vocab_size).tolist()
        window = self._model.context_window
        if window is not None and self.length + more > window:
            raise ValueError(
                f"tokens must fit the context window of {window}: "
                f"{self.length} read, {more} more given"
            )
        return new

    def _read(self, tokens: list[int], rows: int, **tree: Any) -> Floats:
        """One call of the model; the cache grows in every layer, or is given up."""
        cache, self._cache = self._cache, None
        if cache is None:
            cache = transformers.DynamicCache()
            if self._tokens:
                self._model._logits(self._tokens, cache, 0)
        logits = self._model._logits(tokens, cache, rows, **tree)
        self._cache = cache
        return logits

    def _read_nothing(self) -> Floats:
        dtype = self._model.model.dtype
        kind = np.float64 if dtype == torch.float64 else np.float32
        return np.empty((0, self._model.vocab_size), kind)

    def _crop(self, count: int) -> None:
        """Drop the last ``count`` entries of the cache."""
        if count and self._cache is not None:
            # A count below 0 is what older and newer versions understand alike.
            self._cache.crop(-count)


class HuggingFaceTreeState(HuggingFaceState):
    """The same where the model can read a tree of guesses in one call.

    Behind the sequence the cache holds the tree that was read last, or nothing.
    """

    def __init__(self, model: HuggingFaceModel) -> None:
        super().__init__(model)
        self._tree: list[int] = []
        self._parents: tuple[int, ...] = ()

    def extend_last(self, tokens: Sequence[int], rows: int) -> Floats:
        self._forget_tree()
        return super().extend_last(tokens, rows)

    def rewind(self, length: int) -> None:
        check_rewind(length, self.length)
        self._forget_tree()
        super().rewind(length)

    def extend_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Floats:
        """Read a tree of ``tokens`` in one call; return (len(tokens), V) logits.

        ``tokens[i]`` follows ``tokens[parents[i]]``, or the sequence where that is -1.
        ``length`` stays as it is until :meth:`keep`; any other call forgets the tree.
        """
        parents = check_parents(parents, len(tokens))
        depths = node_depths(parents)
        new = self._check(tokens, max(depths, default=0))
        self._forget_tree()
        if not new:
            return self._read_nothing()
        positions = [self.length - 1 + depth for depth in depths]
        logits = self._read(
            new, len(new), positions=positions, mask=self._mask(parents)
        )
        self._tree, self._parents = new, parents
        return logits

    def keep(self, nodes: Sequence[int]) -> None:
        """Append one path of the tree read last, and forget the rest of it.

        ``nodes`` are indices into its tokens, each the child of the one before, the
        first a child of -1. ValueError otherwise.
        """
        nodes = check_path(nodes, self._parents)
        old = torch.arange(self.length + len(nodes))
        old[self.length :] = torch.tensor([self.length + node for node in nodes])
        for layer in self._cache.layers if self._parents else ():
            if layer.get_seq_length():  # a layer may share those of another
                at = old.to(layer.keys.device)
                layer.keys = layer.keys.index_select(-2, at)
                layer.values = layer.values.index_select(-2, at)
        self._tokens += [self._tree[node] for node in nodes]
        self._tree, self._parents = [], ()

    def _mask(self, parents: tuple[int, ...]) -> Any:
        """(1, 1, n, length + n): 0 where a node may look, the least number elsewhere.

        A node sees the sequence, itself and the nodes that lead to it.
        """
        seen = np.zeros((len(parents), self.length + len(parents)), dtype=bool)
        seen[:, : self.length] = True
        for i, parent in enumerate(parents):
            if parent >= 0:
                seen[i] = seen[parent]
            seen[i, self.length + i] = True
        model = self._model.model
        least = torch.finfo(model.dtype).min
        mask = torch.zeros(seen.shape, dtype=model.dtype)
        return mask.masked_fill(~torch.from_numpy(seen), least)[None, None].to(
            model.device
        )

    def _forget_tree(self) -> None:
        self._crop(len(self._parents))
        self._tree, self._parents = [], ()


def load(
    name: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    gguf_file: str | None = None,
    bos_id: int | None = None,
    context_window: int | None = None,
    vocab_size: int | None = None,
    **options: Any,
) -> tuple[HuggingFaceModel, Any]:
    """A model and its tokenizer, by ``AutoModelForCausalLM`` and ``AutoTokenizer``.

    name
        a name on the Hugging Face hub, a folder, a GGUF file, or a model of
        :mod:`specdec_lib.llama` such as "smollm2", once it was fetched.
    dtype
        "float32" unless asked otherwise: in half precision the logits of several
        tokens at once and one by one differ enough to change greedy text.
    gguf_file
        the file inside that name or folder, as in ``from_pretrained``.
    bos_id, context_window, vocab_size
        as in :class:`HuggingFaceModel`.
    options
        are handed on to ``from_pretrained`` of the model, as ``device_map``,
        ``revision`` or ``attn_implementation``; ``revision``, ``token``,
        ``cache_dir``, ``local_files_only`` and ``trust_remote_code`` to that of the
        tokenizer too.

    What is not on this machine is fetched from the hub, by ``transformers``.
    """
    if not isinstance(dtype, str) or not isinstance(
        getattr(torch, dtype, None), torch.dtype
    ):
        raise ValueError(f"dtype must be the name of a type of torch, got {dtype!r}")
    where, gguf_file = _place(name, gguf_file)
    shared = {k: v for k, v in options.items() if k in SHARED}
    if gguf_file is not None:
        shared["gguf_file"] = gguf_file
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, **shared)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        where, dtype=getattr(torch, dtype), **{**options, **shared}
    )
    ours = HuggingFaceModel(
        model.eval(),
        bos_id=bos_id if bos_id is not None else tokenizer.bos_token_id,
        context_window=context_window,
        vocab_size=vocab_size,
        vocabulary=_name(tokenizer),
    )
    return ours, tokenizer


SHARED = ("revision", "token", "cache_dir", "local_files_only", "trust_remote_code")


def _place(
    name: str | os.PathLike[str], gguf_file: str | None
) -> tuple[str, str | None]:
    """What ``from_pretrained`` is given: the name or folder, and the GGUF file."""
    from .llama import fetch

    if os.fspath(name) in fetch.MODELS:
        path = fetch.find(name)
    else:
        path = Path(name).expanduser()
    if gguf_file is None and path.suffix == ".gguf":
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        return str(path.parent), path.name
    return (str(path) if path.exists() else os.fspath(name)), gguf_file


def _name(tokenizer: Any) -> str | None:
    """What names the tokens; the same as of a GGUF file with the same ones."""
    if not hasattr(tokenizer, "get_vocab"):
        return None
    ids = tokenizer.get_vocab()
    return vocabulary_name(sorted(ids, key=ids.__getitem__))


def check_same_vocabulary(a: Any, b: Any) -> None:
    """ValueError that names a difference, unless two tokenizers have the same tokens.

    A draft guesses ids, so that the same id must mean the same text to draft and
    target; an equal number of ids does not show that. ``a`` and ``b`` are tokenizers
    with ``get_vocab()``, as those of ``transformers``.
    """
    for name, each in (("a", a), ("b", b)):
        if not hasattr(each, "get_vocab"):
            raise TypeError(f"{name} must be a tokenizer with get_vocab, got {each!r}")
    mine, other = a.get_vocab(), b.get_vocab()
    differing = mine.items() ^ other.items()
    if differing:
        text, _ = min(differing, key=lambda item: (item[1], item[0]))
        raise ValueError(
            f"a and b must have the same tokens, got {len(mine)} and {len(other)}; "
            f"the first that differs is {text!r}, id {mine.get(text)} in a and "
            f"{other.get(text)} in b"
        )


def _check_model(model: Any) -> None:
    """TypeError or ValueError unless this can be a causal model in evaluation mode."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise TypeError(
            f"model must be a causal language model of transformers, got {model!r:.80}"
        )
    name = type(model).__name__
    if model.training:
        raise ValueError(
            "model must be in evaluation mode, or dropout makes its logits random: "
            "call model.eval()"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(
            f"model must be a decoder alone, got {name}, which has an encoder too"
        )
    if getattr(model, "_is_stateful", False):
        raise ValueError(
            f"model must be one that can be rewound, but {name} keeps a running state "
            "in place of each token's keys and values"
        )


def _sees_everything(config: Any) -> bool:
    """Whether no layer is limited to the last few tokens.

    A tree's mask takes the place of the model's own, which is where such limits are.
    """
    kinds = getattr(config, "layer_types", None) or getattr(
        config, "attention_layers", None
    )
    if kinds is not None:
        return all(kind in ("full_attention", "global") for kind in kinds)
    limits = ("sliding_window", "attention_chunk_size", "window_size")
    return all(getattr(config, name, None) is None for name in limits)
