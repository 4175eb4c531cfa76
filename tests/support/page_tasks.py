"""What the tests of `page scan` as tasks share: what a scan made, and a scan that waits to be killed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from leadline.files.tasks.receipts import RECEIPTS

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
