"""Sweeps: the same records in any order, on any worker, after any interruption."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib.records import Cell

SIZE = 4
P, Q = np.random.default_rng(5).dirichlet(np.full(SIZE, 0.7), size=(2, SIZE))


class Rows:
    """Logits by the token before; of the module, so that a worker can unpickle it."""

    def __init__(self, table):
        self.table = np.log(table)

    def __call__(self, sequence):
        return self.table[sequence[-1]]


TARGET = sd.FunctionModel(Rows(P), SIZE, bos_id=0)
DRAFT = sd.FunctionModel(Rows(Q), SIZE)
PROMPTS = {"a": (0, 1), "b": (2,)}


def small_sweep(**changes):
    return replace(
        ex.Sweep(
            TARGET,
            {"model": DRAFT, "maker": sd.ModelDraft(DRAFT)},
            PROMPTS,
            ks=(0, 1, 3),
            temperatures=(0.5, 1.0),
            seeds=(0, 7),
            max_new_tokens=12,
        ),
        **changes,
    )


@pytest.fixture(scope="module")
def records():
    return small_sweep().run()


# What a record says


def test_a_record_for_every_combination_in_order(records):
    keys = [tuple(r[name] for name in Cell._fields) for r in records]
    expected = itertools.product(
        ("model", "maker"), (0.5, 1.0), (0, 1, 3), (0, 7), ("a", "b")
    )
    assert keys == list(expected)


def test_a_record_counts_what_decoding_did(records):
    for record in records:
        cell = Cell(*(record[name] for name in Cell._fields))
        sampler = sd.Sampler(temperature=cell.temperature)
        draft_sampler = sampler if cell.draft == "model" else sd.Sampler()
        run = sd.generate(
            TARGET,
            PROMPTS[cell.prompt],
            draft=sd.ModelDraft(DRAFT, draft_sampler),
            k=cell.k,
            max_new_tokens=12,
            sampler=sampler,
            seed=cell.random_seed,
        )
        metrics = run.metrics
        for name in ("drafted", "tested", "accepted", "emitted", "target_calls"):
            assert record[name] == getattr(metrics, name)
        for name in ("acceptance_rate", "draft_efficiency", "tokens_per_call"):
            assert record[name] == getattr(metrics, name)
        # The contexts that were judged, one by one, by the definition of TV.
        overlap, sequence, by_place = 0.0, list(PROMPTS[cell.prompt]), [0.0] * cell.k
        for each in run.rounds:
            for i in range(each.tested):
                before = [*sequence, *each.drafted[:i]][-1]
                p = sampler(np.log(P[before]))
                q = draft_sampler(np.log(Q[before]))
                by_place[i] += 1 - 0.5 * abs(p - q).sum()
            sequence += each.emitted
        overlap = sum(by_place)
        assert record["overlap"] == pytest.approx(overlap, abs=1e-12)
        for i in range(cell.k):
            assert record[f"overlap_{i + 1}"] == pytest.approx(by_place[i], abs=1e-12)
            for name, count in (
                ("drafted", sum(len(r.drafted) > i for r in run.rounds)),
                ("tested", sum(r.tested > i for r in run.rounds)),
                ("accepted", sum(r.accepted > i for r in run.rounds)),
            ):
                assert record[f"{name}_{i + 1}"] == count
        assert f"tested_{cell.k + 1}" not in record
        if cell.k:
            share = overlap / metrics.tested
            assert record["predicted_acceptance"] == pytest.approx(share, abs=1e-12)
        else:
            assert record["acceptance_rate"] is None
            assert record["predicted_acceptance"] is None


@pytest.mark.parametrize("k", (1, 2))
def test_the_overlap_is_the_mean_number_of_accepted_guesses(k):
    """Exactly, over every outcome of the loop."""
    draft = sd.ModelDraft(DRAFT)

    def run(rng):
        judge = ex._Judge(sd.verify_tokens)
        rounds = list(
            sd.stream(
                TARGET,
                [0],
                draft=draft,
                k=k,
                max_new_tokens=3,
                stop_ids=[3],
                verify=judge,
                rng=rng,
            )
        )
        overlap = sum(
            sum(values[: each.tested])
            for each, values in zip(rounds, judge.overlaps, strict=True)
        )
        return sum(r.accepted for r in rounds), overlap

    outcomes = sd.exact_distribution(run)
    accepted = sum(pair[0] * chance for pair, chance in outcomes.items())
    overlap = sum(pair[1] * chance for pair, chance in outcomes.items())
    assert overlap == pytest.approx(accepted, abs=1e-12)


def test_a_deterministic_draft_is_accepted_with_the_target_probability_of_its_token():
    record = small_sweep(temperatures=(0,), ks=(2,), prompts={"a": (0,)}).run()[0]
    assert record["overlap"] == record["accepted"]  # every p is 0 or 1

    class One:
        def start(self, prompt):
            return self

        def propose(self, k, rng):
            return sd.Proposal((1,)[:k])

        def commit(self, tokens):
            pass

    constant = sd.FunctionModel(lambda seq: np.log([0.5, 0.3, 0.2]), 3)
    sweep = ex.Sweep(constant, {"one": One()}, {"a": (0,)}, ks=(3,), max_new_tokens=50)
    record = sweep.run()[0]
    assert record["predicted_acceptance"] == pytest.approx(0.3, abs=1e-12)
    assert record["drafted_2"] == record["drafted_3"] == 0


def test_a_stop_id_cuts_what_was_judged():
    """Every context is alike here, so the overlap is that of each tested guess."""
    p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    target = sd.FunctionModel(lambda seq: np.log(p), 3)
    draft = sd.FunctionModel(lambda seq: np.log(q), 3)
    sweep = ex.Sweep(
        target, {"d": draft}, {"a": (0,)}, ks=(4,), seeds=range(20), stop_ids=(1,)
    )
    records = sweep.run()
    assert {r["finish_reason"] for r in records} == {"stop"}
    assert any(r["tested"] < r["accepted"] + r["target_calls"] for r in records)
    for record in records:
        assert record["predicted_acceptance"] == pytest.approx(0.7, abs=1e-12)
        for i in range(4):
            right = 0.7 * record[f"tested_{i + 1}"]
            assert record[f"overlap_{i + 1}"] == pytest.approx(right, abs=1e-12)


def test_repeats_are_counted():
    cycle = sd.FunctionModel(lambda seq: 99 * np.eye(3)[(seq[-1] + 1) % 3], 3)
    sweep = ex.Sweep(cycle, {"d": cycle}, {"a": (0,)}, ks=(2,), max_new_tokens=20)
    # Runs of 8 end at 8, 9, 10 for the first time; from 11 to 20 they come again.
    assert sweep.run()[0]["repeated"] == 10
    assert ex._repeated(range(40)) == 0
    assert ex._repeated([1, 2]) == 0


def test_drafts_may_be_models_drafts_or_makers():
    made = []

    def maker(sampler):
        made.append(sampler)
        return sd.ModelDraft(DRAFT, sampler)

    sampler = sd.Sampler(top_k=3)
    sweep = small_sweep(drafts={"model": maker}, sampler=sampler)
    assert sweep.run() == small_sweep(drafts={"model": DRAFT}, sampler=sampler).run()
    assert {s.temperature for s in made} == {0.5, 1.0}
    assert {s.top_k for s in made} == {3}
    with pytest.raises(TypeError, match=r"drafts\['x'\] must be a language model, a d"):
        small_sweep(drafts={"x": 3}).run()


def test_times_only_where_asked_for():
    assert not [name for name in small_sweep().run()[0] if "seconds" in name]
    record = small_sweep(timed=True).run()[0]
    assert record["target_seconds"] > 0
    assert record["draft_seconds"] > 0
    with pytest.raises(ValueError, match="workers must be 1 where times are recorded"):
        small_sweep(timed=True).run(workers=2)


# The same records, whatever happens


def test_the_same_records_again(records):
    assert small_sweep().run() == records
    assert small_sweep(seeds=(1, 2)).run() != records


def test_a_cell_does_not_depend_on_the_rest_of_the_sweep(records):
    turned = small_sweep(ks=(3, 1, 0, 2), temperatures=(1, 0.5), seeds=(7, 3, 0)).run()
    known = {tuple(r[name] for name in Cell._fields): r for r in turned}
    for record in records:
        assert known[tuple(record[name] for name in Cell._fields)] == record
    assert len(known) == 2 * 2 * 4 * 3 * 2


def test_no_two_cells_share_a_source():
    cells = small_sweep(ks=range(30), seeds=range(30)).cells()
    assert len({cell.random_seed for cell in cells}) == len(cells)
    assert Cell("d", 1, 2, 3, "p").random_seed == Cell("d", 1.0, 2, 3, "p").random_seed
    # The same on every machine and version: records can be compared between them.
    assert Cell("d", 1.0, 2, 3, "p").random_seed == 15295600060018938989


def test_workers_give_the_same_records(records, tmp_path):
    path = tmp_path / "records.jsonl"
    assert small_sweep().run(path, workers=2) == records
    by_key = {json.dumps(r) for r in ex.read_records(path)}
    assert by_key == {json.dumps(r) for r in records}


class Failing(Rows):
    def __call__(self, sequence):
        if len(sequence) > 6:
            raise ArithmeticError("this target breaks")
        return super().__call__(sequence)


def test_a_failure_in_a_worker_is_raised_here(tmp_path):
    sweep = small_sweep(target=sd.FunctionModel(Failing(P), SIZE))
    with pytest.raises(ArithmeticError, match="this target breaks"):
        sweep.run(tmp_path / "records.jsonl", workers=2)


def test_resuming_runs_what_is_left_and_nothing_else(tmp_path, records):
    path = tmp_path / "records.jsonl"
    sweep = small_sweep(drafts={"model": DRAFT})
    ran = []
    first = sweep.run(path, progress=lambda done, total: ran.append((done, total)))
    assert ran == [(i, 24) for i in range(25)]
    stored = path.read_bytes()
    ran.clear()
    again = sweep.run(path, progress=lambda done, total: ran.append((done, total)))
    assert again == first == records[: len(first)]
    assert ran == [(24, 24)]
    assert path.read_bytes() == stored
    # More of the same: the old ones are kept, the new ones added.
    ran.clear()
    more = replace(sweep, ks=(0, 1, 2, 3)).run(
        path, progress=lambda done, total: ran.append((done, total))
    )
    assert [r for r in more if r["k"] != 2] == first
    assert ran == [(done, 32) for done in range(24, 33)]
    assert path.read_bytes().startswith(stored)


def test_a_file_cut_at_any_byte_is_made_whole_again(tmp_path):
    path = tmp_path / "records.jsonl"
    sweep = small_sweep(drafts={"model": DRAFT}, ks=(1,), temperatures=(1,), seeds=(0,))
    records = sweep.run(path)
    whole = path.read_bytes()
    assert whole.count(b"\n") == len(records) == 2
    middle = whole.index(b"\n")
    for cut in {*range(0, len(whole), 31), *range(middle - 2, middle + 4)}:
        path.write_bytes(whole[:cut])
        ran = []
        assert sweep.run(path, progress=lambda done, _, ran=ran: ran.append(done))
        assert ran[0] == whole[:cut].count(b"\n")  # only whole lines count as done
        assert path.read_bytes() == whole


@pytest.mark.parametrize("torn", (b"{", b"{" * 5000))
def test_a_torn_line_is_gone_even_where_nothing_is_left_to_run(tmp_path, torn):
    path = tmp_path / "records.jsonl"
    sweep = small_sweep(drafts={"model": DRAFT}, ks=(1,), temperatures=(1,))
    records = sweep.run(path)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert ex.read_records(path) == records
    assert sweep.run(path) == records
    assert path.read_bytes() == whole


def test_a_record_is_on_the_disk_before_it_counts_as_done(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    path = tmp_path / "records.jsonl"

    def progress(done, total):
        assert len(synced) == path.read_bytes().count(b"\n") == done

    small_sweep(drafts={"model": DRAFT}).run(path, progress=progress)


SCRIPT = """
import sys, time
sys.path.insert(0, {folder!r})
from test_experiments import small_sweep
def slowly(done, total):
    print(done, flush=True)
    time.sleep(0.05)
