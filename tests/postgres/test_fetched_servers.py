"""The fetcher of test servers: pinned, checked, unpacked inside its folder, fetched once."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import servers
from leadline.engines.postgres.server.user import server_user
from servers import MAJORS, MAVEN, NPM, Unavailable


def tar_of(**members: tarfile.TarInfo) -> tarfile.TarFile:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for member in members.values():
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    packed.seek(0)
    return tarfile.open(fileobj=packed)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 0 if link else 3
    return info


def test_every_major_is_pinned_with_a_checksum() -> None:
    for pins in (NPM, MAVEN):
        assert sorted(pins) == list(MAJORS)
        for major, (version, checksum) in pins.items():
            assert version.startswith(f"{major}.")
            assert checksum.startswith(("sha512-", "sha256-"))


def test_another_archive_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    archive.write_bytes(b"abc")
    servers.check(archive, "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=")
    archive.write_bytes(b"abd")
    with pytest.raises(Unavailable, match="pinned is"):
        servers.check(archive, "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=")


@pytest.mark.parametrize(
    "bad", [member("../out"), member("/tmp/out"), member("in", tarfile.SYMTYPE, "../../out"), member("dev", tarfile.CHRTYPE)]
)
def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with tar_of(bad=bad) as tar, pytest.raises(Unavailable, match="does not belong"):
        servers.extract(tar, tmp_path / "root")
    assert not (tmp_path / "out").exists()


def test_links_inside_the_archive_are_kept(tmp_path: Path) -> None:
    with tar_of(file=member("lib/a.so.1"), link=member("lib/a.so", tarfile.SYMTYPE, "a.so.1")) as tar:
        servers.extract(tar, tmp_path)
    assert (tmp_path / "lib" / "a.so").read_bytes() == b"xxx"


def test_links_an_npm_archive_cannot_hold_are_restored(tmp_path: Path) -> None:
    native = tmp_path / "native"
    (native / "lib").mkdir(parents=True)
    (native / "lib" / "a.so.1").write_text("library")
    entries = [{"source": "native/lib/a.so.1", "target": "native/lib/a.so"}]
    (native / "pg-symlinks.json").write_text(json.dumps(entries))
    servers.restore_symlinks(native)
    assert (native / "lib" / "a.so").readlink() == Path("a.so.1")
    assert (native / "lib" / "a.so").read_text() == "library"


def test_without_a_package_client_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.shutil, "which", lambda name: None)
    monkeypatch.setattr(servers, "host_dirs", lambda: [])
    with pytest.raises(Unavailable, match="npm is not installed; mvn is not installed; not installed on this host"):
        servers.server(14, tmp_path)


def test_what_was_fetched_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / f"npm-{NPM[14][0]}" / "bin"
    target.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (target / name).touch()
    monkeypatch.setattr(servers.shutil, "which", lambda name: pytest.fail("it was fetched again"))
    found = servers.server(14, tmp_path)
    assert (found.bin_dir, found.version) == (str(target), "14.23")
    assert NPM[14][0] in found.package


def test_the_cache_is_open_to_the_user_of_the_servers() -> None:
    cache = servers.cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    assert server_user().can_execute(cache)
