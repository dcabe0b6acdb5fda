"""Text to ids and back, by the lists of a GGUF file."""

import json

import numpy as np
import pytest

from specdec_lib.text import StreamDecoder

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from specdec_lib.llama.gguf_file import GGUFFile
from specdec_lib.llama.tokenizer import LlamaTokenizer, byte_letters

LETTERS = {byte: letter for letter, byte in byte_letters().items()}
BYTES = [LETTERS[byte] for byte in range(256)]
MERGES = ["h e", "l l", "he ll", "Ġ w", "hell o", "Ġ Ġ", "1 2"]
SPECIAL = ["<end>", "<user>", "<word>"]


def small(pre="gpt-2", **options):
    tokens = [*SPECIAL, *BYTES, *(merge.replace(" ", "") for merge in MERGES)]
    kinds = [3, 3, 4] + [1] * (len(tokens) - 3)
    return LlamaTokenizer(tokens, MERGES, kinds, pre=pre, eos_id=0, **options)


TEXTS = [
    *("", " ", "   ", "\n", "\t\n x ", "hello world", "  two  blanks  ", "a\r\nb\r\n"),
    *("Hello, World!", "it's I'LL we've DON'T", "snake_case camelCase x2y3", "1234567"),
    "def f(x):\n    return x ** 2\n\n\nprint(f(3))\n",
    "if (a<b) { c += 1; } // d",
    *("naïve café, Ångström, straße", "Ελληνικά кириллица", "עברית العربية"),
    *("漢字かな交じり", "🙂👍🏽👩\u200d👩\u200d👧 emoji", "e\u0301 combining"),
    *("zero\u200bwidth", "\u00a0nbsp\u3000wide", "\x00\x01\x7f", "\ufeffbom"),
    *("𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "half ½ roman Ⅷ wide １２３", "price: $3.50 (≈ 3€)"),
    "<|im_start|>user\nhi<|im_end|>\n",
    *("<|im_start|><|im_end|>", "a<|endoftext|>b"),
    *("a  1", "x   42 y", "\n  7", "<|im_end", "|im_end|>", "<| im_end |>"),
    '{"name": "Ada", "born": 1815, "list": [1, 2.5, null]}',
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "The quick brown fox jumps over the lazy dog. " * 5,
]


def test_by_hand():
    tokenizer = small()
    ids = tokenizer.encode("hello world")
    assert ids.dtype == np.int64
    assert tokenizer.pieces(ids) == ["hello", " w", "o", "r", "l", "d"]
    assert tokenizer.decode(ids) == "hello world"


@pytest.mark.parametrize("pre", ("gpt-2", "smollm", "llama-bpe", "qwen2"))
@pytest.mark.parametrize("text", TEXTS)
def test_any_text_comes_back(pre, text):
    tokenizer = small(pre)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    stream = StreamDecoder(tokenizer)
    parts = [stream.feed([id]) for id in tokenizer.encode(text).tolist()]
    assert "".join(parts) + stream.finish() == text


@pytest.mark.parametrize(
    "pre, pieces",
    [
        ("gpt-2", ["x", " ", " ", "12", "3"]),  # the last blank goes with the number
        ("smollm", ["x", "  ", "1", "2", "3"]),  # digits come first, one by one
        ("llama-bpe", ["x", " ", " ", "12", "3"]),  # three digits, without a blank
        ("qwen2", ["x", " ", " ", "1", "2", "3"]),
    ],
)
def test_how_a_text_is_cut(pre, pieces):
    tokenizer = small(pre)
    assert tokenizer.pieces(tokenizer.encode("x  123")) == pieces


def test_special_tokens():
    tokenizer = small()
    ids = tokenizer.encode("<user>hello<end>").tolist()
    assert ids[0] == 1
    assert ids[-1] == 0
    assert len(ids) == 3
    assert tokenizer.decode(ids) == "hello"
    assert tokenizer.pieces(ids) == ["<user>", "hello", "<end>"]
    plain = tokenizer.encode("<user>hello<end>", special=False)
    assert min(plain) > 2
    assert tokenizer.decode(plain) == "<user>hello<end>"
    # A word that is never cut is text like any other.
    word = tokenizer.encode("a<word>b").tolist()
    assert word[1] == 2
    assert tokenizer.decode(word) == "a<word>b"


def test_half_a_character():
    tokenizer = small()
    ids = tokenizer.encode("é").tolist()
    assert tokenizer.pieces(ids) == ["\\xc3", "\\xa9"]
    assert tokenizer.decode(ids[:1]) == "\ufffd"


def test_stop_ids():
    assert small().stop_ids == (0,)
    assert small(stop_ids=[1, 0]).stop_ids == (0, 1)


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<user>{{ m['role'] }}: {{ m['content'] }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<user>{% endif %}"
)


def test_chat():
    tokenizer = small(chat_template=TEMPLATE, bos_id=1)
    text = tokenizer.chat_text("hello")
    assert text == "<user><user>user: hello<end><user>"
    assert (tokenizer.chat("hello") == tokenizer.encode(text)).all()
    messages = [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "brief"},
    ]
    assert tokenizer.chat_text(messages, answer=False) == (
        "<user><user>system: be<end><user>user: brief<end>"
    )


