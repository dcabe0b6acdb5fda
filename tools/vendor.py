"""Fetch the scripts that the pages load, so that the site needs no other server.

    python tools/vendor.py            what the pages need: MathJax
    python tools/vendor.py --checks   what the tests need: KaTeX, axe-core, a dictionary
    python tools/vendor.py --paper    the fonts of the book on paper

They come from the npm registry, at fixed versions and with their licences, each archive
accepted only with the SHA-512 written here. Neither Node.js nor npm is needed.

The files go to book/assets/vendor, tests/vendor and tools/paper/vendor, which git
ignores; only the first is a part of the site. Where the registry cannot be reached, a
note says so and the site is built to load MathJax from a public CDN instead.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "book" / "assets" / "vendor"
CHECKS = ROOT / "tests" / "vendor"
PAPER = ROOT / "tools" / "paper" / "vendor"
STAMP = "complete.json"


@dataclass(frozen=True)
class Package:
    """One npm archive: what it must be, and which files of it go where."""

    name: str
    version: str
    sha512: str  # base64, as npm writes it
    strip: str  # folder inside the archive
    into: str  # folder under the target
    files: tuple[str, ...]  # patterns, relative to `strip`
    licence: str = "package/LICENSE"  # the file inside the archive

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
)
PACKAGES_OF_CHECKS = (
    Package(
        "katex",
        "0.19.1",
        "jG8uKntjSEcm2EpQOh0XturpPuuC9r3Sq5HLHdsFdWZT27E672SF19QEi+of0/YeOy15lDgRhKvr561"
        "4uRrEfA==",
        "package/dist/",
        "katex/",
        ("katex.min.js",),
    ),
    Package(
        "axe-core",
        "4.14.1",
        "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37O"
        "gudVGtQ==",
        "package/",
        "axe-core/",
        ("axe.min.js",),
    ),
    Package(
        "dictionary-en-gb",
        "3.0.0",
        "gU/dwC9xGYPh/0CCcmGNXO8OwSgOySAqevcSXxADCsgUD+tr6OJ52u7XaC7No7dNssvdUSfVjkzcqLr"
        "RZq3kPA==",
        "package/",
        "dictionary-en-gb/",
        ("index.aff", "index.dic"),
        "package/license",
    ),
)
PACKAGES_OF_PAPER = (
    Package(
        "@fontsource/source-serif-4",
        "5.3.1",
        "cWcTCXjYYrgF9A67fThVir1VSc0lPEYmwQ6jA4pPt01s2MSCi/maINUcZoCzaqnU8fyUReDO97eGcBU"
        "kHgOeug==",
        "package/files/",
        "serif/",
        ("source-serif-4-latin-[46]00-*.woff2",),
    ),
    Package(
        "@fontsource/source-sans-3",
        "5.3.0",
        "VrWixSgF93kOVSEkwjs9ImnAbxrBew4PgcnaJYEitG9TyJSwxjFUNJIgzB1XFP/acyAWcTDg7+sWe7J"
        "I8LTB9w==",
        "package/files/",
        "sans/",
        ("source-sans-3-latin-[46]00-*.woff2",),
    ),
    Package(
        "dejavu-fonts-ttf",
        "2.37.3",
        "f1hd7jJbeQa1VWcw+K2KrTXS50zTMaHpVC4XIKJpNcDeYR5ajMtj/iLlQDYNvLOKamUB3ARVVCf79lN"
        "wNVztSQ==",
        "package/ttf/",
        "dejavu/",
        (
            "DejaVuSans.ttf",
            "DejaVuSans-Bold.ttf",
            "DejaVuSansMono.ttf",
            "DejaVuSansMono-Bold.ttf",
            "DejaVuSansMono-Oblique.ttf",
        ),
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
            if not member.isfile() or ".." in member.name:
                continue
            licence = member.name == package.licence
            name = "LICENSE" if licence else member.name.removeprefix(package.strip)
            if licence or (
                name != member.name
                and any(
                    fnmatch.fnmatchcase(name, pattern)
                    and name.count("/") == pattern.count("/")
                    for pattern in package.files
                )
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


def wanted(packages: tuple[Package, ...]) -> dict[str, str]:
    """What a complete folder holds, by name and version."""
    return {package.name: f"{package.version} {package.into}" for package in packages}


def is_complete(folder: Path, packages: tuple[Package, ...]) -> bool:
    """Whether a folder holds all of these."""
    try:
        return bool(json.loads((folder / STAMP).read_text()) == wanted(packages))
    except (OSError, ValueError):
        return False


def fetch(folder: Path, packages: tuple[Package, ...]) -> None:
    """Fill a folder; it is replaced whole or left as it was."""
    base = registry()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".vendor-") as aside:
        target = Path(aside) / "vendor"
        target.mkdir()
        for package in packages:
            archive = download(f"{base}/{package.tarball}")
            unpack(package, archive, target)
            print(f"  {package.name} {package.version}")
        (target / STAMP).write_text(json.dumps(wanted(packages), indent=1) + "\n")
        if folder.exists():
            shutil.rmtree(folder)
        target.rename(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checks", action="store_true", help="what the tests need")
    parser.add_argument("--paper", action="store_true", help="the fonts of the PDF")
    arguments = parser.parse_args()
    if arguments.paper:
        folder, packages = PAPER, PACKAGES_OF_PAPER
        without = "Without them the book is not printed."
    elif arguments.checks:
        folder, packages = CHECKS, PACKAGES_OF_CHECKS
        without = "Without them spelling and pages cannot be tested."
    else:
        folder, packages = VENDOR, PACKAGES
        without = (
            "The book is built all the same; its formulas will then be loaded from a\n"
            "public CDN and need a network. `make vendor` tries again."
        )
    if is_complete(folder, packages):
        return 0
    print(f"Fetching {', '.join(package.name for package in packages)} ...")
    try:
        fetch(folder, packages)
    except (OSError, ValueError) as error:
        print(f"Could not fetch them: {error}\n{without}", file=sys.stderr)
        return int(folder != VENDOR)
    return 0


if __name__ == "__main__":
    sys.exit(main())
