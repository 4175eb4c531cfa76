"""flame of a trace whose stacks are known: folded, as a table, as a picture."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import closing
from pathlib import Path

import pytest
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.views.flame import folded, functions
from leadline.views.flame_svg import flame_svg
from trace_synthetic import OTHER, PID, trace_of_semget

SEMGET = "dw.work;main;libtrace.so+0x1b07;libtrace.so+0x1af3;semget;do_syscall_64_[k];ipcget_[k];rwsem_down_write_slowpath_[k]"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace_of_semget(tmp_path_factory.mktemp("trace") / "semget.leadline")


def leadline(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "leadline", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("on-cpu", ["dw.work;0x7f0000001234;work 2000000000"]),
        (
            "off-cpu",
            [
                "dw.work;0x7f0000001234;work;tcp_recvmsg_[k];sk_wait_data_[k];wait_woken_[k] 1000000000",
                f"{SEMGET} 900000000",
            ],
        ),
        (
            "waker",
            [
                "dw.work;0x7f0000001234;work;tcp_recvmsg_[k];sk_wait_data_[k];wait_woken_[k];woken by an interrupt 1000000000",
                f"{SEMGET};woken by dw.other 900000000",
            ],
        ),
        (
            "failed",
            [
                "dw.work;[cut];libtrace.so+0x1c00;semget;do_syscall_64_[k];ipcget_[k];rwsem_down_write_slowpath_[k];semget ENOENT 1",
                f"{SEMGET};semget ENOENT 16",
            ],
        ),
    ],
)
def test_folded_stacks(trace: Path, kind: str, lines: list[str]) -> None:
    done = leadline("flame", trace, f"--{kind}", "--folded")
    assert (done.returncode, done.stdout.splitlines()) == (0, lines)


def test_functions_by_themselves_and_with_what_they_called(trace: Path) -> None:
    found = json.loads(leadline("flame", trace, "--off-cpu", "--json").stdout)
    assert (found["unit"], found["sum"]) == ("ns", 1_900_000_000)
    by_name = {f["name"]: (f["itself"], f["total"]) for f in found["functions"]}
    assert by_name["rwsem_down_write_slowpath_[k]"] == (900_000_000, 900_000_000)
    assert by_name["main"] == (0, 900_000_000) and by_name["wait_woken_[k]"] == (1_000_000_000, 1_000_000_000)
    table = leadline("flame", trace, "--off-cpu").stdout
    assert table.startswith("Asleep in system calls: 1.900 s\n") and re.search(r"wait_woken_\[k\] +1\.0 +52\.6%", table)


def test_a_function_that_calls_itself_counts_once_in_its_total() -> None:
    [found] = [f for f in functions({("sh", "a", "b", "a"): 5, ("sh", "a"): 2}) if f.name == "a"]
    assert (found.itself, found.total) == (7, 7)


def test_the_picture_has_a_box_for_each_function_as_wide_as_its_share(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "sleep.svg"
    done = leadline("flame", trace, "--off-cpu", "-o", out)
    assert (done.returncode, done.stdout) == (0, f"{out}\n")
    text = out.read_text()
    root = ET.fromstring(text)
    boxes = {g.get("data-n"): g for g in root.iter(f"{SVG}g") if g.get("data-n")}
    assert float(boxes["all"].get("data-w", 0)) == 1
    assert float(boxes["main"].get("data-w", 0)) == pytest.approx(9 / 19, abs=1e-6)
    assert boxes["semget"].find(f"{SVG}title").text == "semget: 0.900 s, 47.4%"  # type: ignore[union-attr]
    # Nothing is fetched from elsewhere.
    assert not re.search(r"(?:href|src)=|https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)
    again = leadline("flame", trace, "-o", out)
    assert again.returncode == 2 and "already exists" in again.stderr


def test_names_from_a_process_cannot_become_markup() -> None:
    root = ET.fromstring(flame_svg({("<script>", 'a"b', "]]>"): 3}, "<t>", "&", "ns"))
    assert {g.get("data-n") for g in root.iter(f"{SVG}g")} >= {"<script>", 'a"b', "]]>"}


def test_what_is_not_there_is_told(trace: Path) -> None:
    with closing(open_capture(trace)) as capture:
        assert folded(capture, "on-cpu", PID)
        with pytest.raises(LeadlineError, match=f"no on-cpu stacks of process {OTHER}"):
            folded(capture, "on-cpu", OTHER)
