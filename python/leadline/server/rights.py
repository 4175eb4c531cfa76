"""Roles, and what a caller has of them: by membership in a project, or by a grant for one template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROLES = ("viewer", "runner", "editor", "admin")
RANK = {role: rank for rank, role in enumerate(ROLES)}
GRANTABLE = ("viewer", "runner")  # for one template
NAME = r"[a-z0-9][a-z0-9._-]{0,63}"  # of accounts, projects, secrets and hooks


@dataclass(frozen=True)
class Caller:
    """Who asks. account "": the owner of the book himself, at the shell or on a loopback server without users.

    scope and only_project: the limits of the token that was used, if one was.
    """

    account: str = ""
    is_admin: bool = True
    scope: str = "admin"
    only_project: str | None = None
    token: str | None = None
    session: str | None = None
    address: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    grants: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""

    @property
    def identity(self) -> str:
        """What tells this user from others that had the name before, or get it later."""
        return self.uid or ("" if self.account else "owner")

    @property
    def name(self) -> str:
        return self.account or "owner"

    @property
    def sees_all(self) -> bool:
        """Runs of no project yet, too."""
        return self.is_admin and self.only_project is None

    @property
    def is_site_admin(self) -> bool:
        return self.sees_all and self.scope == "admin"

    def role(self, project: str | None, template: str | None = None) -> str | None:
        """The role for what belongs to a project and perhaps a template. None: it does not exist for this caller."""
        if self.only_project is not None and project != self.only_project:
            return None
        if self.is_admin:
            return self.scope
        if project is None:
            return None
        found = [role for role in (self.members.get(project), self.grants.get(template or "")) if role is not None]
        return min(max(found, key=RANK.__getitem__), self.scope, key=RANK.__getitem__) if found else None

    def may(self, right: str, project: str | None, template: str | None = None) -> bool:
        role = self.role(project, template)
        return role is not None and RANK[role] >= RANK[right]

    def scopes(self) -> tuple[list[str], list[str]]:
        """Projects of which this caller sees all, and templates of others of which it sees the runs. Not for who sees all."""
        if self.is_admin:
            return [self.only_project or ""], []
        projects = [project for project in self.members if self.only_project in (None, project)]
        return projects, list(self.grants)

    def each_visible(self) -> list[tuple[str, list[Any]]]:
        """Conditions on run, of which those that this caller may see meet at least one. Each is served by an index of its own."""
        if self.sees_all:
            return [("true", [])]
        projects, templates = self.scopes()
        within, more = (" and run.project is not null", []) if self.only_project is None else (" and run.project = ?", [self.only_project])
        return [("run.project = ?", [project]) for project in projects] + [
            (f"run.template = ?{within}", [template, *more]) for template in templates
        ]

    def visible(self, table: str = "") -> tuple[str, tuple[Any, ...]]:
        """SQL that is true for rows with columns project and template that this caller may see.

        It is a filter of rows that are found by something else, and no index is taken for it: it may let nearly all rows pass.
        """
        if self.sees_all:
            return "true", ()
        dot = f"{table}." if table else ""
        projects, templates = self.scopes()
        parts, values = [], list[Any]()
        if projects:
            parts.append(f"coalesce({dot}project, '') in ({marks(projects)})")
            values += projects
        if templates:
            within = f" and coalesce({dot}project, '') {'<>' if self.only_project is None else '='} ?"
            parts.append(f"(coalesce({dot}template, '') in ({marks(templates)}){within})")
            values += [*templates, self.only_project or ""]
        return f"({' or '.join(parts)})" if parts else "false", tuple(values)


def marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


OWNER = Caller()
