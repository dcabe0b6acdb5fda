"""Print chapter 12's table of what rules for the draft length gain.

    python tools/policy_gains.py          about two minutes

48 prompts from the documents held out: lengths, tables and bars are found on every
second one, with one text of 200 tokens for each, and judged on the others, with three.
Gains are over the best fixed length of the first half, with 95 % intervals of a
bootstrap over prompts. All by the cost model, T(n) = T(1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib.draft_length import break_even, judged_guesses, largest_probability
from specdec_lib.text import load_corpus

COSTS, TEMPERATURES, SEEDS, TOKENS = (0.1, 0.3), (0.6, 1.0), (0, 1, 2), 200
FIXED = {f"k = {k}": (sd.ModelDraft, k) for k in (0, 1, 2, 3, 4, 5, 6, 8, 10)}
MOST = 12  # guesses of a round

PAIR = sd.book_pair()


class KnowsTheToken:
    """Stops as ModelDraft does, by min(1, p(x) / q(x)) of the very guesses it drew."""

    def __init__(self, model: Any, sampler: sd.Sampler, least: float) -> None:
        self.model, self.sampler, self.least = model, sampler, least

    def start(self, prompt: Sequence[int]) -> _Knowing:
        return _Knowing(self, list(prompt))


class _Knowing:
    def __init__(self, draft: KnowsTheToken, sequence: list[int]) -> None:
        self.draft, self.sequence = draft, sequence

    def commit(self, tokens: Sequence[int]) -> None:
        self.sequence += tokens

    def propose(self, k: int, rng: Any) -> sd.Proposal:
        tokens: list[int] = []
        rows: list[Any] = []
        all_accepted, draft = 1.0, self.draft
        while len(tokens) < k and all_accepted >= draft.least:
            before = self.sequence + tokens  # the draft looks 1 back, the target 4
            row = draft.sampler(draft.model.start().extend(before[-1:])[-1])
            token = rng.categorical(row)
            logits = PAIR.target.start().extend(before[-4:])[-1]
            all_accepted *= min(1.0, draft.sampler(logits)[token] / row[token])
            tokens.append(token)
            rows.append(row)
        return sd.Proposal(tuple(tokens), np.array(rows) if rows else None)


def decoded(
    policies: Any, prompts: Any, temperature: float, seeds: Sequence[int]
) -> dict[str, list[ex.Record]]:
    """The records of each policy."""
    records = ex.policy_records(
        PAIR.target,
        PAIR.draft,
        policies,
        prompts,
        temperatures=(temperature,),
        seeds=seeds,
        max_new_tokens=TOKENS,
    )
    return {name: [r for r in records if r["draft"] == name] for name in policies}


def speed(records: list[ex.Record], cost: float) -> float:
    found = ex.ratio(records, "emitted", lambda record: ex.call_cost(record, cost))
    assert found is not None
    return found


def stops(least: float, chance: Any) -> Any:
    """A draft that stops by its rows."""
    return (
        lambda model, sampler: sd.ModelDraft(
            model, sampler, least=least, chance=chance
        ),
        MOST,
    )


def main() -> None:
    documents = {
        document.name: PAIR.tokenizer.encode(document.text)
        for document in load_corpus().held_out.documents
    }
    prompts = list(ex.cut_prompts(documents, count=48, length=16).items())
    tuned, judged = dict(prompts[::2]), dict(prompts[1::2])
    rows: dict[str, list[str]] = {}
    for temperature in TEMPERATURES:
        sampler = sd.Sampler(temperature=temperature)
        tries = decoded(FIXED, tuned, temperature, (0,))
        guesses = judged_guesses(
            PAIR.target,
            sd.ModelDraft(PAIR.draft, sampler),
            list(tuned.values()),
            sampler=sampler,
        )
        table = sd.Calibration.fit(*guesses)
        true = sd.TrueChance(PAIR.target, sampler)
        for cost in COSTS:
            best = max(tries, key=lambda name: speed(tries[name], cost))
            alpha = ex.ratio(tries[best], "accepted", "tested")
            assert alpha
            least = break_even(speed(tries[best], cost), cost) / alpha

            def knows(
                model: Any, sampler: sd.Sampler, least: float = least
            ) -> KnowsTheToken:
                return KnowsTheToken(model, sampler, least)

            policies = {
                best: FIXED[best],
                "largest p, rule": stops(least, largest_probability),
                "calibrated, rule": stops(least, table),
                "recent acceptance": (sd.ModelDraft, sd.RecentAcceptance(cost)),
                "up and down": (sd.ModelDraft, sd.UpAndDown()),
                "true chance, rule": stops(least, true),
                "knows p/q of the token": (knows, MOST),
                "clairvoyant base k = 12": (sd.ModelDraft, MOST),
            }
            records = decoded(policies, judged, temperature, SEEDS)
            for record in records["clairvoyant base k = 12"]:
                record["draft_calls"] = record["accepted"]  # it pays for no other
            base = records.pop(best)
            rows.setdefault("best fixed k, its speedup", []).append(
                f"{best[4:]}: {speed(base, cost):.2f}"
            )
            for name, some in records.items():
                gain = ex.gain_interval(some, base, cost, by=("prompt",))
                rows.setdefault(name, []).append(
                    "{:+.1f} ({:+.1f}, {:+.1f})".format(
                        *(100 * x for x in (gain.estimate, gain.low, gain.high))
                    ).replace("-", "\N{MINUS SIGN}")
                )
    for name, cells in rows.items():
        print("|", " | ".join([name, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
