"""Lays out what the .deb and the .rpm install, of the wheel in dist/ and those that it needs: python packaging/stage.py 3.11 3.12

One tree serves several versions of Python: their compiled modules have the version in their names and lie side by side. It is laid out as a
virtual environment, so that processes which leadline starts find it too, and asks for nothing but the Python of the host.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGING = Path(__file__).parent
DIST = PACKAGING.parent / "dist"
PREFIX = Path("/usr/lib/leadline")
UNIT_OF_HOST = "leadline-record-host.service"
GLIBC = ("2_28", "2_27", "2_26", "2_17")  # those of the wheel, and older ones: pip does not go down by itself


def main(versions: list[str]) -> None:
    (wheel,) = DIST.glob("*.whl")
    root = DIST / "root"
    shutil.rmtree(root, ignore_errors=True)
    prefix = root / PREFIX.relative_to("/")
    modules = prefix / "site-packages"
    modules.mkdir(parents=True)
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            install(wheel, version, Path(folder))
            merge(Path(folder), modules)
    lay_out(prefix, versions)
    doc = root / "usr/share/doc/leadline"
    doc.mkdir(parents=True)
    shutil.copy(PACKAGING.parent / "LICENSE", doc / "copyright")
    write(root / "usr/lib/sysusers.d/leadline.conf", 'u leadline - "leadline recorder" /var/lib/leadline\n')
    write(root / "usr/lib/systemd/system" / UNIT_OF_HOST, unit_of_host(modules))


def install(wheel: Path, version: str, folder: Path) -> None:
    """What the wheel needs in one version of Python, which need not be here."""
    platforms = [f"--platform=manylinux_{glibc}_x86_64" for glibc in GLIBC]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:", f"--target={folder}"]
    subprocess.run([*command, f"--python-version={version}", "--implementation=cp", *platforms, wheel], check=True)
    shutil.rmtree(folder / "bin")  # commands of the libraries


def merge(folder: Path, modules: Path) -> None:
    """Of one name there is one content: only what a wheel says of itself differs."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        to = modules / file.relative_to(folder)
        about = file.relative_to(folder).parts[0].endswith(".dist-info")
        if to.exists() and not about and not filecmp.cmp(file, to, shallow=False):
            sys.exit(f"error: {file.relative_to(folder)} differs between versions of Python")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)
        to.chmod(0o644)


def lay_out(prefix: Path, versions: list[str]) -> None:
    """What makes a virtual environment for whichever of these versions is there."""
    write(prefix / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    for version in versions:
        library = prefix / f"lib/python{version}"
        library.mkdir(parents=True)
        (library / "site-packages").symlink_to("../../site-packages")
        link(prefix / f"bin/python{version}", f"/usr/bin/python{version}")
    for name in ("python", "leadline"):
        shutil.copy(PACKAGING / "scripts" / name, prefix / "bin" / name)
        (prefix / "bin" / name).chmod(0o755)
    link(prefix.parents[1] / "bin/leadline", "../lib/leadline/bin/leadline")


def unit_of_host(modules: Path) -> str:
    """As `record --unit` prints it, for the user of the package. It is not started: one of a server comes from `record --install`."""
    sys.path.insert(0, str(modules))
    sys.dont_write_bytecode = True  # into the tree
    from leadline.recorder.unit import Wanted, unit

    directory = Path("/var/lib/leadline/host")
    command = ["/usr/bin/leadline", "record", "--host", f"--to={directory}"]
    text = unit(Wanted(command, "the host", "leadline", directory, over_network=False, of_server=False))
    return f"# systemctl enable --now {UNIT_OF_HOST}\n" + text.partition("\n")[2]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path: Path, to: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


if __name__ == "__main__":
    main(sys.argv[1:])
