"""Chapter 11: blocks and trees, beside the best of all rules and all outcomes."""

from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from clock_kit import Clock
from identities_kit import chance, close, identity, random_rows, texts

import specdec_lib as sd

optimize = pytest.importorskip("scipy.optimize", reason="SciPy is not installed")

SHAPES = [(seed, size, n) for seed in (1, 2, 3) for size, n in ((2, 1), (2, 2), (3, 2))]


def models(seed, size, n):
    """The rows of target and draft after every text of up to n tokens; `sharp` ones, so
    that weights fall below 1 and recover."""
    p = random_rows(seed, size, n, parts=9)
    return p, random_rows(seed + 100, size, n, parts=9)


def floats(row):
    return np.array([float(x) for x in row])


def guessed(q, guesses, rng):
    """Draws `guesses` tokens from q, one after the other: (tokens, their rows)."""
    tokens, given = (), []
    for _ in range(guesses):
        given.append(floats(q[tokens]))
        tokens += (rng.categorical(given[-1]),)
    return tokens, np.array(given)


def verdicts(p, q, n, verify):
    """law of (guesses, how many are kept, next token) under a rule of the library."""

    def run(rng):
        tokens, given = guessed(q, n, rng)
        target = np.array([floats(p[tokens[:i]]) for i in range(n + 1)])
        verdict = verify(target, sd.Proposal(tokens, given), rng)
        return tokens, verdict.accepted, verdict.next_token

    return sd.exact_distribution(run)


def text_law(joint, p, n):
    """What (guesses, kept, next token), continued by the target, writes: the law of
    its first n + 1 tokens."""
    size = len(p[()])
    law = dict.fromkeys(texts(size, n + 1), 0)
    for (tokens, kept, after), weight in joint.items():
        written = (*tokens[:kept], after)
        for more in texts(size, n + 1 - len(written)):
            rest = prod(p[written + more[:i]][token] for i, token in enumerate(more))
            law[written + more] += weight * (rest if weight else 0)
    return law


def kept_at_least(joint, prefix):
    """Pr[these are guessed and kept] / Pr[they are guessed]."""
    i = len(prefix)
    offered = {key: w for key, w in joint.items() if key[0][:i] == prefix}
    return sum(w for (_, kept, _), w in offered.items() if kept >= i) / sum(
        offered.values()
    )


def is_exact(joint, p, n):
    law = text_law(joint, p, n)
    return all(close(law[text], chance(p, text)) for text in law)


def best_rule(p, q, n, gain):
    """The largest mean of gain(guesses, kept) over *all* rules for n guesses from q
    that are exact when the target continues them; a linear programme over the joint
    law of guesses, how many are kept, and next token."""
    size = len(p[()])
    ways = list(product(texts(size, n), range(n + 1), range(size)))
    guesses, wholes = list(texts(size, n)), list(texts(size, n + 1))
    sums = np.zeros((len(guesses) + len(wholes), len(ways)))
    for column, (tokens, kept, after) in enumerate(ways):
        sums[guesses.index(tokens), column] = 1
        one = text_law({(tokens, kept, after): 1}, p, n)
        for text, weight in one.items():
            sums[len(guesses) + wholes.index(text), column] += float(weight)
    totals = [float(chance(q, t)) for t in guesses]
    totals += [float(chance(p, t)) for t in wholes]
    best = optimize.linprog(
        [-float(gain(tokens, kept)) for tokens, kept, _ in ways],
        A_eq=sums,
        b_eq=totals,
    )
    return -best.fun


# -- `eq-11-weight`


def weight(before, p_x, q_x):
    return min(Fraction(1), before * p_x / q_x)


def weights(step, p, q, tokens):
    """w_0 .. w_n along some guesses."""
    found = [Fraction(1)]
    for i, x in enumerate(tokens):
        found.append(step(found[-1], p[tokens[:i]][x], q[tokens[:i]][x]))
    return found


