"""The loop: budgets, stops, windows, state, seeds, and broken contracts."""

from dataclasses import dataclass

import numpy as np
import pytest

import specdec_lib as sd

GREEDY = sd.Sampler(temperature=0)


def cycle(vocab_size=5, **options):
    """After i comes (i + 1) mod V, for certain enough."""
    rows = np.log(np.eye(vocab_size)[(np.arange(vocab_size) + 1) % vocab_size] + 1e-9)
    return sd.FunctionModel(lambda seq: rows[seq[-1]], vocab_size, **options)


def fixed(*text, vocab_size=12, **options):
    """Says ``text`` whatever the prompt was, one token for each position."""
    text = [*text, *[0] * 50]
    return sd.FunctionModel(
        lambda seq: 20.0 * np.eye(vocab_size)[text[len(seq) - 1]], vocab_size, **options
    )


def random_table(seed, vocab_size=5, **options):
    table = np.random.default_rng(seed).normal(size=(vocab_size,) * 3) * 1.5
    return sd.FunctionModel(
        lambda seq: table[seq[-2] if len(seq) > 1 else 0, seq[-1]],
        vocab_size,
        **options,
    )


TARGET, OTHER = random_table(1), random_table(2)


@dataclass
class Scripted:
    """Proposes the next tokens of a fixed text, as many as it is asked for."""

    text: tuple
    probabilities: object = None

    def start(self, prompt):
        self.begin = len(prompt)
        self.committed = list(prompt)
        self.asked = []
        return self

    def propose(self, k, rng):
        self.asked.append(k)
        at = len(self.committed) - self.begin
        return sd.Proposal(tuple(self.text[at : at + k]), self.probabilities)

    def commit(self, tokens):
        self.committed += tokens


# What comes out of a round.


def test_rows_and_guesses_are_aligned():
    """A cycle shows any shift by one: three accepted guesses and a bonus."""
    generation = sd.generate(
        cycle(), [0], draft=sd.ModelDraft(cycle()), k=3, max_new_tokens=4, seed=0
    )
    assert generation.tokens == (1, 2, 3, 4)
    assert [r.accepted for r in generation.rounds] == [3]
    assert generation.rounds[0].drafted == (1, 2, 3)


@pytest.mark.parametrize("sampler", (GREEDY, sd.Sampler(), sd.Sampler(1.7)))
@pytest.mark.parametrize("k", (1, 4, 7))
def test_a_draft_equal_to_the_target_gives_k_plus_one_tokens_a_call(k, sampler):
    generation = sd.generate(
        TARGET,
        [0, 1],
        draft=sd.ModelDraft(TARGET, sampler),
        k=k,
        max_new_tokens=3 * (k + 1),
        sampler=sampler,
        seed=1,
    )
    assert [r.accepted for r in generation.rounds] == [k] * 3
    assert generation.metrics.tokens_per_call == k + 1
    assert generation.metrics.acceptance_rate == 1


def test_a_draft_that_is_always_wrong_gives_one_token_a_call():
    text = sd.generate(TARGET, [0], max_new_tokens=9, sampler=GREEDY).tokens
    wrong = tuple((token + 1) % 5 for token in text)
    generation = sd.generate(
        TARGET, [0], draft=Scripted(wrong), k=4, max_new_tokens=9, sampler=GREEDY
    )
    assert generation.tokens == text
    assert [len(r.emitted) for r in generation.rounds] == [1] * 9
    assert generation.metrics.acceptance_rate == 0


def test_a_first_guess_is_never_taken_unverified():
    generation = sd.generate(
        fixed(2, 2, 2), [1], draft=Scripted((1, 1)), k=2, max_new_tokens=1
    )
    assert generation.tokens == (2,)
    generation = sd.generate(
        fixed(2, 2, 2), [1], draft=Scripted((1, 1, 1)), k=1, max_new_tokens=2
    )
    assert generation.tokens == (2, 2)


@pytest.mark.parametrize("k", range(9))
@pytest.mark.parametrize("seed", (2, 3))
def test_greedy_output_is_the_greedy_output_of_the_target(k, seed):
    plain = sd.generate(TARGET, [3], max_new_tokens=40, sampler=GREEDY)
    for draft_sampler in (GREEDY, sd.Sampler(), sd.Sampler(0.3, top_k=2)):
        draft = sd.ModelDraft(random_table(seed), draft_sampler)
        fast = sd.generate(
            TARGET,
            [3],
            draft=draft,
            k=k,
            max_new_tokens=40,
            sampler=GREEDY,
            seed=seed,
        )
        assert fast.tokens == plain.tokens


