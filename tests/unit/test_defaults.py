"""Everything public that has defaults, called with them alone.

``CALLS`` is complete by construction: the modules are asked for what they export and
what of it has parameters that may be left out. A call gives the others and no more,
which is checked against the signature. What has no such parameter is always called so.
Commands: ``COMMANDS``. Chapters call nothing but these, and each of them is run whole,
by ``tools/run_tests.py notebooks``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from faults_kit import OTHER, TARGET
from library_text import complete_commands
from llama_kit import toy
from matplotlib.figure import Figure

import specdec_lib as sd
from specdec_lib import cli, experiments, scale, text, widgets
from specdec_lib.widgets.exhibits import Exhibit
from specdec_lib.widgets.tokens import TokenNote

TESTS = Path(__file__).parents[1]
# Beside whatever has an __all__, modules that are public as they are.
WHOLE = ("theory", "comparison", "plots", "text", "prompts", "tracking", "metrics")
WHOLE += ("engine", "ngram")


def optional(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is not p.empty]


def public():
    """Each public function, class and method with defaults, by its name."""
    names = [m.name for m in pkgutil.walk_packages(sd.__path__, "specdec_lib.")]
    for name in ["specdec_lib", *names]:
        short = name.removeprefix("specdec_lib.")
        if short.startswith(("huggingface", "__main__")) or "._" in name:
            continue  # needs torch; tests/llama/test_huggingface has its defaults
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        exported = getattr(module, "__all__", None)
        if exported is None and short not in WHOLE:
            continue
        for each in exported if exported is not None else vars(module):
            value = getattr(module, each)
            home = str(getattr(value, "__module__", ""))
            if each.startswith("_") or not home.startswith("specdec_lib"):
                continue
            if exported is None and home != name:
                continue
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            path = f"{home.removeprefix('specdec_lib.')}.{value.__qualname__}"
            if "<locals>" in path:
                continue
            if optional(value):
                yield path, value
            if inspect.isclass(value):
                for method, found in vars(value).items():
                    function = inspect.unwrap(getattr(found, "__func__", found))
                    if method.startswith("_") or not inspect.isfunction(function):
                        continue
                    if optional(function):
                        yield f"{path}.{method}", getattr(value, method)


PUBLIC = dict(public())


def given(*arguments, **options):
    return arguments, options


@cache
def records():
    drafts = {"d": OTHER}
    sweep = experiments.Sweep(
        TARGET, drafts, {"a": [0], "b": [1]}, [1, 2], (0.5, 1.0), max_new_tokens=20
    )
    return sweep.run()


def sweep():
    return experiments.Sweep(TARGET, {"d": OTHER}, {"a": [0]}, [1], max_new_tokens=9)


def countable():
    """One that can be sent to another process."""
    models = counted(), {"d": counted()}
    return experiments.Sweep(*models, {"a": [0]}, [1], max_new_tokens=9)


def small():
    return sd.train_pair(["a cat sat on a mat, a cat sat. "] * 9, merges=4)


def counted():
    return sd.NGramModel.fit([[0, 1, 2, 0, 1]], order=2, vocab_size=3)


def figure(*values):
    drawn = Figure(figsize=(1, 1))
    drawn.add_subplot().plot([0, 1])
    return drawn


def told(*values):
    return widgets.ToldText("a", [("b", "plain")], "c")


def exhibit(value):
    return Exhibit("a", "b", figure(), "what it shows")


def described(*values):
    return f"A figure of {values}, and forty letters more of what is in it."


def curve(n):
    return 1.0 + 0.1 * n


def engine():
    pair = small()
    return sd.Engine(pair.target, pair.tokenizer)


def half(tokens):
    return lambda: sum(range(2000 * tokens))


TRACKED = "scale/test_tracking::test_with_defaults_alone"

CALLS = {
    "bench.noise.judge": lambda: given([0.1, 0.11, 0.09, 0.1]),
    "bench.noise.power": lambda: given(0.05, 0.02, 9),
    "bench.noise.share_found": lambda: given([0.1, 0.2, 0.15, 0.12], 3),
    "bench.noise.pairs_needed": lambda: given(0.02),
    "bench.speeds.Setting": lambda: given(),
    "bench.speeds.measure_speeds": lambda: given(
        TARGET, [], {"a": [0]}, max_new_tokens=3
    ),
    "bench.suite.run_suite": lambda: given(),
    "bench.suite.gate": "unit/test_bench_gate::test_the_same_again_is_fine",
    "bench.timing.measure": lambda: given({"a": half(1), "b": half(2)}, 2),
    "bench.timing.measure_pairs": lambda: given(half(1), half(2), pairs=2),
    "bench.timing.planted": lambda: given(half(1), 0.1),
    "comparison.compare": lambda: given(
        TARGET, [0], draft=sd.ModelDraft(OTHER), max_new_tokens=4
    ),
    "comparison.measure_cost_curve": lambda: given(counted()),
    "decoding.generate": lambda: given(TARGET, [0], max_new_tokens=3),
    "decoding.stream": lambda: given(TARGET, [0], max_new_tokens=3),
    "draft_length.Calibration": lambda: given((0.5,), (0.2, 0.9)),
    "draft_length.Calibration.confidence": lambda: given(np.array([0.2, 0.8])),
    "draft_length.Calibration.fit": lambda: given([0.1, 0.6, 0.9], [0, 1, 1]),
    "draft_length.PayingLength": lambda: given(curve),
    "draft_length.RecentAcceptance": lambda: given(0.1),
    "draft_length.TrueChance": lambda: given(TARGET),
    "draft_length.UpAndDown": lambda: given(),
    "draft_length.break_even": lambda: given(0.7, 0.1),
    "draft_length.copies_that_pay": lambda: given(curve),
    "draft_length.judged_guesses": lambda: given(TARGET, sd.ModelDraft(OTHER), [[0]]),
    "drafts.automaton.SuffixAutomaton": lambda: given(),
    "drafts.lookup.PromptLookup": lambda: given(),
    "drafts.mixtures.CacheModel": lambda: given(OTHER),
    "drafts.model.ModelDraft": lambda: given(OTHER),
    "drafts.model.ModelDraft.chance": lambda: given(np.array([0.2, 0.8])),
    "drafts.model.Proposal": lambda: given((1,)),
    "drafts.model.largest_probability": lambda: given(np.array([0.2, 0.8])),
    "drafts.suffixes.SuffixDraft": lambda: given(),
    "drafts.suffixes.SuffixHistory": lambda: given(),
    "drafts.trees.TreeDraft": lambda: given(OTHER),
    "engine.Engine": lambda: given(small().target, small().tokenizer),
    "engine.Engine.complete": lambda: given(engine(), "a cat", max_new_tokens=3),
    "engine.Engine.stream": lambda: given(engine(), "a cat", max_new_tokens=3),
    "engine.Engine.decoder": lambda: given(engine()),
    "experiments.Sweep": lambda: given(TARGET, {"d": OTHER}, {"a": [0]}, [1]),
    "experiments.Sweep.run": lambda: given(sweep()),
    "experiments.acceptance_along": lambda: given(TARGET, OTHER, [0], [1, 2]),
    "experiments.policy_records": lambda: given(
        TARGET, OTHER, {"fixed": (sd.ModelDraft, 2)}, {"a": [0]}
    ),
    "experiments.sample_prompts": lambda: given(TARGET, count=2, length=3),
    "experiments.sample_texts": lambda: given(TARGET, tokens=5),
    "llama.config.Config": lambda: given(9, 8, 4, 4, 1, 2, 1, 2),
    "llama.load": "llama/test_command::test_a_streamed_answer_and_its_figures",
    "llama.model.LlamaModel": lambda: given(toy().config, toy().weights()),
    "metrics.Round": lambda: given((), 0, (1,)),
    "models.FunctionModel": lambda: given(lambda t: [0.0], 1),
    "ngram.NGramModel.fit": lambda: given([[0, 1, 0]], order=2, vocab_size=2),
    "ngram.NGramModel.greedy": lambda: given(counted()),
    "ngram.NGramModel.log_prob": lambda: given(counted(), 1),
    "ngram.NGramModel.probabilities": lambda: given(counted()),
    "ngram.NGramModel.scores": lambda: given(counted()),
    "ngram.Settings": lambda: given(2, 3),
    "pair.book_pair": lambda: given(),
    "pair.train_pair": lambda: given(["a cat sat on a mat"]),
    "plots.acceptance_against_temperature": lambda: given(records()),
    "plots.acceptance_by_position": lambda: given(records()),
    "plots.k_temperature_map": lambda: given(records(), draft_cost=0.1),
    "plots.predicted_against_observed": lambda: given(
        [{**each, "predicted": 1.5, "observed": 1.4} for each in records()]
    ),
    "plots.speedup_against_k": lambda: given(records(), draft_cost=0.1),
    "plots.tokens_against_k": lambda: given(records()),
    "prompts.Prompt": lambda: given("a", "open", "tell", "Tell me."),
    "prompts.load_prompts": lambda: given(),
    "randomness.SeededRandom": lambda: given(),
    "randomness.exact_distribution": lambda: given(lambda rng: rng.bernoulli(0.5)),
    "records.best_k_interval": lambda: given(records(), 0.1),
    "records.bootstrap_interval": lambda: given(records(), "accepted", "tested"),
    "records.call_cost": lambda: given(records()[0], 0.1),
    "records.gain_interval": lambda: given(records()[:4], records()[4:], 0.1),
    "records.summarise": lambda: given(records(), "accepted", "tested"),
    "sampling.Sampler": lambda: given(),
    "scale.costs.measure": lambda: given(countable()),
    "scale.costs.predict": lambda: given(scale.measure(countable()), 2),
    "scale.local_ray": lambda: given(),  # begun only in tests/scale, for it is slow
    "scale.run": lambda: given(sweep()),
    "service.breakers.Faults": lambda: given(),
    "text.Corpus": lambda: given((text.Document("a", "b"),)),
    "text.Tokenizer": lambda: given(),
    "text.Tokenizer.train": lambda: given(["a cat sat"]),
    "text.WordTokenizer.train": lambda: given(["a cat sat"]),
    "text.read_corpus": lambda: given(Path(__file__)),
    "text.read_text": lambda: given(Path(__file__)),
    "text.stdlib_corpus": lambda: given(),
    "theory.best_k": lambda: given(0.8, 0.1),
    "theory.best_k_by_position": lambda: given([0.9, 0.8], 0.1),
    "theory.best_k_from_tokens": lambda: given({1: 1.5, 2: 2.0}, 0.1),
    "theory.oracle_speedup": lambda: given(0.8, 3, 0.1),
    "theory.speedup": lambda: given(0.8, 3, 0.1),
    "theory.speedup_from_tokens": lambda: given(2.5, 3, 0.1),
    "tracking.Started.finish": TRACKED,
    "tracking.log_run": TRACKED,
    "tracking.read_runs": TRACKED,
    "tracking.start_run": TRACKED,
    "verification.exact.Verdict": lambda: given(0, 1),
    "widgets.decoding.live": lambda: given(small(), "a cat"),
    "widgets.exhibits.gallery": lambda: given(exhibit, ["a", "b"], label="Fault"),
    "widgets.explorer.SpeedupExplorer": lambda: given(),
    "widgets.figures.figure_grid": lambda: given(figure, [1, 2], [0.0, 1.0], described),
    "widgets.figures.figure_slider": lambda: given(
        figure, [1, 2], label="Length", describe=described
    ),
    "widgets.texts.text_grid": lambda: given(
        told, [1, 2], [0, 1], labels=("Length", "Temperature")
    ),
    "widgets.tokens.coloured_text": lambda: given(
        [TokenNote("b", "bonus", 0, 0, 0.5)], name="a"
    ),
}

COMMANDS = {
    "generate": ["generate"],
    "train": ["train", "-o", "pair.npz"],
    "models list": ["models", "list"],
    "models get": "llama/test_fetch::test_the_command",
    "models distill": "llama/test_answers::test_with_no_more_than_it_needs",
    "bench": "scale/test_command::test_with_no_more_than_it_needs",
    "sweep": "scale/test_command::test_with_no_more_than_it_needs",
    "serve": "service/test_process::test_with_no_flags_it_is_the_books_pair",
    "grade": "unit/test_exercises::test_the_command_grades_several_files",
}


def test_nothing_public_with_defaults_is_left_out():
    # The server's own parts are run by tests/service, with a real server.
    server = ("service.logs.", "service.process.")
    named = sorted(each for each in PUBLIC if not each.startswith(server))
    assert named == sorted(CALLS)


@pytest.mark.parametrize("name", [n for n, c in CALLS.items() if callable(c)])
def test_with_defaults_alone(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    function = PUBLIC[name]
    arguments, options = CALLS[name]()
    bound = inspect.signature(function).bind(*arguments, **options).arguments
    assert not set(bound) & set(optional(function))
    found = function(*arguments, **options)
    if inspect.isgenerator(found) or hasattr(found, "__next__"):
        assert list(found)
    assert [*tmp_path.iterdir()] == []


def test_no_command_is_left_out():
    assert sorted(COMMANDS) == sorted(complete_commands())


@pytest.mark.parametrize("name", [n for n, c in COMMANDS.items() if type(c) is list])
def test_a_command_with_no_more_than_it_needs(name, monkeypatch, tmp_path, capsys):
    if name.startswith("models"):
        pytest.importorskip("tokenizers", reason="real models need the extra llm")
        monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(COMMANDS[name]) == 0
    out, error = capsys.readouterr()
    assert out
    assert error == ""
    made = [path.name for path in tmp_path.iterdir()]
    assert made == (["pair.npz"] if name == "train" else [])


@pytest.mark.parametrize(
    "test", sorted({c for c in [*CALLS.values(), *COMMANDS.values()] if type(c) is str})
)
def test_what_is_called_elsewhere_is_there(test):
    path, name = test.split("::")
    tree = ast.parse((TESTS / f"{path}.py").read_text(encoding="utf-8"))
    assert name in [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
