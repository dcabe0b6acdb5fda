"""GGUF files: whole ones beside the gguf package, broken ones by their message."""

import contextlib
import importlib.util

import numpy as np
import pytest
from llama_kit import fields_of, gguf_bytes, tensors_of, toy, write_toy

from specdec_lib import llama
from specdec_lib.llama.gguf_file import GGUFFile
from specdec_lib.llama.reading import read_config, read_weights

TOY = toy(2, tied=False)
needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed"
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toy.gguf"


def read(path):
    file = GGUFFile(path)
    return read_weights(file, read_config(file))


def test_beside_the_package(path):
    """A file that the gguf package wrote, with every kind of field."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    writer = gguf.GGUFWriter(str(path), "llama")
    fields = fields_of(TOY.config)
    for name, value in fields.items():
        if name == "general.architecture":
            continue
        if isinstance(value, list):
            if value:
                writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_float32(name, value)
    extra = {
        "a.bool": (writer.add_bool, True),
        "a.int8": (writer.add_int8, -3),
        "a.uint16": (writer.add_uint16, 60000),
        "a.int64": (writer.add_int64, -(2**40)),
        "a.float64": (writer.add_float64, 0.1),
        "a.text": (writer.add_string, "naïve 漢"),
        "a.floats": (writer.add_array, [0.5, 0.25]),
        "a.bools": (writer.add_array, [True, False]),
    }
    for name, (add, value) in extra.items():
        add(name, value)
    for name, tensor in TOY.tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = GGUFFile(path)
    for name, (_, value) in extra.items():
        assert file.field(name) == value
    reader = gguf.GGUFReader(str(path))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            assert file.field(name) == field.contents(), name
    assert read_config(file).width == TOY.config.width
    for tensor in reader.tensors:
        found = file.tensor(tensor.name, tensor.data.shape)
        assert found.kind == tensor.tensor_type.name
        assert (found.data.view(np.float32).reshape(found.shape) == tensor.data).all()


def test_our_own_writer_is_read_by_the_package(path):
    """So that the other tests do not rest on a private kind of file."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    write_toy(path, TOY)
    tensors = {each.name: each.data for each in gguf.GGUFReader(str(path)).tensors}
    assert tensors.keys() == TOY.tensors.keys()
    for name, data in tensors.items():
        assert (data == TOY.tensors[name]).all()


@needs_tokenizers
def test_load(path):
    write_toy(path, TOY)
    model, tokenizer = llama.load(path)
    assert (model.vocab_size, model.bos_id, model.context_window) == (37, 0, 64)
    assert tokenizer.vocab_size == 37
    assert tokenizer.stop_ids == (0,)
    assert model.dtype == np.float32
    double, _ = llama.load(str(path), dtype="float64")
    expected = TOY.model().start().extend([1, 2, 3])
    assert np.abs(double.start().extend([1, 2, 3]) - expected).max() < 1e-6  # epsilon
    assert np.abs(model.start().extend([1, 2, 3]) - expected).max() < 1e-4
    assert repr(model) == "<LlamaModel: 2 layers of width 24, 37 ids>"


@needs_tokenizers
def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*none.gguf"):
        llama.load(tmp_path / "none.gguf")
    with pytest.raises(FileNotFoundError, match=r"no file gpt5.*there are: smollm2"):
        llama.load("gpt5")
    with pytest.raises(IsADirectoryError):
        llama.load(tmp_path)


@pytest.mark.parametrize("dtype", ("float16", "int32", "complex64"))
def test_other_types(path, dtype):
    with pytest.raises(ValueError, match=f"dtype must be .*got {dtype}"):
        llama.load(path, dtype=dtype)


@pytest.mark.parametrize("share", [*np.linspace(0, 0.999, 40)])
def test_a_truncated_file(path, share):
    whole = gguf_bytes(fields_of(TOY.config), tensors_of(TOY))
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ValueError, match="toy.gguf is not a whole GGUF file: "):
        GGUFFile(path)


