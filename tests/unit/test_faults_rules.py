"""Faults of the acceptance rule, of the residual, and of what drafts report.

By their kinds: every pair of distributions on a grid, every pattern of right and wrong
guesses, every draft of the library under every sampler.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from faults_kit import OTHER, TARGET, VOCAB, WAYS, Says, simplex, ways

import specdec_lib as sd
from specdec_lib.verification import lossy
from specdec_lib.verification.exact import one_hot

RULES = {
    "token": sd.verify_tokens,
    "block": sd.verify_block,
    "tree": sd.verify_tree,
}
PAIRS = [
    *product(simplex(2, 10), repeat=2),
    *product(simplex(3, 4), repeat=2),
]


def law_of_one(p, q, rule, *, drawn=None, reported=True):
    """The exact law of the first token, and the chance that the guess is accepted.

    The guess is drawn from ``q`` or from ``drawn``; the bonus row is certain, so that
    it adds no branches.
    """
    rows = np.array([p, one_hot(0, len(p))])

    def run(rng):
        token = rng.categorical(np.array(q if drawn is None else drawn))
        row = np.array([q]) if reported else None
        verdict = rule(rows, sd.Proposal((token,), row), rng)
        return (token, True) if verdict.accepted else (verdict.next_token, False)

    outcomes = sd.exact_distribution(run)
    law = np.zeros(len(p))
    for (token, _), probability in outcomes.items():
        law[token] += probability
    kept = sum(chance for (_, accepted), chance in outcomes.items() if accepted)
    return law, kept


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_pair_of_distributions(rule):
    """Zeros, ties, equal and disjoint ones among them: the law is p, to rounding, and
    exactly the overlap is accepted."""
    for p, q in PAIRS:
        law, kept = law_of_one(p, q, rule)
        assert np.abs(law - p).max() < 1e-12, (p, q)
        assert abs(kept - np.minimum(p, q).sum()) < 1e-12, (p, q)
        assert not law[np.array(p) == 0].any(), (p, q)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_two_guesses_of_any_distributions(rule):
    """The joint law of two tokens, the second row depending on the first token: what a
    rule makes of one guess may lean on what it made of the one before."""
    g = np.random.default_rng(0)
    grid = np.array(simplex(2, 4))
    for _ in range(250):
        (p, q), after_p, after_q = grid[g.integers(len(grid), size=(3, 2))]

        def run(rng, p=p, q=q, after_p=after_p, after_q=after_q):
            first = rng.categorical(q)
            second = rng.categorical(after_q[first])
            rows = np.array([p, after_p[first], [1.0, 0.0]])
            guesses = sd.Proposal((first, second), np.array([q, after_q[first]]))
            verdict = rule(rows, guesses, rng)
            text = (*guesses.tokens[: verdict.accepted], verdict.next_token)
            return text[:2] if text[1:] else (*text, rng.categorical(after_p[text[0]]))

        law = sd.exact_distribution(run)
        for a, b in product(range(2), repeat=2):
            assert abs(law.get((a, b), 0.0) - p[a] * after_p[a, b]) < 1e-12


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_law_of_guesses_that_are_reported_as_certain(rule):
    """A guess without a row is judged as a point mass: right however it was drawn; it
    only costs acceptance, the sum of p q in place of that of min(p, q)."""
    for p, q in PAIRS:
        law, kept = law_of_one(p, q, rule, reported=False)
        assert np.abs(law - p).max() < 1e-12, (p, q)
        assert abs(kept - np.dot(p, q)) < 1e-12, (p, q)


def test_a_row_that_nothing_was_drawn_from_is_seen():
    """The check above is not blind: draw the most probable token, report the row."""
    wrong = 0
    for p, q in PAIRS:
        law, _ = law_of_one(p, q, sd.verify_tokens, drawn=one_hot(np.argmax(q), len(q)))
        wrong += np.abs(law - p).max() > 0.01
    assert wrong > len(PAIRS) / 3
    law, _ = law_of_one([0.6, 0.4], [0.8, 0.2], sd.verify_tokens, drawn=[1.0, 0.0])
    assert law.round(12).tolist() == [0.75, 0.25]


def test_every_residual():
    """By its definition; a distribution inside p's own support even where nothing, or
    nothing but rounding, is left."""
    for given, q in PAIRS:
        p = np.array(given)
        left = np.maximum(p - q, 0)
        expected = left / left.sum() if left.any() else p
        assert np.abs(sd.residual(p, q) - expected).max() < 1e-15
        for nearly in (np.nextafter(p, 0), np.nextafter(p, 1), p * (1 - 1e-15)):
            found = sd.residual(p, nearly)
            assert np.isfinite(found).all()
            assert abs(found.sum() - 1) < 1e-9
            assert not found[p == 0].any()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("k", range(1, 9))
def test_guesses_stand_or_fall_each_by_a_number_of_its_own(rule, k):
    """Guesses of chance 1/2 each: all k pass in 2^-k of the rounds. One number for all
    of them would give 1/2, and a number that is always 0 would give 1."""
    rows = np.full((k + 1, 2), 0.5)
    guesses = sd.Proposal((1,) * k)
    law = sd.exact_distribution(lambda rng: rule(rows, guesses, rng).accepted)
    assert law[k] == pytest.approx(0.5**k, abs=1e-12)
    rng = sd.SeededRandom(k)
    seen = np.mean([rule(rows, guesses, rng).accepted == k for _ in range(400)])
    assert abs(seen - 0.5**k) < 5 * (0.25 / 400) ** 0.5


class Counted(sd.SeededRandom):
    """Remembers its uniform numbers, and counts the decisions."""

    def __init__(self, seed):
        super().__init__(seed)
        draw = self._uniform
        self.numbers, self.decisions = [], 0
        self._uniform = lambda: self.numbers.append(draw()) or self.numbers[-1]

    def bernoulli(self, p):
        self.decisions += 1
        return super().bernoulli(p)

    def categorical(self, distribution):
        self.decisions += 1
        return super().categorical(distribution)


@pytest.mark.parametrize("name", WAYS)
def test_no_number_is_used_twice_in_a_run(name):
    """Nor in another run; and the same seed gives the same numbers again."""
    draft, verify = ways(sd.Sampler())[name]

    def run(seed):
        rng = Counted(seed)
        options = {"draft": draft, "k": 4, "max_new_tokens": 40, "verify": verify}
        sd.generate(TARGET, [0, 1, 2, 0, 1], rng=rng, **options)
        assert len(rng.numbers) == rng.decisions >= 20
        return rng.numbers

    one, again, other = run(1), run(1), run(2)
    assert one == again
    assert len({*one, *other}) == len(one) + len(other)


# Right and wrong guesses in every pattern.


def soft(tokens):
    """Half on the guess, half on the next token: what it might have been drawn from."""
    rows = np.zeros((len(tokens), VOCAB))
    for i, token in enumerate(tokens):
        rows[i, token] = rows[i, (token + 1) % VOCAB] = 0.5
    return rows


RIGHT = (3, 1, 4, 1, 0, 2, 2, 3)
CERTAIN = sd.FunctionModel(
    lambda text: np.where(np.arange(VOCAB) == RIGHT[len(text) - 1], 0.0, -np.inf), VOCAB
)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("rows", (None, soft), ids=("certain", "soft"))
def test_every_pattern_of_right_and_wrong_guesses(rule, rows):
    """Kept are the right ones before the first wrong one, whatever comes after; then
    one more token of the target's, which is no accepted guess. No row may be shifted,
    no first guess taken unseen, no bonus lost or given after a rejection."""
    for k in range(1, 7):
        for mask in product((True, False), repeat=k):
            guesses = [
                token if right else (token + 2) % VOCAB
                for token, right in zip(RIGHT, mask, strict=False)
            ]
            draft = Says(lambda text, k, said=guesses: said, rows)
            (only,) = sd.generate(
                CERTAIN, [0], draft=draft, k=k, max_new_tokens=k + 1, verify=rule
            ).rounds[:1]
            kept = (*mask, False).index(False)
            assert only.drafted == tuple(guesses)
            assert only.accepted == kept
            assert only.emitted == RIGHT[: kept + 1]
            assert only.tested == min(kept + 1, k)
            metrics = sd.Metrics.from_rounds([only])
            assert metrics.acceptance_rate == kept / min(kept + 1, k)
            assert metrics.draft_efficiency == kept / k
            assert metrics.tokens_per_call == kept + 1  # the bonus counted: one more


# What a draft reports.

SAMPLERS = {
    "as it is": sd.Sampler(),
    "cold": sd.Sampler(0.5),
    "hot": sd.Sampler(1.9),
    "greedy": sd.Sampler(0),
    "top 2": sd.Sampler(top_k=2),
    "nucleus": sd.Sampler(1.3, top_p=0.6),
    "penalty": sd.Sampler(processors=(sd.RepetitionPenalty(2.5),)),
    "bias": sd.Sampler(0.8, processors=(sd.LogitBias({1: 2.0, 3: -np.inf}),)),
}


def dishonesty(draft, k=2):
    """How far the chance of a proposal is from the product of the rows it reports.

    After a first round of which one guess was kept, so that its state was rewound.
    """

    def run(rng):
        session = draft.start([0, 1, 2, 0, 1])
        first = session.propose(k, sd.SeededRandom(3)).tokens
        session.commit((*first[:1], 4, 0))
        found = session.propose(k, rng)
        rows = found.probabilities
        if rows is not None:
            assert rows.shape == (len(found.tokens), VOCAB)
        chance = 1.0
        for i, token in enumerate(found.tokens if rows is not None else ()):
            chance *= rows[i, token]
        return found.tokens, found.parents, rows is None, round(chance, 13)

    law = sd.exact_distribution(run)
    return max(abs(p - claimed) for (*_, claimed), p in law.items())


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("name", WAYS)
def test_every_draft_reports_what_it_drew_from(name, sampler):
    """A proposal comes as often as its rows say, and one without rows for certain."""
    assert dishonesty(ways(sampler)[name][0]) < 1e-12


def test_a_draft_that_reports_something_else_is_seen():
    greedy = lossy.SoftGreedyDraft(sd.ModelDraft(OTHER))
    assert dishonesty(greedy) > 0.5

    class Raw:  # draws from the filtered row, reports the whole
        def start(self, prompt):
            honest = sd.ModelDraft(OTHER, sd.Sampler(top_k=2)).start(prompt)
            model = OTHER.start()
            text = list(prompt)

            class Session:
                def propose(self, k, rng):
                    tokens = honest.propose(1, rng).tokens
                    model.rewind(0)
                    return sd.Proposal(tokens, sd.Sampler()(model.extend(text)[-1:]))

                def commit(self, tokens):
                    honest.commit(tokens)
                    text.extend(tokens)

            return Session()

    assert dishonesty(Raw()) > 0.02


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_guess_that_cannot_have_been_drawn_is_an_error_at_every_place(rule):
    """Probability 0, negative or NaN in the draft's row: never accepted in silence."""
    for n in range(1, 6):
        for place, bad in product(range(n), (0.0, -0.25, np.nan)):
            rows = np.full((n, 4), 0.25)
            rows[place] = [bad, 0.5, 0.5 - bad if bad == bad else 0.5, 0.0]
            with pytest.raises(ValueError, match=r"proposal\.(tokens|probabilities)"):
                rule(np.full((n + 1, 4), 0.25), sd.Proposal((0,) * n, rows), None)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_wrong_number_of_rows_is_an_error(rule):
    """Of the draft's or the target's: never another rule, or another row, instead."""
    for n, given in product(range(1, 6), range(7)):
        if given != n:
            rows = np.full((given, 4), 0.25)
            with pytest.raises(ValueError, match="probabilities must have shape"):
                rule(np.full((n + 1, 4), 0.25), sd.Proposal((1,) * n, rows), None)
        if given != n + 1:
            with pytest.raises(ValueError, match="probabilities must have shape"):
                rule(np.full((given, 4), 0.25), sd.Proposal((1,) * n), None)


@pytest.mark.parametrize(
    "children, draw",
    [(2, "without replacement"), (3, "without replacement"), (2, "with replacement")],
)
def test_several_guesses_for_one_place_leave_every_law_as_it_is(children, draw):
    thirds = simplex(3, 3)
    for p, q in product(thirds, repeat=2):
        with np.errstate(divide="ignore"):
            logits = np.log(q)
        model = sd.FunctionModel(lambda text, row=logits: row, 3)
        draft = sd.TreeDraft(model, shape=(-1,) * children, draw=draw)
        rows = np.array(p)

        def run(rng, draft=draft, rows=rows):
            proposal = draft.start([0]).propose(1, rng)
            n = len(proposal.tokens)
            after = np.tile(one_hot(0, 3), (n, 1))  # bonus rows, without a choice
            verdict = sd.verify_tree(np.array([rows, *after]), proposal, rng)
            kept = [proposal.tokens[node] for node in verdict.path]
            return kept[0] if kept else verdict.next_token

        law = sd.exact_distribution(run)
        for token in range(3):
            assert abs(law.get(token, 0.0) - p[token]) < 1e-12, (p, q)
