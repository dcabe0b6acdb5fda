"""Trees of guesses: the draft, the model's call for trees, the loop around them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specdec_lib as sd
from specdec_lib.drafts import CacheModel, tree_shape
from specdec_lib.drafts.trees import DRAWS
from specdec_lib.models import extend_by_branches, path_to
from specdec_lib.ngram import NGramModel

V = 4
TABLE = np.random.default_rng(3).normal(size=(V, V, V)) * 2


def logits_after(sequence):
    return TABLE[sequence[-2] if len(sequence) > 1 else 0, sequence[-1]]


def table_model(**options):
    return sd.FunctionModel(logits_after, V, **options)


def row_after(sequence, sampler=None):
    return (sampler or sd.Sampler())(logits_after(tuple(sequence)))


def small_n_grams():
    g = np.random.default_rng(5)
    texts = [g.integers(0, V, size=12).tolist() for _ in range(30)]
    return NGramModel.fit(texts, order=3, vocab_size=V)


N_GRAMS = small_n_grams()


# Shapes


def test_shapes_by_hand():
    assert tree_shape(()) == ()
    assert tree_shape((3,)) == (-1, -1, -1)
    assert tree_shape((1, 1, 1)) == (-1, 0, 1)
    assert tree_shape((2, 2)) == (-1, -1, 0, 0, 1, 1)
    assert tree_shape((2, 1, 2)) == (-1, -1, 0, 1, 2, 2, 3, 3)


@pytest.mark.parametrize(
    "bad, error, message",
    [
        ((2, 0), ValueError, "branching must be 1 or more, got 0"),
        ((2, 1.0), TypeError, "branching must be an integer, got 1.0"),
        (3, TypeError, "branching must be some integers, got 3"),
    ],
)
def test_bad_branchings(bad, error, message):
    with pytest.raises(error, match=message):
        tree_shape(bad)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"shape": (-1, 1)}, ValueError, r"shape\[1\] must be inside -1 .. 0, got 1"),
        ({"shape": (0,)}, ValueError, r"shape\[0\] must be inside -1 .. -1, got 0"),
        ({"shape": (-1, 0.0)}, TypeError, "shape must be integers, got 0.0"),
        ({"shape": 2}, TypeError, "shape must be some integers, got 2"),
        ({"draw": "all"}, ValueError, "draw must be one of .*best.*, got 'all'"),
        ({"draw": None}, ValueError, "draw must be one of .*, got None"),
    ],
)
def test_bad_tree_drafts(options, error, message):
    with pytest.raises(error, match=message):
        sd.TreeDraft(table_model(), **options)


@pytest.mark.parametrize(
    "prompt, error, message",
    [
        ((), ValueError, "prompt must have at least one token"),
        ((V,), ValueError, "prompt must be inside 0 .. 3, got 4"),
        ((0.5,), TypeError, "prompt must be integers"),
    ],
)
def test_bad_prompts(prompt, error, message):
    with pytest.raises(error, match=message):
        sd.TreeDraft(table_model()).start(prompt)


# What is proposed


def check_rows(proposal, sequence, sampler, without):
    """Each row is the model's after its branch, less the siblings before it."""
    for node, (token, parent) in enumerate(
        zip(proposal.tokens, proposal.parents, strict=True)
    ):
        branch = [proposal.tokens[i] for i in path_to(parent, proposal.parents)]
        row = np.array(row_after([*sequence, *branch], sampler))
        for sibling in range(node) if without else ():
            if proposal.parents[sibling] == parent:
                row[proposal.tokens[sibling]] = 0
        row /= row.sum()
        assert row[token] > 0
        assert np.abs(proposal.probabilities[node] - row).max() < 1e-14


@pytest.mark.parametrize("draw", DRAWS[:2])
def test_rows_are_what_the_tokens_were_drawn_from(draw):
    shape = (-1, 0, -1, 2, 0, -1, 4)
    for sampler in (sd.Sampler(), sd.Sampler(0.6, top_k=3)):
        draft = sd.TreeDraft(table_model(), sampler, shape, draw)
        for seed in range(20):
            proposal = draft.start([1, 2]).propose(3, sd.SeededRandom(seed))
            assert proposal.parents == shape
            check_rows(proposal, [1, 2], sampler, draw == "without replacement")


