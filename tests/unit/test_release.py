"""A release has one version, and consists of files that work by themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import release as tool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The three files that name a version."""
    (tmp_path / "specdec_lib").mkdir()
    (tmp_path / "specdec_lib" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.2.3 - more\n\n### A\n\n- New.\n\n## 1.2.2\n\n- Old.\n"
    )
    (tmp_path / "CITATION.cff").write_text(
        'cff-version: 1.2.0\nversion: 1.2.3\ndate-released: "2026-11-30"\n'
    )
    return tmp_path


def test_all_say_the_same(project: Path) -> None:
    assert tool.faults(root=project) == []
    assert tool.faults("v1.2.3", project) == []
    assert tool.changelog(project) == ("1.2.3", "### A\n\n- New.")


@pytest.mark.parametrize(
    "name, old, new, said",
    [
        ("CHANGELOG.md", "## 1.2.3", "## 1.2.4", "newest part is 1.2.4"),
        ("CHANGELOG.md", "### A\n\n- New.\n", "", "nothing is said of 1.2.3"),
        ("CHANGELOG.md", "\n## ", "\n# ", "newest part is missing"),
        (
            "CITATION.cff",
            "\nversion: 1.2.3",
            "\nversion: 1.2.2",
            "version is not 1.2.3",
        ),
        ("CITATION.cff", '"2026-11-30"', "soon", "no day"),
        ("specdec_lib/__init__.py", "1.2.3", "1.2", "1.2 is no version like 1.2.3"),
    ],
)
def test_a_difference_is_told(
    project: Path, name: str, old: str, new: str, said: str
) -> None:
    path = project / name
    path.write_text(path.read_text().replace(old, new))
    assert any(said in line for line in tool.faults(root=project))


@pytest.mark.parametrize("tag", ("1.2.3", "v1.2.4", "v1.2.3rc1"))
def test_another_tag_is_told(project: Path, tag: str) -> None:
    (line,) = tool.faults(tag, project)
    assert line == f"the tag is {tag}, and the version 1.2.3: v1.2.3"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source archive of the files as they are, built without the network."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("made")
    for name in ("specdec_lib", "pyproject.toml", "README.md", *tool.LICENCES):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", made, source],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return made


@pytest.mark.slow
def test_wheel_and_sdist_are_whole(built: Path) -> None:
    paths = sorted(built.iterdir())
    assert [path.name for path in paths] == [
        f"specdec_lib-{tool.version()}-py3-none-any.whl",
        f"specdec_lib-{tool.version()}.tar.gz",
    ]
    for path in paths:
        assert tool.missing(path) == []


@pytest.mark.slow
def test_the_wheel_is_what_is_imported(built: Path, tmp_path: Path) -> None:
    """All of it, without the files here; NumPy is that of the tests."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    trial = tool.TRIAL.format(version=tool.version())
    code = f"import sys; sys.prefix = {str(tmp_path)!r}; sys.path.insert(0, sys.prefix)"
    subprocess.run(
        [sys.executable, "-I", "-c", f"{code}\n{trial}"], check=True, timeout=300
    )


def test_what_is_missing_or_too_much_is_told(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "a.whl", tmp_path / "a.tar.gz"
    names = ["specdec_lib/__init__.py", "a.dist-info/LICENSE", "tests/x.py"]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    found = tool.missing(wheel)
    assert "a.whl: tests does not belong there" in found
    assert "a.whl: no specdec_lib/py.typed" in found
    assert "a.whl: no LICENSE-PROSE" in found
    assert "a.whl: no specdec_lib/__init__.py" not in found
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(ROOT / "LICENSE", "a-1/LICENSE")
    assert "a.tar.gz: no LICENSE" not in tool.missing(sdist)
    assert "a.tar.gz: no specdec_lib/py.typed" in tool.missing(sdist)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    assert tool.main(["build", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["old.whl"]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["check"]) == 0
    assert tool.main(["check", f"v{tool.version()}"]) == 0
    assert tool.main(["check", "v99.0.0"]) == 1
    assert tool.main(["notes"]) == 0
    assert "### The library" in capsys.readouterr().out
    for wrong in ([], ["build"], ["check", "a", "b"], ["publish"]):
        assert tool.main(wrong) == 2
