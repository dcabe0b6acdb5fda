"""The draft length that pays: its choice beside a plain recount, and its bound.

Costs are counts and a toy curve, in units of a plain call; no clock is read.
"""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specdec_lib as sd
from specdec_lib import theory
from specdec_lib.draft_length import PayingLength, break_even, copies_that_pay

CURVE = theory.cost_curve([1, 2, 4, 5, 8, 17], [1, 1.2, 1.4, 1.5, 1.6, 2.4])
STEEP = theory.cost_curve([1, 9], [1.0, 6.0])


def a_round(drafted, accepted, emitted=None):
    emitted = accepted + 1 if emitted is None else emitted
    return sd.Round((0,) * drafted, accepted, (0,) * emitted)


def play(policy, guesses, rounds, verify_cost=CURVE):
    """Let a policy choose where round t has ``guesses(t)``: (offered, would pass).

    Returns the ks, and after each round what it took and how many tokens had come.
    """
    ks, spent, came, seconds, tokens = [], [], [], 0.0, 0
    for t in range(rounds):
        k = policy.next_k()
        offered, right = guesses(t)
        drafted = min(k, offered)
        accepted = min(drafted, right)
        policy.observe(a_round(drafted, accepted))
        ks.append(k)
        seconds += verify_cost(drafted + 1)
        tokens += accepted + 1
        spent.append(seconds)
        came.append(tokens)
    return ks, np.array(spent), np.array(came)


def test_by_hand():
    """T(2) = 1.5, T(3) = 2; as if one round had been seen, with 0 or 1 or 2 accepted
    at .5: paces 1, 1.5 / 1.5, 1.75 / 2, so k = 0, and a try after one round."""
    curve = theory.cost_curve([1, 2, 3], [1.0, 1.5, 2.0])
    policy = PayingLength(curve, max_k=2, prior=0.5, weight=1, decay=0.5)
    assert policy.next_k() == 0
    policy.observe(a_round(0, 0))
    assert policy.next_k() == 1
    policy.observe(a_round(1, 1))
    # Accepted, and as many as asked for: the second would have been at (.5/2 + 1) /
    # (1/2 + 1) = 5/6. Paces (1.5 + 1.25) / (1.5 + .75) and (1.5 + .375 + 1 + 5/6) /
    # (1.5 + .5 + 1), which is 1.222 and 1.236.
    assert policy.next_k() == 2
    policy.observe(a_round(2, 0))
    # (1.75 + .625) / (1.75 + .875), (1.75 + 2.208/2) / (1.75 + 1.75): below 1.
    assert policy.next_k() == 0


def recount(rounds, curve, max_k, decay, prior, weight):
    """The paces by the definition, from the list of all (asked, drafted, accepted)."""
    paces = []
    for k in range(max_k + 1):
        number, gain, cost = (
            weight,
            weight * sum(prior**i for i in range(1, k + 1)),
            0.0,
        )
        cost = weight * (curve(k + 1) - 1)
        passed, tested = prior * weight, weight
        for asked, drafted, accepted in rounds:
            if not drafted:
                continue
            passed = decay * passed + accepted
            tested = decay * tested + min(drafted, accepted + 1)
            rate = passed / tested
            if k <= drafted or drafted < asked:
                brought, guesses = min(k, accepted), min(k, drafted)
            else:
                brought, guesses = accepted, k
                if accepted == drafted:
                    brought += sum(rate**i for i in range(1, k - drafted + 1))
            number = decay * number + 1
            gain = decay * gain + brought
            cost = decay * cost + curve(guesses + 1) - 1
        paces.append((number + gain) / (number + cost))
    return paces


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30),
    st.sampled_from([CURVE, STEEP]),
    st.sampled_from([0.5, 0.9]),
    st.sampled_from([0.3, 0.7]),
)
def test_it_takes_the_k_that_would_have_been_best(script, curve, decay, prior):
    own = {"max_k": 5, "decay": decay, "prior": prior, "weight": 2.0}
    policy = PayingLength(curve, credit=1e9, most=1e9, **own)
    done = []
    for offered, right in script:
        k = policy.next_k()
        paces = recount(done, curve, **own)
        if max(paces[1:]) > 1 + 1e-9:
            assert paces[k] == pytest.approx(max(paces))
        elif max(paces[1:]) < 1 - 1e-9:
            assert k <= 1  # nothing, or a try
        drafted = min(k, offered)
        done.append((k, drafted, min(drafted, right)))
        policy.observe(a_round(*done[-1][1:]))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), max_size=120),
    st.sampled_from([CURVE, STEEP]),
    st.sampled_from([0.0, 0.02, 0.5]),
    st.sampled_from([0.0, 0.3, 1.0, 5.0]),
)
def test_whatever_comes_it_never_loses_more_than_it_may(
    script, curve, allowance, credit
):
    max_k = curve.ns[-1] - 1
    policy = PayingLength(
        curve, max_k=max_k, allowance=allowance, credit=credit, most=credit + 3
    )
    script = script or [(0, 0)]
    _, spent, came = play(policy, script.__getitem__, len(script), curve)
    assert (spent <= came * (1 + allowance) + credit + 1e-9).all()