small_sweep().run(sys.argv[1], progress=slowly)
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_sweep_that_was_killed_goes_on(tmp_path, records):
    path = tmp_path / "records.jsonl"
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    for wait in (3, 11):
        process = subprocess.Popen(
            [sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True
        )
        for line in process.stdout:
            if int(line) >= wait:
                process.send_signal(signal.SIGKILL)
                break
        process.wait(timeout=60)
        process.stdout.close()
        assert wait <= len(ex.read_records(path)) < len(records)
    assert small_sweep().run(path) == records
    assert len(path.read_bytes().splitlines()) == len(records)


def test_records_of_another_setup_are_refused(tmp_path):
    path = tmp_path / "records.jsonl"
    sweep = small_sweep(ks=(1,), temperatures=(1,))
    sweep.run(path)
    stored = path.read_bytes()
    for changes in (
        {"max_new_tokens": 13},
        {"sampler": sd.Sampler(top_k=2)},
        {"prompts": {"a": (0, 1, 1), "b": (2,)}},
        {"stop_ids": (3,)},
        {"target": sd.FunctionModel(Rows(P[:, ::-1]), SIZE, bos_id=0)},
        {"drafts": {"model": sd.FunctionModel(Rows(Q[::-1, ::-1]), SIZE)}},
        {"timed": True},
    ):
        with pytest.raises(ValueError, match=r"records\.jsonl holds a record of anoth"):
            replace(sweep, **changes).run(path)
        assert path.read_bytes() == stored


@pytest.mark.parametrize(
    "content, message",
    [
        (b"no json\n", "line 1, is no record of a sweep"),
        (b'{"k": 1}\n', "line 1, is no record of a sweep"),
        (b"[1, 2]\n", "line 1, is no record of a sweep"),
        (b"\xff\n", "line 1, is no record of a sweep"),
    ],
)
def test_files_that_hold_no_records(tmp_path, content, message):
    path = tmp_path / "other.jsonl"
    path.write_bytes(content)
    for read in (small_sweep().run, ex.read_records):
        with pytest.raises(ValueError, match=message):
            read(path)
    assert path.read_bytes() == content


def test_a_doubled_record_is_an_error(tmp_path, records):
    path = tmp_path / "records.jsonl"
    ex.write_records([records[0], records[1], records[0]], path)
    with pytest.raises(ValueError, match="line 3, repeats the record of Cell"):
        small_sweep().run(path)


# Files


@pytest.mark.parametrize("name", ("records.csv", "records.jsonl"))
def test_records_are_read_as_they_were_written(tmp_path, records, name):
    path = tmp_path / name
    ex.write_records(records, path)
    found = ex.read_records(path)
    if name.endswith("csv"):  # a table has the same columns in every row
        columns = set().union(*records)
        assert all(set(r) == columns for r in found)
        found = [
            {k: v for k, v in r.items() if k in old}
            for r, old in zip(found, records, strict=True)
        ]
    assert found == records
    for new, old in zip(found, records, strict=True):
        assert {k: type(v) for k, v in new.items()} == {
            k: type(v) for k, v in old.items()
        }


def test_names_that_look_like_numbers_stay_names(tmp_path):
    records = small_sweep(prompts={"1": (0,), 'x,"y"\n': (1,)}).run()
    for name in ("a.csv", "a.jsonl"):
        ex.write_records(records, tmp_path / name)
        found = ex.read_records(tmp_path / name)
        assert [r["prompt"] for r in found] == [r["prompt"] for r in records]


def test_pandas_reads_them(tmp_path, records):
    pandas = pytest.importorskip("pandas")
    ex.write_records(records, tmp_path / "records.csv")
    table = pandas.read_csv(tmp_path / "records.csv")
    assert table["accepted"].sum() == sum(r["accepted"] for r in records)
    assert len(pandas.DataFrame(records)) == len(records)


def test_a_table_that_is_none(tmp_path):
    path = tmp_path / "a.csv"
    for content, message in (
        ("", "is no table of records"),
        ("x,y\n1,2\n", "is no table of records"),
        ("draft,temperature,k,seed,prompt\n1,2\n", "line 2, must have 5 cells"),
        ("draft,temperature,k,seed,prompt\na,b,1,1,c\n", "line 2: could not convert"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            ex.read_records(path)


# Prompts


def test_prompts_are_cut_evenly_from_all_documents():
    documents = {"x": np.arange(100), "y": range(1000, 1300)}
    prompts = ex.cut_prompts(documents, count=8, length=10)
    assert len(prompts) == 8
    for name, tokens in prompts.items():
        document, at = name.split("@")
        assert tokens == tuple(documents[document][int(at) : int(at) + 10])
        assert all(type(token) is int for token in tokens)
    assert [name[0] for name in prompts] == list("xx") + list("yyyyyy")
    with pytest.raises(ValueError, match="must have 5 places for 99 tokens, got 2"):
        ex.cut_prompts({"x": range(100), "y": range(5)}, count=5, length=99)
    with pytest.raises(ValueError, match="count must be 1 or more, got 0"):
        ex.cut_prompts(documents, count=0, length=9)


def test_prompts_written_by_the_target():
    prompts = ex.sample_prompts(TARGET, count=300, length=3, seed=1)
    assert {len(tokens) for tokens in prompts.values()} == {3}
    assert {tokens[0] for tokens in prompts.values()} == {0}
    assert prompts == ex.sample_prompts(TARGET, count=300, length=3, seed=1)
    assert prompts != ex.sample_prompts(TARGET, count=300, length=3, seed=2)
    second = np.bincount([t[1] for t in prompts.values()], minlength=SIZE) / 300
    assert second == pytest.approx(P[0], abs=5 * 0.5 / 300**0.5)
    with pytest.raises(ValueError, match="target must have a bos_id"):
        ex.sample_prompts(DRAFT, count=1, length=3)


def test_texts_written_by_the_target():
    texts = ex.sample_texts(TARGET, tokens=2000, length=9, stop_ids=[1], seed=3)
    assert sum(len(text) - 1 for text in texts) == 2000
    assert {text[0] for text in texts} == {0}
    for text in texts[:-1]:
        assert text[-1] == 1 or len(text) == 10
        assert 1 not in text[1:-1]
    assert {len(text) for text in texts} >= {2, 10}
    assert texts == ex.sample_texts(TARGET, tokens=2000, length=9, stop_ids=[1], seed=3)
    (whole,) = ex.sample_texts(TARGET, tokens=50, sampler=sd.Sampler(temperature=0))
    assert len(whole) == 51
    assert all(after == P[before].argmax() for before, after in pairwise(whole))


def test_texts_follow_the_targets_probabilities():
    (text,) = ex.sample_texts(TARGET, tokens=4000)
    for before in range(SIZE):
        after = [t for s, t in pairwise(text) if s == before]
        share = np.bincount(after, minlength=SIZE) / len(after)
        assert share == pytest.approx(P[before], abs=5 * 0.5 / len(after) ** 0.5)


def test_texts_end_where_the_targets_window_does():
    short = sd.FunctionModel(Rows(P), SIZE, bos_id=0, context_window=4)
    assert [len(t) for t in ex.sample_texts(short, tokens=7)] == [4, 4, 2]
    shortest = sd.FunctionModel(Rows(P), SIZE, bos_id=0, context_window=1)
    with pytest.raises(ValueError, match="context_window of 2 tokens or more"):
        ex.sample_texts(shortest, tokens=1)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"tokens": 0}, ValueError, "tokens must be 1 or more, got 0"),
        ({"length": 0}, ValueError, "length must be 1 or more, got 0"),
        ({"seed": -1}, ValueError, "seed must be 0 or more, got -1"),
        ({"target": DRAFT}, ValueError, "target must have a bos_id"),
    ],
)
def test_bad_texts(options, error, message):
    options = {"target": TARGET, "tokens": 3, **options}
    with pytest.raises(error, match=message):
        ex.sample_texts(**options)


