"""Lengths that are chosen on the way leave the output's distribution as it is."""

from dataclasses import replace

import numpy as np
import pytest
from test_planted_faults import broken_draft
from toys import (
    EXACT,
    GAPPED,
    OTHER,
    PROMPT,
    TARGET,
    inexactness,
    merged,
    table_model,
    whole_loop,
)

import specdec_lib as sd

PLAIN = sd.Sampler()
TABLE = sd.Calibration((0.5, 0.7), (0.35, 0.6, 0.9))
NEAR = sd.FunctionModel(
    lambda seq: TARGET.logits_after(seq) + 0.7 * OTHER.logits_after(seq), 3
)


def chances(sampler):
    return {
        "largest": sd.draft_length.largest_probability,
        "table": TABLE,
        "true": sd.TrueChance(TARGET, sampler),
        "by length": lambda row, sequence: 0.9 if len(sequence) % 2 else 0.4,
    }


def lengths(draft, **options):
    """The numbers of guesses that come in some runs."""
    return {
        len(each.drafted)
        for seed in range(30)
        for each in sd.stream(TARGET, PROMPT, draft=draft, seed=seed, **options)
    }


@pytest.mark.parametrize("chance", chances(PLAIN))
@pytest.mark.parametrize("draw_last", (True, False))
@pytest.mark.parametrize("least", (0.2, 0.5, 0.8, 1.0))
def test_a_draft_that_stops_by_its_confidence(chance, draw_last, least):
    def draft(sampler):
        return sd.ModelDraft(
            NEAR,
            sampler,
            least=least,
            chance=chances(sampler)[chance],
            draw_last=draw_last,
        )

    for k in (1, 2, 3):
        assert inexactness(TARGET, draft(PLAIN), k=k, tokens=4, way=merged) < EXACT
    cold = sd.Sampler(0.5)
    assert inexactness(TARGET, draft(cold), k=2, tokens=3, sampler=cold) < EXACT


@pytest.mark.parametrize("draw_last", (True, False))
def test_whole_loop_with_three_guesses_and_a_draft_that_does_stop(draw_last):
    draft = sd.ModelDraft(NEAR, least=0.4, chance=TABLE, draw_last=draw_last)
    wanted = {1, 2, 3} if draw_last else {0, 1, 2}
    assert wanted <= lengths(draft, k=3, max_new_tokens=9)
    assert inexactness(TARGET, draft, k=3, tokens=4) < EXACT


def test_cases_taken_at_random():
    g = np.random.default_rng(11)
    for number in range(150):
        target, other = (
            table_model(int(g.integers(10**6)), 3, gaps=int(g.integers(2)))
            for _ in range(2)
        )
        sampler, warm = (
            sd.Sampler(
                float(g.choice([0, 0.4, 1, 2])),
                top_k=(None, 2)[g.integers(2)],
                processors=((), (sd.RepetitionPenalty(2.0),))[g.integers(2)],
            )
            for _ in range(2)
        )
        draft = sd.ModelDraft(
            other,
            warm,
            least=float(g.random()),
            chance=(TABLE, sd.TrueChance(target, sampler, warm))[g.integers(2)],
            draw_last=bool(g.integers(2)),
        )
        error = inexactness(
            target,
            draft,
            k=int(g.integers(1, 4)),
            tokens=int(g.integers(2, 4)),
            sampler=sampler,
            stop_ids=((), (2,))[g.integers(2)],
            way=(whole_loop, merged)[g.integers(2)],
        )
        assert error < EXACT, f"case {number}"


