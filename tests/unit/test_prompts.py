"""The prompts that ship: enough of each kind, readable, and free to use."""

from collections import Counter

import pytest

from specdec_lib.prompts import KINDS, Prompt, load_prompts

PROMPTS = load_prompts()


def test_enough_of_each_kind():
    kinds = Counter(prompt.kind for prompt in PROMPTS)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 12
    assert kinds["grounded"] == kinds["open"]


def test_the_tasks_are_all_there():
    tasks = {kind: {p.task for p in load_prompts(kind)} for kind in KINDS}
    assert tasks["grounded"] >= {
        "fix typos", "rename in code", "extract", "summarise", "question on a text",
        "reformat",
    }  # fmt: skip
    assert tasks["open"] >= {"story", "explanation", "advice", "poem", "code"}


def test_names_are_unique_and_short():
    names = [prompt.name for prompt in PROMPTS]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and len(name) <= 20 for name in names)
    texts = [prompt.text for prompt in PROMPTS]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)
def test_a_text_is_plain_and_stripped(prompt):
    for text in (prompt.text, *(prompt.example or ())):
        assert text == text.strip() != ""
        assert text.isascii()
        assert "\t" not in text
        assert "\r" not in text


def test_by_kind_in_the_order_of_the_file():
    both = [*load_prompts("grounded"), *load_prompts("open")]
    assert sorted(both, key=PROMPTS.index) == list(PROMPTS)
    with pytest.raises(ValueError, match="kind must be one of grounded, open, got 'x'"):
        load_prompts("x")


def test_messages_with_an_example_before_them():
    prompt = Prompt("a", "grounded", "fix typos", "Ths.", ("Teh.", "The."))
    assert prompt.messages == [
        {"role": "user", "content": "Teh."},
        {"role": "assistant", "content": "The."},
        {"role": "user", "content": "Ths."},
    ]


def test_the_licence_names_them(root):
    text = (root / "LICENSE-PROSE").read_text(encoding="utf-8")
    assert "specdec_lib/data/prompts/" in text