def test_tokens_follow_their_rows():
    """Exactly: two children without replacement, and a child of the first."""
    draft = sd.TreeDraft(table_model(), shape=(-1, -1, 0))
    found = sd.exact_distribution(
        lambda rng: draft.start([0, 1]).propose(2, rng).tokens
    )
    first = row_after([0, 1])
    for a, b in itertools.permutations(range(V), 2):
        below = row_after([0, 1, a])
        for c in range(V):
            by_hand = first[a] * first[b] / (1 - first[a]) * below[c]
            assert found[a, b, c] == pytest.approx(by_hand, abs=1e-14)
    assert len(found) == 4 * 3 * 4


@pytest.mark.parametrize("sampler", (sd.Sampler(0), sd.Sampler()))
def test_the_best_children_are_certain(sampler):
    """Also at temperature 0, where all but one have no probability."""
    draws = DRAWS if sampler.temperature == 0 else ("best",)
    for draw in draws:
        draft = sd.TreeDraft(table_model(), sampler, (-1, -1, 0, -1, 0), draw)
        proposal = draft.start([0, 1]).propose(2, None)  # asks for no chance
        order = np.argsort(-logits_after([0, 1]))
        below = np.argsort(-logits_after([0, 1, order[0]]))
        assert proposal.probabilities is None
        assert proposal.tokens == (order[0], order[1], below[0], order[2], below[1])


def test_as_many_children_as_there_are_tokens():
    """And no grandchildren of those that are not there."""
    model = sd.FunctionModel(lambda seq: [0.0, -np.inf, 1.0], 3)
    shape = (-1, -1, -1, 2, 0)
    for draw in ("without replacement", "best"):
        proposal = sd.TreeDraft(model, shape=shape, draw=draw).start([0]).propose(
            2, sd.SeededRandom(0)
        )  # fmt: skip
        assert proposal.parents == (-1, -1, 0)
        assert sorted(proposal.tokens[:2]) == [0, 2]
    drawn = sd.TreeDraft(model, shape=shape, draw="with replacement")
    assert drawn.start([0]).propose(2, sd.SeededRandom(0)).parents == shape


@pytest.mark.parametrize(
    "k, parents", [(0, ()), (1, (-1, -1)), (2, (-1, -1, 0, 1)), (9, (-1, -1, 0, 1, 2))]
)
def test_nodes_deeper_than_k_are_left_out(k, parents):
    draft = sd.TreeDraft(table_model(), shape=(-1, -1, 0, 1, 2))
    assert draft.start([0]).propose(k, sd.SeededRandom(0)).parents == parents


def test_the_drafts_own_window_cuts_its_trees():
    for window, depth in ((2, 1), (3, 2), (4, 3), (1, 0), (9, 3)):
        draft = sd.TreeDraft(table_model(context_window=window), shape=(-1, 0, 1))
        proposal = draft.start([0, 1]).propose(5, sd.SeededRandom(0))
        assert len(proposal.tokens) == depth


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_session_proposes_as_a_new_one_would(data):
    """After any commits, of what was proposed or not, and proposals thrown away."""
    nodes = data.draw(st.integers(1, 6))
    shape = tuple(data.draw(st.integers(-1, node - 1)) for node in range(nodes))
    draw = data.draw(st.sampled_from(DRAWS))
    draft = sd.TreeDraft(table_model(), sd.Sampler(), shape, draw)
    sequence = [0, 1]
    session = draft.start(sequence)
    for seed in range(4):
        k = data.draw(st.integers(0, 3))
        proposal = session.propose(k, sd.SeededRandom(seed))
        fresh = draft.start(sequence).propose(k, sd.SeededRandom(seed))
        assert (proposal.tokens, proposal.parents) == (fresh.tokens, fresh.parents)
        if proposal.probabilities is not None:
            assert (proposal.probabilities == fresh.probabilities).all()
        if data.draw(st.booleans()):
            node = data.draw(st.integers(-1, len(proposal.tokens) - 1))
            kept = [proposal.tokens[i] for i in path_to(node, proposal.parents)]
            kept += data.draw(st.lists(st.integers(0, V - 1), max_size=2))
            session.commit(kept)
            sequence += kept


