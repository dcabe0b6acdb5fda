"""What only a small change of the code would bring to light.

Each test here notices mutants that no other test did (`make mutants`).
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib import decoding, metrics, randomness
from specdec_lib.verification import lossy

EVEN = sd.FunctionModel(lambda sequence: np.zeros(3), 3)
ROUND = sd.Round(drafted=(5, 6), accepted=1, emitted=(5, 9))


@pytest.mark.parametrize(
    "value",
    [
        ROUND,
        metrics.Metrics.from_rounds([ROUND]),
        metrics.Positions.from_rounds([ROUND]),
        sd.LogitBias({1: 2.0}),
        sd.RepetitionPenalty(2.0),
        sd.Verdict(0, 1),
        sd.Generation((1,), (), "length"),
        sd.Proposal((1,)),
        lossy.SoftGreedyDraft(None),
        sd.ModelDraft(None),
        sd.TreeDraft(EVEN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_returned_and_what_is_set_cannot_be_changed(value):
    field = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, None)


def test_a_round_of_which_no_more_is_told():
    assert (ROUND.draft_seconds, ROUND.target_seconds) == (0, 0)
    assert (ROUND.finish_reason, ROUND.parents, ROUND.path) == (None, None, None)
    assert sd.Verdict(0, 1).path is None


def test_half_a_tree_is_counted_as_a_chain():
    """Two guesses, two tokens out: the second guess was judged and rejected."""
    assert dataclasses.replace(ROUND, parents=(-1, 0)).tested == 2
    assert dataclasses.replace(ROUND, path=(0,)).tested == 2


def test_without_a_seed_no_two_sources_are_alike():
    drawn = {tuple(draws(sd.SeededRandom())) for _ in range(3)}
    assert len(drawn) == 3
    assert draws(sd.SeededRandom(0)) == draws(sd.SeededRandom(0))


def draws(rng):
    return [rng.categorical(np.full(100, 0.01)) for _ in range(20)]


class Uniform:
    """A source of one given uniform number."""

    def __new__(cls, u):
        rng = sd.SeededRandom(0)
        rng._uniform = lambda: u
        return rng


def test_a_coarse_distribution_is_cut_at_its_own_sum():
    """0.5 of 0.996 is 0.50201: below that the first token, above it the second."""
    row = np.array([0.5, 0.496], dtype=np.float32)
    assert Uniform(0.5015).categorical(row) == 0
    assert Uniform(0.5025).categorical(row) == 1


def test_a_distribution_in_float64_is_followed_as_it_is():
    """A sum that is off by less than 1e-6 is no reason to change it."""
    row = np.array([0.5, 0.4999995])
    found = sd.exact_distribution(lambda rng: rng.categorical(row))
    assert found == {0: 0.5, 1: 0.4999995}


@pytest.mark.parametrize(
    "dtype, fits, does_not",
    [(np.float64, 0.9e-6, 1.1e-6), (np.float32, 0.9e-2, 1.1e-2)],
)
@pytest.mark.parametrize("sign", (1, -1))
def test_how_far_a_sum_may_be_off(dtype, fits, does_not, sign):
    for draw in (sd.SeededRandom(0).categorical, _followed):
        draw(np.array([0.5, 0.5 + sign * fits], dtype=dtype))
        with pytest.raises(ValueError, match="sum to 1"):
            draw(np.array([0.5, 0.5 + sign * does_not], dtype=dtype))


def _followed(row):
    return sd.exact_distribution(lambda rng: rng.categorical(row))


def test_a_run_may_have_five_million_paths():
    names = randomness.exact_distribution.__kwdefaults__
    assert names == {"max_paths": 5_000_000}


@pytest.mark.parametrize(
    "bad",
    [
        np.array([1.0, 2.0 + 1j]),
        np.array(["1", "2"]),
        np.array([b"1", b"2"]),
        np.array([1, 2], dtype="m8[s]"),
        np.array([1, 2], dtype="M8[s]"),
    ],
    ids=lambda bad: str(bad.dtype),
)
def test_logits_are_real_numbers(bad):
    with pytest.raises(TypeError, match="logits must be real numbers"):
        sd.Sampler()(bad)


def test_each_row_is_lifted_by_its_own_peak():
    """The differences of the second do not fit a float; those of the first do."""
    rows = sd.Sampler()([[0.0, 0.0], [1.5e308, -1.5e308]])
    assert rows.tolist() == [[0.5, 0.5], [1.0, 0.0]]


# The rules.


@pytest.mark.parametrize("dtype", (np.int64, np.float32, np.longdouble))
def test_the_residual_is_in_float64(dtype):
    one = np.array([1, 0], dtype=dtype)
    for p, q in ((one, one), (one, [0.5, 0.5]), ([0.5, 0.5], one)):
        left = sd.residual(p, q)
        assert left.dtype == np.float64
        assert left.tolist() == ([0, 1] if p is not one else [1, 0])


@pytest.mark.parametrize("shape", ((1,), (1, 2, 1), (2, 2), (1, 0)))
def test_the_shape_of_the_targets_rows(shape):
    with pytest.raises(ValueError, match=r"must have shape \(1, V\)"):
        sd.verify_tokens(np.full(shape, 0.5), sd.Proposal(()), None)


def test_a_token_outside_a_vocabulary_that_is_smaller_than_the_number_of_rows():
    """Two symbols, four rows: 2 is no token."""
    with pytest.raises(ValueError, match=r"proposal.tokens must be inside 0 .. 1"):
        sd.verify_tokens(np.full((4, 2), 0.5), sd.Proposal((0, 1, 2)), None)


@pytest.mark.parametrize("kind", (complex, str, bytes, "m8[s]", "M8[s]"))
def test_the_drafts_probabilities_are_real_numbers(kind):
    rows = np.array([[1, 0]]).astype(kind)
    with pytest.raises(TypeError, match="probabilities must be real numbers"):
        sd.verify_tokens(np.full((2, 2), 0.5), sd.Proposal((0,), rows), None)


@pytest.mark.parametrize(
    "dtype, fits, does_not",
    [
        (np.float64, 0.9e-6, 1.1e-6),
        (np.longdouble, 0.9e-6, 1.1e-6),
        (np.float32, 0.9e-2, 1.1e-2),
    ],
)
def test_how_far_a_sum_may_be_off_for_a_rule(dtype, fits, does_not):
    fair = np.full((2, 2), 0.5)
    for p_off, q_off in ((fits, 0.0), (0.0, fits)):
        p = fair + np.array([[0, p_off]])
        q = np.array([[0.5, 0.5 + q_off]], dtype=dtype)
        rng = Scripted(True)
        sd.verify_tokens(p.astype(dtype), sd.Proposal((0,), q), rng)
    for p_off, q_off in ((does_not, 0.0), (0.0, does_not)):
        p = fair + np.array([[0, p_off]])
        q = np.array([[0.5, 0.5 + q_off]], dtype=dtype)
        with pytest.raises(ValueError, match="rows that sum to 1"):
            sd.verify_tokens(p.astype(dtype), sd.Proposal((0,), q), None)


class Scripted:
    """Answers as told; then always takes the most probable. Notes what it is asked."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.asked = []

    def bernoulli(self, p):
        self.asked.append(p)
        return self.answers.pop(0)

    def categorical(self, distribution):
        return int(np.argmax(distribution))


