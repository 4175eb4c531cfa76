"""Small files that options name, as they should not be: one error each, at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from leadline.errors import LeadlineError
from leadline.files.backup_key import backup_key
from leadline.files.pages.all_backups import _read as earlier_outcomes
from leadline.files.salvage.given import read as given_columns


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 40)


ODD: dict[str, Callable[[Path], object]] = {
    "a fifo": os.mkfifo,
    "a folder": Path.mkdir,
    "a link loop": lambda path: path.symlink_to(path.name),
    "a sparse file": sparse,
    "no text": lambda path: path.write_bytes(b"\xff\xfe\n"),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("read", [backup_key, earlier_outcomes, given_columns], ids=["--key-file", "--state", "--columns-of"])
def test_odd_files_are_one_error(read: Callable[[Path], object], odd: str, tmp_path: Path) -> None:
    ODD[odd](tmp_path / "file")
    with pytest.raises(LeadlineError) as refused:
        read(tmp_path / "file")
    assert str(refused.value.where) == str(tmp_path / "file")
