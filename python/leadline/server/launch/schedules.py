"""Operations on schedules, and the loop that asks for what is due: one run for each slot, however many servers look."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from leadline.book.place import Place
from leadline.book.spool import new_uid
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit
from leadline.server.accounts.login import caller_for
from leadline.server.launch import survey
from leadline.server.launch.launch_queue import START, ask_for
from leadline.server.launch.templates import TEMPLATE
from leadline.server.operation import Call, Input, Operation, finder
from leadline.server.rights import Caller, marks

if TYPE_CHECKING:
    from cronsim import CronSim

SHOWN = 5
LAST_YEAR = 9998
LATE_US = 60 * 1_000_000  # later than this, nobody was there at the time: a slot that was missed
OPEN = "('waiting', 'approval', 'queued', 'started', 'cancelling')"


@finder("schedule")
def find_schedule(call: Call, text: str) -> dict[str, Any]:
    row = call.one("select * from schedule where uid = ?", text)
    if row is None or call.caller.role(row["project"]) is None:
        raise LeadlineError("not_found", f"there is no schedule {text[:40]}", hint="leadline schedule list")
    return {name: value for name, value in row.items() if name != "template"} | {"of_template": row["template"]}


def slots(cron: str, zone: str, after_us: int) -> CronSim:
    """Its times from then on. Raises LeadlineError for what is no schedule."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise LeadlineError("unsupported", "schedules need the package cronsim", hint="pip install 'leadline[web]'") from None
    try:
        after = datetime.fromtimestamp(after_us / 1e6, UTC).astimezone(_zone(zone))
        if len(cron.split()) != 5:  # a sixth is seconds to some, and a year to others
            raise CronSimError("it has not five fields")
        return CronSim(cron, after)
    except (CronSimError, OverflowError) as e:
        raise LeadlineError(
            "usage", f"{cron!r} is no schedule: {e}", hint="minute hour day month weekday, as in 30 2 * * 1-5", where="cron"
        ) from None


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise LeadlineError("usage", f"{name[:60]!r} is no time zone", hint="a name such as Europe/Prague or UTC", where="zone") from None


def next_slot(cron: str, zone: str, after_us: int) -> int | None:
    """None: never again, as 30 February."""
    try:
        return int(next(slots(cron, zone, after_us)).timestamp() * 1e6)
    except StopIteration:
        return None


def next_due(row: Mapping[str, Any], after_us: int) -> tuple[int, int] | None:
    """Its next slot, and when that begins: the same for every server that looks. None: never again."""
    slot = next_slot(row["cron"], row["zone"], after_us)
    if slot is None:
        return None
    drawn = int.from_bytes(hashlib.sha256(f"{row['uid']} {slot}".encode()).digest()[:8], "big")
    return slot, slot + drawn % (row["jitter_s"] * 1_000_000 + 1)


def next_slots(row: Mapping[str, Any], now: int) -> list[int]:
    if not row["active"] or row["next_due"] is None:
        return []
    out, at = [int(row["next_due"])] if row["next_due"] > now or not row["cron"] else list[int](), now
    while row["cron"] and len(out) < SHOWN and (found := next_due(row, at)) is not None:
        at = found[0]
        if not out or found[1] > out[-1]:
            out.append(found[1])
    return out


