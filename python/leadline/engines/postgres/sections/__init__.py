"""What PostgreSQL adds to the sections of views: its WAL, recoveries, pages. Sections of sessions are those of every engine."""

from __future__ import annotations

from leadline.engines.postgres.sections import files, recovery, replication, wal

SECTIONS = (*replication.SECTIONS, *wal.SECTIONS, *recovery.SECTIONS, *files.SECTIONS)
