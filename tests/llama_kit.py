"""Small Llamas with random weights: as a file, and by an oracle of plain loops."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

import numpy as np

from specdec_lib.llama import Config, Layer, LlamaModel, Weights

F32, STRING, ARRAY = 0, 8, 9


@dataclass(frozen=True)
class Toy:
    """A small Llama: its configuration and its tensors, by the names of the file."""

    config: Config
    tensors: dict[str, np.ndarray] = field(repr=False)

    def model(self, dtype=np.float64, **options) -> LlamaModel:
        return LlamaModel(self.config, self.weights(dtype), **options)

    def weights(self, dtype=np.float64) -> Weights:
        c = self.config
        t = {name: each.astype(dtype) for name, each in self.tensors.items()}
        layers = [
            Layer(
                attention_norm=t[f"blk.{i}.attn_norm.weight"],
                qkv=np.concatenate([t[f"blk.{i}.attn_{x}.weight"] for x in "qkv"]),
                output=t[f"blk.{i}.attn_output.weight"],
                feed_norm=t[f"blk.{i}.ffn_norm.weight"],
                gate_up=np.concatenate(
                    [t[f"blk.{i}.ffn_{x}.weight"] for x in ("gate", "up")]
                ),
                down=t[f"blk.{i}.ffn_down.weight"],
            )
            for i in range(c.layers)
        ]
        embedding = t["token_embd.weight"]
        head = t.get("output.weight", embedding)
        return Weights(embedding, tuple(layers), t["output_norm.weight"], head)


def toy(seed=0, *, tied=True, factors=False, scale=0.3, **sizes) -> Toy:
    """A Llama with random weights; ``sizes`` as in :class:`Config`."""
    c = Config(
        **{
            **dict(vocab_size=37, context_window=64, width=24, hidden=20, layers=2),
            **dict(heads=4, kv_heads=2, head_width=6, epsilon=1e-5, rope_base=1e4),
            **sizes,
        }
    )
    g = np.random.default_rng(seed)
    if factors:
        c = replace(c, rope_factors=tuple(g.uniform(1, 8, c.head_width // 2).tolist()))

    def matrix(rows, columns):
        return (g.normal(size=(rows, columns)) * scale).astype(np.float32)

    def norm():
        return g.uniform(0.5, 1.5, c.width).astype(np.float32)

    tensors = {"token_embd.weight": matrix(c.vocab_size, c.width) * 3}
    tensors["output_norm.weight"] = norm()
    if not tied:
        tensors["output.weight"] = matrix(c.vocab_size, c.width)
    for i in range(c.layers):
        at = f"blk.{i}."
        tensors |= {
            at + "attn_norm.weight": norm(),
            at + "ffn_norm.weight": norm(),
            at + "attn_q.weight": matrix(c.heads * c.head_width, c.width),
            at + "attn_k.weight": matrix(c.kv_heads * c.head_width, c.width),
            at + "attn_v.weight": matrix(c.kv_heads * c.head_width, c.width),
            at + "attn_output.weight": matrix(c.width, c.heads * c.head_width),
            at + "ffn_gate.weight": matrix(c.hidden, c.width),
            at + "ffn_up.weight": matrix(c.hidden, c.width),
            at + "ffn_down.weight": matrix(c.width, c.hidden),
        }
    return Toy(c, tensors)


def plain_logits(toy: Toy, tokens) -> np.ndarray:
    """(n,) -> (n, V), in float64, without a cache, one position and head at a time.

    Written for the eye, from the papers; it shares no line with the library.
    """
    c = toy.config
    w = {name: each.astype(np.float64) for name, each in toy.tensors.items()}
    factors = c.rope_factors or (1.0,) * (c.head_width // 2)

    def norm(x, weight):
        return x / np.sqrt((x**2).mean() + c.epsilon) * weight

    def turn(head, position):
        out = np.empty_like(head)
        for j in range(c.head_width // 2):
            angle = position / (c.rope_base ** (2 * j / c.head_width) * factors[j])
            a, b = head[2 * j], head[2 * j + 1]
            out[2 * j] = a * np.cos(angle) - b * np.sin(angle)
            out[2 * j + 1] = a * np.sin(angle) + b * np.cos(angle)
        return out

    xs = [w["token_embd.weight"][token] for token in tokens]
    for i in range(c.layers):
        part = {k.split(f"blk.{i}.")[1]: v for k, v in w.items() if f"blk.{i}." in k}
        keys, values, mixed = [], [], []
        for position, x in enumerate(xs):
            x = norm(x, part["attn_norm.weight"])
            q = (part["attn_q.weight"] @ x).reshape(c.heads, -1)
            k = (part["attn_k.weight"] @ x).reshape(c.kv_heads, -1)
            keys.append([turn(head, position) for head in k])
            values.append((part["attn_v.weight"] @ x).reshape(c.kv_heads, -1))
            out = []
            for h in range(c.heads):
                g = h // (c.heads // c.kv_heads)
                now = turn(q[h], position)
                scores = [now @ key[g] / np.sqrt(c.head_width) for key in keys]
                weight = np.exp(scores) / np.exp(scores).sum()
                out.append(sum(p * v[g] for p, v in zip(weight, values, strict=True)))
            mixed.append(part["attn_output.weight"] @ np.concatenate(out))
        xs = [x + y for x, y in zip(xs, mixed, strict=True)]
        for position, x in enumerate(xs):
            y = norm(x, part["ffn_norm.weight"])
            gate = part["ffn_gate.weight"] @ y
            inner = gate / (1 + np.exp(-gate)) * (part["ffn_up.weight"] @ y)
            xs[position] = x + part["ffn_down.weight"] @ inner
    head = w.get("output.weight", w["token_embd.weight"])
    return np.array([head @ norm(x, w["output_norm.weight"]) for x in xs])


def small_tokenizer_fields(vocab_size: int) -> dict:
    """Fields of a byte-level tokenizer of ``vocab_size`` >= 4 pieces."""
    letters = [chr(c) for c in range(33, 127)] + [chr(c) for c in range(161, 600)]
    tokens = ["<end>", *letters][:vocab_size]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] + [1] * (len(tokens) - 1),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }


def fields_of(config: Config) -> dict:
    """The fields that say a configuration."""
    return {
        "general.architecture": "llama",
        "llama.block_count": config.layers,
        "llama.context_length": config.context_window,
        "llama.embedding_length": config.width,
        "llama.feed_forward_length": config.hidden,
        "llama.attention.head_count": config.heads,
        "llama.attention.head_count_kv": config.kv_heads,
        "llama.attention.key_length": config.head_width,
        "llama.attention.value_length": config.head_width,
        "llama.rope.dimension_count": config.head_width,
        "llama.rope.freq_base": float(config.rope_base),
        "llama.attention.layer_norm_rms_epsilon": float(config.epsilon),
        **small_tokenizer_fields(config.vocab_size),
    }


def tensors_of(toy: Toy) -> dict[str, np.ndarray]:
    """Its tensors as the file holds them."""
    factors = toy.config.rope_factors
    if factors is None:
        return dict(toy.tensors)
    return toy.tensors | {"rope_freqs.weight": np.array(factors, np.float32)}


def gguf_bytes(fields: dict, tensors: dict, *, version=3, magic=b"GGUF") -> bytes:
    """A GGUF file; a tensor is an array of float32, or (kind, shape, bytes)."""
    out = [magic, struct.pack("<IQQ", version, len(tensors), len(fields))]
    for name, value in fields.items():
        out += [_string(name), _value(value)]
    place, data = 0, []
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            tensor = (F32, tensor.shape, tensor.astype("<f4").tobytes())
        kind, shape, content = tensor
        out.append(_string(name) + struct.pack("<I", len(shape)))
        out.append(struct.pack(f"<{len(shape)}Q", *reversed(shape)))
        out.append(struct.pack("<IQ", kind, place))
        content += bytes(-len(content) % 32)
        place += len(content)
        data.append(content)
    head = b"".join(out)
    return head + bytes(-len(head) % 32) + b"".join(data)


def write_toy(path, toy: Toy, **changed) -> None:
    """The toy as a GGUF file; ``changed`` fields by name, None leaves one out."""
    fields = fields_of(toy.config) | changed
    fields = {name: value for name, value in fields.items() if value is not None}
    path.write_bytes(gguf_bytes(fields, tensors_of(toy)))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value) -> bytes:
    if isinstance(value, list):
        items = [_value(each) for each in value]
        kind = items[0][:4] if items else struct.pack("<I", STRING)
        body = b"".join(item[4:] for item in items)
        return struct.pack("<I", ARRAY) + kind + struct.pack("<Q", len(items)) + body
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    return struct.pack("<If", 6, value)
