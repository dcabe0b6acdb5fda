"""What a model answered before, kept to copy from: ``specdec models distill``.

A model repeats itself: turns of phrase, the way it begins a list, whole sentences. So
its own answers to other prompts can be copied from, by a
:class:`~specdec_lib.SuffixHistory` of them and by an n-gram model of their tokens.

What it brings is little. Measured on SmolLM2 with 24 prompts of both kinds, greedy, 160
tokens, each prompt's own answer left out: tokens for the time, by the rounds that came
and typical costs of a call, rise on open prompts from 1.07 to 1.09 in NumPy and from
1.11 to 1.17 by the compiled kernel; on grounded ones nothing changes (1.96, 2.37). That
is with the text itself asked first: where an automaton of both takes the longest match
of either, grounded prompts lose 2 to 3 %. Only a prompt that was itself answered gains
much, as its answer is copied: 2.7 to 4.1, by kind and by kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from ..decoding import DraftLength, generate
from ..draft_length import copies_that_pay
from ..drafts import Draft, FirstOf, Proposal, SuffixDraft, SuffixHistory
from ..files import AnyPath, read_archive, write_archive
from ..models import LanguageModel, check_tokens
from ..ngram import NGramModel
from ..randomness import RandomSource
from ..sampling import Sampler

FORMAT, VERSION = "specdec set of answers", 1
ORDER = 4  # of the n-gram model; 3 and 5 did no better
# A match in the earlier answers has to be so long to be copied from; with shorter ones
# the n-gram model, which has seen all that followed, guesses better.
MIN_MATCH = 6


@dataclass(frozen=True)
class Answers:
    """Answers of one model, as tokens.

    vocabulary
        what names the tokens that the ids stand for, see
        :func:`specdec_lib.text.vocabulary_name`.
    vocab_size
        ids are below it.
    how
        how they were made: most new tokens, temperature, seed.
    prompts
        of each answer, what names the prompt, see :func:`prompt_name`.
    texts
        the answers.
    """

    vocabulary: str
    vocab_size: int
    how: tuple[float, ...]
    prompts: tuple[str, ...] = ()
    texts: tuple[tuple[int, ...], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(map(len, self.texts))

    def with_answer(self, prompt: Sequence[int], answer: Sequence[int]) -> Answers:
        """These answers, and one more: ``answer``, in tokens, to ``prompt``."""
        return Answers(
            self.vocabulary,
            self.vocab_size,
            self.how,
            (*self.prompts, prompt_name(prompt)),
            (*self.texts, tuple(answer)),
        )

    def know(self, prompt: Sequence[int]) -> bool:
        """Whether this very prompt was answered."""
        return prompt_name(prompt) in self.prompts

    def history(self) -> SuffixHistory:
        """To copy from."""
        history = SuffixHistory()
        for text in self.texts:
            history.add(text)
        return history

    def ngram(self, order: int = ORDER) -> NGramModel:
        """An n-gram model of the answers, of this ``order``; ValueError without any."""
        texts = [text for text in self.texts if text]
        return NGramModel.fit(texts, order=order, vocab_size=self.vocab_size)

    def save(self, path: AnyPath) -> None:
        """Write all of it, whole or not at all."""
        write_archive(
            path,
            FORMAT,
            VERSION,
            vocabulary=np.array(self.vocabulary),
            vocab_size=np.array(self.vocab_size),
            how=np.array(self.how, float),
            prompts=np.array(self.prompts, dtype="U64"),
            lengths=np.array([len(text) for text in self.texts], np.int64),
            tokens=np.array([id for text in self.texts for id in text], np.int64),
        )

    @classmethod
    def load(cls, path: AnyPath) -> Answers:
        """What ``save`` wrote; ValueError for anything else."""
        content = read_archive(path, FORMAT, VERSION)
        try:
            size = int(content["vocab_size"])
            tokens = check_tokens(content["tokens"], size).tolist()
            lengths = check_tokens(content["lengths"], len(tokens) + 1, "lengths")
            ends = np.cumsum(lengths).tolist()
            prompts = tuple(content["prompts"].tolist())
            if len(ends) != len(prompts) or (ends[-1] if ends else 0) != len(tokens):
                raise ValueError("its lengths do not fit")
            starts = [0, *ends[:-1]]
            texts = tuple(
                tuple(tokens[start:end])
                for start, end in zip(starts, ends, strict=False)
            )
            how = tuple(content["how"].tolist())
            return cls(str(content["vocabulary"]), size, how, prompts, texts)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{path} holds broken answers: {error}") from error


def prompt_name(prompt: Sequence[int]) -> str:
    """A name of a prompt, which does not give it away."""
    return hashlib.sha256(np.array(prompt, "<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class NGramGuesses:
    """Guesses the best token of an n-gram model, as long as it is sure enough.

    model
        the n-gram model.
    threshold
        guesses go on as long as the product of their probabilities is at least this.

    Like ``ModelDraft(model, Sampler(temperature=0), least=threshold)`` without the row
    of all probabilities, which with a vocabulary of 50,000 takes longer than the rest.
    """

    model: NGramModel
    threshold: float

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    def start(self, prompt: Sequence[int]) -> NGramSession:
        return NGramSession(self, prompt)


class NGramSession:
    """One text; only its end matters."""

    def __init__(self, draft: NGramGuesses, prompt: Sequence[int]) -> None:
        self._draft = draft
        self._reach = draft.model.order - 1
        self._end: list[int] = []
        self.commit(prompt)

    def propose(self, k: int, rng: RandomSource | None = None) -> Proposal:
        model, chance = self._draft.model, 1.0
        tokens: list[int] = []
        while len(tokens) < k:
            context = self._last([*self._end, *tokens])
            token = model.greedy(context)
            chance *= exp(model.log_prob(token, context))
            if chance < self._draft.threshold:
                break
            tokens.append(token)
        return Proposal(tuple(tokens))

    def commit(self, tokens: Sequence[int]) -> None:
        self._end = self._last([*self._end, *map(int, tokens)])

    def _last(self, tokens: list[int]) -> list[int]:
        return tokens[max(0, len(tokens) - self._reach) :]


def copies(
    verify_cost: Callable[[int], float],
    answers: Answers | None = None,
    *,
    k: int | None = None,
    max_k: int = 15,
) -> tuple[Draft, int | DraftLength]:
    """A draft for a model with these costs, and its length.

    It copies from the text; where it finds nothing, from the ``answers``, where there
    are any; and where that finds nothing either, an n-gram model of them guesses.
    ``k`` guesses a round; None: as many as pay, see
    :func:`specdec_lib.draft_length.copies_that_pay`.
    """
    own: SuffixDraft
    length: int | DraftLength
    if k is None:
        own, length = copies_that_pay(verify_cost, max_k=max_k)
    else:
        own, length = SuffixDraft(), k
    if answers is None or not answers.tokens:
        return own, length
    least = own.threshold
    earlier = SuffixDraft(answers.history(), threshold=least, min_match=MIN_MATCH)
    return FirstOf([own, earlier, NGramGuesses(answers.ngram(), least)]), length


def distill(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    path: AnyPath,
    *,
    vocabulary: str,
    stop_ids: Sequence[int] = (),
    max_new_tokens: int = 160,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Callable[[str], None] = lambda what: None,
) -> Answers:
    """The model's answers to ``prompts``, in tokens, kept in the file ``path``.

    Each answer is in the file as soon as it is there, so that a run that was broken off
    goes on where it stopped, and other prompts can be added later. ``vocabulary`` is
    the :func:`specdec_lib.text.vocabulary_name` of the model's tokens. Raises
    ValueError where ``path`` holds answers of other tokens or made in another way, and
    for a prompt that leaves no room.
    """
    how = (float(max_new_tokens), float(temperature), float(seed))
    sampler = Sampler(temperature)
    answers = Answers(vocabulary, model.vocab_size, how)
    if Path(path).exists():
        answers = Answers.load(path)
        check_fits(answers, vocabulary, path)
        if answers.how != how:
            most, kept_temperature, kept_seed = answers.how
            raise ValueError(
                f"{path} holds answers of at most {most:.0f} tokens at temperature "
                f"{kept_temperature:g}, seed {kept_seed:.0f}; remove it, or name "
                "another file for others (-o)"
            )
    window = model.context_window
    for i, prompt in enumerate(prompts):
        if window is not None and len(prompt) >= window:
            raise ValueError(
                f"prompts must leave room in the context window of {window} tokens, "
                f"number {i + 1} has {len(prompt)}"
            )
    history = answers.history()
    for i, prompt in enumerate(prompts):
        if answers.know(prompt):
            continue
        progress(f"answer {i + 1} of {len(prompts)}, {answers.tokens} tokens so far")
        done = generate(
            model,
            prompt,
            draft=SuffixDraft(history, threshold=0.3),
            k=4,
            max_new_tokens=max_new_tokens,
            sampler=sampler,
            stop_ids=stop_ids,
            seed=seed,
        )
        answers = answers.with_answer(prompt, done.tokens)
        history.add(done.tokens)
        answers.save(path)
    return answers


def check_fits(answers: Answers, vocabulary: str, path: Any) -> None:
    """ValueError unless the answers are of the tokens that ``vocabulary`` names."""
    if answers.vocabulary != vocabulary:
        raise ValueError(
            f"{path} holds answers of a model with other tokens than this one"
        )
