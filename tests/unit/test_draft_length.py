"""How many guesses to draft: what one more is worth, and the rules that choose."""

import copy
import itertools
import math

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import theory
from specdec_lib.draft_length import break_even, judged_guesses

TABLE = np.random.default_rng(3).normal(size=(4, 4, 4)) * 2


def rows(seq):
    return TABLE[seq[-2] if len(seq) > 1 else 0, seq[-1]]


MODEL = sd.FunctionModel(rows, 4, bos_id=0)
TARGET = sd.FunctionModel(lambda seq: rows(seq) + 0.8 * rows(seq[::-1]), 4, bos_id=0)


# The value of one more guess


def bent(n):
    return 1 + 0.02 * (n - 1) ** 2


def test_break_even_by_hand():
    assert break_even(2.0, 0.1) == pytest.approx(0.2)
    assert break_even(2.0, 0.1, n=7) == pytest.approx(0.2)
    # T(2) = 1.02, T(1) = 1: the first guess; T(4) = 1.18, T(3) = 1.08: the third.
    assert break_even(2.0, 0.1, bent) == pytest.approx(2 * 0.12)
    assert break_even(2.0, 0.1, bent, n=2) == pytest.approx(2 * 0.2)


@pytest.mark.parametrize("verify_cost", (None, bent, lambda n: 0.7 + 0.3 * n))
@pytest.mark.parametrize("draft_cost", (0.02, 0.1, 0.3))
def test_with_one_rate_for_all_it_is_the_best_k(draft_cost, verify_cost):
    """The best k is the last guess whose chance alpha^k is above the break-even."""
    for alpha in np.linspace(0.03, 0.97, 48):
        best = theory.best_k(alpha, draft_cost, verify_cost, max_k=200)
        rate = theory.speedup(alpha, best, draft_cost, verify_cost)
        for n in range(best):
            assert alpha ** (n + 1) > break_even(rate, draft_cost, verify_cost, n=n)
        bar = break_even(rate, draft_cost, verify_cost, n=best)
        assert alpha ** (best + 1) <= bar + 1e-12


class Chain:
    """A toy draft: the chance of each guess is that of a state, which wanders.

    A policy says, for the states of the guesses so far (and of the next one where it is
    ``seen`` before its cost is paid), whether to go on; at most ``depth`` guesses.
    """

    def __init__(self, chances, start, move, c, verify, depth=5, *, seen):
        self.chances, self.start, self.move = chances, start, move
        self.c, self.verify, self.depth, self.seen = c, verify, depth, seen

    def steps(self, path):
        return enumerate(self.move[path[-1]] if path else self.start)

    def price(self, n):
        return self.c + self.verify(n + 2) - self.verify(n + 1)

    def passed(self, path):
        return math.prod(self.chances[s] for s in path)

    def value(self, path):
        """The chance that the next guess and all before it are accepted."""
        if self.seen:
            return self.passed(path)
        return self.passed(path) * sum(p * self.chances[s] for s, p in self.steps(path))

    def totals(self, go_on):
        """Exact means of a round: tokens and time."""
        tokens, time = 1.0, self.verify(1)
        paths = [((), 1.0)]
        for n in range(self.depth):
            following = []
            for path, p in paths:
                steps = [((*path, s), p * q) for s, q in self.steps(path) if q > 0]
                if self.seen:
                    steps = [each for each in steps if go_on(each[0])]
                elif not go_on(path):
                    continue
                following += steps
                for step, q in steps:
                    tokens += q * self.passed(step)
                    time += q * self.price(n)
            paths = following
        return tokens, time

    def rate(self, go_on):
        tokens, time = self.totals(go_on)
        return tokens / time

    def best_rate(self):
        """Over every policy whatever: the rate at which none has tokens left over."""

        def gain(path, rate):  # of the best way to go on from here
            n = len(path)
            if n == self.depth:
                return 0.0
            steps = [((*path, s), q) for s, q in self.steps(path) if q > 0]
            gains = [
                (q, self.passed(step) - rate * self.price(n) + gain(step, rate))
                for step, q in steps
            ]
            if self.seen:
                return sum(q * max(0.0, g) for q, g in gains)
            return max(0.0, sum(q * g for q, g in gains))

        low, high = 0.0, self.depth + 2.0
        for _ in range(45):
            rate = (low + high) / 2
            if 1 - rate * self.verify(1) + gain((), rate) > 0:
                low = rate
            else:
                high = rate
        return low

    def above(self, threshold):
        return lambda path: self.value(path) > threshold

    def rule(self, rate):
        def go_on(path):
            n = len(path) - self.seen
            return self.value(path) > break_even(rate, self.c, self.verify, n=n)

        return go_on


