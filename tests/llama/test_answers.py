"""Earlier answers to copy from: kept whole, taken up again, and the text stays."""

import json
import sys
from math import exp
from pathlib import Path

import numpy as np
import pytest
from llama_kit import toy, write_toy

import specdec_lib as sd
from specdec_lib import cli
from specdec_lib.llama import answers as kept
from specdec_lib.llama.answers import Answers, NGramGuesses
from specdec_lib.prompts import load_prompts
from specdec_lib.theory import cost_curve

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from toys import EXACT, TARGET, inexactness

GREEDY = sd.Sampler(temperature=0)
V = 37
CURVE = cost_curve([1, 2, 16], [1.0, 1.1, 1.6])
EMPTY = Answers("these tokens", V, (20.0, 0.0, 0.0))
PROMPTS = [[1, 2, 3], [4, 5, 6], [7, 8]]


def some():
    return EMPTY.with_answer([1, 2], [5, 6, 7, 8]).with_answer([3], [5, 6, 7, 9])


@pytest.fixture(scope="module")
def model():
    return toy(5, vocab_size=V, context_window=96).model()


def test_they_come_back_from_the_file(tmp_path):
    for answers in (EMPTY, some(), some().with_answer([4], [])):
        answers.save(tmp_path / "a")
        assert Answers.load(tmp_path / "a") == answers
    assert some().tokens == 8
    assert some().know([1, 2])
    assert not some().know([1, 3])


@pytest.mark.parametrize("fault", ("cut", "junk", "other", "ids", "lengths", "missing"))
def test_a_broken_file_is_refused(tmp_path, fault):
    path = tmp_path / "a"
    some().save(path)
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif fault == "junk":
        path.write_bytes(b"junk")
    elif fault == "other":
        sd.NGramModel.fit([[0, 1]], order=2, vocab_size=2).save(path)
    else:
        with np.load(path) as archive:
            content = dict(archive)
        if fault == "missing":
            del content["tokens"]
        elif fault == "ids":
            content["tokens"][0] = V
        else:
            content["lengths"][0] -= 1
        with open(path, "wb") as file:
            np.savez(file, **content)
    with pytest.raises(ValueError, match=str(path)):
        Answers.load(path)


def test_guesses_are_the_best_tokens_while_they_are_sure_enough():
    model = some().ngram(3)
    session = NGramGuesses(model, 0.1).start([1, 5, 6])
    guesses = session.propose(8).tokens
    assert guesses[0] == 7  # both answers say so
    chances, context = [], [5, 6]
    while np.prod(chances) >= 0.1:
        row = model.probabilities(context)
        chances.append(row.max())
        context.append(int(row.argmax()))
    assert list(guesses) == context[2:-1]
    assert session.propose(1).tokens == guesses[:1]
    assert NGramGuesses(model, 1.0).start([5, 6]).propose(4).tokens == ()
    session.commit([0, 5])
    assert session.propose(1).tokens == (6,)
    assert exp(model.log_prob(6, [0, 5])) >= 0.1


def test_the_text_itself_is_asked_first():
    run = (20, 21, 22, 23, 24, 25)
    answers = some().with_answer([9], [18, 19, *run, 26, 27])
    for prompt in ([10], [11]):  # what the n-gram model has seen more often
        answers = answers.with_answer(prompt, [23, 24, 25, 28])
    draft, k = kept.copies(CURVE, answers, k=3)
    assert k == 3
    ask = lambda *text: draft.start(text).propose(3, None).tokens  # noqa: E731
    assert ask(5, 6, 30, 31, 5, 6)[0] == 30  # and not 7, as the answers have it
    assert ask(*run, 30, 18, 19, *run)[0] == 30  # nor 26, after the longer match
    assert ask(*run)[:2] == (26, 27)  # six tokens are enough to copy an answer
    assert ask(*run[1:])[0] == 28  # five are not
    assert ask(9, 5, 6)[0] == 7
    assert kept.copies(CURVE, EMPTY, k=3)[0] == sd.SuffixDraft()
    own, length = kept.copies(CURVE, None)
    assert own.history is None
    assert length.next_k() > 0


@pytest.mark.parametrize("k", (None, 5))
@pytest.mark.parametrize("temperature", (0, 1))
def test_text_stays_as_it_is(model, k, temperature):
    """With answers of the model itself to copy from, which are taken up a lot."""
    options = dict(
        max_new_tokens=40, sampler=sd.Sampler(temperature), stop_ids=[3], seed=4
    )
    answers = EMPTY
    for prompt in PROMPTS:
        plain = sd.generate(model, prompt, **options)
        answers = answers.with_answer(prompt, plain.tokens)
    draft, length = kept.copies(CURVE, answers, k=k)
    for prompt in (*PROMPTS, [1, 2, 3, 4, 5]):
        plain = sd.generate(model, prompt, **options)
        quick = sd.generate(model, prompt, draft=draft, k=length, **options)
        if temperature == 0:
            assert quick.tokens == plain.tokens
        assert len(quick.tokens) > 0
    assert quick.metrics.drafted > 0


