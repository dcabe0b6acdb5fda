"""The tools that build and serve the book."""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

import pytest
import screenshots
import vendor
from browser import NoBrowser, candidates
from serve import make_server

ROOT = Path(__file__).resolve().parents[2]


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def package(data: bytes) -> vendor.Package:
    digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
    return vendor.Package("@a/b", "1.2.3", digest, "package/", "to/", ("*.js", "f/*.x"))


def test_vendor_takes_only_what_is_wanted(tmp_path: Path) -> None:
    data = archive(
        {
            "package/a.js": b"a",
            "package/f/b.x": b"b",
            "package/f/c.js": b"c",
            "package/../../evil.js": b"e",
            "other/d.js": b"d",
        }
    )
    assert vendor.unpack(package(data), data, tmp_path) == 2
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.?*"))
    assert files == ["to/a.js", "to/f/b.x"]
    assert (tmp_path / "to/a.js").read_bytes() == b"a"


def test_vendor_refuses_a_changed_archive(tmp_path: Path) -> None:
    data = archive({"package/a.js": b"a"})
    with pytest.raises(ValueError, match="SHA-512"):
        vendor.unpack(package(data), data + b"x", tmp_path)
    assert not list(tmp_path.iterdir())


def test_vendor_names_the_archive_as_npm_does() -> None:
    assert package(b"").tarball == "@a/b/-/b-1.2.3.tgz"


def test_vendor_asks_the_registry_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "https://npm.example/x/")
    assert vendor.registry() == "https://npm.example/x"


def test_server_takes_the_next_free_port_and_only_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with make_server(0, tmp_path) as first:
        port = first.server_address[1]
        with make_server(port, tmp_path) as second:
            assert second.server_address[0] == "127.0.0.1"
            assert second.server_address[1] != port


def test_server_serves(tmp_path: Path) -> None:
    import threading

    (tmp_path / "a.txt").write_text("hello")
    with make_server(0, tmp_path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/a.txt"
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.read() == b"hello"
            assert answer.headers["Cache-Control"] == "no-cache"
        server.shutdown()


def test_a_named_browser_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(NoBrowser, match="/no/such/browser"):
        list(candidates())


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell script")
class TestEnvironment:
    """tools/venv.sh, in a folder of its own."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "venv.sh", tmp_path / "tools")
        (tmp_path / "requirements.txt").write_text("")
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        return tmp_path

    def run(self, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "tools/venv.sh"],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **env},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def test_says_which_python_is_needed(self, folder: Path) -> None:
        done = self.run(folder, PYTHON="/bin/false")
        assert done.returncode == 1
        assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
        assert "PYTHON=/bin/false" in done.stderr

    def test_says_so_where_there_is_no_python(self, folder: Path) -> None:
        tools = folder / "bin"
        tools.mkdir()
        for name in ("dirname", "cat", "cksum", "sed"):
            tools.joinpath(name).symlink_to(shutil.which(name) or name)
        done = self.run(folder, PATH=str(tools))
        assert done.returncode == 1
        assert "Install one" in done.stderr


def test_pages_stand_side_by_side_on_a_sheet(tmp_path: Path) -> None:
    """Thirteen pages: twelve in a row, and long ones are cut off at the foot."""
    from PIL import Image

    pictures = []
    for shade in range(13):
        buffer = io.BytesIO()
        Image.new("RGB", (360, 9000), (10 * shade, 0, 0)).save(buffer, "PNG")
        pictures.append(buffer.getvalue())
    screenshots.contact_sheet(pictures, tmp_path / "sheet.png")
    sheet = Image.open(tmp_path / "sheet.png")
    wide, high = screenshots.THUMB, screenshots.THUMB_HEIGHT
    assert sheet.size == (12 * wide, 2 * high)
    for index in range(13):
        corner = (index % 12 * wide + 5, index // 12 * high + 5)
        assert sheet.getpixel(corner) == (10 * index, 0, 0)
    assert sheet.getpixel((wide + 5, high + 5)) == (128, 128, 128)


def test_screens_have_three_widths_in_both_colours() -> None:
    found = {
        (look["viewport"]["width"], look["color_scheme"])
        for look in screenshots.LOOKS.values()
    }
    assert found == {(w, c) for w in (360, 768, 1440) for c in ("light", "dark")}