def booked_debts_only(before, p_x, q_x):
    return before * min(Fraction(1), p_x / q_x)


WRONG_WEIGHTS = {
    "payments ignored": booked_debts_only,
    "the ratio upside down": lambda before, p_x, q_x: weight(before, q_x, p_x),
    "no memory": lambda before, p_x, q_x: min(Fraction(1), p_x / q_x),
}


@identity("eq-11-weight", weight, wrong=WRONG_WEIGHTS)
def test_the_weight_of_a_prefix_is_the_most_that_can_be_kept(formula):
    """For each prefix by itself, among all exact rules; and the library keeps it."""
    for seed, size, n in SHAPES:
        p, q = models(seed, size, n)
        library = verdicts(p, q, n, sd.verify_block)
        for i in range(1, n + 1):
            for prefix in texts(size, i):
                w = weights(formula, p, q, prefix)[-1]
                assert close(kept_at_least(library, prefix), w)
                most = best_rule(
                    p,
                    q,
                    n,
                    lambda tokens, kept, prefix=prefix, i=i: (
                        tokens[:i] == prefix and kept >= i
                    ),
                )
                assert close(most, chance(q, prefix) * w, 1e-8)


# -- `eq-11-more`


def one_more(w, p, q):
    return sum(min(b, w * a) for a, b in zip(p, q, strict=True))


@identity(
    "eq-11-more",
    one_more,
    wrong={
        "as if nothing were owed": lambda w, p, q: one_more(Fraction(1), p, q),
        "the weight on both": lambda w, p, q: w * one_more(Fraction(1), p, q),
        "the larger": lambda w, p, q: sum(map(max, (w * a for a in p), q)),
    },
)
def test_how_often_one_more_guess_is_kept(formula):
    """Among all outcomes of the library's rule that begin with these guesses, those in
    which they and at least one more are kept."""
    for seed, size, n in [*SHAPES, (4, 2, 3)]:
        p, q = models(seed, size, n)
        joint = verdicts(p, q, n, sd.verify_block)
        for i in range(n):
            for prefix in texts(size, i):
                offered = {key: w for key, w in joint.items() if key[0][:i] == prefix}
                more = sum(w for (_, kept, _), w in offered.items() if kept > i)
                w = weights(weight, p, q, prefix)[-1]
                said = formula(w, p[prefix], q[prefix])
                assert close(more / sum(offered.values()), said)


# -- `eq-11-coin`


def lacking(w, p, q):
    """Both lines for S_i."""
    m = one_more(w, p, q)
    return [sum(max(w * a - b, 0) for a, b in zip(p, q, strict=True)), w - m]


def coin(w, p, q):
    """Both lines for h_i; None where nothing is left to throw it for."""
    m = one_more(w, p, q)
    s = lacking(w, p, q)[0]
    return [(w - m) / (1 - m), s / (s + (1 - w))] if m < 1 else None


def block_by_hand(p, q, n, throw):
    """The law of the rule that goes back from the last guess with these coins."""
    joint = {}
    size = len(p[()])
    for tokens in texts(size, n):
        w = weights(weight, p, q, tokens)
        left = chance(q, tokens)
        for y in range(size):
            joint[tokens, n, y] = left * w[n] * p[tokens][y]
        left *= 1 - w[n]
        for i in range(n - 1, -1, -1):
            row, drawn = p[tokens[:i]], q[tokens[:i]]
            lines = throw(w[i], row, drawn)
            if lines is None:
                continue
            h = lines[0]
            s = lacking(w[i], row, drawn)[0]
            for y in range(size):
                missing = max(w[i] * row[y] - drawn[y], 0)
                joint[tokens, i, y] = left * h * missing / s if h else Fraction(0)
            left *= 1 - h
    return joint