def some_chain(g, **options):
    k = int(g.integers(2, 4))
    verify = (lambda n: 1.0, bent, lambda n: 0.9 + 0.1 * n)[g.integers(3)]
    start, *move = g.dirichlet(np.ones(k), size=k + 1)
    return Chain(
        g.random(k), start, move, g.choice([0.05, 0.1, 0.3]), verify, **options
    )


def test_the_rule_is_the_best_of_all_where_the_chance_is_known():
    g = np.random.default_rng(0)
    for _ in range(40):
        chain = some_chain(g, depth=4, seen=True)
        best = chain.best_rate()
        assert chain.rate(chain.rule(best)) == pytest.approx(best, abs=1e-9)
        # It is found from any start: apply the rule at the rate that it attained.
        rate = 1.0
        for _ in range(12):
            rate = chain.rate(chain.rule(rate))
        assert rate == pytest.approx(best, abs=1e-9)


def test_the_best_threshold_by_brute_force_is_the_break_even():
    g = np.random.default_rng(1)
    for _ in range(25):
        chain = some_chain(g, depth=4, seen=True)
        chain.verify = lambda n: 1.0  # one threshold for all places
        paths = [
            path
            for n in range(1, 5)
            for path in itertools.product(range(len(chain.chances)), repeat=n)
        ]
        values = sorted({chain.value(path) for path in paths})
        between = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(values)), 1.0]
        best = max(chain.rate(chain.above(t)) for t in between)
        assert best == pytest.approx(chain.best_rate(), abs=1e-9)
        at_the_rule = chain.rate(chain.above(break_even(best, chain.c)))
        assert at_the_rule == pytest.approx(best, abs=1e-12)


def test_the_rule_is_the_best_where_chances_are_unknown_and_independent():
    g = np.random.default_rng(2)
    for _ in range(40):
        chain = some_chain(g, depth=4, seen=False)
        chain.move = [chain.start] * len(chain.chances)
        best = chain.best_rate()
        assert chain.rate(chain.rule(best)) == pytest.approx(best, abs=1e-9)


def test_a_guess_may_pay_by_what_it_tells():
    """Half of all rounds are sure, half hopeless, and the first guess tells which."""
    chain = Chain(
        [1.0, 0.0],
        [0.5, 0.5],
        np.eye(2).tolist(),
        0.5,
        lambda n: 1.0,
        depth=5,
        seen=False,
    )
    best = chain.best_rate()
    assert chain.rate(lambda path: 1 not in path) == pytest.approx(best, abs=1e-9)
    assert best == pytest.approx(3.5 / 2.5)
    assert chain.value(()) < break_even(best, 0.5)  # by itself the first does not pay
    assert chain.rate(chain.rule(best)) == pytest.approx(1.0)


@pytest.mark.parametrize("rate", (0, -1, float("inf"), float("nan")))
def test_a_rate_is_above_zero(rate):
    with pytest.raises(ValueError, match="rate must be"):
        break_even(rate, 0.1)


def test_break_even_refuses_nonsense():
    with pytest.raises(ValueError, match="draft_cost must be"):
        break_even(1.0, -0.1)
    with pytest.raises(ValueError, match="n must be 0 or more"):
        break_even(1.0, 0.1, n=-1)


# A draft that stops by its confidence


class Counting:
    """A source that notes what was drawn."""

    def __init__(self, seed):
        self.rng, self.drawn = sd.SeededRandom(seed), []

    def categorical(self, distribution):
        self.drawn.append(self.rng.categorical(distribution))
        return self.drawn[-1]

    def bernoulli(self, p):
        return self.rng.bernoulli(p)