# Along a text


def test_acceptance_along_a_text_by_the_definitions():
    sampler, colder = sd.Sampler(temperature=0.8), sd.Sampler(temperature=0.5)
    text = [1, 3, 0, 2, 2]
    along = ex.acceptance_along(
        TARGET, DRAFT, [0, 2], text, sampler=sampler, draft_sampler=colder
    )
    for i, (before, token) in enumerate(zip([2, *text], text, strict=False)):
        p, q = sampler(np.log(P[before])), colder(np.log(Q[before]))
        assert along.overlap[i] == pytest.approx(sd.theory.acceptance(p, q))
        assert along.given_token[i] == pytest.approx(min(1, q[token] / p[token]))
    same = ex.acceptance_along(TARGET, DRAFT, [0, 2], text, sampler=sampler)
    assert same.overlap != pytest.approx(along.overlap)
    assert ex.acceptance_along(TARGET, DRAFT, [0], []).overlap.shape == (0,)


def test_acceptance_along_refuses_what_the_target_cannot_write():
    best = int(P[0].argmax())
    text, greedy = [best, int(P[best].argmin())], sd.Sampler(temperature=0)
    with pytest.raises(ValueError, match="but token 1 of them has probability 0"):
        ex.acceptance_along(TARGET, DRAFT, [0], text, sampler=greedy)
    with pytest.raises(ValueError, match="prompt must have at least one token"):
        ex.acceptance_along(TARGET, DRAFT, [], [1])


