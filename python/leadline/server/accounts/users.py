"""Operations on users, projects, roles, grants and tokens, and on the audit."""

from __future__ import annotations

from typing import Any

from leadline.book.spool import new_uid
from leadline.errors import LeadlineError
from leadline.server import audit
from leadline.server.accounts import devices, passwords
from leadline.server.accounts.leaving import end_all_of
from leadline.server.accounts.login import new_token
from leadline.server.accounts.passwords import digest
from leadline.server.operation import Call, Input, Operation, finder
from leadline.server.rights import GRANTABLE, NAME, RANK, ROLES

DAY_US = 86400 * 1_000_000
OLD_PASSWORDS = passwords.Throttle()  # who has come by a session must not find out the password by it
RESERVED = ("owner", "system", "schedule", "hook")  # names that the audit uses itself

USER = Input("user", "name of the account: small letters, digits, . _ -", pattern=NAME)
PROJECT = Input("project", "name of the project: small letters, digits, . _ -", pattern=NAME)


@finder("project")
def _project(call: Call, name: str) -> dict[str, Any]:
    row = call.one("select name, name as project from project where name = ?", name)
    if row is None or not _in_project(call, name):
        raise LeadlineError("not_found", f"there is no project {name}", hint="leadline user projects")
    return row


def _in_project(call: Call, name: str) -> bool:
    return call.caller.role(name) is not None


def find_account(call: Call, name: str) -> dict[str, Any]:
    row = call.one("select name, uid, admin, disabled from account where name = ?", name)
    if row is None:
        raise LeadlineError("not_found", f"there is no user {name}", hint="leadline user list")
    return row


# --- users


def _users(call: Call, _inputs: dict[str, Any]) -> Any:
    users = call.rows("select name as user, admin, disabled, totp_active as codes, created from account order by name")
    for user in users:
        for name in ("admin", "disabled", "codes"):
            user[name] = bool(user[name])
        user["roles"] = {
            r["project"]: r["role"] for r in call.rows("select project, role from member where account = ? order by project", user["user"])
        }
    return {"users": users}


def _me(call: Call, _inputs: dict[str, Any]) -> Any:
    row = call.one("select totp_active from account where name = ?", call.caller.account)
    roles = {r["project"]: r["role"] for r in _projects(call, {})["projects"]}
    return {"user": call.caller.name, "admin": call.caller.is_site_admin, "codes": bool(row and row["totp_active"]), "roles": roles}


def _create_user(call: Call, inputs: dict[str, Any]) -> Any:
    name = inputs["user"]
    call.object = name
    if name in RESERVED:
        raise LeadlineError("usage", f"{name} is a reserved name", where="user")
    if call.one("select 1 from account where name = ?", name):
        raise LeadlineError("usage", f"there is a user {name} already", where="user")
    first = call.one("select 1 from account limit 1") is None
    if first and not inputs["admin"]:
        raise LeadlineError(
            "usage", "the first user must be an administrator", hint="with users, everybody must log in: leadline user create NAME --admin"
        )
    stored = passwords.hashed(inputs["password"])
    columns, values = "name, password, admin, created, uid", (name, stored, int(inputs["admin"]), call.now, new_uid())
    call.execute(f"insert into account ({columns}) values (?, ?, ?, ?, ?)", *values)
    call.detail = {"admin": inputs["admin"]}
    return {"user": name, "admin": inputs["admin"]}


def _set_disabled(call: Call, inputs: dict[str, Any]) -> Any:
    found = find_account(call, inputs["user"])
    call.object = found["name"]
    if inputs["disabled"] and found["admin"]:
        _keep_an_admin(call, found["name"])
    call.execute("update account set disabled = ? where name = ?", int(inputs["disabled"]), found["name"])
    ended: dict[str, Any] = {}
    if inputs["disabled"]:
        call.execute("delete from session where account = ?", found["name"])
        call.execute("delete from login_link where account = ?", found["name"])
        ended = end_all_of(call, found["uid"], f"{found['name']} was disabled")
    call.detail = {"disabled": inputs["disabled"], **ended}
    return {"user": found["name"], "disabled": inputs["disabled"], **ended}


