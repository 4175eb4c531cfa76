"""Templates with a git repository: the commit that was asked for, noted in the run; and what git must never be given."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from leadline.book.checkout import check
from leadline.errors import LeadlineError
from serving import Client, Served, serving, wait_until


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Its folder, and the ids of its two commits: the first is tagged v1, the second is on main and on work/next."""
    if shutil.which("git") is None:
        no_oracle("git is not installed")
    folder, commits = tmp_path_factory.mktemp("repository"), []
    git(folder, "init", "--quiet")
    for text in ("first", "second"):
        (folder / "load.txt").write_text(f"{text}\n")
        git(folder, "add", "load.txt")
        git(folder, "commit", "--quiet", "-m", text)
        commits.append(git(folder, "rev-parse", "HEAD"))
        if text == "first":
            git(folder, "tag", "v1")
    git(folder, "branch", "work/next")
    return folder, commits


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("checkout")) as served:
        yield served


def run(client: Client, name: str, **spec: Any) -> dict[str, Any]:
    """A run of such a template, when it has ended."""
    saved = client.call("PUT", f"/projects/main/templates/{name}", **spec)
    assert saved.status == 200, saved.text
    uid = client.call("POST", f"/templates/{saved.json['template']}/start", inputs={}).json["run"]

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = client.call("GET", f"/runs/{uid}").json["run"]
        return found if found["status"] in ("ok", "failed", "lost", "refused") else None

    found: dict[str, Any] = wait_until(ended, "the run")
    return found


@pytest.mark.parametrize(("ref", "at"), [("main", 1), ("work/next", 1), ("v1", 0), ("commit", 0), (None, 1)])
def test_the_commit_that_was_asked_for_is_there_and_noted(
    served: Served, repository: tuple[Path, list[str]], ref: str | None, at: int
) -> None:
    client, (folder, commits) = served.client(), repository
    about = {"url": str(folder)} | ({} if ref is None else {"ref": commits[0] if ref == "commit" else ref})
    done = run(client, f"cat-{ref}".replace("/", "-"), command="cat load.txt", repository=about)
    output = client.get(f"/api/v1/runs/{done['uid']}/output").text
    assert (done["status"], done["argv"], done["labels"]) == ("ok", ["cat", "load.txt"], {"commit": commits[at]}), output
    assert output.splitlines()[-1] == ("first", "second")[at]
    assert commits[at] in output
    work = served.book / "work" / done["uid"]
    assert (work / "load.txt").exists()
    if ref is None:
        served.do("book", "prune", "--keep", "0")
        assert not work.exists()


MISSING = [({"ref": "nothing"}, "the repository has no nothing"), ({"url": "/nowhere"}, "git clone ended")]


@pytest.mark.parametrize(("about", "said"), MISSING)
def test_what_is_not_there_is_a_run_that_failed(
    served: Served, repository: tuple[Path, list[str]], about: dict[str, str], said: str
) -> None:
    done = run(served.client(), "missing", command="cat load.txt", repository={"url": str(repository[0])} | about)
    assert (done["status"], done["rc"], done["labels"]) == ("failed", 128, {})
    assert said in served.client().get(f"/api/v1/runs/{done['uid']}/output").text


SSH = """#!/bin/sh
for word; do [ "$before" = -i ] && cp "$word" {seen}; before=$word; done
printf '%s\\n' "$@" > {seen}.words
exec git-upload-pack {folder}
"""


def test_the_key_of_a_repository_is_for_its_checkout_alone(
    tmp_path_factory: pytest.TempPathFactory, repository: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ssh that keeps what it was given, and is the other side itself."""
    tmp_path = tmp_path_factory.mktemp("keys")
    (tmp_path / "bin").mkdir()
    seen, ssh = tmp_path / "seen", tmp_path / "bin" / "ssh"
    ssh.write_text(SSH.format(seen=seen, folder=repository[0]))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with serving(tmp_path) as served:
        client = served.client()
        client.call("POST", "/secrets/key")
        client.call("PUT", "/projects/main/secrets/deploy", value="a private key\nof two lines")
        about = {"url": "git@git.example:load.git", "ref": "main", "key": "deploy"}
        command = "sh -c 'cat load.txt; env | grep SSH_COMMAND; cat /dev/shm/leadline-*/*/key /tmp/leadline-*/*/key'"
        done = run(client, "keyed", command=command, repository=about)
        output = client.get(f"/api/v1/runs/{done['uid']}/output").text
        assert seen.read_text() == "a private key\nof two lines\n"
        words = Path(f"{seen}.words").read_text()
        assert "BatchMode=yes\n-oIdentitiesOnly=yes\n-i\n" in words
        assert "git@git.example\n" in words
        assert "second" in output.splitlines()
        assert "private key" not in output
        assert "IdentitiesOnly" not in output
        missing = run(client, "unkeyed", command="true", repository=about | {"key": "nowhere"})
        assert (missing["status"], missing["summary"]) == ("refused", "there is no secret nowhere in main")
        assert client.call("PUT", "/projects/main/templates/bad", command="true", repository=about | {"key": "a/b"}).status == 422


REFUSED = (
    ("--upload-pack=touch /tmp/x", "main"), ("-u", "main"), ("ext::sh -c id", "main"), ("https://u:p@host/x", "main"),
    ("relative/path", "main"), ("file:x", "main"), ("https://host/a b", "main"), ("ftp://host/x", "main"),
    ("ssh://-oProxyCommand=id/x", "main"), ("git@-oProxy:x\n", "main"), ("/srv/x", "--upload-pack=id"), ("/srv/x", "-b"),
    ("/srv/x", "a..b"), ("/srv/x", "main@{1}"), ("/srv/x", "x y"), ("/srv/x", ""), ("/srv/x", "$(id)"), ("/srv/x", "a:b"),
)  # fmt: skip


@pytest.mark.parametrize(("url", "ref"), REFUSED)
def test_what_git_could_take_for_something_else_is_refused(served: Served, url: str, ref: str) -> None:
    with pytest.raises(LeadlineError):
        check(url, ref)
    answer = served.client().call(
        "PUT", "/projects/main/templates/bad", command="true", repository={"url": url, "ref": ref}
    )
    assert answer.status == 422, answer.text


@pytest.mark.parametrize("url", ["https://git.example/x.git", "ssh://git@host:22/x", "git@host.example:team/x.git", "/srv/x", "file:///srv/x"])
def test_addresses_of_repositories_are_taken(url: str) -> None:
    check(url, "release/7.2")


@pytest.mark.parametrize("more", [{"folder": "/srv"}, {"repository": {"ref": "main"}}, {"repository": {"url": "/x", "odd": "1"}}], ids=str)
def test_a_repository_that_cannot_be_meant_is_refused(served: Served, more: dict[str, Any]) -> None:
    spec = {"command": "true", "repository": {"url": "/srv/x", "ref": "main"}} | more
    assert served.client().call("PUT", "/projects/main/templates/bad", **spec).status == 422


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