def test_greedy_ties_go_to_the_lowest_id_with_and_without_a_draft():
    tied = sd.FunctionModel(lambda seq: [1.0, 2.0, 2.0], 3)
    other = sd.FunctionModel(lambda seq: [1.0, 2.0, 2.0 + 1e-9], 3)
    for draft in (None, sd.ModelDraft(tied, GREEDY), sd.ModelDraft(other, GREEDY)):
        found = sd.generate(tied, [0], draft=draft, max_new_tokens=6, sampler=GREEDY)
        assert found.tokens == (1,) * 6


@pytest.mark.parametrize("k", range(1, 9))
def test_a_penalty_gives_the_same_text_at_every_k(k):
    """It must count each guess before it, not the committed text alone."""
    target, other = random_table(1, 20), random_table(2, 20)
    sampler = sd.Sampler(0, processors=(sd.RepetitionPenalty(3.0),))
    arguments = {"max_new_tokens": 30, "sampler": sampler}
    plain = sd.generate(target, [0], **arguments)
    unpenalised = sd.generate(target, [0], max_new_tokens=30, sampler=GREEDY)
    assert plain.tokens != unpenalised.tokens  # it matters here
    for draft in (
        sd.ModelDraft(target, sampler),
        sd.ModelDraft(target, GREEDY),
        sd.ModelDraft(other, sampler),
    ):
        fast = sd.generate(target, [0], draft=draft, k=k, **arguments)
        assert fast.tokens == plain.tokens


def test_a_forbidden_token_never_comes_at_any_position():
    sampler = sd.Sampler(processors=(sd.LogitBias({2: -100.0}),))
    for seed in range(20):
        generation = sd.generate(
            TARGET,
            [0],
            draft=sd.ModelDraft(TARGET),
            k=4,
            max_new_tokens=30,
            sampler=sampler,
            seed=seed,
        )
        assert 2 not in generation.tokens


# Budgets.


@pytest.mark.parametrize("k", (0, 1, 4, 10))
@pytest.mark.parametrize("max_new_tokens", (0, 1, 2, 4, 5, 10, 11))
@pytest.mark.parametrize("model", (TARGET, OTHER))
def test_never_more_than_asked_for(k, max_new_tokens, model):
    for seed in range(3):
        generation = sd.generate(
            TARGET,
            [0],
            draft=sd.ModelDraft(model),
            k=k,
            max_new_tokens=max_new_tokens,
            seed=seed,
        )
        assert len(generation.tokens) == max_new_tokens
        assert generation.finish_reason == "length"
        assert sum(len(r.emitted) for r in generation.rounds) == max_new_tokens


def test_guesses_that_cannot_be_used_are_not_asked_for():
    """Six tokens at k = 4, all accepted: 4 guesses, then none for the last token."""
    draft = Scripted((1, 2, 3, 4, 0, 1))
    generation = sd.generate(cycle(), [0], draft=draft, k=4, max_new_tokens=6, seed=0)
    assert [len(r.drafted) for r in generation.rounds] == [4, 0]
    assert draft.asked == [4]
    assert draft.committed == [0, 1, 2, 3, 4, 0, 1]


def test_a_draft_is_told_all_of_the_text():
    """The whole prompt, then all that was kept, whatever it had guessed itself."""
    draft = Scripted((3, 4, 4, 1, 4, 3, 3, 4, 0))
    found = sd.generate(cycle(), [3, 1, 2], draft=draft, k=3, max_new_tokens=9, seed=0)
    assert found.tokens == (3, 4, 0, 1, 2, 3, 4, 0, 1)
    assert [each.accepted for each in found.rounds] == [2, 1, 1, 0, 0]
    assert draft.begin == 3
    assert draft.committed == [3, 1, 2, *found.tokens]


def test_one_token_has_no_acceptance_rate():
    generation = sd.generate(
        TARGET, [0], draft=sd.ModelDraft(OTHER), max_new_tokens=1, seed=0
    )
    assert generation.metrics.acceptance_rate is None
    assert generation.metrics.draft_efficiency is None
    assert generation.metrics.tokens_per_call == 1


