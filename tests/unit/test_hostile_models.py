"""Models, drafts and rules of a reader's own that break their contract.

Each fault ends in a ValueError or TypeError that says whose it was, whether it comes
with the first call or later. What cannot be seen: a draft that reports other rows than
it drew from (they look like any others; the law of the text is then another), and a
draft or model that does not return: nothing in Python interrupts a call, so that only
the service, which makes calls in a second thread, goes on without it
(``--draft-seconds`` and ``--target-seconds``, tests/service/test_breakers.py).
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from faults_kit import OTHER, TARGET, VOCAB, counted

import specdec_lib as sd
from specdec_lib.drafts import Proposal
from specdec_lib.pair import Pair, train_pair
from specdec_lib.text import Tokenizer, WordTokenizer, vocabulary_name

NOT_NUMBERS = (TypeError, ValueError)


class Model:
    """A language model whose states return ``bad(rows)`` from their n-th call on."""

    bos_id, context_window = 0, None

    def __init__(self, bad, after=0, vocab_size=VOCAB):
        self.bad, self.after, self.vocab_size = bad, after, vocab_size

    def start(self):
        return State(self)


class State:
    def __init__(self, model):
        self._model, self._state, self._calls = model, TARGET.start(), 0

    @property
    def length(self):
        return self._state.length

    def extend(self, tokens):
        rows = self._state.extend(tokens)
        self._calls += 1
        return self._model.bad(rows) if self._calls > self._model.after else rows

    def rewind(self, length):
        self._state.rewind(length)


def with_entry(value):
    """The last row's third logit is this."""

    def bad(rows):
        rows = rows.copy()
        rows[-1, 2] = value
        return rows

    return bad


LOGITS = {
    "NaN": with_entry(np.nan),
    "+inf": with_entry(np.inf),
    "all NaN": lambda rows: rows * np.nan,
    "all +inf": lambda rows: rows + np.inf,
    "all -inf": lambda rows: rows - np.inf,
    "NaN in float32": lambda rows: with_entry(np.nan)(rows.astype(np.float32)),
    "NaN in float16": lambda rows: with_entry(np.nan)(rows.astype(np.float16)),
    "None": lambda rows: None,
    "a number": lambda rows: 0.5,
    "text": lambda rows: "logits",
    "a dict": lambda rows: {"logits": rows},
    "nothing": lambda rows: [],
    "one row": lambda rows: rows[-1],
    "a row less": lambda rows: rows[:-1],
    "a row more": lambda rows: np.vstack([rows, rows[:1]]),
    "a column less": lambda rows: rows[:, :-1],
    "a column more": lambda rows: np.hstack([rows, rows[:, :1]]),
    "three axes": lambda rows: rows[None],
    "the other way round": lambda rows: np.zeros((VOCAB, len(rows) + 1)),
    "uneven lists": lambda rows: [
        [0.0] * (VOCAB - i % 2) for i in range(len(rows) + 1)
    ],
    "complex": lambda rows: rows + 1j,
    "strings": lambda rows: rows.astype(str),
    "times": lambda rows: rows.astype("m8[s]"),
    "objects": lambda rows: np.full(rows.shape, None),
    "objects of text": lambda rows: np.full(rows.shape, "a", dtype=object),
    "lists of text": lambda rows: [["a"] * VOCAB for _ in rows],
    "a generator": lambda rows: (row for row in rows),
    "a set": lambda rows: {1.0, 2.0},
    "a record": lambda rows: np.zeros(rows.shape, dtype=[("a", float)]),
}


@pytest.mark.parametrize("bad", LOGITS.values(), ids=LOGITS)
def test_a_target_that_returns_no_logits(bad, tried):
    n = 0
    for temperature, after, k in itertools.product((0, 1), (0, 1, 3), (0, 2)):
        target = Model(bad, after)
        draft = sd.ModelDraft(OTHER, sd.Sampler(temperature)) if k else None
        rounds = sd.stream(
            target, [0, 1], draft=draft, k=k, max_new_tokens=15, seed=1,
            sampler=sd.Sampler(temperature),
        )  # fmt: skip
        for _ in range(after):
            assert next(rounds).emitted
        with pytest.raises(NOT_NUMBERS, match=r"target must return|logits must"):
            next(rounds)
        n += 1
    tried("models that return no logits", n)