def _delete_user(call: Call, inputs: dict[str, Any]) -> Any:
    found = find_account(call, inputs["user"])
    call.object = found["name"]
    if found["admin"]:
        _keep_an_admin(call, found["name"])
    own = call.rows("select prefix from token where account = ? order by prefix", found["name"])
    revoked = revoke(call, [token["prefix"] for token in own])
    ended = end_all_of(call, found["uid"], f"{found['name']} was removed")
    call.detail = {"revoked": revoked, **ended}
    for table, column in (
        ("session", "account"),
        ("login_link", "account"),
        ("device", "account"),
        ("member", "account"),
        ("template_grant", "account"),
        ("account", "name"),
    ):
        call.execute(f"delete from {table} where {column} = ?", found["name"])
    return {"deleted": found["name"], "revoked": revoked, **ended}


def _keep_an_admin(call: Call, name: str) -> None:
    if call.one("select 1 from account where admin = 1 and disabled = 0 and name <> ? limit 1", name) is None:
        raise LeadlineError("usage", f"{name} is the last administrator", hint="make another one first")


def know_password(call: Call, stored: str | None, given: str | None, where: str, wrong: str) -> None:
    """One's own, asked again: a session that somebody left open is not enough. Raises LeadlineError."""
    apart = f"session {call.caller.session}"  # whoever has another one must not use up its tries
    OLD_PASSWORDS.check("", "", apart)
    if not passwords.matches(stored, given or ""):
        raise LeadlineError("rights", wrong, where=where)
    OLD_PASSWORDS.was_right("", "", apart)


def _set_password(call: Call, inputs: dict[str, Any]) -> Any:
    """One's own needs the old one; another's needs an administrator. Whoever had the old one keeps nothing: neither sessions nor tokens."""
    name = inputs["user"]
    call.object = name
    own = call.caller.account == name
    if not own and not call.caller.is_site_admin:
        raise LeadlineError("rights", "this needs an administrator of the server")
    if call.caller.token is not None:
        raise LeadlineError("rights", "a token cannot change a password", hint="log in")
    found = find_account(call, name)
    row = call.one("select password from account where name = ?", name)
    if own:
        know_password(call, row["password"] if row else None, inputs["old_password"], "old_password", "the old password is wrong")
    call.execute("update account set password = ? where name = ?", passwords.hashed(inputs["password"]), found["name"])
    call.execute("delete from session where account = ? and hash <> ?", found["name"], call.caller.session or "")
    devices.forget(call.store.db, found["name"])
    own_tokens = call.rows("select prefix from token where account = ? order by prefix", found["name"])
    revoked = revoke(call, [token["prefix"] for token in own_tokens])
    call.detail = {"revoked": revoked}
    return {"user": found["name"], "revoked": revoked}


# --- projects, roles, grants


def _projects(call: Call, _inputs: dict[str, Any]) -> Any:
    rows = call.rows("select name as project, created from project order by name")
    mine = [row | {"role": role} for row in rows if (role := call.caller.role(row["project"])) is not None]
    return {"projects": mine}


def _create_project(call: Call, inputs: dict[str, Any]) -> Any:
    name = inputs["project"]
    call.object = name
    if call.one("select 1 from project where name = ?", name):
        raise LeadlineError("usage", f"there is a project {name} already", where="project")
    call.execute("insert into project values (?, ?)", name, call.now)
    return {"project": name}


def _members(call: Call, inputs: dict[str, Any]) -> Any:
    return {"members": call.rows("select account as user, role from member where project = ? order by account", inputs["project"])}