class Reads:
    """A model that counts its calls."""

    vocab_size, bos_id, context_window = 4, 0, None

    def __init__(self, model=MODEL):
        self.model, self.read = model, []

    def start(self):
        self.state = self.model.start()
        return self

    @property
    def length(self):
        return self.state.length

    def extend(self, tokens):
        self.read.append(len(tokens))
        return self.state.extend(tokens)

    def rewind(self, length):
        self.state.rewind(length)


def given(*numbers):
    """A chance that gives these numbers in turn."""
    following = iter(numbers)
    return lambda row, sequence: next(following)


@pytest.mark.parametrize(
    "draw_last, least, drafted, calls",
    [
        (True, 0.0, 5, 5),
        (True, 0.4, 3, 3),  # .9, .72, .36: the third fell below, and is drawn
        (True, 0.72, 3, 3),
        (True, 0.73, 2, 2),
        (True, 0.95, 1, 1),
        (False, 0.4, 2, 3),  # its call is lost
        (False, 0.73, 1, 2),
        (False, 0.95, 0, 1),
        (False, 0.01, 5, 5),
    ],
)
def test_it_stops_where_the_product_falls_below(draw_last, least, drafted, calls):
    model, rng = Reads(), Counting(0)
    draft = sd.ModelDraft(
        model,
        least=least,
        chance=given(0.9, 0.8, 0.5, 0.5, 0.5),
        draw_last=draw_last,
    )
    proposal = draft.start([1, 2]).propose(5, rng)
    assert len(proposal.tokens) == drafted
    assert len(model.read) == calls
    assert list(proposal.tokens) == rng.drawn  # nothing that was drawn is dropped
    if drafted:
        assert proposal.probabilities.shape == (drafted, 4)
    else:
        assert proposal.probabilities is None


@pytest.mark.parametrize("draw_last", (True, False))
@pytest.mark.parametrize("least", (0.2, 0.5, 0.9))
def test_all_that_is_drawn_is_proposed_in_whole_runs(draw_last, least):
    draws = {"draft": 0}

    class Noting:
        def __init__(self, draft):
            self.draft = draft

        def start(self, prompt):
            self.session = self.draft.start(prompt)
            self.commit = self.session.commit
            return self

        def propose(self, k, rng):
            counting = Counting(draws["draft"])
            proposal = self.session.propose(k, counting)
            assert list(proposal.tokens) == counting.drawn
            draws["draft"] += len(counting.drawn)
            return proposal

    draft = Noting(sd.ModelDraft(MODEL, least=least, draw_last=draw_last))
    run = sd.generate(TARGET, [1], draft=draft, k=4, max_new_tokens=100, seed=0)
    assert run.metrics.drafted == draws["draft"]
    seen = {len(each.drafted) for each in run.rounds}
    assert len(seen) > 1 or (least == 0.9 and seen == {0 if not draw_last else 1})


@pytest.mark.parametrize("draw_last", (True, False))
def test_after_a_stop_it_goes_on_from_the_right_place(draw_last):
    """Rows are those of the text so far, whatever was read and not drawn."""
    draft = sd.ModelDraft(MODEL, least=0.5, draw_last=draw_last)
    rounds, text = [], [1, 2]
    session = draft.start(text)
    g = np.random.default_rng(4)
    for number in range(60):
        proposal = session.propose(4, sd.SeededRandom(number))
        for i in range(len(proposal.tokens)):
            row = sd.Sampler()(rows([*text, *proposal.tokens[:i]]))
            assert np.abs(proposal.probabilities[i] - row).max() < 1e-15
        kept = int(g.integers(len(proposal.tokens) + 1))
        committed = [*proposal.tokens[:kept], int(g.integers(4))]
        session.commit(committed)
        text += committed
        rounds.append(len(proposal.tokens))
    assert len(set(rounds)) > 2


def test_the_default_draws_and_reads_as_ever_and_asks_no_chance():
    def never(row, sequence):
        raise AssertionError

    runs = []
    for options in ({}, {"chance": never}, {"least": 1e-9, "chance": lambda *_: 1.0}):
        model = Reads()
        draft = sd.ModelDraft(model, sd.Sampler(0.8), **options)
        runs.append(
            (
                sd.generate(TARGET, [1], draft=draft, max_new_tokens=60, seed=3).tokens,
                model.read,
            )
        )
    assert runs[0] == runs[1] == runs[2]


