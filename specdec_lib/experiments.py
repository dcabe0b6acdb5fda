"""Sweeps over draft length, temperature, draft, seed and prompt, and what they say.

    sweep = Sweep(target, {"order 2": draft}, prompts, ks=(1, 2, 4), temperatures=(1,))
    records = sweep.run("records.jsonl")
    bootstrap_interval(records, "accepted", "tested")

A record is a flat dict, one for each cell of the sweep, so that `pandas.DataFrame` of a
list of them is a tidy table. It holds counts and the ratios made from them, and no
times unless they are asked for: with the same seed it is the same on every run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .decoding import DraftLength, generate
from .drafts import Draft, ModelDraft, Proposal
from .metrics import Positions
from .models import LanguageModel, State, check_count, check_tokens
from .randomness import RandomSource, SeededRandom
from .records import (
    AnyPath,
    Cell,
    Interval,
    Record,
    append_record,
    best_k_interval,
    bootstrap_interval,
    call_cost,
    gain_interval,
    group_records,
    open_log,
    ratio,
    read_records,
    summarise,
    write_records,
)
from .sampling import DEFAULT_SAMPLER, Sampler
from .theory import acceptance_by_row
from .verification import Verdict, Verify, verify_tokens
from .workers import Sent, in_processes

__all__ = [
    "Along",
    "Cell",
    "Interval",
    "Record",
    "Sweep",
    "acceptance_along",
    "best_k_interval",
    "bootstrap_interval",
    "call_cost",
    "cut_prompts",
    "gain_interval",
    "group_records",
    "policy_records",
    "progress_line",
    "ratio",
    "read_records",
    "sample_prompts",
    "sample_texts",
    "summarise",
    "write_records",
]

DraftMaker = Callable[[Sampler], Draft]
Runner = Callable[["Sweep", list[Cell]], Iterable[tuple[Cell, Record]]]

REPEAT = 8  # tokens in a row that make a repeat


@dataclass(frozen=True, eq=False)
class Sweep:
    """Decoding in every combination of settings; :meth:`run` gives the records.

    target
        the model that decides.
    drafts
        name -> a language model (drafting at the target's temperature and filters), a
        draft, or a function of the target's sampler that returns a draft.
    prompts
        name -> tokens; :func:`cut_prompts` and :func:`sample_prompts` make them.
    ks, temperatures, seeds
        draft lengths >= 0, temperatures >= 0, seeds >= 0; each at least one, none
        twice.
    max_new_tokens
        tokens of one text, >= 1.
    sampler
        the target's filters and processors; its temperature is replaced.
    verify, stop_ids
        as in :func:`specdec_lib.generate`.
    timed
        record ``draft_seconds`` and ``target_seconds`` too. Times are never the same
        twice, so such records are not either.

    Raises ValueError or TypeError for anything else.
    """

    target: LanguageModel
    drafts: Mapping[str, LanguageModel | Draft | DraftMaker]
    prompts: Mapping[str, Sequence[int]]
    ks: Sequence[int]
    temperatures: Sequence[float] = (1.0,)
    seeds: Sequence[int] = (0,)
    max_new_tokens: int = 200
    sampler: Sampler = DEFAULT_SAMPLER
    verify: Verify = verify_tokens
    stop_ids: Sequence[int] = ()
    timed: bool = False

    def __post_init__(self) -> None:
        for name in ("drafts", "prompts"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not value:
                raise TypeError(f"{name} must map at least one name, got {value!r:.60}")
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"{name} must have names as keys, got {key!r}")
        for prompt, tokens in self.prompts.items():
            check_tokens(tokens, self.target.vocab_size, f"prompts[{prompt!r}]")
        for name in ("ks", "temperatures", "seeds"):
            values = list(getattr(self, name))
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be some values, none twice: {values}")
        for name in ("ks", "seeds"):
            for value in getattr(self, name):
                check_count(name, value)
        for temperature in self.temperatures:
            replace(self.sampler, temperature=temperature)  # raises where it is none
        check_count("max_new_tokens", self.max_new_tokens, least=1)

    def cells(self) -> list[Cell]:
        """Every combination, in the order in which :meth:`run` returns the records."""
        return [
            Cell(draft, float(temperature), int(k), int(seed), prompt)
            for draft, temperature, k, seed, prompt in itertools.product(
                self.drafts, self.temperatures, self.ks, self.seeds, self.prompts
            )
        ]

    def run(
        self,
        path: AnyPath | None = None,
        *,
        workers: int = 1,
        runner: Runner | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Record]:
        """The record of every cell.

        path
            a JSON Lines file. Each record is appended and on the disk as soon as its
            cell is done; cells that it already holds are not run again. A last line
            that was cut off by a crash is dropped and its cell run again. Records of
            other cells stay as they are, and are not returned. The order of the lines
            is that in which cells were done.
        workers
            processes; 1 means this one. The records do not depend on it. With more, all
            that the sweep holds must be picklable, and a script needs the usual
            ``if __name__ == "__main__":``. Cells of a process that was killed are run
            again.
        runner
            runs the cells elsewhere, in place of ``workers``: called with the sweep and
            the cells that are left, it yields each with its record, in any order.
            :func:`specdec_lib.scale.run` has some.
        progress
            called with (cells done, cells in all), at the start and after each cell;
            :func:`progress_line` makes one for a terminal.

        Raises ValueError for a file that is no such file, or whose records come from
        another setup (other models, prompts, lengths, filters).
        """
        check_count("workers", workers, least=1)
        if self.timed and (workers > 1 or runner is not None):
            raise ValueError("workers must be 1 where times are recorded: they compete")
        cells = self.cells()
        setups = _Setups(self)
        done: dict[Cell, Record] = {}
        wanted = frozenset(cells)
        log = None
        if path is not None:
            stored, log = open_log(path)
        try:
            for cell, record in stored.items() if log else ():
                if cell not in wanted:
                    continue
                if record.get("setup") != setups(cell):
                    raise ValueError(
                        f"{path} holds a record of another setup (other models, "
                        f"prompts, lengths or filters) for {cell}; give another path"
                    )
                done[cell] = record
            if progress is not None:
                progress(len(done), len(cells))
            left = [cell for cell in cells if cell not in done]
            with closing(self._records(left, workers, runner)) as records:
                for cell, record in records:
                    record["setup"] = setups(cell)
                    if log is not None and path is not None:
                        append_record(log, record, path)
                    done[cell] = record
                    if progress is not None:
                        progress(len(done), len(cells))
        finally:
            if log is not None:
                log.close()
        return [done[cell] for cell in cells]

    def _records(
        self, cells: list[Cell], workers: int, runner: Runner | None
    ) -> Generator[tuple[Cell, Record], None, None]:
        if runner is not None and cells:
            yield from runner(self, cells)
        elif workers == 1 or len(cells) < 2:
            for cell in cells:
                yield cell, self.run_cell(cell)
        else:
            sent = Sent(self)
            yield from in_processes(Sweep.run_cell, sent, cells, workers=workers)

    def run_cell(self, cell: Cell) -> Record:
        """Decode the text of ``cell`` and count; all columns but ``setup``.

        ``draft``, ``temperature``, ``k``, ``seed``, ``prompt``
            the key.
        ``drafted``, ``tested``, ``accepted``, ``emitted``, ``target_calls``
            as in :mod:`specdec_lib.metrics`.
        ``overlap``
            1 - TV(p, q) at each guess that was tested, added up: how many of them the
            token rule accepts in the mean. These contexts are the target's own text:
            the prompt, then what was emitted, then accepted guesses.
        ``repeated``
            emitted tokens that end a run of 8 which the text already had: many where
            it goes in a loop.
        ``acceptance_rate``, ``draft_efficiency``, ``tokens_per_call``
            ratios of these counts, None for a ratio of nothing.
        ``predicted_acceptance``
            overlap / tested, None where nothing was.
        ``drafted_1``, ``tested_1``, ``accepted_1``, ``overlap_1`` .. ``_k``
            the same by place in the draft.

        Where guesses were trees, the counts by place, ``overlap`` and
        ``predicted_acceptance`` are left out: a place has several guesses there.
        """
        sampler = replace(self.sampler, temperature=cell.temperature)
        judge = _Judge(self.verify)
        run = generate(
            self.target,
            self.prompts[cell.prompt],
            draft=self._draft(cell.draft, sampler),
            k=cell.k,
            max_new_tokens=self.max_new_tokens,
            sampler=sampler,
            verify=judge,
            stop_ids=self.stop_ids,
            seed=cell.random_seed,
        )
        metrics = run.metrics
        trees = any(each.parents is not None for each in run.rounds)
        overlaps: list[list[float]] = [[] for _ in range(cell.k)]
        for each, judged in zip(run.rounds, judge.overlaps, strict=True):
            # A stop id may have cut off what the rule had looked at.
            for place, value in enumerate(judged[: each.tested]):
                overlaps[place].append(value)
        by_place = [math.fsum(values) for values in overlaps]
        overlap = math.fsum(by_place)
        predicted = overlap / metrics.tested if metrics.tested else None
        record: Record = {
            **cell._asdict(),
            "max_new_tokens": int(self.max_new_tokens),
            "drafted": metrics.drafted,
            "tested": metrics.tested,
            "accepted": metrics.accepted,
            "emitted": metrics.emitted,
            "target_calls": metrics.target_calls,
            **({} if trees else {"overlap": overlap}),
            "repeated": _repeated(run.tokens),
            "finish_reason": run.finish_reason,
            "acceptance_rate": metrics.acceptance_rate,
            **({} if trees else {"predicted_acceptance": predicted}),
            "draft_efficiency": metrics.draft_efficiency,
            "tokens_per_call": metrics.tokens_per_call,
        }
        if not trees:
            places = Positions.from_rounds(run.rounds)
            for name in ("drafted", "tested", "accepted"):
                counts = getattr(places, name)
                counts += (0,) * (cell.k - len(counts))
                record |= {f"{name}_{i + 1}": count for i, count in enumerate(counts)}
            record |= {f"overlap_{i + 1}": value for i, value in enumerate(by_place)}
        if self.timed:
            record["draft_seconds"] = metrics.draft_seconds
            record["target_seconds"] = metrics.target_seconds
        return record

    def _draft(self, name: str, sampler: Sampler) -> Draft:
        given: Any = self.drafts[name]
        if hasattr(given, "bos_id"):
            return ModelDraft(given, sampler)
        if hasattr(given, "start"):
            return given  # type: ignore[no-any-return]
        if not callable(given):
            raise TypeError(
                f"drafts[{name!r}] must be a language model, a draft, or a function "
                f"of a sampler, got {given!r}"
            )
        return given(sampler)  # type: ignore[no-any-return]


class _Judge:
    """A rule, and a note of 1 - TV at each guess that it looked at, by round; nothing
    of a tree."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self.overlaps: list[list[float]] = []

    def __call__(
        self, p: NDArray[np.float64], proposal: Proposal, rng: RandomSource
    ) -> Verdict:
        verdict = self._verify(p, proposal, rng)
        tested = min(verdict.accepted + 1, len(proposal.tokens))
        if proposal.parents is not None:
            tested = 0
        if proposal.probabilities is None:  # certain of its token: TV = 1 - p(token)
            overlaps = p[np.arange(tested), list(proposal.tokens[:tested])]
        else:
            overlaps = acceptance_by_row(p[:tested], proposal.probabilities[:tested])
        self.overlaps.append(overlaps.tolist())
        return verdict


class _Setups:
    """A short mark of all that makes a record besides its key.

    Two setups with the same marks have the same prompt, lengths and filters, and models
    that agree on what follows the prompt.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._targets: dict[str, list[int]] = {}
        self._marks: dict[tuple[str, float, str], str] = {}

    def __call__(self, cell: Cell) -> str:
        key = (cell.draft, cell.temperature, cell.prompt)
        if key not in self._marks:
            self._marks[key] = self._mark(*key)
        return self._marks[key]

    def _mark(self, draft_name: str, temperature: float, prompt_name: str) -> str:
        sweep = self._sweep
        given = check_tokens(sweep.prompts[prompt_name], sweep.target.vocab_size)
        prompt: list[int] = given.tolist()
        start = prompt or [sweep.target.bos_id or 0]
        if prompt_name not in self._targets:
            last = np.asarray(sweep.target.start().extend(start)[-1])
            self._targets[prompt_name] = np.argsort(-last, kind="stable")[:4].tolist()
        sampler = replace(sweep.sampler, temperature=temperature)
        session = sweep._draft(draft_name, sampler).start(tuple(start))
        guesses = session.propose(4, SeededRandom(0))
        parts = [
            prompt,
            sweep.target.vocab_size,
            self._targets[prompt_name],
            [int(token) for token in guesses.tokens],
            int(sweep.max_new_tokens),
            sampler.top_k,
            sampler.top_p,
            [type(each).__name__ for each in sampler.processors],
            getattr(sweep.verify, "__name__", type(sweep.verify).__name__),
            [int(token) for token in sweep.stop_ids],
            sweep.timed,
        ]
        if guesses.parents is not None:
            parts.append([int(parent) for parent in guesses.parents])
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _repeated(tokens: Sequence[int]) -> int:
    seen: set[tuple[int, ...]] = set()
    count = 0
    for end in range(REPEAT, len(tokens) + 1):
        run = tuple(tokens[end - REPEAT : end])
        count += run in seen
        seen.add(run)
    return count


# Draft lengths that are chosen on the way

Policy = tuple[Callable[[LanguageModel, Sampler], Draft], int | DraftLength]


def policy_records(
    target: LanguageModel,
    model: LanguageModel,
    policies: Mapping[str, Policy],
    prompts: Mapping[str, Sequence[int]],
    *,
    temperatures: Sequence[float] = (1.0,),
    seeds: Sequence[int] = (0,),
    max_new_tokens: int = 200,
    sampler: Sampler = DEFAULT_SAMPLER,
) -> list[Record]:
    """Decode by rules that choose the draft length: one record for each text.

    model
        the draft's language model. Its calls are counted (``draft_calls``), those
        included that brought no guess.
    policies
        name -> (function of the model and the target's sampler that makes a draft, k or
        a :class:`specdec_lib.decoding.DraftLength`); ``(ModelDraft, 4)`` is the
        simplest.

    Other arguments and the records are as in :class:`Sweep`; there ``draft`` is the
    policy's name and ``k`` the most guesses of a round. ValueError for guesses that are
    a tree.
    """
    records = []
    for name, temperature, seed, prompt in itertools.product(
        policies, temperatures, seeds, prompts
    ):
        make, k = policies[name]
        cell = Cell(name, float(temperature), 0, int(seed), prompt)
        chosen = replace(sampler, temperature=temperature)
        counted = _CountedModel(model)
        run = generate(
            target,
            prompts[prompt],
            draft=make(counted, chosen),
            k=k,
            max_new_tokens=max_new_tokens,
            sampler=chosen,
            seed=cell.random_seed,
        )
        metrics, places = run.metrics, Positions.from_rounds(run.rounds)
        record: Record = cell._asdict()
        record |= {"k": len(places.drafted), "draft_calls": counted.calls}
        for what in ("drafted", "tested", "accepted", "emitted", "target_calls"):
            record[what] = getattr(metrics, what)
        for i, count in enumerate(places.drafted):
            record[f"drafted_{i + 1}"] = count
        records.append(record)
    return records


class _CountedModel:
    """A language model, and how often its states were extended."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.calls = 0
        self.vocab_size = model.vocab_size
        self.bos_id = model.bos_id
        self.context_window = model.context_window

    def start(self) -> State:
        return _CountedState(self, self._model.start())


class _CountedState:
    def __init__(self, counted: _CountedModel, state: State) -> None:
        self._counted = counted
        self._state = state
        self.rewind = state.rewind

    @property
    def length(self) -> int:
        return self._state.length

    def extend(self, tokens: Sequence[int]) -> NDArray[np.floating]:
        self._counted.calls += 1
        return self._state.extend(tokens)


# Prompts


def cut_prompts(
    documents: Mapping[str, Sequence[int]], *, count: int, length: int
) -> dict[str, tuple[int, ...]]:
    """``count`` pieces of ``length`` tokens, evenly spread over ``documents``.

    ``documents`` maps names to tokens, those that the models were not trained on. A
    piece is named after its document and its first token. Raises ValueError where
    there are not so many places to cut.

    >>> cut_prompts({"a": range(6), "b": range(4)}, count=3, length=3)
    {'a@0': (0, 1, 2), 'a@2': (2, 3, 4), 'b@0': (0, 1, 2)}
    """
    check_count("count", count, least=1)
    check_count("length", length, least=1)
    places = [
        (name, at)
        for name, tokens in documents.items()
        for at in range(len(tokens) - length + 1)
    ]
    if len(places) < count:
        raise ValueError(
            f"documents must have {count} places for {length} tokens, got {len(places)}"
        )
    chosen = [places[i * len(places) // count] for i in range(count)]
    return {
        f"{name}@{at}": tuple(int(t) for t in documents[name][at : at + length])
        for name, at in chosen
    }


def sample_prompts(
    target: LanguageModel,
    *,
    count: int,
    length: int,
    sampler: Sampler = DEFAULT_SAMPLER,
    seed: int = 0,
) -> dict[str, tuple[int, ...]]:
    """``count`` starts of ``length`` tokens written by ``target`` itself.

    Each begins with the target's ``bos_id``, which is its first token. ValueError for a
    target without one.

    >>> from specdec_lib import FunctionModel
    >>> coin = FunctionModel(lambda seq: [0.0, 0.0], 2, bos_id=0)
    >>> sample_prompts(coin, count=2, length=4)
    {'sample 0': (0, 1, 0, 1), 'sample 1': (0, 0, 1, 1)}
    """
    check_count("count", count, least=1)
    check_count("length", length, least=1)
    check_count("seed", seed)
    if target.bos_id is None:
        raise ValueError("target must have a bos_id to write prompts from nothing")
    prompts = {}
    for i in range(count):
        rng = SeededRandom(Cell("", 0.0, 0, seed, f"sample {i}").random_seed)
        run = generate(target, (), max_new_tokens=length - 1, sampler=sampler, rng=rng)
        prompts[f"sample {i}"] = (int(target.bos_id), *run.tokens)
    return prompts


def sample_texts(
    target: LanguageModel,
    *,
    tokens: int,
    length: int | None = None,
    sampler: Sampler = DEFAULT_SAMPLER,
    stop_ids: Sequence[int] = (),
    seed: int = 0,
) -> list[tuple[int, ...]]:
    """Texts written by ``target`` itself, to train a draft on what it will have to say.

    Each begins with the target's ``bos_id``; it ends with one of ``stop_ids``, after
    ``length`` tokens (None: no limit but the target's window), or where all texts
    together have ``tokens`` tokens, >= 1, ``bos_id`` not counted. For ``fit`` leave out
    ``eos_id`` then: most texts are cut off rather than ended. ValueError for a target
    without a ``bos_id``.

    >>> from specdec_lib import FunctionModel
    >>> coin = FunctionModel(lambda seq: [0.0, 0.0], 2, bos_id=0)
    >>> sample_texts(coin, tokens=7, stop_ids=[1])
    [(0, 1), (0, 1), (0, 1), (0, 0, 1), (0, 0, 1)]
    """
    check_count("tokens", tokens, least=1)
    if length is not None:
        check_count("length", length, least=1)
    check_count("seed", seed)
    if target.bos_id is None:
        raise ValueError("target must have a bos_id to write texts from nothing")
    rng = SeededRandom(Cell("", 0.0, 0, seed, "texts").random_seed)
    texts, left = [], tokens
    while left:
        wanted = left if length is None else min(left, length)
        run = generate(
            target,
            (),
            max_new_tokens=wanted,
            sampler=sampler,
            stop_ids=stop_ids,
            rng=rng,
        )
        if not run.tokens:
            raise ValueError("target must have a context_window of 2 tokens or more")
        texts.append((int(target.bos_id), *run.tokens))
        left -= len(run.tokens)
    return texts


class Along(NamedTuple):
    """What :func:`acceptance_along` returns, one number for each token of a text.

    overlap
        1 - TV(p, q): the chance that a guess here is accepted, before it is known what
        token came.
    given_token
        min(1, q(x) / p(x)): the chance that it was accepted, given the token x that
        came; for :func:`specdec_lib.theory.expected_calls`.
    """

    overlap: NDArray[np.float64]
    given_token: NDArray[np.float64]


def acceptance_along(
    target: LanguageModel,
    draft: LanguageModel,
    prompt: Sequence[int],
    tokens: Sequence[int],
    *,
    sampler: Sampler = DEFAULT_SAMPLER,
    draft_sampler: Sampler | None = None,
) -> Along:
    """Where guesses of ``draft`` would be accepted, without drafting any.

    ``tokens`` follow ``prompt`` (at least one token) and must be written by the target
    with ``sampler``; over any other text the means say little about decoding.
    ``draft_sampler`` is ``sampler`` where not given. ValueError where a token could not
    have come from the target.
    """
    text = [int(t) for t in tokens]
    start = [int(t) for t in prompt]
    if not start:
        raise ValueError("prompt must have at least one token")
    read = [*start, *text[:-1]] if text else start

    def rows(model: LanguageModel, sampler: Sampler) -> NDArray[np.float64]:
        logits = model.start().extend(read)[len(start) - 1 :]
        return sampler(logits[: len(text)], start, text[:-1])

    p, q = rows(target, sampler), rows(draft, draft_sampler or sampler)
    at = np.arange(len(text))
    p_token, q_token = p[at, text], q[at, text]
    if not (p_token > 0).all():
        raise ValueError(
            f"tokens must be written by the target, but token {p_token.argmin()} of "
            "them has probability 0"
        )
    return Along(acceptance_by_row(p, q), np.minimum(1.0, q_token / p_token))


# Progress


def progress_line(stream: IO[str]) -> Callable[[int, int], None]:
    """A function for :meth:`Sweep.run` that keeps one line of a terminal up to date.

    ``stream`` is ``sys.stderr``, say; into a pipe or a file it writes nothing.
    """
    start, first = time.monotonic(), [-1]
    shown = stream.isatty()

    def progress(done: int, total: int) -> None:
        if not shown:
            return
        if first[0] < 0:
            first[0] = done  # found in the file, not done now
        new = done - first[0]
        left = (time.monotonic() - start) / new * (total - done) if new else 0.0
        more = f", about {left:.0f} s left" if new and done < total else ""
        stream.write(f"\r{done} of {total} cells{more}\x1b[K")
        if done == total:
            stream.write("\n")
        stream.flush()

    return progress
