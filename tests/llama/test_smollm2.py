"""The real model: SmolLM2-135M-Instruct beside transformers on the same file."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib import llama

pytestmark = pytest.mark.slow
GREEDY = sd.Sampler(temperature=0)

PROMPTS = [
    "Fix the typos: Teh harbor was quite, and teh boats slept.",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "What is the capital of France, and how many people live there?",
    "Rename the variable x to total:\n\ndef f(x):\n    return x + 1\n",
    "Explain in two sentences why the sky is blue.",
    "Give me three pieces of advice on learning to swim.",
    "Summarise: The meeting is moved from Monday to Wednesday at ten, room 204.",
    "Reformat as JSON: name Ada Lovelace, born 1815, field mathematics.",
    "Translate into French: The cat sleeps on the chair.",
    "A poem of four lines about rain.",
    "List the numbers from 1 to 20, one to a line.",
    "Who wrote the play Hamlet?",
    "Write a Python function that reverses a string.",
    "Extract all dates: We met on 3 May 2021 and again on 17 June 2022.",
    "What should I cook with rice, eggs and spinach?",
    "Is 91 a prime number? Explain.",
    "Continue: Once upon a time, in a village by the sea,",
    "Sort these words: pear, apple, quince, fig.",
    "Naïve café, 漢字, 🙂 – repeat these words.",
    "Describe a bicycle to somebody who has never seen one. " * 6,
]
TEXTS = (0, 3, 4, 10)  # those that are answered


@pytest.fixture(scope="module")
def ours(smollm2_path):
    return llama.load("smollm2")


@pytest.fixture(scope="module")
def theirs(smollm2_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="not installed")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
    ).eval()

    def logits(tokens):
        with torch.no_grad():
            return model(torch.tensor([list(map(int, tokens))])).logits[0].numpy()

    return logits


def test_what_it_is(ours):
    model, tokenizer = ours
    c = model.config
    assert (c.layers, c.width, c.heads, c.kv_heads, c.head_width) == (30, 576, 9, 3, 64)
    assert (model.vocab_size, model.context_window, model.bos_id) == (49152, 8192, 1)
    assert model.weights.head is model.weights.embedding
    assert tokenizer.pieces(tokenizer.stop_ids) == ["<|im_end|>"]
    assert tokenizer.chat_text("Hi") == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by "
        "Hugging Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_it_answers(ours):
    """Without any other package as a witness."""
    model, tokenizer = ours
    done = sd.generate(
        model,
        tokenizer.chat("What is the capital of France?"),
        max_new_tokens=20,
        sampler=GREEDY,
        stop_ids=tokenizer.stop_ids,
    )
    assert tokenizer.decode(done.tokens) == "The capital of France is Paris."
    assert done.finish_reason == "stop"


@pytest.mark.parametrize("i", range(len(PROMPTS)))
def test_logits(ours, theirs, i):
    model, tokenizer = ours
    prompt = tokenizer.chat(PROMPTS[i])
    logits = model.start().extend(prompt)
    assert np.abs(logits - theirs(prompt)).max() < 1e-3


@pytest.mark.parametrize("i", TEXTS)
def test_greedy_text(ours, theirs, i):
    """Every token of 128 is transformers' own choice after those before it.

    A token that is not has to lie within rounding of it; such near ties are named.
    """
    model, tokenizer = ours
    prompt = tokenizer.chat(PROMPTS[i])
    plain = sd.generate(model, prompt, max_new_tokens=128, sampler=GREEDY)
    guessed = sd.generate(
        model,
        prompt,
        draft=sd.PromptLookup(),
        k=4,
        max_new_tokens=128,
        sampler=GREEDY,
    )
    rows = theirs([*prompt, *plain.tokens])[len(prompt) - 1 : -1]
    best = np.sort(rows, axis=1)[:, -2:]
    ties = {}
    for place, (row, token) in enumerate(zip(rows, plain.tokens, strict=True)):
        if row.argmax() != token:
            ties[place] = float(row.max() - row[token])
    assert not ties or max(ties.values()) < 2e-4, f"not transformers' choice: {ties}"
    gap = (best[:, 1] - best[:, 0]).min()
    print(f"{PROMPTS[i][:40]!r}: smallest gap of the two best {gap:.5f}, ties {ties}")
    if not ties and gap > 1e-3:
        assert guessed.tokens == plain.tokens


def test_one_by_one_equals_at_once_in_float64(smollm2_path):
    model, tokenizer = llama.load("smollm2", dtype=np.float64)
    tokens = tokenizer.chat("Hi, who are you?")[-16:]
    rows = model.start().extend(tokens)
    state = model.start()
    one = np.array([state.extend([token])[0] for token in tokens])
    assert np.abs(one - rows).max() < 1e-9
    state.rewind(5)
    again = state.extend(tokens[5:9])
    assert np.abs(again - rows[5:9]).max() < 1e-9
    state.rewind(9)
    tree = state.extend_tree([*tokens[9:11], 7, 8], [-1, 0, -1, 2])
    assert np.abs(tree[:2] - rows[9:11]).max() < 1e-9
    state.keep([2, 3])
    branch = model.start().extend([*tokens[:9], 7, 8, 9])
    assert np.abs(tree[2:] - branch[9:11]).max() < 1e-9
    assert np.abs(state.extend([9])[0] - branch[11]).max() < 1e-9


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts it")
def test_loading_is_lean(smollm2_path):
    """At most 1.5 times the weights as float32, in a process of its own.

    How long it takes is for the benchmark to say.
    """
    # Not resource.getrusage: a new program takes over the peak of the one that ran it.
    code = (
        "from specdec_lib import llama; llama.load('smollm2'); "
        "print(open('/proc/self/status').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", done.stdout, re.M)
    assert int(peak) * 1024 < 1.5 * 134_515_008 * 4
