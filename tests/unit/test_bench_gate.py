"""The gate: recorded runs, one real run, and the command."""

import csv
import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from clock_kit import Clock

from specdec_lib import cli
from specdec_lib.bench import command, gate, read_baseline, record, write_baseline
from specdec_lib.bench import suite as suite_module

COUNTS = {"order 2, k = 4": {"drafted": 4, "emitted": 5}}


def runs(shift=0.0, n=6, noise=0.01, seed=0, name="order 2, k = 4 / plain"):
    g = np.random.default_rng(seed)
    return [
        {
            "log_ratios": {
                each: float(0.3 + noise * g.normal() + shift * (each == name))
                for each in suite_module.RATIOS
            },
            "counts": COUNTS,
        }
        for _ in range(n)
    ]


@pytest.fixture
def baseline():
    return record(runs(n=12, seed=1))


def test_the_same_again_is_fine(baseline):
    found = gate(runs(), baseline)
    assert (found.verdict, found.passed, found.slower) == ("fine", True, ())
    assert set(found.judgements) == set(suite_module.RATIOS)


def test_one_ratio_that_is_slower_is_named(baseline):
    found = gate(runs(shift=0.08), baseline)
    assert (found.verdict, found.passed) == ("slower", False)
    assert found.slower == ("order 2, k = 4 / plain",)
    text = command.report(found)
    assert "SLOWER" in text
    assert "+8.1%" in text or "+7." in text or "+8." in text
    each = found.judgements["order 2, k = 4 / plain"]
    assert 0.01 < each.low < 0.083 < each.high


def test_much_noise_is_no_failure(baseline):
    found = gate(runs(shift=0.08, noise=0.1), baseline)
    assert (found.verdict, found.passed) == ("cannot tell", True)
    text = command.report(found)
    assert "Cannot tell. That is no failure." in text
    assert "runs would, in place of 6" in text


def test_the_level_is_shared_by_the_ratios(baseline):
    """As each is asked at a fifth of the level, its interval is wider."""
    five = gate(runs(), baseline).judgements["T(5) / T(1)"]
    one = suite_module.judge(
        [r["log_ratios"]["T(5) / T(1)"] for r in runs()],
        baseline["log_ratios"]["T(5) / T(1)"],
        level=0.05 / 5,
    )
    assert five == one


def test_counts_must_be_equal_not_nearly(baseline):
    other = runs()
    for each in other:
        each["counts"] = {"order 2, k = 4": {"drafted": 4, "emitted": 6}}
    found = gate(other, baseline)
    assert (found.verdict, found.passed) == ("other counts", False)
    assert "'emitted': 6" in found.counts[0]
    assert "'emitted': 5" in found.counts[0]
    assert "OTHER COUNTS" in command.report(found)
    other[0]["counts"] = COUNTS
    with pytest.raises(ValueError, match="runs must have the same counts"):
        gate(other, baseline)


@pytest.mark.parametrize("name", ["processor", "cores", "python", "numpy"])
def test_another_machine_is_not_judged(baseline, name):
    baseline["machine"][name] = "4.5.6" if name in ("python", "numpy") else "another"
    found = gate(runs(shift=0.5), baseline)
    assert (found.verdict, found.passed, found.judgements) == ("cannot tell", True, {})
    assert found.other_machine[0].startswith(name)
    assert "another machine" in command.report(found)
    other = runs()
    for each in other:
        each["counts"] = {}
    assert not gate(other, baseline).passed  # counts are judged all the same


def test_another_patch_of_python_is_the_same_machine(baseline):
    major, minor, _ = baseline["machine"]["python"].split(".")
    baseline["machine"]["python"] = f"{major}.{minor}.99"
    assert gate(runs(), baseline).verdict == "fine"