@pytest.mark.parametrize("curve", (CURVE, STEEP))
def test_a_useless_draft_is_noticed_within_a_few_rounds(curve):
    ks, spent, came = play(PayingLength(curve), lambda t: (99, 0), 1000, curve)
    assert ks[0] > 0
    assert ks[2:10] == [0] * 8  # by then it has lost its credit
    tries = [t for t, k in enumerate(ks) if k and t >= 400]
    assert {ks[t] for t in tries} == {1}
    assert min(np.diff(tries)) >= 33
    # What is lost by then, and a try in every 33 rounds.
    assert spent[-1] - came[-1] < 1 + 0.01 * 400 + (600 / 33 + 1) * (curve(2) - 1)


def test_a_draft_that_mostly_has_nothing_costs_nothing_for_it():
    """One guess in ten rounds, always right: it stays, and every one is a gain."""
    policy = PayingLength(CURVE)
    _, spent, came = play(policy, lambda t: (1, 1) if t % 10 == 9 else (0, 0), 200)
    assert came[-1] == 220
    assert spent[-1] == pytest.approx(200 + 20 * 0.2)


def test_rounds_without_guesses_teach_nothing():
    policy = PayingLength(CURVE)
    policy.observe(a_round(policy.next_k(), 2))
    k = policy.next_k()
    for _ in range(100):
        policy.observe(a_round(0, 0))
    assert policy.next_k() == k


def test_a_perfect_draft_gets_all_the_guesses_there_may_be():
    policy = PayingLength(CURVE, max_k=16)
    ks, spent, came = play(policy, lambda t: (99, 99), 30)
    assert ks[-1] == 16
    assert ks == sorted(ks)
    assert ks[6] == 16
    assert came[-1] / spent[-1] > 6


def test_gains_of_the_past_are_lost_only_up_to_a_bound():
    """Perfect for 30 rounds, then useless, and slow to forget: it has ``most``."""
    policy = PayingLength(CURVE, decay=0.999, most=2.0, allowance=0.0)
    _, spent, came = play(policy, lambda t: (99, 99 if t < 30 else 0), 90)
    lost = np.array(spent - came)
    assert lost[29] < -100
    assert 2.0 - 0.2 < max(lost[30:] - lost[29]) <= 2.0 + 1e-9


def test_the_balance_by_hand():
    policy = PayingLength(CURVE, credit=1.0, allowance=0.1, most=2.5)
    policy.next_k()
    policy.observe(a_round(3, 1))  # 2 tokens for T(4) = 1.4
    assert policy.balance == pytest.approx(1.0 + 0.1 * 2 + 1 - 0.4)
    policy.next_k()
    policy.observe(a_round(4, 0))
    assert policy.balance == pytest.approx(1.8 + 0.1 - 0.5)
    policy.next_k()
    policy.observe(a_round(4, 4))
    assert policy.balance == 2.5


def test_costs_may_have_any_unit():
    plain = PayingLength(CURVE, 0.1)
    scaled = PayingLength(lambda n: 30.0 * CURVE(n), 0.1)

    def guesses(t):
        return 99, (t * t) % 7

    assert play(plain, guesses, 60)[0] == play(scaled, guesses, 60)[0]


def test_short_guesses_are_not_held_against_longer_ones():
    """A draft that stops after two right guesses is never asked for fewer."""
    ks, _, _ = play(PayingLength(CURVE), lambda t: (2, 2), 50)
    assert min(ks) >= 2


@pytest.mark.parametrize("useless", (10, 50, 300))
def test_it_comes_back(useless):
    policy = PayingLength(CURVE, max_k=16)
    ks, _, _ = play(
        policy, lambda t: (99, 99 if t >= useless else 0), useless + 70, CURVE
    )
    assert ks[useless - 1] <= 1
    back = useless + 33  # at most ``patience`` rounds, and then fast
    assert max(ks[back + 12 :]) == 16
    assert min(ks[back + 12 :]) >= 1


@pytest.mark.parametrize("rate", (0.2, 0.5, 0.8, 0.95))
@pytest.mark.parametrize("curve", (CURVE, STEEP))
def test_near_the_best_fixed_length(rate, curve):
    """By the formula at the true rate, which it does not know: within a few percent."""
    g = np.random.default_rng(0)
    max_k = curve.ns[-1] - 1
    policy = PayingLength(curve, max_k=max_k, decay=0.95)
    right = g.geometric(1 - rate, size=3000) - 1
    _, spent, came = play(policy, lambda t: (99, right[t]), 3000, curve)
    best = theory.best_k(rate, 0.0, curve, max_k=max_k)
    assert came[-1] / spent[-1] > 0.94 * theory.speedup(rate, best, 0.0, curve)
    assert came[-1] / spent[-1] > 0.98


