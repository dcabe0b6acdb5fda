"""What holds for all probabilities and figures: samplers, chance, metrics, theory."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties_kit import (
    a_model,
    a_sampler,
    among,
    calls,
    examples,
    flips,
    fresh_row,
    number,
    rows_of,
    seeds,
    some_tokens,
    untimed,
    whole,
)

import specdec_lib as sd
from specdec_lib import theory
from specdec_lib.draft_length import Calibration, break_even
from specdec_lib.experiments import acceptance_along
from specdec_lib.metrics import Metrics, Positions
from specdec_lib.records import bootstrap_interval, group_records, ratio, summarise

KINDS = among("all tokens", "ties", "gaps")

# ---- samplers


@examples(150)
@given(st.data())
def test_what_a_sampler_gives_is_a_distribution_of_what_it_may_keep(data):
    draw = data.draw
    vocab = draw(whole(2, 9))
    logits = rows_of(draw(seeds), vocab, draw(KINDS), 1)[0]
    prefix = some_tokens(draw, vocab, 0, 5)
    sampler = a_sampler(draw, vocab)
    p = sampler(logits, prefix)
    assert p.shape == (vocab,)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    for processor in sampler.processors:
        logits = processor(logits, prefix)
    assert not p[logits == -np.inf].any()
    if sampler.temperature == 0:
        assert p.tolist() == np.eye(vocab)[logits.argmax()].tolist()
        return
    unfiltered = sd.Sampler(sampler.temperature)(logits)
    kept = p > 0
    if sampler.top_k is not None:
        assert kept.sum() <= sampler.top_k
    # No dropped token was likelier than a kept one; of equals the lowest ids stay.
    if not kept.all():
        assert unfiltered[~kept].max() <= unfiltered[kept].min()
        level = unfiltered[kept].min()
        equals = kept[unfiltered == level]
        if level > 0:
            assert (np.diff(equals.astype(int)) <= 0).all()
    # Those that are kept keep their proportions.
    np.testing.assert_allclose(
        p[kept], unfiltered[kept] / unfiltered[kept].sum(), rtol=1e-9
    )


@examples(120)
@given(seeds, whole(1, 9), KINDS, number(0.1, 4.0), whole(1, 10), number(0.02, 1.0))
def test_filters_keep_as_many_as_they_say(seed, vocab, kind, temperature, k, share):
    logits = rows_of(seed, vocab, kind, 1)[0] if vocab > 1 else np.zeros(1)
    p = sd.Sampler(temperature)(logits)
    best = sd.Sampler(temperature, top_k=k)(logits)
    assert np.count_nonzero(best) == min(k, np.count_nonzero(p))
    nucleus = np.flatnonzero(sd.Sampler(temperature, top_p=share)(logits))
    # Of equals the lowest ids.
    order = np.argsort(-p, kind="stable")
    for kept in (np.flatnonzero(best), nucleus):
        assert set(kept) == set(order[: len(kept)])
    inside = p[nucleus].sum()
    # Enough, and without its least likely token too few.
    assert inside >= share - 1e-9
    assert len(nucleus) == 1 or inside - p[nucleus].min() < share + 1e-9
    both = np.flatnonzero(sd.Sampler(temperature, k, share)(logits))
    assert set(both) <= set(np.flatnonzero(best))
    # A wider filter keeps what a narrower one keeps.
    wider = np.flatnonzero(sd.Sampler(temperature, top_p=(1 + share) / 2)(logits))
    assert set(nucleus) <= set(wider)
    assert set(np.flatnonzero(best)) <= set(
        np.flatnonzero(sd.Sampler(temperature, top_k=k + 1)(logits))
    )


@examples(100)
@given(st.data())
def test_rows_at_once_are_rows_one_by_one(data):
    draw = data.draw
    vocab, n = draw(whole(2, 6)), draw(whole(0, 4))
    rows = rows_of(draw(seeds), vocab, draw(KINDS), n)
    prefix, drafted = some_tokens(draw, vocab, 0, 4), some_tokens(draw, vocab, 4, 5)
    sampler = a_sampler(draw, vocab)
    together = sampler(rows, prefix, drafted)
    assert together.shape == (n, vocab)
    before = rows.copy()
    for i in range(n):
        alone = sampler(rows[i], [*prefix, *drafted[:i]])
        np.testing.assert_array_equal(together[i], alone)
    np.testing.assert_array_equal(rows, before)  # the logits are not touched


@examples(100)
@given(seeds, whole(2, 8), KINDS, number(0.2, 3.0), number(-50.0, 50.0))
def test_only_differences_of_logits_matter(seed, vocab, kind, temperature, shift):
    logits = rows_of(seed, vocab, kind, 1)[0]
    sampler = sd.Sampler(temperature)
    p = sampler(logits)
    np.testing.assert_allclose(sampler(logits + shift), p, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(
        sd.Sampler(1.0)(logits / temperature), p, rtol=1e-9, atol=1e-15
    )
    order = np.random.default_rng(seed).permutation(vocab)
    np.testing.assert_allclose(sampler(logits[order]), p[order], rtol=1e-12)
    # Hotter is flatter: the best token has no more, the worst no less.
    hotter = sd.Sampler(temperature * 1.5)(logits)
    assert hotter.max() <= p.max() + 1e-12
    assert hotter[p > 0].min() >= p[p > 0].min() - 1e-12


@examples(60)
@given(seeds, whole(2, 8), number(0.2, 5.0), st.data())
def test_processors_do_what_they_say_and_change_nothing_else(
    seed, vocab, penalty, data
):
    logits = rows_of(seed, vocab, "gaps", 1)[0]
    prefix = some_tokens(data.draw, vocab, 0, 6)
    before = logits.copy()
    once = sd.RepetitionPenalty(penalty)(logits, prefix)
    back = sd.RepetitionPenalty(1 / penalty)(once, prefix)
    np.testing.assert_allclose(back, logits, rtol=1e-9)
    fresh = [token for token in range(vocab) if token not in prefix]
    np.testing.assert_array_equal(once[fresh], logits[fresh])
    if penalty >= 1:
        assert (once <= logits).all()
    bias = {token: float(token) - 2.5 for token in prefix}
    biased = sd.LogitBias(bias)(logits, prefix)
    expected = [logits[t] + bias.get(t, 0.0) for t in range(vocab)]
    np.testing.assert_array_equal(biased, expected)
    np.testing.assert_array_equal(logits, before)


# ---- chance


def distribution(seed, vocab, kind="gaps"):
    return sd.Sampler()(rows_of(seed, vocab, kind, 1)[0])


@examples(100)
@given(seeds, whole(2, 4), whole(1, 4), flips)
def test_all_branches_together_are_certain(seed, vocab, depth, coins):
    """And the number of paths is that of the possible outcomes."""
    rows = [distribution(seed + i, vocab) for i in range(depth)]
    paths = [0]

    def run(rng):
        paths[0] += 1
        new = tuple(rng.categorical(row) for row in rows)
        return new + ((rng.bernoulli(float(rows[0][1])),) if coins else ())

    law = sd.exact_distribution(run)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    possible = np.prod([np.count_nonzero(row) for row in rows])
    if coins:
        possible *= 1 + (rows[0][1] < 1)
    assert paths[0] == len(law) == possible
    for outcome, probability in law.items():
        expected = np.prod([row[t] for row, t in zip(rows, outcome, strict=False)])
        if coins:
            p = float(rows[0][1])
            expected *= p if outcome[-1] else 1 - p
        assert probability == pytest.approx(float(expected), rel=1e-9)


@examples(100)
@given(seeds, whole(2, 9), seeds)
def test_what_cannot_be_is_never_drawn(seed, vocab, chance):
    row = distribution(seed, vocab)
    rng = sd.SeededRandom(chance)
    drawn = [rng.categorical(row) for _ in range(20)]
    assert all(row[token] > 0 for token in drawn)
    again = sd.SeededRandom(chance)
    assert [again.categorical(row) for _ in range(20)] == drawn
    assert not any(rng.bernoulli(0.0) for _ in range(5))
    assert all(rng.bernoulli(1.0) for _ in range(5))


# ---- distances and closed forms


@examples(120)
@given(seeds, seeds, seeds, whole(2, 9))
def test_total_variation_is_a_distance(one, two, three, vocab):
    p, q, r = (distribution(seed, vocab) for seed in (one, two, three))
    tv = theory.total_variation
    assert tv(p, p) == 0
    assert 0 <= tv(p, q) <= 1 + 1e-12
    assert tv(p, q) == tv(q, p)
    assert tv(p, r) <= tv(p, q) + tv(q, r) + 1e-12
    overlap = float(np.minimum(p, q).sum())
    assert theory.acceptance(p, q) == pytest.approx(overlap, abs=1e-12)
    assert theory.acceptance_by_row(p[None], q[None])[0] == pytest.approx(overlap)
    # What is left of p has no token on which q already gave enough.
    left = sd.residual(p, q)
    assert left.sum() == pytest.approx(1.0, abs=1e-9)
    if tv(p, q) > 0:
        assert not left[p <= q].any()
        np.testing.assert_allclose(
            np.minimum(p, q) + tv(p, q) * left, p, rtol=0, atol=1e-12
        )


@examples(120)
@given(number(0.0, 1.0), number(0.0, 1.0), whole(0, 12), whole(0, 12))
def test_expected_tokens_grow_with_each_guess_and_each_chance(a, b, k, more):
    tokens = theory.expected_tokens
    low, high = sorted((a, b))
    assert 1 <= tokens(low, k) <= tokens(high, k) + 1e-12
    assert tokens(low, k) <= tokens(low, k + more) + 1e-12
    assert tokens(a, k) <= min(k + 1, 1 / (1 - a) if a < 1 else np.inf) + 1e-9
    # The sum by hand, and the same by places.
    assert tokens(a, k) == pytest.approx(1 + a * tokens(a, k - 1) if k else 1)
    assert theory.expected_tokens_by_position([a] * k) == pytest.approx(tokens(a, k))


rates = st.lists(number(0.0, 1.0), max_size=8)


@examples(100)
@given(rates, whole(0, 5), whole(0, 3), number(0.0, 1.0))
def test_expected_calls_fall_with_each_guess_and_each_chance(chances, k, more, better):
    calls = theory.expected_calls(chances, k)
    n = len(chances)
    assert -(-n // (k + 1)) - 1e-9 <= calls <= n + 1e-9
    assert theory.expected_calls(chances, 0) == pytest.approx(n)
    assert theory.expected_calls(chances, k + more) <= calls + 1e-9
    raised = [max(rate, better) for rate in chances]
    assert theory.expected_calls(raised, k) <= calls + 1e-9
    by_place = theory.expected_tokens_by_position(chances)
    assert by_place == pytest.approx(
        1 + sum(accumulate(chances, lambda a, b: a * b)) if chances else 1
    )
    assert 1 <= by_place <= n + 1
    assert theory.expected_tokens_by_position(raised) >= by_place - 1e-12


@examples(120)
@given(
    number(0.0, 1.0), whole(0, 8), number(0.0, 1.0), number(1.0, 6.0), number(0.0, 0.9)
)
def test_speedups_are_ordered_as_they_must_be(alpha, k, cost, last, less):
    curve = theory.cost_curve([1, 4, 9], [1.0, (1 + last) / 2, last])
    speed = theory.speedup(alpha, k, cost, curve)
    assert 0 < speed <= k + 1
    assert theory.speedup(alpha, 0, cost, curve) == pytest.approx(1.0)
    # A better or a cheaper draft is no slower; an oracle beats it.
    assert theory.speedup(alpha * less, k, cost, curve) <= speed + 1e-12
    assert theory.speedup(alpha, k, cost + less, curve) <= speed + 1e-12
    assert theory.oracle_speedup(alpha, k, cost, curve) >= speed - 1e-9
    assert theory.speedup(alpha, k, cost) >= speed - 1e-12  # where n tokens cost as 1
    best = theory.best_k(alpha, cost, curve, max_k=8)
    speeds = [theory.speedup(alpha, n, cost, curve) for n in range(9)]
    assert speeds.index(max(speeds)) == best
    by_place = theory.best_k_by_position([alpha] * 8, cost, curve)
    assert speeds[by_place] == pytest.approx(speeds[best])
    assert speeds[best] >= 1
    tokens = theory.expected_tokens(alpha, k)
    assert theory.speedup_from_tokens(tokens, k, cost, curve) == pytest.approx(speed)


@examples(80)
@given(st.lists(number(0.01, 9.0), min_size=1, max_size=6), st.data())
def test_a_cost_curve_lies_between_what_was_measured(times, data):
    ns = list(accumulate([1, *(data.draw(whole(1, 4)) for _ in times[1:])]))
    curve = theory.cost_curve(ns, times)
    assert curve(1) == 1.0
    for n, time in zip(ns, times, strict=True):
        assert curve(n) == pytest.approx(time / times[0])
    for a, b in pairwise(ns):
        middle = curve((a + b) / 2)
        low, high = sorted((curve(a), curve(b)))
        assert low - 1e-12 <= middle <= high + 1e-12


@examples(80)
@given(number(0.1, 5.0), number(0.0, 1.0), whole(0, 6), number(0.0, 3.0))
def test_break_even_rises_with_what_a_guess_takes(rate, cost, n, slope):
    least = break_even(rate, cost, lambda size: 1 + slope * (size - 1), n=n)
    assert least == pytest.approx(rate * (cost + slope), abs=1e-9)
    assert break_even(rate * 2, cost, n=n) == pytest.approx(2 * rate * cost)


@examples(100)
@given(
    st.lists(st.tuples(number(0.0, 1.0), flips), min_size=1, max_size=30),
    whole(1, 12),
    number(0.0, 1.0),
    number(0.0, 1.0),
)
def test_a_calibration_is_monotone_and_right_in_the_mean(judged, bins, one, two):
    confidences, accepted = zip(*judged, strict=True)
    table = Calibration.fit(confidences, accepted, bins=bins)
    assert len(table.chances) <= bins
    assert all(0 <= chance <= 1 for chance in table.chances)
    low, high = sorted((one, two))
    assert table.of(low) <= table.of(high)
    # Over the guesses it was made of, chances add up to those that were accepted.
    for fitted in (
        table,
        Calibration.fit(confidences, accepted, bins=bins, monotone=False),
    ):
        total = sum(map(fitted.of, confidences))
        assert total == pytest.approx(sum(accepted), abs=1e-9)


@examples(60)
@given(st.data())
def test_acceptance_along_a_text_is_that_of_each_place(data):
    draw = data.draw
    vocab = draw(whole(2, 5))
    target, draft = a_model(draw, vocab)(), a_model(draw, vocab)()
    sampler = a_sampler(draw, vocab)
    prompt = some_tokens(draw, vocab, 1, 4)
    seed = draw(whole(0, 999))
    text = sd.generate(
        target, prompt, max_new_tokens=draw(whole(0, 6)), sampler=sampler, seed=seed
    ).tokens
    along = acceptance_along(target, draft, prompt, text, sampler=sampler)
    assert len(along.overlap) == len(along.given_token) == len(text)
    for i, token in enumerate(text):
        read = [*prompt, *text[:i]]
        p = sampler(fresh_row(target, read), read)
        q = sampler(fresh_row(draft, read), read)
        assert along.overlap[i] == pytest.approx(theory.acceptance(p, q), abs=1e-9)
        assert along.given_token[i] == pytest.approx(min(1.0, q[token] / p[token]))


# ---- figures of runs


@examples(120)
@given(calls(trees=()), calls(trees=()), whole(0, 12))
def test_figures_of_runs_are_the_sums_of_their_parts(one, two, at):
    rounds = untimed([*one.generate().rounds, *two.generate().rounds])
    rounds = tuple(
        replace(r, draft_seconds=i * 0.25, target_seconds=i * 0.5)
        for i, r in enumerate(rounds)
    )
    at = min(at, len(rounds))
    whole_run, *parts = map(Metrics.from_rounds, (rounds, rounds[:at], rounds[at:]))
    for name in Metrics.__dataclass_fields__:
        assert getattr(whole_run, name) == sum(getattr(part, name) for part in parts)
    assert Metrics.from_rounds(rounds[::-1]) == whole_run
    places = Positions.from_rounds(iter(rounds))
    for name in ("drafted", "tested", "accepted"):
        counts = getattr(places, name)
        assert sum(counts) == getattr(whole_run, name)
        assert len(counts) == max((len(r.drafted) for r in rounds), default=0)
        assert list(counts) == sorted(counts, reverse=True)
    for drafted, tested, accepted in zip(
        places.drafted, places.tested, places.accepted, strict=True
    ):
        assert drafted >= tested >= accepted
    # A guess is tested only where the one before it was accepted.
    for before, after in zip(places.accepted, places.tested[1:], strict=False):
        assert after <= before


records = st.lists(
    st.builds(
        lambda prompt, seed, k, tested, share: {
            "draft": "d",
            "temperature": 1.0,
            "k": k,
            "seed": seed,
            "prompt": prompt,
            "tested": tested,
            "accepted": round(share * tested),
        },
        among("a", "b", "c"),
        whole(0, 2),
        among(1, 4),
        whole(0, 9),
        number(0.0, 1.0),
    ),
    min_size=1,
    max_size=12,
)


@examples(60)
@given(records, seeds)
def test_ratios_and_intervals_do_not_depend_on_the_order_of_records(rows, seed):
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    alpha = ratio(rows, "accepted", "tested")
    assert ratio(shuffled, "accepted", "tested") == alpha
    tested = sum(row["tested"] for row in rows)
    accepted = sum(row["accepted"] for row in rows)
    assert alpha == (accepted / tested if tested else None)
    groups = group_records(shuffled, ("k",))
    assert list(groups) == sorted(groups)
    assert sum(map(len, groups.values())) == len(rows)
    assert [row["k"] for row in summarise(rows, "accepted", "tested", by=("k",))] == [
        key for (key,) in groups
    ]
    texts = {(row["prompt"], row["seed"]) for row in rows}
    if alpha is not None and len(texts) > 1:
        interval = bootstrap_interval(rows, "accepted", "tested", resamples=50)
        assert interval.estimate == alpha
        by_text = [
            ratio(group, "accepted", "tested")
            for group in group_records(rows, ("prompt", "seed")).values()
        ]
        known = [each for each in by_text if each is not None]
        # Each draw is a mean of texts, weighted: between the least and the most.
        assert min(known) - 1e-9 <= interval.low <= interval.high <= max(known) + 1e-9
