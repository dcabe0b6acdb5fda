"""Models of transformers as target and draft: random ones, and the real one."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specdec_lib as sd
from specdec_lib.models import path_to

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="it is not installed")

from specdec_lib import huggingface  # noqa: E402
from specdec_lib.huggingface import (  # noqa: E402
    HuggingFaceModel,
    check_same_vocabulary,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from toys import inexactness, merged  # noqa: E402

GREEDY = sd.Sampler(temperature=0)
# Left alone, random models soon repeat one token.
VARIED = sd.Sampler(temperature=0, processors=(sd.RepetitionPenalty(1.5),))
CLOSE = dict(rtol=0, atol=1e-9)
V = 37
SIZES = dict(
    vocab_size=V,
    hidden_size=24,
    intermediate_size=20,
    num_hidden_layers=3,
    num_attention_heads=4,
    bos_token_id=1,
    eos_token_id=None,
    pad_token_id=None,
    tie_word_embeddings=False,
)
GROUPED = dict(SIZES, num_key_value_heads=2, max_position_embeddings=64)
ENDLESS = dict(
    tie_word_embeddings=False, bos_token_id=1, eos_token_id=None, pad_token_id=None
)
CONFIGS = {
    "Llama": GROUPED,
    "GPT2": dict(
        vocab_size=V, n_embd=24, n_layer=3, n_head=4, n_positions=64, **ENDLESS
    ),
    "Mistral": dict(GROUPED, sliding_window=5),  # every layer sees the last five
    "Gemma3Text": dict(  # every second layer
        GROUPED,
        sliding_window=5,
        head_dim=6,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "GPTNeoX": dict(SIZES, max_position_embeddings=64),
    "Bloom": dict(vocab_size=V, hidden_size=24, n_layer=3, n_head=4, **ENDLESS),
}
NAMES = {"Gemma3Text": "Gemma3ForCausalLM", "GPT2": "GPT2LMHeadModel"}
TREES = {"Llama", "GPT2", "GPTNeoX"}


def tiny(name, seed=0, dtype=torch.float64, scale=0.4, **changes):
    """A model of transformers with random weights, far from uniform."""
    config = getattr(transformers, name + "Config")(**{**CONFIGS[name], **changes})
    model = getattr(transformers, NAMES.get(name, name + "ForCausalLM"))(config)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in model.parameters():
            noise = torch.randn(each.shape, generator=g) * scale
            each.copy_(each + noise if each.dim() == 1 else noise)
    return model.to(dtype).eval()


RAW = {name: tiny(name) for name in CONFIGS}
MODELS = {name: HuggingFaceModel(raw) for name, raw in RAW.items()}
TOKENS = np.random.default_rng(1).integers(0, V, 40).tolist()
each_model = pytest.mark.parametrize("name", CONFIGS)


def close(name):
    """Bloom takes its softmax in float32, whatever its weights are."""
    return dict(rtol=0, atol=1e-5) if name == "Bloom" else CLOSE


def from_scratch(name, tokens):
    """By transformers alone: no cache, no rewind."""
    with torch.no_grad():
        return RAW[name](torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def layer_lengths(state):
    return {layer.get_seq_length() for layer in state._cache.layers}


@each_model
def test_what_it_is(name):
    model = MODELS[name]
    assert (model.vocab_size, model.bos_id) == (V, 1)
    assert model.context_window == (None if name == "Bloom" else 64)
    assert model.reads_trees == (name in TREES)
    assert hasattr(model.start(), "extend_tree") == (name in TREES)


@each_model
def test_at_once_and_one_by_one(name):
    whole = from_scratch(name, TOKENS)
    state = MODELS[name].start()
    rows = state.extend(TOKENS)
    assert rows.dtype == np.float64
    np.testing.assert_allclose(rows, whole, **close(name))
    state = MODELS[name].start()
    one = [state.extend([token])[0] for token in TOKENS]
    np.testing.assert_allclose(one, whole, **close(name))
    for rows in (0, 1, 5, 40):
        state.rewind(0)
        last = state.extend_last(TOKENS, rows)
        assert last.shape == (rows, V)
        np.testing.assert_allclose(last, whole[40 - rows :], **close(name))
        assert state.length == 40
        assert layer_lengths(state) == {40}


@each_model
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_order_of_calls(name, data):
    """Extend, rewind, read trees and keep paths at will; then compare."""
    state, text = MODELS[name].start(), []
    acts = ["extend", "rewind", *(["tree"] if name in TREES else [])]
    token = st.integers(0, V - 1)
    for _ in range(data.draw(st.integers(1, 6))):
        act = data.draw(st.sampled_from(acts))
        if act == "extend":
            new = data.draw(st.lists(token, max_size=9))
            rows = state.extend(new)
            text += new
            if new:
                np.testing.assert_allclose(
                    rows, from_scratch(name, text)[-len(new) :], **close(name)
                )
        elif act == "rewind":
            length = data.draw(st.integers(0, len(text)))
            state.rewind(length)
            del text[length:]
        else:
            n = data.draw(st.integers(0, 6))
            parents = [data.draw(st.integers(-1, i - 1)) for i in range(n)]
            new = data.draw(st.lists(token, min_size=n, max_size=n))
            rows = state.extend_tree(new, parents)
            assert rows.shape == (n, V)
            for node, row in enumerate(rows):
                branch = [new[i] for i in path_to(node, parents)]
                np.testing.assert_allclose(
                    row, from_scratch(name, text + branch)[-1], **close(name)
                )
            if data.draw(st.booleans()):
                node = data.draw(st.integers(-1, n - 1))
                path = path_to(node, parents)
                state.keep(path)
                text += [new[i] for i in path]
        assert state.length == len(text)
    end = state.extend([5])[0]
    np.testing.assert_allclose(end, from_scratch(name, [*text, 5])[-1], **close(name))
    assert layer_lengths(state) == {len(text) + 1}


def test_a_call_that_fails_half_way_leaves_nothing_behind():
    """Some layers have read the tokens then, and others not."""
    model = HuggingFaceModel(tiny("Llama"))
    state = model.start()
    state.extend(TOKENS[:5])
    whole = from_scratch("Llama", TOKENS[:9])
    last = model.model.model.layers[-1]

    def fail(*_):
        raise KeyboardInterrupt

    for act in (
        lambda: state.extend(TOKENS[5:9]),
        lambda: state.extend_tree([1, 2], [-1, -1]),
    ):
        hook = last.register_forward_pre_hook(fail)
        with pytest.raises(KeyboardInterrupt):
            act()
        hook.remove()
        assert state.length == 5
        with pytest.raises(ValueError, match="nodes must be a path"):
            state.keep([0])
        np.testing.assert_allclose(state.extend(TOKENS[5:9]), whole[5:], **CLOSE)
        state.rewind(5)


@pytest.mark.parametrize("act", ("extend", "rewind", "extend_tree", "keep"))
def test_any_other_call_forgets_the_tree(act):
    state = MODELS["Llama"].start()
    state.extend([1, 2, 3])
    state.extend_tree([4, 5], [-1, 0])
    {
        "extend": lambda: state.extend([6]),
        "rewind": lambda: state.rewind(2),
        "extend_tree": lambda: state.extend_tree([6], [-1]),
        "keep": lambda: state.keep([0]),
    }[act]()
    with pytest.raises(ValueError, match="nodes must be a path"):
        state.keep([0, 1])


def by_transformers(raw, prompt, n, **options):
    """Its own greedy text, ``n`` tokens long."""
    read = torch.tensor([prompt])
    options = dict(options, attention_mask=torch.ones_like(read), do_sample=False)
    made = raw.generate(read, max_new_tokens=n, **options)
    return tuple(made[0, len(prompt) :].tolist())


@each_model
def test_greedy_text_is_that_of_generate(name):
    for prompt in (TOKENS[:1], TOKENS[:7]):
        ours = sd.generate(MODELS[name], prompt, max_new_tokens=30, sampler=VARIED)
        theirs = by_transformers(RAW[name], prompt, 30, repetition_penalty=1.5)
        assert ours.tokens == theirs
        assert len(set(ours.tokens)) > 5


def drafts(name):
    """Near the target, so that some guesses are kept, and far from it."""
    near = tiny(name)
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for each in near.parameters():
            each.add_(torch.randn(each.shape, generator=g, dtype=each.dtype) * 0.05)
    near = HuggingFaceModel(near)
    far = HuggingFaceModel(tiny("GPT2", 3))
    return {
        "near": sd.ModelDraft(near, VARIED),
        "far": sd.ModelDraft(far, VARIED),
        "itself": sd.ModelDraft(MODELS[name], VARIED),
        "lookup": sd.PromptLookup(),
        "tree": sd.TreeDraft(near, shape=sd.tree_shape((2, 2, 1)), draw="best"),
    }


@each_model
def test_greedy_text_is_the_same_with_any_draft(name):
    target, prompt = MODELS[name], TOKENS[:6]
    plain = sd.generate(target, prompt, max_new_tokens=40, sampler=VARIED)
    kept = {}
    for what, draft in drafts(name).items():
        verify = sd.verify_tree if what == "tree" else sd.verify_tokens
        done = sd.generate(
            target,
            prompt,
            draft=draft,
            max_new_tokens=40,
            sampler=VARIED,
            verify=verify,
        )
        assert done.tokens == plain.tokens, what
        kept[what] = done.metrics.accepted, done.metrics.drafted
    assert kept["itself"][0] == kept["itself"][1]
    assert 0 < kept["near"][0] < kept["near"][1]
    assert kept["tree"][0] > 0


@each_model
def test_every_layer_is_rewound(name):
    """After every round, target's and draft's."""
    states = []

    def watched(model):
        def start():
            states.append(model.start())
            return states[-1]

        return SimpleNamespace(vocab_size=V, bos_id=1, context_window=64, start=start)

    target, far = watched(MODELS[name]), watched(HuggingFaceModel(tiny("GPT2", 3)))
    for draft, verify in (
        (sd.ModelDraft(far), sd.verify_tokens),
        (sd.TreeDraft(far), sd.verify_tree),
    ):
        rejected = 0
        options = dict(draft=draft, verify=verify, max_new_tokens=30, seed=1)
        for each in sd.stream(target, TOKENS[:4], **options):
            rejected += len(each.drafted) - each.accepted
            assert len(states) == 2
            for state in states:
                assert layer_lengths(state) == {state.length}
        assert rejected
        states.clear()


SMALL = dict(vocab_size=3, bos_token_id=0)


@pytest.mark.parametrize("name", ("Llama", "Mistral"))
@pytest.mark.parametrize("temperature", (1.0, 0.6, 0))
def test_exact(name, temperature):
    """Every outcome, with its probability, beside the target alone."""
    sampler = sd.Sampler(temperature)
    target = HuggingFaceModel(tiny(name, 1, **SMALL))
    draft = sd.ModelDraft(HuggingFaceModel(tiny("GPT2", 2, **SMALL)), sampler)
    off = inexactness(target, draft, k=2, tokens=3, sampler=sampler, way=merged)
    assert off < 1e-12
    assert inexactness(target, draft, k=1, tokens=2, sampler=sampler) < 1e-12


def test_the_context_window():
    model = HuggingFaceModel(RAW["Llama"], context_window=8)
    assert model.context_window == 8
    assert HuggingFaceModel(RAW["Llama"], context_window=99).context_window == 64
    assert HuggingFaceModel(RAW["Bloom"], context_window=99).context_window == 99
    shortest = HuggingFaceModel(RAW["Llama"], context_window=1)
    assert (shortest.context_window, shortest.reads_trees) == (1, True)
    state = model.start()
    state.extend([1] * 6)
    with pytest.raises(ValueError, match="window of 8: 6 read, 3 more given"):
        state.extend([1, 2, 3])
    with pytest.raises(ValueError, match="window of 8: 6 read, 3 more given"):
        state.extend_tree([1, 2, 3, 4], [-1, 0, 1, -1])
    # A tree may have more nodes than there are places, but be no deeper.
    state.extend_tree([1, 2, 3, 4], [-1, -1, -1, 0])
    state.keep([0, 3])
    assert state.length == 8
    for draft in (None, sd.ModelDraft(MODELS["GPT2"]), sd.ModelDraft(model)):
        done = sd.generate(model, [1] * 6, draft=draft, max_new_tokens=9, seed=1)
        assert (len(done.tokens), done.finish_reason) == (2, "context")
    # A draft whose window is shorter than the target's.
    short = sd.ModelDraft(model, GREEDY)
    plain, done = (
        sd.generate(MODELS["GPT2"], [1], draft=d, max_new_tokens=20, sampler=GREEDY)
        for d in (None, short)
    )
    assert done.tokens == plain.tokens
    assert done.finish_reason == "length"


def test_ids_that_are_padding():
    model = HuggingFaceModel(RAW["Llama"], vocab_size=30)
    assert model.vocab_size == 30
    rows = model.start().extend([3, 4])
    np.testing.assert_allclose(rows, from_scratch("Llama", [3, 4])[:, :30], **CLOSE)
    with pytest.raises(ValueError, match="inside 0 .. 29, got 30"):
        model.start().extend([30])
    with pytest.raises(ValueError, match="vocab_size must be at most the model's 37"):
        HuggingFaceModel(RAW["Llama"], vocab_size=38)


@pytest.mark.parametrize("name", (torch.float32, torch.bfloat16))
def test_lower_precision(name):
    model = HuggingFaceModel(tiny("Llama", dtype=name, scale=0.2))
    rows = model.start().extend([3, 4])
    assert rows.dtype == np.float32
    assert model.start().extend([]).dtype == np.float32
    whole = tiny("Llama", scale=0.2)
    with torch.no_grad():
        expected = whole(torch.tensor([[3, 4]])).logits[0].numpy()
    bound = 1e-4 if name == torch.float32 else 0.3
    np.testing.assert_allclose(rows, expected, rtol=0, atol=bound)
    assert model.reads_trees == (name == torch.float32)


def test_float32_that_rounds_more():
    """Then no small tree can show that a mask is right."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert not HuggingFaceModel(tiny("Llama", dtype=torch.float32)).reads_trees
    finally:
        torch.set_float32_matmul_precision(before)
    assert HuggingFaceModel(tiny("Llama", dtype=torch.float32)).reads_trees