def test_no_token_at_all():
    generation = sd.generate(TARGET, [0], max_new_tokens=0)
    assert (generation.tokens, generation.rounds) == ((), ())
    assert generation.finish_reason == "length"
    assert generation.metrics.tokens_per_call is None


# Stop ids.


@pytest.mark.parametrize("k", (0, 1, 2, 3, 5))
def test_nothing_comes_after_a_stop_id(k):
    """It may be the guess in the middle, the last guess, the bonus or a correction."""
    model = fixed(7, 11, 8, 9)
    for draft in (
        sd.ModelDraft(model),
        Scripted((7, 11, 8, 9, 9, 9)),
        Scripted((7, 3, 8, 9, 9, 9)),
        Scripted((3, 3, 3, 3, 3, 3)),
    ):
        generation = sd.generate(
            model, [1], draft=draft, k=k, max_new_tokens=9, stop_ids=[11], seed=0
        )
        assert generation.tokens == (7, 11)
        assert generation.finish_reason == "stop"
        assert generation.rounds[-1].finish_reason == "stop"
        assert all(r.finish_reason is None for r in generation.rounds[:-1])


def test_guesses_after_a_stop_id_count_as_drafted_alone():
    generation = sd.generate(
        fixed(7, 11, 8, 9),
        [1],
        draft=Scripted((7, 11, 8, 9)),
        k=4,
        max_new_tokens=9,
        stop_ids=(11,),
    )
    (only,) = generation.rounds
    assert only.drafted == (7, 11, 8, 9)
    assert (only.tested, only.accepted, only.emitted) == (2, 2, (7, 11))


def test_a_stop_id_as_the_last_token_allowed_is_a_stop():
    generation = sd.generate(fixed(7, 11), [1], max_new_tokens=2, stop_ids=[11])
    assert generation.finish_reason == "stop"
    generation = sd.generate(fixed(7, 11), [1], max_new_tokens=1, stop_ids=[11])
    assert generation.finish_reason == "length"


def test_without_stop_ids_it_runs_to_the_budget():
    generation = sd.generate(
        cycle(), [0], draft=Scripted((1, 2, 3, 4, 0, 1)), max_new_tokens=6
    )
    assert generation.finish_reason == "length"


def test_a_stop_id_in_the_prompt_does_not_stop():
    assert sd.generate(cycle(), [4], max_new_tokens=2, stop_ids=[4]).tokens == (0, 1)


@pytest.mark.parametrize("k", (0, 1, 3, 5))
@pytest.mark.parametrize("min_new_tokens", (0, 1, 2, 4, 6))
def test_min_new_tokens(k, min_new_tokens):
    """A target that would always stop: it does so right after the minimum."""
    eager = sd.FunctionModel(lambda seq: [0.0, 1.0, 50.0], 3)
    for draft in (sd.ModelDraft(eager), Scripted((1,) * 9)):
        generation = sd.generate(
            eager,
            [0],
            draft=draft,
            k=k,
            max_new_tokens=7,
            min_new_tokens=min_new_tokens,
            stop_ids=[2],
            seed=0,
        )
        assert len(generation.tokens) == min_new_tokens + 1
        assert generation.tokens[-1] == 2
        assert 2 not in generation.tokens[:-1]


# Context windows and prompts.


@pytest.mark.parametrize("k", (0, 1, 2, 5))
def test_the_targets_window_ends_the_text(k):
    target = random_table(1, context_window=16)
    generation = sd.generate(
        target, [1] * 14, draft=sd.ModelDraft(TARGET), k=k, max_new_tokens=9, seed=0
    )
    assert len(generation.tokens) == 2
    assert generation.finish_reason == "context"


def test_a_prompt_that_fills_the_window():
    target = random_table(1, context_window=3)
    generation = sd.generate(target, [1] * 3, max_new_tokens=9)
    assert (generation.tokens, generation.finish_reason) == ((), "context")
    generation = sd.generate(target, [1] * 2, max_new_tokens=1, seed=0)
    assert generation.finish_reason == "length"
    with pytest.raises(
        ValueError, match="prompt must fit .* window of 3, got 4 tokens"
    ):
        sd.generate(target, [1] * 4, max_new_tokens=9)