def test_the_draft_costs_too():
    free, dear = PayingLength(CURVE), PayingLength(CURVE, 0.3)
    assert dear.next_k() < free.next_k()
    never = PayingLength(CURVE, 2.0)
    ks, _, _ = play(never, lambda t: (99, 99), 40)
    assert set(ks) == {0}  # not even a try: one could not be paid for


def test_nothing_leaks_and_it_says_what_it_is():
    policy = PayingLength(CURVE)
    assert repr(policy) == "PayingLength(balance=1.00, next_k=7)"
    before = copy.deepcopy(vars(policy))
    target = sd.FunctionModel(lambda seq: np.eye(4)[(seq[-1] + 1) % 4] * 9, 4)
    runs = [
        sd.generate(
            target,
            [0, 1, 2],
            draft=sd.PromptLookup(),
            k=policy,
            max_new_tokens=60,
            seed=1,
        )
        for _ in range(2)
    ]
    assert runs[0].tokens == runs[1].tokens
    assert [r.drafted for r in runs[0].rounds] == [r.drafted for r in runs[1].rounds]
    assert len({len(r.drafted) for r in runs[0].rounds}) > 1
    assert vars(policy) == before


def test_trees_are_refused():
    tree = sd.Round((1, 2), 1, (1, 3), parents=(-1, -1), path=(0,))
    with pytest.raises(ValueError, match="rounds must be of chains"):
        PayingLength(CURVE).observe(tree)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"max_k": 0}, ValueError, "max_k must be 1 or more"),
        ({"max_k": 2.0}, TypeError, "max_k must be an integer"),
        ({"max_k": 17}, ValueError, "n must be inside the measured 1 .. 17"),
        ({"patience": 0}, ValueError, "patience must be 1 or more"),
        ({"draft_cost": -0.1}, ValueError, "draft_cost must be"),
        ({"draft_cost": float("nan")}, ValueError, "draft_cost must be"),
        ({"decay": 1.0}, ValueError, "decay must be inside"),
        ({"prior": 1.1}, ValueError, "prior must be"),
        ({"weight": 0}, ValueError, "weight must be"),
        ({"allowance": -0.1}, ValueError, "allowance must be"),
        ({"credit": -1}, ValueError, "credit must be"),
        ({"most": 0.5}, ValueError, "most must be at least credit"),
    ],
)
def test_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        PayingLength(CURVE, **options)


def test_costs_are_numbers_above_zero():
    with pytest.raises(ValueError, match="verify_cost must be finite"):
        PayingLength(lambda n: 2.0 - n)


# The draft that goes with it


@pytest.mark.parametrize("curve", (CURVE, STEEP))
def test_copies_are_made_where_a_first_guess_pays(curve):
    history = sd.SuffixHistory()
    draft, k = copies_that_pay(curve, history=history, max_k=8)
    assert draft.threshold == pytest.approx(break_even(1.0, 0.0, curve))
    assert draft.history is history
    assert isinstance(k, PayingLength)


def test_the_threshold_stays_a_chance():
    assert copies_that_pay(lambda n: 1.0)[0].threshold == 0.05
    assert copies_that_pay(lambda n: 3.0 * n - 2)[0].threshold == 1.0
    assert copies_that_pay(lambda n: 10.0 + 2 * n)[0].threshold == pytest.approx(1 / 6)


def test_on_a_text_that_repeats_it_pays_and_on_one_that_does_not_it_costs_little():
    g = np.random.default_rng(0)
    texts = {
        "again": g.integers(1000, size=50).tolist() * 4,
        "like the last word only": [
            word for _ in range(100) for word in (7, int(g.integers(1000, 2000)))
        ],
        "new": list(range(2000, 2200)),
    }
    gains = {}
    for name, text in texts.items():
        rows = np.eye(2200)
        said = sd.FunctionModel(
            lambda seq, text=text, rows=rows: 9 * rows[text[len(seq) % 200]], 2200
        )
        draft, k = copies_that_pay(CURVE)
        run = sd.generate(
            said,
            text[:1],
            draft=draft,
            k=k,
            max_new_tokens=199,
            sampler=sd.Sampler(temperature=0),
        )
        assert list(run.tokens) == text[1:]
        gains[name] = 199 / sum(CURVE(len(r.drafted) + 1) for r in run.rounds)
    assert gains["again"] > 2
    assert gains["new"] == 1
    assert 0.98 < gains["like the last word only"] < 1.5
