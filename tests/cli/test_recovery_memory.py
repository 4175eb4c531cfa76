"""How much memory `recover` takes unless told otherwise."""

from __future__ import annotations

from pathlib import Path

from leadline.files.recovery import _group_limits


def limits(tmp_path: Path, groups: str, files: dict[str, str]) -> list[int]:
    for name, content in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    own = tmp_path / "own"
    own.write_text(groups)
    return list(_group_limits(own, tmp_path / "cgroup"))


def test_limits_of_control_groups_from_the_innermost_up(tmp_path: Path) -> None:
    files = {"memory.max": "max\n", "a/memory.max": "2000\n", "a/b/memory.max": "1000\n", "c/memory.max": "5\n"}
    assert limits(tmp_path, "0::/a/b\n", files) == [1000, 2000]


def test_limits_of_version_1(tmp_path: Path) -> None:
    files = {"memory/a/memory.limit_in_bytes": "1000\n", "memory/memory.limit_in_bytes": "9223372036854771712\n", "cpu/a/memory.max": "5\n"}
    assert limits(tmp_path, "4:cpu:/a\n3:memory:/a\n0::/\n", files) == [1000, 9223372036854771712]