def test_the_block_rule_asks_for_no_chance_that_is_none():
    """Nothing where nothing was guessed, and nothing once only the empty prefix is
    left: that one is always kept."""
    p = np.array([[0.25, 0.75], [0.5, 0.5]])
    rng = Scripted()
    assert sd.verify_block(p[:1], sd.Proposal(()), rng) == sd.Verdict(0, 1)
    assert rng.asked == []
    rng = Scripted(False)
    rejected = sd.Proposal((0,), np.array([[0.5, 0.5]]))
    assert sd.verify_block(p, rejected, rng) == sd.Verdict(0, 1)
    assert rng.asked == [0.5]


def test_a_prefix_of_full_weight_after_which_nothing_is_left():
    """The second row of the target is the draft's but for a rounding: 0 of 0 is left
    there, so the prefix of one guess is not kept, and nothing is divided."""
    p = np.array([[0.25, 0.75], [0.5, 0.4999995], [0.5, 0.5]])
    q = np.array([[0.25, 0.75], [0.5, 0.5]])
    rng = Scripted(False)
    assert sd.verify_block(p, sd.Proposal((0, 1), q), rng) == sd.Verdict(0, 1)
    assert rng.asked == [pytest.approx(0.999999)]


# Rows for "always 0", "always 1", "always 2": what comes after n guesses is row n.
CERTAIN = np.eye(3)