def test_calls_predicted_along_texts_of_the_target_are_those_of_decoding():
    """Texts of the target alone foretell the calls of speculative decoding."""
    lengths = {"max_new_tokens": 30}
    sweep = small_sweep(
        drafts={"m": DRAFT},
        ks=(3,),
        temperatures=(1,),
        seeds=range(150),
        prompts={"a": (0,)},
        **lengths,
    )
    measured = np.array([r["target_calls"] for r in sweep.run()])
    predicted = []
    for seed in range(150):
        text = sd.generate(TARGET, [0], seed=seed, **lengths).tokens
        along = ex.acceptance_along(TARGET, DRAFT, [0], text)
        predicted.append(sd.theory.expected_calls(along.given_token, 3))
    spread = (measured.var() / 150 + np.var(predicted) / 150) ** 0.5
    assert abs(measured.mean() - np.mean(predicted)) < 4 * spread
    assert spread < 0.4


# What records say


def fake(texts, **columns):
    return [
        {"prompt": f"p{i}", "seed": 0, "k": 2, "accepted": a, "tested": t} | columns
        for i, (a, t) in enumerate(texts)
    ]


def test_a_ratio_is_one_of_sums():
    records = fake([(1, 2), (9, 10)])
    assert ex.ratio(records, "accepted", "tested") == 10 / 12
    assert ex.ratio(records, "accepted", lambda r: 2 * r["tested"]) == 10 / 24
    assert ex.ratio([], "accepted", "tested") is None
    assert ex.ratio(fake([(0, 0)]), "accepted", "tested") is None
    records[0]["accepted_3"] = 4  # a place that only one record reaches
    assert ex.ratio(records, "accepted_3", "tested") == 4 / 12
    with pytest.raises(ValueError, match="must have the column 'accpted', they have"):
        ex.ratio(records, "accpted", "tested")