def once_at(text: str, zone: str) -> int:
    """Microseconds since 1970 of a local time. Raises LeadlineError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise LeadlineError("usage", f"{text[:40]!r} is no time", hint="2026-12-24 18:30", where="at") from None
    if at.year > LAST_YEAR:  # in another zone it may be in a year that a calendar has not
        raise LeadlineError("usage", f"{text[:40]!r} is too far away", where="at")
    return int((at if at.tzinfo else at.replace(tzinfo=_zone(zone))).timestamp() * 1e6)


# --- operations


def _list(call: Call, _inputs: dict[str, Any]) -> Any:
    rows = call.rows(
        "select s.*, t.name from schedule s join template t on t.uid = s.template order by s.next_due is null, s.next_due, s.uid"
    )
    return {"schedules": [_shown(call, row) for row in rows if call.caller.role(row["project"]) is not None]}


def _shown(call: Call, row: dict[str, Any]) -> dict[str, Any]:
    names = ("uid", "project", "template", "name", "cron", "zone", "jitter_s", "overlap", "catch_up", "next_due", "by_account", "created")
    last = call.one("select due, launch, note from schedule_fire where schedule = ? order by due desc limit 1", row["uid"])
    shown = {name: row[name] for name in names} | {"at": "" if row["cron"] or not row["next_due"] else _local(row["next_due"], row["zone"])}
    fired = {
        "last_due": last["due"] if last else None,
        "last_run": last["launch"] if last else None,
        "last_note": last["note"] if last else "",
    }
    return shown | {"active": bool(row["active"]), "inputs": json.loads(row["inputs_json"]), "next": next_slots(row, call.now)} | fired


def _save(call: Call, inputs: dict[str, Any]) -> Any:
    call.need("runner", call.found["project"])  # it is seen and changed by who has a role in the project
    uid = new_uid()
    row = _checked(call, uid, inputs | {"cron": inputs["cron"] or "", "inputs": inputs["inputs"] or {}}, call.found)
    row |= {"uid": uid, "project": call.found["project"], "template": call.found["uid"], "active": 1, "created": call.now}
    call.execute(f"insert into schedule ({', '.join(row)}) values ({marks(list(row))})", *row.values())
    call.detail = {"schedule": uid, "cron": inputs["cron"], "at": inputs["at"], "zone": inputs["zone"]}
    return _told(call, uid)


def _edit(call: Call, inputs: dict[str, Any]) -> Any:
    """What is not given stays. From then on it starts in the name of who has changed it."""
    uid, given = call.found["uid"], {name: value for name, value in inputs.items() if value is not None}
    old = {name: call.found[name] for name in ("cron", "zone", "jitter_s", "overlap", "catch_up")} | {"at": None}
    old["inputs"] = json.loads(call.found["inputs_json"])
    if given.get("at"):
        old["cron"] = ""
    elif not call.found["cron"] and not given.get("cron"):
        old["at"] = _local(call.found["next_due"] or 0, given.get("zone", old["zone"]))
    template = call.rows("select * from template where uid = ?", call.found["of_template"])[0]
    row = _checked(call, uid, old | given, template)
    names = ", ".join(f"{name} = ?" for name in row)
    is_over = call.found["next_due"] is None  # and goes on with its new time; one that is paused stays so
    call.execute(f"update schedule set {names}, active = ? where uid = ?", *row.values(), 1 if is_over else call.found["active"], uid)
    call.detail = {"before": {name: old[name] for name in given if name in old}, "after": {n: v for n, v in given.items() if n in old}}
    return _told(call, uid)


def _checked(call: Call, uid: str, asked: dict[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a schedule that starts what the caller asks for, in the caller's name. Raises LeadlineError."""
    cron, at, zone = asked["cron"], asked["at"], asked["zone"]
    _zone(zone)
    if bool(cron) == bool(at):
        raise LeadlineError(
            "usage", "a schedule has either cron or at", hint='--cron "30 2 * * 1-5", or --at "2026-12-24 18:30"', where="cron"
        )
    jitter_s = asked["jitter_s"] if cron else 0
    coming = next_due({"uid": uid, "cron": cron, "zone": zone, "jitter_s": jitter_s}, call.now) if cron else None
    due = once_at(at, zone) if not cron else coming[1] if coming else None
    if due is None or due <= call.now:
        raise LeadlineError("usage", "the time of the schedule is over, or never comes", where="cron" if cron else "at")
    questions = survey.read_survey(json.loads(template["spec_json"])["survey"])
    if not survey.secret_names(questions).isdisjoint(asked["inputs"]):
        raise LeadlineError("usage", "a schedule keeps no secrets", hint="give the template a secret of the project", where="inputs")
    survey.answers(questions, asked["inputs"])
    return {
        "cron": cron, "zone": zone, "overlap": asked["overlap"], "catch_up": asked["catch_up"], "jitter_s": jitter_s, "next_due": due,
        "inputs_json": json.dumps(asked["inputs"], ensure_ascii=False), "by_account": call.caller.name, "by_uid": call.caller.identity,
    }  # fmt: skip


def _told(call: Call, uid: str) -> Any:
    row = call.rows("select s.*, t.name from schedule s join template t on t.uid = s.template where s.uid = ?", uid)[0]
    return {"schedule": uid, "next": [_local(us, row["zone"]) for us in next_slots(row, call.now)]}


