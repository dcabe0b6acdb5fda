"""Every flag of every command, and the test that shows it to change something.

``SHOWN`` is complete by construction: the parsers are asked for their flags, and the
named tests are looked for. Those that no other test turns are turned here.
"""

from __future__ import annotations

import ast
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from library_text import commands, complete_commands, own_flags

import specdec_lib as sd
from specdec_lib import bench, cli
from specdec_lib.scale import command as sweeping

TESTS = Path(__file__).parents[1]
HERE = "unit/test_every_flag::"
CLI, FIGURES = "unit/test_cli::", "unit/test_faults_figures::"
GATE, REAL, ANSWERS = (
    "unit/test_bench_gate::",
    "llama/test_command::",
    "llama/test_answers::",
)
SWEEP, TRACK = "scale/test_command::", "scale/test_tracking::"
SERVE, FAULTS = "service/test_process::", "service/test_breakers::"


def flags_of(names: str, test: str) -> dict[str, str]:
    return {f"--{name}": test for name in names.split()}


TRAINING = "corpus order draft-order merges smoothing"
SHOWN: dict[str, dict[str, str]] = {
    "": {"--version": CLI + "test_version_and_help"},
    "generate": {
        **flags_of(
            "prompt max-tokens k temperature draft-temperature top-k top-p seed",
            CLI + "test_every_decoding_flag_changes_the_result",
        ),
        **flags_of(TRAINING, HERE + "test_flags_of_training_reach_what_trains"),
        **flags_of("model repeats json", HERE + "test_the_other_flags_of_generate"),
        **flags_of(
            "compiled no-chat history no-history",
            HERE + "test_flags_of_a_real_model_reach_it",
        ),
    },
    "train": {
        "--corpus": HERE + "test_flags_of_training_reach_what_trains",
        **flags_of(
            "order draft-order merges smoothing",
            CLI + "test_every_training_flag_changes_the_model",
        ),
        "--output": HERE + "test_the_other_flags_of_train",
        "--json": CLI + "test_train_reports_what_it_made",
    },
    "models list": {},
    "models get": {
        "name": "llama/test_fetch::test_the_command",
        "--from": "llama/test_fetch::test_the_command",
    },
    "models distill": {
        "model": ANSWERS + "test_the_command",
        "--output": ANSWERS + "test_a_file_that_is_named",
        "--seed": ANSWERS + "test_the_seed_changes_the_answers",
        **flags_of(
            "prompts max-tokens temperature ngram compiled",
            FIGURES + "test_every_flag_of_distill_reaches_what_distils",
        ),
    },
    "bench": {
        **flags_of(
            "draft k prompts max-tokens temperature seed repeats model",
            FIGURES + "test_every_flag_of_bench_changes_what_is_measured",
        ),
        "--compiled": HERE + "test_compiled_reaches_what_loads",
        "--output": GATE + "test_the_table_its_csv_and_its_figure",
        "--json": GATE + "test_greedy_texts_agree_and_the_json_says_so",
        **flags_of("gate record", GATE + "test_the_gate_as_a_user_runs_it"),
        **flags_of("runs blocks plant", HERE + "test_flags_of_the_gate_reach_its_runs"),
    },
    "serve": {
        **flags_of(
            "host port model name compiled k otlp log-text breaker-failures "
            "breaker-seconds draft-seconds target-seconds draft-only-when-target-fails",
            HERE + "test_every_flag_of_serve_reaches_its_part",
        ),
        **flags_of(
            "workers-in-flight queue deadline grace max-body max-body-seconds "
            "max-prompt-characters max-prompt-tokens max-new-tokens max-k max-stops "
            "max-stop-characters max-connections",
            SERVE + "test_every_flag_changes_its_setting",
        ),
    },
    "sweep": {
        **flags_of(
            "order merges corpus top-k top-p rule max-tokens prompt-tokens draft seed "
            "text",
            SWEEP + "test_every_flag_changes_the_records",
        ),
        **flags_of(
            "draft-order smoothing model k temperature prompts timed workers ray "
            "track experiment run-name output",
            HERE + "test_every_flag_of_sweep_reaches_its_part",
        ),
        **flags_of(
            "kind compiled",
            HERE + "test_flags_of_a_sweep_of_a_real_model_reach_it",
        ),
        "--json": SWEEP + "test_the_records_are_those_of_the_chapters",
    },
    "grade": {"file": "unit/test_exercises::test_the_command_grades_several_files"},
}  # fmt: skip


def test_no_flag_is_left_out():
    asked = {"", *complete_commands()}
    asked |= {command for command in commands() if own_flags(command)}
    found = {command: set(own_flags(command)) for command in asked}
    assert {command: set(shown) for command, shown in SHOWN.items()} == found


