"""Graders: right answers of any form pass; each usual fault is refused, and named."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from fractions import Fraction

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib import cli
from specdec_lib.exercises import TASKS, check, grade
from specdec_lib.exercises.file import grade_file
from specdec_lib.exercises.following import follow

# Right answers, in several forms


def by_library_source(p, q, guesses, rng):
    for i, x in enumerate(guesses):
        if not rng.bernoulli(min(1.0, p[i][x] / q[i][x])):
            return [*guesses[:i], rng.categorical(sd.residual(p[i], q[i]))]
    return [*guesses, rng.categorical(p[-1])]


def by_numpy(p, q, guesses, rng):
    for i, x in enumerate(guesses):
        if rng.random() >= p[i, x] / q[i, x]:
            left = np.maximum(p[i] - q[i], 0)
            return np.append(guesses[:i], rng.choice(3, p=left / left.sum()))
    return np.append(np.array(guesses, dtype=int), rng.choice(len(p[-1]), p=p[-1]))


def by_sums(p, q, guesses, rng):
    """All uniform numbers first; cumulative sums that are never normalised."""
    us = rng.random(len(guesses) + 1)
    ratios = [p[i][x] / q[i][x] for i, x in enumerate(guesses)]
    bad = np.flatnonzero(us[:-1] >= np.array(ratios))
    n = int(bad[0]) if len(bad) else len(guesses)
    left = np.clip(p[n] - q[n], 0, None) if len(bad) else p[n]
    edges = np.cumsum(left)
    u = (rng.random() if len(bad) else us[-1]) * edges[-1]
    return (*guesses[:n], np.int32(np.searchsorted(edges, u, side="right")))


def by_a_while(p, q, guesses, rng):
    out, i = [], 0
    while i < len(guesses):
        x, u = guesses[i], rng.uniform()
        if u * q[i][x] < p[i][x]:
            out.append(x)
            i += 1
        else:
            left = [max(a - b, 0) for a, b in zip(p[i], q[i], strict=True)]
            u, k = rng.uniform(0, sum(left)), 0
            while u >= left[k]:
                u, k = u - left[k], k + 1
            return out + [k]
    u, k = rng.random(), 0
    for share in p[i]:
        if u < share:
            break
        u, k = u - share, k + 1
    return out + [k]


def by_one_uniform_scaled(p, q, guesses, rng):
    """Right, and off the grid: what is left of a uniform number is used again."""
    u = rng.random()
    for i, x in enumerate(guesses):
        a = min(1.0, p[i][x] / q[i][x])
        if u >= a:
            left = np.maximum(p[i] - q[i], 0)
            u = (u - a) / (1 - a)
            return [*guesses[:i], _at(left / left.sum(), u)]
        u /= a
    return [*guesses, _at(p[-1], u)]


def _at(p, u):
    return min(int(np.searchsorted(np.cumsum(p), u, side="right")), len(p) - 1)


def by_the_block(p, q, guesses, rng):
    return sd.verify_block(p, sd.Proposal(tuple(guesses), q), rng)


def by_the_library(p, q, guesses, rng):
    return sd.verify_tokens(p, sd.Proposal(tuple(guesses), q), rng)


def residual_by_loop(p, q):
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    return tuple(x / sum(left) for x in left)


def two_words(rng):
    after = [[0, 3 / 4, 1 / 4], [2 / 3, 0, 1 / 3], [1, 0, 0]]
    names, at, said = ["tick", "tock", "ding"], 0, []
    for _ in range(2):
        at = rng.choice(3, p=after[at])
        said.append(names[at])
    return " ".join(said)


def propose(raw, k, rng):
    best = np.argsort(raw)[::-1][:k]
    row = np.zeros(len(raw))
    row[best] = raw[best] / raw[best].sum()
    return rng.choice(len(raw), p=row), row.tolist()


def two_guesses(p, q, rng):
    first, second = rng.choice(3, p=q), rng.categorical(q)
    if rng.random() < p[first] / q[first]:
        return first, True
    r = sd.residual(p, q)
    if rng.random() < r[second] / q[second]:
        return second, 1
    return rng.categorical(sd.residual(r, q)), False


def no_coin(rows, proposal, rng):
    for i, x in enumerate(proposal.tokens):
        keep = proposal.probabilities[i] <= rows[i]
        if not keep[x]:
            owed = rows[i] - proposal.probabilities[i] * keep
            return sd.Verdict(i, rng.categorical(owed / owed.sum()))
    return sd.Verdict(len(proposal.tokens), rng.categorical(rows[-1]))


def no_coin_in_lists(rows, proposal, rng):
    guesses = list(proposal.tokens)
    for i, x in enumerate(guesses):
        p, q = rows[i], proposal.probabilities[i]
        if q[x] > p[x]:
            owed = np.where(q <= p, p - q, p)
            return guesses[:i] + [rng.choice(3, p=owed / owed.sum())]
    return guesses + [rng.choice(3, p=rows[-1])]


def lenient(p, q, theta):
    out = np.minimum(q, p / theta)
    return list(out + (1 - out.sum()) * (sd.residual(p, q) if (p != q).any() else 0))


def cut(p, q, T, k):
    def filtered(row):
        if T == 0:
            return np.eye(len(row))[np.argmax(row)]
        kept = sorted(range(len(row)), key=lambda x: -row[x])[:k]
        w = np.array([row[x] ** (1 / T) if x in kept else 0 for x in range(len(row))])
        return w / w.sum()

    return np.minimum(filtered(p), filtered(q)).sum()


def cut_by_library(p, q, T, k):
    s = sd.Sampler(temperature=T, top_k=k)
    return sd.theory.acceptance(s(np.log(p)), s(np.log(q)))


def copy(sequence, k, rng):
    for i in range(len(sequence) - 2, -1, -1):
        if sequence[i] == sequence[-1]:
            return sequence[i + 1 : i + 1 + k]
    return []


def copy_by_index(sequence, k, rng):
    *head, last = sequence
    if last not in head:
        return ()
    place = len(head) - head[::-1].index(last)
    return np.array(sequence[place : place + k])


def lookup(text, max_match, k):
    return sd.PromptLookup(max_match=max_match).start(text).propose(k).tokens


def lookup_by_loop(text, max_match, k):
    for n in range(min(max_match, len(text) - 1), 0, -1):
        for i in reversed(range(len(text) - n)):
            if text[i : i + n] == text[len(text) - n :]:
                return text[i + n : i + n + k]
    return []


def emitted(guesses, choices):
    n = 0
    for g, c in zip(guesses, choices, strict=False):
        if g != c:
            break
        n += 1
    return choices[: n + 1]


def emitted_by_numpy(guesses, choices):
    agree = np.array(guesses, dtype=int) == np.array(choices[:-1], dtype=int)
    return choices[: int(np.cumprod(agree).sum()) + 1]


def orders():
    from itertools import product

    return [
        "".join(o)
        for o in product("ab", repeat=8)
        if o.count("a") == 4 and sum(i for i, x in enumerate(o) if x == "a") == 14
    ]


def point(p, x, rng):
    if rng.bernoulli(p[x]):
        return x
    return rng.categorical(sd.residual(p, np.eye(len(p))[x]))


def tokens_closed(alpha, k):
    return k + 1 if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


RIGHT = {
    "ex-01-two": [
        ({"tock tick": 0.5, "tock ding": 0.25, "ding tick": 0.25},),
        ({("tock", "tick"): "0.5", ("tock", "ding"): 0.25, ("ding", "tick"): 0.25},),
        ({("tock", "tick"): Fraction(1, 2), "tock ding": 0.25, "ding tick": 0.25},),
        (two_words,),
    ],
    "ex-01-bits": [
        (lambda p, characters: -np.log2(p).sum() / characters,),
        (lambda p, n: sum(math.log2(1 / x) for x in p) / n,),
        (lambda p, n: np.array([-np.log(np.prod(p)) / np.log(2) / n]),),
    ],
    "ex-02-clock": [(1 / 12,), (Fraction(1, 12),), (0.0833,), (np.float32(1 / 12),)],
    "ex-03-c": [(0.275,), (Fraction(11, 40),), ([0.275],)],
    "ex-04-copy": [(copy,), (copy_by_index,)],
    "ex-04-verdict": [(emitted,), (emitted_by_numpy,)],
    "ex-05-a": [
        (lambda u, p, q: u < p / q, sd.residual),
        (lambda u, p, q: u * q < p, residual_by_loop),
        (lambda u, p, q: int(u < min(1, p / q)), sd.residual),
        (lambda u, p, q: np.bool_(not u >= p / q), residual_by_loop),
        (lambda u, p, q: u >= 1 - p / q if p else False, residual_by_loop),
        (lambda u, p, q: p >= q or u < p / q, lambda p, q: list(sd.residual(p, q))),
    ],
    "ex-05-b": [(propose,)],
    "ex-05-e": [(two_guesses,)],
    "ex-05-f": [
        (by_library_source,),
        (by_numpy,),
        (by_sums,),
        (by_a_while,),
        (by_one_uniform_scaled,),
        (by_the_block,),
        (by_the_library,),
    ],
    "ex-06-yes": [(no_coin,), (no_coin_in_lists,)],
    "ex-06-lenience": [(lenient,)],
    "ex-07-a": [
        (lambda p, q: np.minimum(p, q).sum(),),
        (lambda p, q: 1 - abs(p - q).sum() / 2,),
        (lambda p, q: sum(b * min(1, a / b) for a, b in zip(p, q) if b),),  # noqa: B905
        (sd.theory.acceptance,),
    ],
    "ex-08-a": [
        (sd.theory.expected_tokens, sd.theory.speedup),
        (tokens_closed, lambda a, k, c: tokens_closed(a, k) / (1 + c * k)),
        (
            lambda a, k: np.polyval(np.ones(k + 1), a),
            lambda a, k, c: sum(a**i for i in range(k + 1)) / (k * c + 1),
        ),
    ],
    "ex-09-b": [(cut,), (cut_by_library,)],
    "ex-10-a": [(lookup,), (lookup_by_loop,)],
    "ex-10-b": [((0.75, 0.25),), (np.array([0.75, 0.25]),), (["0.75", 0.25],)],
    "ex-11-a": [((3 / 4, 7 / 8, 1),), ([Fraction(3, 4), Fraction(7, 8), 1],)],
    "ex-12-a": [((5, 1),), ([5.0, 1.0],)],
    "ex-14-a": [((1.4, 1.2, 1.08),), (np.array([7 / 5, 6 / 5, 27 / 25]),)],
    "ex-17-abba": [(orders(),), (set(orders()),), (" ".join(orders()),)],
    "ex-a-argmax": [
        (point,),
        (lambda p, x, rng: rng.categorical(p),),  # right, and no less is accepted
        (lambda p, x, rng: rng.choice(len(p), p=p),),
    ],
}


def cases(table):
    for label, answers in table.items():
        for i, answer in enumerate(answers):
            yield pytest.param(label, answer, id=f"{label}-{i}")


@pytest.mark.parametrize("label, answers", list(cases(RIGHT)))
def test_right_answers_of_any_form_pass(label, answers):
    mark = check(label, *answers)
    assert mark.passed, mark
    assert mark
    assert str(mark).startswith(f"{label}: right.")


def test_every_grader_has_right_and_wrong_answers_here():
    assert set(RIGHT) == set(WRONG) == set(TASKS)


# Wrong answers, and what must be said of them


def rule_with(*, accept=None, repair=None, row=0, bonus=-1, keep_on=False):
    def rule(p, q, guesses, rng):
        out = []
        for i, x in enumerate(guesses):
            a = accept(p[i][x], q[i][x]) if accept else p[i][x] / q[i][x]
            if rng.random() < min(1.0, a):
                out.append(x)
                continue
            left = repair(p[i], q[i]) if repair else np.maximum(p[i + row] - q[i], 0)
            if not keep_on:
                return [*out, rng.choice(3, p=left / left.sum())]
            out.append(rng.choice(3, p=left / left.sum()))
        return [*out, rng.choice(3, p=p[bonus])]

    return rule


def without_bonus(p, q, guesses, rng):
    return by_numpy(p, q, guesses, rng)[: max(1, len(guesses))]


def empty_handed(p, q, guesses, rng):
    text = list(by_numpy(p, q, guesses, rng))
    return text[:-1] if len(text) <= len(guesses) else text


def less_or_equal(p, q, guesses, rng):
    for i, x in enumerate(guesses):
        if not rng.random() <= p[i, x] / q[i, x]:
            return [*guesses[:i], rng.choice(p.shape[1], p=sd.residual(p[i], q[i]))]
    return [*guesses, rng.choice(p.shape[1], p=p[-1])]


def one_uniform(p, q, guesses, rng):
    u = rng.random()
    for i, x in enumerate(guesses):
        if u >= p[i, x] / q[i, x]:
            return [*guesses[:i], rng.choice(3, p=sd.residual(p[i], q[i]))]
    return [*guesses, rng.choice(3, p=p[-1])]


def for_two(p, q, guesses, rng):
    guesses = guesses[:2]
    return by_numpy(p[: len(guesses) + 1], q, guesses, rng)


def never_kept(p, q, guesses, rng):
    return [rng.choice(3, p=p[0])]


def swapped_everywhere(p, q, guesses, rng):
    p = [*p]
    for i, x in enumerate(guesses):
        if rng.random() >= (q[i][x] / p[i][x] if p[i][x] else 1):
            return [*guesses[:i], rng.choice(3, p=sd.residual(q[i], p[i]))]
    return [*guesses, rng.choice(3, p=p[-1])]


def endless(*arguments):
    while True:
        pass


def tries_for_ever(p, q, guesses, rng):
    while True:
        x = rng.choice(3, p=p[0])
        if x > 5:
            return [x]


def on_its_own(p, q, guesses, rng):
    return by_numpy(p, q, guesses, OWN)


OWN = np.random.default_rng(0)
COUNT = [0]


def with_memory(p, q, guesses, rng):
    COUNT[0] += 1
    return by_numpy(p, q, guesses, rng) if COUNT[0] % 2 else [rng.categorical(p[0])]


def writes_p(p, q, guesses, rng):
    p -= 0.1
    return [0]


def writes_guesses(p, q, guesses, rng):
    guesses.append(0)
    return guesses[:1]


def first_place(sequence, k, rng):
    i = sequence.index(sequence[-1])
    return sequence[i + 1 : i + 1 + k] if i + 1 < len(sequence) else []


def with_the_found(sequence, k, rng):
    found = copy(sequence, k, rng)
    return [sequence[-1], *found][:k] if found else []


def two_guesses_again(p, q, rng):
    for _ in range(2):
        x = rng.categorical(q)
        if rng.bernoulli(min(1, p[x] / q[x])):
            return x, True
    return rng.categorical(sd.residual(p, q)), False


def two_guesses_late(p, q, rng, last=lambda p, r, q: p):
    owed = p
    for _ in range(2):
        x = rng.categorical(q)
        if rng.bernoulli(min(1, owed[x] / q[x])):
            return x, True
        owed = sd.residual(p, q)
    return rng.categorical(last(p, owed, q)), False


def one_guess(p, q, rng):
    x = rng.categorical(q)
    if rng.bernoulli(min(1, p[x] / q[x])):
        return x, True
    return rng.categorical(sd.residual(p, q)), False


def no_coin_with(repair, keep=lambda p, q: q <= p):
    def rule(rows, proposal, rng):
        for i, x in enumerate(proposal.tokens):
            p, q = rows[i], proposal.probabilities[i]
            if not keep(p, q)[x]:
                owed = repair(p, q)
                return sd.Verdict(i, rng.choice(3, p=owed / owed.sum()))
        return sd.Verdict(len(proposal.tokens), rng.choice(3, p=rows[-1]))

    return rule


def tempered_target(p, q, T, k):
    return np.minimum(sd.Sampler(temperature=T, top_k=k)(np.log(p)), q).sum()


def tempered_one(p, q, T, k):
    hot = sd.Sampler(temperature=T, top_k=k)(np.log(p))
    return np.minimum(hot, sd.Sampler(top_k=k)(np.log(q))).sum()


def accepts(u, p, q):
    return u < p / q


def one(answer):
    return (accepts, answer)


WRONG = {
    "ex-01-two": [
        (
            (
                {
                    "tock tock": 9 / 16,
                    "tock ding": 3 / 16,
                    "ding tock": 3 / 16,
                    "ding ding": 1 / 16,
                },
            ),
            "second word were drawn after `tick` again",
        ),
        (
            ({"tock tick": 2 / 3, "tock ding": 1 / 3, "ding tick": 1},),
            "first word were",
        ),
        (({"tock tick": 0.5, "tock ding": 0.5},), "'ding tick' has 0, should be 0.25"),
        (({"tock": 1.0},), "not two words"),
        ((0.5,), "a dict from two words"),
        ((lambda rng: "tock tick",), "'tock tick' has 1, should be 0.5"),
        (({"tock tick": None},), "not a number"),
    ],
    "ex-01-bits": [
        ((lambda p, n: -np.log(p).sum() / n,), "natural logarithms"),
        ((lambda p, n: np.log2(p).sum() / n,), "the sign"),
        ((lambda p, n: -np.log2(p).mean(),), "per token"),
        ((lambda p, n: 2 ** (-np.log2(p).sum() / n),), "wanted is its logarithm"),
        ((lambda p, n: -np.log2(p) / n,), "not a number"),
        ((lambda p, n: float("nan"),), "nan"),
        ((lambda p, n: p[9],), "raises IndexError"),
    ],
    "ex-02-clock": [
        ((1 / 6,), "in how many places"),
        ((0,), "shared out"),
        ((0.1,), "the beginning"),
        ((0.3,), "0.3 is off"),
        (("a lot",), "not a number"),
    ],
    "ex-03-c": [
        ((0.375,), "leaves out the draft"),
        ((0.15,), "five"),
        ((0.22,), "divides by five"),
        ((1,), "1 is off"),
    ],
    "ex-04-copy": [
        ((first_place,), "the first place"),
        ((lambda s, k, rng: s[len(s) :],), "the last token itself"),
        ((with_the_found,), "the found token itself, not"),
        ((lambda s, k, rng: copy(s, len(s), rng),), "at most k"),
        ((lambda s, k: copy(s, k, None),), "has to take 3 arguments"),
        ((lambda s, k, rng: 5,), "not a sequence of tokens"),
        ((lambda s, k, rng: [s.pop(), *copy(s, k, rng)],), "changes the list"),
        ((lambda s, k, rng: ["a"],), "whole numbers"),
        ((endless,), "does not come to an end"),
        ((None,), "asks for a function copy(sequence, k, rng)"),
    ],
    "ex-04-verdict": [
        ((lambda g, c: emitted(g, c)[:-1],), "one token more"),
        ((lambda g, c: emitted(g, c)[: max(1, len(g))],), "the bonus is dropped"),
        (
            (
                lambda g, c: (
                    [a for a, b in zip(g, c, strict=False) if a == b]
                    + [c[sum(a == b for a, b in zip(g, c, strict=False))]]
                ),
            ),
            "keeps every guess that agrees",
        ),
        ((lambda g, c: [*emitted(g, c)[:-1], c[-1]],), "the last row"),
        ((lambda g, c: c,), "without being checked"),
        ((lambda g, c: [*g, c[-1]],), "every guess is kept"),
    ],
    "ex-05-a": [
        ((lambda u, p, q: True, sd.residual), "every guess is kept"),
        ((lambda u, p, q: False, sd.residual), "no guess is ever kept"),
        ((lambda u, p, q: u < q / p if p else True, sd.residual), "swapped"),
        ((lambda u, p, q: u <= p / q, sd.residual), "and not for <="),
        ((lambda u, p, q: u > p / q, sd.residual), "kept and refused were swapped"),
        ((lambda u, p, q: u < p, sd.residual), "q were not used"),
        ((lambda u, p, q: p >= q, sd.residual), "u were not used"),
        ((lambda u, p, q: min(1, p / q), sd.residual), "True or False"),
        ((lambda u, p, q: None, sd.residual), "True or False"),
        ((lambda p, q: True, sd.residual), "accepts has to take 3 arguments"),
        (one(lambda p, q: p), "p itself, with"),
        (one(lambda p, q: np.maximum(p - q, 0)), "does not sum to 1"),
        (one(lambda p, q: (p - q) / (p - q).max()), "should be"),
        (one(lambda p, q: p - q), "negative"),
        (one(lambda p, q: sd.residual(q, p)), "upside down"),
        (one(lambda p, q: abs(p - q) / abs(p - q).sum()), "|p - q|"),
        (one(lambda p, q: np.minimum(p, q) / np.minimum(p, q).sum()), "was accepted"),
        (one(lambda p, q: (p - q).sum()), "not 3 numbers"),
        (one(lambda p, q: sd.residual(p, q)[:2]), "has 2 numbers, and not 3"),
        (one(lambda p, q: (p - p) / (q - q)), "not a number"),
    ],
    "ex-05-b": [
        (
            (lambda raw, k, rng: (propose(raw, k, rng)[0], raw),),
            "unfiltered row; it has",
        ),
        (
            (lambda raw, k, rng: (rng.categorical(raw), propose(raw, k, rng)[1]),),
            "in the report alone",
        ),
        ((lambda raw, k, rng: (rng.categorical(raw), raw),), "nothing is filtered"),
        (
            (lambda raw, k, rng: (int(raw.argmax()), propose(raw, k, rng)[1]),),
            "always the most probable",
        ),
        (
            (
                lambda raw, k, rng: (
                    propose(raw, k, rng)[0],
                    raw * (np.array(propose(raw, k, rng)[1]) > 0),
                ),
            ),
            "does not sum to 1",
        ),
        ((lambda raw, k, rng: 3,), "not a token and a row"),
    ],
    "ex-05-e": [
        ((two_guesses_again,), "judged against p again"),
        ((two_guesses_late,), "the last resort is p"),
        (
            (
                lambda p, q, rng: two_guesses_late(
                    p, q, rng, lambda p, r, q: sd.residual(p, q)
                ),
            ),
            "the last resort is the residual of p",
        ),
        ((one_guess,), "no more often than with one guess"),
        ((lambda p, q, rng: (rng.categorical(q), True),), "every guess is kept"),
        ((lambda p, q, rng: rng.categorical(p),), "not a token, and True or False"),
    ],
    "ex-05-f": [
        ((rule_with(accept=lambda p, q: 1),), "every guess is kept"),
        ((swapped_everywhere,), "swapped"),
        ((rule_with(accept=lambda p, q: q / p if p else 1),), "swapped in the accept"),
        ((rule_with(repair=lambda p, q: p),), "drawn again from p, not from the resid"),
        ((rule_with(repair=lambda p, q: q),), "drawn from q"),
        ((rule_with(repair=lambda p, q: np.maximum(q - p, 0)),), "upside down"),
        ((rule_with(repair=lambda p, q: abs(p - q)),), "not cut off at 0"),
        ((rule_with(accept=lambda p, q: p >= q),), "no coin"),
        ((rule_with(accept=lambda p, q: p),), "p(x) in place of"),
        ((rule_with(bonus=-2),), "the row of the last guess"),
        ((rule_with(bonus=0),), "the bonus came from the first row"),
        ((rule_with(keep_on=True),), "goes with it"),
        ((without_bonus,), "the bonus is dropped"),
        ((empty_handed,), "is empty"),
        ((less_or_equal,), "and not for <="),
        ((one_uniform,), "one uniform number decided over all"),
        ((for_two,), "made for 2 guesses"),
        ((never_kept,), "guesses are refused that could be kept"),
        ((rule_with(repair=lambda p, q: p - q),), "raises ValueError"),
        ((lambda p, q, guesses, rng: guesses[7],), "raises IndexError"),
        (
            (lambda p, q, guesses, rng: [rng.gumbel()],),
            "no gumbel that can be followed",
        ),
        ((lambda p, q, guesses, rng: [9],), "not tokens from 0 to 2"),
        ((lambda p, q, guesses, rng: [0.5],), "whole numbers"),
        ((lambda p, q, guesses, rng: 1,), "not a sequence of tokens"),
        ((lambda p, q, guesses, rng: exit(),), "leaves Python"),
        ((lambda p, q, guesses: [0],), "has to take 4 arguments"),
        ((endless,), "does not come to an end"),
        ((tries_for_ever,), "does a loop never end"),
        ((on_its_own,), "draw from rng alone"),
        ((with_memory,), "draw from rng alone"),
        ((writes_p,), "work on a copy"),
        ((writes_guesses,), "work on a copy"),
    ],
    "ex-06-yes": [
        ((no_coin_with(sd.residual),), "the usual one"),
        ((no_coin_with(lambda p, q: p),), "drawn again from p"),
        (
            (no_coin_with(lambda p, q: p, lambda p, q: p <= q),),
            "should be",
        ),
        (
            (
                lambda rows, proposal, rng: by_the_library(
                    rows, proposal.probabilities, proposal.tokens, rng
                ),
            ),
            "if and only if",
        ),
        ((lambda rows, proposal, rng: 0,), "not a sequence of tokens"),
    ],
    "ex-06-lenience": [
        (
            (
                lambda p, q, t: (
                    (kept := q * np.minimum(1, t * p / q))
                    + (1 - kept.sum()) * sd.residual(p, q)
                ),
            ),
            "theta stands above",
        ),
        ((lambda p, q, t: p,), "theta is not used"),
        ((lambda p, q, t: np.minimum(q, p / t),), "refused ones are replaced"),
        (
            (lambda p, q, t: np.minimum(q, p / t) + np.maximum(p - q, 0),),
            "weighed with TV",
        ),
        (
            (
                lambda p, q, t: (
                    (kept := np.minimum(q, p / t))
                    + (1 - kept.sum())
                    * np.maximum(p - t * q, 0)
                    / np.maximum(p - t * q, 0).sum()
                ),
            ),
            "the residual has theta too",
        ),
    ],
    "ex-07-a": [
        ((lambda p, q: abs(p - q).sum() / 2,), "the distance TV"),
        ((lambda p, q: p @ q,), "two separate draws"),
        ((lambda p, q: 1 - abs(p - q).sum(),), "half of the sum"),
        ((lambda p, q: p[q.argmax()],), "favourite"),
        (
            (lambda p, q: np.mean([min(1, a / b) if b else 1 for a, b in zip(p, q)]),),  # noqa: B905
            "a plain mean",
        ),
        (
            (lambda p, q: sum(a * min(1, a / b) if b else a for a, b in zip(p, q)),),  # noqa: B905
            "weighed with p",
        ),
    ],
    "ex-08-a": [
        (
            (lambda a, k: sum(a**i for i in range(k)), sd.theory.speedup),
            "one power too early",
        ),
        (
            (lambda a, k: sum(a**i for i in range(1, k + 1)), sd.theory.speedup),
            "only accepted guesses",
        ),
        ((lambda a, k: 1 + a * k, sd.theory.speedup), "behind a refused one"),
        (
            (lambda a, k: sd.theory.expected_tokens(a, k + 1), sd.theory.speedup),
            "one power too many",
        ),
        (
            (lambda a, k: (1 - a ** (k + 1)) / (1 - a), sd.theory.speedup),
            "tokens(1, 0) raises ZeroDivisionError",
        ),
        (
            (tokens_closed, lambda a, k, c: tokens_closed(a, k) / (1 + c * (k + 1))),
            "k times, not k + 1",
        ),
        ((tokens_closed, lambda a, k, c: tokens_closed(a, k) / (1 + c)), "costs c k"),
        ((tokens_closed, lambda a, k, c: tokens_closed(a, k)), "is not free"),
        (
            (tokens_closed, lambda a, k, c: (tokens_closed(a, k) - 1) / (1 + c * k)),
            "only accepted guesses",
        ),
    ],
    "ex-09-b": [
        (
            (tempered_target,),
            "temperature and filter are on one side alone, the target",
        ),
        (
            (lambda p, q, T, k: tempered_target(q, p, T, k),),
            "temperature and filter are on one side alone, the draft",
        ),
        ((tempered_one,), ": temperature is on one side alone, the target"),
        (
            (lambda p, q, T, k: tempered_one(q, p, T, k),),
            ": temperature is on one side alone, the draft",
        ),
        ((lambda p, q, T, k: cut(p, q, T, len(p)),), "nothing is filtered"),
        ((lambda p, q, T, k: cut(p, q, 1, k),), "T is not used"),
        ((lambda p, q, T, k: p[0] ** (1 / T),), "raises ZeroDivisionError"),
    ],
    "ex-10-a": [
        (
            (
                lambda text, m, k: (
                    sd.PromptLookup(m, earliest=True).start(text).propose(k).tokens
                ),
            ),
            "from the first place",
        ),
        (
            (
                lambda text, m, k: next(
                    (
                        f
                        for n in range(1, m + 1)
                        if (f := sd.PromptLookup(n, n).start(text).propose(k).tokens)
                    ),
                    (),
                ),
            ),
            "not the longest match",
        ),
        (
            (
                lambda text, m, k: (
                    sd.PromptLookup(m, min(m, len(text))).start(text).propose(k).tokens
                ),
            ),
            "the longest match only",
        ),
        ((lambda text, m, k: lookup(text, 1, k),), "not the longest match"),
        ((lambda text, m, k: [],), "the end of the text itself"),
        ((lambda text, m, k: lookup(text, m, len(text)),), "at most k"),
    ],
    "ex-10-b": [
        (((0.6, 0.4),), "if the draft said what it does"),
        (((0.8, 0.2),), "is the report"),
        (((0.9, 0.1),), "draws again from p"),
        (((0.7, 0.3),), "off in place 0, 1"),
        ((0.75,), "not 2 numbers"),
        (((0.75, float("nan")),), "not a number"),
    ],
    "ex-11-a": [
        (((1 / 4, 3 / 8, 1 / 2),), "the pairs alone"),
        (((3 / 4, 3 / 4, 1),), "pays back"),
        (((3 / 4, 7 / 8, 3 / 4),), "off in place 2"),
    ],
    "ex-12-a": [
        (((7, 1),), "best at the rate 1"),
        (((1, 5),), "first the rounds"),
        (((4, 0),), "one less"),
        (((6, 2),), "one more"),
        ((5,), "not 2 numbers"),
    ],
    "ex-14-a": [
        (((1.4, 0.7, 0.28),), "cost 1 each"),
        (((0.4, 0.2, 0.08),), "costs 1 in any case"),
        (((1.4, 1.4, 1.4),), "take the mean"),
    ],
    "ex-17-abba": [
        (
            ([o for o in orders() if o == o[::-1]],),
            "palindromes are right, and not all",
        ),
        (([*orders(), "aaaabbbb"],), "'aaaabbbb' does not belong"),
        ((orders()[1:],), "1 of them are missing"),
        ((8,), "not a list"),
    ],
    "ex-a-argmax": [
        (
            (lambda p, x, rng: x if rng.bernoulli(p[x]) else rng.categorical(p),),
            "drawn again from the whole of p",
        ),
        ((lambda p, x, rng: x,), "always kept"),
        ((lambda p, x, rng: p.argmax(),), "the target's favourite"),
        ((lambda p, x, rng: None,), "whole numbers"),
    ],
}


@pytest.mark.parametrize(
    "label, answers, said",
    [
        pytest.param(label, answers, said, id=f"{label}-{i}")
        for label, table in WRONG.items()
        for i, (answers, said) in enumerate(table)
    ],
)
def test_wrong_answers_are_refused_and_told_why(label, answers, said):
    mark = check(label, *answers)
    assert not mark.passed, mark
    assert not mark
    assert said in mark.message, mark
    assert str(mark).startswith(f"{label}: not yet.")
    assert str(mark).endswith((".", "?"))


# The edges of the two functions


def test_what_an_answer_prints_is_not_shown(capsys):
    def chatty(p, q):
        print("here")
        return np.minimum(p, q).sum()

    assert check("ex-07-a", chatty)
    assert capsys.readouterr().out == ""


def test_an_answer_that_never_ends_leaves_no_trace_function_behind():
    before = sys.gettrace()
    assert not check("ex-07-a", endless)
    assert sys.gettrace() is before


def test_an_answer_cannot_catch_its_own_end():
    def stubborn(p, q):
        while True:
            with contextlib.suppress(Exception):
                sum(p)

    assert "does not come to an end" in check("ex-07-a", stubborn).message


def test_a_debugger_keeps_its_trace_function():
    seen = []

    def debugger(frame, event, argument):
        seen.append(event)
        return

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        assert check("ex-07-a", lambda p, q: np.minimum(p, q).sum())
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)
    assert seen


def test_an_unknown_label_and_a_wrong_number_of_answers_are_errors():
    with pytest.raises(ValueError, match=r"label .* 'ex-05-z'; there is .*ex-05-f"):
        check("ex-05-z", 1)
    with pytest.raises(TypeError, match=r"2 for ex-05-a \(accepts, residual\), got 1"):
        check("ex-05-a", accepts)


def test_grade_takes_what_is_there_by_name():
    marks = grade({"steepest": 0.3, "acceptance": sd.theory.acceptance, "np": np})
    assert [(mark.label, mark.passed) for mark in marks] == [
        ("ex-03-c", False),
        ("ex-07-a", True),
    ]
    (half,) = grade({"accepts": accepts})
    assert not half
    assert half.message == (
        "accepts: right. residual: there is no answer of this name."
    )
    assert grade({}) == []
    with pytest.raises(TypeError, match="mapping"):
        grade([1])


def test_names_of_answers_are_unique():
    names = [name for graders in TASKS.values() for name in graders]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)


# The source of random numbers


@pytest.mark.parametrize(
    "draw, law",
    [
        (lambda rng: rng.random() < 0.25, {True: 1 / 4, False: 3 / 4}),
        (lambda rng: tuple(rng.random(2) < 0.5), {}),
        (lambda rng: rng.uniform(2, 4) < 3.5, {True: 3 / 4, False: 1 / 4}),
        (lambda rng: int(rng.integers(3)), {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}),
        (lambda rng: int(rng.integers(1, 2, endpoint=True)), {1: 1 / 2, 2: 1 / 2}),
        (lambda rng: str(rng.choice(["a", "b"], p=[0.75, 0.25])), {"a": 3 / 4}),
        (lambda rng: rng.choice(2, size=(1, 2)).shape, {(1, 2): 1}),
        (lambda rng: rng.bernoulli(0.5) + rng.categorical([0.5, 0.5]), {1: 1 / 2}),
    ],
)
def test_the_source_has_the_law_of_what_it_stands_for(draw, law):
    found = follow(lambda acts, rng: draw(rng), 12).law
    assert sum(found.values()) == pytest.approx(1)
    for outcome, weight in law.items():
        assert found[outcome] == pytest.approx(weight, abs=1e-12)
    generator, n = np.random.default_rng(3), 4000
    if "bernoulli" not in draw.__code__.co_names:  # the same by NumPy itself
        drawn = [draw(generator) for _ in range(n)]
        for outcome, weight in found.items():
            assert drawn.count(outcome) / n == pytest.approx(weight, abs=0.04)


def test_what_draws_without_replacement_is_told():
    mark = check("ex-05-f", lambda p, q, guesses, rng: rng.choice(3, 2, replace=False))
    assert "without replacement" in mark.message


# Files of answers


@pytest.fixture
def answers(tmp_path):
    def write(text):
        path = tmp_path / "answers.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_file_of_answers_is_graded_by_name(answers):
    marks = grade_file(
        answers(
            "import numpy as np\nprint('hello', end='')\n"
            "def acceptance(p, q): return np.minimum(p, q).sum()\nsteepest = 0.375\n"
        )
    )
    assert [(mark.label, mark.passed) for mark in marks] == [
        ("ex-03-c", False),
        ("ex-07-a", True),
    ]
    assert "leaves out the draft" in marks[0].message


@pytest.mark.parametrize(
    "text, said",
    [
        ("x = 1", "no answer of a graded exercise"),
        ("steepest = ", "does not run: SyntaxError"),
        ("steepest = 1 / 0", "does not run: ZeroDivisionError"),
        ("import os; os._exit(0)", "does not run: it ended without a word"),
        ("while True: pass", "stopped after 3 seconds"),
    ],
)
def test_a_file_without_answers_says_why(answers, text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        grade_file(answers(text), seconds=3 if "while" in text else 60)


def test_there_must_be_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.py"):
        grade_file(tmp_path / "none.py")


def test_the_command_grades_several_files(answers, tmp_path, capsys):
    good, other = answers("steepest = 0.275"), tmp_path / "other.py"
    assert cli.main(["grade", str(good)]) == 0
    assert capsys.readouterr().out == (f"{good}: 1 of 1 right\n  ex-03-c: right.\n")
    other.write_text("steepest = 9", encoding="utf-8")
    assert cli.main(["grade", str(good), str(other)]) == 1
    assert f"{other}: 0 of 1 right\n  ex-03-c: not yet." in capsys.readouterr().out
    other.write_text("", encoding="utf-8")
    assert cli.main(["grade", str(other), str(good)]) == 1
    assert f"{good}: 1 of 1 right" in capsys.readouterr().out
    assert cli.main(["grade", str(tmp_path / "none.py")]) == 2


# Chapters, and the page for teachers


def exercises_of_the_book(root):
    """Label, statement and solution of every exercise of the chapters."""
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
        for part in re.split(r"^```\{exercise(?:-start)?\}", text, flags=re.M)[1:]:
            label = re.search(r"^:label: (\S+)$", part, re.M)[1]
            yield label, *re.split(r"^```\{solution(?:-start)?\}", part, flags=re.M)


def test_a_chapter_names_every_grader_and_no_other(root):
    told = {}
    for label, statement, solution in exercises_of_the_book(root):
        asked = re.findall(r'`sd\.exercises\.check\("([^"]+)", ([^`]+)\)`', statement)
        assert statement.count("exercises.check") == len(asked) <= 1
        called = re.findall(r'sd\.exercises\.check\("([^"]+)"', solution)
        if not asked:
            assert not called, label
            continue
        assert asked[0][0] == label
        assert set(called) == {label}, "the solution asks the grader, too"
        told[label] = statement
    assert set(told) == set(TASKS)
    for label, statement in told.items():
        for name, grader in TASKS[label].items():
            if takes := getattr(grader, "takes", None):
                assert f"{name}({takes})" in statement.replace("`", ""), label


def test_the_page_for_teachers_lists_every_grader(root):
    page = (root / "book" / "teaching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \{ref\}`(ex-\S+)` \| (`.+`) \|$", page, re.M)
    listed = {label: tuple(re.findall(r"`(\w+)`", names)) for label, names in rows}
    assert listed == {label: tuple(graders) for label, graders in TASKS.items()}
    known = {label for label, *_ in exercises_of_the_book(root)}
    assert set(re.findall(r"\{ref\}`(ex-[^`]+)`", page)) <= known
