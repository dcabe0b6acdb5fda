"""Check that a release is ready, and build what it consists of.

    python tools/release.py check [TAG]    the version is the same everywhere
    python tools/release.py build FOLDER   wheel and source, each tried by itself
    python tools/release.py notes          what CHANGELOG.md says of this version

The version stands in `specdec_lib/__init__.py`. The heading of the newest part of
CHANGELOG.md and CITATION.cff, with the day, have to say the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from edition import version

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (  # of what is in the library, one of each kind
    "specdec_lib/__init__.py",
    "specdec_lib/py.typed",
    "specdec_lib/llama/__init__.py",
    "specdec_lib/widgets/page/controls.js",
)
LICENCES = ("LICENSE", "LICENSE-PROSE")
TRIAL = """\
import pathlib, sys
import specdec_lib as sd
from specdec_lib.pair import book_pair
assert sd.__version__ == {version!r}, sd.__version__
assert pathlib.Path(sd.__file__).is_relative_to(sys.prefix), sd.__file__
pair = book_pair()
prompt = pair.tokenizer.encode("The harbour")
greedy = sd.Sampler(temperature=0)
plain = sd.generate(pair.target, prompt, max_new_tokens=20, sampler=greedy)
draft = sd.ModelDraft(pair.draft, greedy)
quick = sd.generate(pair.target, prompt, draft=draft, k=4, max_new_tokens=20,
                    sampler=greedy)
assert quick.tokens == plain.tokens
"""


def changelog(root: Path = ROOT) -> tuple[str, str]:
    """The newest version of CHANGELOG.md, and what is said of it."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    heading, _, said = parts[0].partition("\n") if parts else ("", "", "")
    return heading.split(" ")[0], said.strip()


def faults(tag: str | None = None, root: Path = ROOT) -> list[str]:
    """What is not of the same version, a line for each."""
    number = version(root)
    lines = []
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:rc\d+)?", number):
        lines.append(f"specdec_lib/__init__.py: {number} is no version like 1.2.3")
    if tag is not None and tag != f"v{number}":
        lines.append(f"the tag is {tag}, and the version {number}: v{number}")
    newest, said = changelog(root)
    if newest != number:
        lines.append(f"CHANGELOG.md: its newest part is {newest or 'missing'}")
    elif not said:
        lines.append(f"CHANGELOG.md: nothing is said of {number}")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {number}\n" not in citation:
        lines.append(f"CITATION.cff: its version is not {number}")
    if not re.search(r'^date-released: "\d{4}-\d\d-\d\d"$', citation, re.MULTILINE):
        lines.append('CITATION.cff: no day, as in date-released: "2026-11-30"')
    return lines


def contents(path: Path) -> set[str]:
    """The names of the files in a wheel, or in a source archive without its folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return set(wheel.namelist())
    with tarfile.open(path) as sdist:
        return {name.partition("/")[2] for name in sdist.getnames()}


def missing(path: Path) -> list[str]:
    """What either should have and has not; and what it should not have."""
    names = contents(path)
    lines = [f"{path.name}: no {name}" for name in NEEDED if name not in names]
    lines += [
        f"{path.name}: no {licence}"
        for licence in LICENCES
        if not any(name.split("/")[-1] == licence for name in names)
    ]
    if path.suffix == ".whl":
        tops = {name.split("/")[0] for name in names}
        lines += [
            f"{path.name}: {top} does not belong there"
            for top in sorted(tops)
            if top != "specdec_lib" and not top.endswith(".dist-info")
        ]
    return lines


def run(*command: str | Path, cwd: Path) -> None:
    subprocess.run([str(word) for word in command], cwd=cwd, check=True)


def try_out(path: Path) -> None:
    """Install it into a new environment, and use it from there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", path, cwd=folder)
        run(python, "-I", "-c", TRIAL.format(version=version()), cwd=folder)
        run(folder / "venv/bin/specdec", "--version", cwd=folder)
    print(f"{path.name}: installed into a new environment, and used")


def build(folder: Path) -> int:
    """Build both, from the files that git has, and try both."""
    if lines := faults():
        print("\n".join(lines), file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"{folder} is not empty", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        # Of the commit alone: nothing that lies about here gets in.
        source = Path(name, "source.tar")
        run("git", "archive", "--format=tar", "--output", source, "HEAD", cwd=ROOT)
        with tarfile.open(source) as archive:
            archive.extractall(Path(name, "source"), filter="data")
        run(
            *(sys.executable, "-m", "build", "--outdir", folder.resolve()),
            Path(name, "source"),
            cwd=Path(name),
        )
    made = sorted(folder.iterdir())
    lines = [line for path in made for line in missing(path)]
    if len(made) != 2:
        lines.append(f"a wheel and a sdist were expected, not {made}")
    if lines:
        print("\n".join(lines), file=sys.stderr)
        return 1
    for path in made:
        try_out(path.resolve())
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    match given:
        case ["check", *tag] if len(tag) < 2:
            lines = faults(tag[0] if tag else None)
            print("\n".join(lines) or f"{version()}: the same everywhere")
            return int(bool(lines))
        case ["build", folder]:
            return build(Path(folder))
        case ["notes"]:
            print(changelog()[1])
            return 0
        case _:
            print(__doc__)
            return 2


if __name__ == "__main__":
    sys.exit(main())
