"""What ends with a user who is removed or disabled: what he has asked for and has not begun, his schedules, and what he has approved."""

from __future__ import annotations

from typing import Any

from leadline.server.operation import Call


def end_all_of(call: Call, uid: str, why: str) -> dict[str, Any]:
    """Within a transaction. What was ended: ids of schedules and runs, and of hooks that start nothing any more."""
    schedules = [row["uid"] for row in call.rows("select uid from schedule where by_uid = ? and active = 1 order by uid", uid)]
    call.execute("update schedule set active = 0 where by_uid = ?", uid)
    asked = "by_uid = ? and status in ('waiting', 'approval', 'queued')"
    launches = [row["uid"] for row in call.rows(f"select uid from launch where {asked} order by uid", uid)]
    call.execute(f"update launch set status = 'cancelled', note = ? where {asked}", why, uid)
    approved = "approved_uid = ? and status = 'queued'"
    again = [row["uid"] for row in call.rows(f"select uid from launch where {approved} order by uid", uid)]
    sql = f"update launch set status = 'approval', approved_uid = '', note = ? where {approved}"
    call.execute(sql, f"to be approved again: {why}", uid)
    hooks = [row["uid"] for row in call.rows("select uid from hook where by_uid = ? and direction in ('in', 'after') order by uid", uid)]
    return {"schedules": schedules, "cancelled": launches, "approve_again": again, "hooks": hooks}
