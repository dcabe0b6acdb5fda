"""Without its extra, the part that meets transformers says what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ("torch", "transformers"))
def test_the_extra_is_named(missing):
    code = (
        "import sys; sys.modules['torch'] = type(sys)('torch'); "
        f"sys.modules[{missing!r}] = None; import specdec_lib.huggingface"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"ImportError: this needs {missing}: pip install 'specdec_lib[hf]'"
