"""Tables of which only files are left: with columns that are given, or guessed from the bytes.

DATABASE/guessed/NUMBER.csv     rows whose columns are guessed, each named by its place and type: restore.sql does not load them
DATABASE/guessed/load.sql       makes tables of these columns in a schema of their own, and loads them
"""

from __future__ import annotations

from pathlib import Path

from leadline._core.rows import RowScan, ValueTexts
from leadline.errors import LeadlineError
from leadline.files import row_losses
from leadline.files.salvage import data, given
from leadline.files.salvage.catalog import quoted
from leadline.files.salvage.data import Table, Wanted
from leadline.files.salvage.given import GivenTable
from leadline.files.salvage.guess import guess
from leadline.files.salvage.heap_files import HeapFile
from leadline.files.salvage.matching import toast_files
from leadline.files.salvage.shapes import fits
from leadline.files.salvage.written import Lost

GUESSED = "guessed"


def place(files: list[HeapFile], tables: list[GivenTable]) -> tuple[dict[int, GivenTable], list[Lost]]:
    """Which file has which of the given tables, and the tables that were not found, with the reason."""
    texts = ValueTexts.built_in()
    layouts = [given.layout(table.columns) for table in tables]
    by_number = {file.number: file for file in files}
    taken = {table.number for table in tables}

    def may_be(file: HeapFile, number: int) -> bool:
        return file.natts <= len(layouts[number]) and fits(file.sample, layouts[number], texts.text)

    def alone(file: HeapFile) -> list[int]:
        """The tables without a number that it may be."""
        fitting = (i for i, table in enumerate(tables) if table.number is None and file.natts == len(table.columns))
        return [i for i in fitting if may_be(file, i)]

    free = {file.number: alone(file) for file in files}
    found, lost = dict[int, GivenTable](), list[Lost]()
    for i, table in enumerate(tables):
        name = f"table {table.schema}.{table.name}"
        if table.number is not None:
            if table.number not in by_number:
                lost.append(Lost(name, f"there is no file {table.number} with rows"))
            elif not may_be(by_number[table.number], i):
                lost.append(Lost(name, f"the rows of file {table.number} are not of these columns"))
            else:
                found[table.number] = table
            continue
        fitting = [number for number, which in free.items() if i in which and number not in taken]
        if len(fitting) == 1 and free[fitting[0]] == [i]:
            found[fitting[0]] = table
        else:
            which = " or ".join(map(str, fitting))
            shared = "its columns fit those of other tables, too; " if len(fitting) == 1 else ""
            lost.append(Lost(name, f"{shared}it may be file {which}: give its number" if which else "no file has rows of these columns"))
    return found, lost


def save_given(
    file: HeapFile, table: GivenTable, toasts: dict[int, HeapFile], folder: Path, wanted: Wanted
) -> tuple[Table, str, list[str]]:
    """What became of the table, the SQL that makes it, and the lines that load it."""
    columns = [(column.name, column.type_oid, column.typmod) for column in table.columns]
    toast = toast_files(file, given.layout(table.columns), toasts)

    def source(*, dead: bool = False) -> RowScan:
        return RowScan.of_given(str(file.path), f"{table.schema}.{table.name}", columns, toast=toast, dead=dead, as_of=wanted.as_of)

    found = Table(f"{table.schema}.{table.name}")
    by = "columns given, with the number of its file" if table.number is not None else "columns given; only this file has rows of them"
    found.source = {"file": file.place, "by": by, "sure": f"{len(file.sample)} rows looked at fit its columns"}
    target = f"{quoted(table.schema)}.{quoted(table.name)}"
    body = ", ".join(f"{quoted(column.name)} {column.as_sql}" for column in table.columns)
    create = f"create schema if not exists {quoted(table.schema)};\ncreate table {target} ({body});"
    if not data.write(found, source, folder, data.file_name(table.schema, table.name, file.number), wanted, None):
        return found, create, []
    names = ", ".join(quoted(column.name) for column in table.columns)
    return found, create, [data.load_line(f"{target} ({names})", found.file)]


def save_guessed(files: list[tuple[HeapFile, list[str]]], toasts: dict[int, HeapFile], folder: Path, wanted: Wanted) -> list[Table]:
    """Writes the rows of files, each with the tables that it may be of, by columns that their bytes suggest."""
    texts = ValueTexts.built_in()
    found, lines = list[Table](), list[str]()
    for file, may_be in files:
        made = Table(f"{GUESSED}.{file.number}", source={"file": file.place, "by": None, "sure": "", "may_be": may_be})
        found.append(made)
        if may_be:
            made.losses.append(f"it may be {' or '.join(may_be)}: choose with --match {file.number}=TABLE")
        columns = guess(file.sample, texts.text)
        if columns is None:
            made.losses.append("no columns were found that fit its rows")
            continue
        named = [(f"c{i}_{column.name}", column.type_oid, -1) for i, column in enumerate(columns.columns, 1)]
        sure = f"{columns.others} other ways to lay columns fit them, too" if columns.others else "no other way to lay columns was found"
        made.source |= {  # type: ignore[operator]
            "by": "columns guessed", "sure": f"{columns.looked_at} rows looked at fit these columns; {sure}",
            "columns": [{"name": name, "also": column.also} for (name, _, _), column in zip(named, columns.columns)],
        }  # fmt: skip
        made.losses.append(f"columns guessed: {', '.join(name for name, _, _ in named)}")
        path = folder / GUESSED / f"{file.number}.csv"
        path.parent.mkdir(exist_ok=True)
        try:
            scan = RowScan.of_given(str(file.path), made.table, named, toast=toast_files(file, columns.layout, toasts), as_of=wanted.as_of)
            made.rows, _ = scan.export(str(path), wanted.threads, None, "sure")
        except LeadlineError as e:
            made.losses.append(e.message)
            continue
        made.file = f"{GUESSED}/{path.name}"
        made.losses += row_losses.losses(scan.status())
        body = ", ".join(f"{quoted(name)} {column.name}" for (name, _, _), column in zip(named, columns.columns))
        target = f'{GUESSED}."{file.number}"'
        lines += [f"create table {target} ({body});", f"\\copy {target} from '{path.name}' with (format csv, header)"]
    if lines:
        (folder / GUESSED / "load.sql").write_text("\n".join([f"create schema {GUESSED};", *lines, ""]), encoding="utf-8")
    return found
