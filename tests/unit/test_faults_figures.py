"""Faults of sampling, of figures and of times, and of paths that nobody ran.

By their kinds: every distribution on a grid against every threshold, every scale of
logits against every temperature, every place that divides by what may be nothing, and
every public name with nothing but what it cannot do without.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from fractions import Fraction

import numpy as np
import pytest
from faults_kit import GREEDY, OTHER, TARGET, VOCAB, Says, ledger, simplex, written

import specdec_lib as sd
from specdec_lib import cli, comparison, decoding
from specdec_lib.bench import Setting, command, measure_speeds
from specdec_lib.experiments import Sweep, policy_records, summarise
from specdec_lib.metrics import Positions
from specdec_lib.widgets import token_notes

# From logits to probabilities.


def nucleus(p, top_p):
    """The smallest set of most probable tokens that reaches ``top_p``: by fractions."""
    order = sorted(range(len(p)), key=lambda token: (-p[token], token))
    kept, total = [], Fraction(0)
    for token in order:
        kept.append(token)
        total += p[token]
        if total >= top_p:
            break
    return [float(p[i] / total) if i in kept else 0.0 for i in range(len(p))]


@pytest.mark.parametrize("parts", (4, 7, 10))
def test_the_nucleus_of_every_distribution_at_every_threshold(parts):
    """The token that crosses is kept, and none after it; sums that are reached to the
    digit are reached, however .1 + .2 is rounded."""
    for p in simplex(3, parts):
        exact = [Fraction(round(each * parts), parts) for each in p]
        with np.errstate(divide="ignore"):
            logits = np.log(p)
        for i in range(1, 2 * parts + 1):
            top_p = Fraction(i, 2 * parts)
            found = sd.Sampler(top_p=float(top_p))(logits)
            assert np.abs(found - nucleus(exact, top_p)).max() < 1e-9, (p, top_p)


TEMPERATURES = [10.0**e for e in (-320, -300, -100, -8, -2, 0, 2, 8, 100, 300)]


@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64))
def test_every_temperature_at_every_scale_of_logits(dtype):
    """Never NaN, never nothing: the order of the tokens is kept, ties stay ties, and
    where all but the largest has no chance left it is certain."""
    most = float(np.finfo(dtype).max)
    scales = [s for s in (1e-300, 1e-30, 1e-3, 1.0, 300.0, 1e30, 1e300) if s < most]
    for temperature, scale in ((t, s) for t in TEMPERATURES for s in scales):
        logits = (np.array([2.0, 2.0, 1.0, -1.0, -np.inf]) * scale / 2).astype(dtype)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            p = sd.Sampler(temperature)(logits)
            assert sd.Sampler(0)(logits).tolist() == [1, 0, 0, 0, 0]
        assert np.isfinite(p).all()
        assert abs(p.sum() - 1) < 1e-12
        assert p[0] == p[1] >= p[2] >= p[3]
        assert p[4] == 0
        gap = float(logits[0]) - float(logits[2])
        if gap > 800 * temperature:
            assert p.tolist() == [0.5, 0.5, 0, 0, 0]
        if not logits[0] or gap < temperature * 1e-14:
            assert np.abs(p[:4] - 0.25).max() < 1e-9


@pytest.mark.parametrize("tied", range(1, VOCAB + 1))
def test_ties_have_one_rule_with_and_without_guesses(tied):
    """At temperature 0 the lowest id, whatever the draft thinks of it."""
    row = np.array([1.0] * (VOCAB - tied) + [2.0] * tied)
    target = sd.FunctionModel(lambda text: row, VOCAB)
    for favourite in range(VOCAB):
        nearly = row + 1e-9 * np.eye(VOCAB)[favourite]
        draft = sd.ModelDraft(sd.FunctionModel(lambda text, r=nearly: r, VOCAB), GREEDY)
        for verify in (sd.verify_tokens, sd.verify_block):
            options = {"k": 3, "max_new_tokens": 6, "sampler": GREEDY}
            found = sd.generate(target, [0], draft=draft, verify=verify, **options)
            assert found.tokens == (VOCAB - tied,) * 6


# Figures.


@pytest.mark.parametrize("budget", (1, 2))
def test_ratios_of_nothing_are_none_wherever_they_are_made(budget, capsys, tmp_path):
    """One token leaves no room for a guess; a draft may also never have one."""
    never = Says(lambda text, k: ())
    draft = never if budget > 1 else sd.ModelDraft(OTHER)
    options = {"max_new_tokens": budget}
    found = sd.generate(TARGET, [0], draft=draft, seed=0, **options)
    assert found.metrics.acceptance_rate is found.metrics.draft_efficiency is None
    assert Positions.from_rounds(found.rounds).rates == ()

    both = comparison.compare(TARGET, [0], draft=draft, repeats=1, **options)
    assert both.predicted_speedup is None
    assert both.speedup > 0

    plain, row = measure_speeds(
        TARGET, [Setting("d", draft, 4)], {"a": [0]}, repeats=1, **options
    )
    assert plain["acceptance_rate"] is row["acceptance_rate"] is row["draft_cost"]
    assert row["acceptance_rate"] is None

    records = Sweep(TARGET, {"d": draft}, {"a": [0]}, [0, 3], **options).run()
    assert [each["acceptance_rate"] for each in records] == [None, None]
    summary = summarise(records, "accepted", "tested")
    assert [each["estimate"] for each in summary] == [None, None]

    pair = sd.train_pair(["a cat sat on a mat, a cat sat."] * 2, merges=3)
    pair.save(tmp_path / "pair.npz")
    arguments = ["generate", "--model", str(tmp_path / "pair.npz"), "--prompt", "a "]
    arguments += ["--max-tokens", "1", "--repeats", "1"]
    assert cli.main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["speculative"]["acceptance_rate"] is None
    assert report["predicted_speedup"] is None
    assert cli.main(arguments) == 0
    assert "acceptance rate                      -" in capsys.readouterr().out


def test_every_speedup_has_its_causes_and_its_prediction_beside_it(capsys, tmp_path):
    """What a call for k + 1 tokens costs, what a guess costs, and what they predict."""
    causes = {"speedup", "predicted_speedup", "verify_cost", "draft_cost"}
    draft = sd.ModelDraft(OTHER)
    both = comparison.compare(TARGET, [0], draft=draft, max_new_tokens=20, repeats=1)
    assert all(getattr(both, name) > 0 for name in causes)
    rows = measure_speeds(
        TARGET, [Setting("d", draft, 2)], {"a": [0]}, max_new_tokens=20, repeats=1
    )
    assert all(rows[1][name] > 0 for name in causes)
    pair = sd.train_pair(["a cat sat on a mat, a cat sat."] * 2, merges=3)
    pair.save(tmp_path / "pair.npz")
    arguments = ["generate", "--model", str(tmp_path / "pair.npz"), "--prompt", "a cat"]
    assert cli.main([*arguments, "--json", "--max-tokens", "9", "--k", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert all(report[name] > 0 for name in causes)


@dataclasses.dataclass
class Clock:
    """Moves only where the model is read: so much for each token that is made."""

    each: float = 0.2
    now: float = 0.0

    def __call__(self):
        return self.now


class Slow:
    """Counts 1, 2, 3 …; the very first call takes ``first`` more, as compiling does."""

    vocab_size, bos_id, context_window = 300, None, None

    def __init__(self, clock, first=0.0):
        self.clock, self.first = clock, first

    def start(self):
        return _SlowState(self)


class _SlowState:
    def __init__(self, model):
        self.model, self.length = model, 0

    def extend(self, tokens):
        self.model.clock.now += self.model.clock.each + self.model.first
        self.model.first = 0.0
        self.length += len(tokens)
        return 50.0 * np.eye(300)[np.array(tokens) + 1]

    def rewind(self, length):
        self.length = length


@pytest.mark.parametrize("first", (0.0, 500.0))
@pytest.mark.parametrize("most, stops", ((10, ()), (64, (210,))))
def test_tokens_a_second_are_the_new_tokens_over_their_time(
    monkeypatch, first, most, stops
):
    """Two texts of 10 new tokens after prompts of 100, 0.2 s a call: 5 tokens a second.

    Neither prompts count, nor tokens that a stop id left unwritten, nor repeats twice,
    nor the first call of all, even where there is no other repeat to hide it.
    """
    clock, repeats = Clock(), 1 if first else 3
    monkeypatch.setattr(decoding, "perf_counter", clock)
    monkeypatch.setattr(comparison, "perf_counter", clock)
    prompt = [*range(101, 201)]
    right = Says(lambda text, k: range(text[-1] + 1, text[-1] + 1 + k))
    options = {"max_new_tokens": most, "stop_ids": stops, "sampler": GREEDY}
    plain, fast = measure_speeds(
        Slow(clock, first),
        [Setting("right", right, 4)],
        {"a": prompt, "b": prompt},
        repeats=repeats,
        clock=clock,
        **options,
    )
    assert plain["tokens"] == fast["tokens"] == 20
    assert plain["seconds"] == pytest.approx(4.0)
    assert plain["tokens_per_second"] == pytest.approx(5.0)
    assert fast["tokens_per_second"] == pytest.approx(25.0)  # 2 calls for 10 tokens
    assert fast["speedup"] == pytest.approx(5.0)
    both = comparison.compare(
        Slow(clock, first), prompt, draft=right, k=4, repeats=repeats, **options
    )
    assert both.plain_seconds == pytest.approx(0.2)
    assert both.speedup == pytest.approx(5.0)
    assert both.verify_cost == pytest.approx(1.0)


def test_texts_that_are_cut_are_not_the_same():
    """An answer that ends early is another answer at every length, and has no speed."""
    both = comparison.compare(
        TARGET,
        [0],
        draft=sd.ModelDraft(OTHER),
        max_new_tokens=8,
        sampler=GREEDY,
        repeats=1,
    )
    assert both.same_tokens
    assert both.speedup is not None
    whole = both.speculative
    for length in range(8):
        cut = dataclasses.replace(whole, tokens=whole.tokens[:length])
        for sides in ({"speculative": cut}, {"plain": cut}):
            other = dataclasses.replace(both, **sides)
            assert not other.same_tokens
            assert other.speedup is None


@pytest.mark.parametrize("k", (0, 1, 4))
@pytest.mark.parametrize(
    "sampler", (sd.Sampler(0.7), sd.Sampler(top_p=0.8), sd.Sampler(1.5, top_k=3))
)
def test_the_probability_that_is_told_of_a_token_is_the_targets_own(sampler, k):
    """Of accepted guesses, corrections and bonus tokens alike, after the sampler."""
    judged = []

    def verify(rows, proposal, rng):
        judged.append((rows, proposal))
        return sd.verify_tokens(rows, proposal, rng)

    found = sd.generate(
        TARGET,
        [0, 1],
        draft=sd.ModelDraft(OTHER, sampler),
        k=k,
        max_new_tokens=60,
        sampler=sampler,
        verify=verify,
        seed=k,
    )
    notes = token_notes(found.rounds, judged, lambda tokens: [str(t) for t in tokens])
    assert {note.kind for note in notes} >= ({"bonus", "correction"} if k else set())
    text = [0, 1]
    for note, token in zip(notes, found.tokens, strict=True):
        row = sampler(TARGET.start().extend(text)[-1])
        assert note.text == str(token)
        assert note.p == pytest.approx(row[token], abs=1e-12)
        assert note.p > 0
        text.append(token)


# Vocabularies.


@pytest.mark.parametrize("size", (1, VOCAB - 1, VOCAB + 1, VOCAB + 3))
def test_another_size_of_vocabulary_is_an_error_before_any_work(size):
    """Also where one of them was filled up: ids beyond the tokens have no meaning."""
    other = ledger(2, size)
    for draft in (
        sd.ModelDraft(other),
        sd.TreeDraft(other),
        sd.ModelDraft(sd.CacheModel(other)),
        sd.FirstOf([sd.PromptLookup(), sd.ModelDraft(other)]),
    ):
        with pytest.raises(ValueError, match=f"vocabulary of 5 tokens, got {size}"):
            sd.stream(TARGET, [0], draft=draft, max_new_tokens=3)


class Five:
    """A tokenizer of five letters."""

    vocab_size = VOCAB

    def encode(self, text):
        return ["abcde".index(letter) for letter in text]

    def decode(self, ids):
        return "".join("abcde"[id] for id in ids)


def test_an_engine_is_not_made_of_parts_that_do_not_belong_together():
    for draft in (
        ledger(2, 6),
        sd.ModelDraft(ledger(2, 6)),
        sd.TreeDraft(ledger(2, 4)),
    ):
        with pytest.raises(ValueError, match="draft must have the target's 5 ids"):
            sd.Engine(TARGET, Five(), draft)
    with pytest.raises(ValueError, match="tokenizer must have the target's 6 ids"):
        sd.Engine(ledger(1, 6), Five())
    engine = sd.Engine(TARGET, Five(), OTHER, sampler=GREEDY)
    text = engine.complete("ab", max_new_tokens=9).text
    assert text == Five().decode(written(TARGET, (0, 1), 9))


# Every public name with what it cannot do without, and no more.

ALONE = {
    "CacheModel": lambda: sd.CacheModel(OTHER).start().extend([1, 2, 1]),
    "Calibration": lambda: sd.Calibration((0.5,), (0.2, 0.9))(np.array([0.7, 0.3])),
    "Completion": None,  # what an engine returns
    "Engine": lambda: sd.Engine(TARGET, Five()).complete("ab", max_new_tokens=3).text,
    "FirstOf": lambda: guesses(sd.FirstOf([sd.PromptLookup()])),
    "FunctionModel": lambda: sd.FunctionModel(lambda t: [0.0], 1).start().extend([0]),
    "Generation": None,  # what generate returns
    "LogitBias": lambda: sd.LogitBias({1: 2.0})(np.zeros(3), ()),
    "Metrics": lambda: sd.Metrics.from_rounds([sd.Round((), 0, (1,))]).tokens_per_call,
    "ModelDraft": lambda: guesses(sd.ModelDraft(OTHER)),
    "NGramModel": lambda: sd.NGramModel.fit([[0, 1, 0]], order=2, vocab_size=2),
    "Pair": None,  # train_pair and book_pair make it
    "PayingLength": lambda: chosen(sd.PayingLength(lambda n: 1.0 + 0.1 * n)),
    "PromptLookup": lambda: guesses(sd.PromptLookup()),
    "Proposal": lambda: sd.Proposal((1,)),
    "RecentAcceptance": lambda: chosen(sd.RecentAcceptance(0.1)),
    "RepetitionPenalty": lambda: sd.RepetitionPenalty(1.2)(np.zeros(3), (1,)),
    "Round": lambda: sd.Round((), 0, (1,)).tested,
    "Sampler": lambda: sd.Sampler()([0.0, 1.0]),
    "SeededRandom": lambda: sd.SeededRandom().bernoulli(0.5),
    "SuffixAutomaton": lambda: sd.SuffixAutomaton().append(3),
    "SuffixDraft": lambda: guesses(sd.SuffixDraft()),
    "SuffixHistory": lambda: sd.SuffixHistory().add([1, 2]),
    "TextStream": None,  # what an engine returns
    "Tokenizer": lambda: sd.Tokenizer().encode("ab"),
    "TreeDraft": lambda: guesses(sd.TreeDraft(OTHER)),
    "TrueChance": lambda: sd.TrueChance(TARGET)(np.full(VOCAB, 0.2), (0, 1)),
    "UpAndDown": lambda: chosen(sd.UpAndDown()),
    "Verdict": lambda: sd.Verdict(0, 1),
    "book_pair": None,  # its example is run with the docstrings
    "exact_distribution": lambda: sd.exact_distribution(lambda rng: rng.bernoulli(0.5)),
    "exercises": None,  # a module
    "generate": lambda: sd.generate(TARGET, [0], max_new_tokens=3),
    "residual": lambda: sd.residual([0.5, 0.5], [1.0, 0.0]),
    "stream": lambda: list(sd.stream(TARGET, [0], max_new_tokens=3)),
    "theory": None,  # a module
    "train_pair": lambda: sd.train_pair(["a cat sat on a mat"]),
    "tree_shape": lambda: sd.tree_shape((2, 1)),
    "verification": None,  # a module
    "verify_block": lambda: judged(sd.verify_block),
    "verify_tokens": lambda: judged(sd.verify_tokens),
    "verify_tree": lambda: judged(sd.verify_tree),
}


def guesses(draft):
    session = draft.start([0, 1, 0, 1])
    session.commit([0])
    return session.propose(3, sd.SeededRandom(0)).tokens


def chosen(policy):
    lengths = []
    for _ in range(3):
        lengths.append(policy.next_k())
        k = lengths[-1]
        policy.observe(sd.Round((1,) * k, k, (1,) * (k + 1)))
    return lengths


def judged(rule):
    return rule(np.array([[0.5, 0.5]]), sd.Proposal(()), sd.SeededRandom(0))


def test_every_public_name_is_in_the_list_of_what_is_called_alone():
    assert sorted(ALONE) == sorted(sd.__all__)


@pytest.mark.parametrize("name", [name for name, call in ALONE.items() if call])
def test_defaults_alone(name):
    """A default that was never used may name what is not there."""
    ALONE[name]()


def required(function):
    parameters = inspect.signature(function).parameters.values()
    return [
        p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD
    ]


def test_methods_with_defaults_alone():
    """Those of what the calls above return."""
    found = sd.generate(TARGET, [0], max_new_tokens=3)
    assert found.metrics.emitted == 3
    model = sd.NGramModel.fit([[0, 1, 2, 0, 1]], order=2, vocab_size=3)
    assert model.start().extend([0]).shape == (1, 3)
    records = policy_records(
        TARGET, OTHER, {"fixed": (sd.ModelDraft, 2)}, {"a": [0]}, max_new_tokens=4
    )
    assert len(records) == 1
    assert required(sd.generate) == ["target", "prompt", "max_new_tokens"]
    assert required(sd.stream) == required(sd.generate)
    assert required(sd.Engine) == ["target", "tokenizer"]


# Flags that no other test turns one by one.


TINY = sd.train_pair(["a cat sat on a mat, a cat sat."] * 2, merges=3)
FLAGS = [
    ["--draft", "lookup"],
    ["--k", "3"],
    ["--prompts", "2"],
    ["--max-tokens", "9"],
    ["--temperature", "0.5"],
    ["--seed", "3"],
    ["--repeats", "2"],
    ["--model", "other.npz"],
]


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: flags[0])
def test_every_flag_of_bench_changes_what_is_measured(flags, monkeypatch, tmp_path):
    other = sd.train_pair(["a dog sat on a cat, a dog sat."] * 2, merges=4)
    other.save(tmp_path / "other.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "book_pair", lambda: TINY)
    seen = []

    def measured(target, settings, prompts, **options):
        del options["progress"]
        drafts = [(each.name, each.k) for each in settings]
        seen.append((target.vocab_size, drafts, len(prompts), options))
        return []

    monkeypatch.setattr(command, "measure_speeds", measured)
    for given in ([], flags):
        options = cli._parser().parse_args(["bench", *given])
        command.speeds(options, lambda what: None)
    before, after = seen
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["-o", "there.npz"],
        ["--prompts", "mine.txt"],
        ["--max-tokens", "9"],
        ["--temperature", "0.5"],
        ["--ngram", "n.npz"],
        ["--compiled"],
    ],
    ids=lambda flags: flags[0],
)
def test_every_flag_of_distill_reaches_what_distils(
    flags, monkeypatch, tmp_path, capsys
):
    pytest.importorskip("tokenizers", reason="real models need the extra llm")
    from specdec_lib.llama import command as real

    (tmp_path / "mine.txt").write_text("One prompt\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    seen = []

    def distilled(name, prompts, *, progress, **options):
        seen.append({"prompts": len(prompts), **options})
        return "x.npz", types.SimpleNamespace(texts=[], tokens=0)

    monkeypatch.setattr(real, "distill", distilled)
    for given in ([], flags):
        assert cli.main(["models", "distill", "smollm2", *given]) == 0
    assert capsys.readouterr().out.startswith("x.npz: 0 answers")
    before, after = seen
    assert [name for name in before if before[name] != after[name]] == [
        {"o": "path", "max": "max_new_tokens"}.get(name, name)
        for name in [flags[0].strip("-").partition("-")[0]]
    ]
