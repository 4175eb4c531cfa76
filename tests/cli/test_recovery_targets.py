"""The recovery target of leadline recover: what is given, and what the settings in the data directory say."""

from __future__ import annotations

from pathlib import Path

import pytest
from leadline.errors import LeadlineError
from leadline.files.recovery_target import RecoveryTarget, target_of


def configured(folder: Path, *lines: str) -> str:
    (folder / "postgresql.conf").write_text("recovery_target_name = 'of postgresql.conf'\nport = 5433\n")
    (folder / "postgresql.auto.conf").write_text("recovery_target_name = ''\n" + "".join(f"{line}\n" for line in lines))
    return str(folder)


def of(path: str, exclusive: bool = False, timeline: str | None = None, **given: str) -> RecoveryTarget:
    return target_of(path, given, exclusive=exclusive, timeline=timeline)


@pytest.mark.parametrize(("line", "kind", "value"), [
    ("recovery_target_lsn = '0/5000028'", "lsn", "0/5000028"),
    ("recovery_target_xid = '4294967299'", "xid", "3"),
    ("recovery_target_name = 'it''s'", "name", "it's"),
    ("recovery_target_time = '2026-11-24 12:00:00.25+02:30'", "time", "1795512600250000"),
    ("recovery_target_time = '1969-12-31 23:59:59.999999Z'", "time", "-1"),
    ("recovery_target_time = '1970-01-01 00:00:01 -01'", "time", "3601000000"),
])  # fmt: skip
def test_the_target_of_the_settings_is_taken(tmp_path: Path, line: str, kind: str, value: str) -> None:
    target = of(configured(tmp_path, line, "recovery_target_inclusive = no", "recovery_target_timeline = 'current'"))
    assert (target.kind, target.value, target.inclusive, target.timeline, target.notes) == (kind, value, False, "current", ())


def test_a_target_that_is_given_is_taken_with_a_note(tmp_path: Path) -> None:
    path = configured(tmp_path)
    target = of(path, lsn="16/B374D848", exclusive=True, timeline="3")
    assert (target.kind, target.value, target.inclusive, target.timeline) == ("lsn", "16/B374D848", False, "3")
    assert "have no recovery target" in target.notes[0]
    assert of(path, end="") == RecoveryTarget("end")


def test_the_same_target_may_be_given_in_other_words(tmp_path: Path) -> None:
    path = configured(tmp_path, "recovery_target_lsn = '0/00ab'")
    assert of(path, lsn="0/AB").notes == ()
    path = configured(tmp_path, "recovery_target_time = '2026-11-24 12:00:00'")
    assert of(path, time="2026-11-24 12:00:00+01").value == "1795518000000000"


REFUSED: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "none": ((), {}, "no recovery target was given"),
    "several": (("recovery_target_xid = 5", "recovery_target_lsn = '0/1'"), {}, "the settings have several recovery targets"),
    "two options": ((), {"lsn": "0/1", "xid": "5"}, "several recovery targets were given"),
    "another": (("recovery_target_xid = 5",), {"xid": "6"}, "the recovery target is not that of the server"),
    "end": (("recovery_target_xid = 5",), {"end": ""}, "the recovery target is not that of the server"),
    "no offset": (("recovery_target_time = '2026-11-24 12:00:00'",), {}, "the time of the recovery target has no offset from UTC"),
    "immediate": (("recovery_target = immediate",), {}, "recovery_target is immediate"),
    "time": ((), {"time": "yesterday"}, "yesterday is not a time with its offset from UTC"),
    "month": ((), {"time": "2026-13-24 12:00:00Z"}, "2026-13-24 12:00:00Z is not a time with its offset from UTC"),
    "lsn": ((), {"lsn": "12"}, "12 is not an LSN"),
    "xid": ((), {"xid": "-1"}, "-1 is not the number of a transaction"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_the_target_is_refused(tmp_path: Path, name: str) -> None:
    lines, given, message = REFUSED[name]
    with pytest.raises(LeadlineError) as told:
        of(configured(tmp_path, *lines), **given)
    assert told.value.message.startswith(message)


def test_other_settings_of_the_target_must_be_those_of_the_server(tmp_path: Path) -> None:
    path = configured(tmp_path, "recovery_target_xid = 5", "recovery_target_timeline = latest")
    for exclusive, timeline in ((True, None), (False, "2")):
        with pytest.raises(LeadlineError, match="is not that of the server"):
            of(path, exclusive=exclusive, timeline=timeline)
    with pytest.raises(LeadlineError, match="no such directory"):
        of(str(tmp_path / "gone"))
