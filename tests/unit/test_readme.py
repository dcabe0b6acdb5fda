"""What the README shows is true: its example runs, its commands and links exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
    return [text for name, text in found if name == language]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_example_runs() -> None:
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    done = run(sys.executable, "-W", "error", "-c", example)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert lines[0].startswith("The harbour")
    rate = re.fullmatch(r"(\d+\.\d\d) tokens a call of the target, not 1", lines[-1])
    assert rate
    assert 1 < float(rate[1]) <= 5


def test_the_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^make (\w+)|`make (\w+)`", README, re.M)
    assert len(named) >= 3
    for one, other in named:
        assert re.search(rf"^{one or other}:", makefile, re.M)


def test_the_command_line_takes_these_flags() -> None:
    lines = [
        shlex.split(line)
        for block in blocks("")
        for line in block.splitlines()
        if line.startswith("specdec")
    ]
    assert len(lines) >= 3
    for line in lines:
        usage = run(sys.executable, "-m", "specdec_lib", line[1], "--help")
        assert usage.returncode == 0, usage.stderr
        for flag in line[2:]:
            if flag.startswith("-"):
                assert re.search(rf"{flag}\b", usage.stdout), flag


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    text = re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.M | re.S)
    text = re.sub(r"``.*?``|`[^`\n]*`", "", text)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if not link.startswith("http"):
            assert (ROOT / link.split("#")[0]).exists(), link
