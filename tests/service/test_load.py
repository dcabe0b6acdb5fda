"""Many clients at once: none lost, none mixed up; and the generator would see it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from service_kit import serving, writes

from specdec_lib.service.load import (
    HEADS,
    Level,
    known_requests,
    load,
    main,
    server,
    table,
)


@pytest.fixture(scope="module")
def known(engine):
    return known_requests(engine, 32)


def run(url, known, clients, seconds, memory=None):
    return asyncio.run(load(url, known, clients, seconds, memory))


def test_sixteen_clients_get_their_own_answers(known):
    with server() as (url, pid):
        process = psutil.Process(pid)
        run(url, known, 4, 0.5)  # what is loaded at first use is no leak
        level = run(url, known, 16, 2.5, lambda: float(process.memory_info().rss))
    assert level.lost == level.wrong == []
    assert len(level.times) >= 16
    assert level.tokens >= 8 * len(level.times)
    assert len(level.memory) >= 8
    assert level.growth < 20e6
    assert max(level.memory) < 500e6
    assert len(table([level]).splitlines()) == 2


def test_who_is_told_to_wait_waits_and_is_not_lost(engine, known):
    with serving(engine, workers=1, queue=0) as service:
        level = run(service.url, known, 3, 0.1)
    assert level.waits > 0
    assert level.lost == level.wrong == []
    assert len(level.times) >= 3


def test_a_wrong_answer_is_seen(engine, known):
    first, second = known[0], known[5]
    mixed = [replace(first, answer=second.answer), second]
    with serving(engine) as service:
        level = run(service.url, mixed, 2, 0)
    assert len(level.wrong) == 1
    assert level.wrong[0].startswith("load-0: ")
    assert level.lost == []


def test_a_lost_answer_is_seen(known):
    with serving(writes("a", fails_after=0)) as service:
        level = run(service.url, known, 2, 0)
        assert len(level.lost) == 2
        assert "500" in level.lost[0]
    gone = run(service.url, known, 2, 0)
    assert len(gone.lost) == 2
    assert "ConnectError" in gone.lost[0]


def test_growth_is_from_the_second_quarter_to_the_last():
    level = Level(1, memory=[0.0, 5.0, 9.0, 9.0, 9.0, 9.0, 12.0, 12.0])
    assert level.growth == 3.0
    assert Level(1).growth == 0.0


def test_a_row_by_hand():
    level = Level(4, seconds=2.0, times=[0.3, 0.1, 0.2, 0.4], tokens=50, waits=1)
    level.memory = [1e6, 3e6]
    row = dict(zip(HEADS, level.row(), strict=True))
    assert row["a second"] == "2.0"
    assert row["tokens/s"] == "25"
    assert (row["p50 ms"], row["p99 ms"]) == ("200.0", "400.0")
    assert (row["429s"], row["lost"], row["wrong"]) == ("1", "0", "0")
    assert row["MB"] == "3"


def test_the_command_prints_the_table(book, tmp_path, capsys):
    path = tmp_path / "figures.json"
    flags = ["--url", book.url, "--clients", "1,3", "--seconds", "0.2"]
    assert main([*flags, "--json", str(path)]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["clients", "1", "3"]
    assert err == ""
    assert '"p99_ms"' in path.read_text()


@pytest.mark.parametrize("missing", ["httpx", "psutil"])
def test_the_extra_is_named(missing):
    code = (
        "import runpy, sys; "
        f"sys.modules[{missing!r}] = None; "
        "runpy.run_module('specdec_lib.service.load', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"load: error: this needs {missing}: pip install 'specdec_lib[load]'\n"
    )