def test_the_bootstrap_of_two_texts_by_hand():
    """Two texts drawn twice: a quarter both times the one, half mixed."""
    records = fake([(0, 10), (10, 10)])
    low, high = ex.bootstrap_interval(records, "accepted", "tested")[1:]
    assert (low, high) == (0.0, 1.0)
    inner = ex.bootstrap_interval(records, "accepted", "tested", level=0.4)
    assert inner == (0.5, 0.5, 0.5)


def test_the_bootstrap_agrees_with_the_usual_formula():
    """For a ratio of sums over n texts, the spread is that of the residuals."""
    g = np.random.default_rng(0)
    tested = g.integers(20, 60, size=60)
    accepted = g.binomial(tested, g.uniform(0.4, 0.9, size=60))
    records = fake(zip(accepted.tolist(), tested.tolist(), strict=True))
    interval = ex.bootstrap_interval(records, "accepted", "tested", resamples=4000)
    rate = accepted.sum() / tested.sum()
    spread = np.sqrt(((accepted - rate * tested) ** 2).sum()) / tested.sum()
    assert interval.estimate == pytest.approx(rate)
    assert interval.low == pytest.approx(rate - 1.96 * spread, abs=0.15 * spread)
    assert interval.high == pytest.approx(rate + 1.96 * spread, abs=0.15 * spread)
    assert rate in interval
    assert interval.high + 0.01 not in interval