@identity(
    "eq-11-coin",
    (lacking, coin),
    wrong={
        "w in place of 1 - w": (
            lacking,
            lambda w, p, q: (
                coin(w, p, q) and [lacking(w, p, q)[0] / (lacking(w, p, q)[0] + w)] * 2
            ),
        ),
        "out of all rounds": (
            lacking,
            lambda w, p, q: coin(w, p, q) and [lacking(w, p, q)[0]] * 2,
        ),
        "the residual of p": (
            lambda w, p, q: [lacking(Fraction(1), p, q)[0], lacking(w, p, q)[1]],
            coin,
        ),
    },
)
def test_the_coins_keep_each_prefix_with_its_weight(formula):
    """In fractions: both lines agree, and the rule made of them is exact."""
    missing, throw = formula
    for seed, size, n in [*SHAPES, (4, 2, 3)]:
        p, q = models(seed, size, n)
        for prefix in texts(size, n - 1):
            for i, w in enumerate(weights(weight, p, q, prefix)):
                row, drawn = p[prefix[:i]], q[prefix[:i]]
                first, second = missing(w, row, drawn)
                assert first == second
                lines = throw(w, row, drawn)
                assert lines is None or lines[0] == lines[1]
                assert lines is None or i or lines[0] == 1  # h_0 = 1
        joint = block_by_hand(p, q, n, throw)
        assert sum(joint.values()) == 1
        for i in range(n + 1):
            for prefix in texts(size, i):
                w = weights(weight, p, q, prefix)[-1]
                assert kept_at_least(joint, prefix) == w
        law = text_law(joint, p, n)
        assert all(law[text] == chance(p, text) for text in law)


# -- `thm-11-block`, `thm-11-most`


@identity(
    "thm-11-block",
    (weight, chance),
    wrong={
        **{name: (other, chance) for name, other in WRONG_WEIGHTS.items()},
        "the last token free": (weight, lambda p, text: chance(p, text[:-1])),
    },
)
def test_the_block_rule_is_exact(formula):
    """The library's, all outcomes: what is kept, and what is written."""
    step, said = formula
    for seed, size, n in [*SHAPES, (4, 2, 3)]:
        p, q = models(seed, size, n)
        joint = verdicts(p, q, n, sd.verify_block)
        for i in range(n + 1):
            for prefix in texts(size, i):
                w = weights(step, p, q, prefix)[-1]
                assert close(kept_at_least(joint, prefix), w)
        law = text_law(joint, p, n)
        assert all(close(law[text], said(p, text)) for text in law)


def mean_kept(step, p, q, n):
    """E[N] by the weights: the sum over i of Pr[N >= i]."""
    size = len(p[()])
    return sum(
        chance(q, prefix) * weights(step, p, q, prefix)[-1]
        for i in range(1, n + 1)
        for prefix in texts(size, i)
    )


@identity("thm-11-most", weight, wrong=WRONG_WEIGHTS)
def test_no_rule_keeps_more(formula):
    """Than the best of all of them, found by a linear programme; the token rule is one
    of them, and keeps less."""
    less = 0
    for seed, size, n in SHAPES:
        p, q = models(seed, size, n)
        most = best_rule(p, q, n, lambda tokens, kept: kept)
        assert close(most, mean_kept(formula, p, q, n), 1e-8)
        joints = [
            verdicts(p, q, n, rule) for rule in (sd.verify_block, sd.verify_tokens)
        ]
        block, token = (
            sum(kept * w for (_, kept, _), w in joint.items()) for joint in joints
        )
        assert all(is_exact(joint, p, n) for joint in joints)
        assert close(block, most, 1e-8)
        assert token <= block + 1e-12
        less += token < block - 1e-3
    assert less > 2


# -- `eq-11-text`


def by_token(rho):
    return prod(min(1, r) for r in rho)


def by_block(rho):
    return min(min(1, prod(rho[:j])) for j in range(1, len(rho) + 1))


