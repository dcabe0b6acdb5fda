"""What the property tests draw from: models, drafts, rules, lengths, whole calls.

A strategy gives a ``Recipe``: it says what it makes, and makes it afresh at each call,
so that two runs of one example share no object. Token 1, ``FREE``, is possible in every
model, is no stop id and has no bias of -inf, so no row is ever impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import specdec_lib as sd
from specdec_lib.drafts.trees import DRAWS
from specdec_lib.models import check_parents, check_path
from specdec_lib.ngram import SMOOTHINGS
from specdec_lib.verification import lossy

FREE = 1
seeds = st.integers(0, 2**32 - 1)
flips = st.booleans()


# Making a strategy takes longer than drawing from it: each is made once.
@lru_cache(maxsize=None, typed=True)
def whole(low: int, high: int) -> st.SearchStrategy[int]:
    """Integers low .. high."""
    return st.integers(low, high)


@lru_cache(maxsize=None, typed=True)
def number(low: float, high: float) -> st.SearchStrategy[float]:
    """Floats low .. high."""
    return st.floats(low, high)


@lru_cache(maxsize=None, typed=True)
def among(*options: Any) -> st.SearchStrategy[Any]:
    """One of these."""
    return st.sampled_from(options)


def examples(number: int) -> settings:
    """So many examples of a property, however busy the machine is."""
    slow = [HealthCheck.too_slow]
    return settings(max_examples=number, deadline=None, suppress_health_check=slow)


@dataclass(frozen=True)
class Recipe:
    """Something that is made anew at each call; ``what`` tells what it is."""

    what: str
    make: Callable[[], Any] = field(repr=False, compare=False)

    def __call__(self) -> Any:
        return self.make()


SELDOM = among(False, False, False, True)


# ---- models


def place_of(sequence: Sequence[int], cells: int = 97) -> int:
    """A number that depends on every token and on their order."""
    place = 1
    for token in sequence:
        place = (place * 31 + token + 1) % cells
    return place


def rows_of(seed: int, vocab: int, kind: str, cells: int) -> np.ndarray:
    """(cells, vocab) logits; FREE is finite in each row."""
    g = np.random.default_rng(seed)
    if kind == "ties":
        return g.integers(0, 3, size=(cells, vocab)).astype(float)
    rows = g.normal(size=(cells, vocab)) * g.choice([0.3, 1.5, 4.0])
    if kind == "gaps":
        never = g.random((cells, vocab)) < g.choice([0.2, 0.5, 0.9])
        never[:, FREE] = False
        rows[never] = -np.inf
    return rows


def function_model(seed: int, vocab: int, kind: str, order: int | None, **options):
    """Logits from a table: by the last ``order`` tokens, or by all of them (None)."""
    table = rows_of(seed, vocab, kind, 97)

    def logits(sequence: tuple[int, ...]) -> np.ndarray:
        known = sequence if order is None else sequence[len(sequence) - order :]
        return table[place_of(known)]

    return sd.FunctionModel(logits, vocab, **options)


def ngram_model(seed, vocab, order, smoothing, bos_id, eos_id) -> sd.NGramModel:
    """Counted on a random text of a few sequences, some tokens more frequent."""
    g = np.random.default_rng(seed)
    weights = g.dirichlet(np.full(vocab, 0.5))
    texts = [g.choice(vocab, size=g.integers(1, 25), p=weights) for _ in range(4)]
    texts[0] = np.append(texts[0], FREE)
    return sd.NGramModel.fit(
        texts,
        order=order,
        vocab_size=vocab,
        smoothing=smoothing,
        bos_id=bos_id,
        eos_id=eos_id,
    )


@dataclass(frozen=True)
class Reader:
    """A function model whose states have the optional calls, and check their use."""

    model: sd.FunctionModel
    trees: bool
    last: bool
    single: bool  # logits in float32

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def start(self) -> Any:
        kind = type("State", (_Reader,), {})
        if self.trees:
            kind.extend_tree, kind.keep = _Reader.read_tree, _Reader.keep_path
        if self.last:
            kind.extend_last = _Reader.read_last
        return kind(self)


class _Reader:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.sequence: tuple[int, ...] = ()
        self.tree: tuple[tuple[int, ...], list[tuple[int, ...]]] = ((), [])

    @property
    def length(self) -> int:
        return len(self.sequence)

    def rows(self, sequences: Sequence[tuple[int, ...]]) -> np.ndarray:
        window = self.reader.context_window
        assert all(window is None or len(each) <= window for each in sequences)
        kind = np.float32 if self.reader.single else np.float64
        found = [self.reader.model.logits_after(each) for each in sequences]
        return np.array(found, dtype=kind).reshape(len(found), self.reader.vocab_size)

    def extend(self, tokens):
        before = self.length
        self.sequence += tuple(map(int, tokens))
        self.tree = ((), [])
        ends = range(before + 1, self.length + 1)
        return self.rows([self.sequence[:end] for end in ends])

    def rewind(self, length):
        assert 0 <= length <= self.length
        self.sequence = self.sequence[:length]
        self.tree = ((), [])

    def read_last(self, tokens, rows):
        assert 0 <= rows <= len(tokens)
        return self.extend(tokens)[len(tokens) - rows :]

    def read_tree(self, tokens, parents):
        parents = check_parents(parents, len(tokens))
        branches: list[tuple[int, ...]] = []
        for token, parent in zip(tokens, parents, strict=True):
            above = self.sequence if parent < 0 else branches[parent]
            branches.append((*above, int(token)))
        self.tree = (parents, branches)
        return self.rows(branches)

    def keep_path(self, nodes):
        parents, branches = self.tree
        path = check_path(nodes, parents)
        if path:
            self.sequence = branches[path[-1]]
        self.tree = ((), [])


MODELS = ("all tokens", "few tokens", "ties", "gaps", "n-gram", "cache", "reader")


def a_model(draw, vocab: int, kinds: Sequence[str] = MODELS, **options) -> Recipe:
    """A language model over ``vocab`` tokens; ``options`` are bos_id, context_window
    (an n-gram model has no window, and is not drawn where one is asked for)."""
    options = {"bos_id": None, "context_window": None, **options}
    if options["context_window"] is not None:
        kinds = [kind for kind in kinds if kind != "n-gram"]
    kind, seed = draw(among(*kinds)), draw(seeds)
    what = f"{kind} model, seed {seed}, {options}"
    if kind == "n-gram":
        order, smoothing = draw(whole(1, 4)), draw(among(*SMOOTHINGS))
        eos = draw(among(None, vocab - 1)) if vocab > 2 else None
        made = (seed, vocab, order, smoothing, options["bos_id"], eos)
        return Recipe(f"{what}, {made[2:]}", lambda: ngram_model(*made))
    if kind == "cache":
        inside = a_model(draw, vocab, ("all tokens", "gaps", "n-gram"), **options)
        weight = draw(among(0.0, 0.3, 0.9))
        window, order = draw(whole(1, 9)), draw(whole(1, 3))
        return Recipe(
            f"cache {(weight, window, order)} of {inside.what}",
            lambda: sd.CacheModel(inside(), weight, window, order),
        )
    if kind == "reader":
        inside = a_model(draw, vocab, ("all tokens", "ties", "gaps"), **options)
        trees, last, single = (draw(flips) for _ in range(3))
        return Recipe(
            f"reader {(trees, last, single)} of {inside.what}",
            lambda: Reader(inside(), trees, last, single),
        )
    order = {"few tokens": 2, "ties": 1}.get(kind)
    return Recipe(what, lambda: function_model(seed, vocab, kind, order, **options))


def fresh_row(model: Any, text: Sequence[int]) -> np.ndarray:
    """The logits after ``text``, read token by token by a state of its own."""
    state = model.start()
    for token in text:
        row = state.extend([token])[0]
    return row


# ---- samplers


@dataclass(frozen=True)
class Alternating:
    """A processor that looks at the whole prefix."""

    shift: float

    def __call__(self, logits, prefix):
        result = logits.copy()
        result[place_of(prefix) % len(logits)] += self.shift
        return result


def a_sampler(draw, vocab: int, temperatures=None) -> sd.Sampler:
    """Any temperature, each of the filters or none, and up to two processors."""
    if temperatures is None:
        temperatures = among(None, 0.0, 0.3, 1.0, 1.0, 1.7, 1e-6, 100.0)
    temperature = draw(temperatures)
    if temperature is None:
        temperature = draw(number(0.05, 5.0))
    top_k = draw(among(None, None, *range(1, vocab + 2)))
    top_p = draw(number(0.05, 1.0)) if draw(flips) else None
    processors: list[Any] = []
    for _ in range(draw(among(0, 0, 0, 1, 2))):
        kind = draw(among("penalty", "bias", "alternating"))
        if kind == "penalty":
            processors.append(sd.RepetitionPenalty(draw(among(0.5, 1.3, 4.0))))
        elif kind == "alternating":
            processors.append(Alternating(draw(among(-3.0, 0.7))))
        else:
            token = draw(among(*range(vocab)))
            least = -1.0 if token == FREE else -float("inf")
            processors.append(sd.LogitBias({token: draw(among(least, 2.5))}))
    return sd.Sampler(temperature, top_k, top_p, tuple(processors))


# ---- drafts


@dataclass(frozen=True)
class Told:
    """Draws from rows of its own, and says so; how many depends on the text so far.

    honest
        False: reports rows that its tokens were not drawn from.
    sure
        guesses are certain, and reported so.
    """

    seed: int
    vocab: int
    honest: bool
    sure: bool

    def start(self, prompt: Sequence[int]) -> Any:
        return _Told(self, list(prompt))


class _Told:
    def __init__(self, draft: Told, text: list[int]) -> None:
        self.draft, self.text = draft, text
        g = np.random.default_rng(draft.seed)
        self.table = g.dirichlet(np.full(draft.vocab, 0.4), size=31)
        self.table[self.table < 0.05] = 0.0
        self.table[:, FREE] += 1e-9
        self.table /= self.table.sum(axis=1, keepdims=True)

    def propose(self, k, rng):
        tokens: list[int] = []
        rows = []
        for _ in range(min(k, place_of(self.text, 7))):
            row = self.table[place_of([*self.text, *tokens], 31)]
            reported = row
            if self.draft.sure:
                token = int(row.argmax())
            elif self.draft.honest:
                token = rng.categorical(row)
            else:
                token = place_of([5, *self.text, *tokens]) % self.draft.vocab
                reported = np.where(np.arange(len(row)) == token, row + 0.1, row)
                reported = reported / reported.sum()
            tokens.append(token)
            rows.append(reported)
        q = None if self.draft.sure or not rows else np.array(rows)
        return sd.Proposal(tuple(tokens), q)

    def commit(self, tokens):
        self.text += tokens


@dataclass(frozen=True)
class SaysTree:
    """Certain of the tokens of a tree, siblings doubled or not, cut to depth k."""

    seed: int
    vocab: int
    shape: tuple[int, ...]

    def start(self, prompt: Sequence[int]) -> Any:
        return _SaysTree(self, list(prompt))


class _SaysTree:
    def __init__(self, draft: SaysTree, text: list[int]) -> None:
        self.draft, self.text = draft, text

    def propose(self, k, rng):
        kept: dict[int, int] = {-1: -1}
        depth: dict[int, int] = {-1: 0}
        tokens, parents = [], []
        for node, parent in enumerate(self.draft.shape):
            depth[node] = depth[parent] + 1
            if depth[node] > k:
                continue
            kept[node] = len(tokens)
            tokens.append(place_of([self.draft.seed % 89, node, *self.text]))
            parents.append(kept[parent])
        tokens = [token % self.draft.vocab for token in tokens]
        return sd.Proposal(tuple(tokens), None, tuple(parents))

    def commit(self, tokens):
        self.text += tokens


class Nothing:
    """Never has a guess."""

    def start(self, prompt):
        return self

    def propose(self, k, rng):
        return sd.Proposal(())

    def commit(self, tokens):
        pass


def a_shape(draw, most: int = 6, least: int = 0) -> tuple[int, ...]:
    """The parents of any tree, in any order in which no node is before its parent."""
    n = draw(whole(least, most))
    return tuple(i - 1 if draw(flips) else draw(whole(-1, i - 1)) for i in range(n))


CHAINS = (
    *("model", "the target", "greedy", "unsure", "calibrated", "true chance"),
    *("lookup", "suffixes", "history", "first of", "told", "certain", "nothing"),
)
TREES = ("tree", "tree", "said tree", "first of trees")


def a_draft(
    draw, vocab: int, target: Recipe, sampler: sd.Sampler, kinds: Sequence[str] = CHAINS
) -> Recipe:
    """A draft for ``target``, of one of ``kinds``."""
    kind, seed = draw(among(*kinds)), draw(seeds)
    window = draw(whole(1, 16)) if draw(SELDOM) else None
    other = a_model(draw, vocab, context_window=window)
    own = sampler if draw(flips) else a_sampler(draw, vocab)
    what = f"{kind}, seed {seed}, {other.what}, {own}"

    def made(make: Callable[[], Any], *more: object) -> Recipe:
        return Recipe(" ".join(map(str, (what, *more))), make)

    if kind == "model":
        return made(lambda: sd.ModelDraft(other(), own))
    if kind == "the target":
        return made(lambda: sd.ModelDraft(target(), sampler))
    if kind == "greedy":
        return made(lambda: sd.ModelDraft(other(), sd.Sampler(0, None, None)))
    if kind in ("unsure", "calibrated", "true chance"):
        least, last = draw(among(0.05, 0.4, 1.0)), draw(flips)
        table = sd.Calibration((0.3, 0.6), (0.2, 0.5, 0.9))

        def unsure() -> sd.ModelDraft:
            chance = {"calibrated": table}
            if kind == "true chance":
                chance[kind] = sd.TrueChance(target(), sampler, own)
            given = {"chance": chance[kind]} if kind in chance else {}
            return sd.ModelDraft(other(), own, least=least, draw_last=last, **given)

        return made(unsure, least, last)
    if kind == "lookup":
        longest = draw(whole(1, 4))
        shortest = draw(whole(1, longest))
        earliest, reach = draw(flips), draw(among(None, 0.3, 1.0, 2.6))
        given = (longest, shortest, earliest, reach)
        return made(lambda: sd.PromptLookup(*given), given)
    if kind in ("suffixes", "history"):
        given = dict(
            max_match=draw(whole(3, 8)),
            min_match=draw(whole(1, 3)),
            threshold=draw(among(0.0, 0.1, 0.5)),
            max_tokens=draw(among(2, 6, 1000)),
        )

        def suffixes() -> sd.SuffixDraft:
            if kind == "suffixes":
                return sd.SuffixDraft(**given)
            return sd.SuffixDraft(history(seed, vocab), **given)

        return made(suffixes, given)
    if kind == "first of":
        inner = ("lookup", "suffixes", "told", "nothing", "model")
        parts = [
            a_draft(draw, vocab, target, sampler, inner)
            for _ in range(draw(whole(1, 3)))
        ]
        return Recipe(
            f"first of {parts}", lambda: sd.FirstOf([part() for part in parts])
        )
    if kind in ("told", "liar", "certain"):
        told = Told(seed, vocab, kind != "liar", kind == "certain")
        return Recipe(str(told), lambda: told)
    if kind == "nothing":
        return Recipe(kind, Nothing)
    if kind == "tree":
        shape = a_shape(draw)
        way = draw(among(*DRAWS))
        return made(lambda: sd.TreeDraft(other(), own, shape, way), shape, way)
    if kind == "said tree":
        says = SaysTree(seed, vocab, a_shape(draw))
        return Recipe(str(says), lambda: says)
    assert kind == "first of trees"
    tree = a_draft(draw, vocab, target, sampler, ("tree", "said tree"))
    first = a_draft(draw, vocab, target, sampler, ("lookup", "told", "model"))
    order = draw(among(1, -1))
    return Recipe(
        f"first of {[tree, first][::order]}",
        lambda: sd.FirstOf([tree(), first()][::order]),
    )


def history(seed: int, vocab: int) -> sd.SuffixHistory:
    """Some texts to copy from."""
    g = np.random.default_rng(seed)
    kept = sd.SuffixHistory(int(g.choice([4, 1000])), max_match=5)
    for _ in range(2):
        kept.add(g.integers(0, vocab, size=12).tolist())
    return kept


# ---- rules and lengths

EXACT = {
    "verify_tokens": sd.verify_tokens,
    "verify_block": sd.verify_block,
    "verify_tree": sd.verify_tree,
}
# They keep to what is possible in the target, and so are greedy at temperature 0.
POSSIBLE = {
    "verify_argmax": lossy.verify_argmax,
    "probability_threshold(0.2)": lossy.probability_threshold(0.2),
    "probability_threshold(0.5)": lossy.probability_threshold(0.5),
    "ratio_threshold(0.7)": lossy.ratio_threshold(0.7),
}
ANY = EXACT | POSSIBLE | {"logit_ratio(0.2)": lossy.logit_ratio(0.2)}


class Listed:
    """A draft length that goes through a list, over and over."""

    def __init__(self, ks: Sequence[int]) -> None:
        self.ks, self.at, self.seen = tuple(ks), 0, []

    def next_k(self) -> int:
        return self.ks[self.at % len(self.ks)]

    def observe(self, round: sd.Round) -> None:
        self.at += 1
        self.seen.append(round)


def a_length(draw, tree: bool = False) -> int | Recipe:
    """A fixed k, or an object that chooses it."""
    kinds = ["fixed", "fixed", "fixed", "listed", "up and down", "recent", "paying"]
    kind = draw(among(*kinds[: -1 if tree else None]))
    if kind == "fixed":
        return draw(among(2, 3, 1, 4, 5, 7, 0))
    if kind == "listed":
        ks = [draw(whole(0, 20)) for _ in range(draw(whole(1, 4)))]
        return Recipe(f"listed {ks}", lambda: Listed(ks))
    if kind == "up and down":
        start, up, down = (draw(whole(1, 4)) for _ in range(3))
        return Recipe(
            f"{kind} {start} {up} {down}",
            lambda: sd.UpAndDown(start, up=up, down=down, most=6),
        )
    cost = draw(among(0.0, 0.1, 0.8))
    last = draw(among(1.0, 1.4, 6.0))
    curve = sd.theory.cost_curve([1, 9], [1.0, last])
    patience = draw(whole(1, 4))
    kind_of = sd.RecentAcceptance if kind == "recent" else sd.PayingLength
    arguments = (cost, curve) if kind == "recent" else (curve, cost)
    return Recipe(
        f"{kind} {cost} {last} {patience}",
        lambda: kind_of(*arguments, max_k=6, patience=patience),
    )


# ---- whole calls


@dataclass(frozen=True)
class Call:
    """Everything that :func:`specdec_lib.generate` is given."""

    vocab: int
    target: Recipe
    draft: Recipe | None
    k: int | Recipe
    rule: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    min_new_tokens: int
    sampler: sd.Sampler
    stops: tuple[int, ...]
    seed: int

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """Keywords for ``generate``, all objects fresh."""
        made = dict(
            draft=self.draft() if self.draft is not None else None,
            k=self.k() if isinstance(self.k, Recipe) else self.k,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            sampler=self.sampler,
            verify=ANY[self.rule],
            stop_ids=self.stops,
            seed=self.seed,
        )
        return made | changes

    def generate(self, **changes: Any) -> sd.Generation:
        return sd.generate(self.target(), self.prompt, **self.arguments(**changes))

    def stream(self, **changes: Any) -> Iterator[sd.Round]:
        return sd.stream(self.target(), self.prompt, **self.arguments(**changes))

    @property
    def start(self) -> tuple[int, ...]:
        """What the first token follows."""
        return self.prompt or (0,)

    def row(self, new: Sequence[int]) -> np.ndarray:
        """The target's probabilities after the prompt and ``new``, read afresh."""
        text = [*self.start, *new]
        logits = np.array(self.target().start().extend(text)[-1], dtype=float)
        if len(new) < self.min_new_tokens:
            logits[list(self.stops)] = -np.inf
        return self.sampler(logits, text)

    def plain(self, choose: Callable[[np.ndarray], int]) -> tuple[tuple[int, ...], str]:
        """Decoding by one fresh reading a token: no loop, state, draft or rule."""
        window = self.target().context_window
        new: tuple[int, ...] = ()
        while len(new) < self.max_new_tokens:
            if window is not None and len(self.start) + len(new) == window:
                return new, "context"
            new += (int(choose(self.row(new))),)
            if new[-1] in self.stops:
                return new, "stop"
        return new, "length"