def test_clusters_are_drawn_whole():
    """Ten copies of each text tell no more than one of each."""
    once = fake([(i % 7, 10) for i in range(30)])
    copies = [r | {"seed": seed} for seed in range(10) for r in once]
    one = ex.bootstrap_interval(once, "accepted", "tested")
    by_prompt = ex.bootstrap_interval(copies, "accepted", "tested", by=("prompt",))
    assert by_prompt == pytest.approx(one)
    by_text = ex.bootstrap_interval(copies, "accepted", "tested", by=("prompt", "seed"))
    assert by_text.high - by_text.low < 0.5 * (one.high - one.low)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    g = np.random.default_rng(1)
    inside, trials = 0, 400
    for _ in range(trials):
        rates = g.beta(8, 4, size=40)  # texts differ; in the mean 2 / 3
        records = fake([(int(g.binomial(50, rate)), 50) for rate in rates])
        inside += 2 / 3 in ex.bootstrap_interval(records, "accepted", "tested")
    assert 0.90 < inside / trials < 0.98


def test_the_same_interval_for_the_same_seed():
    records = fake([(i % 5, 9) for i in range(25)])
    one = ex.bootstrap_interval(records, "accepted", "tested", seed=3)
    assert ex.bootstrap_interval(records, "accepted", "tested", seed=3) == one
    assert ex.bootstrap_interval(records, "accepted", "tested", seed=4) != one


def test_intervals_that_cannot_be():
    assert ex.bootstrap_interval(fake([(0, 0)] * 3), "accepted", "tested") is None
    with pytest.raises(ValueError, match="must have two clusters by .*, got 1"):
        ex.bootstrap_interval(fake([(1, 2)]), "accepted", "tested")
    with pytest.raises(ValueError, match=r"level must be inside 0 .. 1, got 95"):
        ex.bootstrap_interval(fake([(1, 2)] * 3), "accepted", "tested", level=95)
    with pytest.raises(ValueError, match=r"level must be inside 0 .. 1, got -0.5"):
        ex.best_k_interval(fake([(1, 2)] * 3), 0.1, level=-0.5)


def test_summaries_by_group(records):
    rows = ex.summarise(records, "accepted", "tested", by=("draft", "k"))
    assert [(r["draft"], r["k"]) for r in rows] == [
        (d, k) for d in ("maker", "model") for k in (0, 1, 3)
    ]
    for row in rows:
        group = [r for r in records if (r["draft"], r["k"]) == (row["draft"], row["k"])]
        if row["k"] == 0:
            assert (row["estimate"], row["low"], row["high"]) == (None, None, None)
        else:
            tested = sum(r["tested"] for r in group)
            assert row["estimate"] == sum(r["accepted"] for r in group) / tested
            assert row["low"] <= row["estimate"] <= row["high"]
    (row,) = ex.summarise(fake([(1, 2)]), "accepted", "tested", by=("k",))
    assert (row["estimate"], row["low"], row["high"]) == (0.5, None, None)