def test_chat_that_cannot_be():
    with pytest.raises(ValueError, match="no chat template"):
        small().chat("hello")
    refuses = "{{ raise_exception('only the user speaks') }}"
    with pytest.raises(ValueError, match="refuses them: only the user speaks"):
        small(chat_template=refuses).chat("hello")
    with pytest.raises(ValueError, match="the chat template fails"):
        small(chat_template="{% for %}").chat("hello")
    with pytest.raises(TypeError, match="messages must have a role and content"):
        small(chat_template=TEMPLATE).chat([{"text": "hello"}])


def test_a_template_does_no_harm():
    """It comes with a file from anywhere, so it is given nothing to break out with."""
    escape = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(ValueError, match="the chat template fails"):
        small(chat_template=escape).chat("hello")


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(pre="tekken"), "pre must be one of .*smollm.*got 'tekken'"),
        (dict(kinds=[1]), "kinds must be 259 numbers"),
        (dict(merges=["ab"]), "merges must be two pieces with a space, got 'ab'"),
        (dict(eos_id=259), "eos_id must be inside 0 .. 258, got 259"),
        (dict(stop_ids=[2, -1]), "stop_ids must be inside 0 .. 258, got -1"),
    ],
)
def test_bad_lists(change, message):
    given = dict(tokens=[*SPECIAL, *BYTES], merges=[], kinds=[3, 3, 4] + [1] * 256)
    given |= dict(pre="gpt-2") | change
    tokens, merges, kinds = (given.pop(x) for x in ("tokens", "merges", "kinds"))
    with pytest.raises(ValueError, match=message):
        LlamaTokenizer(tokens, merges, kinds, **given)


def test_merges_of_what_is_not_there():
    for merge, missing in (("a bcd", "'bcd'"), ("bcd a", "'bcd'"), ("a b", "'ab'")):
        with pytest.raises(ValueError, match=f"merges do not fit .*{missing}"):
            LlamaTokenizer(BYTES, [merge], [1] * 256, pre="gpt-2")


def test_bad_arguments():
    tokenizer = small()
    with pytest.raises(ValueError, match="character 1 is the lone surrogate"):
        tokenizer.encode("a\ud800")
    for bad in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"got {bad}"):
            tokenizer.decode([bad])


def test_beside_transformers(smollm2_path):
    """The file's own lists, by transformers and by us.

    transformers reads the file's merges but not the name of its way of cutting, and
    does not take digits one by one; so two or more blanks before a digit, and numerals
    such as ½, are cut in another way there. With its first step replaced by the one
    that the file names, both agree on every text.
    """
    transformers = pytest.importorskip("transformers", reason="not installed")
    from tokenizers import Tokenizer, pre_tokenizers

    theirs = transformers.AutoTokenizer.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name
    )
    ours = LlamaTokenizer.from_file(GGUFFile(smollm2_path))
    assert ours.bos_id == theirs.bos_token_id
    assert ours.eos_id == theirs.eos_token_id
    steps = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
    named = Tokenizer.from_str(theirs.backend_tokenizer.to_str())
    named.pre_tokenizer = pre_tokenizers.Sequence(steps)
    g = np.random.default_rng(0)
    alphabet = list("abcXYZ 012 \n\t.,;'\"<>|é漢🙂½_{}()=+-")
    random = ["".join(g.choice(alphabet, 40)) for _ in range(300)]
    differ = []
    for text in [*TEXTS, *random]:
        ids = ours.encode(text)
        assert ids.tolist() == named.encode(text).ids
        if ids.tolist() != theirs.encode(text):
            differ.append(text)
        assert ours.decode(ids) == theirs.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    for text in differ:
        assert any(c.isnumeric() for c in text), text
    assert [text for text in TEXTS if text in differ] == [
        "half ½ roman Ⅷ wide １２３",
        "a  1",
        "x   42 y",
        "\n  7",
    ]
    for _ in range(100):  # any ids at all, half characters too
        ids = g.integers(0, ours.vocab_size, 30)
        assert ours.decode(ids) == theirs.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    for messages in (
        [{"role": "user", "content": "hi"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        [
            {"role": "user", "content": json.dumps({"a": 1})},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": "again\n"},
        ],
    ):
        for answer in (True, False):
            assert ours.chat_text(messages, answer=answer) == (
                theirs.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=answer
                )
            )
