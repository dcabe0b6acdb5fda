"""A language model as a draft."""

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.verification import lossy

TABLE = np.random.default_rng(3).normal(size=(4, 4, 4)) * 2


class Counted:
    """A model whose one state is kept, and whose reads are written down."""

    vocab_size = 4
    bos_id = None

    def __init__(self, context_window=None):
        self.context_window = context_window
        self.model = sd.FunctionModel(
            lambda seq: TABLE[seq[-2] if len(seq) > 1 else 0, seq[-1]],
            4,
            context_window=context_window,
        )
        self.read = []

    def start(self):
        self.state = self.model.start()
        return self

    @property
    def length(self):
        return self.state.length

    def extend(self, tokens):
        self.read.append(list(tokens))
        return self.state.extend(tokens)

    def rewind(self, length):
        self.state.rewind(length)


def honest(sequence):
    """The draft's distribution after ``sequence``, from scratch."""
    return sd.Sampler()(Counted().start().extend(sequence)[-1])


def test_proposals_report_the_rows_they_were_drawn_from():
    session = sd.ModelDraft(Counted()).start([1, 2])
    proposal = session.propose(3, sd.SeededRandom(0))
    assert len(proposal.tokens) == 3
    assert proposal.probabilities.shape == (3, 4)
    for i in range(3):
        row = honest([1, 2, *proposal.tokens[:i]])
        assert np.abs(proposal.probabilities[i] - row).max() < 1e-15


def test_tokens_follow_the_reported_rows():
    """Exactly: the joint distribution of two guesses is the product of their rows."""

    def run(rng):
        return sd.ModelDraft(Counted()).start([1, 2]).propose(2, rng).tokens

    exact = sd.exact_distribution(run)
    for (a, b), p in exact.items():
        assert p == pytest.approx(honest([1, 2])[a] * honest([1, 2, a])[b], abs=1e-14)


def test_filters_are_in_what_is_reported():
    sampler = sd.Sampler(0.5, top_k=2)
    proposal = (
        sd.ModelDraft(Counted(), sampler).start([1]).propose(2, sd.SeededRandom(0))
    )
    assert (np.count_nonzero(proposal.probabilities, axis=1) == 2).all()
    assert np.abs(proposal.probabilities.sum(axis=1) - 1).max() < 1e-12


def test_a_greedy_draft_is_deterministic_and_says_so():
    class NoRandomness:
        pass

    draft = sd.ModelDraft(Counted(), sd.Sampler(temperature=0))
    proposal = draft.start([1, 2]).propose(3, NoRandomness())
    assert proposal.probabilities is None
    sequence = [1, 2]
    for token in proposal.tokens:
        assert token == honest(sequence).argmax()
        sequence.append(token)


def test_processors_of_the_draft_see_the_whole_text():
    seen = []

    def watch(logits, prefix):
        seen.append(tuple(prefix))
        return logits

    draft = sd.ModelDraft(Counted(), sd.Sampler(processors=(watch,)))
    tokens = draft.start([1, 2]).propose(3, sd.SeededRandom(0)).tokens
    assert seen == [(1, 2), (1, 2, *tokens[:1]), (1, 2, *tokens[:2])]


@pytest.mark.parametrize("k", (0, 1, 2, 5))
def test_one_call_of_the_model_for_each_guess(k):
    model = Counted()
    session = sd.ModelDraft(model).start([1, 2, 3])
    proposal = session.propose(k, sd.SeededRandom(0))
    assert len(proposal.tokens) == k
    expected = [[1, 2, 3], *([token] for token in proposal.tokens)][:k]
    assert model.read == expected
    if k == 0:
        assert proposal.probabilities is None