@pytest.mark.parametrize("bad", LOGITS.values(), ids=LOGITS)
def test_a_draft_model_that_returns_no_logits(bad, tried):
    """Rows of another width are seen by the rule, where the guess is drawn; at
    temperature 0 they are a guess like any other, and cost acceptance alone."""
    n = 0
    for temperature, after in itertools.product((1, 0), (0, 1)):
        draft = sd.ModelDraft(Model(bad, after), sd.Sampler(temperature))
        given = dict(draft=draft, k=3, max_new_tokens=9, seed=1)
        n += 1
        if temperature == 0 and bad in (
            LOGITS["a column less"],
            LOGITS["a column more"],
        ):
            greedy = dict(max_new_tokens=9, sampler=sd.Sampler(0))
            plain = sd.generate(TARGET, [0, 1], **greedy)
            assert sd.generate(TARGET, [0, 1], **given | greedy).tokens == plain.tokens
            continue
        said = r"logits must|proposal\.probabilities must|inhomogeneous"
        with pytest.raises(NOT_NUMBERS, match=said):
            sd.generate(TARGET, [0, 1], **given)
    tried("models that return no logits", n)


def test_logits_that_are_fine(tried):
    """-inf for some, whole numbers, bools, lists and any layout are logits."""
    expected = sd.generate(TARGET, [0], max_new_tokens=8, seed=2).tokens
    for same in (
        lambda rows: rows.tolist(),
        lambda rows: np.asfortranarray(rows),
        lambda rows: rows.astype(object),
        lambda rows: list(rows),
        lambda rows: np.ma.masked_array(rows),
    ):
        found = sd.generate(Model(same), [0], max_new_tokens=8, seed=2)
        assert found.tokens == expected
    for other in (
        lambda rows: (rows > 0).astype(bool),
        lambda rows: rows.astype(np.int8),
        lambda rows: rows.astype(np.uint64),
        with_entry(-np.inf),
        with_entry(1e308),
    ):
        assert len(sd.generate(Model(other), [0], max_new_tokens=8).tokens) == 8
    tried("odd logits that are fine", 10)


# ---- what a rule is given


def rows_of(value, n=2):
    return np.full((n + 1, 4), value)


ROWS = {
    "NaN": rows_of(np.nan), "negative": np.tile([-0.5, 0.5, 0.5, 0.5], (3, 1)),
    "sum 0": rows_of(0.0), "sum 0.9": rows_of(0.225), "sum 1.1": rows_of(0.275),
    "sum 4": rows_of(1.0), "infinite": rows_of(np.inf), "1e308": rows_of(1e308),
    "-inf": rows_of(-np.inf), "complex": rows_of(0.25 + 0j), "text": rows_of("0.25"),
    "objects": np.full((3, 4), None), "one axis": np.full(4, 0.25),
    "three axes": np.full((1, 3, 4), 0.25), "no columns": np.zeros((3, 0)),
    "a row more": rows_of(0.25, 3), "a row less": rows_of(0.25, 1),
    "None": None, "a number": 0.25, "a dict": {}, "uneven": [[0.5, 0.5], [1.0], [1.0]],
}  # fmt: skip
RULES = (sd.verify_tokens, sd.verify_block, sd.verify_tree)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_no_distributions(rule, name, tried):
    rng = sd.SeededRandom(0)
    bad = ROWS[name]
    with pytest.raises(NOT_NUMBERS, match="target_probabilities must"):
        rule(bad, Proposal((1, 2)), rng)
    tried("rows that are no distributions")
    q = bad[:-1] if isinstance(bad, np.ndarray) and bad.ndim == 2 else bad
    if q is not None:
        with pytest.raises(NOT_NUMBERS, match=r"proposal\.(probabilities|tokens)"):
            rule(rows_of(0.25), Proposal((1, 2), q), rng)
        tried("rows that are no distributions")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_place_of_a_bad_number(rule, tried):
    n = 0
    for place in np.ndindex(3, 4):
        for value in (np.nan, np.inf, -np.inf, -1e-3, -1.0, 0.5, 2.0):
            p = rows_of(0.25)
            p[place] = value
            with pytest.raises(ValueError, match="target_probabilities must"):
                rule(p, Proposal((1, 2)), sd.SeededRandom(0))
            n += 1
            if place[0] < 2:
                with pytest.raises(ValueError, match=r"proposal\.(prob|tokens)"):
                    rule(rows_of(0.25), Proposal((1, 2), p[:2]), sd.SeededRandom(0))
                n += 1
    tried("rows that are no distributions", n)