def _set_role(call: Call, inputs: dict[str, Any]) -> Any:
    find_account(call, inputs["user"])
    call.execute("delete from member where project = ? and account = ?", inputs["project"], inputs["user"])
    if inputs["role"] != "none":
        call.execute("insert into member values (?, ?, ?)", inputs["project"], inputs["user"], inputs["role"])
    call.object = f"{inputs['project']}/{inputs['user']}"
    call.detail = {"role": inputs["role"]}
    return {"project": inputs["project"], "user": inputs["user"], "role": inputs["role"]}


def _grants(call: Call, _inputs: dict[str, Any]) -> Any:
    return {"grants": call.rows("select account as user, role from template_grant where template = ? order by account", call.found["uid"])}


def _set_grant(call: Call, inputs: dict[str, Any]) -> Any:
    call.need("admin", call.found["project"])
    find_account(call, inputs["user"])
    call.execute("delete from template_grant where template = ? and account = ?", call.found["uid"], inputs["user"])
    if inputs["role"] != "none":
        call.execute("insert into template_grant values (?, ?, ?)", call.found["uid"], inputs["user"], inputs["role"])
    call.detail = {"user": inputs["user"], "role": inputs["role"]}
    return {"template": call.found["uid"], "user": inputs["user"], "role": inputs["role"]}


# --- tokens


def _own_tokens(call: Call) -> tuple[str, list[str]]:
    """Those that the caller may see: its user's, of the project that a token is limited to; of an administrator all."""
    if call.caller.is_site_admin:
        return "true", []
    only = call.caller.only_project
    return ("account = ?", [call.caller.account]) if only is None else ("account = ? and project = ?", [call.caller.account, only])


def _tokens(call: Call, _inputs: dict[str, Any]) -> Any:
    mine, values = _own_tokens(call)
    return {
        "tokens": call.rows(
            "select prefix as token, account as user, name, scope, project, created, expires, used from token "
            f"where {mine} order by created desc",
            *values,
        )
    }


def _create_token(call: Call, inputs: dict[str, Any]) -> Any:
    account = inputs["user"] or call.caller.account
    call.object = account
    if not account:
        raise LeadlineError("usage", "user is missing", hint="whose rights the token has", where="user")
    if account != call.caller.account and not call.caller.is_site_admin:
        raise LeadlineError("rights", "a token for another user needs an administrator")
    if RANK[inputs["scope"]] > RANK[call.caller.scope]:
        raise LeadlineError("rights", f"your token has the scope {call.caller.scope}; it cannot create a token with a wider scope")
    project = inputs["project"]
    if call.caller.only_project not in (None, project):
        raise LeadlineError("rights", f"your token is for the project {call.caller.only_project} alone")
    if project is not None:
        _project(call, project)
    find_account(call, account)
    prefix, token = new_token()
    expires = call.now + inputs["days"] * DAY_US
    if own := call.one("select expires from token where prefix = ?", call.caller.token or ""):
        expires = min(expires, own["expires"])  # or it would never have to be given up
    call.execute(
        "insert into token (prefix, hash, account, name, scope, project, created, expires, made_by) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        prefix, digest(token), account, inputs["name"], inputs["scope"], project, call.now, expires, call.caller.token,
    )  # fmt: skip
    call.object, call.detail = (
        prefix,
        {"user": account, "name": inputs["name"], "scope": inputs["scope"], "project": project, "expires": expires},
    )
    return {"token": token, "prefix": prefix, "user": account, "scope": inputs["scope"], "project": project, "expires": expires}


# All that were made with a token, or with one of these: for others too.
DERIVED = """
    with recursive derived (prefix) as (
      select prefix from token where made_by = ?
      union select t.prefix from token t join derived d on t.made_by = d.prefix)
    select prefix from derived order by prefix"""


