"""Build JupyterLite with the book's library and chapters inside, into _build/lite.

`make lite` does so and then builds the site around it. A chapter's page then has a
button that opens it in the browser, where Python runs in the page: nothing is
installed, and nothing is asked of another server. The library is the wheel of the
files as they are now; it, ipywidgets and anywidget are loaded when the kernel starts,
so no chapter needs a cell for that.

Where Python for the browser cannot be fetched (see pyodide_files.py), nothing is built
and the site has no such buttons. That is an error, but for --lenient.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import live_chapters
import pyodide_files
from live_chapters import LITE, ROOT, STAMP
from pyodide_files import Unavailable

CACHE = ROOT / "_build" / "lite-cache"
REQUIREMENTS = ROOT / "requirements-lite.txt"
EXTENSIONS = (
    "@jupyterlite/pyodide-kernel-extension",
    "@jupyter-widgets/jupyterlab-manager",
    "anywidget",
)
# Wheels for Python in the browser, and what each needs.
WHEELS = {
    "anywidget": ("ipywidgets", "psygnal", "typing-extensions"),
    "comm": (),
    "ipywidgets": ("comm", "ipython", "traitlets"),
    "psygnal": (),
    "typing-extensions": (),
}
# Those of the kernel itself, which come with it.
KERNEL = {
    "ipykernel": (),
    "piplite": ("micropip",),
    "pyodide-kernel": ("ipykernel", "ipython"),
}
LIBRARY = {"specdec-lib": ("numpy",)}
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "@jupyterlab/apputils-extension:themes": {"adaptive-theme": True},
    # All cells in the page: they are few, and what is seen does not jump.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
# A link to a file of the book: its text, which may be missing, and its target.
LINK = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+\.(?:ipynb|md)\S*?)\)")
KERNELSPEC = {"display_name": "Python (in the browser)", "language": "python",
              "name": "python"}  # fmt: skip


def pip(*arguments: str | Path) -> None:
    """Run pip; Unavailable with its last words where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1"),
        timeout=600,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no answer"]
        raise Unavailable(f"pip {arguments[0]}: {said[-1]}")


def pins() -> dict[str, str]:
    """The versions of requirements-lite.txt."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    stated = [line.split("==") for line in lines if "==" in line]
    return {pyodide_files.plain(name): version for name, version in stated}


def tools() -> Path:
    """A folder with JupyterLite, its kernel and the browser's half of the widgets."""
    target = CACHE / "tools"
    stated = REQUIREMENTS.read_text(encoding="utf-8")
    stamp = target / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != stated:
        shutil.rmtree(target, ignore_errors=True)
        needed = [
            f"{name}=={version}"
            for name, version in pins().items()
            if name not in WHEELS or name == "anywidget"
        ]
        pip("install", "--quiet", "--no-deps", "--target", target, *needed)
        stamp.write_text(stated, encoding="utf-8")
    return target


def browser_wheels() -> list[Path]:
    """The wheels of requirements-lite.txt that Python in the browser loads."""
    folder = CACHE / "wheels"
    found = []
    for name in WHEELS:
        version = pins()[name]
        pattern = f"{name.replace('-', '_')}-{version}-py[23]*-none-any.whl"
        if not list(folder.glob(pattern)):
            pip(
                *("download", "--quiet", "--no-deps", "--only-binary", ":all:"),
                # A wheel in plain Python also where there is one for this machine.
                *("--platform", "any", "--implementation", "py", "--abi", "none"),
                *("--dest", folder, f"{name}=={version}"),
            )
        found += list(folder.glob(pattern))
    return found