def some_tokens(draw, vocab: int, least: int, most: int) -> list[int]:
    """``least`` to ``most`` tokens."""
    token = whole(0, vocab - 1)
    return [draw(token) for _ in range(draw(whole(least, most)))]


def a_prompt(draw, vocab: int, least: int = 0, most: int = 24) -> tuple[int, ...]:
    """Any tokens; a few tokens over and over; a text with a run that comes again."""
    some = some_tokens(draw, vocab, least, 6)
    way = draw(among("as it is", "over and over", "again"))
    if way == "over and over":
        some = some * draw(whole(1, 4))
    elif way == "again":
        some = some + some_tokens(draw, vocab, 0, 4) + some
    return tuple(some[:most])


@st.composite
def calls(
    draw,
    rules: Sequence[str] = tuple(ANY),
    chains: Sequence[str] = (*CHAINS, "liar"),
    trees: Sequence[str] = TREES,
    temperatures: st.SearchStrategy[float] | None = None,
    least_new: int = 0,
    most_new: int = 12,
    vocab: tuple[int, int] = (2, 6),
) -> Call:
    """Any call: target, draft, rule, length, prompt, budget, window, sampler, stops."""
    size = draw(whole(*vocab))
    bos = draw(among(None, 0))
    prompt = a_prompt(draw, size, least=0 if bos is not None else 1)
    new = draw(whole(least_new, most_new))
    window = None
    if draw(SELDOM):
        window = max(len(prompt), 1) + draw(whole(0, new + 1))
    target = a_model(draw, size, bos_id=bos, context_window=window)
    sampler = a_sampler(draw, size, temperatures)
    tree = "verify_tree" in rules and bool(trees) and draw(SELDOM)
    rule = "verify_tree" if tree else draw(among(*rules))
    kinds = trees if tree else chains
    draft = a_draft(draw, size, target, sampler, kinds)
    k = a_length(draw, tree)
    others = [token for token in range(size) if token != FREE]
    stops = [token for token in others if draw(SELDOM)]
    least = draw(whole(0, new)) if draw(SELDOM) else 0
    return Call(
        *(size, target, draft, k, rule, prompt, new, least, sampler),
        *(tuple(stops), draw(whole(0, 2**20))),
    )


def untimed(rounds: Sequence[sd.Round]) -> tuple[sd.Round, ...]:
    """The rounds without their times, which are never the same twice."""
    return tuple(replace(r, draft_seconds=0.0, target_seconds=0.0) for r in rounds)


def same(result: sd.Generation) -> tuple[Any, ...]:
    """What must be the same in two runs."""
    return result.tokens, untimed(result.rounds), result.finish_reason


# The same as strategies of their own.
models, samplers = st.composite(a_model), st.composite(a_sampler)
drafts, prompts, shapes = map(st.composite, (a_draft, a_prompt, a_shape))