@pytest.mark.parametrize("temperature", (0.0, 0.7, 1.0))
@pytest.mark.parametrize("k", (1, 3))
def test_exact(temperature, k):
    """Every branch of the real loop, with guesses from each of the parts."""
    answers = Answers("these tokens", 3, (9.0, 1.0, 0.0))
    answers = answers.with_answer([0], [0, 1, 1, 2, 0, 0, 1, 1, 2, 2])
    draft, _ = kept.copies(cost_curve([1, 2], [1, 1.05]), answers, k=k)
    options = dict(k=k, tokens=5, prompt=(0, 1), sampler=sd.Sampler(temperature))
    assert inexactness(TARGET, draft, **options) < EXACT
    alone = NGramGuesses(answers.ngram(), 0.01)
    assert len(alone.start((0, 1)).propose(k).tokens) == k
    assert inexactness(TARGET, alone, **options) < EXACT


def test_distilled_are_the_models_own_answers(model, tmp_path):
    path, said = tmp_path / "a", []
    options = dict(vocabulary="these tokens", max_new_tokens=20)
    answers = kept.distill(model, PROMPTS, path, progress=said.append, **options)
    for prompt, text in zip(PROMPTS, answers.texts, strict=True):
        plain = sd.generate(model, prompt, max_new_tokens=20, sampler=GREEDY)
        assert text == plain.tokens
    assert Answers.load(path) == answers
    assert said[0] == "answer 1 of 3, 0 tokens so far"
    assert len(said) == 3


def test_broken_off_and_gone_on_with(model, tmp_path):
    path = tmp_path / "a"
    options = dict(vocabulary="these tokens", max_new_tokens=20)

    def interrupt(what):
        if what.startswith("answer 3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.distill(model, PROMPTS, path, progress=interrupt, **options)
    assert len(Answers.load(path).texts) == 2
    said = []
    answers = kept.distill(model, PROMPTS, path, progress=said.append, **options)
    assert len(said) == 1
    assert answers == kept.distill(model, PROMPTS, tmp_path / "b", **options)
    more = kept.distill(model, [*PROMPTS, [9]], path, **options)
    assert more.texts[:3] == answers.texts
    assert len(more.texts) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(vocabulary="others"), "a model with other tokens"),
        (dict(max_new_tokens=21), "at most 20 tokens at temperature 0, seed 0"),
        (dict(temperature=1.0), "at most 20 tokens at temperature 0, seed 0"),
        (dict(prompts=[[1] * 96]), "prompts must leave room .* number 1 has 96"),
    ],
)
def test_answers_that_do_not_fit(model, tmp_path, change, message):
    options = dict(vocabulary="these tokens", max_new_tokens=20, prompts=PROMPTS[:1])
    kept.distill(model, path=tmp_path / "a", **options)
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(ValueError, match=message):
        kept.distill(model, path=tmp_path / "a", **options | change)
    assert (tmp_path / "a").read_bytes() == before


