"""The loop's exact output distribution equals the target's, to 1e-12."""

import itertools

import numpy as np
import pytest
from toys import (
    DRAFTS,
    EXACT,
    GAPPED,
    OTHER,
    PROMPT,
    TARGET,
    TEMPERATURES,
    Growing,
    PointMass,
    inexactness,
    merged,
    outside_of,
    pair,
    plain,
    samplers,
    table_model,
    total_variation,
    whole_loop,
)

import specdec_lib as sd


def test_the_oracle_itself_by_hand():
    half = sd.FunctionModel(lambda seq: np.log([0.75, 0.25]), 2)
    by_hand = {(0, 0): 0.5625, (0, 1): 0.1875, (1, 0): 0.1875, (1, 1): 0.0625}
    by_recursion = plain(half, 2, sampler=sd.Sampler(), prompt=(0,))
    assert by_recursion.keys() == by_hand.keys()
    assert total_variation(by_recursion, by_hand) < 1e-15
    assert total_variation({(0,): 1.0}, {(0,): 0.75, (1,): 0.25}) == 0.25


def test_the_toys_depend_on_context():
    rows = [TARGET.logits_after(seq) for seq in ((0, 1), (1, 1), (0, 2), (0, 0, 1))]
    for a, b in itertools.combinations(rows, 2):
        assert np.abs(a - b).max() > 0.1


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("k", (1, 2))
def test_whole_loop(draft, temperature, k):
    """Three tokens: at k = 1 up to three rounds, at k = 2 up to three."""
    for sampler in samplers(temperature):
        target, guesser = pair(draft, sampler)
        error = inexactness(target, guesser, k=k, tokens=3, sampler=sampler)
        assert error < EXACT, sampler


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("k", (1, 2, 3))
def test_merged_rounds(draft, temperature, k):
    """Four tokens, so that even k = 3 has room for all its guesses and a bonus."""
    for sampler in samplers(temperature):
        target, guesser = pair(draft, sampler)
        error = inexactness(target, guesser, k=k, tokens=4, sampler=sampler, way=merged)
        assert error < EXACT, sampler


@pytest.mark.parametrize("draft", DRAFTS)
def test_whole_loop_with_three_guesses(draft):
    target, guesser = pair(draft, sd.Sampler())
    assert inexactness(target, guesser, k=3, tokens=4) < EXACT


def test_both_ways_of_enumerating_agree():
    arguments = {"k": 2, "tokens": 3, "sampler": sd.Sampler(1.3)}
    draft = sd.ModelDraft(OTHER)
    a = whole_loop(TARGET, draft, **arguments)
    b = merged(TARGET, draft, **arguments)
    assert total_variation(a, b) < EXACT


def test_cases_taken_at_random():
    """Everything at once, in combinations that nobody thought of."""
    g = np.random.default_rng(7)

    def some_sampler():
        return sd.Sampler(
            float(g.choice([0, 0.3, 1, 2.5])),
            top_k=(None, 1, 2)[g.integers(3)],
            top_p=(None, 0.3, 0.9, 1.0)[g.integers(4)],
            processors=((), (sd.RepetitionPenalty(2.0),), (sd.LogitBias({0: -2.0}),))[
                g.integers(3)
            ],
        )

    for number in range(500):
        vocab_size = int(g.integers(2, 4))
        target, other = (
            table_model(
                int(g.integers(10**6)),
                vocab_size,
                scale=float(g.choice([0.1, 1.5, 5.0])),
                gaps=int(g.integers(2)),
            )
            for _ in range(2)
        )
        error = inexactness(
            target,
            sd.ModelDraft(other, some_sampler()),
            k=int(g.integers(4)),
            tokens=int(g.integers(1, 4)),
            sampler=some_sampler(),
            stop_ids=((), (vocab_size - 1,))[g.integers(2)],
            way=(whole_loop, merged)[g.integers(2)],
        )
        assert error < EXACT, f"case {number}"


def test_greedy_output_is_one_text():
    sampler = sd.Sampler(temperature=0)
    for draft in DRAFTS:
        target, guesser = pair(draft, sampler)
        assert len(whole_loop(target, guesser, k=2, tokens=4, sampler=sampler)) == 1