@pytest.mark.parametrize(
    "rule, q",
    [
        (lossy.probability_threshold(0.5), None),
        (lossy.ratio_threshold(0.5), None),
        (lossy.logit_ratio(0.5), [[0.4, 0.3, 0.3], [0.3, 0.4, 0.3]]),
    ],
)
@pytest.mark.parametrize("n", (0, 1, 2))
def test_after_all_guesses_the_last_row_decides(rule, q, n):
    """A guess passes the last of these rules where q is more than twice p."""
    sure = (
        CERTAIN if q is None else np.array([[0.1, 0.9, 0], [0.1, 0.1, 0.8], [0, 0, 1]])
    )
    proposal = sd.Proposal(
        (0, 1)[:n], None if q is None else np.array(q).reshape(2, 3)[:n]
    )
    best = int(sure[n].argmax())
    assert rule(sure[: n + 1], proposal, Scripted()) == sd.Verdict(n, best)


def test_at_the_bound_itself_the_ratio_of_logits_rejects():
    """q / p = 2 is not more than 1 / (1 - 1/2)."""
    p = np.array([[0.25, 0.75], [0.5, 0.5]])
    for q_token, accepted in ((0.5, 0), (0.53125, 1)):
        proposal = sd.Proposal((0,), np.array([[q_token, 1 - q_token]]))
        assert lossy.logit_ratio(0.5)(p, proposal, Scripted()).accepted == accepted


# Sampling.


def test_what_a_processor_was_given_stays_as_it_was():
    """Though the next processor, and the next row, are told something else."""
    given = []

    def note(logits, prefix):
        given.append(logits)
        return logits + 1.0

    sd.Sampler(processors=(note, note))([[0.0, 2.0]])
    assert [row.tolist() for row in given] == [[0.0, 2.0], [1.0, 3.0]]


def test_a_filter_that_keeps_all_changes_no_bit():
    """The last token has a probability below 1e-12 and is kept all the same."""
    logits = [0.3, 0.1, -0.7, -30.0]
    plain = sd.Sampler()(logits).tolist()
    assert plain[3] > 0
    for every in (sd.Sampler(top_k=4), sd.Sampler(top_p=1.0), sd.Sampler(top_k=9)):
        assert every(logits).tolist() == plain
    for seed in range(50):  # some of these sum to 1 but for a rounding
        logits = np.random.default_rng(seed).normal(size=50)
        plain = sd.Sampler()(logits).tolist()
        for every in (sd.Sampler(top_k=50), sd.Sampler(top_p=1.0)):
            assert every(logits).tolist() == plain


def test_the_best_of_a_thousand():
    order = np.random.default_rng(0).permutation(1000)
    logits = order / 100.0
    for k in (1, 10, 300, 999):
        kept = np.flatnonzero(sd.Sampler(top_k=k)(logits))
        assert kept.tolist() == np.flatnonzero(order >= 1000 - k).tolist()


def test_a_hundred_equals_are_taken_from_the_lowest_id():
    """All odd ones are 1,000 times more probable: 0.9 of all is 91 of them."""
    logits = np.log([1.0, 1000.0] * 100)
    kept = np.flatnonzero(sd.Sampler(top_p=0.9)(logits))
    assert kept.tolist() == [2 * i + 1 for i in range(91)]


def test_a_repetition_penalty_of_small_logits():
    penalty = sd.RepetitionPenalty(2.0)
    logits = np.array([0.5, -0.5, 0.0, 0.75])
    assert penalty(logits, [0, 1, 2]).tolist() == [0.25, -1.0, 0.0, 0.75]
    with pytest.raises(ValueError, match=r"prefix must be inside 0 .. 3, got 4"):
        penalty(logits, [4])


def test_a_bias_leaves_what_it_was_given_alone():
    logits = np.zeros(2)
    assert sd.LogitBias({1: 2.0})(logits, ()).tolist() == [0.0, 2.0]
    assert logits.tolist() == [0.0, 0.0]


# The loop.

ALWAYS_ONE = sd.FunctionModel(lambda sequence: [-np.inf, 0.0], 2)