def _revoke_token(call: Call, inputs: dict[str, Any]) -> Any:
    mine, values = _own_tokens(call)
    row = call.one(f"select scope from token where prefix = ? and {mine}", inputs["token"], *values)
    call.object = inputs["token"]
    if row is not None and RANK[row["scope"]] > RANK[call.caller.scope]:
        raise LeadlineError("rights", f"your token has the scope {call.caller.scope}; it cannot revoke one of more")
    if row is None:
        raise LeadlineError("not_found", f"there is no token {inputs['token']}", hint="leadline token list")
    derived = [prefix for prefix in revoke(call, [inputs["token"]]) if prefix != inputs["token"]]
    call.detail = {"derived": derived}
    return {"revoked": inputs["token"], "derived": derived}


def _revoke_all(call: Call, inputs: dict[str, Any]) -> Any:
    """Of one user, or of everyone: both must be said where a slip would take the tokens of others."""
    if inputs["user"] and inputs["everyone"]:
        raise LeadlineError("usage", "either a user, or everyone", where="user")
    user = inputs["user"] or (None if inputs["everyone"] else call.caller.account)
    call.object = user or ""
    if not user and not inputs["everyone"]:
        raise LeadlineError("usage", "whose tokens?", hint="--user NAME, or --everyone", where="user")
    if user != call.caller.account and not call.caller.is_site_admin:
        raise LeadlineError("rights", "tokens of others are revoked by an administrator")
    if user:
        find_account(call, user)
    mine, values = _own_tokens(call)
    rows = call.rows(f"select prefix, scope from token where {mine} and (account = ? or ? = 1)", *values, user or "", int(not user))
    if any(RANK[row["scope"]] > RANK[call.caller.scope] for row in rows):
        raise LeadlineError("rights", f"your token has the scope {call.caller.scope}; it cannot revoke one of more")
    revoked = revoke(call, [row["prefix"] for row in rows])
    call.detail = {"everyone": not user, "revoked": revoked}
    return {"revoked": revoked}


def revoke(call: Call, tokens: list[str]) -> list[str]:
    """Deletes tokens and all that were made with them; gives the prefixes of all, in order."""
    derived = (row["prefix"] for token in tokens for row in call.rows(DERIVED, token))
    revoked = sorted({*tokens, *derived})
    for prefix in revoked:
        call.execute("delete from token where prefix = ?", prefix)
    return revoked


# --- audit


def _audit(call: Call, inputs: dict[str, Any]) -> Any:
    before = inputs["before"] or 1 << 62
    columns = "n, ts, account, token, address, operation, object, detail_json, outcome"
    return {"entries": call.rows(f"select {columns} from audit where n < ? order by n desc limit ?", before, inputs["limit"])}


def _verify(call: Call, _inputs: dict[str, Any]) -> Any:
    fault = audit.verify(call.store)
    return {"whole": not fault, "fault": fault}


