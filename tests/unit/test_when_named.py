"""The parts that need more than the core are attributes, imported when first named."""

import subprocess
import sys

import pytest

import specdec_lib as sd


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_nothing_is_imported_before():
    done = run(
        "import sys, specdec_lib as sd; parts = ('llama', 'huggingface'); "
        "loaded = [p for p in parts if 'specdec_lib.' + p in sys.modules]; "
        "print(loaded, sd.llama.__name__, 'specdec_lib.llama' in sys.modules, "
        "set(parts) <= set(dir(sd)))"
    )
    assert done.stdout.split() == ["[]", "specdec_lib.llama", "True", "True"]


def test_the_extra_is_named():
    done = run(
        "import sys; sys.modules['torch'] = None; import specdec_lib as sd; "
        "sd.huggingface"
    )
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: this needs torch: pip install 'specdec_lib[hf]'"


def test_other_names_are_missing_as_ever():
    with pytest.raises(AttributeError, match="'specdec_lib' has no attribute 'lama'"):
        sd.lama
    assert not hasattr(sd, "gpt")