@pytest.mark.parametrize("window", (1, 2, 3, 6))
def test_a_draft_with_a_shorter_window_than_the_target(window):
    draft = sd.ModelDraft(random_table(2, context_window=window))
    generation = sd.generate(
        TARGET, [0, 1], draft=draft, k=4, max_new_tokens=20, seed=0
    )
    assert len(generation.tokens) == 20
    drafted = [len(r.drafted) for r in generation.rounds]
    assert drafted[0] == max(0, min(4, window - 1))
    assert drafted[-1] == 0


@pytest.mark.parametrize("length", range(5))
def test_short_prompts(length):
    target = random_table(1, bos_id=0)
    prompt = [1, 2, 3, 4][:length]
    generation = sd.generate(
        target, prompt, draft=sd.ModelDraft(OTHER), max_new_tokens=5, seed=0
    )
    assert len(generation.tokens) == 5
    if not prompt:
        from_bos = sd.generate(
            target, [0], draft=sd.ModelDraft(OTHER), max_new_tokens=5, seed=0
        )
        assert generation.tokens == from_bos.tokens


def test_an_empty_prompt_without_bos():
    with pytest.raises(ValueError, match="prompt must not be empty"):
        sd.generate(TARGET, [], max_new_tokens=5)


# State.


class Watched:
    """A target that checks each of its answers against a fresh state."""

    bos_id = context_window = None
    vocab_size = 5

    def __init__(self):
        self.inner = TARGET.start()
        self.sequence = []
        self.calls = []

    def start(self):
        return self

    @property
    def length(self):
        return self.inner.length

    def extend(self, tokens):
        self.calls.append(len(tokens))
        self.sequence += tokens
        rows = self.inner.extend(tokens)
        fresh = TARGET.start().extend(self.sequence)[-len(tokens) :]
        assert np.abs(rows - fresh).max() < 1e-9
        return rows

    def rewind(self, length):
        self.inner.rewind(length)
        del self.sequence[length:]


@pytest.mark.parametrize("k", (0, 1, 3, 6))
def test_the_state_after_every_round(k):
    """It holds the committed text but its last token; one call a round, in which that
    token is read together with the guesses."""
    target = Watched()
    text = [0, 1, 2]
    rounds = sd.stream(
        target, text, draft=sd.ModelDraft(OTHER), k=k, max_new_tokens=40, seed=3
    )
    rejected = 0
    for number, r in enumerate(rounds):
        before = 3 if number == 0 else 1
        assert target.calls[number] == before + len(r.drafted)
        text += r.emitted
        assert target.length == len(text) - 1
        assert target.sequence == text[:-1]
        rejected += r.accepted < len(r.drafted)
    assert len(target.calls) == number + 1
    assert rejected or k == 0


def test_nothing_of_one_call_leaks_into_the_next():
    draft = sd.ModelDraft(OTHER)
    arguments = {"draft": draft, "max_new_tokens": 20, "seed": 5}
    first = sd.generate(TARGET, [0, 1], **arguments)
    sd.generate(TARGET, [4, 4], **arguments)
    assert sd.generate(TARGET, [0, 1], **arguments).tokens == first.tokens


def test_calls_may_be_interleaved():
    def streams():
        return [
            sd.stream(
                TARGET, [i], draft=sd.ModelDraft(OTHER), max_new_tokens=20, seed=i
            )
            for i in range(3)
        ]

    one_by_one = [[r.emitted for r in rounds] for rounds in streams()]
    together = [[] for _ in range(3)]
    waiting = dict(enumerate(streams()))
    while waiting:
        for i, rounds in list(waiting.items()):
            r = next(rounds, None)
            if r is None:
                del waiting[i]
            else:
                together[i].append(r.emitted)
    assert together == one_by_one


# Seeds.


def test_the_same_seed_gives_the_same_tokens():
    def tokens(seed):
        return sd.generate(
            TARGET, [0], draft=sd.ModelDraft(OTHER), max_new_tokens=30, seed=seed
        ).tokens

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)
    assert tokens(None) != tokens(None)


def test_a_seed_and_its_source_are_the_same():
    arguments = {"draft": sd.ModelDraft(OTHER), "max_new_tokens": 30}
    seeded = sd.generate(TARGET, [0], seed=4, **arguments)
    assert (
        seeded.tokens
        == sd.generate(TARGET, [0], rng=sd.SeededRandom(4), **arguments).tokens
    )