# ---- tokens

TOKENS = {
    "too large": [VOCAB], "negative": [-1], "huge": [2**70],
    "hugely negative": [-(2**70)],
    "at the end of 64 bits": [2**63], "floats": [1.0], "halves": [0.5], "NaN": [np.nan],
    "infinite": [np.inf], "bools": [True], "text": ["1"], "bytes": [b"1"],
    "None": [None], "complex": [1j], "nested": [[1, 2]], "uneven": [[1], [1, 2]],
    "a string": "12", "a dict": {1: 2}, "a number": 3, "an object": object(),
    "an array of floats": np.array([1.0, 2.0]),
    "an array of two axes": np.ones((2, 2), int),
    "times": np.array([1], "m8[s]"), "unsigned": np.array([2**64 - 1], np.uint64),
}  # fmt: skip


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_that_are_none(name, tried):
    bad, n = TOKENS[name], 0

    def refused(match, call, *given, **named):
        nonlocal n
        with pytest.raises(NOT_NUMBERS, match=match) as caught:
            call(*given, **named)
        assert len(str(caught.value)) < 300
        n += 1

    refused("prompt must", sd.stream, TARGET, bad, max_new_tokens=1)
    if name != "a dict":  # whose keys are ids
        refused("stop_ids must", sd.stream, TARGET, [0], stop_ids=bad, max_new_tokens=1)
    for model in (TARGET, counted(2), sd.CacheModel(OTHER)):
        state = model.start()
        refused("must be", state.extend, bad)
        assert state.length == 0
    for draft in (sd.ModelDraft(OTHER), sd.TreeDraft(OTHER)):
        refused("prompt must", draft.start, bad)
        refused("tokens must", draft.start([0]).commit, bad)
    refused("context must", counted(2).probabilities, bad)
    refused("sequences", sd.NGramModel.fit, [bad], order=2, vocab_size=VOCAB)
    copies = sd.PromptLookup(), sd.SuffixDraft()
    for draft in copies:  # which know no vocabulary: any id that may be one will do
        if name in ("too large",):
            continue
        refused("must be|must", draft.start, bad)

    class Says:
        def start(self, prompt):
            return self

        def propose(self, k, rng):
            return Proposal(bad)

        def commit(self, tokens):
            pass

    refused(
        r"proposal\.tokens must|draft must", sd.generate, TARGET, [0], draft=Says(),
        k=2, max_new_tokens=4, verify=sd.verify_tokens,
    )  # fmt: skip
    tried("tokens that are none", n)


# ---- drafts


class Draft:
    """A draft whose every part may be replaced by one that does something else."""

    def __init__(self, **acts):
        self.acts = acts

    def start(self, prompt):
        return self.acts.get("start", lambda: self)()

    def propose(self, k, rng):
        return self.acts.get("propose", lambda k: Proposal(()))(k)

    def commit(self, tokens):
        return self.acts.get("commit", lambda: None)()


