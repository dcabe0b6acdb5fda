"""The check of the spelling: what it reads, what it leaves out, what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import spelling

AFFIXES = "SET UTF-8\nSFX S Y 1\nSFX S 0 s .\n"
KNOWN = """
a/S alt and back clock/S colour/S grey guess in is later of off the two
"""

PAGE = """\
---
description: "A grye clock"
other: zzfront
---
(zzlabel)=
# The clok

A `zzcode` and $zzmath$ in the {term}`zzrole` of [a clcok](zzaddress.md), two colors.
<!-- zzcomment -->

```python
zzfence
```

$$
zzdisplay
$$ (zznumber)

```{prf:theorem} Teh guess
:label: zzoption
Later ist the clock's.
```

```{code-cell}
zzcell
```

:::{figure} zzpicture.png
:alt: A clokc
The clock is bakc-off.
:::

| the | of |
|---|---|
| two | tow |

A zz_name, zz1, zzfile.py, www.zz.zz and https://zz.zz/zz, NumZz.
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project with a dictionary of a dozen words and a list of its own."""
    for name, text in {
        "small.aff": AFFIXES,
        "small.dic": "14\n" + "\n".join(KNOWN.split()) + "\n",
        "book/words.txt": "# Names.\nOstrey\n",
        "book/page.md": "The clock of Ostrey.\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(spelling, "ROOT", tmp_path)
    monkeypatch.setattr(spelling, "DICTIONARY", tmp_path / "small")
    monkeypatch.setattr(spelling, "OWN", tmp_path / "book" / "words.txt")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that name a fault."""
    return capsys.readouterr().out.partition("\n\n")[0].splitlines()


def test_right_words_pass(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spelling.main([]) == 0
    assert told(capsys) == []


def test_a_page_is_read_and_its_code_is_not(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "book" / "page.md").write_text(PAGE + "\nOstrey.\n")
    assert spelling.main([]) == 1
    assert told(capsys) == [
        "book/page.md:1: grye",
        "book/page.md:6: clok",
        "book/page.md:8: clcok",
        "book/page.md:8: colors",
        "book/page.md:19: Teh",
        "book/page.md:21: ist",
        "book/page.md:28: clokc",
        "book/page.md:30: bakc",
        "book/page.md:35: tow",
    ]


def test_a_chapter_is_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = {"image": {"alt": "Teh alt"}, "figure": {"caption": "A `zz` captoin"}}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["The clok"]},
        {
            "cell_type": "code",
            "metadata": {"mystnb": figure},
            "source": ["zz = 'zz'"],
        },
    ]
    (project / "notebooks").mkdir()
    (project / "notebooks" / "one.ipynb").write_text(json.dumps({"cells": cells}))
    assert spelling.main([]) == 1
    assert told(capsys) == [
        "notebooks/one.ipynb:cell 1: clok",
        "notebooks/one.ipynb:cell 2: Teh",
        "notebooks/one.ipynb:cell 2: captoin",
    ]


MODULE = '''\
"""The clok."""

zzname = "zzstring"  # teh guess, zz_name, ``zzcode``


def zzfunction(zzargument):
    """A guess in :func:`zzrole`.

    zzargument
        a clock, tow

    >>> zzexample
    zzoutput

    The guess::

        zzliteral

    Later, greay.
    """
    if zzargument:
        raise ValueError(f"the colck {zzargument}")
    parser.add_argument("--zzflag", help="a celock")
'''


def test_python_is_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tools").mkdir()
    (project / "tools" / "one.py").write_text(MODULE)
    assert spelling.main([]) == 1
    assert sorted(told(capsys)) == [
        "tools/one.py:10: tow",
        "tools/one.py:19: greay",
        "tools/one.py:1: clok",
        "tools/one.py:22: colck",
        "tools/one.py:23: celock",
        "tools/one.py:3: teh",
    ]


def test_other_files_are_read(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "_toc.yml").write_text("parts:\n  - caption: Teh clock\n  - file: zz\n")
    (project / "book" / "reference").mkdir()
    (project / "book" / "reference" / "a.toml").write_text('zz.text = "a celock"\n')
    assert spelling.main([]) == 1
    assert told(capsys) == ["_toc.yml:2: Teh", "book/reference/a.toml:: celock"]


@pytest.mark.parametrize(
    "lines, fault",
    [
        (["Ostrey", "clocks"], "is not sorted: clocks must stand where Ostrey does"),
        (["clocks", "Ostrey"], "clocks: the dictionary has it"),
        (["Ostrey", "Quince"], "Quince: no text uses it"),
        (["Ostrey", "Ostrey"], "Ostrey: stands there twice"),
        (["Ostrey", "book/other.md: tock"], "tock: no text uses it"),
    ],
)
def test_the_list_is_kept_short(
    project: Path, capsys: pytest.CaptureFixture[str], lines: list[str], fault: str
) -> None:
    (project / "book" / "words.txt").write_text("\n".join(lines) + "\n")
    assert spelling.main([]) == 1
    assert f"book/words.txt: {fault}" in told(capsys)


def test_words_of_one_file_are_right_there_alone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "book" / "words.txt").write_text("Ostrey\nbook/one.md: ana tock\n")
    (project / "book" / "one.md").write_text("Tock and ana of Ostrey.\n")
    (project / "book" / "two.md").write_text("tock, ostrey\n")
    assert spelling.main([]) == 1
    assert told(capsys) == ["book/two.md:1: tock", "book/two.md:1: ostrey"]


def test_without_the_dictionary_it_says_what_to_do(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "small.dic").unlink()
    assert spelling.main([]) == 1
    assert "tools/vendor.py --checks" in capsys.readouterr().err


def test_the_files_of_the_book_are_looked_at(root: Path) -> None:
    looked_at = {path.relative_to(root).as_posix() for path in spelling.files()}
    expected = "README.md _toc.yml book/glossary.md notebooks/05_exact_sampling.ipynb"
    assert {*expected.split(), "specdec_lib/decoding.py"} <= looked_at
    for name in expected.split():
        assert any(text.strip() for _, text in spelling.texts(root / name)), name