@pytest.mark.parametrize("min_new_tokens", (0, 1, 2))
@pytest.mark.parametrize(
    "draft, stop_ids",
    # A target with gaps may have nothing left where two of three ids are forbidden.
    [*((draft, (0, 2)) for draft in DRAFTS[:-1]), *((draft, (2,)) for draft in DRAFTS)],
)
def test_stop_ids(draft, min_new_tokens, stop_ids):
    sampler = sd.Sampler(1.2)
    target, guesser = pair(draft, sampler)
    error = inexactness(
        target,
        guesser,
        k=2,
        tokens=3,
        sampler=sampler,
        stop_ids=stop_ids,
        min_new_tokens=min_new_tokens,
    )
    assert error < EXACT


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("k", (1, 2, 3))
def test_processors_on_the_target_alone(draft, k):
    """A penalty sees each guess before it; a bias holds at every position."""
    penalty, bias = sd.RepetitionPenalty(1.8), sd.LogitBias({0: -1.0, 2: 0.7})
    for processors in ((penalty,), (bias,), (penalty, bias)):
        sampler = sd.Sampler(0.9, processors=processors)
        target, guesser = pair(draft, sampler)
        error = inexactness(target, guesser, k=k, tokens=4, sampler=sampler, way=merged)
        assert error < EXACT, processors
    error = inexactness(target, guesser, k=k, tokens=3, sampler=sampler)
    assert error < EXACT


def test_processors_on_the_draft_too():
    sampler = sd.Sampler(processors=(sd.RepetitionPenalty(1.8),))
    draft = sd.ModelDraft(OTHER, sampler)
    assert inexactness(TARGET, draft, k=2, tokens=3, sampler=sampler) < EXACT
    assert inexactness(TARGET, draft, k=2, tokens=3) < EXACT


def test_a_forbidden_token_never_comes():
    sampler = sd.Sampler(processors=(sd.LogitBias({1: -np.inf}),))
    texts = whole_loop(TARGET, sd.ModelDraft(OTHER), k=2, tokens=3, sampler=sampler)
    assert not any(1 in text for text in texts)
    assert len(texts) == 8  # every text of the two other tokens


def test_an_output_without_choice_from_an_honest_wider_draft():
    """p filtered to one token, q unfiltered: exact, only slower."""
    sampler = sd.Sampler(top_k=1)
    texts = whole_loop(TARGET, sd.ModelDraft(OTHER), k=2, tokens=3, sampler=sampler)
    assert list(texts.values()) == [pytest.approx(1.0, abs=EXACT)]


def test_targets_with_impossible_tokens():
    for draft in (sd.ModelDraft(OTHER), PointMass(), sd.ModelDraft(GAPPED)):
        assert inexactness(GAPPED, draft, k=2, tokens=3) < EXACT
    gapped_draft = sd.ModelDraft(table_model(9, gaps=2))
    assert inexactness(TARGET, gapped_draft, k=2, tokens=3) < EXACT


def test_a_disjoint_draft_is_never_accepted():
    draft = sd.ModelDraft(outside_of(GAPPED, sd.Sampler()))
    accepted = sd.exact_distribution(
        lambda rng: (
            sd.generate(
                GAPPED, PROMPT, draft=draft, k=2, max_new_tokens=3, rng=rng
            ).metrics.accepted
        )
    )
    assert accepted == {0: pytest.approx(1.0)}


def test_the_context_window_changes_nothing():
    """The target's window ends the text; the draft's is even shorter."""
    target = sd.FunctionModel(TARGET.logits_after, 3, context_window=5)
    draft = sd.ModelDraft(sd.FunctionModel(OTHER.logits_after, 3, context_window=3))
    real = whole_loop(target, draft, k=2, tokens=9, sampler=sd.Sampler())
    assert total_variation(real, plain(TARGET, 3, sampler=sd.Sampler())) < EXACT


def test_a_length_that_is_chosen_each_round():
    error = inexactness(TARGET, sd.ModelDraft(OTHER), k=Growing(), tokens=4)
    assert error < EXACT


def test_a_length_chosen_by_the_draft_before_it_draws():
    class Sure:
        """Stops where its best token is unsure, before drawing from that row."""

        def start(self, prompt):
            self.sequence = list(prompt)
            return self

        def propose(self, k, rng):
            tokens, rows = [], []
            for _ in range(k):
                row = sd.Sampler()(OTHER.logits_after((*self.sequence, *tokens)))
                if row.max() < 0.6:
                    break
                tokens.append(rng.categorical(row))
                rows.append(row)
            return sd.Proposal(tuple(tokens), np.array(rows) if rows else None)

        def commit(self, tokens):
            self.sequence += tokens

    lengths = sd.exact_distribution(
        lambda rng: tuple(
            len(r.drafted)
            for r in sd.stream(
                TARGET, PROMPT, draft=Sure(), k=2, max_new_tokens=4, rng=rng
            )
        )
    )
    assert len({n for path in lengths for n in path}) > 1  # it does stop early
    assert inexactness(TARGET, Sure(), k=2, tokens=4) < EXACT
