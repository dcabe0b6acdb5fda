"""N-gram counts in sorted tables.

An m-gram is m tokens in a row. There is one table for each m, from 1 up. Its rows are
the different m-grams of a text, sorted by their first m - 1 tokens, then their last:

    token[i]    last token of m-gram i
    seen[i]     how often m-gram i was seen
    start[j]    the m-grams whose first m - 1 tokens are row j of the table for m - 1
                are rows start[j] .. start[j + 1] - 1, in order of their last tokens
    suffix[i]   row, in the table for m - 1, of m-gram i without its first token

So a context, the tokens before the one to be predicted, is a pair (m, row). Its
continuations are one slice; a longer context is found by a binary search in that slice,
a shorter one by one step along ``suffix``. The table for m = 1 has a row for every
token of the vocabulary, seen or not, so that there row and token are the same number.

The table for m comes from the one for m - 1: an m-gram that ends at position i is the
pair (row of the (m - 1)-gram that ends at i - 1, token at i), and sorting such pairs
gives the rows. No n-gram is ever spelt out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]  # of integers, of the width that fits


class Table(NamedTuple):
    """All m-grams of one m, laid out as the top of this module tells."""

    token: Ints
    seen: Ints
    start: Ints
    suffix: Ints

    @property
    def size(self) -> int:
        """Number of m-grams."""
        return len(self.token)


def _lengths(table: Table) -> Ints:
    """How many m-grams each context has."""
    start = table.start.astype(np.intp)
    return start[1:] - start[:-1]


def tally(values: Ints, minlength: int) -> Ints:
    """``np.bincount(values, minlength=minlength)`` of integers of any width.

    On machines of 32 bits, such as Python in a browser, it refuses wider ones.
    """
    return np.bincount(values.astype(np.intp, copy=False), minlength=minlength)


def _narrow(values: Ints, largest: int | None = None) -> Ints:
    """``values``, none negative, in the narrowest type that holds them."""
    if largest is None:
        largest = int(values.max()) if values.size else 0
    dtype = np.min_scalar_type(largest)
    return values.astype(np.int64 if dtype == np.uint64 else dtype)


def _ascending(values: Ints, largest: int) -> Ints:
    """Positions in ascending order of ``values``, 0 .. ``largest``; ties stay in order.

    NumPy sorts 16-bit numbers digit by digit, several times faster than it compares
    larger ones. So these are sorted by their low 16 bits, then the next, and so on.
    """
    order = values.astype(np.uint16).argsort(kind="stable")
    for shift in range(16, largest.bit_length(), 16):
        digit = (values >> shift).astype(np.uint16)
        order = order.take(digit.take(order).argsort(kind="stable"))
    return order


def _tabulate(
    context: Ints, token: Ints, suffix: Ints, count: Ints | None, contexts: int
) -> tuple[Table, Ints]:
    """The table of m-grams given as (context row, token) pairs, and each pair's row.

    The pairs come in ascending order of ``token``. ``count`` says how often each pair
    counts, None: once. ``contexts``: number of contexts.
    """
    order = _ascending(context, contexts - 1)
    context, token = context.take(order), token.take(order)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (context[1:] != context[:-1]) | (token[1:] != token[:-1])
    first = np.flatnonzero(begins)
    if count is None:
        count = np.append(first[1:], len(order))[: len(first)] - first
    elif len(first):
        count = np.add.reduceat(count[order], first)
    per_context = tally(context[first], contexts)
    table = Table(
        token=token[first],
        seen=_narrow(count),
        start=_narrow(np.append(0, np.cumsum(per_context))),
        suffix=_narrow(suffix[order[first]]),
    )
    row_type = np.int32 if len(order) < 2**31 else np.int64
    rows = np.empty(len(order), dtype=row_type)
    rows[order] = np.cumsum(begins, dtype=row_type) - 1
    return table, rows


def _unigrams(count: Ints) -> Table:
    tokens = len(count)
    everything = np.array([0, tokens])
    nothing = np.zeros(tokens, dtype=np.uint8)
    return Table(_narrow(np.arange(tokens)), _narrow(count), everything, nothing)


def count_ngrams(text: Ints, boundary: int, order: int, tokens: int) -> list[Table]:
    """Tables for m = 1 .. order. ``text`` begins with ``boundary``; its other tokens
    are below ``tokens``."""
    places = np.arange(len(text))
    begins = text == boundary
    age = places - np.maximum.accumulate(np.where(begins, places, 0))
    age = np.minimum(age, order).astype(np.uint8)  # tokens since the last boundary
    tables = [_unigrams(tally(text[~begins], tokens))]
    text = _narrow(text, tokens - 1)
    ends = _ascending(text, tokens - 1)  # where m-grams end, in order of last tokens
    rows = text
    for m in range(2, order + 1):
        # rows[i]: row of the (m - 1)-gram that ends at position i
        ends = ends[age.take(ends) >= m - 1]
        table, found = _tabulate(
            rows.take(ends - 1), text.take(ends), rows.take(ends), None, tables[-1].size
        )
        tables.append(table)
        rows = np.empty(len(text), dtype=found.dtype)
        rows[ends] = found
    return tables


def merge(left: list[Table], right: list[Table]) -> list[Table]:
    """Tables of two texts taken together, ``left`` and ``right``."""
    merged = [_unigrams(left[0].seen.astype(np.int64) + right[0].seen)]
    tokens = merged[0].size
    new_rows = [np.arange(tokens), np.arange(tokens)]
    for pair in zip(left[1:], right[1:], strict=True):
        token = np.concatenate([table.token for table in pair])
        order = _ascending(token, tokens - 1)
        context, suffix = [], []
        for table, new_row in zip(pair, new_rows, strict=True):
            context.append(np.repeat(new_row, _lengths(table)))
            suffix.append(new_row[table.suffix])
        table, found = _tabulate(
            np.concatenate(context)[order],
            token[order],
            np.concatenate(suffix)[order],
            np.concatenate([table.seen.astype(np.int64) for table in pair])[order],
            merged[-1].size,
        )
        merged.append(table)
        rows = np.empty_like(found)
        rows[order] = found
        new_rows = [rows[: pair[0].size], rows[pair[0].size :]]
    return merged


def position(ascending: Ints, token: int) -> int | None:
    """Where ``token`` stands in ``ascending``, or None."""
    wanted = ascending.dtype.type(token)  # of one type, or searchsorted copies
    at = int(ascending.searchsorted(wanted))
    return at if at < len(ascending) and ascending[at] == wanted else None


def continuation_counts(tables: list[Table]) -> list[Ints]:
    """For each m-gram of ``tables``: how many different tokens precede it.

    An m-gram that begins a sequence has none before it and keeps its count, as in
    KenLM; so do the m-grams of the highest order.
    """
    adjusted = []
    for table, longer in pairwise(tables):
        before = tally(longer.suffix, len(table.token))
        adjusted.append(_narrow(np.where(before == 0, table.seen, before)))
    return [*adjusted, tables[-1].seen]


def read_tables(
    arrays: Mapping[str, Ints], order: int, tokens: int, boundary: int
) -> list[Table]:
    """Tables from named arrays, checked so that no later look-up can leave them.

    They are for m = 1 .. ``order``, over tokens below ``tokens``.
    ``boundary`` begins a sequence, so it never ends an m-gram. The names are
    ``seen_1``, and the fields of each ``Table`` followed by _2, _3 and so on. Raises
    KeyError for a missing one, ValueError for what cannot be.
    """
    given = {"seen_1": arrays["seen_1"]}
    for m in range(2, order + 1):
        given |= {f"{field}_{m}": arrays[f"{field}_{m}"] for field in Table._fields}
    for name, array in given.items():
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(f"{name} must be a row of integers")
        if array.size and int(array.min()) < 0:
            raise ValueError(f"{name} must not be negative")
        if name.startswith("seen") and array.sum(dtype=float) > 2**53:
            raise ValueError(f"{name} must count at most 2**53 tokens")
    if len(given["seen_1"]) != tokens or not given["seen_1"].any():
        raise ValueError(f"seen_1 must have one count for each of {tokens} tokens")
    if given["seen_1"][boundary]:
        raise ValueError(f"seen_1 must be 0 at {boundary}, which begins a sequence")
    tables = [_unigrams(given["seen_1"])]
    for m in range(2, order + 1):
        table = Table(*(given[f"{field}_{m}"] for field in Table._fields))
        _check_table(table, m, tables[-1].size, tokens)
        if (table.token == boundary).any():
            raise ValueError(f"token_{m} must not be {boundary}, the beginning")
        tables.append(table)
    return tables


def name_arrays(tables: list[Table]) -> dict[str, Ints]:
    """The arrays of ``tables`` by the names that ``read_tables`` reads."""
    arrays = {"seen_1": tables[0].seen}
    for m, table in enumerate(tables[1:], 2):
        arrays |= {f"{field}_{m}": array for field, array in table._asdict().items()}
    return arrays


def _check_table(table: Table, m: int, contexts: int, tokens: int) -> None:
    start, size = table.start, table.size
    if len(start) != contexts + 1 or start[0] != 0 or start[-1] != size:
        raise ValueError(f"start_{m} must divide the {m}-grams among their contexts")
    lengths = _lengths(table)
    if (lengths < 0).any() or len(table.seen) != size or len(table.suffix) != size:
        raise ValueError(f"start_{m}, seen_{m} and suffix_{m} must fit token_{m}")
    if size:
        key = np.repeat(np.arange(contexts, dtype=np.int64), lengths)
        key = key * tokens + table.token
        if int(table.token.max()) >= tokens or (np.diff(key) <= 0).any():
            raise ValueError(f"token_{m} must ascend inside each context")
        if int(table.suffix.max()) >= contexts or not table.seen.all():
            raise ValueError(f"suffix_{m} and seen_{m} must point at real n-grams")