@pytest.fixture
def path(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models"))
    write_toy(tmp_path / "tiny.gguf", toy(3, vocab_size=90, context_window=160))
    (tmp_path / "prompts.txt").write_text("abc\n\ndef\nghi\n", encoding="utf-8")
    return tmp_path / "tiny.gguf"


def run(capsys, *arguments):
    code = cli.main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def generate(capsys, path, *flags):
    options = ["--prompt", "abcd", "--temperature", 0, "--max-tokens", 60]
    code, out, error = run(
        capsys, "generate", "--model", path, *options, "--json", *flags
    )
    assert code == 0, error
    return json.loads(out)


def test_the_command(capsys, path):
    """Put by for the model, used from then on, shown, and the text is the same."""
    folder = path.parent
    before = generate(capsys, path)
    assert before["history"] is None
    prompts = ["--prompts", folder / "prompts.txt"]
    ngram = folder / "ngram.npz"
    distill = ["models", "distill", path, *prompts, "--max-tokens", 60]
    code, out, _ = run(capsys, *distill, "--ngram", ngram)
    assert code == 0
    place = folder / "models" / "tiny.answers"
    answers = Answers.load(place)
    assert out.startswith(f"{place}: 3 answers, {answers.tokens:,} tokens\n")
    assert len(answers.texts) == 3
    assert sd.NGramModel.load(ngram).vocab_size == 90
    after = generate(capsys, path)
    assert after["history"] == {
        "file": str(place),
        "answers": 3,
        "tokens": answers.tokens,
        "knows_prompt": False,
    }
    assert after["same_tokens"]
    assert after["speculative"]["text"] == before["plain"]["text"]
    known = generate(capsys, path, "--prompt", "def", "--k", 6)
    assert known["history"]["knows_prompt"]
    alone = generate(capsys, path, "--prompt", "def", "--k", 6, "--no-history")
    assert alone["history"] is None
    assert known["speculative"]["rounds"] < alone["speculative"]["rounds"]
    code, out, _ = run(capsys, "generate", "--model", path, "--prompt", "def")
    assert "3 earlier answers" in out
    assert "THIS VERY PROMPT" in out
    assert run(capsys, "models", "get", path)[0] == 0
    assert f"copy from: {place}" in run(capsys, "models", "list")[1]


def test_a_file_that_is_named(capsys, path):
    folder = path.parent
    prompts = ["--prompts", folder / "prompts.txt"]
    out = ["-o", folder / "a", "--temperature", 0.7, "--seed", 3, "--max-tokens", 30]
    assert run(capsys, "models", "distill", path, *prompts, *out)[0] == 0
    assert Answers.load(folder / "a").how == (30.0, 0.7, 3.0)
    assert generate(capsys, path)["history"] is None
    found = generate(capsys, path, "--history", folder / "a")["history"]
    assert found["file"] == str(folder / "a")


def test_the_seed_changes_the_answers(capsys, path):
    """And the same seed gives the same ones, whatever file they go to."""
    folder = path.parent
    texts = []
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        flags = ["-o", folder / name, "--prompts", folder / "prompts.txt"]
        flags += ["--temperature", 1, "--max-tokens", 30, "--seed", seed]
        assert run(capsys, "models", "distill", path, *flags)[0] == 0
        texts.append(Answers.load(folder / name).texts)
    assert texts[0] == texts[2] != texts[1]


def test_with_no_more_than_it_needs(capsys, path):
    """All prompts that ship, as long as answers are by default."""
    write_toy(path, toy(3, vocab_size=90, context_window=9000))
    code, out, error = run(capsys, "models", "distill", path)
    assert code == 0, error
    place = path.parent / "models" / "tiny.answers"
    assert out.startswith(f"{place}: {len(load_prompts())} answers, ")
    assert Answers.load(place).how == (160.0, 0.0, 0.0)


def test_answers_of_another_model(capsys, path):
    """Refused where they are named, passed over where they only have its name."""
    place = path.parent / "models" / "tiny.answers"
    place.parent.mkdir()
    some().save(place)
    assert generate(capsys, path)["history"] is None
    code, out, error = run(capsys, "generate", "--model", path, "--history", place)
    assert (code, out) == (2, "")
    assert "a model with other tokens" in error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seed", "1"], "--seed changes nothing at temperature 0"),
        (["-o", "none/a"], "output: there is no folder none"),
        (["--ngram", "none/a"], "ngram: there is no folder none"),
        (["--prompts", "none.txt"], "none.txt: No such file"),
        (["--max-tokens", "0"], "must be 1 or more"),
        (["--temperature", "-1"], "temperature must be"),
    ],
)
def test_flags_of_distill_that_do_not_fit(capsys, path, flags, message):
    try:
        code, out, error = run(capsys, "models", "distill", path, *flags)
    except SystemExit as stop:
        code, out, error = stop.code, *capsys.readouterr()
    assert (code, out) == (2, "")
    assert message in error


def test_flags_that_contradict(capsys, path):
    flags = ["--history", "a", "--no-history"]
    code, _, error = run(capsys, "generate", "--model", path, *flags)
    assert code == 2
    assert "contradict" in error
    for flag in (["--history", "a"], ["--no-history"]):
        assert run(capsys, "generate", *flag)[0] == 2
    pair = path.parent / "pair.npz"
    pair.write_bytes(b"PK")
    code, _, error = run(capsys, "models", "distill", pair)
    assert code == 2
    assert "MODEL must be a real one" in error


def test_prompts_of_ones_own(tmp_path):
    from specdec_lib.prompts import read_prompts

    lines = tmp_path / "a.txt"
    lines.write_bytes(b"\xef\xbb\xbfA poem.\r\n\r\nA caf\xc3\xa9?\r\n")
    assert [each.text for each in read_prompts(lines)] == ["A poem.", "A café?"]
    table = tmp_path / "a.toml"
    table.write_text('[[prompt]]\ntext = "One"\nexample = ["a", "b"]\n')
    (prompt,) = read_prompts(table)
    assert [each["content"] for each in prompt.messages] == ["a", "b", "One"]
    for wrong in ("", "x = 1", '[[prompt]]\nname = "a"', "prompt = 3", "[[prompt"):
        table.write_text(wrong)
        with pytest.raises(ValueError, match=str(table)):
            read_prompts(table)
    lines.write_text(" \n")
    with pytest.raises(ValueError, match="at least one prompt, got none"):
        read_prompts(lines)
    lines.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="that can be read"):
        read_prompts(lines)
