"""The command line, run as a user runs it, and in process for its errors."""

import json
import os
import pty
import subprocess
import sys

import pytest

import specdec_lib
from specdec_lib import cli
from specdec_lib.pair import Pair

TEXT = "The cat sat on the mat. The dog sat on the cat. " * 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "cats.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "cats.npz"
    arguments = ["train", "--corpus", str(corpus), "-o", str(path), "--merges", "30"]
    assert cli.main([*arguments, "--order", "4"]) == 0
    return path


def run(*arguments):
    """The real program in a process of its own, its output in pipes."""
    return subprocess.run(
        [sys.executable, "-m", "specdec_lib", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def generate(capsys, *arguments):
    """The JSON report of `specdec generate`, in process."""
    code = cli.main(["generate", "--json", "--repeats", "1", *map(str, arguments)])
    assert code == 0
    return json.loads(capsys.readouterr().out)


def test_the_readers_first_command():
    result = run("generate", "--prompt", "The harbour", "--max-tokens", "30")
    assert result.returncode == 0
    assert result.stderr == ""  # no progress in a pipe
    assert result.stdout.startswith("The harbour")
    for name in ("tokens", "rounds", "acceptance rate", "tokens per target call"):
        assert name in result.stdout
    assert "predicts" in result.stdout  # no speed without its prediction


def test_greedy_outputs_agree_and_it_says_so(capsys, model):
    arguments = ["generate", "--model", str(model), "--temperature", "0"]
    assert cli.main([*arguments, "--max-tokens", "20"]) == 0
    assert "The outputs agree" in capsys.readouterr().out
    report = generate(capsys, "--model", model, "--temperature", "0")
    assert report["same_tokens"] is True
    assert report["speculative"]["text"] == report["plain"]["text"]
    assert report["speedup"] > 0


def test_the_figures_of_the_report_add_up(capsys, model):
    report = generate(capsys, "--model", model, "--max-tokens", 25, "--k", 3)
    for side in (report["speculative"], report["plain"]):
        assert side["tokens"] <= 25
        per_call = side["tokens"] / side["rounds"]
        assert side["tokens_per_call"] == pytest.approx(per_call)
        seconds = side["seconds_per_token"] * side["tokens"]
        assert side["seconds"] == pytest.approx(seconds)
    assert report["plain"]["rounds"] == report["plain"]["tokens"]
    assert report["plain"]["acceptance_rate"] is None
    assert 0 <= report["speculative"]["acceptance_rate"] <= 1


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        (["--prompt", "The dog"], "prompt"),
        (["--max-tokens", "7"], "speculative"),
        (["--k", "1"], "speculative"),
        (["--temperature", "0.3"], "plain"),
        (["--draft-temperature", "0"], "speculative"),
        (["--top-k", "1"], "plain"),
        (["--top-p", "0.2"], "plain"),
        (["--seed", "5"], "plain"),
    ],
)
def test_every_decoding_flag_changes_the_result(capsys, model, flags, changed):
    def essence(report):
        side = report[changed]
        if isinstance(side, dict):
            return {name: side[name] for name in ("text", "tokens", "rounds")}
        return side

    before = generate(capsys, "--model", model, "--max-tokens", 40)
    after = generate(capsys, "--model", model, "--max-tokens", 40, *flags)
    assert essence(before) != essence(after)


@pytest.mark.parametrize(
    ("flags", "of"),
    [
        (["--order", "2"], lambda pair: pair.target.order),
        (["--draft-order", "3"], lambda pair: pair.draft.order),
        (["--merges", "5"], lambda pair: pair.tokenizer.vocab_size),
        (["--smoothing", "add-k"], lambda pair: pair.target.settings.smoothing),
    ],
)
def test_every_training_flag_changes_the_model(corpus, tmp_path, flags, of):
    paths = tmp_path / "plain.npz", tmp_path / "flagged.npz"
    arguments = ["train", "--corpus", str(corpus), "-o"]
    assert cli.main([*arguments, str(paths[0])]) == 0
    assert cli.main([*arguments, str(paths[1]), *flags]) == 0
    assert of(Pair.load(paths[0])) != of(Pair.load(paths[1]))


def test_a_saved_model_gives_what_training_gives(capsys, corpus, model):
    training = ["--corpus", corpus, "--merges", 30, "--order", 4]
    trained = generate(capsys, *training, "--seed", 2)
    loaded = generate(capsys, "--model", model, "--seed", 2)
    assert trained["speculative"]["text"] == loaded["speculative"]["text"]
    assert trained["plain"]["text"] == loaded["plain"]["text"]


