"""N-gram language models: count, smooth, back off.

A model of order n predicts a token from at most the n - 1 tokens before it, its
*context*. The counts stand in the sorted tables of ``ngram_tables``.

A smoothing turns the counts of one context into weights and one back-off weight:

    p(t | context) = weight(t) + backoff * p(t | shorter context)

down to the empty context, whose shorter neighbour is the uniform distribution.
(Stupid back-off uses the second term only where the first is missing.)

Sequences. Each sequence given to ``fit`` begins with one ``bos_id``, put there if it is
missing, and ends with one ``eos_id``, put there if it is missing; where an id is None
nothing is put. ``bos_id`` is context only: it is never predicted, its probability is 0.
Inside a sequence it begins a new one: no context reaches back over it. Without a
``bos_id`` the beginning is still a context of its own, but one that nobody can ask for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .files import parse_json, read_archive, write_archive
from .models import check_parents, check_path, check_rewind, check_tokens
from .ngram_tables import (
    Ints,
    Table,
    continuation_counts,
    count_ngrams,
    merge,
    name_arrays,
    position,
    read_tables,
    tally,
)

Floats = NDArray[np.float64]

MAX_ORDER = 8
MAX_ADD_K = 1e100  # times a vocabulary it is still a number
MIN_BACKOFF = 1e-30  # to the power of MAX_ORDER it is still above 0
SMOOTHINGS = ("add-k", "jelinek-mercer", "kneser-ney", "stupid-backoff")
FORMAT, VERSION = "specdec n-gram model", 1


# ---- settings


@dataclass(frozen=True)
class Settings:
    """What a model was asked to be; checked when made. See ``NGramModel.fit``."""

    order: int
    vocab_size: int
    smoothing: str = "kneser-ney"
    bos_id: int | None = None
    eos_id: int | None = None
    add_k: float = 1.0
    interpolation: float | tuple[float, ...] = 0.75
    backoff: float = 0.4
    discounts: tuple[tuple[float, ...], ...] | None = None
    vocabulary: str | None = None

    def __post_init__(self) -> None:
        _check_int("order", self.order, 1, MAX_ORDER)
        _check_int("vocab_size", self.vocab_size, 1, 2**31 - 1)
        for name in ("bos_id", "eos_id"):
            if getattr(self, name) is not None:
                _check_int(name, getattr(self, name), 0, self.vocab_size - 1)
        if not isinstance(self.vocabulary, str | None):
            raise TypeError(f"vocabulary must be a string, got {self.vocabulary!r:.60}")
        if self.bos_id is not None and self.bos_id == self.eos_id:
            raise ValueError(f"bos_id and eos_id must differ, both are {self.bos_id}")
        if self.bos_id is not None and self.vocab_size == 1:
            raise ValueError("vocab_size must be 2 or more beside bos_id, got 1")
        if self.smoothing not in SMOOTHINGS:
            raise ValueError(
                f"smoothing must be one of {', '.join(SMOOTHINGS)}; "
                f"got {self.smoothing!r}"
            )
        add_k = _floats("add_k", self.add_k)
        if add_k.shape != () or not 0 < add_k <= MAX_ADD_K:
            raise ValueError(
                f"add_k must be one number in (0, {MAX_ADD_K:g}], got {self.add_k}"
            )
        backoff = _floats("backoff", self.backoff)
        if backoff.shape != () or not MIN_BACKOFF <= backoff <= 1:
            raise ValueError(
                f"backoff must be one number in [{MIN_BACKOFF:g}, 1], "
                f"got {self.backoff}"
            )
        mix = _floats("interpolation", self.interpolation)
        if mix.shape not in ((), (self.order,)) or not ((mix >= 0) & (mix < 1)).all():
            raise ValueError(
                "interpolation must be one number in [0, 1), or one for each of the "
                f"{self.order} orders; got {self.interpolation}"
            )
        if self.discounts is not None:
            given = _floats("discounts", self.discounts)
            fits = given.shape == (self.order, 3)
            if not fits or not ((given >= 0) & (given <= [1, 2, 3])).all():
                raise ValueError(
                    f"discounts must be {self.order} triples (D1, D2, D3+), "
                    f"0 <= Di <= i; got {self.discounts}"
                )


def _check_int(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be inside {low} .. {high}, got {value}")


def _floats(name: str, value: Any) -> Floats:
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be made of numbers, got {value!r}") from None


def _plain(value: Any) -> Any:
    """Arrays, lists and NumPy scalars as nested tuples of Python numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


