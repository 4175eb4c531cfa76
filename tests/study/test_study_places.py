"""Layouts of storage: how they are written, and that everything lies where a layout puts it and is gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Server
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fast wal=slow", "cannot move the WAL"),
        ("fast indexes=/mnt/b", "its tablespaces, not directories: /mnt/b"),
        ("indexes=slow", "says nothing of tables, large_objects"),
        ("fast slow", "no place of a layout"),
    ],
)
def test_places_of_a_named_server_are_tablespaces(text: str, said: str) -> None:
    assert places.spaces("fast indexes=slow") == {"tables": "fast", "indexes": "slow", "large_objects": "fast"}
    with pytest.raises(LeadlineError, match=said) as refused:
        places.spaces(text)
    assert refused.value.kind == "usage"


SPACE_OF = """
    select 1 + (spcname = 'Slow "2"')::int from pg_class c join pg_database d on datname = current_database()
    join pg_tablespace s on s.oid = coalesce(nullif(c.reltablespace, 0), dattablespace) where relname = '{}'
"""


def on_server(tmp_path: Path, server: Server, *layouts: str) -> subprocess.CompletedProcess[str]:
    metrics = "".join(
        f"[[metric]]\nname = '{name}'\nsql = '''{SPACE_OF.format(relation)}'''\ndifference = false\nbetter = 'less'\n"
        for name, relation in (("table", "t"), ("index", "t_body"), ("large", "pg_largeobject"))
    )
    (tmp_path / "s.toml").write_text(
        f"""question = "Where?"
repetitions = 1
[[factor]]
layout = true
levels = {{ one = ".", two = "." }}
[[prepare]]
sql = {LARGE.split("; ")}
[load]
command = "true"
{metrics}"""
    )
    environment = {name: value for name, value in os.environ.items() if name != "LEADLINE_RUN"} | {"LEADLINE_BOOK": str(tmp_path / "book")}
    words = [f"--layout={one}" for one in layouts]
    command = [sys.executable, "-m", "leadline", "study", "run", str(tmp_path / "s.toml"), "--server", server.dsn, *words, "--json"]
    return subprocess.run([*command, "--yes"], env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)


@pytest.mark.parametrize("major", [15, 18])
def test_the_layouts_of_a_named_server(tmp_path: Path, fresh_server: Callable[..., Server], major: int) -> None:
    server = fresh_server(major, allow_in_place_tablespaces=True)
    for name in ("fast", '"Slow ""2"""'):
        server.sql(f"create tablespace {name} location ''")
    was = server.sql("select datname from pg_database order by 1")
    done = on_server(tmp_path, server, "one=fast", """two=fast indexes='Slow "2"' large_objects='Slow "2"'""")
    assert done.returncode == 0, done.stderr + done.stdout
    rows = {row["metric"]: (row["layout=one"], row["layout=two"]) for row in json.loads(done.stdout)["study"]["rows"]}
    assert rows == {"table": (1, 1), "index": (1, 2), "large": (1, 2)}
    assert server.sql("select datname from pg_database order by 1") == was
    assert len(server.sql("select spcname from pg_tablespace")) == 4


def test_a_tablespace_that_a_named_server_has_not_is_refused_first(tmp_path: Path, servers: Callable[[int], Server]) -> None:
    for layouts, said in (
        (("one=pg_default", "two=nowhere"), "layout two puts tables where there is no tablespace"),
        (("one=pg_default", "two=tables=pg_default pg_default"), "two layouts are alike"),
        ((), "name the tablespaces of this server"),
    ):
        done = on_server(tmp_path, servers(18), *layouts)
        assert done.returncode == 2
        assert said in done.stdout
        assert list((tmp_path / "book").glob("**/journal.json")) == []