@pytest.mark.parametrize("kept", range(4))
def test_after_a_commit_it_goes_on_from_what_was_kept(kept):
    """Whatever was kept, the next rows equal those of a draft that starts afresh."""
    model = Counted()
    session = sd.ModelDraft(model).start([1, 2])
    guessed = session.propose(3, sd.SeededRandom(0)).tokens
    other = (guessed[kept] + 1) % 4 if kept < 3 else 0
    committed = [*guessed[:kept], other]
    session.commit(committed)
    text = [1, 2, *committed]
    # Of what was read only the kept guesses stay; the last guess was never read.
    assert model.length == 2 + min(kept, 2)
    proposal = session.propose(2, sd.SeededRandom(1))
    assert model.read[-2] == text[2 + min(kept, 2) :]
    assert np.abs(proposal.probabilities[0] - honest(text)).max() < 1e-15
    next_text = [*text, proposal.tokens[0]]
    assert np.abs(proposal.probabilities[1] - honest(next_text)).max() < 1e-15


def test_a_correction_equal_to_the_rejected_guess():
    """A rule may reject a guess and then draw the very same token: all that was
    committed has been read, and the model must still give a row for the next."""
    session = sd.ModelDraft(Counted()).start([1, 2])
    guessed = session.propose(3, sd.SeededRandom(0)).tokens
    session.commit(guessed[:2])
    proposal = session.propose(1, sd.SeededRandom(1))
    row = honest([1, 2, *guessed[:2]])
    assert np.abs(proposal.probabilities[0] - row).max() < 1e-15


def test_committing_nothing_and_proposing_again():
    session = sd.ModelDraft(Counted()).start([1, 2])
    first = session.propose(2, sd.SeededRandom(0))
    session.commit(())
    second = session.propose(2, sd.SeededRandom(0))
    third = session.propose(2, sd.SeededRandom(0))
    assert first.tokens == second.tokens == third.tokens
    assert (first.probabilities == third.probabilities).all()


def test_commits_without_a_proposal():
    session = sd.ModelDraft(Counted()).start([1])
    session.commit([2])
    session.commit([3, 0])
    row = session.propose(1, sd.SeededRandom(0)).probabilities[0]
    assert np.abs(row - honest([1, 2, 3, 0])).max() < 1e-15


def test_sessions_share_nothing():
    draft = sd.ModelDraft(Counted().model)
    a = draft.start([1])
    a.propose(3, sd.SeededRandom(0))
    a.commit([3, 3, 3])
    fresh = draft.start([1, 2]).propose(3, sd.SeededRandom(5))
    again = sd.ModelDraft(Counted().model).start([1, 2]).propose(3, sd.SeededRandom(5))
    assert fresh.tokens == again.tokens


@pytest.mark.parametrize("prompt, guesses", [(2, 4), (4, 2), (5, 1), (6, 0), (7, 0)])
def test_fewer_guesses_where_its_window_ends(prompt, guesses):
    """The last guess need not be read: a window of 5 leaves 4 guesses after 2."""
    session = sd.ModelDraft(Counted(context_window=5)).start([1] * prompt)
    assert len(session.propose(9, sd.SeededRandom(0)).tokens) == guesses


def test_vocab_size_is_the_models():
    assert sd.ModelDraft(Counted()).vocab_size == 4


@pytest.mark.parametrize(
    "prompt, error, message",
    [
        ([], ValueError, "prompt must have at least one token"),
        ([4], ValueError, "prompt must be inside 0 .. 3, got 4"),
        ([0.5], TypeError, "prompt must be integers"),
    ],
)
def test_bad_prompts(prompt, error, message):
    with pytest.raises(error, match=message):
        sd.ModelDraft(Counted()).start(prompt)


def test_bad_commits():
    session = sd.ModelDraft(Counted()).start([1])
    with pytest.raises(ValueError, match=r"tokens must be inside 0 .. 3, got 9"):
        session.commit([9])


def test_the_soft_greedy_draft_breaks_the_contract_as_described():
    draft = lossy.SoftGreedyDraft(sd.ModelDraft(Counted()))
    session = draft.start([1, 2])
    proposal = session.propose(2, sd.SeededRandom(0))
    assert proposal.tokens[0] == honest([1, 2]).argmax()
    assert np.abs(proposal.probabilities[0] - honest([1, 2])).max() < 1e-15
    session.commit([3])
    again = session.propose(1, sd.SeededRandom(0))
    assert again.tokens[0] == honest([1, 2, 3]).argmax()
