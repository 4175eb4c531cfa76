"""The Python interface: `leadline.take`, `leadline.open` and what an opened capture can be asked. Guide: docs/guides/python.md.

leadline/__init__.py hands these names on and imports this file when one of them is first used.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from leadline.capture import reader
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.findings import Finding, evaluate
from leadline.probes.take import take
from leadline.tables import Table, all_tables

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["Capture", "Findings", "Query", "open_capture", "take"]


def open_capture(path: str | Path) -> Capture:
    """Opens a capture for reading: a directory NAME.leadline. One whose recorder was killed opens too, with what it has.

    Raises LeadlineError when the directory is no capture, or one of a newer leadline.
    """
    return Capture(path)


class Capture:
    """One capture, opened for reading. Close it, or use it in a `with` block. Reading never changes the capture."""

    def __init__(self, path: str | Path) -> None:
        self._capture = reader.open_capture(path, whole=True)
        self.path = self._capture.path

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._capture.close()

    @property
    def tables(self) -> dict[str, Table]:
        """The tables and views that this capture has evidence for, by name, with the unit and the meaning of each column."""
        return {name: table for name, table in all_tables().items() if self._capture.unavailable(name) is None}

    def sql(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Query:
        """A query over the tables, in DuckDB's SQL. parameters: values of ? or $name in it.

        It runs each time its rows are asked for: `.rows()`, `.arrow()`, `.pandas()` or `.polars()`.
        """
        return Query(self._capture, query, parameters)

    def findings(self, only: Collection[str] | None = None, thresholds: Mapping[str, float] | None = None) -> Findings:
        """What is wrong, most costly first. only: ids of rules. thresholds: NAME or ID.NAME and another number."""
        evaluation = evaluate(self._capture, only, thresholds)
        return Findings(evaluation.findings, evaluation.not_evaluated, evaluation.clean)

    def report(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Writes the report, one HTML file that opens offline. overwrite: replace a file that is there."""
        from leadline.views.report import write_report

        return write_report(self.path, path, overwrite=overwrite)


class Findings(list[Finding]):
    """A list of findings that also says what was not looked at. not_evaluated: (id of the rule, reason). clean: ids of rules that
    found nothing."""

    def __init__(self, found: Sequence[Finding], not_evaluated: Sequence[tuple[str, str]], clean: Sequence[str]) -> None:
        super().__init__(found)
        self.not_evaluated, self.clean = list(not_evaluated), list(clean)


class Query:
    """A query over a capture. Each method runs it. Raises LeadlineError('query') when it does not run."""

    def __init__(self, capture: reader.Capture, text: str, parameters: Sequence[Any] | Mapping[str, Any] | None) -> None:
        self._capture, self._text, self._parameters = capture, text, parameters

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries. Needs no other package."""
        with _told():
            relation = self._relation()
            return [dict(zip(relation.columns, row)) for row in relation.fetchall()]

    def arrow(self) -> pyarrow.Table:
        """The rows as a pyarrow.Table."""
        _need("pyarrow", for_what="Arrow")
        with _told():
            return self._relation().to_arrow_table()

    def pandas(self) -> pandas.DataFrame:
        """The rows as a pandas.DataFrame."""
        _need("pandas", for_what="pandas")
        with _told():
            return self._relation().df()

    def polars(self) -> polars.DataFrame:
        """The rows as a polars.DataFrame."""
        _need("polars", "pyarrow", for_what="polars")
        import polars

        frame = polars.from_arrow(self.arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def _relation(self) -> duckdb.DuckDBPyRelation:
        relation = self._capture.db.sql(self._text, params=self._parameters)
        if relation is None:
            raise LeadlineError("query", "the query returns no rows", hint="start the query with select, with, from or describe")
        return relation


@contextmanager
def _told() -> Iterator[None]:
    """What DuckDB says of a query that does not run, as an error of ours."""
    try:
        yield
    except duckdb.Error as e:
        first = str(e).strip().splitlines()[0]
        hint = "run leadline tables NAME to list the columns of a table"
        raise LeadlineError("query", "the query failed", detail=first, hint=hint) from e


def _need(*packages: str, for_what: str) -> None:
    """Raises LeadlineError('unsupported') with the command that installs what is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise LeadlineError(
            "unsupported",
            f"{' and '.join(missing)} {verb} not installed",
            detail=f"rows as {for_what} need it; .rows() gives them as dictionaries",
            hint=f"pip install {' '.join(missing)}",
        )
