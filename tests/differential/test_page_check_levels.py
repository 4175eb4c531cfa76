"""leadline page check --level: what is compared, and how it is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from conftest import Server
from damages.cluster import ALL, create, files
from damages.pages import Made
from leadline.capture.reader import open_capture
from leadline.cli import run
from recovery import ChecksummedServer, loaded


@pytest.fixture(scope="module")
def damaged() -> Iterator[tuple[Server, Made]]:
    """A B-tree of which one left link is wrong."""
    damage = next(of for of in ALL if (of.category, of.name) == ("B-tree", "left link"))
    with loaded(18, ChecksummedServer, fsync="off") as server:
        with server.connect() as db:
            create(db, "shop", damage.template)
            made = Made("shop", files(db, server.private.data_dir, "shop", damage.template))
            db.execute("checkpoint")
        server.private.stop()
        damage.do(made, Random(1))
        yield server, made


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, object]], dict[str, object]]:
    outcome = run(["page", "check", *words, "--json"])
    found = json.loads(capsys.readouterr().out)
    return outcome, found["problems"], found["summary"]


def test_one_file_is_compared_by_itself(damaged: tuple[Server, Made], capsys: pytest.CaptureFixture[str]) -> None:
    _, made = damaged
    outcome, found, summary = checked(capsys, str(made.files["btree"]))
    assert (outcome, summary["level"], summary["relations"]) == (1, "structure", 1)
    assert {problem["class"] for problem in found} == {"sibling"}
    for problem in found:
        assert (problem["kind"], problem["path"], problem["sure"]) == ("relation", str(made.files["btree"]), "certain")
        assert problem["relation"] == "public.shop_0"
        assert problem["means"] and f"block {made.written[0][1]}" in str(problem["message"])


def test_a_whole_data_directory_is_when_asked(damaged: tuple[Server, Made], capsys: pytest.CaptureFixture[str]) -> None:
    server, _ = damaged
    data = str(server.private.data_dir)
    assert checked(capsys, data)[:2] == (0, [])
    outcome, found, summary = checked(capsys, data, "--level", "values")
    assert outcome == 1 and {problem["class"] for problem in found} == {"sibling"}
    relations = summary["relations"]
    assert isinstance(relations, int) and relations > 300
    assert run(["page", "check", data, "--level", "structure"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"problems: {len(found)} sibling" and f"structure of {relations} relations checked" in said


def test_problems_are_a_table(damaged: tuple[Server, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, made = damaged
    out = tmp_path / "found.leadline"
    assert run(["page", "check", str(made.files["btree"]), "-o", str(out)]) == 1
    printed = [line for line in capsys.readouterr().out.splitlines() if ": sibling: " in line]
    capture = open_capture(out)
    rows = capture.rows("select path, relation, block, item, kind, class, means, sure from page_problem order by block")
    capture.close()
    assert len(rows) == len(printed) > 0
    assert {(row["kind"], row["class"], row["item"], row["sure"]) for row in rows} == {("relation", "sibling", None, "certain")}
    assert all(row["means"] and row["relation"] == "public.shop_0" and ": public.shop_0: " in printed[0] for row in rows)
    assert {row["path"] for row in rows} == {str(made.files["btree"])}
    assert run(["page", "check", str(made.files["btree"]), "-o", str(out)]) == 2
    assert "--force" in capsys.readouterr().err


def test_a_file_without_catalogs_is_checked_page_by_page(
    damaged: tuple[Server, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, made = damaged
    alone = Path(shutil.copy(made.files["btree"], tmp_path / "16384"))
    outcome, found, summary = checked(capsys, str(alone))
    assert (outcome, found, summary["level"]) == (0, [], "pages")
    assert run(["page", "check", str(alone), "--level", "structure"]) == 2
    assert "relations are compared through the catalogs of a data directory" in capsys.readouterr().err


def test_a_map_is_checked_page_by_page(damaged: tuple[Server, Made], capsys: pytest.CaptureFixture[str]) -> None:
    _, made = damaged
    outcome, found, summary = checked(capsys, str(made.files["table"].with_name(made.files["table"].name + "_fsm")))
    assert (outcome, found, summary["level"], summary["not_compared"]) == (0, [], "pages", {})


def test_a_file_of_no_relation_is_only_told_where_no_level_was_asked_for(
    damaged: tuple[Server, Made], capsys: pytest.CaptureFixture[str]
) -> None:
    _, made = damaged
    left = made.files["btree"].with_name("999999")
    shutil.copy(made.files["btree"], left)
    try:
        outcome, found, summary = checked(capsys, str(left))
        assert (outcome, found) == (0, []) and "no relation of its database uses this file now" in str(summary["not_compared"])
        assert run(["page", "check", str(left), "--level", "structure"]) == 2
        assert "no relation of its database uses this file now" in capsys.readouterr().err
    finally:
        left.unlink()


def test_levels_are_not_for_many_backups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["page", "check", "--all-backups", str(tmp_path), "--level", "values"]) == 2
    assert "--all-backups takes no --level" in capsys.readouterr().err