def test_a_stop_id_may_come_first_where_nothing_is_said_of_a_minimum():
    (only,) = sd.stream(ALWAYS_ONE, [0], max_new_tokens=5, stop_ids=[1])
    assert (only.emitted, only.finish_reason) == ((1,), "stop")


def test_the_last_round_tells_that_the_window_is_full():
    target = dataclasses.replace(ALWAYS_ONE, context_window=3)
    rounds = list(sd.stream(target, [0], max_new_tokens=5))
    assert [each.finish_reason for each in rounds] == [None, "context"]


@pytest.mark.parametrize("name, other", [("target", "start"), ("target", "vocab_size")])
def test_half_a_target(name, other):
    half = type("Half", (), {other: 2, "bos_id": None, "context_window": None})()
    with pytest.raises(TypeError, match="target must be a language model"):
        sd.stream(half, [0], max_new_tokens=1)


@pytest.mark.parametrize("only", ("bernoulli", "categorical"))
def test_half_a_source(only):
    half = type("Half", (), {only: None})()
    with pytest.raises(TypeError, match="rng must have bernoulli and categorical"):
        sd.stream(ALWAYS_ONE, [0], max_new_tokens=1, rng=half)


class Slow:
    """A target and a draft by a clock that only they move on: 1 s to read, 10 to
    rewind; 100 to propose, 1000 to commit."""

    vocab_size, bos_id, context_window = 2, None, None

    def __init__(self):
        self.now = 5.0
        self.state = ALWAYS_ONE.start()

    def clock(self):
        return self.now

    def start(self, prompt=None):
        return self

    @property
    def length(self):
        return self.state.length

    def extend(self, tokens):
        self.now += 1
        return self.state.extend(tokens)

    def rewind(self, length):
        self.now += 10
        self.state.rewind(length)

    def propose(self, k, rng):
        self.now += 100
        return sd.Proposal((0,))

    def commit(self, tokens):
        self.now += 1000


def test_every_second_is_counted_where_it_was_spent(monkeypatch):
    slow = Slow()
    monkeypatch.setattr(decoding, "perf_counter", slow.clock)
    first, last = sd.stream(slow, [0], draft=NoModel(slow), k=1, max_new_tokens=2)
    assert (first.target_seconds, first.draft_seconds) == (11, 1100)
    assert (last.target_seconds, last.draft_seconds) == (1, 1000)  # no guess is left
    slow.state.rewind(0)
    (alone,) = sd.stream(slow, [0], max_new_tokens=1)
    assert (alone.target_seconds, alone.draft_seconds) == (1, 0)


@pytest.mark.parametrize("proposed", (None, object(), sd.Proposal(3), [1, 2]))
def test_a_draft_that_returns_no_proposal(proposed):
    draft = Slow()
    draft.propose = lambda k, rng: proposed
    with pytest.raises(TypeError, match="draft must return a Proposal"):
        list(sd.stream(ALWAYS_ONE, [0], draft=NoModel(draft), max_new_tokens=3))


class NoModel:
    def __init__(self, session):
        self.session = session

    def start(self, prompt):
        return self.session


def test_a_tree_of_no_guesses():
    draft = Slow()
    draft.propose = lambda k, rng: sd.Proposal((), None, ())
    found = sd.generate(
        *(ALWAYS_ONE, [0]),
        draft=NoModel(draft),
        verify=sd.verify_tree,
        max_new_tokens=3,
    )
    assert found.tokens == (1, 1, 1)
    assert [each.parents for each in found.rounds] == [(), (), None]


class Lending(Slow):
    """Gives out its own rows, whole numbers: 0 or 1 alike, and 2 far behind."""

    vocab_size = 3

    def __init__(self):
        super().__init__()
        self.rows = np.array([[5, 5, -95]] * 4)

    def extend(self, tokens):
        super().extend([0] * len(tokens))
        return self.rows[: len(tokens)]


def test_forbidding_a_stop_leaves_the_models_rows_alone():
    target = Lending()
    found = sd.generate(
        *(target, [0]), max_new_tokens=3, min_new_tokens=3, stop_ids=[0, 2], seed=0
    )
    assert found.tokens == (1, 1, 1)
    assert target.rows.tolist() == [[5, 5, -95]] * 4


# Drafts.