def test_no_guesses_are_plain_decoding_with_the_same_seed():
    plain = sd.generate(TARGET, [0], max_new_tokens=30, seed=4)
    none = sd.generate(
        TARGET, [0], draft=sd.ModelDraft(OTHER), k=0, max_new_tokens=30, seed=4
    )
    shy = sd.generate(TARGET, [0], draft=Scripted(()), max_new_tokens=30, seed=4)
    assert plain.tokens == none.tokens == shy.tokens


# Streams and records.


def test_generate_is_the_stream_put_together():
    arguments = {"draft": sd.ModelDraft(OTHER), "max_new_tokens": 15, "seed": 4}
    rounds = list(sd.stream(TARGET, [0], **arguments))
    generation = sd.generate(TARGET, [0], **arguments)
    assert generation.tokens == tuple(t for r in rounds for t in r.emitted)
    assert [r.emitted for r in generation.rounds] == [r.emitted for r in rounds]
    assert generation.metrics.emitted == 15
    assert [r.finish_reason for r in rounds] == [None] * (len(rounds) - 1) + ["length"]


def test_emitted_is_what_was_accepted_and_one_more():
    generation = sd.generate(
        TARGET, [0], draft=sd.ModelDraft(OTHER), k=3, max_new_tokens=60, seed=4
    )
    for r in generation.rounds:
        assert r.emitted[: r.accepted] == r.drafted[: r.accepted]
        assert len(r.emitted) == r.accepted + 1
        if r.accepted < len(r.drafted):
            assert r.emitted[-1] != r.drafted[r.accepted]
        assert all(type(token) is int for token in (*r.drafted, *r.emitted))


def test_a_stream_does_no_more_than_it_is_asked_for():
    target = Watched()
    rounds = sd.stream(target, [0], max_new_tokens=20, seed=0)
    assert target.calls == []
    next(rounds)
    assert target.calls == [1]


def test_the_seconds_of_draft_and_target(monkeypatch):
    """A clock that a read of the target moves by 10, one of the draft by 1."""
    clock = [0.0]
    monkeypatch.setattr("specdec_lib.decoding.perf_counter", lambda: clock[0])

    def slow(model, seconds):
        def logits(seq):
            clock[0] += seconds
            return model.logits_after(seq)

        return sd.FunctionModel(logits, 5)

    generation = sd.generate(
        slow(TARGET, 10.0),
        [0],
        draft=sd.ModelDraft(slow(OTHER, 1.0)),
        k=3,
        max_new_tokens=4,
        seed=0,
    )
    first = generation.rounds[0]
    assert first.draft_seconds == 3  # three guesses, each one read
    assert first.target_seconds == 40  # one token of the prompt and three guesses


# Lengths that are chosen each round.


class Lengths:
    def __init__(self, *lengths):
        self.lengths = list(lengths)
        self.seen = []

    def next_k(self):
        return self.lengths.pop(0) if self.lengths else 1

    def observe(self, round):
        self.seen.append(round)


def test_an_object_chooses_the_length():
    lengths = Lengths(2, 0, 3)
    generation = sd.generate(
        TARGET, [0], draft=sd.ModelDraft(TARGET), k=lengths, max_new_tokens=10, seed=0
    )
    assert [len(r.drafted) for r in generation.rounds] == [2, 0, 3, 1]
    # It worked on a copy: the object is as it was.
    assert lengths.lengths == [2, 0, 3]
    assert lengths.seen == []


def test_an_object_is_told_each_round():
    seen = []

    class Telling:
        def __deepcopy__(self, memo):
            return self

        def next_k(self):
            return 2

        def observe(self, round):
            seen.append(round)

    generation = sd.generate(
        TARGET, [0], draft=sd.ModelDraft(OTHER), k=Telling(), max_new_tokens=9, seed=0
    )
    assert tuple(seen) == generation.rounds


@pytest.mark.parametrize(
    "bad, error", [(-1, ValueError), (1.5, TypeError), (None, TypeError)]
)
def test_an_object_that_chooses_badly(bad, error):
    with pytest.raises(error, match=f"k must be .*got {bad}"):
        sd.generate(TARGET, [0], k=Lengths(bad), max_new_tokens=3)


# Bad arguments are refused at the call, before any work.


class NeverStarted:
    vocab_size, bos_id, context_window = 5, None, None

    def start(self):
        raise AssertionError("work was done before the arguments were checked")


