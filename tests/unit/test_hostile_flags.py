"""Every flag of every command that takes a number or a name, given rubbish.

The parsers are asked for their flags, so that none is left out. Each ends in one line
on standard error that names the flag, and exit code 2, before any work.
"""

from __future__ import annotations

import pytest
from library_text import commands

from specdec_lib import bench, cli
from specdec_lib.pair import train_pair

TEXT = "The cat sat on the mat. The dog sat on the cat. " * 9
WORDS = ["", " ", "word", "1,5", "0x10", "\u00bd", "1 2", "None", "\0", "a" * 5000]
NO_INTEGERS = [*WORDS, "1.5", "1e3", "nan", "inf", "-1", "9" * 5000]
NO_NUMBERS = [*WORDS, "nan", "inf", "-inf", "-1", "1e400", "-1e-9", "9" * 5000]
NO_CHOICES = ["", " ", "word", "KNESER-NEY", "kneser", "\0", "a" * 5000]
# Where 0 is none either, though it is a whole number or a number.
ZERO = {
    "--top-k", "--top-p", "--breaker-seconds", "--breaker-failures", "--draft-seconds",
    "--target-seconds", "--deadline", "--workers-in-flight", "--max-body",
    "--max-body-seconds", "--max-prompt-characters", "--max-prompt-tokens", "--max-k",
    "--max-new-tokens", "--max-stops", "--max-stop-characters", "--max-connections",
}  # fmt: skip
# Numbers that are too large, where there is a bound.
TOO_LARGE = {
    "--order": "9", "--draft-order": "9", "--top-p": "1.01", "--port": "65536",
    "--k": str(10**30),
}  # fmt: skip
UNBOUND = {"generate", "bench", "sweep"}  # whose k is bounded by what is left to write


class Reached(BaseException):
    """Work was about to begin."""


def stop(*given, **named):
    raise Reached


TYPED = [
    (command, action)
    for command, parser in commands().items()
    for action in parser._actions
    if action.option_strings and action.nargs != 0
    if action.type is not None or action.choices is not None
]


def values_of(command, action):
    """What the flag must refuse."""
    flag = action.option_strings[-1]
    if action.choices is not None:
        return NO_CHOICES
    values = list(NO_NUMBERS if action.type is float else NO_INTEGERS)
    least_is_1 = action.type is cli._positive or getattr(
        action.type, "__name__", ""
    ).startswith("whole number, or")
    if flag in ZERO or least_is_1:
        values.append("0")
    if flag in TOO_LARGE and not (flag == "--k" and command in UNBOUND):
        values.append(TOO_LARGE[flag])
    return values


def test_the_flags_that_are_tried():
    """Those of every command; and of each kind of value some."""
    assert {command for command, _ in TYPED} == {
        "generate", "train", "models distill", "bench", "serve", "sweep"
    }  # fmt: skip
    assert len(TYPED) >= 60
    assert {float, int} <= {action.type for _, action in TYPED}


@pytest.fixture
def bases(tmp_path, monkeypatch):
    """Each command as it would run, up to where its work would begin."""
    corpus, pair, out = (tmp_path / name for name in ("cats.txt", "cats.npz", "out"))
    corpus.write_text(TEXT, encoding="utf-8")
    train_pair([TEXT], order=2, merges=3).save(pair)
    (tmp_path / "baseline.json").touch()
    monkeypatch.setattr("specdec_lib.cli.compare", stop)
    monkeypatch.setattr("specdec_lib.pair.Pair.save", stop)
    monkeypatch.setattr("specdec_lib.llama.command.distill", stop)
    monkeypatch.setattr("specdec_lib.scale.command.run", stop)
    monkeypatch.setattr("specdec_lib.bench.command.measure_speeds", stop)
    monkeypatch.setattr("specdec_lib.service.process.listen", stop)
    monkeypatch.setattr(bench.suite, "read_baseline", lambda path: {})
    monkeypatch.setattr(bench.suite, "subprocess", None)
    of_pair = ["--model", str(pair)]
    training = ["--corpus", str(corpus), "--merges", "3"]
    bases = {
        "generate": (["generate"], of_pair, training),
        "train": (["train", "-o", str(out)], [], training),
        "models distill": (["models", "distill", "smollm2"], [], []),
        "bench": (["bench"], of_pair, of_pair),
        "serve": (["serve"], of_pair, of_pair),
        "sweep": (["sweep", "-o", str(out), "--prompts", "1"], of_pair, training),
    }
    gate = ["bench", "--gate", str(tmp_path / "baseline.json")]

    def base(command, action):
        if command == "bench" and action.dest in ("runs", "blocks", "plant"):
            return gate
        start, plain, train = bases[command]
        trains = command == "train" or action.dest in cli.TRAINING_FLAGS
        return [*start, *(train if trains else plain)]

    return base


def needs(command):
    if command == "serve":
        for name in ("fastapi", "uvicorn", "prometheus_client", "pybreaker"):
            pytest.importorskip(name, reason="the service needs the extra serve")
    if command == "models distill":
        pytest.importorskip("tokenizers", reason="real models need the extra llm")


@pytest.mark.parametrize(
    "command, action", TYPED, ids=lambda x: getattr(x, "option_strings", [x])[-1]
)
def test_rubbish(bases, capsys, tried, command, action):
    needs(command)
    flag = action.option_strings[-1]
    values = values_of(command, action)
    for value in values:
        try:
            code = cli.main([*bases(command, action), f"{flag}={value}"])
        except SystemExit as ended:
            code = ended.code
        except Reached:
            pytest.fail(f"{command} {flag}={value[:40]!r} was taken")
        told = capsys.readouterr()
        assert code == 2, (value[:40], told)
        assert told.out == ""
        assert told.err.count("\n") == 1, told.err
        assert told.err.startswith("specdec")
        assert flag in told.err or (action.option_strings[0] + "/") in told.err, (
            told.err
        )
        assert len(told.err) < 700
    tried("flags with rubbish", len(values))


def test_flags_that_are_fine_reach_the_work(bases):
    """So that what is refused above is refused for its value alone."""
    assert bases("generate", TYPED[0][1])
    for command, action in TYPED:
        if command in ("serve", "models distill"):
            continue
        value = action.choices[0] if action.choices else "2"
        value = "1" if action.dest == "top_p" else value
        if action.dest in ("draft", "kind"):
            continue
        with pytest.raises((Reached, AttributeError)):  # None has no run
            cli.main([*bases(command, action), f"{action.option_strings[-1]}={value}"])