def test_no_gradients():
    raw = tiny("Llama")
    state = HuggingFaceModel(raw).start()
    state.extend([1, 2])
    assert not any(layer.keys.requires_grad for layer in state._cache.layers)
    assert all(each.grad is None for each in raw.parameters())


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda s: s.extend([37]), ValueError, "inside 0 .. 36, got 37"),
        (lambda s: s.extend([-1]), ValueError, "inside 0 .. 36, got -1"),
        (lambda s: s.extend(["a"]), TypeError, "tokens must be integers"),
        (lambda s: s.extend_last([1], 2), ValueError, "rows must be at most 1, got 2"),
        (lambda s: s.extend_last([1], -1), ValueError, "rows must be 0 or more"),
        (lambda s: s.rewind(3), ValueError, r"length must be inside 0 .. 2, got 3"),
        (lambda s: s.rewind(-1), ValueError, r"length must be inside 0 .. 2, got -1"),
        (lambda s: s.extend_tree([1], [0]), ValueError, r"parents\[0\]"),
    ],
)
def test_bad_arguments_change_nothing(call, error, message):
    state = MODELS["Llama"].start()
    state.extend([1, 2])
    with pytest.raises(error, match=message):
        call(state)
    assert state.length == 2
    expected = from_scratch("Llama", [1, 2, 3])[2:]
    np.testing.assert_allclose(state.extend([3]), expected, **CLOSE)


