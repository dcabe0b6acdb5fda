"""A target and a draft under a clock that stands still until they move it."""

import numpy as np

import specdec_lib as sd


class Clock:
    """Stands still until it is told that time has passed."""

    now = 0.0

    def __call__(self):
        return self.now


class SlowModel:
    """Says i + 1 after i; a call takes 1 s and a tenth for each token beyond one.

    The very first call takes ``first_call`` more, and every call ``slow_down``. Prompts
    are written to ``log``, if there is one.
    """

    vocab_size, bos_id, context_window = 50, None, None

    def __init__(self, clock, *, first_call=0.0, log=None):
        self.clock, self.log = clock, log
        self.first_call, self.slow_down, self.calls = first_call, 0.0, 0

    def start(self):
        return SlowState(self)


class SlowState:
    def __init__(self, model):
        self.model, self.length = model, 0

    def extend(self, tokens):
        model = self.model
        if self.length == 0 and model.log is not None:
            model.log.append(tuple(tokens))
        model.calls += 1
        model.clock.now += 1.0 + 0.1 * (len(tokens) - 1) + model.slow_down
        if model.calls == 1:
            model.clock.now += model.first_call
        self.length += len(tokens)
        return np.log(np.eye(50)[(np.array(tokens) + 1) % 50] + 1e-9)

    def rewind(self, length):
        self.length = length


class Guess:
    """Guesses i + 1 after i, and 0 in place of those in ``wrong``; 0.05 s each."""

    def __init__(self, clock, wrong=()):
        self.clock, self.wrong = clock, wrong

    def start(self, prompt):
        session = Guess(self.clock, self.wrong)
        session.last = prompt[-1]
        return session

    def propose(self, k, rng):
        self.clock.now += 0.05 * k
        tokens = [(self.last + 1 + i) % 50 for i in range(k)]
        return sd.Proposal(tuple(0 if t in self.wrong else t for t in tokens))

    def commit(self, tokens):
        self.last = tokens[-1]