def test_a_baseline_goes_to_a_file_and_comes_back(tmp_path, baseline):
    path = tmp_path / "baseline.json"
    write_baseline(baseline, path)
    assert read_baseline(path) == baseline


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda b: b.pop("counts"), "is no baseline of specdec bench"),
        (lambda b: b.update(version=0), "must be a specdec bench baseline of version"),
        (lambda b: b["log_ratios"].pop("T(5) / T(1)"), "record a new one"),
        (lambda b: b["log_ratios"].update({"T(5) / T(1)": [0.1]}), "record a new one"),
    ],
)
def test_a_file_that_is_no_baseline_is_named(tmp_path, baseline, change, message):
    change(baseline)
    path = tmp_path / "other.json"
    path.write_text(json.dumps(baseline), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        read_baseline(path)
    assert "other.json" in str(error.value)


@pytest.fixture(scope="module")
def pair():
    return suite_module.book_pair()


def test_a_real_run_counts_what_the_loop_counted(pair):
    works, counts = suite_module.suite(pair)
    for name, work in works.items():
        texts = work()
        if name in counts:
            rounds = [each for text in texts for each in text.rounds]
            assert counts[name]["target_calls"] == len(rounds)
            assert counts[name]["emitted"] == 3 * 60
            assert counts[name]["accepted"] == sum(each.accepted for each in rounds)
    found = suite_module.run_suite(blocks=1, pair=pair)
    assert found["counts"] == counts
    assert set(found["log_ratios"]) == set(suite_module.RATIOS)
    assert np.isfinite(list(found["log_ratios"].values())).all()
    # A call for five tokens costs no less than one for one; that is no close thing.
    assert found["log_ratios"]["T(5) / T(1)"] > 0


class Ticking(Clock):
    """Moves on a little whenever it is looked at, so that waiting for it ends."""

    def __call__(self):
        self.now += 0.001
        return self.now


def test_what_is_planted_is_in_the_ratios(pair, monkeypatch):
    """Three times as slow, by a clock that only the work moves; the rest stays."""
    clock = Ticking()
    works, counts = suite_module.suite(pair)

    def spend(seconds):
        clock.now += seconds

    fake = {name: partial(spend, 5.0 + i) for i, name in enumerate(works)}
    monkeypatch.setattr(suite_module, "suite", lambda pair: (dict(fake), counts))
    for name in ("measure", "planted"):
        function = partial(getattr(suite_module, name), clock=clock)
        monkeypatch.setattr(suite_module, name, function)
    plain = suite_module.run_suite(blocks=1, pair=pair)["log_ratios"]
    slow = suite_module.run_suite(blocks=1, pair=pair, plant=2.0)["log_ratios"]
    assert {name.endswith("/ plain") for name in suite_module.RATIOS} == {True, False}
    for name in suite_module.RATIOS:
        added = np.log(3) if name.endswith("/ plain") else 0
        assert slow[name] - plain[name] == pytest.approx(added, abs=0.002)


# The command


def test_the_gate_as_a_user_runs_it(tmp_path):
    """Recorded and held to itself in fresh processes: told apart or not, it passes;
    at four times the time it cannot."""
    path = tmp_path / "baseline.json"
    program = [sys.executable, "-m", "specdec_lib", "bench", "--gate", str(path)]
    program += ["--runs", "5", "--blocks", "1"]

    def run(*more):
        return subprocess.run(
            [*program, *more], capture_output=True, text=True, timeout=300
        )

    done = run("--record")
    assert done.returncode == 0, done.stderr
    assert "5 runs on" in done.stdout
    slow = run("--plant", "3", "--json")
    assert slow.stderr == ""
    report = json.loads(slow.stdout)
    assert (slow.returncode, report["verdict"]) == (1, "slower")
    assert not report["counts"]
    for name, each in report["judgements"].items():
        assert (each["change"] > 1) == name.endswith("/ plain")


def test_exit_codes(tmp_path, monkeypatch, capsys, baseline):
    path = tmp_path / "baseline.json"
    write_baseline(baseline, path)
    for shift, code in [(0.0, 0), (0.2, 1)]:

        def fresh(n, *, shift=shift, **options):
            return runs(shift, n)

        monkeypatch.setattr(suite_module, "fresh_runs", fresh)
        assert cli.main(["bench", "--gate", str(path)]) == code
    assert "SLOWER" in capsys.readouterr().out


def test_the_table_its_csv_and_its_figure(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    arguments = ["bench", "--prompts", "2", "--repeats", "1", "--max-tokens", "12"]
    arguments += ["--k", "1", "3", "--draft", "model", "lookup"]
    assert cli.main([*arguments, "-o", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert "NumPy" in out.splitlines()[0]
    assert len(out.splitlines()[2]) <= 104
    for name in ("plain", "order 2", "lookup", "T(k+1)", "bench.svg"):
        assert name in out
    with open(tmp_path / "new" / "bench.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["draft"], row["k"]) for row in rows] == [
        ("", "0"),
        ("order 2", "1"),
        ("order 2", "3"),
        ("lookup", "1"),
        ("lookup", "3"),
    ]
    assert {row["tokens"] for row in rows} == {"24"}
    assert all(row["numpy"] == np.__version__ for row in rows)
    svg = (tmp_path / "new" / "bench.svg").read_text(encoding="utf-8")
    for label in ("draft length k (tokens)", "speedup (times)", "order 2", "lookup"):
        assert label in svg
    assert (tmp_path / "new" / "bench.png").read_bytes()[1:4] == b"PNG"


def test_greedy_texts_agree_and_the_json_says_so(capsys):
    arguments = ["bench", "--json", "--prompts", "2", "--repeats", "1"]
    arguments += ["--max-tokens", "10", "--k", "2", "--temperature", "0"]
    assert cli.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["draft"] for row in report["rows"]] == [
        *("", "order 2", "lookup", "suffix")
    ]
    assert all(row["same_tokens"] for row in report["rows"])
    assert all(row["speedup"] > 0 for row in report["rows"][1:])
    assert report["machine"]["numpy"] == np.__version__


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--record"], "--record goes with --gate"),
        (["--plant", "0.1"], "--plant goes with --gate"),
        (["--gate", "bench/baseline.json", "--plant", "-1"], "--plant must be finite"),
        (["--gate", "none.json"], "none.json: No such file"),
        (["--gate", "none/there.json", "--record"], "there is no folder none"),
        (["--gate", "x", "--k", "3"], "--k does not go with --gate"),
        (["--gate", "x", "--max-tokens", "3"], "--max-tokens does not go with --gate"),
        (["--gate", "x", "--record", "--plant", "0.1"], "does not go with --record"),
        (["--draft", "paying"], "an n-gram pair has no draft 'paying'"),
        (["--compiled"], "--compiled is for a real model"),
        (["--temperature", "-1"], "temperature"),
    ],
)
def test_bad_flags_are_one_line_and_exit_code_2(capsys, arguments, message):
    assert cli.main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
