"""What chapter 17 reads, and the tool that records it."""

import json
import re

import measured_at_scale as tool

from specdec_lib import scale


def test_the_stored_file_has_what_the_chapter_reads():
    stored = json.loads(tool.OUTPUT.read_text(encoding="utf-8"))
    times = stored["pairs"]["microseconds"]
    planted = [f"{100 * effect:g} %" for effect in tool.EFFECTS]
    assert list(times) == ["reference", *planted]
    assert {len(row) for row in times.values()} == {tool.PAIRS * tool.PER_PAIR}
    assert min(min(row) for row in times.values()) > 0
    costs = scale.Costs(**stored["workers"]["costs"])
    assert costs.cells == 96
    runs = stored["workers"]["runs"]
    assert [run["workers"] for run in runs] == list(tool.WORKERS)
    for run in runs:
        assert {len(run[where]) for where in scale.WHERE} == {tool.REPEATS}


def test_the_gate_can_do_its_work_on_what_was_recorded():
    """What the chapter says of any recording; record again on a quieter machine."""
    said = tool.summary(json.loads(tool.OUTPUT.read_text(encoding="utf-8")))
    shares = dict(re.findall(r"planted (\d) %: 24 pairs call (\S+) slower", said))
    assert float(shares["5"]) > 0.5
    assert float(shares["1"]) < 0.3
    assert re.search(r"^spread of a pair: \d+\.\d %$", said, re.M)
    assert re.search(r"^one process: \S+ to \S+ s$", said, re.M)


def test_pairs_are_recorded_and_written_as_they_are():
    pairs = tool.measure_pairs(2)
    rows = pairs["microseconds"]
    assert {len(row) for row in rows.values()} == {2 * tool.PER_PAIR}
    recorded = {"about": "a test", "machine": {"cores": 2}, "pairs": pairs}
    assert json.loads(tool.as_json(recorded)) == recorded
