"""What differs between two data directories, by page."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc import crc32c
from leadline.files.copies import differences


def cluster(folder: Path, block_size: int, content: bytes) -> Path:
    control = bytearray(8192)
    for at, value in ((8, 1800), (216, block_size), (220, 131072), (224, 8192)):
        struct.pack_into("<I", control, at, value)
    struct.pack_into("<I", control, 292, crc32c(control[:292]))
    for name, data in (("global/pg_control", control), ("base/5/16384", content)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(data)
    (folder / "PG_VERSION").write_text("18\n")
    return folder


@pytest.mark.parametrize("block_size", [8192, 16384, 32768])
def test_pages_are_as_large_as_the_server_has_them(block_size: int, tmp_path: Path) -> None:
    pages = [bytes([number]) * block_size for number in range(5)]
    one = cluster(tmp_path / "one", block_size, b"".join(pages))
    pages[1] = pages[3] = bytes(block_size)
    other = cluster(tmp_path / "other", block_size, b"".join(pages))
    size = 5 * block_size
    assert differences(one, other) == [f"base/5/16384: {size} and {size} bytes, pages 1, 3"]


@pytest.mark.parametrize(("pages", "told"), [(8, "0, 1, 2, 3, 4, 5, 6, 7"), (9, "0, 1, 2, 3, 4, 5, 6, 7 and more")])
def test_pages_that_are_not_listed_are_not_passed_over(pages: int, told: str, tmp_path: Path) -> None:
    one, other = (cluster(tmp_path / name, 8192, fill * 8192 * pages) for name, fill in (("one", b"a"), ("other", b"b")))
    assert differences(one, other) == [f"base/5/16384: {8192 * pages} and {8192 * pages} bytes, pages {told}"]