def test_what_the_chance_is_given():
    seen = []

    def note(row, sequence):
        seen.append((row, tuple(sequence)))
        return 1.0

    draft = sd.ModelDraft(MODEL, sd.Sampler(0.5), least=0.1, chance=note)
    proposal = draft.start([1, 2]).propose(3, sd.SeededRandom(0))
    for i, (row, sequence) in enumerate(seen):
        assert sequence == (1, 2, *proposal.tokens[:i])
        assert np.array_equal(row, proposal.probabilities[i])


def test_a_greedy_draft_is_judged_by_its_row_at_temperature_1():
    seen = []

    def note(row, sequence):
        seen.append(row)
        return 0.5

    sampler = sd.Sampler(0, top_k=3, processors=(sd.LogitBias({2: -1.0}),))
    draft = sd.ModelDraft(MODEL, sampler, least=0.3, chance=note)
    proposal = draft.start([1, 2]).propose(5, None)
    assert proposal.probabilities is None
    assert len(proposal.tokens) == 2
    warm = sd.Sampler(1, top_k=3, processors=(sd.LogitBias({2: -1.0}),))
    for i, row in enumerate(seen):
        assert np.array_equal(row, warm(rows([1, 2, *proposal.tokens[:i]]), [1, 2]))
        assert row.argmax() == proposal.tokens[i]


@pytest.mark.parametrize("least", (-0.1, 1.1, float("nan")))
def test_least_is_a_probability(least):
    with pytest.raises(ValueError, match=r"least must be in \[0, 1\]"):
        sd.ModelDraft(MODEL, least=least)


def test_a_chance_is_a_function_that_gives_a_probability():
    with pytest.raises(TypeError, match="chance must be callable"):
        sd.ModelDraft(MODEL, least=0.5, chance=0.5)
    for wrong in (1.5, -0.1, float("nan")):
        draft = sd.ModelDraft(MODEL, least=0.5, chance=given(wrong))
        with pytest.raises(ValueError, match="chance must return"):
            draft.start([1]).propose(1, sd.SeededRandom(0))


# Calibration


def test_shares_by_bin_by_hand():
    confidences = [0.1, 0.2, 0.3, 0.6, 0.7, 0.9]
    table = sd.Calibration.fit(confidences, [0, 1, 0, 1, 1, 0], bins=3, monotone=False)
    assert table.bounds == (0.3, 0.7)
    assert table.chances == (0.5, 0.5, 0.5)
    table = sd.Calibration.fit(confidences, [0, 0, 1, 0, 1, 1], bins=3)
    assert table.chances == (0.0, 0.5, 1.0)
    assert [table.of(c) for c in (0.0, 0.29, 0.3, 0.69, 0.7, 1.0)] == [
        0.0, 0.0, 0.5, 0.5, 1.0, 1.0,
    ]  # fmt: skip


def test_neighbours_that_fall_are_joined():
    confidences = np.arange(8) / 10
    accepted = [0, 1, 0, 0, 1, 1, 0, 1]  # by pairs: 1/2, 0, 1, 1/2
    table = sd.Calibration.fit(confidences, accepted, bins=4)
    assert table.chances == (0.25, 0.75)
    assert table.bounds == (0.4,)
    falling = sd.Calibration.fit(confidences, [1, 1, 1, 1, 0, 0, 0, 0], bins=4)
    assert falling.chances == (0.5,)
    assert falling.bounds == ()


def test_equal_confidences_share_a_bin():
    table = sd.Calibration.fit(
        [0.5] * 6 + [0.9] * 4, [1, 1, 0, 0, 0, 0, 1, 1, 1, 0], bins=5
    )
    assert table.bounds == (0.9,)
    assert table.chances == (pytest.approx(1 / 3), 0.75)
    assert sd.Calibration.fit([0.5] * 4, [1, 0, 0, 0]).chances == (0.25,)


def test_a_table_finds_the_truth_behind_its_records():
    g = np.random.default_rng(0)
    x = g.random(40_000)
    table = sd.Calibration.fit(x, g.random(40_000) < 0.3 + 0.6 * x, bins=10)
    for c in (0.05, 0.35, 0.55, 0.95):
        assert table.of(c) == pytest.approx(0.3 + 0.6 * c, abs=0.03)
    assert list(table.chances) == sorted(table.chances)


