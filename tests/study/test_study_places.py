"""Layouts of storage: how they are written, and that everything lies where a layout puts it and is gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from leadline.errors import LeadlineError
from leadline.study import places
from leadline.study.design import read, with_layouts

LARGE = "create table t as select lo_from_bytea(0, 'x') as body; create index t_body on t (body)"


def test_a_folder_without_a_name_is_for_all_that_have_none() -> None:
    assert set(places.parse("/a").values()) == {"/a"}
    assert places.parse("wal=/c /a indexes='/b c'") == {"tables": "/a", "indexes": "/b c", "large_objects": "/a", "wal": "/c"}


@pytest.mark.parametrize("text", ["", "wal=/c", "/a /b", "wal=/a wal=/b /c", "logs=/a /b", "'/a", "wal= /a"])
def test_a_layout_that_leaves_something_out_or_says_it_twice_is_refused(text: str) -> None:
    with pytest.raises(LeadlineError) as refused:
        places.parse(text)
    assert refused.value.kind == "usage"


def test_layouts_are_absolute_and_need_a_study_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = with_layouts(read("storage"), ["one=a", "two=a wal=b"])
    assert study.factors[0].text_of("two") == f"tables={tmp_path}/a indexes={tmp_path}/a large_objects={tmp_path}/a wal={tmp_path}/b"
    for given, name in ((["one=a"], "storage"), (["one", "two=b"], "storage"), (["one=a", "two=b"], "settings")):
        with pytest.raises(LeadlineError):
            with_layouts(read(name), given)
    with pytest.raises(LeadlineError, match="two layouts are alike"):
        places.check({"one": "/tmp", "two": "wal=/tmp /tmp"})
    with pytest.raises(LeadlineError, match="puts wal where there is no directory"):
        places.check({"one": "/tmp", "two": "wal=/nowhere /tmp"})


@pytest.fixture
def mounts() -> Iterator[Path]:
    """A folder that the user of the server may enter, as those of pytest are not, with two in it."""
    with tempfile.TemporaryDirectory(prefix="leadline-places-") as folder:
        for path in (Path(folder), Path(folder, "a"), Path(folder, "b")):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        yield Path(folder)


def test_everything_lies_where_its_layout_puts_it_and_is_gone_afterwards(tmp_path: Path, mounts: Path) -> None:
    design = f"""question = "Where?"
repetitions = 1
[[factor]]
layout = true
levels = {{ one = "{mounts}/a", two = "{mounts}/b tables={mounts}/a" }}
[[prepare]]
sql = {LARGE.split("; ")}
[load]
command = "sh -c 'echo wal=$((1 + $(ls -d {mounts}/b/*/wal/0* 2>/dev/null | wc -l)))'"
[[metric]]
pattern = "wal=([0-9]+)"
better = "less"
[[metric]]
name = "large"
sql = "select 1 + (pg_relation_filepath('pg_largeobject') like 'pg_tblspc/%')::int"
difference = false
better = "less"
[[metric]]
name = "index"
sql = "select 1 + (pg_relation_filepath('t_body') like 'pg_tblspc/%')::int"
difference = false
better = "less"
[[metric]]
name = "table"
sql = "select 1 + (pg_relation_filepath('t') like 'pg_tblspc/%')::int"
difference = false
better = "less"
"""
    (tmp_path / "s.toml").write_text(design)
    environment = {name: value for name, value in os.environ.items() if name != "LEADLINE_RUN"} | {"LEADLINE_BOOK": str(tmp_path / "book")}
    command = [sys.executable, "-m", "leadline", "study", "run", str(tmp_path / "s.toml"), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = {row["metric"]: (row["layout=one"], row["layout=two"]) for row in json.loads(done.stdout)["study"]["rows"]}
    assert rows.pop("wal=([0-9]+)")[1] >= 2, "a segment of layout two lies there"
    assert rows == {"large": (1, 2), "index": (1, 2), "table": (1, 1)}
    assert [path.name for name in ("a", "b") for path in (mounts / name).iterdir()] == []
