"""States that can leave out logits nobody asks for: asked for exactly what is used."""

import numpy as np
import pytest

import specdec_lib as sd


def logits_after(sequence):
    return np.log([0.1, 0.2, 0.7])[np.roll(range(3), sum(sequence) + len(sequence))]


MODEL = sd.FunctionModel(logits_after, 3, bos_id=0)
PROMPT = (0, 1, 2, 1, 0, 1)


class Thrifty:
    """The same model; its state counts what it is asked for."""

    vocab_size, bos_id, context_window = 3, 0, None

    def __init__(self, wrong=0):
        self.asked, self.wrong = [], wrong

    def start(self):
        state, model = MODEL.start(), self

        class State:
            length = property(lambda self: state.length)
            rewind = staticmethod(state.rewind)

            def extend(self, tokens):
                model.asked.append((len(tokens), len(tokens)))
                return state.extend(tokens)

            def extend_last(self, tokens, rows):
                model.asked.append((len(tokens), rows))
                return state.extend(tokens)[len(tokens) - rows + model.wrong :]

        return State()


@pytest.mark.parametrize("k", (0, 1, 4))
@pytest.mark.parametrize("temperature", (0, 1.0))
def test_the_prompt_gives_no_rows(k, temperature):
    target, sampler = Thrifty(), sd.Sampler(temperature)
    options = dict(k=k, max_new_tokens=20, sampler=sampler, seed=3)
    draft = sd.ModelDraft(MODEL, sampler)
    done = sd.generate(target, PROMPT, draft=draft, **options)
    assert done.tokens == sd.generate(MODEL, PROMPT, draft=draft, **options).tokens
    rows = [rows for _, rows in target.asked]
    assert rows == [len(each.drafted) + 1 for each in done.rounds]
    assert target.asked[0][0] == len(PROMPT) + len(done.rounds[0].drafted)


def test_as_a_draft():
    thrifty = Thrifty()
    draft = sd.ModelDraft(thrifty, sd.Sampler(0)).start(PROMPT)
    plain = sd.ModelDraft(MODEL, sd.Sampler(0)).start(PROMPT)
    rng = sd.SeededRandom(0)
    assert draft.propose(3, rng).tokens == plain.propose(3, rng).tokens
    assert thrifty.asked == [(len(PROMPT), 1), (1, 1), (1, 1)]


def test_too_few_rows_are_an_error():
    with pytest.raises(ValueError, match=r"logits of shape \(1, 3\), got \(0, 3\)"):
        sd.generate(Thrifty(wrong=1), PROMPT, max_new_tokens=1)


class Copy:
    """Guesses a small tree."""

    def start(self, prompt):
        return self

    def propose(self, k, rng):
        return sd.Proposal((0, 1, 2), None, (-1, -1, 0)) if k > 1 else sd.Proposal(())

    def commit(self, tokens):
        pass


def test_a_tree_after_a_prompt():
    target = Thrifty()
    options = dict(k=3, max_new_tokens=12, sampler=sd.Sampler(0))
    options |= dict(draft=Copy(), verify=sd.verify_tree)
    done = sd.generate(target, PROMPT, **options)
    assert done.tokens == sd.generate(MODEL, PROMPT, **options).tokens
    assert target.asked[0] == (len(PROMPT) - 1, 0)  # the prompt, without its last token


def test_a_tree_draft_reads_a_prompt_without_rows():
    thrifty, greedy = Thrifty(), sd.Sampler(0)
    shape = sd.tree_shape((2, 1))
    draft = sd.TreeDraft(thrifty, greedy, shape).start(PROMPT)
    plain = sd.TreeDraft(MODEL, greedy, shape).start(PROMPT)
    rng = sd.SeededRandom(0)
    assert draft.propose(2, rng).tokens == plain.propose(2, rng).tokens
    assert thrifty.asked == [(len(PROMPT) - 1, 0), (1, 1), (1, 1), (1, 1)]