def test_the_tree_that_is_guessed_where_nothing_is_said():
    """Two first guesses, and three more after each."""
    assert sd.TreeDraft(EVEN).shape == (-1, -1, 0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("parents", ((-1,), (-1, 0)))
def test_a_shape_that_can_be_read_only_once(parents):
    with pytest.raises(ValueError, match="shape must have one entry for each of 0"):
        sd.TreeDraft(EVEN, shape=iter(parents))


def test_branches_after_one_that_is_too_deep_are_still_guessed():
    """At most two in a row: the third of the first branch is left out."""
    draft = sd.TreeDraft(EVEN, shape=(-1, 0, 1, -1, 3), draw="best")
    assert draft.start([0]).propose(2, None).parents == (-1, 0, -1, 2)


def test_two_proposals_are_the_same_only_if_they_are_one():
    """Their arrays cannot be compared by one word."""
    one, other = (sd.Proposal((1,), np.array([[0.5, 0.5]])) for _ in range(2))
    assert one == one
    assert one != other


def test_a_tree_without_a_node_has_no_rows():
    found = sd.TreeDraft(EVEN).start([0]).propose(0, sd.SeededRandom(0))
    assert (found.tokens, found.probabilities, found.parents) == ((), None, ())


def test_the_best_two_though_the_sampler_would_keep_one():
    """Processors change which tokens are best; a filter of the sampler does not."""
    sampler = sd.Sampler(top_k=1, processors=(sd.LogitBias({2: 1.0, 1: 0.5}),))
    draft = sd.TreeDraft(EVEN, sampler, shape=(-1, -1), draw="best")
    assert draft.start([0]).propose(1, None).tokens == (2, 1)


@pytest.mark.parametrize("draw, temperature", [("best", 1.0), ("with replacement", 0)])
def test_processors_of_a_tree_see_the_branch(draw, temperature):
    seen = []

    def note(logits, prefix):
        seen.append(tuple(prefix))
        return logits

    sampler = sd.Sampler(temperature, processors=(note,))
    draft = sd.TreeDraft(EVEN, sampler, shape=(-1, -1, 0, 1), draw=draw)
    found = draft.start([2, 2]).propose(2, None)
    assert found.tokens == (0, 1, 0, 0)
    assert seen == [(2, 2), (2, 2, 0), (2, 2, 1)]


class Frugal:
    """A model whose state notes how many tokens it reads for how many rows."""

    vocab_size, bos_id, context_window = 3, None, None

    def __init__(self):
        self.read = []

    def start(self):
        state = EVEN.start()
        extend = state.extend

        def extend_last(tokens, rows):
            self.read.append((len(tokens), rows))
            return extend(tokens)[len(tokens) - rows :]

        state.extend_last = extend_last
        return state


def test_a_tree_asks_its_model_for_no_row_that_it_does_not_use():
    model = Frugal()
    draft = sd.TreeDraft(model, shape=(-1, -1, 0, 1), draw="best")
    session = draft.start([1, 1, 1])
    session.propose(2, None)
    assert model.read == [(2, 0), (1, 1), (1, 1), (1, 1)]
    session.commit([0, 1])
    session.propose(1, None)
    assert model.read[4:] == [(2, 0), (1, 1)]


def test_a_product_at_the_bound_itself_goes_on():
    """0.5 is at least 0.5; the second guess would make it 0.25."""
    options = {"least": 0.5, "chance": lambda row, sequence: 0.5}
    for draw_last, guesses in ((False, 1), (True, 2)):
        draft = sd.ModelDraft(EVEN, **options, draw_last=draw_last)
        found = draft.start([0]).propose(5, sd.SeededRandom(0))
        assert len(found.tokens) == guesses


def test_the_chance_of_a_greedy_guess_is_of_a_row_with_its_text():
    def later(logits, prefix):
        return logits + np.log([1.0, 1.0, len(prefix)])

    rows = []

    def chance(row, sequence):
        rows.append(row.round(12).tolist())
        return 1.0

    greedy = sd.Sampler(0, processors=(later,))
    draft = sd.ModelDraft(EVEN, greedy, least=0.5, chance=chance)
    assert draft.start([0, 0]).propose(2, None).tokens == (2, 2)
    assert rows == [[0.25, 0.25, 0.5], [0.2, 0.2, 0.6]]


def test_what_is_equal_after_the_first_difference_is_read_again():
    """0, 1, 2 are guessed; 1, 1 come: the state must not keep the 0 for the first."""
    cycle = [0, 1, 2]

    def after(sequence):
        wrong = sequence[1:3] == (0, 1)
        return np.eye(3)[cycle[len(sequence) - 1] if wrong or len(sequence) < 3 else 0]

    draft = sd.ModelDraft(sd.FunctionModel(after, 3), sd.Sampler(0))
    session = draft.start([0])
    assert session.propose(3, None).tokens == (0, 1, 2)
    session.commit([1, 1])
    assert session.propose(1, None).tokens == (0,)


def test_branches_that_part_and_say_the_same_again_are_read_apart():
    """0, 2, 2 and 1, 2, 2: what comes then is what came first."""

    def after(sequence):
        if len(sequence) == 1:
            return [2.0, 1.0, 0.0]
        return np.eye(3)[2 if len(sequence) < 4 else sequence[1]]

    draft = sd.TreeDraft(sd.FunctionModel(after, 3), draw="best")
    found = draft.start([0]).propose(4, None)
    assert found.tokens == (0, 1, 2, 2, 2, 2, 0, 1)


# Parts of a contract, one of them missing


def nothing(*given, **named):
    raise AssertionError("a part that is incomplete is not to be asked")


@pytest.mark.parametrize("part", ("propose", "commit"))
def test_half_a_session_is_none(part):
    half = SimpleNamespace(**{part: nothing})
    draft = SimpleNamespace(start=lambda prompt: half)
    with pytest.raises(TypeError, match=r"draft\.start must return a session, got"):
        sd.generate(EVEN, [0], draft=draft, k=2, max_new_tokens=2)


@pytest.mark.parametrize("part", ("accepted", "next_token", "path"))
@pytest.mark.parametrize("wrong", ("missing", "no number"))
def test_verdicts_that_lack_a_part(part, wrong):
    """What is there is right, and is that of a round that could be counted."""
    parts = {"accepted": 0, "next_token": 1, "path": None}
    del parts[part]
    if wrong == "no number" and part != "path":
        parts[part] = 0.0
    with pytest.raises(TypeError, match="verify must return a Verdict of whole"):
        sd.generate(
            EVEN, [0], max_new_tokens=1, verify=lambda *given: SimpleNamespace(**parts)
        )


@pytest.mark.parametrize("kind", (sd.ModelDraft, sd.TreeDraft))
def test_a_draft_has_the_name_of_its_models_tokens(kind):
    assert kind(EVEN).vocabulary is None
    named = sd.NGramModel.fit([[0, 1]], order=2, vocab_size=3, vocabulary="a")
    assert kind(named).vocabulary == "a"
    other = sd.NGramModel.fit([[0, 1]], order=2, vocab_size=3, vocabulary="b")
    with pytest.raises(ValueError, match="draft must have the target's tokens"):
        sd.generate(other, [0], draft=kind(named), k=2, max_new_tokens=2)
    with pytest.raises(ValueError, match="draft must have the target's tokens"):
        sd.stream(other, [0], draft=kind(named), k=2, max_new_tokens=2)


def test_objects_are_numbers_or_are_refused_by_name():
    assert sd.Sampler(0)([Fraction(1, 3), Fraction(1, 2)]).tolist() == [0, 1]
    with pytest.raises(TypeError, match="logits must be rows of real numbers"):
        sd.Sampler()(np.array([1, "a"], object))
    with pytest.raises(TypeError, match="target_probabilities must be real numbers"):
        sd.verify_tokens([[0.5j, 1]], sd.Proposal(()), sd.SeededRandom(0))
    odd = SimpleNamespace(
        vocab_size=3,
        bos_id=None,
        context_window=None,
        start=lambda: SimpleNamespace(
            length=0,
            extend=lambda tokens: np.full((len(tokens), 3), 1j),
            rewind=nothing,
        ),
    )
    with pytest.raises(TypeError, match="target must return logits, which must be"):
        sd.generate(odd, [0], max_new_tokens=1)


def test_a_sum_beyond_all_numbers_is_refused_and_is_no_fault_of_arithmetic():
    with (
        np.errstate(all="raise"),
        pytest.raises(ValueError, match="must have rows that sum to 1, row 0 sums"),
    ):
        sd.verify_tokens([[1e308, 1e308]], sd.Proposal(()), sd.SeededRandom(0))
