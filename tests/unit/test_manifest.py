"""The manifest: written and read back whole; older formats open with the same findings; newer and damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from leadline.capture.manifest import FORMAT_VERSION, Clock, Manifest, ProbeState, Target, read_manifest, write_manifest
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate

KEPT = Path(__file__).resolve().parents[2] / "testdata" / "capture"


def made() -> Manifest:
    manifest = Manifest(Target("host", "db1", cpu_count=2, detail={"x": [1, None]}), status="complete", clock=Clock(1, 2, 3))
    manifest.probes["host"] = ProbeState("partial", "no taskstats", "run as root", "procfs", 1.0, {"ticks_missed": 2})
    manifest.note("one", "two", "one")
    manifest.cost.of_window(0.5, 10)
    return manifest


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, made())
    read = read_manifest(tmp_path)
    assert read == made()
    assert read.notes == ["one", "two"] and read.cost.cpu_percent_of_core == 5.0
    assert read.probe("host").looked and not read.probe("sessions").looked
    assert read.probe("sessions").why == "probe sessions was not run"


def test_a_manifest_that_is_refreshed_deletes_no_file(tmp_path: Path) -> None:
    manifest, path, other = made(), tmp_path / "manifest.json", tmp_path / "manifest.json.tmp"
    manifest.status = "recording"
    files = []
    for probe in ("a", "b", "c"):
        manifest.probes[probe] = ProbeState()
        write_manifest(tmp_path, manifest)
        assert read_manifest(tmp_path) == manifest
        files.append(path.stat().st_ino)
    assert files[0] == files[2] != files[1] and other.exists()
    manifest.status = "complete"
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest and not other.exists(), "the end leaves one file"


def test_keys_of_a_later_minor_format_are_passed_over(tmp_path: Path) -> None:
    content = made().as_dict() | {"novelty": 1}
    content["target"]["novelty"] = content["probes"]["host"]["novelty"] = 2
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    assert read_manifest(tmp_path) == made()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{", "invalid"),
        ("[]", "invalid"),
        ("{}", "invalid"),
        ('{"format_version": "2"}', "unsupported"),
        (f'{{"format_version": {FORMAT_VERSION + 1}}}', "unsupported"),
        ('{"format_version": 2, "target": 5}', "invalid"),
        ('{"format_version": 2, "probes": ["a"]}', "invalid"),
        ('{"format_version": 1, "target": "x"}', "invalid"),
    ],
)
def test_a_damaged_or_newer_manifest_is_one_error(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(LeadlineError) as raised:
        read_manifest(tmp_path)
    assert raised.value.kind == kind


def test_a_capture_of_format_1_opens_with_the_same_findings() -> None:
    told = json.loads((KEPT / "format1.findings.json").read_text())
    capture = open_capture(KEPT / "format1")
    manifest = capture.manifest
    assert (manifest.target.kind, manifest.target.detail["named_by"]) == ("postgres", "pid")
    assert (manifest.probe("sessions").tier, manifest.probe("sessions").rate_hz) == ("shm", 50.0)
    assert manifest.probe("sessions").loss["ticks_taken"] == capture.scalar("select count(*) from tick") > 0
    assert {check["result"] for check in manifest.probe("sessions").detail["layout_checks"]} <= {"passed", "skipped"}
    found = evaluate(capture)
    # Rules made since may find more; those of then say the same.
    now = {(f.id, f.subject): f for f in found.findings}
    assert len(told["findings"]) >= 8
    for then in told["findings"]:
        finding = now[(then["id"], then["subject"])]
        assert (finding.severity, finding.statement, finding.samples) == (then["severity"], then["statement"], then["samples"])
        assert finding.cost_s == (None if then["cost_s"] is None else pytest.approx(then["cost_s"], rel=1e-9))
    assert {*told["clean"]} <= {*found.clean}
    capture.close()
