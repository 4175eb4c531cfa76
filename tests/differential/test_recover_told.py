"""What leadline recover tells of its work: a capture (-o), and whether the server would have done the same (--verify)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.files import verify
from recovery import ChecksummedServer, copied, crash, fingerprint, flip, loaded, recover
from recovery_load import SETTINGS, in_flight, mixed_load


@pytest.fixture(scope="module")
def crashed() -> Iterator[tuple[Server, Path]]:
    with loaded(18, ChecksummedServer, **SETTINGS) as server:
        mixed_load(server)
        in_flight(server)
        yield server, crash(server)


@pytest.mark.usefixtures("terminal")
def test_a_capture_says_what_was_done(crashed: tuple[Server, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "recovery.leadline"
    with copied(crashed[1]) as copy:
        plan = json.loads(recover(copy, "--plan", "--json").stdout)
        done = recover(copy, "--memory", "4MB", "--threads", 2, "-o", capture, "--json")
        assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["capture"] == str(capture)
    rows = open_capture(capture).rows
    [kinds] = rows("select sum(records)::bigint as records, sum(fpi)::bigint as images from recovery_type")
    assert kinds["records"] == sum(kind["records"] for kind in plan["kinds"])
    names = ("applied", "restored", "superseded", "removed", "older", "pages_written", "pages_read")
    [work] = rows(f"select {', '.join(f'sum({name})::bigint as {name}' for name in names)} from recovery_relation")
    assert work == {name: report[name] for name in names}
    assert work["applied"] + work["superseded"] + work["removed"] + work["older"] <= plan["changes"]
    assert 0 < work["restored"] <= kinds["images"]
    named = {row["relation"]: row for row in rows("from recovery_relation where fork = 'main'")}
    assert named["postgres.public.a"]["pages_written"] > 100
    assert [row["phase"] for row in rows("from recovery_phase order by step")] == ["read", "pages", "sync", "status", "hand over"]
    fits = "bool_and(cpu_ns is null or cpu_ns <= wall_ns * 1.1 + 2e6) as fits"
    threads = rows(f"select phase, count(*) as threads, {fits} from recovery_thread group by 1")
    assert {row["phase"] for row in threads} == {"read", "pages"} and all(row["fits"] for row in threads)
    [pages] = [row["threads"] for row in threads if row["phase"] == "pages"]
    assert report["spilled_bytes"] > 0 and pages > 2 and pages % 2 == 0  # two for each part of what was spilled

    assert run(["show", str(capture)]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines() if str(capture) not in line) <= 80
    assert text.startswith("recovery  PostgreSQL 18, timeline 1")
    assert run(["show", str(capture), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sum(row["pages_written"] for row in answer["recovery_relations"]) <= report["pages_written"]
    assert answer["recovery_types"] and answer["recovery_phases"][0]["phase"] == "read"
    assert run(["report", str(capture), "-o", str(tmp_path / "r.html")]) == 0
    assert "What the recovery of PostgreSQL 18 did" in (tmp_path / "r.html").read_text()


def test_a_capture_of_what_failed_says_so(crashed: tuple[Server, Path], tmp_path: Path) -> None:
    capture = tmp_path / "recovery.leadline"
    with copied(crashed[1]) as copy:
        (copy / "PG_VERSION").write_text("17\n")
        assert recover(copy, "-o", capture).returncode == 2
        # Where no capture can be made, nothing is recovered.
        before = fingerprint(copy)
        (copy / "PG_VERSION").write_text("18\n")
        done = recover(copy, "-o", "/proc/no/recovery.leadline")
        assert done.returncode == 2 and "/proc/no" in done.stderr
        (copy / "PG_VERSION").write_text("17\n")
        assert {name: found[-1] for name, found in fingerprint(copy).items()} == {name: found[-1] for name, found in before.items()}
    manifest = json.loads((capture / "manifest.json").read_text())
    assert (manifest["status"], manifest["error"]["message"]) == ("failed", "PG_VERSION says 17, but pg_control is from 18")


def verified(crashed: tuple[Server, Path], capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    before = fingerprint(crashed[1])
    code = run(["recover", str(crashed[1]), "--verify", "--pg-bin", str(crashed[0].private.bin_dir), "--json", *options])
    assert fingerprint(crashed[1]) == before
    assert not list(crashed[1].parent.glob("leadline-verify-*"))
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, answer


def test_two_copies_are_recovered_and_compared(crashed: tuple[Server, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = verified(crashed, capsys)
    assert (code, answer["is_equal"], answer["differences"]) == (0, True, [])
    assert answer["files"] > 900 and answer["server"].startswith("18.")


def test_a_difference_is_told(crashed: tuple[Server, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    recovered = verify.recover

    def wrongly(path: str, *arguments: Any, dry_run: bool, **more: Any) -> Any:
        report = recovered(path, *arguments, dry_run=dry_run, **more)
        if not dry_run:
            flip(Path(path, "base/1/1259"), 8191)
        return report

    monkeypatch.setattr(verify, "recover", wrongly)
    code, answer = verified(crashed, capsys)
    assert (code, answer["is_equal"], len(answer["differences"])) == (1, False, 1)
    assert answer["differences"][0].endswith(" bytes, pages 0")


def test_what_cannot_be_tried_on_a_copy_is_refused(crashed: tuple[Server, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = verified(crashed, capsys, "--scratch", "/proc/no")
    assert (code, answer["error"]["kind"]) == (2, "storage")
    code, answer = verified(crashed, capsys, "--plan")
    assert (code, answer["error"]["message"]) == (2, "give one of --plan, --verify and -o")
