"""The rows of a table as Arrow: in batches, or as a file or stream of Arrow's IPC formats.

By way of a Parquet file in the temporary directory, as the type of a column is known when all its values are: one with a value that its
type cannot hold is text. Of this file, a row group is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from leadline.errors import LeadlineError, cannot_be_written

if TYPE_CHECKING:
    import pyarrow

    from leadline._core.rows import RowScan

# By the names of files, as Arrow recommends them: the IPC file format, and the streaming format.
FORMS = {".arrow": "new_file", ".arrows": "new_stream"}
# Rows of a batch, and about how many bytes they are. A dictionary of texts has up to 2^20 bytes in our files, and a column less than 2^31
# in a batch, so 2,000 rows fit whatever texts they repeat.
BATCH, ROOM = 2_000, 64 << 20
Progress = Callable[[int, int], None]


class Exported(NamedTuple):
    """rows: how many; as_text: columns that are text since their type cannot hold all values; schema and batches: the rows."""

    rows: int
    as_text: list[str]
    schema: pyarrow.Schema
    batches: Iterator[pyarrow.RecordBatch]


def arrow_rows(scan: RowScan, threads: int = 1) -> pyarrow.RecordBatchReader:
    """The rows of a scan as a pyarrow.RecordBatchReader, which pyarrow, polars, DuckDB and pandas take in.

    It has a column for each of `scan.describe()["columns"]`, of the type that `leadline rows -o FILE.parquet` gives it, behind those of
    `scan.provenance()`; and batches of up to 2,000 rows. Read it once, to its end or until it is closed. The table is read
    when this is called: what could not be read is then in `scan.status()`.
    Raises LeadlineError: `unsupported` without pyarrow, and what RowScan raises.
    """
    need_arrow()
    import pyarrow

    around = exported(scan, threads)
    made = around.__enter__()

    def batches() -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from made.batches
        finally:
            around.__exit__(None, None, None)

    return pyarrow.RecordBatchReader.from_batches(made.schema, batches())


def export_arrow(scan: RowScan, output: Path, threads: int, progress: Progress | None) -> tuple[int, list[str]]:
    """Writes rows into a file named as one of FORMS; how many, and columns that are text since not all values fit their type."""
    temporary = output.with_name(output.name + ".tmp")
    try:
        with exported(scan, threads, progress, output.parent) as made, temporary.open("wb") as file:
            write_arrow(file, made, output.suffix.lower())
        temporary.replace(output)
    except OSError as e:
        raise cannot_be_written("the rows", e, output) from e
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return made.rows, made.as_text


def write_arrow(out: IO[bytes], made: Exported, form: str) -> None:
    """form: of FORMS."""
    from pyarrow import ipc

    with getattr(ipc, FORMS[form])(out, made.schema) as writer:
        for batch in made.batches:
            writer.write_batch(batch)


@contextmanager
def exported(scan: RowScan, threads: int, progress: Progress | None = None, beside: Path | None = None) -> Iterator[Exported]:
    """The rows of a scan. beside: where there is room for a file with all of them, which is gone afterwards."""
    need_arrow()
    import tempfile

    from pyarrow import parquet

    with tempfile.TemporaryDirectory(prefix="leadline-", dir=beside) as directory:
        path = Path(directory, "rows.parquet")
        rows, as_text = scan.export(str(path), threads, progress)
        with parquet.ParquetFile(path) as file:
            yield Exported(rows, as_text, file.schema_arrow, _batches(file))


def _batches(file: pyarrow.parquet.ParquetFile) -> Iterator[pyarrow.RecordBatch]:
    """Group by group, as rows of many groups could be as large as the table; and not all of a group whose texts were compressed well."""
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = ROOM * group.num_rows // max(group.total_byte_size, 1)
        yield from file.iter_batches(min(max(rows, 1), BATCH), row_groups=[number])


def need_arrow() -> None:
    """Raises LeadlineError with the command that installs what is missing."""
    if find_spec("pyarrow") is None:
        raise LeadlineError("unsupported", "Arrow needs the package pyarrow", hint="pip install 'leadline[arrow]'")
