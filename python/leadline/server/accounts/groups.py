"""What the groups that an identity provider tells of a user give here: an account at the first login, and roles at each.

The file of the provider says it: `"roles": {"dba": {"main": "editor"}, "ops-admins": "admin"}`. Projects, and the right of an
administrator, that stand there follow the groups at each login; what does not stand there is given by hand and stays. An account that is
there already is never taken for a user of the provider because of its name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline.book.spool import new_uid
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit
from leadline.server.accounts.users import RESERVED
from leadline.server.operation import Refused
from leadline.server.rights import NAME, RANK, ROLES, Caller

ADMIN = "admin"  # of the server
FORM = '{"dba": {"main": "editor"}, "ops-admins": "admin"}'


@dataclass(frozen=True)
class Groups:
    """roles: of a group, a role in each project, or `admin` for an administrator of the server. claim, name_claim: where the provider tells
    the groups, and the name that an account gets."""

    roles: Mapping[str, Any] = field(default_factory=dict)
    claim: str = "groups"
    name_claim: str = "preferred_username"

    def check(self) -> None:
        """Raises ValueError."""
        for given in self.roles.values():
            if given == ADMIN:
                continue
            if not isinstance(given, dict) or not given:
                raise ValueError
            for project, role in given.items():
                if not re.fullmatch(NAME, project) or role not in ROLES:
                    raise ValueError

    def given(self, claims: Mapping[str, Any]) -> tuple[bool, dict[str, str]]:
        """Whether they make an administrator, and the highest role in each project. Raises Refused when the provider does not tell them."""
        if self.claim in (claims.get("_claim_names") or {}):  # Entra ID does so from 200 groups on: to have none is something else
            hint = "let it tell only the groups that are needed here"
            raise Refused(403, "rights", "the provider does not tell all your groups", hint=hint)
        told = claims.get(self.claim, [])
        mine = {told} if isinstance(told, str) else {one for one in told if isinstance(one, str)} if isinstance(told, list) else set()
        admin, roles = False, dict[str, str]()
        for group in mine & self.roles.keys():
            if self.roles[group] == ADMIN:
                admin = True
                continue
            for project, role in self.roles[group].items():
                roles[project] = max(role, roles.get(project, role), key=RANK.__getitem__)
        return admin, roles

    @property
    def projects(self) -> set[str]:
        return {project for given in self.roles.values() if given != ADMIN for project in given}


def create(store: Store, groups: Groups, claims: Mapping[str, Any], issuer: str, subject: str, address: str) -> str:
    """The name of a new account, which has no password. Raises Refused for who is in no group that has a role here."""
    admin, roles = groups.given(claims)
    if not admin and not roles:
        raise Refused(403, "rights", "none of your groups has a role here", detail=f"The provider calls you {subject}.")
    told = str(claims.get(groups.name_claim) or "").partition("@")[0].lower()
    taken = f"an administrator can link you to an account: leadline user link NAME --issuer {issuer} --subject {subject}"
    if not re.fullmatch(NAME, told) or told in RESERVED:
        raise Refused(403, "rights", f"the provider tells no name for you that an account can have: {told[:64]!r}", hint=taken)
    with store.writing() as db:
        if store.rows("select 1 from account where name = ?", (told,)):
            raise Refused(403, "rights", f"there is another user {told} here", hint=taken)
        if not admin and not store.rows("select 1 from account limit 1"):
            raise Refused(403, "rights", "the first user must be an administrator", hint="leadline user create NAME --admin")
        columns = "name, password, admin, created, uid, oidc_issuer, oidc_subject"
        values = told, None, int(admin), time.time_ns() // 1000, new_uid(), issuer, subject
        db.execute(f"insert into account ({columns}) values (?, ?, ?, ?, ?, ?, ?)", values)
        detail = {"by": "provider", "subject": subject, "admin": admin}
        audit.append(store, Caller(told, False, address=address), "user.create", told, detail, "done")
    return told


def follow(store: Store, groups: Groups, claims: Mapping[str, Any], account: str, address: str) -> None:
    """Gives the account what its groups give now, and takes what they give no more. Raises Refused for who may do nothing any more."""
    admin, roles = groups.given(claims)
    caller = Caller(account, False, address=address)
    with store.writing() as db:
        known = {row["name"] for row in store.rows("select name from project")}
        had = {row["project"]: row["role"] for row in store.rows("select project, role from member where account = ?", (account,))}
        for project in sorted(groups.projects & known):
            if roles.get(project) != had.get(project):
                db.execute("delete from member where project = ? and account = ?", (project, account))
                if project in roles:
                    db.execute("insert into member values (?, ?, ?)", (project, account, roles[project]))
                detail = {"role": roles.get(project, "none"), "by": "groups"}
                audit.append(store, caller, "user.role", f"{project}/{account}", detail, "done")
        if ADMIN in groups.roles.values():
            was = bool(store.rows("select admin from account where name = ?", (account,))[0]["admin"])
            last = not store.rows("select 1 from account where admin = 1 and disabled = 0 and name <> ? limit 1", (account,))
            if was != admin and not (was and last):  # or nobody could change anything any more
                db.execute("update account set admin = ? where name = ?", (int(admin), account))
                audit.append(store, caller, "user.admin", account, {"admin": admin, "by": "groups"}, "done")
    left = ("select 1 from account where name = ? and admin = 1", "select 1 from member where account = ?",
            "select 1 from template_grant where account = ?")  # fmt: skip
    if not any(store.rows(sql, (account,)) for sql in left):
        raise Refused(403, "rights", "none of your groups has a role here any more")


def read(given: Mapping[str, Any]) -> Groups:
    """Of the file of the provider. Raises LeadlineError."""
    try:
        groups = Groups(**given)
        if not isinstance(groups.roles, dict) or not all(isinstance(one, str) and one for one in (groups.claim, groups.name_claim)):
            raise ValueError
        groups.check()
    except (TypeError, ValueError, AttributeError):
        raise LeadlineError("invalid", "the roles of groups do not have their form", hint=f'"roles": {FORM}') from None
    return groups
