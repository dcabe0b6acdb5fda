"""The compiled kernel: the file's own bits, multiplied as the floats would be."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

import specdec_lib as sd
from specdec_lib import llama
from specdec_lib.llama import kernel
from specdec_lib.llama.linear import linear, rows_of
from specdec_lib.llama.quantised import decode

SIZES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}
G = np.random.default_rng(0)


def raw(kind, rows, blocks):
    """Random rows as a file holds them, and the same as floats."""
    data = G.integers(0, 256, (rows, blocks, SIZES[kind]), dtype=np.uint8)
    halves = 2 if kind == "Q4_1" else 1
    scales = (G.normal(size=(rows, blocks, halves)) * 0.05).astype(np.float16)
    data[:, :, : 2 * halves] = scales.view(np.uint8)
    data = data.reshape(rows, -1)
    return data, decode(data, kind)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize(
    "rows, blocks", [(1, 1), (2, 18), (64, 2), (301, 3), (640, 18), (97, 48)]
)
def test_products(kind, rows, blocks):
    data, floats = raw(kind, rows, blocks)
    weight = kernel.pack(kind, data)
    assert weight.shape == floats.shape
    exact = floats.astype(np.float64)
    for T in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 40):
        x = G.normal(size=(T, 32 * blocks)).astype(np.float32)
        out = linear(x, weight)
        assert out.shape == (T, rows)
        error = np.abs(out - x @ exact.T)
        scale = np.abs(x).astype(np.float64) @ np.abs(exact).T
        assert (error <= 2e-6 * scale).all()


@pytest.mark.parametrize("kind", SIZES)
def test_only_its_own_rows_are_written(kind):
    rows = 2 * kernel.ROWS + 5
    data, _ = raw(kind, rows, 2)
    weight = kernel.pack(kind, data)
    x = G.normal(size=(3, 64)).astype(np.float32)
    matrix = weight.codes, weight.scales, weight.offsets
    whole = np.empty((3, rows), np.float32)
    weight.multiply(x, whole)
    bounds = 0, 1, 7, 63, 64, 65, 127, 128, 129, rows - 1, rows
    for first in bounds:
        for last in bounds:
            out = np.full((3, rows), np.nan, np.float32)
            kernel._multiply(*matrix, x, first, last, out)
            written = np.isfinite(out).all(axis=0)
            assert np.flatnonzero(written).tolist() == list(range(first, last))
            assert (out[:, written] == whole[:, written]).all()
            assert np.isnan(out[:, ~written]).all()


@pytest.mark.parametrize("threads", (1, 2, 3, 4))
@pytest.mark.parametrize("openmp", (True, False))
def test_every_sharing_of_the_rows_gives_the_same(monkeypatch, threads, openmp):
    if openmp and not kernel.has_openmp():
        pytest.skip("numba has no OpenMP here")
    before = kernel.numba.get_num_threads()
    for rows in (1, 64, 65, 5 * kernel.ROWS + 3):
        weight = kernel.pack("Q4_1", raw("Q4_1", rows, 3)[0])
        x = G.normal(size=(5, 96)).astype(np.float32)
        alone, shared = np.full((2, 5, rows), np.nan, np.float32)
        matrix = weight.codes, weight.scales, weight.offsets
        kernel._multiply(*matrix, x, 0, rows, alone)
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "has_openmp", lambda: openmp)
            patch.setattr(kernel.linear, "thread_count", lambda: threads)
            patch.setattr(kernel.linear, "LEAST", 0)
            weight.multiply(x, shared)
        assert (alone == shared).all()
    assert kernel.numba.get_num_threads() == before


def test_several_threads_may_multiply_at_once():
    weight = kernel.pack("Q8_0", raw("Q8_0", 640, 18)[0])
    x = G.normal(size=(4, 576)).astype(np.float32)
    expected = linear(x, weight)

    def again(_):
        return (linear(x, weight) == expected).all()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(again, range(200)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_multiplies_too():
    """OpenMP cannot be used in the child of a process that has used it."""
    program = """
import os, numpy as np
from specdec_lib.llama import kernel
weight = kernel.pack("Q8_0", np.zeros((300, 34), np.uint8))
x = np.ones((1, 32), np.float32)
def product():
    out = np.full((1, 300), np.nan, np.float32)
    weight.multiply(x, out)
    return (out == 0).all()
assert product()
child = os.fork()
if not child:
    os._exit(0 if product() else 1)
assert os.waitpid(child, 0)[1] == 0 and product()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


@pytest.mark.parametrize("kind", SIZES)
def test_rows_are_the_floats_of_the_file(kind):
    data, floats = raw(kind, 9, 3)
    weight = kernel.pack(kind, data)
    for chosen in ([0], [3, 3, 8], range(9)):
        rows = rows_of(weight, np.array(chosen), np.float32)
        assert (rows == floats[list(chosen)]).all()
    joined = kernel.join([weight, kernel.pack(kind, data[:4])])
    assert (joined.rows_of(np.arange(13)) == np.concatenate([floats, floats[:4]])).all()


def test_what_it_does_not_take():
    four = kernel.pack("Q4_1", raw("Q4_1", 2, 1)[0])
    eight = kernel.pack("Q8_0", raw("Q8_0", 2, 1)[0])
    assert kernel.pack("F16", np.zeros((2, 64), np.uint8)) is None
    assert kernel.join([four, eight]).shape == (4, 32)
    assert kernel.join([four, None]) is None


def test_only_float32(tmp_path):
    with pytest.raises(ValueError, match="dtype must be float32 where compiled"):
        llama.load(tmp_path / "x.gguf", compiled=True, dtype=np.float64)


@pytest.mark.slow
def test_the_real_model(smollm2_path):
    """The same logits but for rounding, the same text, trees and rewinds too."""
    plain, tokenizer = llama.load("smollm2")
    fast, _ = llama.load("smollm2", compiled=True)
    assert isinstance(fast.weights.layers[0].qkv, kernel.Blocks)
    assert isinstance(fast.weights.embedding, kernel.Blocks)
    prompt = tokenizer.chat("Explain in two sentences why the sky is blue.")
    a, b = plain.start(), fast.start()
    assert np.abs(a.extend(prompt) - b.extend(prompt)).max() < 1e-3
    tree = [5, 6, 7, 8], [-1, -1, 0, 2]
    assert np.abs(a.extend_tree(*tree) - b.extend_tree(*tree)).max() < 1e-3
    a.keep([0, 2])
    b.keep([0, 2])
    assert np.abs(a.extend([9]) - b.extend([9])).max() < 1e-3
    texts = [
        sd.generate(
            model,
            prompt,
            draft=draft,
            max_new_tokens=64,
            sampler=sd.Sampler(0),
            stop_ids=tokenizer.stop_ids,
        ).tokens
        for model in (plain, fast)
        for draft in (None, sd.PromptLookup())
    ]
    assert texts == [texts[0]] * 4
