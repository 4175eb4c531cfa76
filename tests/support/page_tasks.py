"""What the tests of `page scan` as tasks share: what a scan made, a scan that waits to be killed, tables of a task each, and the examples
of the guide."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from leadline.files.tasks.receipts import RECEIPTS

ROOT = Path(__file__).resolve().parents[2]
FILES = 6
# Says "kept" when the receipts of the first tasks are, as many as its first argument says, and does nothing more. Others may have written
# their parts, without a receipt.
WAITING = """
import sys
from leadline.cli import run
from leadline.files.pages import scan
made, kept = scan.engine_of, int(sys.argv[1])
def engine_of(*about):
    engine = made(*about)
    def waiting(tasks, work):
        for number, receipt in enumerate(engine(tasks, work), 1):
            yield receipt
            if number == kept:
                print("kept", flush=True)
                sys.stdin.read()
    return waiting
scan.engine_of = engine_of
run(sys.argv[2:])
"""


def made(out: Path, tables: Iterable[str]) -> dict[str, bytes]:
    """The files of tables, and the receipts of all tasks, which have the sum of each."""
    files = [file for table in tables for file in (out / table).iterdir()]
    return {str(file.relative_to(out)): file.read_bytes() for file in (*files, out / RECEIPTS)}


def tables_of_a_task_each(folder: Path) -> Path:
    """FILES tables of 50 MB: two do not fit into one task."""
    folder.mkdir()
    page = (ROOT / "testdata" / "postgres" / "9.6" / "heap_4_rows.page").read_bytes()
    for number in range(FILES):
        (folder / str(16384 + number)).write_bytes(page * (6400 + number))
    return folder


def example_with(word: str, places: dict[str, str], guide: str = "pages.md") -> str:
    """The example of a guide that has this word, with other places."""
    guide = (ROOT / "docs" / "guides" / guide).read_text()
    [example] = [code for block in guide.split("```python\n")[1:] if word in (code := block.partition("```")[0])]
    for place, other in places.items():
        assert place in example
        example = example.replace(place, other)
    return example