BAD = [
    ({"prompt": [5]}, ValueError, r"prompt must be inside 0 .. 4, got 5"),
    ({"prompt": [-1]}, ValueError, r"prompt must be inside 0 .. 4, got -1"),
    ({"prompt": [0.5]}, TypeError, r"prompt must be integers, got \[0.5\]"),
    ({"prompt": "hello"}, TypeError, "prompt must be integers, got 'hello'"),
    ({"prompt": []}, ValueError, "prompt must not be empty"),
    ({"prompt": [[0]]}, ValueError, "prompt must be one-dimensional"),
    ({"max_new_tokens": -1}, ValueError, "max_new_tokens must be 0 or more, got -1"),
    ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens must be an integer, got 2.0"),
    ({"max_new_tokens": None}, TypeError, "max_new_tokens must be an integer"),
    ({"min_new_tokens": -1}, ValueError, "min_new_tokens must be 0 or more, got -1"),
    ({"min_new_tokens": 1.0}, TypeError, "min_new_tokens must be an integer, got 1.0"),
    ({"min_new_tokens": 9}, ValueError, "min_new_tokens must be at most .*= 8, got 9"),
    ({"k": -1}, ValueError, "k must be 0 or more, got -1"),
    ({"k": 2.5}, TypeError, "k must be an integer, got 2.5"),
    ({"k": True}, TypeError, "k must be an integer, got True"),
    ({"k": "4"}, TypeError, "k must be an integer, got '4'"),
    ({"draft": sd.ModelDraft(cycle(6))}, ValueError, "vocabulary of 5 tokens, got 6"),
    ({"draft": cycle()}, TypeError, "draft must be a draft, got a language model"),
    ({"draft": 3}, TypeError, r"draft must have start\(prompt\), got 3"),
    ({"sampler": None}, TypeError, "sampler must be a Sampler, got None"),
    ({"sampler": 0.7}, TypeError, "sampler must be a Sampler, got 0.7"),
    ({"verify": "tokens"}, TypeError, "verify must be callable, got 'tokens'"),
    ({"stop_ids": [5]}, ValueError, r"stop_ids must be inside 0 .. 4, got 5"),
    ({"stop_ids": [None]}, TypeError, r"stop_ids must be integers, got \[None\]"),
    ({"stop_ids": 2}, ValueError, "stop_ids must be one-dimensional"),
    ({"stop_ids": None}, TypeError, "stop_ids must be integers, got None"),
    ({"seed": -1}, ValueError, "seed must be 0 or more, got -1"),
    ({"seed": 0.5}, TypeError, "seed must be an integer or None, got 0.5"),
    ({"seed": 1, "rng": sd.SeededRandom(1)}, ValueError, "give seed or rng, not both"),
    (
        {"rng": np.random.default_rng(0)},
        TypeError,
        "rng must have bernoulli and categorical, got Generator",
    ),
]


@pytest.mark.parametrize("bad, error, message", BAD)
@pytest.mark.parametrize("function", (sd.generate, sd.stream))
def test_bad_arguments(function, bad, error, message):
    arguments = {"prompt": [0], "max_new_tokens": 8, **bad}
    with pytest.raises(error, match=message):
        function(NeverStarted(), **arguments)


@pytest.mark.parametrize("bad", (None, "model", sd.Sampler()))
def test_what_is_no_target(bad):
    with pytest.raises(TypeError, match="target must be a language model, got"):
        sd.generate(bad, [0], max_new_tokens=3)


def test_a_bos_id_outside_the_vocabulary():
    target = sd.FunctionModel(TARGET.logits_after, 5, bos_id=5)
    with pytest.raises(ValueError, match=r"target.bos_id must be inside 0 .. 4, got 5"):
        sd.generate(target, [], max_new_tokens=3)


def test_stop_ids_of_any_kind():
    for stop_ids in ((3,), [3], {3}, frozenset({3}), np.array([3]), range(3, 4)):
        generation = sd.generate(cycle(), [0], max_new_tokens=9, stop_ids=stop_ids)
        assert generation.tokens == (1, 2, 3)


def test_numpy_integers_are_integers():
    generation = sd.generate(
        TARGET,
        np.array([0, 1], np.int32),
        draft=sd.ModelDraft(OTHER),
        k=np.int64(2),
        max_new_tokens=np.int64(5),
        min_new_tokens=np.int8(1),
        seed=np.int64(1),
    )
    assert len(generation.tokens) == 5