def _local(us: int, zone: str) -> str:
    return datetime.fromtimestamp(us / 1e6, _zone(zone)).isoformat(timespec="minutes")


def _set(call: Call, inputs: dict[str, Any]) -> Any:
    row = call.found
    due = row["next_due"]
    if inputs["active"] and row["cron"]:
        coming = next_due(row, call.now)
        due = coming[1] if coming else None
    call.execute("update schedule set active = ?, next_due = ? where uid = ?", int(inputs["active"]), due, row["uid"])
    if inputs["active"]:  # it goes on in the name of who says so
        call.execute("update schedule set by_account = ?, by_uid = ? where uid = ?", call.caller.name, call.caller.identity, row["uid"])
    call.detail = {"active": inputs["active"]}
    return {"schedule": row["uid"], "active": inputs["active"]}


def _delete(call: Call, _inputs: dict[str, Any]) -> Any:
    call.execute("delete from schedule_fire where schedule = ?", call.found["uid"])
    call.execute("delete from schedule where uid = ?", call.found["uid"])
    call.detail = {"before": {name: call.found[name] for name in ("cron", "zone", "of_template")}}
    return {"deleted": call.found["uid"]}


# --- what is due


def fire(place: Place, store: Store) -> None:
    """Asks for the run of each slot that has come."""
    now = time.time_ns() // 1000
    failed: Exception | None = None
    for row in store.rows("select * from schedule where active = 1 and cron <> '' and next_due > ?", (now,)):
        _follow_clock(place, store, row, now)
    for row in store.rows("select * from schedule where active = 1 and next_due <= ? order by next_due limit 100", (now,)):
        try:
            with store.writing():
                _fire(place, store, row, now)
        except Exception as e:  # the others have their turn all the same
            failed = e
    if failed is not None:
        raise failed


# By book and schedule: what its next time was computed from, and when. As long as the clock goes forward, that holds.
_computed: dict[tuple[str, str], tuple[Any, ...]] = {}
_MOST_COMPUTED = 10_000


def _follow_clock(place: Place, store: Store, row: Mapping[str, Any], now: int) -> None:
    """Where the clock was set back, the next time in the store is too far away: computes it anew, and says so.

    Times come again then, as the clock has it. After a step of less than a minute, none that was there comes twice.
    """
    key, by = (place.variable, row["uid"]), (row["next_due"], row["cron"], row["zone"], row["jitter_s"])
    known = _computed.get(key)
    if known is not None and known[:-1] == by and known[-1] <= now:
        return
    sql = "select max(due) as due from schedule_fire where schedule = ? and launch is not null and due > ? and due <= ?"
    last = store.rows(sql, (row["uid"], now, now + LATE_US))[0]["due"]
    coming = next_due(row, last or now)
    if coming is not None and coming[0] < row["next_due"] - row["jitter_s"] * 1_000_000 and coming[1] < row["next_due"]:
        with store.writing() as db:
            sql = "update schedule set next_due = ? where uid = ? and active = 1 and next_due = ?"
            if db.execute(sql, (coming[1], row["uid"], row["next_due"])).rowcount != 1:
                return
            note = f"the clock was set back: next at {_local(coming[1], row['zone'])}, not at {_local(row['next_due'], row['zone'])}"
            db.execute("delete from schedule_fire where schedule = ? and (due > ? or due = ?)", (row["uid"], now + LATE_US, now))
            db.execute("insert into schedule_fire values (?, ?, ?, ?)", (row["uid"], now, None, note))
            audit.append(store, Caller("leadline", False), "schedule.set", row["uid"], {"note": note}, "done")
        return
    if len(_computed) > _MOST_COMPUTED:
        _computed.clear()
    _computed[key] = (*by, now)


