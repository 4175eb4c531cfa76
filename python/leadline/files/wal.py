"""PostgreSQL's log: what the commands of `leadline wal` ask of it, and how they tell it in words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leadline._core.catalog import relation_names
from leadline._core.wal import WalLog
from leadline.errors import LeadlineError
from leadline.files.server import ServerFiles, names_a_server, server_files
from leadline.output import stopped_at
from leadline.progress import TerminalLine
from leadline.units import MB

if TYPE_CHECKING:
    from leadline._core.wal import Ending

FORKS = ("main", "fsm", "vm", "init")
MOST = 2**63 - 1
LOOKS = 5
T = TypeVar("T")
FILE_NUMBERS = re.compile(r"(base/|global/|pg_tblspc/)?[0-9]+(/.*)?")  # not a name
GLOBAL_TABLESPACE = 1664  # of relations that all databases share, in the log of database 0
TEMPLATES = {"template0", "template1"}
DEFAULT_TABLESPACE = 1663  # pg_default, which a relation without a name for its tablespace is in


class Wish(NamedTuple):
    """Which records of which log."""

    path: str
    start: str | None = None
    end: str | None = None
    timeline: int | None = None
    relation: str | None = None
    fork: str | None = None
    block: int | None = None
    xid: int | None = None
    rmgr: str | None = None
    since: int | None = None  # Unix microseconds
    until: int | None = None

    def open(self) -> WalLog:
        """Raises LeadlineError when there is no such log or the wish makes no sense."""
        spc, db, rel = parse_relation(self.relation)
        return WalLog(
            self.path,
            timeline=self.timeline,
            start=_utf8(self.start),
            end=_utf8(self.end),
            spc=spc,
            db=db,
            rel=rel,
            fork=None if self.fork is None else FORKS.index(self.fork),
            block=self.block,
            xid=self.xid,
            rmgr=_utf8(self.rmgr),
            since=self.since,
            until=self.until,
        )


def whole(wish: Wish, verb: str, read: Callable[[WalLog, Bar], T]) -> T:
    """What `read` makes of the log. A server that takes the oldest segment for new log meanwhile has it begun again."""
    for left in reversed(range(LOOKS)):
        log = wish.open()
        try:
            with Bar(log.describe()["bytes"], verb) as bar:
                return read(log, bar)
        except LeadlineError as e:
            if e.kind != "gone" or not left:
                raise
    raise AssertionError("the last look returns or raises")


def wish_of(path: str, relation: str | None = None, **more: Any) -> tuple[Wish, ServerFiles | None]:
    """The wish, and the running server when `path` names one: its log is then read, and a relation may be given by name."""
    if not names_a_server(path):
        return Wish(path, relation=relation, **more), None
    live = server_files(path, "leadline wal")
    if relation is not None and not FILE_NUMBERS.fullmatch(relation):
        relation = live.relation_path(relation)
    return Wish(live.data_dir, relation=relation, **more), live


def _utf8(text: str | None) -> str | None:
    """An argument may be any bytes; those that are no text name nothing here."""
    return None if text is None else text.encode(errors="replace").decode()


def parse_relation(text: str | None) -> tuple[int | None, int | None, int | None]:
    """`16384`, `5/16384` or `1663/5/16384`: file number, with its database, with its tablespace; or the path that
    pg_relation_filepath prints. Absent parts are None."""
    if text is None:
        return None, None, None
    match text.split("/"):
        case ["base", *rest]:
            parts = [str(DEFAULT_TABLESPACE), *rest]
        case ["global", *rest]:
            parts = [str(GLOBAL_TABLESPACE), "0", *rest]
        case ["pg_tblspc", space, _, *rest]:
            parts = [space, *rest]
        case parts:
            pass
    if not 1 <= len(parts) <= 3 or not all(p.isascii() and p.isdigit() and int(p) < 2**32 for p in parts):
        raise LeadlineError(
            "usage",
            f"{text} does not identify a relation in the WAL",
            detail="WAL records file numbers, not names: use FILENODE, DATABASE/FILENODE or TABLESPACE/DATABASE/FILENODE",
            hint="the output of select pg_relation_filepath('name') also works: base/DATABASE/FILENODE",
        )
    numbers = [None] * (3 - len(parts)) + [int(p) for p in parts]
    return numbers[0], numbers[1], numbers[2]


def names_of(data_dir: str) -> tuple[dict[tuple[int, int, int], str], list[tuple[str, str]]]:
    """Names of the relations of all databases by tablespace, database and file number; with the database's where there are several.
    And the databases whose catalogs are lost, and why."""
    found, lost = relation_names(data_dir)
    several = len({database for database, _ in found.values() if database} - TEMPLATES) > 1
    return {key: f"{database}.{name}" if several and database else name for key, (database, name) in found.items()}, lost


def threads_here() -> int:
    """As many threads as there are CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def parts(read: Callable[[int], tuple[int, bytes] | None], limit: int | None, told: Callable[[str], None]) -> Iterator[bytes]:
    """What is printed, some rows at a time, of at most `limit` rows; of what gives how many there are, and them.

    told: is called with a word to the reader where the rows end at the limit.
    """
    left = MOST if limit is None else limit
    while left > 0 and (found := read(left)) is not None:
        left -= found[0]
        if found[1]:
            yield found[1]
    if left <= 0:
        told(stopped_at(limit, MOST if limit is None else limit))


class Bar:
    """A progress line for a pass over the log."""

    def __init__(self, total: int, verb: str) -> None:
        self.line, self.total, self.verb = TerminalLine(), total, verb

    def __call__(self, done: int) -> None:
        self.line.share(done, self.total, f"{self.verb} {done / MB:,.0f} of {self.total / MB:,.0f} MB of WAL")

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.line.done()


def ending_text(ending: Ending) -> str | None:
    """Why the log ends before what was asked for; None when it does not."""
    return None if ending["end_lsn"] is None else f"the WAL ends at {ending['end_lsn']}: {ending['why']}"


def export(wish: Wish, out: str, *, named: str, overwrite: bool, threads: int) -> dict[str, Any]:
    """Writes the records as a capture, of the WAL at `named`; gives its manifest and as `capture` its directory. What a failure leaves is
    marked `failed`."""
    from pathlib import Path

    from leadline.capture.directory import new_capture
    from leadline.capture.making import Making
    from leadline.capture.manifest import ProbeState, Target

    log = wish.open()
    about = log.describe()
    with new_capture(Path(out), overwrite=overwrite) as directory:
        place = os.path.realpath(named)
        target = Target("wal", place, version_num=about["major"] * 10_000, version=str(about["major"]), detail={"data_dir": place, **about})
        making = Making(directory, target, wish._replace(path=named)._asdict() | {"threads": threads})
        making.manifest.probes["wal"] = probe = ProbeState(tier="files")
        with making.from_files() as manifest:
            with Bar(about["bytes"], "exported") as bar:
                done = log.export(str(directory), threads, bar)
            manifest.tables = done["tables"]
            manifest.cost.bytes_written = sum(figures["bytes"] for figures in done["tables"].values())
            target.detail |= done["ending"]
            if text := ending_text(done["ending"]):
                manifest.note(text)
                probe.status, probe.why = "partial", text
    return {"capture": str(directory)} | manifest.as_dict()