PASSWORD = Input("password", f"the new password, of at least {passwords.SHORTEST} characters", "secret")
OPERATIONS = (
    Operation(
        "user.list",
        "GET",
        "/users",
        "site",
        "",
        "List the users and their roles.",
        _users,
        rows="users",
        columns=("user", "admin", "disabled", "codes", "roles", "created"),
    ),
    Operation("user.me", "GET", "/me", "anyone", "", "Show who you are here, and your role in each project.", _me),
    Operation(
        "user.create",
        "POST",
        "/users",
        "site",
        "",
        "Create a user. With the first one, everybody must log in.",
        _create_user,
        (USER, PASSWORD, Input("admin", "administrator of the server: may do everything", "bool", False, False)),
        words=("user",),
        follows="leadline user role main {user} --role runner",
    ),
    Operation(
        "user.disable",
        "PUT",
        "/users/{user}/disabled",
        "site",
        "",
        "Disable a user, or enable it again.",
        _set_disabled,
        (
            USER,
            Input(
                "disabled",
                "true: end the user's sessions, pause schedules, cancel runs that have not begun, and refuse tokens",
                "bool",
                False,
                True,
            ),
        ),
    ),
    Operation(
        "user.delete",
        "DELETE",
        "/users/{user}",
        "site",
        "",
        "Remove a user with their sessions, tokens, schedules and queued runs.",
        _delete_user,
        (USER,),
    ),
    Operation(
        "user.password",
        "PUT",
        "/users/{user}/password",
        "anyone",
        "",
        "Set a password: your own, or another's as administrator. It revokes the user's tokens.",
        _set_password,
        (USER, PASSWORD, Input("old_password", "the old password; required for your own", "secret", False)),
    ),
    Operation(
        "user.projects",
        "GET",
        "/projects",
        "anyone",
        "",
        "List the projects and your role in each.",
        _projects,
        rows="projects",
        columns=("project", "role", "created"),
    ),
    Operation("user.project", "POST", "/projects", "site", "", "Create a project.", _create_project, (PROJECT,), words=("project",)),
    Operation(
        "user.members",
        "GET",
        "/projects/{project}/members",
        "viewer",
        "project",
        "List who has which role in a project.",
        _members,
        (PROJECT,),
        rows="members",
        columns=("user", "role"),
    ),
    Operation(
        "user.role",
        "PUT",
        "/projects/{project}/members/{user}",
        "admin",
        "project",
        "Give a user a role in a project, or take it away.",
        _set_role,
        (
            PROJECT,
            USER,
            Input("role", "what the user may do: see, start, change, or administer the project", "enum", choices=(*ROLES, "none")),
        ),
    ),
    Operation(
        "user.audit",
        "GET",
        "/audit",
        "site",
        "",
        "List changes and refused attempts, newest first.",
        _audit,
        (
            Input("limit", "maximum number of entries", "int", False, 100, least=1, most=1000),
            Input("before", "entries before this number", "int", False),
        ),
        rows="entries",
        columns=("n", "ts", "account", "address", "operation", "object", "outcome", "detail_json"),
    ),
    Operation("user.verify", "GET", "/audit/verify", "site", "", "Check that no audit entry was changed or removed.", _verify),
    Operation(
        "template.grants",
        "GET",
        "/templates/{template}/grants",
        "admin",
        "template",
        "List who may see or start this template without a role in its project.",
        _grants,
        (Input("template", "id of the template, or project/name"),),
        rows="grants",
        columns=("user", "role"),
    ),
    Operation(
        "template.grant",
        "PUT",
        "/templates/{template}/grants/{user}",
        "admin",
        "template",
        "Let a user see or start one template, or take that right away.",
        _set_grant,
        (
            Input("template", "id of the template, or project/name"),
            USER,
            Input("role", "viewer: see it and its runs; runner: also start it", "enum", choices=(*GRANTABLE, "none")),
        ),
    ),
    Operation(
        "token.list",
        "GET",
        "/tokens",
        "anyone",
        "",
        "List your tokens; as administrator, those of all users.",
        _tokens,
        rows="tokens",
        columns=("token", "user", "name", "scope", "project", "created", "expires", "used"),
    ),
    Operation(
        "token.create",
        "POST",
        "/tokens",
        "anyone",
        "",
        "Create a token for programs. It is shown once.",
        _create_token,
        (
            Input("name", "what it is for"),
            Input("scope", "upper limit of its rights; it never has more than its user", "enum", False, "viewer", ROLES),
            Input("project", "limit it to this project", required=False, pattern=NAME),
            Input("days", "days until it expires", "int", False, 90, least=1, most=3650),
            Input("user", "whose rights it has", required=False, pattern=NAME),
        ),
    ),
    Operation(
        "token.revoke",
        "DELETE",
        "/tokens/{token}",
        "anyone",
        "",
        "Revoke a token, and those that were made with it.",
        _revoke_token,
        (Input("token", "the first part of the token, as `token list` shows it", pattern=r"[a-z0-9]{10}"),),
    ),
    Operation(
        "token.revoke-all",
        "DELETE",
        "/tokens",
        "anyone",
        "",
        "Revoke all your tokens, or those of a user or of everyone, including the one in use.",
        _revoke_all,
        (
            Input("user", "whose", required=False, pattern=NAME),
            Input("everyone", "those of all users", "bool", False, False),
        ),
    ),
)
