"""The stored runs of chapter 14, run again by the real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import specdec_lib as sd
from specdec_lib import llama
from specdec_lib.draft_length import copies_that_pay
from specdec_lib.prompts import load_prompts
from specdec_lib.theory import cost_curve

pytestmark = pytest.mark.slow

FILE = Path(__file__).resolve().parents[2] / "notebooks" / "data" / "real_runs.json"
STORED = json.loads(FILE.read_text(encoding="utf-8"))
PROMPTS = {prompt.name: prompt for prompt in load_prompts()}
LEAST_GAP = 0.02  # between the two best logits; rounding moves them by 1e-3 at most


def safe(names):
    return [name for name in names if STORED["prompts"][name]["gap"] > LEAST_GAP]


# Some of everything: each draft, several lengths, prompts of both kinds.
AGAIN = [
    *(("plain", 0, name) for name in safe(list(PROMPTS)[::7])),
    *(("lookup", STORED["k"], name) for name in safe(list(PROMPTS)[1::6])),
    *(("paying", 0, name) for name in safe(list(PROMPTS)[2::10])),
    *(("suffix", STORED["k"], name) for name in safe(STORED["swept"][1::4])),
    *(("lookup", STORED["ks"][-1], name) for name in safe(STORED["swept"][2::4])),
]


@pytest.fixture(scope="module")
def real(smollm2_path):
    return llama.load("smollm2")


def options(draft, k):
    if draft == "paying":
        curve = STORED["curves"]["NumPy"]
        ns = [int(n) for n in curve]
        guesses, length = copies_that_pay(
            cost_curve(ns, [q[1] for q in curve.values()])
        )
        return {"draft": guesses, "k": length}
    drafts = {"plain": None, "lookup": sd.PromptLookup(), "suffix": sd.SuffixDraft()}
    return {"draft": drafts[draft], "k": k}


def test_it_holds_all_prompts_and_is_small():
    assert set(STORED["prompts"]) == set(PROMPTS)
    assert FILE.stat().st_size < 300_000
    plain = {r["prompt"] for r in STORED["runs"] if r["draft"] == "plain"}
    assert plain == set(PROMPTS)
    assert len(AGAIN) >= 12


@pytest.mark.parametrize(("draft", "k", "name"), AGAIN)
def test_text_and_counts_come_out_again(real, draft, k, name):
    model, tokenizer = real
    (stored,) = (
        r
        for r in STORED["runs"]
        if (r["series"], r["draft"], r["k"], r["prompt"]) == ("NumPy", draft, k, name)
    )
    run = sd.generate(
        model,
        tokenizer.chat(PROMPTS[name].messages),
        max_new_tokens=STORED["limit"],
        sampler=sd.Sampler(temperature=0),
        stop_ids=tokenizer.stop_ids,
        seed=0,
        **options(draft, k),
    )
    assert list(run.tokens) == STORED["prompts"][name]["tokens"]
    counts = ("drafted", "tested", "accepted")
    assert [getattr(run.metrics, what) for what in counts] == [
        stored[what] for what in counts
    ]
    assert run.metrics.target_calls == stored["calls"]
    if draft == "paying":
        assert [len(r.drafted) + 1 for r in run.rounds] == stored["sizes"]


def test_sampled_runs_are_each_there_once_and_add_up():
    seen = {(r["prompt"], r["temperature"], r["seed"]) for r in STORED["sampled"]}
    assert len(seen) == len(STORED["sampled"])
    assert {prompt for prompt, _, _ in seen} == set(STORED["swept"])
    for run in STORED["sampled"]:
        # a token of the target's own in each call, but for a last one cut short
        own = run["emitted"] - run["accepted"]
        assert own in (len(run["sizes"]), len(run["sizes"]) - 1)
        assert run["tested"] <= sum(run["sizes"]) - len(run["sizes"])
        for one in (run, run["plain"]):
            assert 0 < one["emitted"] <= STORED["limit"]
        assert 0 < run["plain"]["first"] <= run["plain"]["seconds"]