def even(n, size=VOCAB):
    return np.full((n, size), 1 / size)


PROPOSALS = {
    "None": lambda k: None,
    "a tuple": lambda k: (1, 2),
    "text": lambda k: "guesses",
    "a number": lambda k: 3,
    "an exception": lambda k: ValueError("no"),
    "a class": lambda k: Proposal,
    "no tokens": lambda k: Proposal(None),
    "a generator": lambda k: Proposal(iter([1])),
    "one too many": lambda k: Proposal((1,) * (k + 1)),
    "a million": lambda k: Proposal((1,) * 1_000_000),
    "many in a tree": lambda k: Proposal((1,) * (k + 1), None, tuple(range(-1, k))),
    "no tree": lambda k: Proposal((1, 1), None, (0, 1)),
    "a tree too short": lambda k: Proposal((1, 1), None, (-1,)),
    "a tree of text": lambda k: Proposal((1, 1), None, "ab"),
    "a tree of halves": lambda k: Proposal((1, 1), None, (-1.0, 0.5)),
    "a tree for a chain": lambda k: Proposal((1, 1), None, (-1, -1)),
    "NaN in q": lambda k: Proposal((1,), even(1) * np.nan),
    "negative q": lambda k: Proposal((1,), np.array([[-0.5, 1.5, 0, 0, 0]])),
    "q of 0.9": lambda k: Proposal((1,), even(1) * 0.9),
    "q of 1.1": lambda k: Proposal((1,), even(1) * 1.1),
    "q of 0": lambda k: Proposal((1,), even(1) * 0),
    "q that excludes it": lambda k: Proposal((1,), np.eye(VOCAB)[:1]),
    "a row of q too few": lambda k: Proposal((1, 1), even(1)),
    "a row of q too many": lambda k: Proposal((1,), even(2)),
    "q of another width": lambda k: Proposal((1,), even(1, VOCAB + 1)),
    "q without rows": lambda k: Proposal((1,), even(1)[0]),
    "q of text": lambda k: Proposal((1,), [["a"] * VOCAB]),
    "q a number": lambda k: Proposal((1,), 0.5),
    "q complex": lambda k: Proposal((1,), even(1) + 0j),
    "q of objects": lambda k: Proposal((1,), np.full((1, VOCAB), None)),
    "q uneven": lambda k: Proposal((1, 1), [[1.0], [0.5, 0.5]]),
}


@pytest.mark.parametrize("propose", PROPOSALS.values(), ids=PROPOSALS)
def test_proposals_that_are_none(propose, tried):
    """At the first round and at the third: no token of that round comes out."""
    n = 0
    for rule, after in itertools.product((sd.verify_tokens, sd.verify_block), (0, 2)):
        calls = []

        def act(k, calls=calls, after=after):
            calls.append(k)
            return propose(k) if len(calls) > after else Proposal(())

        rounds = sd.stream(
            TARGET, [0], draft=Draft(propose=act), k=2, max_new_tokens=20, verify=rule
        )
        for _ in range(after):
            assert len(next(rounds).emitted) == 1
        with pytest.raises(NOT_NUMBERS, match=r"draft must|proposal") as caught:
            next(rounds)
        assert len(str(caught.value)) < 400
        n += 1
    tried("proposals that are none", n)


@pytest.mark.parametrize("part", ("start", "propose", "commit"))
@pytest.mark.parametrize(
    "error", (ValueError("mine"), KeyError("mine"), RuntimeError("mine"),
              MemoryError("mine"), StopIteration("mine"), SystemExit("mine"),
              KeyboardInterrupt("mine")), ids=repr,
)  # fmt: skip
def test_a_draft_that_raises(part, error, tried):
    """What it raises comes out as it is (the core hides no fault); no other text."""

    def act(*given):
        raise error

    wanted = RuntimeError if isinstance(error, StopIteration) and part != "start" else (
        type(error)
    )  # fmt: skip
    with pytest.raises(wanted) as caught:
        sd.generate(TARGET, [0], draft=Draft(**{part: act}), k=2, max_new_tokens=5)
    assert "mine" in str(caught.value) or caught.value.__cause__ is error
    tried("drafts that raise")


