"""The workflows name what is there, and have no more rights than they need."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = {path.name: path for path in sorted(FOLDER.iterdir())}
# Every right to write, and who has it; all else may only read.
DEPLOY = {"pages", "id-token"}
WRITE = {
    ("colab.yml", "branch"): {"contents"},
    ("deploy.yml", "deploy"): DEPLOY,
    ("links.yml", "links"): {"issues"},
    ("preview.yml", "keep"): {"contents"},
    ("preview.yml", "deploy"): DEPLOY,  # hands them on to deploy.yml
    ("preview.yml", "tell"): {"pull-requests"},
    ("publish.yml", "keep"): {"contents"},
    ("publish.yml", "deploy"): DEPLOY,
    ("release.yml", "release"): {"contents"},
}
# Those run with the rights of the repository for events of anybody's making.
OF_ANYBODY = ("pull_request_target", "workflow_run", "issue_comment", "issues")


def read(name: str) -> dict[str, Any]:
    text = FILES[name].read_text(encoding="utf-8")
    found: dict[Any, Any] = yaml.safe_load(text)
    found["on"] = found.pop(True, found.get("on"))  # `on` is read as a truth
    return found


def events(workflow: dict[str, Any]) -> dict[str, Any]:
    on = workflow["on"]
    return {on: None} if isinstance(on, str) else dict(on)


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name in FILES:
        for job, content in read(name)["jobs"].items():
            yield name, job, content


def steps() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, job, content in jobs():
        for step in content.get("steps", ()):
            yield name, job, step


def scripts() -> list[tuple[str, str]]:
    return [(name, step["run"]) for name, _, step in steps() if "run" in step]


def test_all_workflows_are_read() -> None:
    assert {path.suffix for path in FILES.values()} == {".yml"}
    assert len(FILES) >= 8
    for name in FILES:
        assert read(name)["name"] == Path(name).stem
        assert events(read(name))


def test_every_job_has_an_end() -> None:
    for name, job, content in jobs():
        if "uses" in content:
            assert "steps" not in content
        else:
            assert content["runs-on"] == "ubuntu-latest", (name, job)
            assert 0 < content["timeout-minutes"] <= 90, (name, job)


def test_only_githubs_own_actions_at_a_version_are_used() -> None:
    for name, _, step in steps():
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]), name
        assert ("uses" in step) != ("run" in step), (name, step)


def test_workflows_that_are_called_can_be_called() -> None:
    called = {c["uses"] for _, _, c in jobs() if "uses" in c}
    assert called
    for place in called:
        name = place.removeprefix("./.github/workflows/")
        assert "workflow_call" in events(read(name))
        assert "secrets" not in (events(read(name))["workflow_call"] or {})


def test_every_script_and_target_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    seen = set()
    for name, script in scripts():
        for path in re.findall(r"\btools/\w+\.\w+", script):
            assert (ROOT / path).exists(), (name, path)
            seen.add(path)
        for words in re.findall(r"^\s*make (.*)$", script, re.MULTILINE):
            named = [word for word in words.split() if "=" not in word]
            assert named, (name, words)
            assert set(named) <= targets, (name, words)
            seen.update(named)
    assert {"test", "status", "lite", "tools/published.py"} <= seen


def test_outputs_that_are_read_are_given() -> None:
    for name, job, content in jobs():
        needed = content.get("needs", [])
        needed = [needed] if isinstance(needed, str) else needed
        text = yaml.safe_dump(content)
        for other, output in re.findall(r"needs\.(\w+)\.outputs\.([\w-]+)", text):
            assert other in needed, (name, job)
            giver = read(name)["jobs"][other]
            if "uses" in giver:
                called = read(Path(giver["uses"]).name)
                assert output in events(called)["workflow_call"]["outputs"]
            else:
                assert output in giver["outputs"]
        ids = {step.get("id") for step in content.get("steps", ())}
        for step in re.findall(r"steps\.([\w-]+)\.outputs", text):
            assert step in ids, (name, job, step)


def rights(workflow: dict[str, Any], job: dict[str, Any]) -> dict[str, str]:
    """What a job may do; a workflow without such a line would have more."""
    found = job.get("permissions", workflow.get("permissions"))
    assert isinstance(found, dict)
    return found


def test_no_job_has_more_rights_than_it_needs() -> None:
    found = {}
    for name, job, content in jobs():
        given = rights(read(name), content)
        if write := {what for what, how in given.items() if how == "write"}:
            found[name, job] = write
        assert set(given.values()) <= {"read", "write"}
    assert found == WRITE


def test_what_is_called_gets_the_rights_that_it_asks_for() -> None:
    for name, job, content in jobs():
        if "uses" not in content:
            continue
        given = rights(read(name), content)
        called = read(Path(content["uses"]).name)
        for inner in called["jobs"].values():
            for what, how in rights(called, inner).items():
                assert given.get(what) in (how, "write"), (name, job, what)


def test_no_secret_is_used() -> None:
    """But the token of the run, which a request from a fork gets to read with only."""
    for name, path in FILES.items():
        text = path.read_text(encoding="utf-8")
        assert "secrets" not in text, name


def test_what_others_write_gets_into_no_script() -> None:
    """A title or the name of a branch in `${{ }}` would be run as part of a script."""
    for name, script in scripts():
        assert "${{" not in script, name
    for name, _, step in steps():
        for value in step.get("env", {}).values():
            for inside in re.findall(r"\$\{\{(.*?)\}\}", str(value)):
                known = (
                    r"(?:steps|needs)\.\w+\.outputs\.\w+|github\.(?:token|repository)"
                )
                assert re.fullmatch(known, inside.strip()), (name, inside)


def test_for_events_of_anybody_nothing_of_a_request_is_run() -> None:
    found = set()
    for name in FILES:
        workflow = read(name)
        if not set(events(workflow)) & set(OF_ANYBODY):
            continue
        found.add(name)
        assert workflow["permissions"] == {}
        for content in workflow["jobs"].values():
            for step in content.get("steps", ()):
                if step.get("uses", "").startswith("actions/checkout@"):
                    ref = "${{ github.event.repository.default_branch }}"
                    assert step["with"] == {"ref": ref}
        text = FILES[name].read_text(encoding="utf-8")
        assert not re.search(r"head\.(?:ref|sha)|head_(?:ref|branch|sha)", text)
        watched = events(workflow).get("workflow_run", {}).get("workflows", [])
        assert set(watched) <= {Path(each).stem for each in FILES}
    assert found == {"preview.yml"}


def test_requests_are_tested_without_rights() -> None:
    for name in FILES:
        workflow = read(name)
        if "pull_request" in events(workflow):
            for content in workflow["jobs"].values():
                assert rights(workflow, content) == {"contents": "read"}


def test_nothing_is_published_that_did_not_pass() -> None:
    publish = read("publish.yml")
    assert publish["jobs"]["test"]["uses"] == "./.github/workflows/test.yml"
    assert publish["jobs"]["keep"]["needs"] == "test"
    assert publish["jobs"]["deploy"]["needs"] == "keep"
    tests = read("test.yml")["jobs"]["pinned"]["steps"]
    does = [step.get("run") or step["uses"] for step in tests]
    order = [does.index(each) for each in ("make test", "make status lite pdf")]
    upload = next(n for n, each in enumerate(does) if "upload-artifact" in each)
    assert order == sorted(order)
    assert order[-1] < upload
    # A push to main is not tested twice.
    assert events(publish)["push"] == {"branches": ["main"]}
    assert events(read("test.yml"))["push"] == {"branches-ignore": ["main"]}


def test_nothing_goes_on_where_a_step_failed() -> None:
    for name, path in FILES.items():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"continue-on-error|always\(\)|failure\(\)", text), name


def test_deploying_runs_nothing_of_the_book() -> None:
    (job,) = read("deploy.yml")["jobs"].values()
    used = [step.get("uses", "run").partition("@")[0] for step in job["steps"]]
    assert used == [
        "actions/checkout",
        "actions/upload-pages-artifact",
        "actions/deploy-pages",
    ]
    assert job["steps"][0]["with"] == {"ref": "pages", "persist-credentials": False}


@pytest.mark.parametrize("script", sorted({script for _, script in scripts()}))
def test_scripts_can_be_read_by_a_shell(script: str) -> None:
    subprocess.run(["bash", "-n", "-c", script], check=True)


@pytest.mark.parametrize("code, calls", ((0, "0"), (1, "1"), (2, "2")))
def test_the_issue_is_kept_whatever_the_links_are(
    code: int, calls: str, tmp_path: Path
) -> None:
    """The script of links.yml, with stand-ins for the two tools that it calls."""
    (script,) = (text for name, text in scripts() if "link_issue" in text)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/sh\ncase "$1" in *external_links*) exit ' + str(code) + ";; esac\n"
        'echo "$2 $3" > called\n'
    )
    python.chmod(0o755)
    # As GitHub runs it: an error ends it.
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, check=True)
    assert (tmp_path / "called").read_text() == f"{calls} links.md\n"