def test_cut_by_one_byte_in_the_last_tensor(path):
    whole = gguf_bytes(fields_of(TOY.config), tensors_of(TOY))
    path.write_bytes(whole)
    read(path)
    path.write_bytes(whole[:-33])  # at most 31 bytes at the end are padding
    with pytest.raises(ValueError, match=r"ends at byte \d+, in its tensor 'blk.1"):
        GGUFFile(path)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(magic=b"GGML"), "it starts with b'GGML', not b'GGUF'"),
        (dict(version=1), "it is of version 1; versions 2 and 3 are read"),
        (dict(version=7), "it is of version 7"),
        (dict(version=3 << 24), "it is of version"),  # the other order of bytes
    ],
)
def test_other_files(path, options, message):
    path.write_bytes(gguf_bytes(fields_of(TOY.config), tensors_of(TOY), **options))
    with pytest.raises(ValueError, match=message):
        GGUFFile(path)


def test_noise(path):
    """Whatever is in the head of a file: a ValueError, never another error."""
    whole = gguf_bytes(fields_of(TOY.config), tensors_of(TOY))
    g = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(whole)
        for place in g.integers(4, 3000, 3):
            broken[place] = g.integers(256)
        path.write_bytes(broken)
        with contextlib.suppress(ValueError):
            read(path)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"general.architecture": "qwen2"}, "architecture 'llama', got 'qwen2'"),
        ({"general.architecture": None}, "architecture 'llama', got None"),
        ({"llama.block_count": None}, "has no field 'llama.block_count'"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "no field"),
        ({"llama.attention.head_count_kv": 3}, "heads must be a multiple of kv_heads"),
        ({"llama.attention.head_count_kv": [2, 2]}, "one whole number"),
        ({"llama.rope.freq_base": [1.0]}, "freq_base must be one number, got"),
        ({"general.alignment": 0}, "not a whole GGUF file: its general.alignment is 0"),
        ({"general.alignment": "a"}, "its general.alignment is 'a'"),
        ({"llama.attention.head_count": 0}, "heads must be 1 or more, got 0"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.rope.scaling.type": "yarn"}, "must be none or linear, got 'yarn'"),
        ({"llama.rope.dimension_count": 4}, "must be the width of a head, 6, got 4"),
        ({"llama.feed_forward_length": 21}, r"must have shape \(21, 24\), got \(20"),
        ({"llama.block_count": 3}, "has no tensor 'blk.2.attn_norm.weight'"),
        ({"llama.block_count": 1}, "tensors that are not read: blk.1.attn_k"),
    ],
)
def test_other_models(path, changed, message):
    write_toy(path, TOY, **changed)
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert str(caught.value).count("toy.gguf") == 1


@pytest.mark.parametrize("name", sorted(TOY.tensors))
def test_a_missing_tensor(path, name):
    tensors = tensors_of(TOY)
    del tensors[name]
    path.write_bytes(gguf_bytes(fields_of(TOY.config), tensors))
    if name == "output.weight":  # then the head is the embedding
        weights = read(path)
        assert weights.head is weights.embedding
        return
    with pytest.raises(ValueError, match="toy.gguf"):
        read(path)


def test_a_tensor_that_is_not_known(path):
    tensors = tensors_of(TOY) | {"blk.0.attn_q.bias": np.zeros(24, np.float32)}
    path.write_bytes(gguf_bytes(fields_of(TOY.config), tensors))
    with pytest.raises(ValueError, match="that are not read: blk.0.attn_q.bias"):
        read(path)


def test_positions_slowed_by_one_factor(path):
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    write_toy(path, TOY, **scaling)
    assert read_config(GGUFFile(path)).rope_factors == (2.0, 2.0, 2.0)


@needs_tokenizers
def test_a_tokenizer_of_another_size(path):
    write_toy(path, TOY, **{"tokenizer.ggml.tokens": ["a"] * 3})
    with pytest.raises(ValueError, match="kinds must be 3 numbers"):
        llama.load(path)
    kinds = {"tokenizer.ggml.token_type": [1] * 3}
    write_toy(path, TOY, **{"tokenizer.ggml.tokens": ["a", "b", "c"]}, **kinds)
    with pytest.raises(ValueError, match="has 3 tokens, the embedding 37"):
        llama.load(path)