def test_the_draft_reads_each_node_once():
    """A branch below a node is read from that node on, not from the start."""
    reads = []
    model = table_model()

    class Counted:
        vocab_size, bos_id, context_window = V, None, None

        def start(self):
            state = model.start()
            extend = state.extend
            state.extend = lambda tokens: reads.append(len(tokens)) or extend(tokens)
            return state

    session = sd.TreeDraft(Counted(), shape=(-1, 0, 1)).start([0, 1, 2])
    proposal = session.propose(3, sd.SeededRandom(0))
    assert sum(reads) == 5  # the prompt's three, and two of three guesses
    session.commit([*proposal.tokens, 0])
    session.propose(1, sd.SeededRandom(0))
    assert max(reads) <= 4


# A model's call for trees


TREES = st.integers(0, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, V - 1), min_size=n, max_size=n),
        st.tuples(*(st.integers(-1, node - 1) for node in range(n))),
    )
)
TEXTS = st.lists(st.integers(0, V - 1), max_size=4)


def check_tree_rows(rows, model, text, tokens, parents):
    assert rows.shape == (len(tokens), V)
    for node in range(len(tokens)):
        branch = [tokens[i] for i in path_to(node, parents)]
        scratch = model.start().extend([*text, *branch])[-1]
        assert (rows[node] == scratch).all()


@settings(max_examples=200, deadline=None)
@given(TEXTS, TREES, st.data())
def test_an_n_gram_state_reads_trees(text, tree, data):
    """Rows of each branch from scratch; the length stays; a kept path is as if it had
    been read, again and again."""
    state = N_GRAMS.start()
    state.extend(text)
    for _ in range(3):
        tokens, parents = tree
        rows = state.extend_tree(tokens, parents)
        check_tree_rows(rows, N_GRAMS, text, tokens, parents)
        assert state.length == len(text)
        node = data.draw(st.integers(-1, len(tokens) - 1))
        path = path_to(node, parents)
        state.keep(path)
        text = [*text, *(tokens[i] for i in path)]
        assert state.length == len(text)
        scratch = N_GRAMS.start()
        scratch.extend(text)
        assert (state.extend([1, 2]) == scratch.extend([1, 2])).all()
        state.rewind(len(text))
        tree = data.draw(TREES)


@settings(max_examples=200, deadline=None)
@given(TEXTS, TREES)
def test_reading_by_branches(text, tree):
    """The same rows by extend and rewind alone; the state then has the text, and at
    most the tokens before the first fork."""
    tokens, parents = tree
    for model in (table_model(), N_GRAMS):
        state = model.start()
        state.extend(text)
        rows = extend_by_branches(state, tokens, parents)
        check_tree_rows(rows, model, text, tokens, parents)
        stem = 0
        while parents.count(stem - 1) == 1 and parents[stem] == stem - 1:
            stem += 1
        assert state.length == len(text) + stem
        state.rewind(len(text))
        scratch = model.start()
        scratch.extend(text)
        assert (state.extend([1, 2]) == scratch.extend([1, 2])).all()


def test_branches_are_read_in_few_calls():
    """One call for what stands before the fork, then one a node."""
    calls = []
    state = table_model().start()
    extend = state.extend
    state.extend = lambda tokens: calls.append(list(tokens)) or extend(tokens)
    #    0 - 1 - 2 - 3
    #          \ 4 - 5
    extend_by_branches(state, [0, 1, 2, 3, 1, 2], [-1, 0, 1, 2, 1, 4])
    assert calls == [[0, 1], [2], [3], [1], [2]]


def test_no_tree_read_no_path_kept():
    state = N_GRAMS.start()
    state.extend([0, 1])
    state.keep([])
    with pytest.raises(ValueError, match="nodes must be a path from a root"):
        state.keep([0])
    for forget in (
        lambda: state.extend([1]),
        lambda: state.extend([]),
        lambda: state.rewind(state.length),
        lambda: state.advance([1]),
        lambda: state.keep([0]),
        lambda: state.keep([]),
        lambda: state.extend_tree([], []),
    ):
        state.extend_tree([2, 3], [-1, 0])
        forget()
        length = state.length
        with pytest.raises(ValueError, match="nodes must be a path from a root"):
            state.keep([0])
        assert state.length == length