def test_a_table_as_the_chance_of_a_row():
    table = sd.Calibration((0.5,), (0.25, 0.75))
    assert table(np.array([0.6, 0.4])) == 0.75
    assert table(np.array([0.4, 0.3, 0.3]), (1, 2)) == 0.25
    by_length = sd.Calibration((3,), (0.25, 0.75), lambda row, sequence: len(sequence))
    assert by_length(np.array([1.0]), (1, 2, 3)) == 0.75


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (([], []), {}, "same shape"),
        (([0.1, 0.2], [1]), {}, "same shape"),
        (([0.1, np.nan], [1, 0]), {}, "confidences must be finite"),
        (([0.1, 0.2], [1, 2]), {}, "accepted must be in"),
        (([0.1, 0.2], [1, np.nan]), {}, "accepted must be in"),
        (([0.1, 0.2], [1, 0]), {"bins": 0}, "bins must be 1 or more"),
    ],
)
def test_records_that_cannot_be_fitted(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        sd.Calibration.fit(*arguments, **options)


@pytest.mark.parametrize(
    "bounds, chances, message",
    [
        ((0.5,), (0.5,), "one more than bounds"),
        ((0.5, 0.5), (0.1, 0.2, 0.3), "bounds must increase"),
        ((0.5,), (0.1, 1.2), "chances must be in"),
    ],
)
def test_a_table_that_is_none(bounds, chances, message):
    with pytest.raises(ValueError, match=message):
        sd.Calibration(bounds, chances)


@pytest.mark.parametrize("temperature", (0.0, 0.7))
def test_judged_guesses_are_those_of_the_runs(temperature):
    sampler = sd.Sampler(temperature)
    draft = sd.ModelDraft(MODEL, sampler)
    prompts = [[0, 1], [2], [3, 3, 1]]
    options = {"k": 3, "max_new_tokens": 30, "sampler": sampler}
    confidences, accepted = judged_guesses(TARGET, draft, prompts, seed=5, **options)
    expected = []
    for i, prompt in enumerate(prompts):
        text = list(prompt)
        run = sd.generate(TARGET, prompt, draft=draft, seed=5 + i, **options)
        for each in run.rounds:
            for place in range(each.tested):
                row = sd.Sampler(temperature or 1)(rows([*text, *each.drafted[:place]]))
                expected.append((row.max(), place < each.accepted))
            text += each.emitted
    assert len(confidences) == len(expected) > 30
    assert np.allclose(list(zip(confidences, accepted, strict=True)), expected)
    assert 0 < accepted.mean() < 1


def test_only_a_model_draft_has_a_confidence_to_judge():
    with pytest.raises(TypeError, match="draft must be a ModelDraft"):
        judged_guesses(TARGET, MODEL, [[1]])


# The true chance


@pytest.mark.parametrize("draw_last", (True, False))
def test_the_true_chance_is_the_overlap_at_each_place(draw_last):
    sampler = sd.Sampler(0.8)
    target = Reads(TARGET)
    true = sd.TrueChance(target, sampler)
    asked = []

    def note(row, sequence):
        chance = true(row, sequence)
        p, q = (sampler(m.logits_after(tuple(sequence))) for m in (TARGET, MODEL))
        assert chance == pytest.approx(theory.acceptance(p, q), abs=1e-12)
        asked.append(len(sequence))
        return chance

    draft = sd.ModelDraft(MODEL, sampler, least=0.3, chance=note, draw_last=draw_last)
    sd.generate(
        TARGET, [1], draft=draft, k=5, max_new_tokens=200, sampler=sampler, seed=1
    )
    assert len(asked) > 100
    # It goes with the text: no more tokens read than a few a question.
    assert sum(target.read) < 4 * len(asked)


def test_the_true_chance_of_a_greedy_guess():
    row = np.array([0.1, 0.2, 0.7, 0.0])
    p = sd.Sampler(0.5)(TARGET.logits_after((1, 2)))
    true = sd.TrueChance(TARGET, sd.Sampler(0.5), sd.Sampler(0))
    assert true(row, [1, 2]) == pytest.approx(p[2])
    certain = sd.TrueChance(TARGET, sd.Sampler(0))
    best = int(TARGET.logits_after((1, 2)).argmax())
    assert certain(np.eye(4)[best], [1, 2]) == 1.0
    assert certain(np.eye(4)[best - 1], [1, 2]) == 0.0


def test_with_temperature_0_it_never_drafts_past_a_rejection():
    """All chances are 0 or 1: it is the clairvoyant, but for the guess it stops at."""
    greedy = sd.Sampler(0)
    for draw_last in (True, False):
        draft = sd.ModelDraft(
            MODEL,
            greedy,
            least=0.5,
            chance=sd.TrueChance(TARGET, greedy),
            draw_last=draw_last,
        )
        run = sd.generate(
            TARGET, [1], draft=draft, k=6, max_new_tokens=60, sampler=greedy
        )
        for each in run.rounds:
            assert len(each.drafted) == each.accepted or (
                draw_last and len(each.drafted) == each.accepted + 1
            )


# Lengths by what earlier rounds brought


def a_round(drafted, accepted, emitted=None, finish=None):
    emitted = accepted + 1 if emitted is None else emitted
    return sd.Round((0,) * drafted, accepted, (0,) * emitted, finish_reason=finish)


def play(policy, chance_of, rounds):
    """The ks that a policy asks for where guess i of round t passes by a function."""
    ks = []
    for t in range(rounds):
        k = policy.next_k()
        ks.append(k)
        accepted = 0
        while accepted < k and chance_of(t):
            accepted += 1
        policy.observe(a_round(k, accepted))
    return ks


def test_up_and_down_by_hand():
    policy = sd.UpAndDown(2, most=7)
    seen = [policy.next_k()]
    for accepted in (2, 4, 6, 7, 7, 0, 3, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1):
        policy.observe(a_round(seen[-1], min(accepted, seen[-1])))
        seen.append(policy.next_k())
    assert seen == [2, 4, 6, 7, 7, 7, 6, 5, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 3]


def test_up_and_down_learns_nothing_from_a_round_cut_short():
    policy = sd.UpAndDown(5)
    for cut in (
        a_round(2, 2),  # the budget or the draft ended: all that came was accepted
        a_round(5, 2, 2, "stop"),  # a stop id among the accepted guesses
        a_round(0, 0),
        a_round(0, 0, 1, "length"),
    ):
        policy.observe(cut)
        assert policy.next_k() == 5
    policy.observe(a_round(2, 1))  # a rejection is one, however few there were
    assert policy.next_k() == 4


def test_recent_acceptance_finds_the_best_k():
    g = np.random.default_rng(0)
    for alpha in (0.4, 0.7, 0.9):
        policy = sd.RecentAcceptance(0.1, decay=0.99)
        ks = play(policy, lambda t, alpha=alpha: g.random() < alpha, 2000)
        assert policy.rate == pytest.approx(alpha, abs=0.06)
        assert np.mean(ks[500:]) == pytest.approx(theory.best_k(alpha, 0.1), abs=0.8)


def test_recent_acceptance_by_hand():
    policy = sd.RecentAcceptance(0.1, decay=0.5, prior=0.5, weight=2)
    assert policy.rate == 0.5
    assert policy.next_k() == theory.best_k(0.5, 0.1) == 2
    policy.observe(a_round(2, 1))  # (.5 + 1) / (1 + 2)
    assert policy.rate == pytest.approx(0.5)
    policy.observe(a_round(2, 2))  # (.75 + 2) / (1.5 + 2)
    assert policy.rate == pytest.approx(2.75 / 3.5)
    assert policy.next_k() == theory.best_k(0.79, 0.1) == 6


def test_recent_acceptance_learns_nothing_from_rounds_without_guesses():
    policy = sd.RecentAcceptance(0.1)
    rate, k = policy.rate, policy.next_k()
    for _ in range(5):
        policy.observe(a_round(0, 0))
    assert (policy.rate, policy.next_k()) == (rate, k)


def test_a_round_cut_by_a_stop_id_counts_only_what_was_tested():
    policy = sd.RecentAcceptance(0.1, decay=0.5, prior=0.5, weight=2)
    policy.observe(a_round(5, 2, 2, "stop"))  # two accepted, no rejection seen
    assert policy.rate == pytest.approx((0.5 + 2) / (1 + 2))


def test_a_useless_draft_is_tried_ever_more_seldom():
    policy = sd.RecentAcceptance(0.1)
    ks = play(policy, lambda t: False, 1000)
    first = ks.index(0)
    assert max(ks[first:]) == 1
    tries = [t for t in range(first, 1000) if ks[t] == 1]
    waits = [b - a - 1 for a, b in itertools.pairwise([first - 1, *tries])]
    assert waits[:6] == [1, 2, 4, 8, 16, 32]
    assert set(waits[6:]) == {32}
    # All that is lost to plain decoding: 22 guesses at first, then the tries.
    assert sum(ks[:first]) == 22
    assert sum(ks) <= 22 + 5 + 1000 / 33


@pytest.mark.parametrize("draft_cost", (0.1, 0.3))
@pytest.mark.parametrize("useless", (30, 100, 500))
def test_it_comes_back_from_zero(draft_cost, useless):
    """Useless at first, perfect afterwards: back to k >= 1 for good after at most 32
    rounds without a guess, and s guesses one round apart with .95^s < 1 - c."""
    policy = sd.RecentAcceptance(draft_cost)
    ks = play(policy, lambda t: t >= useless, useless + 200)
    assert ks[useless - 1] == 0 or ks[useless - 2] == 0
    s = int(np.ceil(np.log(1 - draft_cost - 0.005) / np.log(0.95)))
    back = useless + 32 + 2 * s
    assert min(ks[back:]) >= 1
    assert ks[-1] == 16


def test_patience_bounds_the_wait():
    policy = sd.RecentAcceptance(0.1, patience=4)
    ks = play(policy, lambda t: False, 200)
    tries = [t for t in range(100, 200) if ks[t] == 1]
    assert {b - a for a, b in itertools.pairwise(tries)} == {5}


def test_where_guesses_can_never_pay_it_still_only_tries():
    policy = sd.RecentAcceptance(1.5)
    ks = play(policy, lambda t: True, 100)
    assert set(ks) == {0, 1}
    assert sum(ks) == 50  # every second round, since all are accepted


# Records of policies


def test_records_of_policies_are_those_of_their_runs():
    policies = {
        "four": (sd.ModelDraft, 4),
        "recent": (sd.ModelDraft, sd.RecentAcceptance(0.1)),
        "looks": (
            lambda model, sampler: sd.ModelDraft(
                model, sampler, least=0.5, draw_last=False
            ),
            4,
        ),
    }
    prompts = {"a": [1, 2], "b": [3]}
    settings = {"temperatures": (0.7, 1.0), "seeds": (0, 1), "max_new_tokens": 40}
    records = ex.policy_records(TARGET, MODEL, policies, prompts, **settings)
    assert len(records) == 3 * 2 * 2 * 2
    for r in records:
        make, k = policies[r["draft"]]
        sampler = sd.Sampler(r["temperature"])
        model = Reads()
        seed = ex.Cell(r["draft"], r["temperature"], 0, r["seed"], r["prompt"])
        run = sd.generate(
            TARGET, prompts[r["prompt"]], draft=make(model, sampler), k=k,
            max_new_tokens=40, sampler=sampler, seed=seed.random_seed,
        )  # fmt: skip
        assert r["draft_calls"] == len(model.read)
        for name in ("drafted", "tested", "accepted", "emitted", "target_calls"):
            assert r[name] == getattr(run.metrics, name)
        assert r["k"] == max(len(each.drafted) for each in run.rounds)
        by_rounds = sum(1 + 0.5 * len(each.drafted) for each in run.rounds)
        cost = ex.call_cost(r, 0.25, lambda n: 0.5 + 0.5 * n)
        assert cost == pytest.approx(by_rounds + 0.25 * len(model.read))
    lost = dict.fromkeys(policies, 0)
    for r in records:
        lost[r["draft"]] += r["draft_calls"] - r["drafted"]
    assert lost["four"] == lost["recent"] == 0 < lost["looks"]
    assert ex.policy_records(TARGET, MODEL, policies, prompts, **settings) == records


def test_gain_of_one_policy_over_another_by_hand():
    def made(calls, drafted, emitted=10):
        return [
            {"prompt": p, "seed": 0, "k": 3, "emitted": emitted,
             "drafted": d, "target_calls": c}
            for p, c, d in zip("ab", calls, drafted, strict=True)
        ]  # fmt: skip

    some, base = made([4, 4], [10, 10]), made([5, 7], [0, 0])
    gain = ex.gain_interval(some, base, 0.1)
    assert gain.estimate == pytest.approx((20 / 10) / (20 / 12) - 1)
    assert gain.low == pytest.approx(5 / 5 - 1)  # the text a twice
    assert gain.high == pytest.approx(7 / 5 - 1)
    same = ex.gain_interval(base, base, 0.1)
    assert same == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="same clusters"):
        ex.gain_interval(some, base[:1], 0.1)
    for bad in (-0.5, 0, 1):
        with pytest.raises(ValueError, match="level must be inside 0 .. 1"):
            ex.gain_interval(some, base, 0.1, level=bad)