# ---- sequences


def _join(sequences: Iterable[ArrayLike], settings: Settings) -> Ints:
    """One text of all sequences, each between its boundary and its ``eos_id``."""
    bodies = []
    for i, sequence in enumerate(sequences):
        try:
            body = np.asarray(sequence)
        except ValueError:
            raise TypeError(f"sequences[{i}] must be integers, got lists") from None
        if body.ndim != 1 or body.size == 0 or body.dtype.kind not in "iu":
            check_tokens(body, settings.vocab_size, f"sequences[{i}]")
            raise ValueError(f"sequences[{i}] must hold at least one token, got none")
        bodies.append(body.astype(np.int64, copy=False))
    if not bodies:
        raise ValueError("sequences must hold at least one sequence, got none")
    text = check_tokens(np.concatenate(bodies), settings.vocab_size, "sequences")
    ends = np.cumsum([len(body) for body in bodies])
    starts = np.concatenate(([0], ends[:-1]))
    boundary = _boundary(settings)
    at = starts[text[starts] != boundary]
    put = np.full(len(at), boundary)
    if settings.eos_id is not None:
        closing = ends[text[ends - 1] != settings.eos_id]
        at = np.concatenate((closing, at))
        put = np.concatenate((np.full(len(closing), settings.eos_id), put))
    text = np.insert(text, at, put)
    if (text == boundary).all():
        raise ValueError("sequences must hold a token besides bos_id, got none")
    return text


def _boundary(settings: Settings) -> int:
    """What begins a sequence: ``bos_id``, or else an id just outside the vocabulary."""
    return settings.vocab_size if settings.bos_id is None else settings.bos_id


# ---- Kneser-Ney


def _estimate_discounts(count: Ints) -> list[float]:
    """D1, D2, D3+ from the counts of counts (Chen and Goodman 1999, eq. 26).

    Where the text is too small to give them: 0.5, 1, 1.5, as KenLM's fall-back.
    """
    n = tally(np.minimum(count, 5), 6).astype(float)
    if not n[1:4].all():
        return [0.5, 1.0, 1.5]
    y = n[1] / (n[1] + 2 * n[2])
    estimate = [i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3)]
    inside = all(0 <= d <= i for i, d in enumerate(estimate, 1))
    return estimate if inside else [0.5, 1.0, 1.5]


# ---- the model


class Node(NamedTuple):
    """A context in the tables: ``row`` of table ``m``; (0, 0) is the empty context.

    ``wanted`` is the length of the context that was asked for, ``m`` that of its
    longest ending that the text has.
    """

    m: int
    row: int
    wanted: int


ROOT = Node(0, 0, 0)


