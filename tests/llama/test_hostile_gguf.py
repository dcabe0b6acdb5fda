"""GGUF files that were cut, changed or forged, and templates that do not end."""

from __future__ import annotations

import importlib.util
import struct
from time import perf_counter

import numpy as np
import pytest
from hostile_kit import REFUSED, at_most, attempt, flipped, truncated
from llama_kit import fields_of, gguf_bytes, tensors_of, toy, write_toy

from specdec_lib import llama
from specdec_lib.llama.gguf_file import GGUFFile
from specdec_lib.llama.reading import check_finite, read_config, read_weights

for name in ("tokenizers", "jinja2", "gguf"):
    pytest.importorskip(name, reason=f"{name} is not installed")
templates = pytest.importorskip("specdec_lib.llama.template")
render = templates.render

V = 12
TOY = toy(
    2, tied=False, layers=1, vocab_size=V, width=8, hidden=6, heads=2, head_width=4
)
FIELDS, TENSORS = fields_of(TOY.config), tensors_of(TOY)
WHOLE = gguf_bytes(FIELDS, TENSORS)
HEAD = len(WHOLE) - sum(-(-each.nbytes // 32) * 32 for each in TENSORS.values())


def load(path):
    """The model, which then has to work as far as numbers go."""
    model, tokenizer = llama.load(path)
    assert np.isfinite(model.start().extend([1, 2])).all()
    assert tokenizer.vocab_size == model.vocab_size
    tokenizer.decode(tokenizer.encode("a b"))
    return model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toy.gguf"


def refused(path, content, match, megabytes=3.0):
    path.write_bytes(content)
    with at_most(megabytes), pytest.raises(REFUSED, match=match) as caught:
        llama.load(path)
    said = str(caught.value)
    assert said.count("toy.gguf") == 1
    assert len(said) < 500
    assert path.read_bytes() == content


def test_cut_at_every_length(path, tried):
    n = 0
    for step, whole in ((1, WHOLE[: HEAD + 40]), (97, WHOLE[:-32])):
        for content in truncated(whole, step):
            n += 1
            assert attempt(load, path, content) is None
    tried("GGUF files cut short", n)


@pytest.mark.parametrize("mask", (255, 1))
def test_a_byte_changed_in_the_head(path, tried, mask):
    """Refused by name, or a model that still works: the letters of a token, say."""
    n = 0
    for content in flipped(WHOLE, 1, (mask,)):
        if n == HEAD:
            break
        n += 1
        attempt(load, path, content)
    tried("GGUF files with a byte of the head changed", n)


def test_noise_in_the_head(path, tried):
    g = np.random.default_rng(0)
    for _ in range(500):
        broken = bytearray(WHOLE)
        for place in g.integers(4, HEAD, 3):
            broken[place] = g.integers(256)
        attempt(load, path, bytes(broken))
    tried("GGUF files with a byte of the head changed", 500)


@pytest.mark.parametrize("content", (b"", b"GGUF", b"\0" * 64, b"GGUF" * 50))
def test_what_is_none(path, tried, content):
    assert attempt(load, path, content) is None
    tried("GGUF files that are none")


@pytest.mark.parametrize("version", (0, 1, 4, 2**31, 2**32 - 1, 3 << 24))
def test_other_versions(path, tried, version):
    content = gguf_bytes(FIELDS, TENSORS, version=version)
    refused(path, content, f"of version {version}")
    tried("GGUF files of other versions")


HUGE = (2**16, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1)


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("place", (8, 16), ids=("tensors", "fields"))
def test_counts_that_are_not_there(path, tried, place, number):
    content = bytearray(WHOLE)
    content[place : place + 8] = struct.pack("<Q", number)
    refused(path, bytes(content), "is not a whole GGUF file")
    tried("GGUF files with huge counts")


def head(*parts, tensors=0, fields=1):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + b"".join(parts)


def string(text, length=None):
    return struct.pack("<Q", len(text) if length is None else length) + text


def number(n):
    return struct.pack("<I", n)


@pytest.mark.parametrize("n", HUGE)
def test_strings_and_lists_that_are_not_there(path, tried, n):
    long = struct.pack("<Q", n)
    contents = [head(string(b"a", n)), head(string(b"a"), number(8), string(b"b", n))]
    for kind in range(13):
        contents += [head(string(b"a"), number(9), number(kind), long, bytes(2000))]
    for content in contents:
        refused(path, content, "is not a whole GGUF file")
    tried("GGUF files with huge strings and lists", len(contents))


def test_lists_in_lists(path, tried):
    for depth in (9, 1000, 100_000):
        deep = number(9) + struct.pack("<Q", 1)
        content = head(string(b"a"), number(9), deep * depth)
        refused(path, content, "is not a whole GGUF file", megabytes=6)
    wide = number(9) + number(9) + struct.pack("<Q", 2000)
    content = head(string(b"a"), wide, (number(4) + struct.pack("<Q", 0)) * 2000)
    refused(path, content, "must hold a model of architecture 'llama', got None")
    tried("GGUF files with lists in lists", 4)


def test_fields_and_tensors_twice(path, tried):
    once = string(b"a") + number(4) + number(3)
    refused(path, head(once, once, fields=2), "the field 'a' twice")
    row = struct.pack("<IQIQ", 1, 8, 0, 0)
    tensors = head(string(b"a") + row, string(b"a") + row, tensors=2, fields=0)
    refused(path, tensors + bytes(64), "the tensor 'a' twice")
    tried("GGUF files with a name twice", 2)


@pytest.mark.parametrize("kind", (*range(13, 40), 2**31, 2**32 - 1))
def test_unknown_kinds_of_fields(path, tried, kind):
    refused(path, head(string(b"a"), number(kind), bytes(99)), f"kind {kind}")
    tried("GGUF files with unknown kinds")


@pytest.mark.parametrize("kind", (4, 5, 9, 15, *range(24, 29), 31, 36, 99, 2**32 - 1))
def test_unknown_kinds_of_weights(path, tried, kind):
    one = (kind, (V, 8), bytes(V * 8 * 8))
    content = gguf_bytes(FIELDS, TENSORS | {"token_embd.weight": one})
    refused(path, content, f"tensor 'token_embd.weight': {kind} is no kind of weights")
    tried("GGUF files with unknown kinds")


def placed(*tensors, **fields):
    """A file whose tensors have any axes, kinds and places."""
    out = [_head_of(fields, tensors)]
    for name, sizes, kind, place in tensors:
        out.append(string(name.encode()) + number(len(sizes)))
        out.append(struct.pack(f"<{len(sizes)}Q", *sizes))
        out.append(struct.pack("<IQ", kind, place))
    content = b"".join(out)
    return content + bytes(-len(content) % 32 + 4096)


def _head_of(fields, tensors):
    named = FIELDS | fields
    whole = gguf_bytes(named, {"x": np.zeros(1, np.float32)})
    at = whole.rindex(string(b"x") + number(1))
    return whole[:8] + struct.pack("<Q", len(tensors)) + whole[16:at]


@pytest.mark.parametrize(
    "tensor, said",
    [
        (((24, 37), 0, 2**20), "it ends at byte"),
        (((24, 37), 0, 2**63), "it ends at byte"),
        (((24, 37), 0, 2**64 - 32), "it ends at byte"),
        (((24, 37), 0, 4), "begins at 4, no multiple of 32"),
        (((24, 37), 0, 31), "begins at 31, no multiple of 32"),
        (((0, 37), 0, 0), "rows of 0 weights"),
        (((24, 2**40), 0, 0), "it ends at byte"),
        (((2**40, 1), 0, 0), "it ends at byte"),
        (((2**63, 2**63), 0, 0), "it ends at byte"),
        (((2**32, 2**32, 2**32, 2**32), 0, 0), "it ends at byte"),
        (((33, 1), 2, 0), "rows of 33 weights"),
        (((), 0, 0), "has 0 axes"),
        (((1,) * 5, 0, 0), "has 5 axes"),
    ],
    ids=str,
)
def test_tensors_that_are_not_there(path, tried, tensor, said):
    refused(path, placed(("token_embd.weight", *tensor)), said)
    tried("GGUF files with tensors that are not there")


def test_tensors_on_top_of_each_other(path, tried):
    """A thousand names for the same bytes would be a thousand matrices."""
    many = [(f"t{i}", (8, 16), 0, 0) for i in range(1000)]
    refused(path, placed(*many), "lies on top of another", megabytes=6)
    part = [("a", (8, 16), 0, 0), ("b", (8, 16), 0, 512), ("c", (8, 1), 0, 480)]
    refused(path, placed(*part), "tensor 'c' lies on top")
    GGUFFile(_written(path, placed(*part[:2])))
    tried("GGUF files with tensors on top of each other", 2)


def _written(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "changed, said",
    [
        *(({"general.alignment": x}, "general.alignment is") for x in (0, 1, 7, True)),
        ({"general.alignment": 2.5}, "general.alignment is 2.5"),
        ({"general.alignment": 2**31}, "it ends at byte"),
        ({"general.architecture": "x" * 5000}, "architecture"),
        ({"general.architecture": ["llama"]}, "architecture"),
        *(
            ({f"llama.{name}": value}, f"{name}|{meant}|tensor")
            for name, meant in {
                "block_count": "layers", "embedding_length": "width",
                "feed_forward_length": "hidden", "attention.head_count": "heads",
                "attention.head_count_kv": "kv_heads", "context_length": "window",
                "attention.key_length": "head", "rope.dimension_count": "head",
                "attention.value_length": "head",
            }.items()
            for value in (0, 2**32 - 1, 1.5, "3", [3, 3], True)
            if (name, value) != ("context_length", 2**32 - 1)
        ),
        *(
            ({f"llama.{name}": value}, name.split(".")[1].split("_")[-1])
            for name in ("rope.freq_base", "attention.layer_norm_rms_epsilon")
            for value in (-1.0, np.inf, np.nan, "1", [1.0], True)
        ),
        ({"llama.rope.freq_base": 0.0}, "rope_base must be finite and above 0"),
        ({"llama.rope.scaling.type": "x" * 5000}, "scaling.type must be none or"),
        ({"llama.rope.scaling.factor": 0.0}, "rope_factors must be finite and above"),
        ({"llama.rope.scaling.factor": np.nan}, "rope_factors must be finite"),
        ({"llama.rope.scaling.factor": "2"}, "factor must be one number"),
        ({"llama.expert_count": 2}, "mixture of experts"),
    ],
    ids=lambda x: str(x)[:50],
)  # fmt: skip
def test_settings_that_are_none(path, tried, changed, said):
    content = gguf_bytes(FIELDS | changed, TENSORS)
    refused(path, content, said)
    tried("GGUF files with settings that are none")


NEEDED = [name for name in FIELDS if "head_count_kv" not in name]
NEEDED = [name for name in NEEDED if "length" not in name or name.count(".") == 1]
NEEDED = [x for x in NEEDED if "rope" not in x and not x.startswith("tokenizer.ggml.b")]
NEEDED = [x for x in NEEDED if not x.endswith(("eos_token_id", "ggml.pre"))]
NEEDED.remove("tokenizer.ggml.token_type")


@pytest.mark.parametrize("name", NEEDED)
def test_fields_that_are_missing(path, tried, name):
    fields = {key: value for key, value in FIELDS.items() if key != name}
    refused(path, gguf_bytes(fields, TENSORS), name.split(".")[-1])
    tried("GGUF files with something missing")


@pytest.mark.parametrize("name", sorted(TENSORS))
def test_tensors_that_are_missing_or_misshapen(path, tried, name):
    fewer = {key: value for key, value in TENSORS.items() if key != name}
    if name != "output.weight":  # without it the head is the embedding
        said = "vocab_size" if "token" in name else f"no tensor '{name}'"
        refused(path, gguf_bytes(FIELDS, fewer), said)
    whole = TENSORS[name]
    shapes = [whole[:-1], whole[..., :-1], whole[None], whole.ravel()[: whole.size - 1]]
    for other in shapes:
        content = gguf_bytes(FIELDS, TENSORS | {name: np.ascontiguousarray(other)})
        refused(path, content, f"'{name}' must have shape|the embedding|vocab_size")
    tried("GGUF files with something missing", 5)


@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
@pytest.mark.parametrize("tied", (True, False))
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_weights_that_are_no_numbers(path, tried, bad, tied, dtype):
    """At every place of every tensor, or at the ends of it; refused when loaded."""
    small = toy(2, tied=tied, layers=1)
    fields, tensors = fields_of(small.config), tensors_of(small)
    n = 0
    for name, tensor in tensors.items():
        for place in {0, tensor.size // 2, tensor.size - 1}:
            changed = tensor.copy()
            changed.flat[place] = bad
            path.write_bytes(gguf_bytes(fields, tensors | {name: changed}))
            with pytest.raises(ValueError, match=f"toy.gguf: its tensor '{name}' has"):
                llama.load(path, dtype=dtype)
            n += 1
    tried("GGUF files with weights that are no numbers", n)


def test_weights_that_are_too_large(path, tried):
    """Each a number, and their products none."""
    names = ("blk.0.attn_q.weight", "blk.0.attn_k.weight")
    huge = {name: TENSORS[name] * np.float32(1e25) for name in names}
    said = "so large that the logits are no numbers"
    refused(path, gguf_bytes(FIELDS, TENSORS | huge), said)
    content = gguf_bytes(FIELDS | {"llama.rope.freq_base": 1e-45}, TENSORS)
    assert attempt(load, path, content) is not None  # odd, and no harm
    tried("GGUF files with weights that are no numbers", 2)


@pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed"
)
def test_scales_that_are_no_numbers_in_the_kernel(path, tried):
    """A block's scale of 16 bits is NaN or infinite; by the compiled kernel too."""
    small = toy(4, tied=True, layers=1, width=64, hidden=64, heads=2, head_width=32)
    fields, n = fields_of(small.config), 0

    def packed(tensor, bad=None):
        if tensor.ndim == 1:
            return tensor
        blocks = np.zeros((*tensor.shape[:-1], tensor.shape[-1] // 32, 34), np.uint8)
        blocks[..., :2] = np.array([0.01], np.float16).view(np.uint8)
        blocks[..., 2:] = np.arange(32) + 1
        if bad is not None:
            blocks.reshape(-1, 34)[-1, :2] = np.array([bad], np.float16).view(np.uint8)
        return (8, tensor.shape, blocks.tobytes())

    plain = {name: packed(each) for name, each in tensors_of(small).items()}
    path.write_bytes(gguf_bytes(fields, plain))
    load(path)
    llama.load(path, compiled=True)
    for name, each in tensors_of(small).items():
        if each.ndim == 1:
            continue
        for bad in (np.nan, np.inf, -np.inf):
            path.write_bytes(gguf_bytes(fields, plain | {name: packed(each, bad)}))
            for compiled in (False, True):
                with pytest.raises(ValueError, match=f"its tensor '{name}' has"):
                    llama.load(path, compiled=compiled)
                n += 1
    tried("GGUF files with weights that are no numbers", n)


def test_a_file_that_changes_while_it_is_checked(path):
    """What the check reads is the model in memory and the file: both are the same."""
    write_toy(path, TOY)
    file = GGUFFile(path)
    config = read_config(file)
    model = llama.LlamaModel(config, read_weights(file, config))
    check_finite(file, model)


LETTERS = FIELDS["tokenizer.ggml.tokens"]


@pytest.mark.parametrize(
    "name, values",
    {
        "model": ("bert", 3, ["gpt2"], ""),
        "tokens": ("abc", 3, [1] * V, ["a"] * V, [*LETTERS[:-1], LETTERS[0]],
                   LETTERS[:-1], [*LETTERS, "zz"], [["a"]] * V, [[]] * V),
        "token_type": (3, "a", [1] * (V - 1), [1] * (V + 1), ["a"] * V, [1.5] * V,
                       [[1]] * V),
        "merges": (3, "a b", ["ab"], ["! ! !"], [" !"], ["! "], ["zz !"], ["! \""], [3],
                   ["x" * 9000], [["a", "b"]]),
        "pre": ("x" * 5000, 3, ["gpt-2"]),
        **{
            f"{each}_token_id": (V, 2**32 - 1, 1.5, "0", [0], True)
            for each in ("bos", "eos", "eot", "eom")
        },
        "add_bos_token": ("no", 2, [True]),
    }.items(),
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_tokenizers_that_are_none(path, tried, name, values):
    for value in values:
        content = gguf_bytes(FIELDS | {f"tokenizer.ggml.{name}": value}, TENSORS)
        refused(
            path,
            content,
            "tokenizer|merges|tokens|kinds|pre must|_ids? must|whole GGUF",
        )
    tried("tokenizers in GGUF files that are none", len(values))


@pytest.mark.parametrize("value", (3, ["a"], True, 1.5))
def test_a_template_that_is_none(path, tried, value):
    content = gguf_bytes(FIELDS | {"tokenizer.chat_template": value}, TENSORS)
    refused(path, content, "chat_template must be a string")
    tried("tokenizers in GGUF files that are none")


# ---- chat templates

TIMES = "{% for a in range(99999) %}"
MANY = 40
ENDLESS = {
    "nested loops": TIMES * 3 + "{% endfor %}" * 3,
    "nested loops over letters": "{% for a in 'aaaaaaaaaa' %}" * 20
    + "{% endfor %}" * 20,
    "a loop with text": TIMES * 2 + "some text" + "{% endfor %}" * 2,
    "calls that double": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}"
    "{% endif %}{% endmacro %}{{ f(60) }}",
    "calls without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a loop in itself": "{% for a in messages recursive %}{{ loop(messages) }}"
    "{{ loop(messages) }}{% endfor %}",
    "a long text": "{{ 'a' * 10000000000 }}",
    "a long list": "{{ [1] * 10000000000 }}",
    "a list times": "{% set s = 'a' * 1000000 %}{{ ([s] * 100000) | join }}",
    "a large power": "{{ 10 ** (10 ** 10) }}",
    "powers of powers": "{% set x = 2 ** 4000 %}" + "{% set x = x * x %}" * 60,
    "a round number": "{{ 3 | round(1000000000) }}",
    "text added": "{% set s = 'aaaa' %}" + "{% set s = s + s %}" * MANY,
    "text joined": "{% set s = 'aaaa' %}" + "{% set s = s ~ s %}" * MANY + "{{ s }}",
    "text set": "{% set s = 'aaaa' %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * MANY,
    "text of macros": "{% set s = 'aaaa' %}{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}"
    + "{% set s = f(s) %}" * MANY,
    "text replaced": "{% set s = 'aaaa' %}" + "{% set s = s.replace('a', s) %}" * MANY,
    "text replaced by a filter": "{% set s = 'aa' %}"
    + "{% set s = s | replace('a', s) %}" * MANY,
    "text cut": "{% set s = 'a' * 4000000 %}"
    + "".join(f"{{% set s{i} = s[1:] %}}" for i in range(300)),
    "lists in lists": "{% set s = ['a'] %}" + "{% set s = [s, s] %}" * MANY + "{{ s }}",
    "a width": "{{ '%1000000000d' % 1 }}",
    "a width beside": "{{ '%*d' % (1000000000, 1) }}",
    "a width by a filter": "{{ '%1000000000d' | format(1) }}",
    "a width by format": "{{ '{:1000000000}'.format(1) }}",
    "a width by format, nested": "{{ '{:{}}'.format(1, 1000000000) }}",
    "centred": "{{ 'a' | center(1000000000) }}",
    "centred by itself": "{{ 'a'.center(1000000000) }}",
    "filled up": "{{ 'a'.zfill(1000000000) }}",
    "tabs": "{{ '\t'.expandtabs(1000000000) }}",
    "indented": "{{ 'a\na' | indent(1000000000) }}",
    "indented by text": "{% set s = '\n' * 100000 %}{{ s | indent(s) }}",
    "in parts": "{{ [1] | batch(1000000000, 'a') | list }}",
    "as JSON": "{{ [1] | tojson(1000000000) }}",
    "mapped": "{{ range(99999) | map('center', 100000) | join }}",
    "many filters": "{{ 'a' * 1000000 " + "| upper | lower " * 300 + "}}",
    "long itself": "a" * (1 << 19),
    "deep": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
}  # fmt: skip


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS)
def test_a_template_comes_to_an_end(tried, monkeypatch, template):
    """In time, and with a tenth of its bounds in a tenth of the memory."""
    messages = [{"role": "user", "content": "a"}] * 3
    started = perf_counter()
    with pytest.raises(
        ValueError, match="messages: the chat template fails: "
    ) as found:
        render(template, messages=messages)
    assert len(str(found.value)) < 400
    assert perf_counter() - started < 12
    monkeypatch.setattr(templates, "MOST", templates.MOST // 10)
    with at_most(60), pytest.raises(ValueError, match="the chat template fails: "):
        render(template, messages=messages)
    tried("chat templates that do not end")


def test_a_template_may_still_do_its_work():
    """Much that templates of models do, on a long conversation."""
    template = (
        "{%- macro show(m) -%}<{{ m['role'] }}>{{ m.content | trim }}{% endmacro -%}"
        "{% set ns = namespace(n=0, last='') %}"
        "{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% if loop.last %}{% set ns.last = m.content.split('</think>')[-1] %}"
        "{% endif %}"
        "{{ show(m) ~ '\n' }}{% for k, v in m.items() | sort %}{{ k }}{% endfor %}"
        "{{ loop.index }}/{{ loop.length }}{{ '%03d' % loop.index }}"
        "{{ m.content.replace('a', 'bb')[:3] }}{{ m | tojson(indent=2) | length }}"
        "{% endfor %}{{ ns.n }}{{ ns.last }}{{ messages[1:] | length }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
    )
    messages = [
        {
            "role": "user" if i % 2 else "system",
            "content": f" a{i}</think>z" + "x" * 500,
        }
        for i in range(200)
    ]
    text = render(template, messages=messages, add_generation_prompt=True)
    assert text.startswith("<system>a0</think>zxxx")
    end = "x" * 500 + "199100<assistant>"
    assert text.endswith("200z" + end)
    assert "200/200200 bb" in text
