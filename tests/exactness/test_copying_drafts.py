"""Drafts that copy leave the target's distribution as it is, to 1e-12."""

import pytest
from toys import EXACT, TARGET, inexactness, merged, table_model, whole_loop

import specdec_lib as sd

PROMPT = (0, 1, 2, 0, 1)  # with something to copy
WAYS = [whole_loop, merged]


def with_history(**settings):
    history = sd.SuffixHistory()
    history.add((0, 1, 1, 2, 0, 0, 1, 1))
    history.add((2, 2, 0, 1))
    return sd.SuffixDraft(history, **settings)


DRAFTS = {
    "lookup": sd.PromptLookup(),
    "lookup, earliest": sd.PromptLookup(earliest=True),
    "lookup, long matches": sd.PromptLookup(4, 2, reach=1),
    "suffixes": sd.SuffixDraft(),
    "suffixes, every guess": sd.SuffixDraft(threshold=0),
    "suffixes, short memory": sd.SuffixDraft(threshold=0, max_tokens=4, max_match=2),
    "suffixes, with history": with_history(threshold=0.05),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("temperature", (0.0, 0.6, 1.0))
@pytest.mark.parametrize("k", (1, 2, 4))
@pytest.mark.parametrize("name", DRAFTS)
def test_exact(name, k, temperature, way):
    options = {"prompt": PROMPT, "sampler": sd.Sampler(temperature), "way": way}
    assert inexactness(TARGET, DRAFTS[name], k=k, tokens=5, **options) < EXACT


@pytest.mark.parametrize("name", DRAFTS)
def test_exact_with_the_block_rule(name):
    options = {"prompt": PROMPT, "verify": sd.verify_block}
    assert inexactness(TARGET, DRAFTS[name], k=3, tokens=5, **options) < EXACT


@pytest.mark.parametrize("name", DRAFTS)
def test_exact_with_filters_stops_and_a_penalty(name):
    sampler = sd.Sampler(0.8, top_k=2, processors=(sd.RepetitionPenalty(1.5),))
    options = {"prompt": PROMPT, "stop_ids": (2,), "min_new_tokens": 2}
    found = inexactness(
        table_model(5, gaps=1), DRAFTS[name], k=3, tokens=5, sampler=sampler, **options
    )
    assert found < EXACT


@pytest.mark.parametrize("name", ["lookup", "suffixes, every guess"])
def test_exact_from_a_prompt_without_anything_to_copy(name):
    assert inexactness(TARGET, DRAFTS[name], k=3, tokens=6, prompt=(2,)) < EXACT


class Busy:
    """A suffix draft beside which other requests write into the history."""

    def start(self, prompt):
        self.history = sd.SuffixHistory(max_tokens=12)
        self.session = sd.SuffixDraft(self.history, threshold=0).start(prompt)
        self.propose = self.session.propose
        return self

    def commit(self, tokens):
        self.session.commit(tokens)
        self.history.add((*tokens, 1, *reversed(tokens)))


@pytest.mark.parametrize("k", (1, 3))
def test_exact_while_others_add_to_the_history(k):
    assert inexactness(TARGET, Busy(), k=k, tokens=6, prompt=PROMPT) < EXACT


def test_the_check_can_fail():
    """Equal where it must not be: a rule that always accepts copies the prompt."""

    def always(p, proposal, rng):
        n = len(proposal.tokens)
        return sd.Verdict(n, rng.categorical(p[n]))

    for name in DRAFTS:
        wrong = {"prompt": PROMPT, "verify": always}
        assert inexactness(TARGET, DRAFTS[name], k=2, tokens=3, **wrong) > 0.01


# ---- whole runs


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("k", (1, 3, 10))
@pytest.mark.parametrize("prompt", ((0,), PROMPT, (0, 1) * 7, (0, 1) * 8))
def test_to_the_end_of_the_context_window(name, k, prompt):
    target = sd.FunctionModel(TARGET.logits_after, 3, bos_id=0, context_window=16)
    for temperature in (0.0, 1.0):
        options = {"max_new_tokens": 40, "sampler": sd.Sampler(temperature), "seed": 1}
        found = sd.generate(target, prompt, draft=DRAFTS[name], k=k, **options)
        assert len(prompt) + len(found.tokens) == 16
        assert found.finish_reason == "context"
        if temperature == 0:
            assert found.tokens == sd.generate(target, prompt, **options).tokens


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("max_new_tokens", (0, 1, 2, 7))
def test_budgets_and_ratios_of_nothing(name, max_new_tokens):
    found = sd.generate(
        TARGET, (), draft=DRAFTS[name], k=6, max_new_tokens=max_new_tokens, seed=0
    )
    assert len(found.tokens) == max_new_tokens
    if max_new_tokens < 2:
        assert found.metrics.acceptance_rate is None


@pytest.mark.parametrize("name", DRAFTS)
def test_one_call_after_another_is_as_the_first(name):
    """Nothing is left in the draft by the call before."""

    def run(seed):
        return sd.generate(
            TARGET, PROMPT, draft=DRAFTS[name], k=4, max_new_tokens=60, seed=seed
        )

    first = run(1)
    run(2)
    again = run(1)
    assert [r.drafted for r in again.rounds] == [r.drafted for r in first.rounds]
    assert again.tokens == first.tokens


def test_a_loop_is_copied_whole():
    """A target that goes round in a circle: after one turn every guess is right."""
    cycle = sd.FunctionModel(
        lambda seq: [float(token == (seq[-1] + 1) % 5) for token in range(5)], 5
    )
    greedy = {"sampler": sd.Sampler(temperature=0), "max_new_tokens": 50}
    draft = sd.SuffixDraft()
    found = sd.generate(cycle, range(5), draft=draft, k=4, **greedy)
    assert found.tokens == tuple(i % 5 for i in range(50))
    assert found.metrics.tokens_per_call > 4
    found = sd.generate(cycle, range(5), draft=sd.PromptLookup(), k=4, **greedy)
    assert found.tokens == tuple(i % 5 for i in range(50))
    assert found.metrics.tokens_per_call > 4


def test_a_history_in_another_vocabulary_is_an_error():
    history = sd.SuffixHistory()
    history.add((0, 1, 9))
    draft = sd.SuffixDraft(history, threshold=0)
    with pytest.raises(ValueError, match=r"proposal.tokens must be inside 0 .. 2"):
        sd.generate(TARGET, (0, 1), draft=draft, max_new_tokens=9, seed=0)
