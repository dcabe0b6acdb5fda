"""The names that readers' code and other parts rely on, and who may import whom."""

import ast
import subprocess
import sys

import pytest

import specdec_lib as sd

NAMES = [
    "SeededRandom",
    "exact_distribution",
    "Sampler",
    "RepetitionPenalty",
    "LogitBias",
    "NGramModel",
    "ModelDraft",
    "Proposal",
    "verify_tokens",
    "PromptLookup",
    "SuffixDraft",
    "SuffixHistory",
    "FirstOf",
    "CacheModel",
    "TreeDraft",
    "tree_shape",
    "verify_block",
    "verify_tree",
    "Verdict",
    "residual",
    "verification.lossy",
    "generate",
    "stream",
    "Generation",
    "Engine",
    "Completion",
    "TextStream",
    "Round",
    "Metrics",
    "theory.acceptance",
    "theory.expected_tokens",
    "theory.speedup",
    "theory.best_k",
    "Calibration",
    "PayingLength",
    "RecentAcceptance",
    "TrueChance",
    "UpAndDown",
    "FunctionModel",
    "Tokenizer",
    "book_pair",
]

ORDER = [
    "randomness",
    "sampling",
    "files",
    "prompts",
    "text",
    "models",
    "ngram_tables",
    "ngram",
    "pair",
    "drafts",
    "verification",
    "metrics",
    "decoding",
    "engine",
    "theory",
    "draft_length",
    "comparison",
    "workers",
    "records",
    "experiments",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_there(name):
    value = sd
    for part in name.split("."):
        value = getattr(value, part)
    assert value is not None


def test_all_is_sorted_and_true():
    assert sd.__all__ == sorted(sd.__all__)
    for name in sd.__all__:
        assert hasattr(sd, name)


def imported(path):
    """The sibling modules that a module of the core imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            if node.module:
                yield node.module.split(".")[0]
            else:
                yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_only_what_stands_above_it(root, module):
    folder = root / "specdec_lib"
    paths = [folder / f"{module}.py"]
    own = {module}
    if not paths[0].exists():
        paths = sorted((folder / module).glob("*.py"))
        own |= {path.stem for path in paths}
    above = set(ORDER[: ORDER.index(module)])
    for path in paths:
        assert set(imported(path)) - own <= above, path.name


def test_every_module_of_the_core_has_its_place(root):
    optional = {"__init__", "__main__", "cli", "huggingface", "plots", "tracking"}
    modules = {path.stem for path in (root / "specdec_lib").glob("*.py")} - optional
    assert modules | {"drafts", "verification"} == set(ORDER)


def test_the_core_needs_numpy_alone():
    code = (
        "import sys; before = set(sys.modules); import specdec_lib, "
        "specdec_lib.experiments, specdec_lib.comparison, specdec_lib.cli; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(new - set(sys.stdlib_module_names) - {'specdec_lib'}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert out == ["numpy"]
