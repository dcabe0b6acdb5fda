"""From a GGUF file to a configuration and weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import Config, Floats, Layer, Weights
from .gguf_file import GGUFFile, Tensor
from .model import LlamaModel
from .quantised import PIECE, decode, decode_into

MAX_HEAD_WIDTH = 1 << 16  # no model has a hundredth of it


def read_config(file: GGUFFile) -> Config:
    """The sizes and constants that the file states; ValueError for bad ones."""
    size, number = partial(_size, file), partial(_number, file)
    scaling = file.field("llama.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ValueError(
            f"{file.path}: llama.rope.scaling.type must be none or linear, "
            f"got {scaling!r:.80}"
        )
    if size("expert_count", 0):
        raise ValueError(f"{file.path} holds a mixture of experts, which is not read")
    width, heads = size("embedding_length"), size("attention.head_count")
    head_width = size("attention.key_length", width // max(heads, 1))
    if head_width > MAX_HEAD_WIDTH:
        raise ValueError(
            f"{file.path}: the width of a head must be at most {MAX_HEAD_WIDTH}, "
            f"got {head_width}"
        )
    for name in ("attention.value_length", "rope.dimension_count"):
        if size(name, head_width) != head_width:
            raise ValueError(
                f"{file.path}: llama.{name} must be the width of a head, "
                f"{head_width}, got {size(name)}"
            )
    vocabulary = file.tensors.get("token_embd.weight")
    settings: dict[str, Any] = {
        "vocab_size": vocabulary.shape[0] if vocabulary is not None else 0,
        "context_window": size("context_length"),
        "width": width,
        "hidden": size("feed_forward_length"),
        "layers": size("block_count"),
        "heads": heads,
        "kv_heads": size("attention.head_count_kv", heads),
        "head_width": head_width,
        "epsilon": number("attention.layer_norm_rms_epsilon"),
        "rope_base": number("rope.freq_base", 10000.0),
        "rope_factors": _rope_factors(file, head_width),
    }
    try:
        return Config(**settings)
    except ValueError as error:
        raise ValueError(f"{file.path}: {error}") from None


def _size(file: GGUFFile, name: str, *default: int) -> int:
    value = file.field(f"llama.{name}", *default)
    if type(value) is not int:
        raise ValueError(
            f"{file.path}: llama.{name} must be one whole number, got {value!r:.80}"
        )
    return value


def _number(file: GGUFFile, name: str, *default: float) -> float:
    value = file.field(f"llama.{name}", *default)
    if type(value) not in (int, float):
        raise ValueError(
            f"{file.path}: llama.{name} must be one number, got {value!r:.80}"
        )
    return float(value)


def _rope_factors(file: GGUFFile, head_width: int) -> tuple[float, ...] | None:
    """What slows each pair's turning, for contexts longer than those of training."""
    if "rope_freqs.weight" in file.tensors:
        tensor = file.tensor("rope_freqs.weight", [head_width // 2])
        return tuple(decode(tensor.data, tensor.kind)[0].tolist())
    factor = _number(file, "rope.scaling.factor", 1.0)
    return None if factor == 1 else (factor,) * (head_width // 2)


def read_weights(
    file: GGUFFile, config: Config, dtype: Any = np.float32, *, compiled: bool = False
) -> Weights:
    """All weights of the file as floats, matrices (out, in) and joined by rows.

    With ``compiled`` a matrix of few bits stays as it is, where the kernel takes it.
    Raises ValueError for a tensor that is missing or misshapen, and for one that this
    code does not know, as leaving it out would give wrong results.
    """
    c, used = config, {"rope_freqs.weight"}
    heads_width, kv_width = c.heads * c.head_width, c.kv_heads * c.head_width

    def vector(name: str) -> Floats:
        used.add(name)
        tensor = file.tensor(name, [c.width])
        return np.array(decode(tensor.data, tensor.kind)[0], dtype)

    def matrix(columns: int, *named: tuple[str, int]) -> Any:
        used.update(name for name, _ in named)
        tensors = [file.tensor(name, [rows, columns]) for name, rows in named]
        packed = _packed(tensors) if compiled else None
        return _joined(tensors, columns, dtype) if packed is None else packed

    def layer(i: int) -> Layer:
        at = f"blk.{i}."
        return Layer(
            attention_norm=vector(at + "attn_norm.weight"),
            qkv=matrix(
                c.width,
                (at + "attn_q.weight", heads_width),
                (at + "attn_k.weight", kv_width),
                (at + "attn_v.weight", kv_width),
            ),
            output=matrix(heads_width, (at + "attn_output.weight", c.width)),
            feed_norm=vector(at + "ffn_norm.weight"),
            gate_up=matrix(
                c.width,
                (at + "ffn_gate.weight", c.hidden),
                (at + "ffn_up.weight", c.hidden),
            ),
            down=matrix(c.hidden, (at + "ffn_down.weight", c.width)),
        )

    embedding = matrix(c.width, ("token_embd.weight", c.vocab_size))
    tied = "output.weight" not in file.tensors
    head = embedding if tied else matrix(c.width, ("output.weight", c.vocab_size))
    weights = Weights(
        embedding=embedding,
        layers=tuple(layer(i) for i in range(c.layers)),
        norm=vector("output_norm.weight"),
        head=head,
    )
    unknown = sorted(file.tensors.keys() - used)
    if unknown:
        named = ", ".join(name[:80] for name in unknown[:4])
        raise ValueError(f"{file.path} has tensors that are not read: {named}")
    return weights


def check_finite(file: GGUFFile, model: LlamaModel) -> None:
    """ValueError naming the tensor of ``file`` where a weight is NaN or infinite.

    Each weight of a layer and of the head has a part in the logits after any one
    token, so that one call of ``model`` finds whether there are any; only then, and in
    an embedding of which that call reads one row, they are looked for.
    """
    with np.errstate(all="ignore"):
        fine = bool(np.isfinite(model.start().extend([0])).all())
    tied = model.weights.head is model.weights.embedding
    for name in ["token_embd.weight"] if fine else file.tensors:
        if not (fine and tied) and not _is_finite(file.tensors[name]):
            raise ValueError(
                f"{file.path}: its tensor {name!r} has weights that are no numbers"
            )
    if not fine:
        raise ValueError(
            f"{file.path}: its weights or constants are so large that the logits are "
            "no numbers"
        )


def _is_finite(tensor: Tensor) -> bool:
    step = max(1, PIECE // tensor.shape[-1])
    rows = range(0, len(tensor.data), step)
    with np.errstate(all="ignore"):
        return all(
            np.isfinite(decode(tensor.data[at : at + step], tensor.kind)).all()
            for at in rows
        )


def _joined(tensors: Sequence[Tensor], columns: int, dtype: Any) -> NDArray[Any]:
    """Matrices of as many columns, one below the other, as floats."""
    out = np.empty((sum(len(each.data) for each in tensors), columns), dtype)
    first = 0
    for each in tensors:
        last = first + len(each.data)
        decode_into(out[first:last], each.data, each.kind)
        first = last
    return out


def _packed(tensors: Sequence[Tensor]) -> Any:
    """The same for the compiled kernel; None where it does not take their kind."""
    from . import kernel

    parts = [kernel.pack(each.kind, each.data) for each in tensors]
    return kernel.join(parts)
