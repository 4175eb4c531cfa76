"""Recovery targets: as they are given, and as the settings in a data directory have them.

The server stops by its own settings. A target that is given must be the same, so that nothing is replayed beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from leadline.engines.postgres.catalog.conf import read_conf
from leadline.errors import LeadlineError

SETTINGS = {
    "lsn": "recovery_target_lsn",
    "time": "recovery_target_time",
    "xid": "recovery_target_xid",
    "name": "recovery_target_name",
    "immediate": "recovery_target",
}
"""Kind of target, and its setting."""
FILES = ("postgresql.conf", "postgresql.auto.conf")
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?\s*(?:(?:Z|UTC|GMT)|([+-])(\d{2}):?(\d{2})?)", re.IGNORECASE)
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class RecoveryTarget:
    """Where recovery stops. value: for a time its microseconds since 1970. timeline: latest, current or a number."""

    kind: str
    value: str = ""
    text: str = ""
    inclusive: bool = True
    timeline: str = "latest"
    notes: tuple[str, ...] = ()


def target_of(data_dir: str, given: Mapping[str, str], *, exclusive: bool, timeline: str | None) -> RecoveryTarget:
    """The target that is given (its kind, end for none, and its text), or else the one of the settings. Raises LeadlineError."""
    if not Path(data_dir).is_dir():
        raise LeadlineError("not_found", "no such directory", where=data_dir)
    found = _settings(data_dir)
    configured = _configured(found)
    if len(given) > 1:
        raise LeadlineError("usage", "several recovery targets were given", hint="give one of " + _options())
    target = _parsed(*next(iter(given.items()))) if given else configured
    if target is None:
        raise LeadlineError(
            "usage",
            "no recovery target was given",
            detail="the settings in the data directory have none either",
            hint=f"give one of {_options()}: it must be that of the server",
        )
    target = replace(target, inclusive=not exclusive)
    if configured is not None:
        _check_equal(target, configured, is_given=bool(given))
        if exclusive and configured.inclusive:
            raise _differs("recovery_target_inclusive is on", "--exclusive")
        target = replace(target, inclusive=configured.inclusive)
    elif target.kind != "end":
        note = f"{' and '.join(FILES)} have no recovery target: as they are, the server replays all WAL"
        target = replace(target, notes=(note,))
    own = found.get("recovery_target_timeline", "")
    if timeline and own and timeline != own:
        raise _differs(f"recovery_target_timeline is {own}", f"--to-timeline {timeline}")
    return replace(target, timeline=timeline or own or "latest")


def _settings(data_dir: str) -> dict[str, str]:
    """What the files of a data directory set. A configuration file elsewhere is not known."""
    root = Path(data_dir)
    found: dict[str, str] = {}
    for file in FILES:
        found.update(read_conf(file, lambda path: root / path, []))
    return {name: value for name, value in found.items() if name.startswith("recovery_target") and value}


def _configured(found: Mapping[str, str]) -> RecoveryTarget | None:
    kinds = {kind: found[setting] for kind, setting in SETTINGS.items() if setting in found}
    if len(kinds) > 1:
        names = ", ".join(SETTINGS[kind] for kind in kinds)
        hint = "the server would not start: remove all but one"
        raise LeadlineError("usage", "the settings have several recovery targets", detail=names, hint=hint)
    if not kinds:
        return None
    kind, text = next(iter(kinds.items()))
    if kind == "immediate":
        raise LeadlineError(
            "unsupported",
            "recovery_target is immediate",
            detail="recovery stops at the end of the backup: there is nothing to be done before the server starts",
            hint="start the server",
        )
    inclusive = found.get("recovery_target_inclusive", "on").lower()
    is_off = inclusive == "0" or inclusive in ("off", "of") or any(word.startswith(inclusive) for word in ("false", "no"))
    return replace(_parsed(kind, text, is_configured=True), inclusive=not is_off)


def _parsed(kind: str, text: str, *, is_configured: bool = False) -> RecoveryTarget:
    if kind == "time":
        value = _microseconds(text)
        if value is None and not is_configured:
            raise LeadlineError("usage", f"{text} is not a time with its offset from UTC", hint="for example '2026-11-24 12:00:00+00'")
        return RecoveryTarget(kind, "" if value is None else str(value), text)
    if kind == "lsn" and not _LSN.fullmatch(text):
        raise LeadlineError("usage", f"{text} is not an LSN", hint="for example 16/B374D848")
    if kind == "xid":
        if not text.isascii() or not text.isdigit():
            raise LeadlineError("usage", f"{text} is not the number of a transaction")
        return RecoveryTarget(kind, str(int(text) & 0xFFFFFFFF), text)
    return RecoveryTarget(kind, text, text)


def _microseconds(text: str) -> int | None:
    """Since 1970; None for what has no offset: only the server knows what it means."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2]}")
    except ValueError:
        return None
    offset = timedelta(hours=int(found[5] or 0), minutes=int(found[6] or 0))
    moment = moment.replace(tzinfo=UTC, microsecond=int((found[3] or "").ljust(6, "0")))
    return (moment - _EPOCH - (-offset if found[4] == "-" else offset)) // _MICROSECOND


def _check_equal(target: RecoveryTarget, configured: RecoveryTarget, *, is_given: bool) -> None:
    if configured.kind == "time" and not configured.value:
        if target.kind == "time" and is_given:
            return
        raise LeadlineError(
            "usage",
            f"the time of the recovery target has no offset from UTC: {configured.text}",
            hint="give the same time with its offset: --to-time '2026-11-24 12:00:00+00'",
        )
    if (target.kind, _comparable(target)) != (configured.kind, _comparable(configured)):
        raise _differs(f"{SETTINGS[configured.kind]} is {configured.text}", f"--to-{target.kind} {target.text}".rstrip())


def _comparable(target: RecoveryTarget) -> object:
    return [int(part, 16) for part in target.value.split("/")] if target.kind == "lsn" else target.value


def _differs(configured: str, given: str) -> LeadlineError:
    return LeadlineError(
        "usage",
        "the recovery target is not that of the server",
        detail=f"in the settings {configured}, but {given} was given",
        hint="change the settings in the data directory, or leave the option out",
    )


def _options() -> str:
    return "--to-lsn, --to-time, --to-xid, --to-name, --to-end"