def test_states_share_nothing():
    a, b = MODELS["Mistral"].start(), MODELS["Mistral"].start()
    a.extend([1, 2, 3])
    b.extend([4])
    for state, text in ((a, [1, 2, 3, 5]), (b, [4, 5])):
        expected = from_scratch("Mistral", text)[-1]
        np.testing.assert_allclose(state.extend([5])[0], expected, **CLOSE)


LAYERS = ["conv", "full_attention", "conv"]  # a convolution keeps no tokens


def bert():
    """It sees what comes after a token too."""
    config = transformers.BertConfig(**SIZES, is_decoder=False)
    return transformers.BertLMHeadModel(config).eval()


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: "gpt2", TypeError, "causal language model of transformers, got 'gpt2"),
        (lambda: torch.nn.Linear(2, 2), TypeError, "of transformers, got Linear"),
        (lambda: tiny("Llama").train(), ValueError, r"call model.eval\(\)"),
        (lambda: tiny("Llama").model, ValueError, "must give logits .* got LlamaModel"),
        (
            lambda: transformers.T5ForConditionalGeneration(
                transformers.T5Config(
                    vocab_size=V, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
                )
            ).eval(),
            ValueError,
            "decoder alone, got T5ForConditionalGeneration",
        ),
        (
            lambda: transformers.MambaForCausalLM(
                transformers.MambaConfig(
                    vocab_size=V, hidden_size=8, num_hidden_layers=1, state_size=2
                )
            ).eval(),
            ValueError,
            "rewound, but MambaForCausalLM keeps a running state",
        ),
        (
            lambda: transformers.Lfm2ForCausalLM(
                transformers.Lfm2Config(**GROUPED, layer_types=LAYERS)
            ).eval(),
            ValueError,
            "a cache that can be cropped, which Lfm2ForCausalLM does not",
        ),
        (bert, ValueError, "causal, but BertLMHeadModel gives other logits"),
    ],
)
def test_models_that_cannot_be_used(make, error, message):
    with pytest.raises(error, match=message):
        HuggingFaceModel(make())


