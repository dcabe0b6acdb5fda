"""Fetch the scripts that the pages load, so that the site needs no other server.

MathJax, RequireJS and the Jupyter widget manager come from the npm registry, at fixed
versions, each archive accepted only with the SHA-512 written here. anywidget's script
is taken from the installed Python package. Neither Node.js nor npm is needed.

The files go to book/assets/vendor, which git ignores. Where the registry cannot be
reached, a note says so and the site is built to load them from public CDNs instead.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "book" / "assets" / "vendor"
STAMP = "complete.json"


@dataclass(frozen=True)
class Package:
    """One npm archive: what it must be, and which files of it go where."""

    name: str
    version: str
    sha512: str  # base64, as npm writes it
    strip: str  # folder inside the archive
    into: str  # folder under VENDOR
    files: tuple[str, ...]  # patterns, relative to `strip`

    @property
    def tarball(self) -> str:
        return f"{self.name}/-/{self.name.split('/')[-1]}-{self.version}.tgz"


PACKAGES = (
    Package(
        "mathjax",
        "3.2.2",
        "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+g"
        "eW0OhGw==",
        "package/es5/",
        "mathjax/",
        (
            "tex-mml-chtml.js",
            "output/chtml/fonts/woff-v2/*.woff",
            "input/tex/extensions/*.js",
            "a11y/*.js",
            "sre/*.js",
            "sre/mathmaps/base.json",
            "sre/mathmaps/en.json",
            "sre/mathmaps/nemeth.json",
        ),
    ),
    Package(
        "requirejs",
        "2.3.7",
        "DouTG8T1WanGok6Qjg2SXuCMzszOo0eHeH9hDZ5Y4x8Je+9JB38HdTLT4/VA8OaUhBa0JPVHJ0pyBkM"
        "1z+pDsw==",
        "package/",
        "",
        ("require.js",),
    ),
    Package(
        "@jupyter-widgets/html-manager",
        "1.0.14",
        "wglgQQ+VMj+MBKkTttdeoMtOah/H2A1w5GU1OAVXmDQqZYTK6C+oHZjQMxcNezIpiqUjC1YHKOo5XdP"
        "3ENvBng==",
        "package/dist/",
        "@jupyter-widgets/html-manager/dist/",
        ("embed-amd.js", "*.woff2"),
    ),
)


def registry() -> str:
    """The npm registry to ask: the user's own where one is set, else the public one."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/")
    npm = shutil.which("npm")
    if npm:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            answer = subprocess.run(
                [npm, "config", "get", "registry"],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            ).stdout.strip()
            if answer.startswith("http"):
                return answer.rstrip("/")
    with contextlib.suppress(OSError):
        found = re.search(
            r"^\s*registry\s*=\s*(\S+)", (Path.home() / ".npmrc").read_text(), re.M
        )
        if found:
            return found[1].rstrip("/")
    return "https://registry.npmjs.org"


def contexts() -> Iterator[ssl.SSLContext]:
    """Ways to check a server's certificate: the system's, then certifi's."""
    yield ssl.create_default_context()
    with contextlib.suppress(ImportError):
        import certifi

        yield ssl.create_default_context(cafile=certifi.where())


def download(url: str) -> bytes:
    """The bytes at `url`; URLError or OSError where they cannot be had."""
    last: Exception | None = None
    for context in contexts():
        try:
            with urllib.request.urlopen(url, timeout=60, context=context) as answer:
                return bytes(answer.read())
        except urllib.error.URLError as error:
            last = error
            if not isinstance(error.reason, ssl.SSLError):
                break
    assert last is not None
    raise last


def unpack(package: Package, archive: bytes, target: Path) -> int:
    """Write the wanted files of a checked archive under `target`; their number."""
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if digest != package.sha512:
        raise ValueError(
            f"{package.name} {package.version}: SHA-512 is {digest}, "
            f"expected {package.sha512}"
        )
    count = 0
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            name = member.name.removeprefix(package.strip)
            if not member.isfile() or name == member.name or ".." in name:
                continue
            if any(
                fnmatch.fnmatchcase(name, pattern)
                and name.count("/") == pattern.count("/")
                for pattern in package.files
            ):
                source = tar.extractfile(member)
                assert source is not None
                place = target / package.into / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(source.read())
                count += 1
    if not count:
        raise ValueError(f"{package.name} {package.version}: no wanted file inside")
    return count


def anywidget_script() -> Path:
    """anywidget's browser script, from the installed package."""
    for file in metadata.files("anywidget") or ():
        if str(file).endswith("anywidget/nbextension/index.js"):
            return Path(str(file.locate()))
    raise FileNotFoundError("anywidget is installed without nbextension/index.js")


def wanted() -> dict[str, str]:
    """What a complete folder holds, by name and version."""
    versions = {
        package.name: f"{package.version} {package.into}" for package in PACKAGES
    }
    return versions | {"anywidget": metadata.version("anywidget")}


def is_complete() -> bool:
    """Whether book/assets/vendor holds all that this file asks for."""
    try:
        return bool(json.loads((VENDOR / STAMP).read_text()) == wanted())
    except (OSError, ValueError):
        return False


def fetch() -> None:
    """Fill book/assets/vendor; it is replaced whole or left as it was."""
    base = registry()
    VENDOR.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=VENDOR.parent, prefix=".vendor-") as folder:
        target = Path(folder) / "vendor"
        target.mkdir()
        for package in PACKAGES:
            archive = download(f"{base}/{package.tarball}")
            unpack(package, archive, target)
            print(f"  {package.name} {package.version}")
        shutil.copyfile(anywidget_script(), target / "anywidget.js")
        (target / STAMP).write_text(json.dumps(wanted(), indent=1) + "\n")
        if VENDOR.exists():
            shutil.rmtree(VENDOR)
        target.rename(VENDOR)


def main() -> int:
    if is_complete():
        return 0
    print("Fetching the scripts that the pages load ...")
    try:
        fetch()
    except (OSError, ValueError) as error:
        print(
            f"Could not fetch them: {error}\n"
            "The book is built all the same; its formulas and sliders will then be\n"
            "loaded from public CDNs and need a network. `make vendor` tries again.",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
