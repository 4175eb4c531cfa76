"""FPI-STORM and PREFETCH-WASTE, planted into real servers, and the same load without the trouble."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from conftest import LONG, Server, wait_until
from leadline.capture.reader import open_capture
from leadline.findings import Finding, evaluate
from replicating import at, repeated, taken
from standby import Standby

pytestmark = pytest.mark.live
MAJORS = list(range(13, 19)) if LONG else [13, 18]
PREFETCHING = [major for major in MAJORS if major >= 15] if LONG else [15, 18]
ROWS = 6  # of a page


def found(path: Path, rule: str, **thresholds: float) -> list[Finding]:
    with closing(open_capture(path)) as capture:
        evaluation = evaluate(capture, [rule], thresholds)
    assert not evaluation.not_evaluated, evaluation.not_evaluated
    return evaluation.findings


def table(server: Server, pages: int) -> None:
    server.sql("create table t (id int, n int, filler text) with (fillfactor = 85)")
    server.sql("alter table t alter filler set storage plain")
    server.sql("insert into t select i, 0, repeat('x', 1000) from generate_series(0, %s) i", [pages * ROWS - 1])
    server.sql("create index on t(id)")
    server.sql("vacuum analyze t")


def updating(server: Server, pages: int) -> AbstractContextManager[None]:
    """2000 rows a second, anywhere in the table."""
    update = f"update t set n = n + 1 where id in (select (random() * {pages * ROWS - 1})::int from generate_series(1, 100))"
    return repeated(server.dsn, update, every_s=0.05)


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("major", MAJORS)
def test_page_images_after_a_checkpoint(fresh_server: Callable[..., Server], tmp_path: Path, major: int, images: bool) -> None:
    """Without full_page_writes the same checkpoint and the same load have none."""
    server = fresh_server(major, shared_buffers="128MB", max_wal_size="2GB", autovacuum=False, full_page_writes=images)
    table(server, 5000)
    with Standby(server.private) as standby:
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")
        # What the checkpoint writes: the standby's base backup made one before, and of a few pages no sample would see the write.
        server.sql("create table dirty (word text)")
        server.sql("insert into dirty select md5(i::text) from generate_series(1, 1000000) i")
        with updating(server, 5000):
            made = taken(
                tmp_path / "x.leadline", lambda: server.sql("checkpoint"), dsn=server.dsn, others=[standby.dsn], for_s=14.0, rate_hz=1000
            )
    with closing(open_capture(made)) as capture:
        assert capture.scalar("select count(*) from checkpoint_phase where phase <> 'none'") > 0
        counted = capture.scalar("select sum(wal_fpi) from session_delta where wal_bytes > 0")
    findings = found(made, "FPI-STORM")
    if not images:
        assert findings == [] and counted < 100
        return
    [finding] = findings
    evidence = finding.evidence[0]
    assert finding.severity == "medium" and evidence["images"] == pytest.approx(5000, rel=0.2)
    assert evidence["image_bytes"] == pytest.approx(evidence["images"] * 7000, rel=0.25)
    assert finding.cost_s is not None and 0 < finding.cost_s < 14


@pytest.mark.parametrize("major", MAJORS)
def test_the_same_load_without_a_checkpoint(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major, shared_buffers="128MB", max_wal_size="2GB", autovacuum=False)
    table(server, 5000)
    server.sql("checkpoint")
    with updating(server, 5000):
        made = taken(tmp_path / "x.leadline", lambda: None, dsn=server.dsn, for_s=10.0)
    assert found(made, "FPI-STORM") == []


def passes(server: Server, pages: int, together: int) -> None:
    """All rows, page by page: of `together` pages the first row of each, then the second of each."""
    server.sql(
        f"""do $$ begin
          for part in 0..{pages // together - 1} loop
            for k in 0..{ROWS - 1} loop
              update t set n = n + 1 where id between part * {together * ROWS} and (part + 1) * {together * ROWS} - 1 and id % {ROWS} = k;
            end loop;
          end loop; end $$"""
    )


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("major", PREFETCHING)
def test_replay_that_asks_for_what_comes_as_images(fresh_server: Callable[..., Server], tmp_path: Path, major: int, images: bool) -> None:
    """Replay was paused, and all records lie ready: those of a page follow its image by some pages. Without images it must read."""
    pages = 4000
    server = fresh_server(major, shared_buffers="128MB", max_wal_size="2GB", autovacuum=False, full_page_writes=images)
    table(server, pages)
    server.sql("checkpoint")
    with Standby(server.private, shared_buffers="128MB") as standby:  # its cache is empty
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")
        at(standby.dsn, "select pg_wal_replay_pause()")
        wait_until(lambda: at(standby.dsn, "select pg_get_wal_replay_pause_state() = 'paused'"), what="the pause")
        passes(server, pages, 20 if images else 200)
        made_lsn = server.sql("select pg_current_wal_flush_lsn()::text")[0][0]
        received = f"select pg_last_wal_receive_lsn() >= '{made_lsn}'"
        wait_until(lambda: at(standby.dsn, received), what="the WAL at the standby")

        def resume() -> None:
            at(standby.dsn, "select pg_wal_replay_resume()")
            wait_until(lambda: at(standby.dsn, f"select pg_last_wal_replay_lsn() >= '{made_lsn}'"), what="replay")

        made = taken(tmp_path / "x.leadline", resume, dsn=standby.dsn, for_s=14.0)
    with closing(open_capture(made)) as capture:
        calls = capture.scalar("select delta from server_stat_delta where view = 'pg_stat_recovery_prefetch' and metric = 'prefetch'")
        assert capture.scalar("select count(*) from server_stat_delta where view = 'proc_stat' and delta >= 0") == 1
    assert calls > pages / 4
    findings = found(made, "PREFETCH-WASTE", waste_calls=500)
    if not images:
        assert findings == []
        return
    [finding] = findings
    evidence = finding.evidence[0]
    assert evidence["asked"] == pytest.approx(calls, rel=0.12) and evidence["reads"] < 0.2 * pages
    assert finding.cost_s is not None and 0 <= finding.cost_s < 14


def test_a_standby_of_a_major_that_prefetches_nothing(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(13)
    with Standby(server.private) as standby:
        made = taken(tmp_path / "x.leadline", lambda: None, dsn=standby.dsn, for_s=1.0)
    with closing(open_capture(made)) as capture:
        assert capture.scalar("select count(*) from server_stat where view in ('pg_stat_recovery_prefetch', 'proc_stat')") == 0
        assert evaluate(capture, ["PREFETCH-WASTE"]).findings == []
