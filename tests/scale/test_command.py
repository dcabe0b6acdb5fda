"""``specdec sweep``: as it is run, what it reports, and what it refuses."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

import specdec_lib as sd
from specdec_lib import cli, text
from specdec_lib import experiments as ex

FLAGS = ["--k", "1", "3", "--prompts", "2", "--max-tokens", "12"]


def sweep(*flags):
    return cli.main(["sweep", *map(str, flags)])


def test_the_records_are_those_of_the_chapters(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    flags = ["--temperature", "0.5", "1", "--seed", "0", "4", "--draft", "order-3"]
    assert sweep("-o", path, *FLAGS, *flags, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    pair = sd.book_pair(draft_order=3)
    documents = text.load_corpus().held_out.documents
    documents = {d.name: pair.tokenizer.encode(d.text) for d in documents}
    expected = ex.Sweep(
        pair.target,
        {"order-3": pair.draft},
        ex.cut_prompts(documents, count=2, length=16),
        ks=(1, 3),
        temperatures=(0.5, 1),
        seeds=(0, 4),
        max_new_tokens=12,
    ).run()
    assert ex.read_records(path) == expected
    assert (report["records"], report["found"], report["where"]) == (16, 0, "here")
    assert [(row["temperature"], row["k"]) for row in report["table"]] == [
        (0.5, 1),
        (0.5, 3),
        (1.0, 1),
        (1.0, 3),
    ]
    for row in report["table"]:
        some = [r for r in expected if r["k"] == row["k"]]
        some = [r for r in some if r["temperature"] == row["temperature"]]
        assert row["texts"] == 4
        estimate, low, high = row["acceptance_rate"]
        assert low <= estimate <= high
        assert estimate == ex.ratio(some, "accepted", "tested")


def test_the_table(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    assert sweep("-o", path, *FLAGS, "--draft", "model", "lookup") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0].split()[:4] == ["draft", "T", "k", "texts"]
    assert [line.split()[0] for line in out.splitlines()[1:5]] == [
        *["lookup"] * 2,
        *["model"] * 2,
    ]
    assert f"{path}: 8 records; 8 made in" in out
    stored = path.read_bytes()
    assert sweep("-o", path, *FLAGS, "--draft", "model", "lookup") == 0
    assert f"{path}: 8 records, 8 of them found there" in capsys.readouterr().out
    assert path.read_bytes() == stored


def test_with_no_more_than_it_needs(tmp_path, capsys, monkeypatch):
    """A sweep of all that it combines by default, and the other command of this length,
    in an empty folder: nothing is written but what was asked for."""
    monkeypatch.chdir(tmp_path)
    assert sweep("-o", "a.jsonl") == 0
    assert "a.jsonl: 96 records; 96 made in" in capsys.readouterr().out
    assert cli.main(["bench"]) == 0
    table = capsys.readouterr().out
    for row in ("plain", "order 2", "lookup", "suffix"):
        assert f"\n{row} " in table
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--order", "3"],
        ["--top-k", "2"],
        ["--top-p", "0.5"],
        ["--rule", "block"],
        ["--max-tokens", "13"],
        ["--prompt-tokens", "3"],
        ["--draft", "suffix"],
        ["--seed", "5"],
        ["--text", __file__],
        ["--corpus", __file__, "--merges", "20"],
    ],
)
def test_every_flag_changes_the_records(tmp_path, flags):
    def counts(path):
        keep = ("accepted", "emitted", "target_calls", "prompt", "overlap")
        return [[r.get(name) for name in keep] for r in ex.read_records(path)]

    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    common = ["--k", "3", "--prompts", "3", "--max-tokens", "30"]
    assert sweep("-o", first, *common) == 0
    assert sweep("-o", second, *common, *flags) == 0
    assert counts(first) != counts(second)


def test_a_pair_of_ones_own(tmp_path, capsys):
    pair, path = tmp_path / "pair.npz", tmp_path / "a.jsonl"
    sd.train_pair(["The cat sat on the mat. " * 60], merges=20).save(pair)
    assert sweep("-o", path, *FLAGS, "--model", pair) == 0
    assert {r["prompt"] for r in ex.read_records(path)} == {"sample 0", "sample 1"}
    flags = ["-o", path, *FLAGS, "--model", pair]
    assert sweep(*flags, "--order", "3") == 2
    assert "--order trains a model" in capsys.readouterr().err
    assert sweep(*flags, "--draft", "order-2") == 2
    assert "draft must be one of model, lookup, suffix, got order-2" in (
        capsys.readouterr().err
    )


def test_times_where_asked_for(tmp_path):
    path = tmp_path / "a.jsonl"
    assert sweep("-o", path, *FLAGS, "--timed") == 0
    assert all(r["target_seconds"] > 0 for r in ex.read_records(path))


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--draft", "best"], "draft must be one of model, lookup, suffix, order-1"),
        (["--draft", "model", "model"], "draft must be some names, none twice"),
        (["--k", "2", "2"], "--k must be some values, none twice"),
        (["--temperature", "-1"], "--temperature must be"),
        (["--timed", "--workers", "2"], "--timed is for one process"),
        (["--kind", "open"], "--kind is for a real model"),
        (["--compiled"], "--compiled is for a real model"),
        (["--experiment", "a"], "--experiment and --run-name go with --track"),
        (["--text", "nowhere"], "nowhere"),
        (["--ray", "nowhere"], "--ray must be 'local' or HOST:PORT, got 'nowhere'"),
        (["--prompts", "99999999"], "documents must have 99999999 places"),
        (["--model", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_input_is_named(tmp_path, capsys, flags, message):
    path = tmp_path / "a.jsonl"
    assert sweep("-o", path, *flags) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not path.exists()


def test_without_ray_the_extra_is_named_and_no_file_is_left(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ray", None)
    old = tmp_path / "old.jsonl"
    old.touch()
    for path in (tmp_path / "new.jsonl", old):
        assert sweep("-o", path, *FLAGS, "--ray", "local") == 2
        assert capsys.readouterr().err == (
            "specdec: error: this needs ray: pip install 'specdec_lib[scale]'\n"
        )
    assert list(tmp_path.iterdir()) == [old]  # what was there before is left


def test_workers_are_a_number_or_all(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        sweep("-o", tmp_path / "a.jsonl", "--workers", "many")
    assert ended.value.code == 2
    said = "argument --workers: invalid whole number, or 'all' value: 'many'"
    assert said in capsys.readouterr().err


def test_a_place_for_records_that_is_none(tmp_path, capsys):
    assert sweep("-o", tmp_path / "none" / "a.jsonl") == 2
    assert "--output: there is no folder" in capsys.readouterr().err
    assert sweep("-o", tmp_path / "a.csv") == 2
    assert "--output must be JSON Lines" in capsys.readouterr().err


@pytest.mark.parametrize("flag", (["--k", "-1"], ["--workers", "0"], ["--seed", "x"]))
def test_wrong_numbers_name_their_flag(tmp_path, capsys, flag):
    with pytest.raises(SystemExit):
        sweep("-o", tmp_path / "a.jsonl", *flag)
    assert f"argument {flag[0]}: " in capsys.readouterr().err


def test_an_interrupted_sweep_goes_on(tmp_path):
    """With a terminal: progress is on standard error, and Ctrl-C says what is kept."""
    path = tmp_path / "a.jsonl"
    flags = ["--k", "1", "4", "--prompts", "24", "--max-tokens", "200"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "specdec_lib", "sweep", "-o", path, *flags]
        + ["--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
        # What a script runs in the background is deaf to Ctrl-C, and these tests too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    until = time.monotonic() + 100
    while not (path.exists() and path.read_bytes().count(b"\n") >= 4):
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 130
    process.stdout.close()
    assert b" of 48 cells" in shown
    assert b"the same command goes on from there" in shown
    assert b"specdec: interrupted" in shown
    assert b"Traceback" not in shown
    kept = ex.read_records(path)
    assert 3 <= len(kept) < 48  # one that was not yet on the disk is taken back
    assert sweep("-o", path, *flags, "--workers", "all") == 0
    whole = ex.read_records(path)
    assert whole[: len(kept)] == kept
    assert len(whole) == 48
    other = tmp_path / "b.jsonl"
    assert sweep("-o", other, *flags) == 0
    assert sorted(map(str, whole)) == sorted(map(str, ex.read_records(other)))


def test_a_real_model(tmp_path, capsys):
    """The same records from processes that read the weights for themselves."""
    from specdec_lib.llama import fetch

    try:
        fetch.find("smollm2")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    common = ["--model", "smollm2", "--kind", "grounded", "--prompts", "2"]
    common += ["--k", "4", "--temperature", "0", "--max-tokens", "6"]
    one, two = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert sweep("-o", one, *common) == 0
    assert sweep("-o", two, *common, "--workers", "2") == 0
    records = ex.read_records(one)
    assert sorted(map(str, records)) == sorted(map(str, ex.read_records(two)))
    assert len(records) == 2
    assert all(r["draft"] == "suffix" and r["emitted"] for r in records)
    for flags, message in (
        (["--text", __file__], "--text is for n-gram models"),
        (["--order", "3"], "--order trains a model"),
        (["--prompts", "999"], "prompts must be"),
    ):
        assert sweep("-o", tmp_path / "c.jsonl", *common, *flags) == 2
        assert message in capsys.readouterr().err