POLICIES = {
    "recent": sd.RecentAcceptance(0.3, max_k=3, decay=0.5),
    "recent, low": sd.RecentAcceptance(0.3, max_k=2, decay=0.2, prior=0.1),
    "up and down": sd.UpAndDown(1, most=3),
    "down": sd.UpAndDown(3, most=3),
    "paying": sd.PayingLength(
        lambda n: 0.8 + 0.2 * n, max_k=3, prior=0.4, weight=0.5, decay=0.5, credit=0.5
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("temperature", (0.0, 0.6, 1.0))
def test_lengths_chosen_by_earlier_rounds(policy, temperature):
    """The whole loop, in which k depends on what was accepted before."""
    sampler = sd.Sampler(temperature)
    options = {"k": POLICIES[policy], "sampler": sampler}
    for model in (OTHER, NEAR):
        draft = sd.ModelDraft(model, sampler)
        assert inexactness(TARGET, draft, tokens=3, **options) < EXACT
        assert inexactness(TARGET, draft, tokens=4, way=merged, **options) < EXACT


@pytest.mark.parametrize("policy", POLICIES)
def test_four_tokens_of_the_whole_loop(policy):
    draft = sd.ModelDraft(NEAR, sd.Sampler(top_k=2))
    error = inexactness(
        TARGET, draft, k=POLICIES[policy], tokens=4, sampler=sd.Sampler(top_k=2)
    )
    assert error < EXACT


@pytest.mark.parametrize("policy", POLICIES)
def test_these_lengths_do_change(policy):
    seen = lengths(sd.ModelDraft(NEAR), k=POLICIES[policy], max_new_tokens=30)
    assert len(seen) > 1


@pytest.mark.parametrize("temperature", (0.0, 0.7, 1.0))
@pytest.mark.parametrize(
    "draft", (sd.PromptLookup(2, 1), sd.SuffixDraft(threshold=0.1))
)
def test_a_length_that_pays_with_drafts_that_copy(draft, temperature):
    prompt = (0, 1, 2, 0, 1)
    k, sampler = POLICIES["paying"], sd.Sampler(temperature)
    seen = {
        len(each.drafted)
        for seed in range(20)
        for each in sd.stream(
            TARGET, prompt, draft=draft, k=k, max_new_tokens=20, seed=seed
        )
    }
    assert {0, 1, 2} <= seen
    for tokens, target in ((5, TARGET), (4, GAPPED)):
        error = inexactness(
            target, draft, k=k, tokens=tokens, sampler=sampler, prompt=prompt
        )
        assert error < EXACT


def test_both_at_once_and_impossible_tokens():
    draft = sd.ModelDraft(NEAR, least=0.5, chance=TABLE)
    for policy in POLICIES.values():
        assert inexactness(TARGET, draft, k=policy, tokens=3) < EXACT
        assert inexactness(GAPPED, draft, k=policy, tokens=3) < EXACT


# Planted faults: a draft may stop by what it drew, and must then propose it.

DRAW = "token = rng.categorical(row)"
KEEP = "tokens.append(token)"


@pytest.mark.parametrize("draw_last", (True, False))
def test_a_drawn_token_is_never_thrown_away(draw_last):
    throw = "\n                if least and row[token] < least: break"
    fault = broken_draft((DRAW, DRAW + throw), model=NEAR)
    honest = broken_draft(model=NEAR)
    for least in (0.2, 0.5):
        settings = {"least": least, "draw_last": draw_last}
        thrown = inexactness(TARGET, replace(fault, **settings), k=2, tokens=3)
        kept = inexactness(TARGET, replace(honest, **settings), k=2, tokens=3)
        assert thrown > 0.02
        assert kept < EXACT
    assert inexactness(TARGET, fault, k=2, tokens=3) < EXACT  # least = 0: no stop


def test_stopping_after_a_token_for_what_it_is_is_no_fault():
    after = KEEP + "\n            all_accepted *= float(row[token])"
    draft = replace(broken_draft((KEEP, after), model=NEAR), least=0.3)
    assert len(lengths(draft, k=3, max_new_tokens=9)) > 1
    assert inexactness(TARGET, draft, k=3, tokens=4, way=merged) < EXACT
    assert inexactness(TARGET, draft, k=2, tokens=3) < EXACT


def test_a_row_that_was_only_looked_at_must_not_be_reported():
    """Its distribution beside one token less: seen as a broken proposal."""
    early = "row = self._sampler(logits, prefix)"
    fault = broken_draft(
        (early, early + "\n            rows.append(row)"),
        ("rows.append(row)\n            tokens", "tokens"),
        model=NEAR,
    )
    draft = replace(fault, least=0.6, draw_last=False)
    with pytest.raises(ValueError):
        inexactness(TARGET, draft, k=2, tokens=3)
