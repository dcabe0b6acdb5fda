"""`specdec generate` with a real model: on a tiny file, and on SmolLM2 where it is."""

import io
import json
import sys

import pytest
from llama_kit import toy, write_toy

import specdec_lib as sd
from specdec_lib import cli, llama
from specdec_lib.llama import command

pytest.importorskip("tokenizers", reason="tokenizers is not installed")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_toy(path, toy(3, vocab_size=90, context_window=160))
    return path


def report(capsys, *arguments):
    assert cli.main(["generate", "--json", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_streamed_answer_and_its_figures(capsys, path):
    arguments = ["--model", path, "--prompt", "abcabcabc", "--temperature", 0]
    assert cli.main(["generate", *map(str, arguments), "--max-tokens", "40"]) == 0
    out = capsys.readouterr().out
    model, tokenizer = llama.load(path)
    prompt = tokenizer.encode("abcabcabc").tolist()
    greedy = sd.Sampler(temperature=0)
    plain = sd.generate(model, prompt, max_new_tokens=40, sampler=greedy, stop_ids=[0])
    assert out.startswith(tokenizer.decode(plain.tokens) + "\n")
    for figure in ("tokens per target call", "acceptance rate", "T(2)/T(1)"):
        assert figure in out
    assert "The outputs agree" in out


def test_the_figures_add_up(capsys, path):
    result = report(
        capsys, "--model", path, "--prompt", "abcabc", "--temperature", 0, "--k", 4
    )
    guessed, plain = result["speculative"], result["plain"]
    assert result["same_tokens"]
    assert guessed["text"] == plain["text"]
    assert plain["rounds"] == plain["tokens"] == guessed["tokens"]
    assert guessed["tokens_per_call"] == guessed["tokens"] / guessed["rounds"]
    seconds = (side["seconds_per_token"] for side in (plain, guessed))
    assert result["speedup"] == pytest.approx(next(seconds) / next(seconds))
    assert result["predicted_speedup"] > 0


def test_a_slow_terminal_is_not_counted(monkeypatch, path):
    """The answer with guesses is shown and the other is not: by a clock that moves by
    100 where a piece is shown, and by 1 where it is read, the rounds alone count."""
    now = [0.0]

    def clock():
        now[0] += 1.0
        return now[0]

    def show(piece):
        now[0] += 100.0

    monkeypatch.setattr(command, "perf_counter", clock)
    found = command.generate(str(path), "abcabc", sampler=sd.Sampler(0), show=show, k=3)
    for side in (found["speculative"], found["plain"]):
        assert side["rounds"] <= side["seconds"] <= side["rounds"] + 1


@pytest.mark.parametrize(
    "flags", [["--max-tokens", 2], ["--seed", 5], ["--top-k", 1], ["--top-p", 0.1]]
)
def test_every_flag_changes_the_answer(capsys, path, flags):
    texts = [
        report(capsys, "--model", path, "--prompt", "abc", *more)["plain"]["text"]
        for more in ([], flags)
    ]
    assert texts[0] != texts[1]


def test_k_changes_the_rounds(capsys, path):
    rounds = {
        report(
            capsys, "--model", path, "--prompt", "ab" * 9, "--temperature", 0, *flags
        )["speculative"]["drafted"]
        for flags in (["--k", 1], ["--k", 12])
    }
    assert len(rounds) == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--prompt", "a" * 160],
            "prompt must leave room in the context window of 160",
        ),
        (["--k", "160"], "k must be less than the context window of 160"),
        (["--repeats", "2"], "--repeats does not go with a real model"),
        (["--draft-temperature", "1"], "--draft-temperature does not go with a real"),
        (["--order", "3"], "--order trains a model"),
    ],
)
def test_flags_that_do_not_fit(capsys, path, flags, message):
    assert cli.main(["generate", "--model", str(path), *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_flags_of_real_models_alone(capsys):
    for flag in ("--compiled", "--no-chat"):
        assert cli.main(["generate", flag, "--max-tokens", "5"]) == 2
        assert f"{flag} is for a real model" in capsys.readouterr().err


def test_a_model_that_is_not_here(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path))
    assert cli.main(["generate", "--model", "smollm2"]) == 2
    assert "specdec models get smollm2" in capsys.readouterr().err
    assert cli.main(["generate", "--model", str(tmp_path / "none.gguf")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_a_package_that_is_not_here(capsys, path, monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert cli.main(["generate", "--model", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.endswith(
        "this needs threadpoolctl: pip install 'specdec_lib[llm]'\n"
    )
    assert captured.out == ""


def test_progress_leaves_the_answer_alone_on_a_terminal(monkeypatch, path):
    """One stream for both, as in a terminal: nothing is wiped once the answer began."""
    both = io.StringIO()
    both.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    flags = ["--model", path, "--prompt", "abcabcabc", "--temperature", 0]
    assert cli.main(["generate", *map(str, flags)]) == 0
    progress, answer, then, table = both.getvalue().rsplit("\r\x1b[K", 3)
    assert progress.endswith("measuring what a call costs ...")
    assert then == "the same without guesses ..."
    assert table.startswith("\n    ")
    model, tokenizer = llama.load(path)
    prompt = tokenizer.encode("abcabcabc").tolist()
    greedy = sd.Sampler(temperature=0)
    plain = sd.generate(model, prompt, max_new_tokens=60, sampler=greedy, stop_ids=[0])
    assert answer == tokenizer.decode(plain.tokens) + "\n"


def test_a_cut_answer_says_so(capsys, path):
    flags = ["generate", "--model", str(path), "--prompt", "abc", "--temperature", "0"]
    assert cli.main([*flags, "--max-tokens", "3"]) == 0
    assert "cut after 3 tokens: see --max-tokens" in capsys.readouterr().out
    assert cli._cut({"finish_reason": "stop", "tokens": 3}) == []


def test_the_real_model(capsys, smollm2_path):
    """Names of days come back as they were asked for; chat and raw text differ."""
    prompt = "Write the days of the week, beginning with Monday."
    flags = ["--model", smollm2_path, "--prompt", prompt, "--temperature", 0]
    result = report(capsys, *flags, "--max-tokens", 24)
    assert result["same_tokens"]
    assert "Tuesday" in result["speculative"]["text"]
    raw = report(capsys, *flags, "--max-tokens", 8, "--no-chat")
    assert not result["plain"]["text"].startswith(raw["plain"]["text"])