@identity(
    "eq-11-text",
    (by_token, by_block),
    wrong={
        "the two exchanged": (by_block, by_token),
        "the whole product alone": (by_token, lambda rho: min(1, prod(rho))),
        "the smallest ratio": (by_token, lambda rho: min(1, *rho)),
        "the ratio upside down": (
            lambda rho: by_token([1 / r for r in rho]),
            lambda rho: by_block([1 / r for r in rho]),
        ),
    },
)
def test_how_a_known_text_would_have_come(formula):
    """The loop, every path of it: in those that wrote the text, how often were at least
    i of its tokens kept guesses of the first round?"""
    k, length = 2, 3
    for seed, (line, rule) in product(
        (1, 2, 3), zip(formula, (sd.verify_tokens, sd.verify_block), strict=True)
    ):
        p, q = models(seed, 2, length)
        target, model = (
            sd.FunctionModel(lambda seq, rows=rows: np.log(floats(rows[seq[1:]])), 2)
            for rows in (p, q)
        )

        def run(rng, target=target, model=model, rule=rule):
            rounds = list(
                sd.stream(
                    target,
                    [0],
                    draft=sd.ModelDraft(model),
                    k=k,
                    max_new_tokens=length,
                    verify=rule,
                    rng=rng,
                )
            )
            text = tuple(token for each in rounds for token in each.emitted)
            return text, rounds[0].accepted

        joint = sd.exact_distribution(run)
        for text in texts(2, length):
            rho = [q[text[:j]][x] / p[text[:j]][x] for j, x in enumerate(text)]
            whole = sum(joint.get((text, kept), 0) for kept in range(k + 1))
            for i in range(1, k + 1):
                so = sum(joint.get((text, kept), 0) for kept in range(i, k + 1))
                assert close(so / whole, line(rho[:i]))


# -- `thm-11-recursive`


def recursive_law(p, drafts, residual):
    """All outcomes of the stages; `drafts` gives q_j after the guesses before it."""
    law = [Fraction(0)] * len(p)

    def stage(owed, before, left):
        q = drafts(before)
        if q is None:
            for y, r in enumerate(owed):
                law[y] += left * r
            return
        for x, drawn in enumerate(q):
            if not drawn:
                continue
            keep = min(Fraction(1), owed[x] / drawn)
            law[x] += left * drawn * keep
            if keep < 1:
                stage(residual(owed, q, p), (*before, x), left * drawn * (1 - keep))

    stage(p, (), Fraction(1))
    return law


def of_what_is_owed(owed, q, p):
    lacks = [max(a - b, 0) for a, b in zip(owed, q, strict=True)]
    return [each / sum(lacks) for each in lacks]


def without(row, taken):
    left = [0 if x in taken else value for x, value in enumerate(row)]
    return [value / sum(left) for value in left] if sum(left) else None


@identity(
    "thm-11-recursive",
    of_what_is_owed,
    wrong={
        "p again at each stage": lambda owed, q, p: p,
        "the residual of p each time": lambda owed, q, p: of_what_is_owed(p, q, p),
        "upside down": lambda owed, q, p: of_what_is_owed(q, owed, p),
    },
)
def test_recursive_rejection_is_exact(formula):
    """In fractions, with and without replacement and with another draft each time;
    then the library's rule on a star of guesses."""
    for seed, m in product(range(1, 7), (1, 2, 3)):
        p, q = (rows[()] for rows in models(seed, 4, 1))
        others = random_rows(seed + 50, 4, m)
        for drafts in (
            lambda before, q=q: q,
            lambda before, q=q: without(q, before),
            others.__getitem__,
        ):

            def row(before, drafts=drafts, m=m):
                return drafts(before) if len(before) < m else None

            assert recursive_law(p, row, formula) == list(p)

            def run(rng, row=row, p=p, m=m):
                guesses, given = (), []
                while len(guesses) < m:
                    given.append(floats(row(guesses)))
                    guesses += (rng.categorical(given[-1]),)
                star = sd.Proposal(guesses, np.array(given), (-1,) * m)
                verdict = sd.verify_tree(np.tile(floats(p), (m + 1, 1)), star, rng)
                return guesses[verdict.path[0]] if verdict.path else verdict.next_token

            if m < 3:
                written = sd.exact_distribution(run)
                assert close([written[x] for x in range(4)], floats(p))


