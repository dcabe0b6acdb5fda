"""Weights of few bits: by hand, and beside the gguf package on every kind."""

import numpy as np
import pytest
from llama_kit import fields_of, gguf_bytes, tensors_of, toy

from specdec_lib.llama.gguf_file import GGUFFile
from specdec_lib.llama.quantised import (
    DECODERS,
    KINDS,
    block_size,
    decode,
    decode_into,
    q4_0,
    q4_1,
    q8_0,
)
from specdec_lib.llama.reading import read_config, read_weights

ONE, HALF = np.float16(1).tobytes(), np.float16(0.5).tobytes()


def one_block(content):
    return np.frombuffer(content, np.uint8)[None]


def test_blocks_by_hand():
    packed = bytes([0x10 * (15 - i) + i for i in range(16)])  # low i, high 15 - i
    up, down = list(range(16)), list(range(15, -1, -1))
    whole = np.array(up + down)
    assert (q4_1(one_block(HALF + ONE + packed))[0] == 0.5 * whole + 1).all()
    assert (q4_0(one_block(HALF + packed))[0] == 0.5 * (whole - 8)).all()
    numbers = np.arange(-16, 16, dtype=np.int8)
    assert (q8_0(one_block(HALF + numbers.tobytes()))[0] == 0.5 * numbers).all()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_beside_the_package(kind):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    name, weights, size = block_size(kind)
    named = gguf.GGMLQuantizationType(kind)
    assert named.name == name
    assert gguf.GGML_QUANT_SIZES[named] == (weights, size)
    data = random_rows(40, 3 * 32 // weights, name, size)
    if name not in DECODERS:
        return
    expected = gguf.dequantize(data, named)
    out = decode(data, name)
    assert out.dtype == np.float32
    assert (out == expected).all()


def random_rows(rows, blocks, kind, size, seed=0):
    """Random bytes, with scales that are numbers of a reasonable size."""
    g = np.random.default_rng(seed)
    data = g.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    halves = {"Q4_0": 1, "Q4_1": 2, "Q8_0": 1, "Q6_K": 0}.get(kind, 0)
    scales = (g.normal(size=(rows, blocks, halves)) * 0.02).astype(np.float16)
    data[:, :, : 2 * halves] = scales.view(np.uint8)
    return data.reshape(rows, -1)


def test_a_few_rows_at_a_time(monkeypatch):
    from specdec_lib.llama import quantised

    data = random_rows(10, 2, "Q4_1", 20)
    whole = decode(data, "Q4_1")
    for piece in (1, 64, 65, 200, 10**6):
        monkeypatch.setattr(quantised, "PIECE", piece)
        out = np.zeros((10, 64), np.float32)
        decode_into(out, data, "Q4_1")
        assert (out == whole).all()


@pytest.mark.parametrize(
    "name", ["Q4_0", "Q4_1", "Q8_0", "F16", "BF16", "Q5_0", "Q6_K"]
)
def test_a_model_of_few_bits(tmp_path, name):
    """Read from a file, as the package would decode its tensors."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    kind = gguf.GGMLQuantizationType[name]
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    wide = 256 if name == "Q6_K" else 64
    small = toy(1, width=wide, hidden=wide, heads=4, kv_heads=2, head_width=wide // 4)
    tensors = tensors_of(small)
    decoded = {}
    for i, (each, tensor) in enumerate(tensors.items()):
        if tensor.ndim == 1:
            continue
        if name in ("F16", "BF16"):
            data = gguf.quantize(tensor, kind)
        else:
            blocks = tensor.shape[1] // weights
            data = random_rows(tensor.shape[0], blocks, name, size, seed=i)
            if name in ("Q5_0", "Q6_K"):  # scales elsewhere: from real weights
                data = gguf.quantize(tensor, kind) if name == "Q5_0" else zero_k(data)
        tensors[each] = (int(kind), tensor.shape, data.tobytes())
        decoded[each] = gguf.dequantize(data, kind)
    path = tmp_path / "few.gguf"
    path.write_bytes(gguf_bytes(fields_of(small.config), tensors))
    file = GGUFFile(path)
    weights = read_weights(file, read_config(file))
    assert (weights.embedding == decoded["token_embd.weight"]).all()
    layer = weights.layers[1]
    for matrix, names in (
        (layer.qkv, ["attn_q", "attn_k", "attn_v"]),
        (layer.output, ["attn_output"]),
        (layer.gate_up, ["ffn_gate", "ffn_up"]),
        (layer.down, ["ffn_down"]),
    ):
        expected = [decoded[f"blk.1.{each}.weight"] for each in names]
        assert (matrix == np.concatenate(expected)).all()


def zero_k(data):
    """Q6_K keeps its scale at the end of a block of 210 bytes."""
    blocks = data.reshape(-1, 210).copy()
    blocks[:, 208:] = np.full((len(blocks), 1), 0.01, np.float16).view(np.uint8)
    return blocks.reshape(data.shape)


def test_an_unknown_kind(tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed")
    small = toy(1)
    tensors = tensors_of(small) | {"odd": (999, (2, 32), bytes(64))}
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_bytes(fields_of(small.config), tensors))
    with pytest.raises(ValueError, match="odd.gguf is not a whole GGUF file: .*999"):
        GGUFFile(path)