def test_the_cost_of_a_text_round_by_round():
    curve = sd.theory.cost_curve([1, 2, 3, 4], [2.0, 2.6, 3.6, 5.0])
    for record in small_sweep(seeds=range(5)).run():
        cell = Cell(*(record[name] for name in Cell._fields))
        sampler = sd.Sampler(temperature=cell.temperature)
        run = sd.generate(
            TARGET,
            PROMPTS[cell.prompt],
            draft=small_sweep()._draft(cell.draft, sampler),
            k=cell.k,
            max_new_tokens=12,
            sampler=sampler,
            seed=cell.random_seed,
        )
        lengths = [len(each.drafted) for each in run.rounds]
        plain = sum(1 + 0.2 * n for n in lengths)
        assert ex.call_cost(record, 0.2) == pytest.approx(plain)
        by_curve = sum(curve(n + 1) + 0.2 * n for n in lengths)
        assert ex.call_cost(record, 0.2, curve) == pytest.approx(by_curve)
    with pytest.raises(ValueError, match="draft_cost must be finite and >= 0, got -1"):
        ex.call_cost(record, -1)


def test_the_best_k_and_its_interval():
    def texts(k, emitted, calls):
        return [
            {"prompt": f"p{i}", "seed": 0, "k": k, "emitted": e, "target_calls": c}
            | {"drafted": k * c}
            for i, (e, c) in enumerate(zip(emitted, calls, strict=True))
        ]

    n = 12
    clear = texts(1, [15] * n, [10] * n) + texts(2, [25] * n, [10] * n)
    assert ex.best_k_interval(clear, 0.1) == (2, 2, 2)
    assert ex.best_k_interval(clear, 3) == (1, 1, 1)  # 15 / 40 against 25 / 70
    mixed = texts(1, [10, 20] * 6, [10] * n) + texts(2, [20, 10] * 6, [9.9] * n)
    assert ex.best_k_interval(mixed, 0)[1:] == (1, 2)
    with pytest.raises(ValueError, match="the same clusters by .* at every k"):
        ex.best_k_interval(clear[:-1], 0.1)
    with pytest.raises(ValueError, match="must have two clusters"):
        ex.best_k_interval(clear[:1], 0.1)


# Other rules, and trees


def test_a_sweep_by_the_block_rule():
    """The overlap stays what the token rule would accept of the same guesses."""
    records = small_sweep(verify=sd.verify_block, drafts={"model": DRAFT}).run()
    for record in records:
        cell = Cell(*(record[name] for name in Cell._fields))
        sampler = sd.Sampler(temperature=cell.temperature)
        run = sd.generate(
            TARGET,
            PROMPTS[cell.prompt],
            draft=sd.ModelDraft(DRAFT, sampler),
            k=cell.k,
            max_new_tokens=12,
            sampler=sampler,
            verify=sd.verify_block,
            seed=cell.random_seed,
        )
        assert record["accepted"] == run.metrics.accepted
        places = sum(record[f"tested_{i + 1}"] for i in range(cell.k))
        assert places == record["tested"] == run.metrics.tested


def tree_maker(sampler):
    return sd.TreeDraft(DRAFT, sampler, (-1, -1, 0))


def test_a_sweep_over_trees_counts_no_places():
    sweep = small_sweep(
        drafts={"tree": tree_maker, "chain": DRAFT}, ks=(0, 2), verify=sd.verify_tree
    )
    records = sweep.run()
    places = {"drafted_1", "tested_1", "accepted_1", "overlap_1", "overlap_2"}
    for record in records:
        cell = Cell(*(record[name] for name in Cell._fields))
        if cell.draft == "chain":
            assert {"overlap", "predicted_acceptance"} <= record.keys()
            assert places & record.keys() == (places if cell.k else set())
            continue
        sampler = sd.Sampler(temperature=cell.temperature)
        run = sd.generate(
            TARGET,
            PROMPTS[cell.prompt],
            draft=tree_maker(sampler),
            k=cell.k,
            max_new_tokens=12,
            sampler=sampler,
            verify=sd.verify_tree,
            seed=cell.random_seed,
        )
        for name in ("drafted", "tested", "accepted", "emitted", "target_calls"):
            assert record[name] == getattr(run.metrics, name)
        assert record["tokens_per_call"] == run.metrics.tokens_per_call
        assert not places & record.keys()
        if cell.k:
            assert not {"overlap", "predicted_acceptance"} & record.keys()
    # The chain's records are those of the token rule.
    alone = small_sweep(drafts={"chain": DRAFT}, ks=(0, 2)).run()
    drop = "setup"
    assert [
        {name: r[name] for name in r if name != drop}
        for r in records
        if r["draft"] == "chain"
    ] == [{name: r[name] for name in r if name != drop} for r in alone]


