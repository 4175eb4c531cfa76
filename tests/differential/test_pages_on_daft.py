"""The tables of pages as data frames of Daft. Oracle: the same scan into a capture, in threads, whose Parquet files pyarrow reads.

Only with LEADLINE_LONG_TESTS=1, and where Daft is installed (pip install leadline[daft]).
"""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle, wait_until
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.tasks.receipts import RECEIPTS
from page_tasks import ROOT, example_with, tables_of_a_task_each
from recovery import only_in_long_runs

PAGES = ROOT / "testdata" / "postgres" / "9.6"
TABLES = ("page", "heap_tuple", "index_item", "page_file")
# Before the example: processes of Ray run its tasks, on this host.
ON_RAY = """
import daft
import ray
ray.init("local", num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
daft.set_runner_ray(noop_if_initialized=True)
"""
LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@pytest.fixture(scope="module", autouse=True)
def has_daft() -> None:
    if importlib.util.find_spec("daft") is None:
        no_oracle("no daft")


@pytest.fixture(scope="module")
def relations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tables_of_a_task_each(tmp_path_factory.mktemp("on-daft") / "5")


@pytest.fixture(scope="module")
def with_index(relations: Path) -> Path:
    """The same, an index and an empty table."""
    folder = relations.parent / "6"
    shutil.copytree(relations, folder)
    shutil.copy(PAGES / "btree_4_keys.page", folder / "17000")
    (folder / "17001").touch()
    return folder


@pytest.fixture(scope="module")
def whole(with_index: Path) -> Path:
    out = with_index.parent / "threads.leadline"
    assert run(["page", "scan", str(with_index), "-o", str(out)]) == 0
    return out


def sorted_rows(table: Any) -> list[dict[str, Any]]:
    return table.sort_by([(name, "ascending") for name in table.column_names]).to_pylist()  # type: ignore[no-any-return]


@only_in_long_runs
@pytest.mark.parametrize("table", TABLES)
def test_rows_are_those_of_a_capture(with_index: Path, whole: Path, table: str) -> None:
    from leadline.files.pages.on_daft import read_pages
    from pyarrow import parquet

    expected = parquet.read_table(whole / table)
    found = read_pages(with_index, table).to_arrow()
    assert [(f.name, str(f.type).removeprefix("large_")) for f in found.schema] == [(f.name, str(f.type)) for f in expected.schema]
    assert expected.num_rows > 3
    assert sorted_rows(found) == sorted_rows(expected)


@only_in_long_runs
def test_a_partition_is_a_task(with_index: Path, whole: Path) -> None:
    from leadline.files.pages.on_daft import read_pages

    tasks = (whole / RECEIPTS).read_text().splitlines()
    frame = read_pages(with_index, "page")
    frame.explain(show_all=True, file=(said := io.StringIO()))
    assert f"Num Scan Tasks = {len(tasks)}" in said.getvalue()
    assert len(list(frame.iter_partitions())) == len(tasks)


@only_in_long_runs
def test_daft_does_with_the_rows_what_it_is_asked(
    with_index: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns, conditions and limits are left to Daft. A limit ends tasks early; they leave nothing."""
    import daft
    from leadline.files.pages.on_daft import read_pages
    from pyarrow import parquet

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    frame = read_pages(with_index, "heap_tuple")
    expected = [row for row in parquet.read_table(whole / "heap_tuple").to_pylist() if row["lp"] == 2]
    assert frame.where(daft.col("lp") == 2).count_rows() == len(expected) > 0
    assert frame.where(daft.col("lp") == 2).select("t_xmin").limit(3).to_pydict() == {"t_xmin": [expected[0]["t_xmin"]] * 3}
    wait_until(lambda: not list(tmp_path.iterdir()), 60, "the directories of tasks are gone")


@only_in_long_runs
def test_a_task_goes_to_another_process(with_index: Path, whole: Path) -> None:
    """As Daft on Ray sends it."""
    from leadline.files.pages.on_daft import Pages, _Source
    from leadline.files.pages.tasks import tasks_of
    from pyarrow import parquet

    source = _Source("index_item", tasks_of(Pages([with_index])._plan), None)

    async def rows() -> list[dict[str, Any]]:
        tasks = [pickle.loads(pickle.dumps(task)) async for task in source.get_tasks(None)]
        return [row for task in tasks async for batch in task.read() for row in batch.to_arrow_table().to_pylist()]

    expected = parquet.read_table(whole / "index_item").to_pylist()
    assert asyncio.run(rows()) == expected


@only_in_long_runs
@pytest.mark.parametrize("how", ["vanished", "shrunk"])
def test_rows_that_would_be_missing_are_an_error(tmp_path: Path, how: str) -> None:
    from leadline.files.pages.on_daft import read_pages

    file = tmp_path / "16384"
    file.write_bytes((PAGES / "heap_4_rows.page").read_bytes() * 2)
    frame = read_pages(tmp_path, "page")
    assert frame.count_rows() == 2
    if how == "vanished":
        file.unlink()
    else:
        os.truncate(file, 8192)
    with pytest.raises(ValueError, match=r"files disappeared or became shorter since they were listed\n.*1 of them.*\n.*list them again"):
        frame.count_rows()


@only_in_long_runs
def test_what_is_not_there_is_said_at_once(with_index: Path, tmp_path: Path) -> None:
    from leadline.files.pages.on_daft import read_pages

    with pytest.raises(LeadlineError, match="no such file or folder"):
        read_pages(tmp_path / "none", "page")
    with pytest.raises(LeadlineError, match="a page scan has no table pages") as raised:
        read_pages(with_index, "pages")
    assert raised.value.hint == "its tables are page, heap_tuple, index_item, page_file"


@only_in_long_runs
@pytest.mark.parametrize("runner", ["native", "ray"])
def test_the_example_prints_what_the_guide_says(relations: Path, tmp_path: Path, runner: str) -> None:
    if runner == "ray" and importlib.util.find_spec("ray") is None:
        no_oracle("no ray")
    guide = (ROOT / "docs" / "guides" / "pages.md").read_text()
    example = example_with("import daft", {"/shared/main": str(relations)})
    printed = re.split("```\n", guide.partition("import daft\n")[2])[2]
    script = tmp_path / "example.py"
    script.write_text((ON_RAY if runner == "ray" else "") + example)
    environment = {**os.environ, **LOOPBACK, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True, timeout=250)
    assert [line.rstrip() for line in done.stdout.strip().splitlines()] == printed.strip().splitlines()
