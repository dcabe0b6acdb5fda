"""The block rule and the tree rule, one round at a time, by hand and by enumeration."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.models import path_to
from specdec_lib.verification import lossy

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


class Counting:
    """Follows every verdict, and no token after it: what is accepted is all asked."""

    def __init__(self, rng):
        self.bernoulli = rng.bernoulli

    def categorical(self, distribution):
        assert abs(np.sum(distribution) - 1) < 1e-9
        return 0


def follow(target, proposal, rule):
    exact = sd.exact_distribution(lambda rng: rule(np.array(target), proposal, rng))
    return {(v.path or v.accepted, v.next_token): p for v, p in exact.items()}


def expected_accepted(p, q, k, rule):
    """E[accepted] over all drafts of k tokens; p(text), q(text) give rows."""
    size = len(q(()))
    parts = []
    for text in itertools.product(range(size), repeat=k):
        rows = [q(text[:i]) for i in range(k)]
        chance = math.prod(row[x] for row, x in zip(rows, text, strict=True))
        if chance == 0:
            continue
        target = np.array([p(text[:i]) for i in range(k + 1)])
        proposal = sd.Proposal(text, np.array(rows))
        counts = sd.exact_distribution(
            lambda rng, target=target, proposal=proposal: (
                rule(target, proposal, Counting(rng)).accepted
            )
        )
        parts.append(chance * sum(n * each for n, each in counts.items()))
    return math.fsum(parts)


def by_formula(p, q, k, weight):
    """Sum over all prefixes, of what they weigh: ``weight`` from the one before."""
    size = len(q(()))
    total = []

    def visit(text, proposed, kept):
        if len(text) == k:
            return
        p_row, q_row = p(text), q(text)
        for x in range(size):
            if q_row[x] > 0:
                here = weight(kept, p_row[x] / q_row[x])
                total.append(proposed * q_row[x] * here)
                visit((*text, x), proposed * q_row[x], here)

    visit((), 1.0, 1.0)
    return math.fsum(total)


def of_tokens(kept, ratio):
    return kept * min(1.0, ratio)


def of_blocks(kept, ratio):
    return min(1.0, kept * ratio)


def table(g, size, concentration):
    """Rows by how many tokens there are and by the last one."""
    return g.dirichlet(np.full(size, concentration), size=(5, size))


def lookup(rows):
    return lambda text: rows[len(text), text[-1] if text else 0]


def random_pairs(count):
    """(p, q, k, kind) with 2 to 4 tokens and 1 to 4 guesses, all sorts of drafts."""
    kinds = ("other", "other", "sharp", "near", "equal", "disjoint", "point mass")
    for number in range(count):
        g = np.random.default_rng(number)
        size, k = int(g.integers(2, 5)), int(g.integers(1, 5))
        if size**k > 100:
            k = 3
        kind = kinds[number % len(kinds)]
        p = table(g, size, float(g.choice([0.3, 1.0, 3.0])))
        q = table(g, size, 0.1 if kind == "sharp" else 1.0)
        if kind == "equal":
            q = p
        elif kind == "near":
            q = (1 - 1e-9) * p + 1e-9 * q
        elif kind == "disjoint":
            p[..., size // 2 :] = 0
            q[..., : size // 2] = 0
            p, q = (rows / rows.sum(axis=-1, keepdims=True) for rows in (p, q))
        elif kind == "point mass":
            q = np.eye(size)[q.argmax(axis=-1)]
        yield lookup(p), lookup(q), k, kind


# The block rule


def test_the_block_rule_never_brings_less_than_the_token_rule():
    """By enumeration, which agrees with the sums: a prefix x_1 .. x_i is kept, by the
    block rule with chance q(x_1 .. x_i) w_i, w_i = min(1, w_(i-1) r_i); by the token
    rule with the product of min(1, r_j) in place of w_i, which is never more."""
    gained = 0
    for number, (p, q, k, kind) in enumerate(random_pairs(420)):
        tokens = expected_accepted(p, q, k, sd.verify_tokens)
        block = expected_accepted(p, q, k, sd.verify_block)
        assert tokens == pytest.approx(by_formula(p, q, k, of_tokens), abs=1e-12)
        assert block == pytest.approx(by_formula(p, q, k, of_blocks), abs=1e-12)
        assert block >= tokens - 1e-12, number
        if k == 1 or kind in ("equal", "disjoint", "point mass"):
            assert block == pytest.approx(tokens, abs=1e-12), number
        if kind == "equal":
            assert block == pytest.approx(k)
        if kind == "disjoint":
            assert block == 0
        gained += block > tokens + 1e-3
    assert gained > 100


def test_two_symbols_for_which_the_token_rule_wastes_guesses():
    """Sun et al. 2025, section 2: p = (1/3, 2/3), q = (2/3, 1/3) in every context, two
    guesses: 10/9 are accepted token by token and 11/9 as a block.

    A rule that knew what the target says after *every* text of two tokens would accept
    12/9: it keeps the whole block with chance min(P, Q) / Q of its pair, which sums to
    1/9 + 2/9 + 2/9 + 1/9 = 6/9, and where it rejects it must write what is left of P,
    the pair (1, 1). But the draft was then (0, 0), and the target was asked what
    follows nothing, 0 and 00, never what follows 1. So 12/9 is out of reach for a rule
    that makes do with the target's one call.
    """
    p, q = (lambda text: [1 / 3, 2 / 3]), (lambda text: [2 / 3, 1 / 3])
    tokens = expected_accepted(p, q, 2, sd.verify_tokens)
    block = expected_accepted(p, q, 2, sd.verify_block)
    assert tokens == pytest.approx(10 / 9, abs=1e-15)
    assert block == pytest.approx(11 / 9, abs=1e-15)
    both = [
        min(a * b, c * d)
        for (a, c), (b, d) in itertools.product(
            [(Fraction(1, 3), Fraction(2, 3)), (Fraction(2, 3), Fraction(1, 3))],
            repeat=2,
        )
    ]
    assert 2 * sum(both) == Fraction(12, 9)


def test_a_block_by_hand():
    """p = (1/3, 2/3), q = (2/3, 1/3). Guesses 0, 1: the weights are 1, 1/2 and
    min(1, 1/2 · 2) = 1, so that both are kept. Guesses 0, 0: 1, 1/2, 1/4; if they are
    not both kept, h_1 = S / (S + 1/2) with S = 0, for (1/6, 1/3) exceeds q nowhere."""
    p, q = [1 / 3, 2 / 3], [2 / 3, 1 / 3]
    rows, draft = [p, p, p], np.array([q, q])
    third = {(2, 0): 1 / 3, (2, 1): 2 / 3}
    for guesses in ((0, 1), (1, 0), (1, 1)):
        found = follow(rows, sd.Proposal(guesses, draft), sd.verify_block)
        weights = {(0, 1): 1.0, (1, 0): 0.5, (1, 1): 1.0}
        w = weights[guesses]
        by_hand = {key: w * value for key, value in third.items()}
        if w < 1:  # h_1 = S / (S + 1 - w_1) = 1, since w_1 = 1
            by_hand[(1, 1)] = 0.5
        assert found == pytest.approx(by_hand, abs=1e-15)
    found = follow(rows, sd.Proposal((0, 0), draft), sd.verify_block)
    assert found == pytest.approx(
        {(2, 0): 1 / 12, (2, 1): 1 / 6, (0, 1): 3 / 4}, abs=1e-15
    )


def test_a_part_of_a_block_by_hand():
    """Three tokens, where what is left after one guess is neither nothing nor all.

    w_1 = .3/.5 = .6; w_2 = .6 · .2/.6 = .2. S_1 = max(.6 · (.7, .2, .1) - (.2, .6, .2),
    0) = (.22, 0, 0), h_1 = .22 / (.22 + .4). Below that the residual of p and q is
    certain of token 0 too."""
    rows = [P, [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]
    draft = np.array([Q, [0.2, 0.6, 0.2]])
    found = follow(rows, sd.Proposal((1, 1), draft), sd.verify_block)
    h = 0.22 / 0.62
    by_hand = {(2, 0): 0.02, (2, 1): 0.04, (2, 2): 0.14}
    by_hand |= {(1, 0): 0.8 * h, (0, 0): 0.8 * (1 - h)}
    assert found == pytest.approx(by_hand, abs=1e-12)


def test_a_dead_prefix_stays_dead():
    """Weight 0, then a ratio too large for a float: 0 times infinity is no 1."""
    rows = [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    draft = np.array([[0.5, 0.5], [5e-324, 1.0]])
    found = follow(rows, sd.Proposal((1, 0), draft), sd.verify_block)
    assert found == {(0, 0): 1.0}
    rows[0] = [0.5, 0.5]
    found = follow(rows, sd.Proposal((1, 0), draft), sd.verify_block)
    assert found == {(2, 0): 0.5, (2, 1): 0.5}


def test_a_block_of_nothing_is_plain_sampling():
    found = follow([P], sd.Proposal(()), sd.verify_block)
    assert found == {(0, 0): 0.5, (0, 1): 0.3, (0, 2): 0.2}
    assert found == follow([P], sd.Proposal((), np.zeros((0, 3))), sd.verify_block)


def test_a_point_mass_given_as_a_row_is_the_same_block():
    rows = [P, [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]
    for guesses in itertools.product(range(3), repeat=2):
        bare = follow(rows, sd.Proposal(guesses), sd.verify_block)
        as_rows = sd.Proposal(guesses, np.eye(3)[list(guesses)])
        assert bare == follow(rows, as_rows, sd.verify_block)
        assert bare == pytest.approx(follow(rows, as_rows, sd.verify_tokens))


# The tree rule


@pytest.mark.parametrize("parents", (False, True))
def test_a_chain_is_judged_as_by_the_token_rule_draw_for_draw(parents):
    g = np.random.default_rng(0)
    for seed in range(300):
        size, n = int(g.integers(2, 6)), int(g.integers(0, 5))
        p = g.dirichlet(np.full(size, 0.5), size=n + 1)
        q = g.dirichlet(np.full(size, 0.5), size=n)
        tokens = tuple(int(g.choice(size, p=row)) for row in q)
        rows = None if seed % 3 == 0 else q
        chain = tuple(range(-1, n - 1)) if parents else None
        tokens_rng, tree_rng = sd.SeededRandom(seed), sd.SeededRandom(seed)
        expected = sd.verify_tokens(p, sd.Proposal(tokens, rows), tokens_rng)
        found = sd.verify_tree(p, sd.Proposal(tokens, rows, chain), tree_rng)
        assert (found.accepted, found.next_token) == (
            expected.accepted,
            expected.next_token,
        )
        path = tuple(range(found.accepted)) if parents else None
        assert found.path == path
        assert tokens_rng.bernoulli(0.5) == tree_rng.bernoulli(0.5)


def test_every_row_of_a_tree_by_hand():
    """Each row has a token of its own, so that a verdict names the row it used.

    Guesses 0, 1 for the first place, then 0 after the first and 1 after the second.
    Point masses: the first is accepted with .5; what is left is (0, .8, .2)."""
    rows = [
        [0.5, 0.4, 0.1, 0, 0, 0],  # after the text
        [0.25, 0, 0, 0.75, 0, 0],  # after 0
        [0, 0.25, 0, 0, 0.75, 0],  # after 1
        [0, 0, 0, 0, 0, 1],  # after 0 0
        [0, 0, 1, 0, 0, 0],  # after 1 1
    ]
    proposal = sd.Proposal((0, 1, 0, 1), None, (-1, -1, 0, 1))
    by_hand = {
        ((0,), 3): 0.5 * 0.75,
        ((0, 2), 5): 0.5 * 0.25,
        ((1,), 4): 0.4 * 0.75,
        ((1, 3), 2): 0.4 * 0.25,
        (0, 2): 0.1,
    }
    assert follow(rows, proposal, sd.verify_tree) == pytest.approx(by_hand, abs=1e-15)


def test_siblings_are_judged_in_their_order():
    rows = [P] * 3
    q = np.array([Q, [0.4, 0.0, 0.6]])  # without token 1
    found = follow(rows, sd.Proposal((1, 0), q, (-1, -1)), sd.verify_tree)
    first = {((0,), x): 0.6 * P[x] for x in range(3)}
    # The residual is certain of 0, so 0 is accepted.
    second = {((1,), x): 0.4 * P[x] for x in range(3)}
    assert found == pytest.approx(first | second, abs=1e-15)


def test_a_guess_that_comes_twice_is_rejected_the_second_time():
    found = follow([P] * 3, sd.Proposal((1, 1), None, (-1, -1)), sd.verify_tree)
    assert ((1,), 0) not in found
    assert sum(v for (path, _), v in found.items() if path == (0,)) == pytest.approx(
        0.3
    )
    assert found[(0, 0)] == pytest.approx(0.5)
    assert found[(0, 2)] == pytest.approx(0.2)


def test_an_empty_tree_is_plain_sampling():
    found = sd.exact_distribution(
        lambda rng: sd.verify_tree(np.array([P]), sd.Proposal((), None, ()), rng)
    )
    assert {v.next_token: p for v, p in found.items()} == dict(enumerate(P))
    assert {v.path for v in found} == {()}


def accepted_in_trees(p, q, shape, draw):
    """E[accepted] of a tree drawn from q, by enumeration."""
    size = len(q(()))
    model = sd.FunctionModel(lambda seq: np.log(q(seq[1:])), size)
    draft = sd.TreeDraft(model, sd.Sampler(), shape, draw)

    def run(rng):
        proposal = draft.start((0,)).propose(9, rng)
        texts = [
            tuple(proposal.tokens[i] for i in path_to(node, proposal.parents))
            for node in range(-1, len(proposal.tokens))
        ]
        rows = np.array([p(text) for text in texts])
        return sd.verify_tree(rows, proposal, Counting(rng)).accepted

    counts = sd.exact_distribution(run)
    return math.fsum(n * chance for n, chance in counts.items())


def test_what_more_guesses_for_a_place_bring():
    """Draws without replacement bring at least what draws with replacement do, and
    those at least what the chain of the first children does.

    The second is plain: the rule begins with the chain. The first is, for two guesses:
    the first one was rejected because p < q there, so nothing is left of it and its
    part of q is lost; without it the others are proposed more often. For three it is
    what every pair tried here shows, no more.
    """
    without, with_, best_loses = "without replacement", "with replacement", 0
    for number in range(60):
        g = np.random.default_rng(number)
        size = int(g.integers(2, 5))
        p, q = (
            lookup(table(g, size, float(g.choice([0.5, 1.0, 3.0])))) for _ in range(2)
        )
        shapes = [((-1, -1), (-1,)), ((-1, -1, -1), (-1,))]
        if size < 4:
            shapes.append(((-1, -1, 0, 1), (-1, 0)))
        for shape, chain in shapes:
            alone = accepted_in_trees(p, q, chain, without)
            more = accepted_in_trees(p, q, shape, with_)
            most = accepted_in_trees(p, q, shape, without)
            assert most >= more - 1e-12 >= alone - 2e-12, (number, shape)
            best_loses += accepted_in_trees(p, q, shape, "best") < alone - 1e-3
    assert best_loses > 10  # the most probable guesses may bring less than one draw


def test_two_draws_by_hand():
    """p = (.5, .3, .2), q = (.2, .5, .3): what is left after a rejection is token 0."""
    p, q = (lambda text: P), (lambda text: Q)
    found = {
        draw: accepted_in_trees(p, q, (-1, -1), draw)
        for draw in ("without replacement", "with replacement", "best")
    }
    assert found == pytest.approx(
        {
            "without replacement": 0.7 + 0.2 * 2 / 5 + 0.1 * 2 / 7,
            "with replacement": 0.7 + 0.3 * 0.2,
            "best": 0.3 + 0.2,
        },
        abs=1e-12,
    )


# Broken contracts


def test_rules_for_chains_refuse_trees():
    class NoRandomness:
        pass

    tree = sd.Proposal((0, 1), np.array([Q, Q]), (-1, -1))
    for rule in (sd.verify_tokens, sd.verify_block, lossy.verify_argmax):
        with pytest.raises(ValueError, match="proposal must be a chain .* verify_tree"):
            rule(np.array([P] * 3), tree, NoRandomness())


@pytest.mark.parametrize(
    "parents, error, message",
    [
        ((-1,), ValueError, "parents must have one entry for each of 2 tokens, got 1"),
        ((-1, 1), ValueError, r"parents\[1\] must be inside -1 .. 0, got 1"),
        ((0, -1), ValueError, r"parents\[0\] must be inside -1 .. -1, got 0"),
        ((-1, -2), ValueError, r"parents\[1\] must be inside -1 .. 0, got -2"),
        ((-1, 0.0), TypeError, "parents must be integers, got 0.0"),
        (3, TypeError, "parents must be some integers, got 3"),
    ],
)
def test_parents_that_make_no_tree(parents, error, message):
    proposal = sd.Proposal((0, 1), np.array([Q, Q]), parents)
    with pytest.raises(error, match=message):
        sd.verify_tree(np.array([P] * 3), proposal, None)


def test_input_is_left_alone():
    p, q = np.array([P] * 3), np.array([Q] * 2)
    for guesses in itertools.product(range(3), repeat=2):
        for seed in range(5):
            rng = sd.SeededRandom(seed)
            sd.verify_block(p, sd.Proposal(guesses, q), rng)
            sd.verify_tree(p, sd.Proposal(guesses, q, (-1, -1)), rng)
    assert p.tolist() == [P] * 3
    assert q.tolist() == [Q] * 2