@pytest.mark.parametrize(
    "path, error",
    [
        ([1], ValueError),  # not a root
        ([0, 2], ValueError),  # not a child of 0
        ([0, 0], ValueError),
        ([2, 3, 3], ValueError),
        ([4], ValueError),
        ([-1], ValueError),
        ([True], TypeError),
        ([0.0], TypeError),
        (0, TypeError),
    ],
)
def test_paths_that_are_none(path, error):
    state = N_GRAMS.start()
    state.extend([0])
    state.extend_tree([1, 2, 3, 1], [-1, 0, -1, 2])
    with pytest.raises(error, match="nodes must be"):
        state.keep(path)
    assert state.length == 1
    state.keep(np.array([2, 3]))  # integers of NumPy are integers
    assert state.length == 3


@pytest.mark.parametrize(
    "tokens, parents, error, message",
    [
        ([0, 1], [-1], ValueError, "parents must have one entry for each of 2 tokens"),
        ([0, 1], [-1, 1], ValueError, r"parents\[1\] must be inside -1 .. 0, got 1"),
        ([0, 1], [-1, "0"], TypeError, "parents must be integers, got '0'"),
        ([0, 1], [-1, False], TypeError, "parents must be integers, got False"),
        ([0, 1], None, TypeError, "parents must be some integers, got None"),
        ([0, V], [-1, 0], ValueError, "tokens must be inside 0 .. 3, got 4"),
    ],
)
def test_trees_that_are_none(tokens, parents, error, message):
    for read in (
        N_GRAMS.start().extend_tree,
        lambda *tree: extend_by_branches(table_model().start(), *tree),
    ):
        with pytest.raises(error, match=message):
            read(tokens, parents)


# The loop


def test_one_call_of_the_target_a_round():
    """With a state that reads trees, whatever the shape; and nothing is read twice."""

    class Counted:
        vocab_size, bos_id, context_window = V, None, None

        def __init__(self):
            self.read = []

        def start(self):
            self.state = state = N_GRAMS.start()
            whole, chain = state.extend_tree, state.extend
            state.extend_tree = lambda t, p: self.read.append(len(t)) or whole(t, p)
            state.extend = lambda t: self.read.append(len(t)) or chain(t)
            return state

    target = Counted()
    draft = sd.TreeDraft(table_model(), shape=(-1, -1, 0, 1))
    run = sd.generate(
        target, [0, 1, 2], draft=draft, k=2, max_new_tokens=30, verify=sd.verify_tree,
        seed=1,
    )  # fmt: skip
    assert len(target.read) == len(run.rounds)
    nodes = [len(each.drafted) for each in run.rounds]
    assert target.read[0] == 3 + nodes[0]
    assert target.read[1:] == [1 + n for n in nodes[1:]]
    assert target.state.length == 3 + 30 - 1


def test_rounds_name_their_trees():
    draft = sd.TreeDraft(table_model(), shape=(-1, -1, 0, 1))
    run = sd.generate(
        N_GRAMS, [0], draft=draft, k=2, max_new_tokens=40, verify=sd.verify_tree, seed=0
    )
    shapes = {each.parents for each in run.rounds}
    assert {(-1, -1, 0, 1)} <= shapes <= {(-1, -1, 0, 1), (-1, -1), None}
    for each in run.rounds:
        if each.parents is None:
            assert (each.drafted, each.path) == ((), None)
            continue
        assert len(each.path) == each.accepted
        assert each.emitted[:-1] == tuple(each.drafted[node] for node in each.path)
        assert list(each.path) == path_to((-1, *each.path)[-1], each.parents)
    assert any(node % 2 for each in run.rounds for node in each.path or ())
    assert len(run.tokens) == 40


@pytest.mark.parametrize("draw", DRAWS)
def test_with_and_without_a_call_for_trees_the_same_text(draw):
    by_branches = sd.FunctionModel(
        lambda seq: N_GRAMS.start().extend(seq)[-1], V, bos_id=0
    )
    draft = sd.TreeDraft(table_model(), shape=tree_shape((2, 2, 1)), draw=draw)
    runs = [
        sd.generate(
            target, [0], draft=draft, k=3, max_new_tokens=30, verify=sd.verify_tree,
            seed=4,
        )
        for target in (N_GRAMS, by_branches)
    ]  # fmt: skip
    assert runs[0].tokens == runs[1].tokens
    counts = [[(r.drafted, r.path, r.emitted) for r in run.rounds] for run in runs]
    assert counts[0] == counts[1]