# -- `eq-11-bill`


class Timed:
    """A model that reads trees, under a clock: a call over n tokens takes cost(n)."""

    bos_id = context_window = None

    def __init__(self, model, clock, cost):
        self.model, self.clock, self.cost = model, clock, cost
        self.vocab_size = model.vocab_size

    def start(self):
        return TimedState(self)


class TimedState:
    def __init__(self, model, read=()):
        self.model, self.read, self.branches = model, tuple(read), []

    @property
    def length(self):
        return len(self.read)

    def _rows(self, after):
        self.model.clock.now += self.model.cost(len(after))
        return np.array([self.model.model.logits_after(each) for each in after])

    def extend(self, tokens):
        before, self.read = self.length, self.read + tuple(tokens)
        return self._rows([self.read[: i + 1] for i in range(before, self.length)])

    def extend_tree(self, tokens, parents):
        self.branches = []
        for token, parent in zip(tokens, parents, strict=True):
            above = self.branches[parent] if parent >= 0 else self.read
            self.branches.append((*above, token))
        return self._rows(self.branches)

    def keep(self, nodes):
        self.read = self.branches[nodes[-1]] if nodes else self.read

    def rewind(self, length):
        self.read = self.read[:length]


class LevelDraft:
    """A tree of guesses from one row: `wide` for each place, `deep` places, one call of
    the draft for each depth, which takes `seconds`."""

    def __init__(self, clock, seconds, shape, row):
        self.clock, self.seconds, self.shape, self.row = clock, seconds, shape, row

    def start(self, prompt):
        return self

    def propose(self, k, rng):
        parents = sd.tree_shape(self.shape)
        self.clock.now += self.seconds * len(self.shape)
        tokens = tuple(rng.categorical(self.row) for _ in parents)
        return sd.Proposal(tokens, np.tile(self.row, (len(parents), 1)), parents)

    def commit(self, tokens):
        pass


def bill(n, c, d, s, g):
    return n / (1 + c * d + s * g)


@identity(
    "eq-11-bill",
    bill,
    wrong={
        "a draft call for each guess": lambda n, c, d, s, g: n / (1 + c * g + s * g),
        "only one way is scored": lambda n, c, d, s, g: n / (1 + c * d + s * d),
        "a token too many": lambda n, c, d, s, g: n / (1 + c * d + s * (g + 1)),
    },
)
def test_the_bill_of_a_tree(formula):
    """The loop under a clock: seconds of plain decoding over those with a tree."""
    row, p = np.array([0.6, 0.3, 0.1]), np.array([0.4, 0.4, 0.2])
    model = sd.FunctionModel(lambda seq: np.log(p), 3)
    for shape, c, s, one in product(
        ((2, 3), (1, 1, 1), (3,)), (0.0, 0.1, 0.4), (0.0, 0.05), (1.0, 2.5)
    ):
        clock = Clock()
        target = Timed(model, clock, lambda n, s=s, one=one: one * (1 + s * (n - 1)))
        seconds = {}
        for draft in (None, LevelDraft(clock, c * one, shape, row)):
            clock.now = 0.0
            rounds = []
            for each in sd.stream(
                target,
                [0],
                draft=draft,
                k=len(shape),
                max_new_tokens=1_000,
                verify=sd.verify_tree,
                seed=1,
            ):
                rounds.append(each)
                if len(rounds) == 60:
                    break
            tokens = sum(len(each.emitted) for each in rounds)
            seconds[draft is None] = clock.now / tokens
        n = tokens / len(rounds)
        guesses = len(sd.tree_shape(shape))
        measured = seconds[True] / seconds[False]
        assert close(formula(n, c, len(shape), s, guesses), measured, 1e-9)