def test_same_seed_same_text(capsys, model):
    texts = {
        generate(capsys, "--model", model, "--seed", 9)["speculative"]["text"]
        for _ in range(2)
    }
    assert len(texts) == 1


def test_train_reports_what_it_made(capsys, corpus, tmp_path):
    path = tmp_path / "model.npz"
    arguments = ["train", "--corpus", str(corpus), "-o", str(path)]
    assert cli.main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bytes"] == path.stat().st_size
    assert (report["order"], report["draft_order"]) == (5, 2)
    assert list(tmp_path.iterdir()) == [path]  # nothing else is left lying about


def test_a_folder_is_a_corpus(capsys, corpus):
    assert generate(capsys, "--corpus", corpus.parent)["speculative"]["tokens"] > 0


BAD = {
    "no command": ([], "COMMAND"),
    "unknown command": (["bake"], "'bake'"),
    "unknown flag": (["generate", "--kk", "3"], "--kk"),
    "k is a word": (["generate", "--k", "four"], "--k"),
    "k is nothing": (["generate", "--k", "0"], "--k"),
    "k is a fraction": (["generate", "--k", "1.5"], "--k"),
    "no tokens": (["generate", "--max-tokens", "0"], "--max-tokens"),
    "negative seed": (["generate", "--seed", "-1"], "--seed"),
    "cold": (["generate", "--temperature", "-1"], "--temperature"),
    "no temperature": (["generate", "--temperature", "nan"], "--temperature"),
    "top-p": (["generate", "--top-p", "1.5"], "--top-p"),
    "top-k": (["generate", "--top-k", "0"], "--top-k"),
    "draft": (["generate", "--draft-temperature", "-1"], "--draft-temperature"),
    "order": (["generate", "--order", "9"], "--order"),
    "smoothing": (["generate", "--smoothing", "magic"], "--smoothing"),
    "no output": (["train"], "--output"),
    "no such corpus": (["generate", "--corpus", "no/such"], "no/such"),
    "no such model": (["generate", "--model", "no/such"], "no/such"),
    "no such folder": (["train", "-o", "no/such/model.npz"], "no/such"),
    "broken prompt": (["generate", "--prompt", "\udcff"], "prompt"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(capsys, case):
    arguments, named = BAD[case]
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = stop.code
    output = capsys.readouterr()
    assert code == 2
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("specdec")
    assert named in output.err


@pytest.mark.parametrize(
    "content", [b"", b"   \n\n", b"caf\xe9", b"\xff\xfe"], ids=repr
)
@pytest.mark.parametrize("flag", ["--corpus", "--model"])
def test_bad_files_are_named(capsys, tmp_path, content, flag):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    assert cli.main(["generate", flag, str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert error.count("\n") == 1


def test_training_flags_do_not_go_with_a_model(capsys, model):
    assert cli.main(["generate", "--model", str(model), "--order", "3"]) == 2
    assert "--order" in capsys.readouterr().err


def test_a_folder_is_no_place_for_a_model(capsys, corpus, tmp_path):
    assert cli.main(["train", "--corpus", str(corpus), "-o", str(tmp_path)]) == 2
    assert f"--output: {tmp_path} is a folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file(capsys, corpus, tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    path.write_bytes(b"precious")

    def full_disk(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("specdec_lib.files.np.savez", full_disk)
    assert cli.main(["train", "--corpus", str(corpus), "-o", str(path)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def test_progress_on_a_terminal(corpus, tmp_path):
    ours, theirs = pty.openpty()
    result = subprocess.run(
        [sys.executable, "-m", "specdec_lib", "train", "--corpus", str(corpus)]
        + ["-o", str(tmp_path / "model.npz")],
        stdout=subprocess.PIPE,
        stderr=theirs,
        timeout=120,
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert result.returncode == 0
    assert "training the tokenizer" in shown
    assert "counting the target's 5-grams" in shown
    assert b"training" not in result.stdout


def test_version_and_help(capsys):
    for arguments, text in (
        (["--version"], specdec_lib.__version__),
        (["--help"], "generate"),
        (["generate", "--help"], "--temperature"),
        (["train", "--help"], "--corpus"),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 0
        assert text in capsys.readouterr().out