def library_wheel(folder: Path) -> Path:
    """The library as it is now, built aside: an old build folder could get into it."""
    source = folder / "source"
    shutil.copytree(
        ROOT / "specdec_lib",
        source / "specdec_lib",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-PROSE"):
        shutil.copy(ROOT / name, source / name)
    pip(
        *("wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", folder / "library", source),
    )
    (wheel,) = (folder / "library").iterdir()
    return wheel


def kernel_wheels(tools: Path) -> list[Path]:
    """The wheels that come with the kernel, but for those that stand in for others."""
    folder = (
        tools / "share/jupyter/labextensions" / EXTENSIONS[0] / "static" / "pypi"
    )  # fmt: skip
    found = [
        path
        for path in sorted(folder.glob("*.whl"))
        if pyodide_files.plain(path.name.split("-")[0]) in KERNEL
    ]
    assert len(found) == len(KERNEL), found
    return found


def titles() -> dict[str, str]:
    """The title of each chapter, by the name of its file."""
    found = {}
    for name in live_chapters.chapters():
        path = ROOT / f"{name}.ipynb"
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found[path.name] = "".join(cells[0]["source"]).splitlines()[0].lstrip("# ")
    return found


def for_browser(notebook: dict[str, Any], present: set[str]) -> dict[str, Any]:
    """A copy of a chapter as JupyterLite wants it.

    It names the kernel there is, and its links name what they lead to: an empty link
    is filled by the site, not by Jupyter. Links to what is not there lose their target.
    """
    known = titles()
    changed = copy.deepcopy(notebook)
    changed["metadata"]["kernelspec"] = dict(KERNELSPEC)

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        name = target.split("#")[0]
        if "://" in target or target.startswith("#"):
            return match[0]
        text = text or known.get(name, name)
        return f"[{text}]({target})" if name in present else text

    for cell in changed["cells"]:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            cell["source"] = LINK.sub(link, text)
    return changed


def lite(project: Path, tools: Path, output: Path) -> None:
    """Have JupyterLite built from a project folder."""
    extensions = tools / "share/jupyter/labextensions"
    command = [
        *(sys.executable, "-m", "jupyterlite_core", "build"),
        *("--lite-dir", str(project), "--output-dir", str(output)),
        *("--no-sourcemaps", "--LiteBuildConfig.ignore_sys_prefix=True"),
        *(
            f"--LiteBuildConfig.federated_extensions={extensions / name}"
            for name in EXTENSIONS
        ),
    ]
    done = subprocess.run(
        command,
        cwd=project,
        env=dict(os.environ, PYTHONPATH=str(tools), PYTHONWARNINGS="ignore"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    if done.returncode or not (output / "notebooks" / "index.html").exists():
        raise RuntimeError(f"JupyterLite could not be built:\n{done.stdout[-3000:]}")


def commit() -> str:
    """The commit that this was built from; empty where there is none."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return done.stdout.strip()


def build() -> None:
    """Build all of it aside, then put it in place whole."""
    CACHE.mkdir(parents=True, exist_ok=True)
    fingerprint = live_chapters.fingerprint()
    with tempfile.TemporaryDirectory(prefix=".lite-", dir=LITE.parent) as name:
        folder = Path(name)
        project, output = folder / "project", folder / "lite"
        prepared = tools()
        own = [library_wheel(folder), *browser_wheels(), *kernel_wheels(prepared)]
        needs = LIBRARY | WHEELS | KERNEL
        wheels = {
            path: needs[pyodide_files.plain(path.name.split("-")[0])] for path in own
        }
        runtime = folder / "pyodide"
        lock = pyodide_files.build(runtime, CACHE, wheels)

        chapters = {Path(chapter).name + ".ipynb" for chapter in live_chapters.live()}
        for chapter in sorted(chapters):
            text = (ROOT / "notebooks" / chapter).read_text(encoding="utf-8")
            changed = for_browser(json.loads(text), chapters)
            place = project / "files" / chapter
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(changed, ensure_ascii=False), encoding="utf-8")
        (project / "overrides.json").write_text(json.dumps(SETTINGS))
        config = {
            "jupyter-lite-schema-version": 0,
            "jupyter-config-data": {
                "appName": "Speculative Decoding, Built from Scratch",
                # The tests reach for the application by its name in the page.
                "exposeAppInBrowser": True,
                "contentsStorageName": "specdec-book",
                "settingsStorageName": "specdec-book-settings",
                "workspacesStorageName": "specdec-book-workspaces",
                "litePluginSettings": {
                    "@jupyterlite/pyodide-kernel-extension:kernel": {
                        "pyodideUrl": "./static/pyodide/pyodide.js",
                        "disablePyPIFallback": True,
                        "loadPyodideOptions": {"packages": start_with(lock)},
                    }
                },
            },
        }
        (project / "jupyter-lite.json").write_text(json.dumps(config, indent=1))
        lite(project, prepared, output)
        # Icons that it asks for without having them here.
        for name in ("notebook", "busy-1", "busy-2", "busy-3", "file", "terminal"):
            icon = output / "static" / "favicons" / f"favicon-{name}.ico"
            icon.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(output / "lab" / "favicon.ico", icon)
        shutil.move(runtime, output / "static" / "pyodide")
        notice = "\n".join(["JupyterLite: build/third-party-licenses.json.", "",
                            *pyodide_files.notices(lock, own)])  # fmt: skip
        (output / "NOTICE.txt").write_text(notice + "\n", encoding="utf-8")
        stamp = {"fingerprint": fingerprint, "commit": commit()}
        (output / STAMP).write_text(json.dumps(stamp, indent=1) + "\n")
        if LITE.exists():
            LITE.rename(folder / "old")
        output.rename(LITE)


def start_with(lock: dict[str, Any]) -> list[str]:
    """What the kernel loads when it starts, under the names that it asks for."""
    names = {*pyodide_files.WANTED, pyodide_files.FONT_LIST, *WHEELS, *LIBRARY,
             "ipykernel", "piplite"}  # fmt: skip
    assert names <= set(lock["packages"])
    return sorted(names) + ["pyodide_kernel"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lenient",
        action="store_true",
        help="where Python for the browser cannot be fetched, say so and succeed",
    )
    arguments = parser.parse_args()
    if live_chapters.is_current():
        print("JupyterLite is as it should be: _build/lite")
        return 0
    try:
        build()
    except Unavailable as reason:
        shutil.rmtree(LITE, ignore_errors=True)
        print(
            f"No chapter will run in the browser; the book is built without.\n{reason}",
            file=sys.stderr,
        )
        return 0 if arguments.lenient else 1
    size = sum(path.stat().st_size for path in LITE.rglob("*") if path.is_file())
    print(f"Built: _build/lite ({size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