@pytest.mark.parametrize(
    "session", (None, 3, "a", object()), ids=("None", "3", "a", "an object")
)
def test_sessions_that_are_none(session, tried):
    with pytest.raises(TypeError, match=r"draft\.start must return a session, got"):
        sd.generate(
            TARGET, [0], draft=Draft(start=lambda: session), k=2, max_new_tokens=5
        )
    tried("proposals that are none")


def test_a_row_that_was_not_drawn_from_is_not_seen():
    """Nothing tells it from an honest one; the text has another law, as said above."""

    def run(rng):
        draft = Draft(
            propose=lambda k: Proposal((1,), even(1))
        )  # always the same guess
        even_target = sd.FunctionModel(lambda seq: np.zeros(VOCAB), VOCAB)
        return sd.generate(
            even_target, [0], draft=draft, k=1, max_new_tokens=2, rng=rng
        ).tokens[0]

    law = sd.exact_distribution(run)
    assert law[1] == pytest.approx(1.0)  # in place of 1 / 5


# ---- rules

VERDICTS = {
    "None": None, "a tuple": (1, 2), "text": "accepted", "a number": 3,
    "a class": sd.Verdict, "accepted None": sd.Verdict(None, 1),
    "accepted 0.5": sd.Verdict(0.5, 1),
    "accepted text": sd.Verdict("1", 1), "accepted True": sd.Verdict(True, 1),
    "accepted NaN": sd.Verdict(np.nan, 1), "accepted -1": sd.Verdict(-1, 1),
    "accepted 3": sd.Verdict(3, 1), "accepted 2**70": sd.Verdict(2**70, 1),
    "accepted an array": sd.Verdict(np.array([1]), 1), "next None": sd.Verdict(1, None),
    "next 1.0": sd.Verdict(1, 1.0), "next text": sd.Verdict(1, "a"),
    "next -1": sd.Verdict(1, -1), "next V": sd.Verdict(1, VOCAB),
    "next 2**70": sd.Verdict(1, 2**70), "next NaN": sd.Verdict(1, np.nan),
    "a path for a chain": sd.Verdict(1, 1, (0,)),
    "a path of text": sd.Verdict(1, 1, "a"),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_that_are_none(name, tried):
    """With guesses and without."""
    for k in (0, 2):
        if k == 0 and name in ("accepted -1",):
            continue
        with pytest.raises(NOT_NUMBERS, match="verify must") as caught:
            sd.generate(
                TARGET, [0], draft=Draft(propose=lambda k: Proposal((1, 1))), k=k,
                max_new_tokens=5, verify=lambda p, proposal, rng: VERDICTS[name],
            )  # fmt: skip
        assert len(str(caught.value)) < 300
    tried("verdicts that are none", 2)


@pytest.mark.parametrize("path", ((0, 0), (1,), (2,), (-1,), "a", (0.5,), 3), ids=repr)
def test_paths_that_are_none(path, tried):
    """Of a tree of two guesses for one place, of which the second was accepted."""
    tree = Proposal((1, 2), None, (-1, -1))
    verdict = sd.Verdict(1 if path == (0, 0) else 2, 1, path)
    with pytest.raises(NOT_NUMBERS, match=r"verify must|verdict\.path must"):
        sd.generate(
            TARGET, [0], draft=Draft(propose=lambda k: tree), k=2, max_new_tokens=5,
            verify=lambda p, proposal, rng: verdict,
        )  # fmt: skip
    tried("verdicts that are none")


# ---- vocabularies

TEXT = "the cat sat on the mat, the dog sat on the cat"
ONE = train_pair([TEXT], order=3, merges=4)
TWO = train_pair([TEXT.replace("cat", "hen").replace("sat", "ran")], order=3, merges=4)


def test_vocabularies_of_one_size_with_other_strings(tmp_path, tried):
    assert ONE.target.vocab_size == TWO.target.vocab_size
    assert ONE.tokenizer.vocabulary != TWO.tokenizer.vocabulary
    assert ONE.target.vocabulary == ONE.draft.vocabulary == ONE.tokenizer.vocabulary
    other = TWO.draft
    drafts = (
        sd.ModelDraft(other),
        sd.ModelDraft(sd.CacheModel(other)),
        sd.TreeDraft(other),
        sd.FirstOf([sd.PromptLookup(), sd.ModelDraft(other)]),
    )
    said = "draft must have the target's tokens; its ids stand for others"
    for draft in drafts:
        assert draft.vocabulary == other.vocabulary
        with pytest.raises(ValueError, match=said):
            sd.stream(ONE.target, [0], draft=draft, max_new_tokens=1)
        with pytest.raises(ValueError, match=said):
            sd.Engine(ONE.target, ONE.tokenizer, draft)
    with pytest.raises(ValueError, match=said):
        sd.Engine(ONE.target, ONE.tokenizer, other)
    with pytest.raises(ValueError, match="tokenizer must have the target's tokens"):
        sd.Engine(ONE.target, TWO.tokenizer)
    with pytest.raises(ValueError, match="drafts must share one vocabulary"):
        sd.FirstOf([sd.ModelDraft(ONE.draft), sd.ModelDraft(other)])
    for parts in ((TWO.target, ONE.draft), (ONE.target, other), (TWO.target, other)):
        Pair(ONE.tokenizer, *parts).save(tmp_path / "pair.npz")
        with pytest.raises(ValueError, match=r"pair\.npz is a broken pair: its "):
            Pair.load(tmp_path / "pair.npz")
    tried("vocabularies that differ", 2 * len(drafts) + 6)


def test_vocabularies_that_nobody_named_or_that_are_the_same(tmp_path):
    """Plain models have none, and go with anything of their size."""
    plain = sd.NGramModel.fit([[0, 5, 7]], order=2, vocab_size=ONE.target.vocab_size)
    assert plain.vocabulary is None
    for target, draft in ((ONE.target, plain), (plain, ONE.draft), (plain, plain)):
        sd.generate(target, [0], draft=sd.ModelDraft(draft), max_new_tokens=3)
    again = train_pair([TEXT], order=2, merges=4)
    assert again.tokenizer.vocabulary == ONE.tokenizer.vocabulary
    sd.generate(ONE.target, [0], draft=sd.ModelDraft(again.draft), max_new_tokens=3)
    again.target.save(tmp_path / "model.npz")
    kept = sd.NGramModel.load(tmp_path / "model.npz")
    assert kept.vocabulary == again.tokenizer.vocabulary
    assert kept.with_settings(smoothing="add-k").vocabulary == kept.vocabulary
    with pytest.raises(ValueError, match="vocabulary can only be chosen in fit"):
        kept.with_settings(vocabulary="other")
    for bad in (3, b"a", ["a"]):
        with pytest.raises(TypeError, match="vocabulary must be a string"):
            sd.NGramModel.fit([[0]], order=1, vocab_size=2, vocabulary=bad)


def test_names_of_vocabularies():
    """Other tokens, another order or another cut: another name."""
    names = Counter(
        vocabulary_name(pieces)
        for pieces in (["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""], [], ["a\0b"][:0])
    )
    assert sorted(names.values()) == [1, 1, 1, 1, 2]
    merged = Tokenizer([(99, 100)]), Tokenizer([(100, 99)]), Tokenizer()
    assert len({each.vocabulary for each in merged}) == 3
    assert Tokenizer([(99, 100)]).vocabulary == merged[0].vocabulary
    words = WordTokenizer.train(["a b b"]), WordTokenizer.train(["a a b"])
    assert words[0].vocabulary != words[1].vocabulary
