"""Which users of a Mini wait."""

from __future__ import annotations

from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section

COLUMNS = (Column("usename", "user", "text"), Column("seconds", "seconds", "seconds"))


def _users(of: Context) -> Grid:
    return Grid.of(COLUMNS, of.capture.rows("from mini_user order by seconds desc"))


def _is_mini(of: Context) -> bool:
    return of.capture.manifest.target.kind == "mini"


SECTIONS = (Section("mini_users", "Users of the Mini", ("mini_user",), _users, applies=_is_mini),)