@pytest.mark.parametrize(
    "test", sorted({t for s in SHOWN.values() for t in s.values()})
)
def test_the_tests_that_are_named_exist_and_turn_the_flags(test):
    """By their source: each flag stands in the file, or comes from the table of the
    service's flags, which its test goes through."""
    path, name = test.split("::")
    text = (TESTS / f"{path}.py").read_text(encoding="utf-8")
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    assert name in [function.name for function in functions]
    flags = {f for shown in SHOWN.values() for f, t in shown.items() if t == test}
    for flag in (f for f in flags if f.startswith("--")):
        short = {"--output": '"-o"'}.get(flag, f'"{flag}"')
        through = "in FLAGS" in text and test.startswith(SERVE)
        assert short in text or f'"{flag}"' in text or through, flag


# What the flags reach, where the work itself is tested elsewhere.


class Reached(Exception):
    """Ends a command where its work would begin."""


def plain(value):
    """``value`` where it can be compared, else the name of its type."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if value is None or isinstance(value, (str, int, float, sd.Sampler)):
        return value
    return type(value).__name__


def reached(monkeypatch, arguments, *places):
    """What the command hands to the functions at ``places``; the last one ends it."""
    given = []

    def recorder(place):
        def record(*arguments, **options):
            given.append((place, plain(arguments), plain(options)))
            if place == places[-1]:
                raise Reached

        return record

    with monkeypatch.context() as patch:
        for place in places:
            patch.setattr(place, recorder(place))
        with contextlib.suppress(Reached):
            cli.main([*map(str, arguments)])
    assert [place for place, *_ in given] == [*places]
    return given


def changes(monkeypatch, before, flags, *places):
    return reached(monkeypatch, before, *places) != reached(
        monkeypatch, [*before, *flags], *places
    )


TRAINED = [["--order", "3"], ["--draft-order", "3"], ["--merges", "5"]]
TRAINED += [["--smoothing", "add-k"], ["--corpus", __file__]]


@pytest.mark.parametrize("command", (["generate"], ["train", "-o", "x.npz"]))
@pytest.mark.parametrize("flags", TRAINED, ids=lambda flags: flags[0])
def test_flags_of_training_reach_what_trains(command, flags, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    place = "specdec_lib.cli.train_pair"

    assert not changes(monkeypatch, command, [], place)
    assert changes(monkeypatch, command, flags, place)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for name, text in (("a", "a cat sat on a mat. "), ("b", "one two, three four. ")):
        sd.train_pair([text * 20], merges=8).save(folder / f"{name}.npz")
    return folder


def test_the_other_flags_of_generate(saved, capsys):
    def out(*flags):
        command = ["generate", "--model", str(saved / "a.npz"), "--max-tokens", "9"]
        assert cli.main([*command, *flags]) == 0
        return capsys.readouterr().out

    def report(*flags):
        return json.loads(out("--json", *flags))

    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(out())
    assert report()["repeats"] == 5
    assert report("--repeats", "2")["repeats"] == 2
    other = report("--model", str(saved / "b.npz"))
    assert report()["plain"]["text"] != other["plain"]["text"]


def test_the_other_flags_of_train(tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("a cat sat on a mat. " * 9, encoding="utf-8")
    for name in ("one.npz", "two.npz"):
        command = ["train", "--corpus", str(path), "--output", str(tmp_path / name)]
        assert cli.main(command) == 0
        assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    "flags",
    [["--compiled"], ["--no-chat"], ["--history", "a.answers"], ["--no-history"]],
    ids=lambda flags: flags[0],
)
def test_flags_of_a_real_model_reach_it(flags, monkeypatch):
    pytest.importorskip("tokenizers", reason="real models need the extra llm")
    place = "specdec_lib.llama.command.generate"
    command = ["generate", "--model", "smollm2", "--json"]
    ((_, _, before),) = reached(monkeypatch, command, place)
    ((_, _, after),) = reached(monkeypatch, [*command, *flags], place)
    assert sum(before[name] != after[name] for name in before) == 1


def test_compiled_reaches_what_loads(monkeypatch):
    pytest.importorskip("tokenizers", reason="real models need the extra llm")
    place = "specdec_lib.llama.targets.load_target"
    assert changes(monkeypatch, ["bench", "--model", "smollm2"], ["--compiled"], place)


@pytest.mark.parametrize(
    "flags", [["--runs", "2"], ["--blocks", "3"], ["--plant", "0.2"]], ids=str
)
def test_flags_of_the_gate_reach_its_runs(flags, monkeypatch):
    baseline = str(TESTS.parent / "bench" / "baseline.json")
    seen = []

    def fresh(*arguments, progress, **options):
        seen.append((arguments, options))
        raise Reached

    monkeypatch.setattr(bench.suite, "fresh_runs", fresh)
    for more in ([], flags):
        with pytest.raises(Reached):
            cli.main(["bench", "--gate", baseline, *more])
    assert seen[0] != seen[1]


SERVED = [["--host", "::1"], ["--port", "8001"], ["--model", "smollm2"]]
SERVED += [["--name", "x"], ["--compiled"], ["--k", "3"], ["--log-text"]]
SERVED += [["--otlp", "http://localhost:1"], ["--breaker-failures", "2"]]
SERVED += [["--breaker-seconds", "9"], ["--draft-seconds", "3"]]
SERVED += [["--target-seconds", "3"], ["--draft-only-when-target-fails"]]


@pytest.mark.parametrize("flags", SERVED, ids=lambda flags: flags[0])
def test_every_flag_of_serve_reaches_its_part(flags, monkeypatch):
    """The place it listens at, the model, the settings, the log, the faults; all of
    it real but for the model, the socket and the loop."""
    pytest.importorskip("fastapi", reason="the service needs the extra serve")
    pytest.importorskip("uvicorn", reason="the service needs the extra serve")
    pytest.importorskip("opentelemetry.sdk", reason="it needs the extra serve")
    from specdec_lib.service import breakers, models, process, tracing

    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setattr("specdec_lib.service.logs.configure", lambda stream: None)
    pair = sd.train_pair(["a cat sat on a mat. "], merges=2)
    engine = sd.Engine(pair.target, pair.tokenizer, pair.draft)
    seen = []

    class Socket:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def getsockname(self):
            return "127.0.0.1", 1

    def listen(*place):
        seen.append(place)
        return Socket()

    def load(model, **options):
        seen.append((model, options))
        return "book", engine

    def faults(*arguments, **options):
        seen.append((arguments, options))
        return made(*arguments, **options)

    def run(engine, settings, listening, hooks):
        seen.append(settings)
        seen.extend((type(hook).__name__, plain(vars(hook))) for hook in hooks)

    made = breakers.Faults
    monkeypatch.setattr(breakers, "Faults", faults)
    monkeypatch.setattr(process, "listen", listen)
    monkeypatch.setattr(models, "load_engine", load)
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(tracing, "exporter", lambda url: url)
    monkeypatch.setattr(tracing, "Tracing", lambda url: SimpleNamespace(url=url))
    assert cli.main(["serve"]) == 0
    before, seen = seen, []
    assert cli.main(["serve"]) == 0
    assert seen == before
    seen = []
    assert cli.main(["serve", *flags]) == 0
    assert seen != before


SWEPT = [["--draft-order", "3"], ["--smoothing", "add-k"], ["--model", "b.npz"]]
SWEPT += [["--k", "3"], ["--temperature", "0.5"], ["--prompts", "2"], ["--timed"]]
SWEPT += [["--workers", "2"], ["--ray", "local"], ["--output", "other.jsonl"]]
SWEPT += [["--track", "a.db"]]


@pytest.mark.parametrize("flags", SWEPT, ids=lambda flags: flags[0])
def test_every_flag_of_sweep_reaches_its_part(flags, monkeypatch, tmp_path):
    """What is swept, where, and how it is kept."""
    monkeypatch.chdir(tmp_path)
    if flags[0] == "--track":
        _tracked(monkeypatch, flags)
        return
    places = [f"{sweeping.__name__}.{part}" for part in ("pair_sweep", "run")]
    before = ["sweep", "-o", "x.jsonl"]
    assert not changes(monkeypatch, before, [], *places)
    assert changes(monkeypatch, before, flags, *places)


def _tracked(monkeypatch, flags):
    pytest.importorskip("mlflow", reason="tracking needs the extra track")
    sweep = f"{sweeping.__name__}.pair_sweep"
    places = sweep, "specdec_lib.tracking.start_run"
    before = ["sweep", "-o", "x.jsonl", *flags]
    for more in (["--experiment", "e"], ["--run-name", "n"], ["--track", "b.db"]):
        assert changes(monkeypatch, before, more, *places)


@pytest.mark.parametrize("flags", (["--compiled"], ["--kind", "open"]), ids=str)
def test_flags_of_a_sweep_of_a_real_model_reach_it(flags, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    place = f"{sweeping.__name__}.real_sweep"
    before = ["sweep", "-o", "x.jsonl", "--model", "smollm2"]
    assert changes(monkeypatch, before, flags, place)
