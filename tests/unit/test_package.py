"""The library can be built, installed and run on its own, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import release

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("package")
    copy = folder / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-PROSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(
        ROOT / "specdec_lib",
        copy / "specdec_lib",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    assert list(folder.glob("*.tar.gz"))
    return built


def test_the_wheel_holds_the_corpus_and_the_licences(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "specdec_lib").rglob("*")
        if path.is_file()
        and path.suffix in {".py", ".txt", ".typed", ".js", ".css"}
        and "__pycache__" not in path.parts
    }
    assert shipped <= set(names)
    assert any(name.endswith("corpus/03_recipes.txt") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/LICENSE-PROSE") for name in names)
    tests = ("test_", "tests/", "conftest")
    assert not [name for name in names if any(part in name for part in tests)]
    assert not [name for name in names if ".pyc" in name]


def test_the_wheel_needs_numpy_alone(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith("dist-info/METADATA")]
    needs = [
        line
        for line in archive.read(name).decode().splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert needs == ["Requires-Dist: numpy>=2.0"]


def test_the_installed_wheel_runs_elsewhere(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--disable-pip-version-check", "--target", place, wheel],
        check=True,
        timeout=300,
    )  # fmt: skip
    code = (
        "import specdec_lib, sys; print(specdec_lib.__file__);"
        "from specdec_lib.cli import main;"
        "sys.exit(main(['generate', '--prompt', 'The', '--max-tokens', '5']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(place))


def test_the_core_imports_numpy_alone() -> None:
    """What a plain `import specdec_lib` loads from outside the standard library."""
    code = (
        "import sys; before = set(sys.modules); import specdec_lib;"
        "from specdec_lib import ngram, pair, text, cli;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    outside = set(done.stdout.split()) - {"numpy", "specdec_lib"}
    # Setuptools' own finder for an editable install is no part of the library.
    assert not {name for name in outside if not name.startswith("__editable__")}


def test_one_version_everywhere() -> None:
    """It stands in the library; what else names it, must say the same."""
    assert release.faults() == []
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