def test_figures_that_need_places_refuse_trees():
    sweep = small_sweep(drafts={"tree": tree_maker}, ks=(2,), verify=sd.verify_tree)
    records = sweep.run()
    interval = ex.bootstrap_interval(records, "emitted", "target_calls")
    assert 1 < interval.low <= interval.estimate <= interval.high <= 3
    assert ex.call_cost(records[0], 0.0) == records[0]["target_calls"]
    with pytest.raises(ValueError, match="overlap"):
        ex.ratio(records, "overlap", "tested")
    with pytest.raises(ValueError, match="a record of trees, draft 'tree'"):
        ex.call_cost(records[0], 0.1, lambda n: 1.0)


def test_trees_by_a_rule_for_chains_are_refused():
    sweep = small_sweep(drafts={"tree": tree_maker}, ks=(2,))
    with pytest.raises(ValueError, match="must be a chain .* verify_tree takes trees"):
        sweep.run()


def test_another_shape_is_another_setup(tmp_path):
    """Also where it has as many nodes, and the same tokens."""

    class Same:
        def __init__(self, parents):
            self.parents = parents

        def start(self, prompt):
            return self

        def propose(self, k, rng):
            return sd.Proposal((0, 1), None, self.parents)

        def commit(self, tokens):
            pass

    path = tmp_path / "records.jsonl"
    options = {"ks": (2,), "seeds": (0,), "verify": sd.verify_tree}
    small_sweep(drafts={"tree": Same((-1, -1))}, max_new_tokens=1, **options).run(path)
    with pytest.raises(ValueError, match="a record of another setup"):
        small_sweep(drafts={"tree": Same((-1, 0))}, max_new_tokens=1, **options).run(
            path
        )


# Progress, bad arguments, and what is imported


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_progress_line_on_a_terminal_and_in_a_pipe():
    terminal, pipe = Terminal(), io.StringIO()
    sweep = small_sweep(ks=(1,), drafts={"model": DRAFT})
    sweep.run(progress=ex.progress_line(terminal))
    sweep.run(progress=ex.progress_line(pipe))
    assert pipe.getvalue() == ""
    lines = terminal.getvalue().split("\r")
    assert lines[1].startswith("0 of 8 cells")
    assert "4 of 8 cells, about 0 s left" in lines[5]
    assert lines[-1].startswith("8 of 8 cells")
    assert lines[-1].endswith("\n")


@pytest.mark.parametrize(
    "changes, kind, message",
    [
        ({"drafts": {}}, TypeError, "drafts must map at least one name, got {}"),
        ({"drafts": DRAFT}, TypeError, "drafts must map at least one name"),
        ({"prompts": [(0,)]}, TypeError, "prompts must map at least one name"),
        ({"prompts": {0: (0,)}}, TypeError, "prompts must have names as keys, got 0"),
        ({"prompts": {"x": (9,)}}, ValueError, r"prompts\['x'\] must be inside 0 .. 3"),
        ({"ks": ()}, ValueError, "ks must be some values, none twice"),
        ({"ks": (1, 1)}, ValueError, "ks must be some values, none twice"),
        ({"ks": (-1,)}, ValueError, "ks must be 0 or more, got -1"),
        ({"ks": (1.5,)}, TypeError, r"ks must be an integer, got 1\.5"),
        ({"temperatures": (-1,)}, ValueError, "temperature must be a finite number"),
        ({"seeds": (-1,)}, ValueError, "seeds must be 0 or more, got -1"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens must be 1 or more, got 0"),
    ],
)
def test_bad_sweeps(changes, kind, message):
    with pytest.raises(kind, match=message):
        small_sweep(**changes)


def test_bad_workers(tmp_path):
    with pytest.raises(ValueError, match="workers must be 1 or more, got 0"):
        small_sweep().run(tmp_path / "new.jsonl", workers=0)
    assert not list(tmp_path.iterdir())


def test_one_process_needs_no_others():
    """In a browser there are none."""
    code = (
        "import sys; from specdec_lib import experiments;"
        "print([m for m in ('multiprocessing', 'concurrent.futures') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