# Drafts, targets and rules that break their contract.


@pytest.mark.parametrize(
    "draft, message",
    [
        (Scripted((0, 5)), r"proposal.tokens must be inside 0 .. 4, got 5"),
        (Scripted((0, -1)), r"proposal.tokens must be inside 0 .. 4, got -1"),
        (
            Scripted((0, 1), np.full((1, 5), 0.2)),
            r"proposal.probabilities must have shape \(2, 5\)",
        ),
        (
            Scripted((0,), np.array([[0.0, 0.25, 0.25, 0.25, 0.25]])),
            r"proposal.tokens\[0\] = 0 has probability 0",
        ),
        (
            Scripted((0,), np.full((1, 5), 0.3)),
            "proposal.probabilities must have rows that sum to 1",
        ),
    ],
)
def test_drafts_that_break_their_contract(draft, message):
    with pytest.raises(ValueError, match=message):
        sd.generate(TARGET, [0], draft=draft, k=2, max_new_tokens=5, seed=0)


@pytest.mark.parametrize("kind", (list, np.array, lambda t: tuple(map(np.int64, t))))
def test_guesses_as_lists_or_arrays_become_plain_integers(kind):
    class Loose(Scripted):
        def propose(self, k, rng):
            return sd.Proposal(kind(self.text[:k]))

    arguments = {"k": 2, "max_new_tokens": 3, "seed": 0}
    loose = sd.generate(cycle(), [0], draft=Loose((1, 2)), **arguments)
    assert loose.rounds[0].drafted == (1, 2)
    assert all(type(token) is int for token in loose.rounds[0].drafted)
    assert loose.tokens == (1, 2, 3)
    with pytest.raises(ValueError, match=r"proposal\.tokens must be inside 0 .. 4"):
        sd.generate(cycle(), [0], draft=Loose((1, 5)), **arguments)


def test_guesses_that_are_not_integers():
    draft = Scripted((1.0, 2.0))
    with pytest.raises(TypeError, match=r"proposal\.tokens must be integers"):
        sd.generate(cycle(), [0], draft=draft, k=2, max_new_tokens=3, seed=0)


def test_a_draft_that_proposes_more_than_it_was_asked_for():
    class Greedy(Scripted):
        def propose(self, k, rng):
            return sd.Proposal(tuple(self.text))

    with pytest.raises(ValueError, match="at most 2 tokens in a row, got 3"):
        sd.generate(TARGET, [0], draft=Greedy((1, 2, 3)), k=2, max_new_tokens=9)


@pytest.mark.parametrize(
    "rows", (lambda n: (n - 1, 5), lambda n: (n, 6), lambda n: (n,))
)
def test_a_target_that_returns_the_wrong_shape(rows):
    class Wrong(Watched):
        def extend(self, tokens):
            return np.zeros(rows(len(tokens)))

    with pytest.raises(
        ValueError, match=r"target must return logits of shape \(2, 5\)"
    ):
        sd.generate(Wrong(), [0, 1], max_new_tokens=3)


def test_a_target_that_returns_no_numbers():
    broken = sd.FunctionModel(lambda seq: [np.nan] * 3, 3)
    with pytest.raises(ValueError, match="logits must be finite or -inf"):
        sd.generate(broken, [0], max_new_tokens=3)


@pytest.mark.parametrize(
    "verdict, message",
    [
        (sd.Verdict(3, 0), "verify must accept 0 to 2 guesses, got 3"),
        (sd.Verdict(-1, 0), "verify must accept 0 to 2 guesses, got -1"),
        (sd.Verdict(1, 5), r"verify must give a next_token inside 0 .. 4, got 5"),
        (sd.Verdict(1, -1), r"verify must give a next_token inside 0 .. 4, got -1"),
    ],
)
def test_rules_that_break_their_contract(verdict, message):
    with pytest.raises(ValueError, match=message):
        sd.generate(
            TARGET,
            [0],
            draft=Scripted((1, 2)),
            k=2,
            max_new_tokens=5,
            verify=lambda p, proposal, rng: verdict,
        )


def test_defaults_alone():
    generation = sd.generate(TARGET, [0], max_new_tokens=3)
    assert len(generation.tokens) == 3
    generation = sd.generate(TARGET, [0], draft=sd.ModelDraft(OTHER), max_new_tokens=9)
    assert max(len(r.drafted) for r in generation.rounds) == 4