class NGramModel:
    """An n-gram language model; made by ``fit`` or ``load``, never changed after.

    It is a ``LanguageModel``: ``vocab_size``, ``bos_id``, ``eos_id``,
    ``context_window`` (None) and ``start()``.

    >>> model = NGramModel.fit([[0, 1, 0, 1, 2]], order=2, vocab_size=3,
    ...                        smoothing="add-k", add_k=1.0)
    >>> model.probabilities([0])                    # (0 + 1, 2 + 1, 0 + 1) / (2 + 3)
    array([0.2, 0.6, 0.2])
    """

    context_window: int | None = None

    def __init__(self, tables: list[Table], settings: Settings) -> None:
        """For ``fit``, ``load`` and their kind: tables of at least ``order`` levels."""
        self.settings = settings
        self.order = settings.order
        self.vocab_size = settings.vocab_size
        self.vocabulary = settings.vocabulary
        self.bos_id = settings.bos_id
        self.eos_id = settings.eos_id
        self._tables = tables[: settings.order]
        self._counts = [table.seen for table in self._tables]
        if settings.smoothing == "kneser-ney":
            self._counts = continuation_counts(self._tables)
            given = settings.discounts
            per_order = given or [_estimate_discounts(c) for c in self._counts]
            self._discounts = [np.array([0.0, *triple]) for triple in per_order]
        self._interpolation = np.broadcast_to(settings.interpolation, settings.order)
        self._predictable = settings.vocab_size - (settings.bos_id is not None)
        self._uniform = np.full(settings.vocab_size, 1 / self._predictable)
        if settings.bos_id is not None:
            self._uniform[settings.bos_id] = 0.0
        self._unigram = self._after_nothing()
        # one more than the best token of each context, 0 where nobody asked yet
        sizes = [1, *(table.size for table in self._tables[:-1])]
        best = np.min_scalar_type(settings.vocab_size)
        self._best = [np.zeros(size, dtype=best) for size in sizes]

    @classmethod
    def fit(
        cls,
        sequences: Iterable[ArrayLike],
        *,
        order: int,
        vocab_size: int,
        smoothing: str = "kneser-ney",
        bos_id: int | None = None,
        eos_id: int | None = None,
        add_k: float = 1.0,
        interpolation: float | Sequence[float] = 0.75,
        backoff: float = 0.4,
        discounts: ArrayLike | None = None,
        vocabulary: str | None = None,
    ) -> NGramModel:
        """Count ``sequences``, each a one-dimensional array of tokens.

        ``order`` is 1 to 8. ``smoothing`` is one of

        - "add-k": (count + ``add_k``) / (total + ``add_k`` V), of the whole context
          only (Lidstone 1920; V does not count ``bos_id``);
        - "jelinek-mercer": ``interpolation`` of the relative frequency, the rest of
          the shorter context (Jelinek and Mercer 1980); one number in [0, 1), or one
          for each order from 1 up;
        - "kneser-ney": interpolated, with the three modified discounts for each order
          (Chen and Goodman 1999). ``discounts``, shape (order, 3), order 1 first,
          replaces those estimated from the text. With D1 = 0 for order 1, tokens
          never seen get probability 0; otherwise every token gets more;
        - "stupid-backoff": the relative frequency, or, where there is none,
          ``backoff`` times the score of the shorter context (Brants et al. 2007).
          These ``scores`` do not sum to 1; ``probabilities`` divides by their sum.

        ``vocabulary`` names what the ids stand for, as that of a tokenizer does; a
        target takes no draft of another one.

        Raises TypeError or ValueError on bad arguments, on no sequences and on an
        empty sequence.
        """
        given = (order, vocab_size, smoothing, bos_id, eos_id)
        parameters = (add_k, interpolation, backoff, discounts)
        settings = Settings(*map(_plain, (*given, *parameters, vocabulary)))
        return cls(cls._count_sequences(sequences, settings), settings)

    @staticmethod
    def _count_sequences(
        sequences: Iterable[ArrayLike], settings: Settings
    ) -> list[Table]:
        boundary = _boundary(settings)
        tokens = max(settings.vocab_size, boundary + 1)
        return count_ngrams(
            _join(sequences, settings), boundary, settings.order, tokens
        )

    def extend(self, sequences: Iterable[ArrayLike]) -> NGramModel:
        """A new model of this one's text and ``sequences`` together.

        Equal to fitting all of it at once. The old model stays as it was.
        """
        more = self._count_sequences(sequences, self.settings)
        return NGramModel(merge(self._tables, more), self.settings)

    def with_settings(self, **changes: Any) -> NGramModel:
        """The same counts with another smoothing, its parameters or a lower order.

        Equal to fitting the same text with those arguments, without counting again.
        ``changes`` are keywords of ``fit``, except those that change what is counted.
        """
        fixed = {"vocab_size", "bos_id", "eos_id", "vocabulary"} & set(changes)
        if fixed:
            raise ValueError(f"{', '.join(sorted(fixed))} can only be chosen in fit")
        settings = replace(self.settings, **{k: _plain(v) for k, v in changes.items()})
        if settings.order > self.order:
            raise ValueError(
                f"order must be inside 1 .. {self.order}, got {settings.order}"
            )
        return NGramModel(self._tables, settings)

    # -- counts

    def count(self, ngram: Sequence[int]) -> int:
        """How often ``ngram``, 1 to ``order`` tokens, was seen.

        ``bos_id`` may stand first in it; alone it is never predicted: 0.
        """
        tokens = check_tokens(ngram, self.vocab_size, "ngram").tolist()
        if not 1 <= len(tokens) <= self.order:
            raise ValueError(
                f"ngram must have 1 to {self.order} tokens, got {len(tokens)}"
            )
        row = self._find(tokens)
        return 0 if row is None else int(self._tables[len(tokens) - 1].seen[row])

    def context_count(self, context: Sequence[int]) -> int:
        """How often a token was seen after ``context``, 0 to ``order`` - 1 tokens."""
        return int(self.continuations(context)[1].sum())

    def continuations(self, context: Sequence[int]) -> tuple[Ints, Ints]:
        """The tokens seen after ``context`` in ascending order, and their counts."""
        tokens = check_tokens(context, self.vocab_size, "context").tolist()
        if len(tokens) >= self.order:
            raise ValueError(
                f"context must have 0 to {self.order - 1} tokens, got {len(tokens)}"
            )
        row = self._find(tokens)
        if row is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        table = self._tables[len(tokens)]
        rows = slice(table.start[row], table.start[row + 1])
        seen = table.seen[rows] > 0
        found = table.token[rows][seen], table.seen[rows][seen]
        return found[0].astype(np.int64), found[1].astype(np.int64)

    def size(self, m: int) -> int:
        """How many different ``m``-grams were seen, 1 <= m <= ``order``."""
        _check_int("m", m, 1, self.order)
        if m == 1:
            return int(np.count_nonzero(self._tables[0].seen))
        rows = self.vocab_size  # without the rows of an unnamed beginning, the last
        for table in self._tables[1:m]:
            rows = int(table.start[rows])
        return rows

    @property
    def discounts(self) -> Floats:
        """(order, 3) discounts D1, D2, D3+ of Kneser-Ney, order 1 first."""
        if self.settings.smoothing != "kneser-ney":
            raise ValueError(
                f"smoothing must be kneser-ney, is {self.settings.smoothing}"
            )
        return np.stack(self._discounts)[:, 1:]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that the model holds."""
        arrays: list[NDArray[Any]] = [a for table in self._tables for a in table]
        arrays += [self._unigram, self._uniform, *self._best]
        if self.settings.smoothing == "kneser-ney":
            arrays += self._counts[:-1]
        return sum(array.nbytes for array in arrays)

    # -- from a context to its node

    def _child(self, m: int, row: int, token: int) -> int | None:
        """Row in table m + 1 of context (m, row) followed by ``token``."""
        if m == 0:
            return token
        table = self._tables[m]
        first = table.start[row]
        at = position(table.token[first : table.start[row + 1]], token)
        return None if at is None else int(first) + at

    def _find(self, tokens: list[int]) -> int | None:
        """Row of the m-gram ``tokens`` in table m."""
        row = 0
        for m, token in enumerate(tokens):
            child = self._child(m, row, token)
            if child is None:
                return None
            row = child
        return row

    def _shorter(self, m: int, row: int) -> tuple[int, int]:
        return m - 1, int(self._tables[m - 1].suffix[row])

    def _step(self, node: Node, token: int) -> Node:
        """The context ``node`` after one more token."""
        longest = self.order - 1
        if longest == 0:
            return ROOT
        if token == self.bos_id:
            return Node(1, token, 1)
        wanted = min(node.wanted + 1, longest)
        m, row = node.m, node.row
        if m == longest:
            m, row = self._shorter(m, row)
        while (child := self._child(m, row, token)) is None:
            m, row = self._shorter(m, row)
        return Node(m + 1, child, wanted)

    def _node(self, context: ArrayLike) -> Node:
        tokens = check_tokens(context, self.vocab_size, "context")
        node = ROOT
        for token in tokens[max(0, len(tokens) - self.order + 1) :].tolist():
            node = self._step(node, token)
        return node

    # -- from a node to probabilities

    def _weights(self, m: int, count: Ints) -> tuple[Floats, float]:
        """Weights of a context's continuations, and its back-off weight.

        ``count`` are the continuations' counts, of (m + 1)-grams, at least one.
        """
        total = int(np.add.reduce(count))
        smoothing = self.settings.smoothing
        if smoothing == "kneser-ney":
            discount = self._discounts[m].take(count, mode="clip")  # D3+ for all above
            return (count - discount) / total, float(np.add.reduce(discount)) / total
        if smoothing == "jelinek-mercer":
            mix = float(self._interpolation[m])
            return mix * (count / total), 1 - mix
        if smoothing == "add-k":
            added = self.settings.add_k * self._predictable
            return count / (total + added), added / (total + added)
        return count / total, self.settings.backoff

    def _after_nothing(self) -> Floats:
        """Scores after the empty context."""
        count = self._counts[0][: self.vocab_size]
        weight, backoff = self._weights(0, count)
        rest = backoff * self._uniform
        if self.settings.smoothing == "stupid-backoff":
            return np.where(count > 0, weight, rest)
        return weight + rest

    def _layers(self, node: Node) -> tuple[list[tuple[Ints, Floats]], float]:
        """(tokens, their shares) of the contexts that are mixed, longest first.

        Second: the share that is left for what stands below them, see ``_below``.
        """
        m, row, wanted = node
        alone = self.settings.smoothing == "add-k"  # asks the whole context or none
        stupid = self.settings.smoothing == "stupid-backoff"
        left = self.settings.backoff ** (wanted - m) if stupid else 1.0
        layers = []
        while m > 0 and (not alone or m == wanted):
            table = self._tables[m]
            first, last = table.start[row], table.start[row + 1]
            if first < last:
                weight, backoff = self._weights(m, self._counts[m][first:last])
                layers.append((table.token[first:last], left * weight))
                left *= backoff
            elif stupid:
                left *= self.settings.backoff
            m, row = self._shorter(m, row)
        return layers, left

    def _below(self, node: Node) -> Floats:
        alone = self.settings.smoothing == "add-k" and node.wanted > 0
        return self._uniform if alone else self._unigram

    def _scores(self, node: Node) -> Floats:
        layers, left = self._layers(node)
        scores = left * self._below(node)
        for tokens, share in reversed(layers):
            if self.settings.smoothing == "stupid-backoff":
                scores[tokens] = share
            else:
                scores[tokens] += share
        return scores

    def _distribution(self, node: Node) -> Floats:
        scores = self._scores(node)
        if self.settings.smoothing == "stupid-backoff":
            scores /= scores.sum()
        return scores

    def _probability(self, node: Node, token: int) -> float:
        """One entry of ``_distribution``, without the others where that is possible."""
        if self.settings.smoothing == "stupid-backoff":
            return float(self._distribution(node)[token])
        layers, left = self._layers(node)
        p = left * float(self._below(node)[token])
        for tokens, share in layers:
            at = position(tokens, token)
            if at is not None:
                p += float(share[at])
        return p

    def _greedy(self, node: Node) -> int:
        """The best token; kept, in one number per context, once it was worked out."""
        if self.settings.smoothing == "add-k" and node.m < node.wanted:
            return int(self._uniform.argmax())
        kept = int(self._best[node.m][node.row])
        if kept == 0:
            kept = int(self._distribution(node).argmax()) + 1
            self._best[node.m][node.row] = kept
        return kept - 1

    def probabilities(self, context: ArrayLike = ()) -> Floats:
        """(V,) probabilities of the token after ``context``; they sum to 1."""
        return self._distribution(self._node(context))

    def scores(self, context: ArrayLike = ()) -> Floats:
        """(V,) what the smoothing's formula gives after ``context``.

        For stupid back-off these are not a distribution; otherwise ``probabilities``.
        """
        return self._scores(self._node(context))

    def log_prob(self, token: int, context: ArrayLike = ()) -> float:
        """Natural logarithm of the probability of ``token`` after ``context``."""
        _check_int("token", token, 0, self.vocab_size - 1)
        with np.errstate(divide="ignore"):
            return float(np.log(self._probability(self._node(context), token)))

    def greedy(self, context: ArrayLike = ()) -> int:
        """The most probable token after ``context``, the lowest id on ties."""
        return self._greedy(self._node(context))

    def perplexity(self, tokens: ArrayLike) -> float:
        """exp of the mean of -log p over ``tokens``, treated as ``fit`` treats a text.

        So with an ``eos_id`` its end is predicted too. ValueError if it is empty.
        """
        tokens = check_tokens(tokens, self.vocab_size)
        if not len(tokens):
            raise ValueError("tokens must hold at least one token, got none")
        text = _join([tokens], self.settings)
        node, logs = ROOT, []
        for token in text.tolist():
            if token != _boundary(self.settings):
                logs.append(self._probability(node, token))
                node = self._step(node, token)
            else:
                node = ROOT if self.bos_id is None else self._step(node, token)
        with np.errstate(divide="ignore"):
            return float(np.exp(-np.mean(np.log(logs))))

    def start(self) -> NGramState:
        """A new, empty sequence."""
        return NGramState(self)

    # -- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to ``path``, whole or not at all, as an ``.npz`` archive.

        Nothing is added to the name. Settings are JSON, the rest arrays of integers.
        """
        write_archive(path, FORMAT, VERSION, **self.to_arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NGramModel:
        """Read what ``save`` wrote; ValueError for anything else. Never unpickles."""
        try:
            return cls.from_arrays(read_archive(path, FORMAT, VERSION))
        except BrokenModelError as error:
            raise ValueError(f"{path} is a broken n-gram model: {error}") from error

    def to_arrays(self) -> dict[str, Any]:
        """All that the model is, as named arrays."""
        settings = np.array(json.dumps(asdict(self.settings)))
        return {"settings": settings, **name_arrays(self._tables)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> NGramModel:
        """The model of such ``arrays`` as ``to_arrays`` gives; BrokenModelError, a
        ValueError, for others."""
        try:
            settings = _read_settings(str(arrays["settings"]))
            tokens = max(settings.vocab_size, _boundary(settings) + 1)
            tables = read_tables(arrays, settings.order, tokens, _boundary(settings))
            return cls(tables, settings)
        except (AttributeError, KeyError, ValueError, TypeError) as error:
            raise BrokenModelError(str(error)) from error


class BrokenModelError(ValueError):
    """Arrays that are no n-gram model."""


def _read_settings(text: str) -> Settings:
    return Settings(**{name: _plain(value) for name, value in parse_json(text).items()})


# ---- a sequence being read


class NGramState:
    """One sequence read by a model; see ``models.State``.

    Holds one small record per token, so a rewind is a cut. ``advance``, ``greedy`` and
    ``probabilities`` are not in the contract: they spare a draft the logits that it
    does not need.
    """

    def __init__(self, model: NGramModel) -> None:
        self._model = model
        self._nodes = [ROOT]
        self._tree: tuple[tuple[int, ...], list[Node]] = ((), [])  # not kept yet

    @property
    def length(self) -> int:
        """Number of tokens read."""
        return len(self._nodes) - 1

    def extend(self, tokens: Sequence[int]) -> Floats:
        """Read ``tokens``; (len(tokens), V) log probabilities, row i after tokens[i].

        Minus infinity for what has probability 0.
        """
        self.advance(tokens)
        return self._log_rows(self._nodes[len(self._nodes) - len(tokens) :])

    def rewind(self, length: int) -> None:
        """Keep the first ``length`` tokens; ValueError outside 0 .. ``self.length``."""
        del self._nodes[check_rewind(length, self.length) + 1 :]
        self._tree = ((), [])

    def extend_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Floats:
        """Read a tree of ``tokens``; (len(tokens), V) log probabilities.

        See ``models.TreeState``; :meth:`keep` appends one of its paths.
        """
        given = check_tokens(tokens, self._model.vocab_size).tolist()
        parents = check_parents(parents, len(given))
        nodes: list[Node] = []
        for token, parent in zip(given, parents, strict=True):
            above = nodes[parent] if parent >= 0 else self._nodes[-1]
            nodes.append(self._model._step(above, token))
        self._tree = (parents, nodes)
        return self._log_rows(nodes)

    def keep(self, nodes: Sequence[int]) -> None:
        """Append the path ``nodes`` of the last ``extend_tree``, forget the rest."""
        parents, read = self._tree
        self._nodes += [read[node] for node in check_path(nodes, parents)]
        self._tree = ((), [])

    def _log_rows(self, nodes: list[Node]) -> Floats:
        """(len(nodes), V) log probabilities after each of ``nodes``."""
        logits = np.empty((len(nodes), self._model.vocab_size))
        for i, node in enumerate(nodes):
            logits[i] = self._model._distribution(node)
        with np.errstate(divide="ignore"):
            return np.log(logits, out=logits)

    def advance(self, tokens: Sequence[int]) -> None:
        """Read ``tokens`` without working out logits."""
        node = self._nodes[-1]
        for token in check_tokens(tokens, self._model.vocab_size).tolist():
            node = self._model._step(node, token)
            self._nodes.append(node)
        self._tree = ((), [])

    def probabilities(self) -> Floats:
        """(V,) probabilities of the next token."""
        return self._model._distribution(self._nodes[-1])

    def greedy(self) -> int:
        """The most probable next token, the lowest id on ties."""
        return self._model._greedy(self._nodes[-1])
