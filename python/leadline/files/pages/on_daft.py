"""The tables of a page scan as lazy DataFrames of Daft: a partition is a task, which Daft runs when its rows are asked for.

A task writes its parts into a temporary directory of the process that runs it, and reads them from there: nodes share the files that are
read, and nothing else. Importing this raises LeadlineError where Daft is not installed.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from leadline._core.pages import PagePlan
from leadline.errors import LeadlineError
from leadline.files import store
from leadline.files.pages.scan import FILES
from leadline.files.pages.tasks import TABLES, run_task, tasks_of
from leadline.files.tasks import ASIDE, Receipt, Task
from leadline.tables import all_tables

try:
    import daft
    import pyarrow
    from daft.io.source import DataSource, DataSourceTask
    from daft.recordbatch import RecordBatch
    from daft.schema import Schema
    from pyarrow import parquet
except ImportError as e:
    raise LeadlineError("unsupported", "Daft is not installed", detail=str(e), hint="pip install leadline[daft], on all nodes") from e


def read_pages(path: str | Path, table: str, *, block_size: int | None = None, key: str | None = None) -> daft.DataFrame:
    """One table of the pages of a file, folder, data directory or backup: `page`, `heap_tuple`, `index_item` or `page_file`, with the
    columns that `leadline tables` tells.

    The files are listed now, and read when Daft needs their rows, anew each time. To join tables, use Pages, which lists them once.
    block_size: of pages, where nothing tells it; key: that of encrypted backups, which goes to all nodes.
    Raises LeadlineError: `usage` of another table, `not_found` and what else listing the files raises. What goes wrong later, Daft raises
    as an error of its own with the text of ours: also where a file has disappeared or become shorter, since its rows would be missing.
    """
    return Pages([path], block_size=block_size, key=key).read(table)


class Pages:
    """Files with pages, as they are listed now: `file_id` is the same in all tables. Arguments and errors: see read_pages."""

    def __init__(self, paths: Iterable[str | Path], *, block_size: int | None = None, key: str | None = None) -> None:
        found = [Path(path) for path in paths]
        store.reachable(found)
        self._plan = PagePlan([str(path.absolute()) for path in found], block_size=block_size, key=key)
        self._key = key

    def read(self, table: str) -> daft.DataFrame:
        """A row for each page, line pointer, index item or file."""
        if table == FILES:
            return daft.from_arrow(_files(self._plan))
        if table not in TABLES:
            raise LeadlineError("usage", f"a page scan has no table {table}", hint=f"its tables are {', '.join((*TABLES, FILES))}")
        return _Source(table, tasks_of(self._plan), self._key).read()


def _files(plan: PagePlan) -> pyarrow.Table:
    with tempfile.TemporaryDirectory(prefix="leadline-") as folder:
        plan.write_files(folder)
        return parquet.read_table(Path(folder, FILES))


def _schema(table: str) -> Schema:
    columns = [(column.name, pyarrow.type_for_alias(column.type)) for column in all_tables()[table].columns]
    return Schema.from_pyarrow_schema(pyarrow.schema(columns))


class _Source(DataSource):
    def __init__(self, table: str, tasks: list[Task], key: str | None) -> None:
        self._table, self._tasks, self._key, self._schema = table, tasks, key, _schema(table)

    @property
    def name(self) -> str:
        return f"leadline {self._table}"

    @property
    def schema(self) -> Schema:
        return self._schema

    async def get_tasks(self, pushdowns: Any) -> AsyncIterator[DataSourceTask]:
        for task in self._tasks:
            yield _SourceTask(self._table, task, self._key, self._schema)


class _SourceTask(DataSourceTask):
    def __init__(self, table: str, task: Task, key: str | None, schema: Schema) -> None:
        self._table, self._task, self._key, self._schema = table, task, key, schema

    @property
    def schema(self) -> Schema:
        return self._schema

    async def read(self) -> AsyncIterator[RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="leadline-") as folder:
            Path(folder, ASIDE).mkdir()
            # In a thread: Daft has one event loop for all tasks of a process.
            receipt = await asyncio.to_thread(self._run, folder)
            for part in receipt["parts"]:
                if part["file"].startswith(f"{self._table}/"):
                    for batch in parquet.ParquetFile(Path(folder, part["file"])).iter_batches():
                        yield RecordBatch.from_arrow_record_batches([batch], batch.schema)

    def _run(self, folder: str) -> Receipt:
        """Raises RuntimeError with all that there is to say, as Daft prints only the type and the message of an error."""
        try:
            receipt = run_task(self._task, folder, key=self._key)
            if lost := receipt["summary"]["vanished"] + receipt["summary"]["shrunk"]:
                message, detail = "files disappeared or became shorter since they were listed", f"{lost} of them, in one task"
                raise LeadlineError("gone", message, detail=detail, hint="list them again")
        except LeadlineError as e:
            raise RuntimeError(e.as_text()) from e
        return receipt
