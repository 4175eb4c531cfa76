"""What commands say of backups in an object store that are not there, or that nobody may read."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import IncompleteReadError
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.store import Bucket
from leadline.files.store_path import StorePath, path_of
from object_store import BUCKET, KEYS, ObjectStore, object_store


@pytest.fixture(scope="module")
def stored() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert run([*words, "--json"]) == 2
    said = capsys.readouterr()
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in said.out + said.err
    return json.loads(said.out)["error"]


@pytest.mark.parametrize(
    "words", [["page", "check"], ["page", "check", "--all-backups"], ["rows"], ["wal", "show"]], ids=" ".join
)
def test_what_is_not_there(stored: ObjectStore, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, *words, "s3://no-such-bucket/x")
    assert (error["kind"], error["message"]) == ("not_found", "no such bucket or object")
    assert error["where"].startswith("s3://no-such-bucket/x")
    error = error_of(capsys, *words, f"s3://{BUCKET}/nothing")
    assert (error["kind"], error["where"]) == ("not_found", f"s3://{BUCKET}/nothing")
    assert error_of(capsys, *words, "s3://")["message"] == "this names no bucket"


def test_what_is_no_backup(stored: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("none")
    there = stored.put(tmp_path, "other")
    check = ["page", "check"]
    for words in ([*check, there], [*check, f"{there}/notes.txt"], ["rows", there, "t"], [*check, "--all-backups", there]):
        error = error_of(capsys, *words)
        assert error["where"].startswith(there), error


def test_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (KEYS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}).items():
        monkeypatch.setenv(name, value)
    error = error_of(capsys, "page", "check", f"s3://{BUCKET}/x")
    assert (error["kind"], error["message"]) == ("connection", "the object store cannot be reached")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no url")
    assert error_of(capsys, "page", "check", f"s3://{BUCKET}/x")["message"] == "boto3 does not accept these settings"


def test_nobody_asks(stored: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    error = error_of(capsys, "page", "check", f"s3://{BUCKET}/x")
    assert (error["kind"], error["message"]) == ("rights", "no credentials for the object store")
    assert "AWS_PROFILE" in error["hint"]


def test_somebody_who_may_not(stored: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    def let_pass(requests: bytes) -> None:
        """So many of which it does not look who asks."""
        asked = urllib.request.Request(f"{stored.url}/moto-api/reset-auth", data=requests, headers={"Content-Type": "text/plain"})
        urllib.request.urlopen(asked).close()

    let_pass(b"0")
    try:
        error = error_of(capsys, "page", "check", f"s3://{BUCKET}/x")
    finally:
        let_pass(b"inf")
    assert (error["kind"], error["message"]) == ("rights", "the object store denies access")
    assert "s3:ListBucket" in error["hint"]


def test_without_boto3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    assert error_of(capsys, "page", "check", f"s3://{BUCKET}/x")["hint"] == "pip install leadline[s3]"


def test_an_object_that_was_replaced_is_not_read_on(stored: ObjectStore) -> None:
    """Half of the one and half of the other would be neither."""
    stored.client.put_object(Bucket=BUCKET, Key="changing/file", Body=b"0123456789")
    bucket = Bucket(BUCKET)
    assert bucket.folder("changing") == [("file", 10)] and bucket.read("changing/file", 2, 3) == b"234"
    stored.client.put_object(Bucket=BUCKET, Key="changing/file", Body=b"abcdefghij")
    with pytest.raises(LeadlineError, match="the object was replaced while it was read"):
        bucket.read("changing/file", 5, 3)


@pytest.mark.parametrize("breaks", [3, 4])
def test_an_answer_that_breaks_off_is_asked_for_again(stored: ObjectStore, breaks: int) -> None:
    class Breaking:
        asked = 0

        def get_object(self, **of: str) -> dict[str, Breaking]:
            assert of["Range"] == "bytes=5-7"
            return {"Body": self}

        def read(self) -> bytes:
            self.asked += 1
            if self.asked <= breaks:
                raise IncompleteReadError(actual_bytes=1, expected_bytes=3)
            return b"234"

    bucket = Bucket(BUCKET)
    bucket._client = Breaking()
    if breaks < 4:
        assert bucket.read("k", 5, 3) == b"234"
    else:
        with pytest.raises(LeadlineError, match="the object store cannot be reached"):
            bucket.read("k", 5, 3)
    assert bucket._client.asked == 4


def test_long_folders_come_in_pages(stored: ObjectStore) -> None:
    """A store gives 1000 names at once, or fewer if it is asked so."""
    for number in range(25):
        stored.client.put_object(Bucket=BUCKET, Key=f"many/{number:04}", Body=b"x")
    stored.client.put_object(Bucket=BUCKET, Key="many/", Body=b"")  # as consoles make folders
    bucket, asked = Bucket(BUCKET), []
    bucket._client.meta.events.register("provide-client-params.s3.ListObjectsV2", lambda params, **_: params | {"MaxKeys": 10})
    bucket._client.meta.events.register("before-call.s3.ListObjectsV2", lambda params, **_: asked.append(params))
    assert bucket.folder("many") == [(f"{number:04}", 1) for number in range(25)] and len(asked) == 3


def test_names_come_as_they_are(stored: ObjectStore) -> None:
    """Stores and clients have taken each of these for another."""
    names = ["a b", "a+b", "a%20b", "a&b=c", "å", "a'b", "100%"]
    for name in names:
        stored.client.put_object(Bucket=BUCKET, Key=f"odd {name}/{name}", Body=name.encode())
    bucket = Bucket(BUCKET)
    for name in names:
        size = len(name.encode())
        assert bucket.has(f"odd {name}") and bucket.folder(f"odd {name}") == [(name, size)]
        assert bucket.read(f"odd {name}/{name}", 0, size) == name.encode()


def addressed(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> str:
    for name, value in (KEYS | {"AWS_ENDPOINT_URL": endpoint}).items():
        monkeypatch.setenv(name, value)
    signed: str = Bucket(BUCKET)._client.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": "k"})
    return signed.partition("?")[0]


def test_how_a_bucket_is_addressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most stores know only the one form, some only the other; whoever has set it, has it."""
    config = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert addressed(monkeypatch, "https://minio.example.org:9000") == f"https://minio.example.org:9000/{BUCKET}/k"
    config.write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    assert addressed(monkeypatch, "https://minio.example.org:9000") == f"https://{BUCKET}.minio.example.org:9000/k"


def test_a_path_of_a_store_stays_one() -> None:
    path = path_of("s3://bucket/a//b/")
    assert isinstance(path, StorePath) and str(path) == "s3://bucket/a/b" == str(path.absolute())
    assert str(path / "c") == "s3://bucket/a/b/c" and (path.bucket, path.key) == ("bucket", "a/b")
    assert type(path_of("/a/b")) is type(Path("/a/b"))