@pytest.mark.parametrize(
    "options, error, message",
    [
        (dict(bos_id=37), ValueError, "bos_id must be inside 0 .. 36, got 37"),
        (dict(bos_id="a"), TypeError, "bos_id must be integers"),
        (dict(context_window=0), ValueError, "context_window must be 1 or more"),
        (dict(vocab_size=2.5), TypeError, "vocab_size must be an integer"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        HuggingFaceModel(RAW["Llama"], **options)


def test_where_a_sequence_begins():
    assert HuggingFaceModel(RAW["Llama"], bos_id=5).bos_id == 5
    for own in (None, 37):
        model = HuggingFaceModel(tiny("Llama", bos_token_id=own))
        assert model.bos_id is None
        with pytest.raises(ValueError, match="has no bos_id"):
            sd.generate(model, [], max_new_tokens=1)


def words(**ids):
    return SimpleNamespace(get_vocab=lambda: ids)


def test_vocabularies():
    check_same_vocabulary(words(a=0, b=1), words(b=1, a=0))
    for other, message in (
        (words(a=0, c=1), "got 2 and 2; .* 'b', id 1 in a and None in b"),
        (words(a=1, b=0), "'a', id 0 in a and 1 in b"),
        (words(a=0, b=1, c=2), "got 2 and 3; .* 'c', id None in a and 2 in b"),
    ):
        with pytest.raises(ValueError, match=message):
            check_same_vocabulary(words(a=0, b=1), other)
    with pytest.raises(TypeError, match="b must be a tokenizer with get_vocab, got 3"):
        check_same_vocabulary(words(), 3)


def test_loading_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="name of a type of torch, got 'float33'"):
        huggingface.load("x", dtype="float33")
    with pytest.raises(ValueError, match="name of a type of torch, got 'nn'"):
        huggingface.load("x", dtype="nn")
    with pytest.raises(FileNotFoundError, match=r"no file .*x\.gguf"):
        huggingface.load(tmp_path / "x.gguf")


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_loading_from_a_folder(tmp_path, dtype):
    tokenizers = pytest.importorskip("tokenizers", reason="it is not installed")
    words = {f"w{i}": i for i in range(V)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="w4")
    fast.save_pretrained(tmp_path)
    RAW["Llama"].save_pretrained(tmp_path)
    model, tokenizer = huggingface.load(tmp_path, dtype=dtype, context_window=20)
    check_same_vocabulary(tokenizer, fast)
    assert (model.vocab_size, model.bos_id, model.context_window) == (V, 4, 20)
    rows = model.start().extend(tokenizer("w3 w9").input_ids)
    assert rows.dtype == dtype
    bound = 1e-9 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(rows, from_scratch("Llama", [3, 9]), rtol=0, atol=bound)
    assert huggingface.load(str(tmp_path), bos_id=2)[0].bos_id == 2


@pytest.mark.slow
def test_the_real_model(smollm2_path):
    """32 tokens beside transformers' own loop, plain and with guesses."""
    assert smollm2_path.suffix == ".gguf"
    model, tokenizer = huggingface.load("smollm2")
    assert (model.vocab_size, model.context_window, model.bos_id) == (49152, 8192, 1)
    assert model.reads_trees
    check_same_vocabulary(tokenizer, tokenizer)
    prompt = tokenizer("The colours of the rainbow are red, orange,").input_ids
    theirs = by_transformers(model.model, prompt, 32)
    for draft in (None, sd.PromptLookup()):
        done = sd.generate(
            model, prompt, draft=draft, max_new_tokens=32, sampler=GREEDY
        )
        assert done.tokens == theirs
