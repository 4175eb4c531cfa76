"""What is hidden in command lines, files and outputs before it is stored or shared."""

from __future__ import annotations

import re
import time

import pytest
from leadline.book.redact import is_secret, redact, redact_text
from real_names import ENVIRONMENT


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        ("host=h password=hunter2 user=u", "host=h password=*** user=u"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
        ("password='hunter 2' x", "password=*** x"),
        ('{"api_key": "hunter2", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("my-token : hunter2", "my-token : ***"),
        ("http://host/path@here", "http://host/path@here"),
        ("the secretary was here", "the secretary was here"),
        ("password", "password"),
    ],
)
def test_values_of_names_that_say_secret_are_hidden(text: str, hidden: str) -> None:
    assert redact_text(text) == hidden


def test_the_word_behind_an_option_is_hidden() -> None:
    assert redact(["x", "--db-password", "hunter2", "--token=hunter2", "-pwd", "a", "rest"]) == [
        "x", "--db-password", "***", "--token=***", "-pwd", "***", "rest"
    ]  # fmt: skip
    assert [is_secret(name) for name in ("password", "db_token", "passwords", "name")] == [True, True, False, False]


@pytest.mark.parametrize("piece", ["x", "password", "a:", "://", "password=", "-", "'", "token '"])
def test_a_long_text_of_anything_takes_no_time(piece: str) -> None:
    """A form that grows with the square of the length would take hours."""
    began = time.process_time()
    redact_text(piece * (300_000 // len(piece)))
    assert time.process_time() - began < 20


def test_what_hosts_have_is_shown_unless_it_is_a_secret() -> None:
    for name, value in ENVIRONMENT.items():
        if re.search(r"(?<!ask)(?:pass|word|pwd|token|secret)$", name, re.IGNORECASE):
            continue  # direct behind such a name, what is short or a number is hidden all the same
        assert redact_text(f"{name}={value} x") == f"{name}={value} x"
        assert not is_secret(name)
    for text in ("PWD=/srv/x make", "OLDPWD=/home", "max_token: 4096", "--max-token=4096", "pwd: /opt/app", "{\"num_token\": 5}"):
        assert redact_text(text) == text
    assert redact(["llm", "--max-token", "4096", "--token", "4711"]) == ["llm", "--max-token", "4096", "--token", "***"]
    assert [is_secret(name) for name in ("PWD", "OLDPWD", "max_token", "use_password", "MYSQL_PWD", "min_io_secret", "mytoken")] == [
        False, False, False, False, True, True, True
    ]  # fmt: skip
    assert redact_text("MYSQL_PWD=hunter2 pwd=hunter2 min_io_secret=a") == "MYSQL_PWD=*** pwd=*** min_io_secret=***"
