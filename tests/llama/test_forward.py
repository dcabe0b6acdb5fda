"""A Llama in NumPy beside an oracle of plain loops, and beside transformers."""

import numpy as np
import pytest
from llama_kit import plain_logits, toy, write_toy

from specdec_lib.llama import forward
from specdec_lib.llama.gguf_file import GGUFFile
from specdec_lib.llama.model import LlamaModel
from specdec_lib.llama.reading import read_config, read_weights

SHAPES = {
    "grouped": dict(),
    "untied": dict(tied=False),
    "one key for all": dict(heads=3, kv_heads=1, head_width=8),
    "a key for each": dict(heads=6, kv_heads=6, head_width=4, tied=False),
    "head width apart from width": dict(width=10, heads=2, kv_heads=1, head_width=14),
    "one layer, one head": dict(layers=1, heads=1, kv_heads=1, head_width=2),
    "odd sizes": dict(vocab_size=53, width=27, hidden=31, heads=9, kv_heads=3),
    "other constants": dict(rope_base=500.0, epsilon=0.3),
    "slowed pairs": dict(factors=True, tied=False),
    "deep": dict(layers=5, scale=0.15),
}
TOKENS = np.random.default_rng(7).integers(0, 37, 23).tolist()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype, close", [(np.float64, 1e-11), (np.float32, 2e-4)])
def test_beside_plain_loops(name, dtype, close):
    small = toy(3, **SHAPES[name])
    logits = small.model(dtype).start().extend(TOKENS)
    assert logits.dtype == dtype
    expected = plain_logits(small, TOKENS)
    assert np.abs(expected).max() > 1  # there is something to compare
    np.testing.assert_allclose(logits, expected, rtol=0, atol=close)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype, close", [(np.float64, 1e-9), (np.float32, 1e-4)])
def test_beside_transformers(name, dtype, close):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    small = toy(4, **SHAPES[name])
    theirs = by_transformers(small).to(getattr(torch, np.dtype(dtype).name))
    with torch.no_grad():
        expected = theirs(torch.tensor([TOKENS])).logits[0].numpy()
    logits = small.model(dtype).start().extend(TOKENS)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=close)

    prompt = TOKENS[:5]
    greedy = theirs.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, 5, dtype=torch.long),
        do_sample=False,
        max_new_tokens=30,
        eos_token_id=None,
        pad_token_id=0,
    )[0].tolist()
    import specdec_lib as sd

    ours = sd.generate(
        small.model(dtype), prompt, max_new_tokens=30, sampler=sd.Sampler(0)
    )
    assert [*prompt, *ours.tokens] == greedy


def by_transformers(small):
    """The same Llama in transformers; its rows of a head are in another order."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    c = small.config
    rope = {"rope_type": "default", "rope_theta": c.rope_base}
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.width,
            intermediate_size=c.hidden,
            num_hidden_layers=c.layers,
            num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads,
            head_dim=c.head_width,
            max_position_embeddings=c.context_window,
            rms_norm_eps=c.epsilon,
            rope_theta=c.rope_base,
            rope_parameters=rope,
            tie_word_embeddings="output.weight" not in small.tensors,
            attn_implementation="sdpa",  # eager rounds to float32
        )
    ).eval()

    def halves(w, heads):  # pairs (2j, 2j + 1) become (j, j + d / 2)
        w = w.reshape(heads, c.head_width // 2, 2, -1)
        return w.swapaxes(1, 2).reshape(heads * c.head_width, -1)

    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
        "attn_norm.weight": "input_layernorm.weight",
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
    }
    state = {}
    for name, tensor in small.tensors.items():
        if "attn_q" in name:
            tensor = halves(tensor, c.heads)
        if "attn_k" in name:
            tensor = halves(tensor, c.kv_heads)
        start = ""
        if name.startswith("blk."):
            _, i, name = name.split(".", 2)
            start = f"model.layers.{i}."
        state[start + names[name]] = torch.tensor(np.ascontiguousarray(tensor))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    # Rounded to float32 by transformers otherwise; here the float64 run shall be exact.
    exact = c.rope_base ** -(torch.arange(0, c.head_width, 2).double() / c.head_width)
    if c.rope_factors is not None:
        exact = exact / torch.tensor(c.rope_factors, dtype=torch.float64)
    model.model.rotary_emb.forward = lambda x, position_ids: turns(
        x, position_ids, exact
    )
    model.model.norm.forward = exact_norm(model.model.norm)
    for layer in model.model.layers:
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.forward = exact_norm(norm)
    return model


def turns(x, position_ids, inv_freq):
    """Cosines and sines as transformers makes them, but not rounded to float32."""
    import torch

    angles = position_ids[:, :, None].double() * inv_freq
    both = torch.cat((angles, angles), dim=-1)
    return both.cos().to(x.dtype), both.sin().to(x.dtype)


def exact_norm(norm):
    """transformers' RMSNorm without its rounding to float32."""

    def forward(x):
        mean_square = x.pow(2).mean(-1, keepdim=True)
        return norm.weight * (x / (mean_square + norm.variance_epsilon).sqrt())

    return forward


@pytest.mark.parametrize("name", SHAPES)
def test_through_a_file(tmp_path, name):
    """Written as GGUF and read again: the same numbers, to the bit."""
    small = toy(5, **SHAPES[name])
    write_toy(tmp_path / "toy.gguf", small)
    file = GGUFFile(tmp_path / "toy.gguf")
    config = read_config(file)
    c = small.config
    assert config.epsilon == pytest.approx(c.epsilon, rel=1e-7)
    if c.rope_factors is not None:
        assert config.rope_factors == pytest.approx(c.rope_factors, rel=1e-7)
    model = LlamaModel(c, read_weights(file, config, np.float64))
    ours = model.start().extend(TOKENS)
    assert (ours == small.model().start().extend(TOKENS)).all()
    assert (model.weights.head is model.weights.embedding) == (
        "output.weight" not in small.tensors
    )


def test_a_turn_by_hand():
    """One pair at position 3 with base 10,000: by three radians."""
    config = toy(head_width=2, heads=2, kv_heads=1).config
    x = np.array([[[1.0, 0.0]], [[0.0, 2.0]]])
    turned = forward.rotate(x, forward.rotations([3, 3], config, np.float64))
    expected = [[np.cos(3), np.sin(3)], [-2 * np.sin(3), 2 * np.cos(3)]]
    np.testing.assert_allclose(turned[:, 0], expected, atol=1e-15)


def test_a_norm_by_hand():
    x = np.array([[3.0, 4.0]])  # mean square 12.5
    out = forward.rms_norm(x, np.array([1.0, 2.0]), 0.0)
    np.testing.assert_allclose(out, [[3 / 12.5**0.5, 8 / 12.5**0.5]])


def test_masks():
    inf = np.inf
    assert forward.causal_mask(2, np.float64).tolist() == [[0, -inf], [0, 0]]
    chain = forward.tree_mask([-1, 0, 1], np.float64)
    assert (chain == forward.causal_mask(3, np.float64)).all()
    tree = forward.tree_mask([-1, -1, 0, 2], np.float64)
    assert (tree == 0).tolist() == [
        [True, False, False, False],
        [False, True, False, False],
        [True, False, True, False],
        [True, False, True, True],
    ]


def test_large_numbers_make_no_warning():
    huge = toy(2, scale=3e3).model(np.float32).start().extend([1, 2, 3])
    assert np.isfinite(huge).all()
    with np.errstate(over="ignore"):
        out = forward.swiglu(np.array([[-1e4, 1e4, 3.0, 3.0]], np.float32))
    assert out.tolist() == [[0.0, 3e4]]
