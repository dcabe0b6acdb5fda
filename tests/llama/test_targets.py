"""Models by their names: whose they are, and those of transformers in commands."""

import json
import socket
import sys

import pytest
from llama_kit import toy, write_toy

import specdec_lib as sd
from specdec_lib import cli
from specdec_lib.llama import fetch, targets
from specdec_lib.llama.targets import kind_of


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models"))
    return tmp_path


def test_whose_model_a_name_is(home):
    tiny = home / "tiny.gguf"
    write_toy(tiny, toy(3, vocab_size=90))
    tiny.with_suffix(".bin").write_bytes(tiny.read_bytes())
    (home / "pair.npz").write_bytes(b"PK\3\4")
    (home / "folder").mkdir()
    for name in ("smollm2", tiny, home / "tiny.bin", "no/file.GGUF"):
        assert kind_of(name) == "llama"
    for name in (home / "folder", "gpt2", "ada/tiny", "Qwen/Qwen2.5-0.5B"):
        assert kind_of(name) == "transformers"
    saved = (home / "pair.npz", "none.npz", "some/none.npz", "a/b/c", "../up")
    for name in (None, *saved):
        assert kind_of(name) is None
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    assert kind_of("tiny") == "transformers"
    fetch.get(str(tiny))
    assert kind_of("tiny") == "llama"


def error(capsys, *arguments):
    assert cli.main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_slip_of_the_finger(capsys):
    said = error(capsys, "generate", "--model", "smolm2")
    assert said.endswith("no model of that name; did you mean smollm2?\n")


@pytest.mark.parametrize("missing", ("torch", "transformers"))
def test_the_extra_is_named(capsys, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "specdec_lib.huggingface", raising=False)
    monkeypatch.delitem(vars(sd), "huggingface", raising=False)
    if missing == "torch":
        monkeypatch.setitem(sys.modules, "transformers", type(sys)("transformers"))
    said = error(capsys, "generate", "--model", "gpt2")
    assert "there is no file gpt2, and no model of that name among smollm2" in said
    assert f"it needs {missing}: pip install 'specdec_lib[hf]'" in said


def test_a_folder_of_something_else(home, capsys):
    (home / "folder").mkdir()
    assert "no config.json" in error(capsys, "generate", "--model", home / "folder")


# ---- with transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random model and a tokenizer of bytes, as transformers keeps them."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="it is not installed")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0} | {letter: i for i, letter in enumerate(letters, 1)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    ends = dict(bos_token="<end>", eos_token="<end>")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **ends)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=160,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in model.parameters():
            if each.dim() > 1:
                each.copy_(torch.randn(each.shape, generator=g) * 0.4)
    path = tmp_path_factory.mktemp("hf") / "tiny"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_generate_with_a_folder(folder, capsys):
    flags = ["--prompt", "abcabc né", "--temperature", "0", "--max-tokens", "40"]
    assert cli.main(["generate", "--model", str(folder), *flags, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    model, tokenizer = sd.huggingface.load(folder)
    prompt = tokenizer("abcabc né").input_ids
    greedy = sd.Sampler(temperature=0)
    plain = sd.generate(model, prompt, max_new_tokens=40, sampler=greedy, stop_ids=[0])
    assert report["speculative"]["text"] == tokenizer.decode(plain.tokens)
    assert report["same_tokens"]


def test_answers_of_a_folder(folder, home, capsys):
    (home / "prompts").write_text("abc\ndef\n")
    flags = ["--prompts", str(home / "prompts"), "--max-tokens", "12"]
    assert cli.main(["models", "distill", str(folder), *flags]) == 0
    flags = ["--prompt", "def", "--max-tokens", "12", "--json"]
    capsys.readouterr()
    assert cli.main(["generate", "--model", str(folder), *flags]) == 0
    assert json.loads(capsys.readouterr().out)["history"]["knows_prompt"]


def test_a_compiled_model_of_transformers_is_refused(folder, capsys):
    said = error(capsys, "generate", "--model", folder, "--compiled")
    assert "compiled is for GGUF files" in said


def test_a_chat_template_is_used(folder):
    target = targets.load_target(folder)
    assert target.encode("ab", True) == target.encode("ab", False)
    assert target.encode([{"role": "user", "content": "ab"}], True) == target.encode(
        "ab", True
    )
    assert target.encode("", False) == [0]
    _, tokenizer = sd.huggingface.load(folder)
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.content }}]{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}"
    )
    tokenizer.save_pretrained(folder.parent / "chat")
    for name in ("config.json", "model.safetensors"):
        (folder.parent / "chat" / name).write_bytes((folder / name).read_bytes())
    chatty = targets.load_target(folder.parent / "chat")
    assert chatty.encode("ab", True) == tokenizer("[ab]>").input_ids
    assert chatty.encode("ab", False) == tokenizer("ab").input_ids
    assert chatty.stop_ids == (0,)
    assert chatty.vocabulary == target.vocabulary


def test_half_a_character_waits(folder):
    target = targets.load_target(folder)
    text = "né €!"
    decoder, pieces = target.engine.decoder(), []
    for id in target.encode(text, False):
        pieces.append(decoder.feed([id]))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert decoder.finish() == ""
    decoder = target.engine.decoder()
    assert decoder.feed(target.encode("é", False)[:1]) == ""
    assert decoder.finish() == "\ufffd"


def test_a_hub_out_of_reach_is_said_at_once(folder, capsys, monkeypatch, home):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", address)
        said = error(capsys, "generate", "--model", "ada/no-such-model")
    assert f"the Hugging Face hub at {address} cannot be reached" in said