def test_a_tree_of_one_branch_is_a_chain():
    """Same seed, same text, same counts as the model draft by the token rule."""
    model = table_model()
    for seed in range(10):
        options = {"k": 3, "max_new_tokens": 25, "seed": seed}
        chain = sd.generate(N_GRAMS, [0], draft=sd.ModelDraft(model), **options)
        tree = sd.generate(
            N_GRAMS,
            [0],
            draft=sd.TreeDraft(model, shape=(-1, 0, 1)),
            verify=sd.verify_tree,
            **options,
        )
        assert tree.tokens == chain.tokens
        for a, b in zip(tree.rounds, chain.rounds, strict=True):
            assert (a.drafted, a.accepted, a.tested) == (
                b.drafted,
                b.accepted,
                b.tested,
            )


def test_a_stop_id_inside_a_path_ends_it():
    """Target and draft agree on 1, 2, 3; 2 stops."""
    cycle = np.log(np.roll(np.eye(V), 1, axis=1) + 1e-300)
    model = sd.FunctionModel(lambda seq: cycle[seq[-1]], V)
    draft = sd.TreeDraft(model, sd.Sampler(0), (-1, 0, -1, 1))
    run = sd.generate(
        model, [0], draft=draft, k=3, max_new_tokens=9, verify=sd.verify_tree,
        stop_ids=[2], sampler=sd.Sampler(0),
    )  # fmt: skip
    (only,) = run.rounds
    assert run.tokens == only.emitted == (1, 2)
    assert (only.accepted, only.path, run.finish_reason) == (2, (0, 1), "stop")
    assert only.tested == 2


class Fixed:
    """Proposes what it was given, as it was given."""

    def __init__(self, *proposal):
        self.proposal = proposal

    def start(self, prompt):
        return self

    def propose(self, k, rng):
        return sd.Proposal(*self.proposal)

    def commit(self, tokens):
        pass


def decode(draft, **options):
    options = {"k": 2, "max_new_tokens": 8, "verify": sd.verify_tree} | options
    return sd.generate(table_model(), [0], draft=draft, seed=0, **options)


@pytest.mark.parametrize(
    "proposal, error, message",
    [
        (((0, 1, 2), None, (-1, 0, 1)), ValueError, "at most 2 tokens in a row, got 3"),
        (((0, 1), None, (-1,)), ValueError, "proposal.parents must have one entry"),
        (((0, 1), None, (-1, 1)), ValueError, r"proposal.parents\[1\] must be inside"),
        (((0, 1), None, (-1, None)), TypeError, "proposal.parents must be integers"),
        (((0, V), None, (-1, -1)), ValueError, "proposal.tokens must be inside 0 .. 3"),
        (
            ((0, 1), np.full((3, V), 1 / V), (-1, -1)),
            ValueError,
            r"proposal.probabilities must have shape \(2, 4\)",
        ),
        (
            ((0, 1), np.eye(V)[[0, 0]], (-1, -1)),
            ValueError,
            r"proposal.tokens\[1\] = 1 has probability 0",
        ),
    ],
)
def test_drafts_that_break_the_contract(proposal, error, message):
    with pytest.raises(error, match=message):
        decode(Fixed(*proposal))


def test_many_guesses_for_one_place_are_no_depth():
    """Three guesses at k = 1 are allowed: none comes after another."""
    run = decode(Fixed((0, 1, 2), None, (-1, -1, -1)), k=1)
    assert len(run.tokens) == 8


@pytest.mark.parametrize("as_given", (list, np.array, tuple))
def test_parents_in_any_sequence(as_given):
    run = decode(Fixed((0, 1), None, as_given([-1, -1])), k=1)
    assert run.rounds[0].parents == (-1, -1)
    assert type(run.rounds[0].parents) is tuple
    assert run.metrics.tested == sum(each.tested for each in run.rounds)


@pytest.mark.parametrize("verify", (sd.verify_tokens, sd.verify_block))
def test_rules_that_take_no_trees(verify):
    with pytest.raises(ValueError, match="must be a chain .* verify_tree takes trees"):
        decode(sd.TreeDraft(table_model()), verify=verify)


