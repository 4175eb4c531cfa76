"""Small files that options name, as they should not be: one error each, at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from leadline.errors import LeadlineError
from leadline.files.backup_key import backup_key
from leadline.files.pages.all_backups import _read as earlier_outcomes
from leadline.files.salvage.given import read as given_columns
from odd_files import ODD


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("read", [backup_key, earlier_outcomes, given_columns], ids=["--key-file", "--state", "--columns-of"])
def test_odd_files_are_one_error(read: Callable[[Path], object], odd: str, tmp_path: Path) -> None:
    ODD[odd](tmp_path / "file")
    with pytest.raises(LeadlineError) as refused:
        read(tmp_path / "file")
    assert str(refused.value.where) == str(tmp_path / "file")