def _fire(place: Place, store: Store, row: Mapping[str, Any], now: int) -> None:
    """Within a transaction: who moves next_due on has the slot."""
    due = row["next_due"]
    found = next_due(row, now) if row["cron"] else None
    coming = found[1] if found else None
    sql = "update schedule set next_due = ?, active = ? where uid = ? and active = 1 and next_due = ?"
    if store.db.execute(sql, (coming, int(coming is not None), row["uid"], due)).rowcount != 1:
        return
    if row["cron"] and due < now - LATE_US:
        due = _last_missed(row, due, now)
    note, launch = "", None
    if due < now - LATE_US and row["catch_up"] == "none":
        note = "missed: no server was running then, or the clock was set past it"
    elif row["overlap"] == "skip" and store.rows(
        f"select 1 from launch where template = ? and cause = ? and status in {OPEN} limit 1", (row["template"], f"schedule {row['uid']}")
    ):
        note = "skipped: the one before has not ended"
    else:
        launch, note = _ask(place, store, row)
    sql = "insert into schedule_fire values (?, ?, ?, ?) on conflict (schedule, due) do nothing"
    store.db.execute(sql, (row["uid"], due, launch, note))


def _last_missed(row: Mapping[str, Any], due: int, now: int) -> int:
    last, tries = due, 0
    while (found := next_slot(row["cron"], row["zone"], last)) is not None and found <= now and tries < 100_000:
        last, tries = found, tries + 1
    return last


def _ask(place: Place, store: Store, row: Mapping[str, Any]) -> tuple[str | None, str]:
    """The run, or why there is none. It is started in the name, and with the rights of now, of who made the schedule."""
    template = store.rows("select * from template where uid = ?", (row["template"],))[0]
    caller = caller_for(store, row["by_uid"], row["by_account"])
    if caller is None or not caller.may("runner", template["project"], template["uid"]):
        refused = f"{row['by_account']} may not start it any more"
        audit.append(store, caller or Caller(row["by_account"], False), "template.start", template["uid"], {"error": refused}, "refused")
        return None, refused
    try:
        uid = ask_for(Call(START, caller, store, place), template, json.loads(row["inputs_json"]), f"schedule {row['uid']}")
    except LeadlineError as e:
        audit.append(store, caller, "template.start", template["uid"], {"error": e.message, "schedule": row["uid"]}, "refused")
        return None, e.message
    audit.append(store, caller, "template.start", template["uid"], {"run": uid, "schedule": row["uid"]}, "done")
    return uid, ""


SCHEDULE = Input("schedule", "id of the schedule")
CRON = Input("cron", "minute hour day month weekday, as in 30 2 * * 1-5", required=False)
AT = Input("at", "once, at this time in ZONE: 2026-12-24 18:30", required=False)
ZONE = Input("zone", "time zone of --cron and --at, such as Europe/Prague", required=False, default="UTC")
JITTER = Input(
    "jitter_s",
    "delay each start by a random time of at most N seconds, so that not all start at once",
    "int",
    False,
    0,
    least=0,
    most=86400,
)
OVERLAP = Input("overlap", "what to do when the previous run has not ended", "enum", False, "skip", ("skip", "queue"))
CATCH_UP = Input(
    "catch_up", "missed starts, while no server was running: none, or only the last one", "enum", False, "none", ("none", "last")
)
INPUTS = Input("inputs", 'values that the survey asks for: {"size": 1000}', "json", False)
HOW = (CRON, AT, ZONE, JITTER, OVERLAP, CATCH_UP, INPUTS)
OPERATIONS = (
    Operation(
        "schedule.list", "GET", "/schedules", "anyone", "", "List schedules, each with its next five start times.", _list, rows="schedules",
        columns=("uid", "project", "name", "cron", "zone", "active", "next", "last_run", "last_note"),
    ),
    Operation(
        "schedule.save", "POST", "/templates/{template}/schedules", "runner", "template", "Start a template at set times.", _save,
        (TEMPLATE, *HOW),
    ),
    Operation(
        "schedule.edit", "PATCH", "/schedules/{schedule}", "runner", "schedule", "Change what is given of a schedule.", _edit,
        (SCHEDULE, *(replace(one, default=None) for one in HOW)),
    ),
    Operation(
        "schedule.set", "PUT", "/schedules/{schedule}", "runner", "schedule", "Pause or resume a schedule.", _set,
        (SCHEDULE, Input("active", "false: pause it", "bool", False, True)),
    ),
    Operation("schedule.delete", "DELETE", "/schedules/{schedule}", "runner", "schedule", "Remove a schedule.", _delete, (SCHEDULE,)),
)  # fmt: skip