@pytest.mark.parametrize(
    "verdict, error, message",
    [
        ((1, 0, None), ValueError, "verify must give the path of nodes for a tree"),
        ((1, 0, (2,)), ValueError, "verdict.path must be a path from a root"),
        ((2, 0, (0, 1)), ValueError, "verdict.path must be a path from a root"),
        ((1, 0, (7,)), ValueError, "verdict.path must be a path from a root"),
        ((1, 0, (0.0,)), TypeError, "verdict.path must be integers, got 0.0"),
        ((2, 0, (0,)), ValueError, "as many guesses as its path has, got 2 and 1"),
        ((0, 0, (0,)), ValueError, "as many guesses as its path has, got 0 and 1"),
        ((4, 0, (0,)), ValueError, "verify must accept 0 to 3 guesses, got 4"),
        ((1, V, (0,)), ValueError, "verify must give a next_token inside 0 .. 3"),
    ],
)
def test_rules_that_give_a_wrong_path(verdict, error, message):
    draft = sd.TreeDraft(table_model(), shape=(-1, -1, 0))
    with pytest.raises(error, match=message):
        decode(draft, verify=lambda p, proposal, rng: sd.Verdict(*verdict))


def test_a_path_where_there_is_no_tree():
    with pytest.raises(ValueError, match="path of nodes for a tree of guesses, and on"):
        decode(
            sd.ModelDraft(table_model()),
            verify=lambda p, proposal, rng: sd.Verdict(0, 0, ()),
        )


def test_a_path_in_any_sequence():
    def listed(p, proposal, rng):
        found = sd.verify_tree(p, proposal, rng)
        path = None if found.path is None else np.array(found.path, dtype=np.int64)
        return sd.Verdict(found.accepted, found.next_token, path)

    draft = sd.TreeDraft(table_model(), shape=(-1, -1, 0))
    run = decode(draft, verify=listed)
    assert run.tokens == decode(draft).tokens
    assert all(type(each.path) in (tuple, type(None)) for each in run.rounds)


def test_a_mixture_as_the_model_of_a_tree():
    """A model without a call for trees of its own, as target and as draft."""
    cached = CacheModel(table_model())
    run = sd.generate(
        cached,
        [0, 1],
        draft=sd.TreeDraft(cached, shape=(-1, -1, 0)),
        k=2,
        max_new_tokens=20,
        verify=sd.verify_tree,
        seed=0,
    )
    assert len(run.tokens) == 20
    assert run.metrics.acceptance_rate > 0.5


@pytest.mark.parametrize(
    "draft, verify",
    [
        (lambda model: sd.ModelDraft(model), sd.verify_block),
        (lambda model: sd.TreeDraft(model, shape=tree_shape((1,) * 4)), sd.verify_tree),
        (lambda model: sd.TreeDraft(model, shape=tree_shape((2,) * 4)), sd.verify_tree),
    ],
)
def test_all_accepted_or_none(draft, verify):
    """A draft that is the target brings all its guesses and a bonus; one that says
    nothing of what the target says, one token a call."""
    options = {"k": 4, "max_new_tokens": 20, "verify": verify, "seed": 0}
    for target in (N_GRAMS, table_model()):
        run = sd.generate(target, [0], draft=draft(target), **options)
        assert run.metrics.tokens_per_call == 5
    low = sd.FunctionModel(lambda seq: [0.0, 0.0, -np.inf, -np.inf], V)
    high = sd.FunctionModel(lambda seq: [-np.inf, -np.inf, 0.0, 0.0], V)
    run = sd.generate(low, [0], draft=draft(high), **options)
    assert (run.metrics.accepted, run.metrics.target_calls) == (0, 20)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("shape", ((-1, 0, 1), (-1, -1, 0, 1, 2)))
def test_rows_are_not_shifted(draw, shape):
    """A cycle that both know: three guesses and a bonus, whatever else is guessed."""
    cycle = np.log(np.roll(np.eye(5), 1, axis=1) + 1e-300)
    model = sd.FunctionModel(lambda seq: cycle[seq[-1]], 5)
    draft = sd.TreeDraft(model, shape=shape, draw=draw)
    run = sd.generate(
        model, [0], draft=draft, k=3, max_new_tokens=4, verify=sd.verify_tree, seed=0
    )
    assert run.tokens == (1, 2, 3, 4)
    assert [each.accepted for each in run.rounds] == [3]