POLICIES = [
    sd.UpAndDown(2),
    sd.RecentAcceptance(0.1),
    sd.RecentAcceptance(0.4, theory.cost_curve([1, 20], [1.0, 2.0]), decay=0.6),
    sd.PayingLength(theory.cost_curve([1, 20], [1.0, 2.0]), 0.02),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_leaks_from_one_call_to_the_next(policy):
    before = repr(policy), vars(copy.deepcopy(policy))
    draft = sd.ModelDraft(MODEL)

    def lengths():
        run = sd.generate(TARGET, [1], draft=draft, k=policy, max_new_tokens=80, seed=1)
        return [(r.drafted, r.emitted) for r in run.rounds]

    first = lengths()
    assert len({len(drafted) for drafted, _ in first}) > 1
    assert lengths() == first
    assert (repr(policy), vars(policy)) == before


@pytest.mark.parametrize("policy", POLICIES)
def test_budgets_and_stops_are_harmless(policy):
    draft = sd.ModelDraft(MODEL, least=0.4)
    for seed in range(10):
        run = sd.generate(
            TARGET, [1], draft=draft, k=policy, max_new_tokens=17, seed=seed,
            stop_ids=(2,),
        )  # fmt: skip
        assert len(run.tokens) <= 17
        assert 2 not in run.tokens[:-1]
    assert sd.generate(TARGET, [1], k=policy, max_new_tokens=5, seed=0).tokens


def test_they_say_what_they_are():
    assert repr(sd.UpAndDown(3)) == "UpAndDown(3, up=2, down=1, least=1, most=16)"
    text = repr(sd.RecentAcceptance(0.1))
    assert text == "RecentAcceptance(rate=0.70, next_k=4)"


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: sd.UpAndDown(0), ValueError, "start must be 1 or more"),
        (lambda: sd.UpAndDown(2.0), TypeError, "start must be an integer"),
        (lambda: sd.UpAndDown(20), ValueError, "start must be at most 16"),
        (lambda: sd.UpAndDown(2, least=0), ValueError, "least must be 1 or more"),
        (lambda: sd.UpAndDown(2, least=3, most=2), ValueError, "most must be 3"),
        (lambda: sd.UpAndDown(2, up=-1), ValueError, "up must be 0 or more"),
        (lambda: sd.UpAndDown(2, down=-1), ValueError, "down must be 0 or more"),
        (lambda: sd.RecentAcceptance(-1), ValueError, "draft_cost must be"),
        (lambda: sd.RecentAcceptance(0.1, max_k=0), ValueError, "max_k must be 1"),
        (lambda: sd.RecentAcceptance(0.1, decay=1.0), ValueError, "decay must be"),
        (lambda: sd.RecentAcceptance(0.1, decay=0.0), ValueError, "decay must be"),
        (lambda: sd.RecentAcceptance(0.1, prior=1.1), ValueError, "prior must be"),
        (lambda: sd.RecentAcceptance(0.1, weight=0), ValueError, "weight must be"),
        (lambda: sd.RecentAcceptance(0.1, patience=0), ValueError, "patience must"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
