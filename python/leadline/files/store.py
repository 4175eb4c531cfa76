"""Backups in an object store, s3://BUCKET/KEY, read in place: folders are listed and ranges of objects are read as they are needed.

boto3 finds out which store it is, and who asks: AWS_ENDPOINT_URL, AWS_PROFILE, AWS_ACCESS_KEY_ID, the role of the host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from threading import Lock
from typing import Any

from leadline._core.backups import mount
from leadline.errors import LeadlineError
from leadline.figures import one_line
from leadline.files.store_path import SCHEME, StorePath, path_of

ATTEMPTS = 4  # to read a range
_RIGHTS = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403")
_mounted: dict[str, Bucket] = {}
_mounting = Lock()


def reachable(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Makes paths of stores readable, as they are now; those of this host are already. Raises LeadlineError where there is nothing, or
    it cannot be seen."""
    stored = [path for path in map(path_of, paths) if isinstance(path, StorePath)]
    with _mounting:
        for path in stored:
            _mounted.pop(path.bucket, None)  # what was listed before
    for path in stored:
        if not _bucket(path).has(path.key):
            hint = "name the folder of a backup as its tool keeps it: s3://BUCKET/PREFIX/..."
            raise LeadlineError("not_found", "no object has this name, and none is below it", hint=hint, where=str(path))


def still_reachable(path: str) -> None:
    """The same in a process in which it may be already. Raises LeadlineError."""
    place = path_of(path)
    if isinstance(place, StorePath):
        _bucket(place)


def state_of(path: str) -> list[int]:
    """Size and time of change (ns since 1970) of a file; empty if there is none."""
    place = path_of(path)
    if isinstance(place, StorePath):
        return _bucket(place).state(place.key)
    try:
        about = place.stat()
    except OSError:
        return []
    return [about.st_size, about.st_mtime_ns]


def _bucket(path: StorePath) -> Bucket:
    if not path.bucket:
        raise LeadlineError("usage", "this names no bucket", hint="s3://BUCKET/PREFIX/...", where=str(path))
    with _mounting:
        if path.bucket not in _mounted:
            bucket = Bucket(path.bucket)
            mount(SCHEME + path.bucket, bucket.folder, bucket.read)
            _mounted[path.bucket] = bucket
        return _mounted[path.bucket]


class Bucket:
    """Used by several threads. Raises LeadlineError."""

    def __init__(self, name: str) -> None:
        self.name, self._client = name, _client()
        self._seen: dict[str, dict[str, Any]] = {}  # objects of folders that were listed

    def folder(self, folder: str) -> list[tuple[str, int | None]]:
        """What is in it: names, and how long an object is; None of a folder."""
        prefix = folder.rstrip("/") + "/" if folder else ""
        found: list[tuple[str, int | None]] = []
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            found += [(about["Prefix"][len(prefix) : -1], None) for about in page.get("CommonPrefixes", ())]
            for about in page.get("Contents", ()):
                if name := about["Key"][len(prefix) :]:  # else it stands for the folder
                    self._seen[about["Key"]] = about
                    found.append((name, about["Size"]))
        return found

    def read(self, key: str, at: int, size: int) -> bytes:
        """So many bytes of an object from there on, of the object that was listed: not of one that has replaced it."""
        if size == 0:
            return b""
        same = {"IfMatch": self._seen[key]["ETag"]} if key in self._seen else {}
        asked = {"Bucket": self.name, "Key": key, "Range": f"bytes={at}-{at + size - 1}"} | same
        return bytes(self._asked(lambda: self._body(asked), key))

    def _body(self, asked: dict[str, Any]) -> Any:
        """boto3 asks again when no answer comes, and not when an answer breaks off."""
        from botocore.exceptions import IncompleteReadError, ReadTimeoutError, ResponseStreamingError

        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._client.get_object(**asked)["Body"].read()
            except (IncompleteReadError, ReadTimeoutError, ResponseStreamingError):
                if attempt == ATTEMPTS:
                    raise

    def has(self, key: str) -> bool:
        """An object, or some whose names begin so and go on with a slash."""
        if not key:
            return True
        [page] = self._pages(Prefix=key, MaxKeys=1, Delimiter="/", most=1)
        [below] = self._pages(Prefix=key + "/", MaxKeys=1, most=1)
        return any(about["Key"] == key for about in page.get("Contents", ())) or bool(below.get("Contents"))

    def state(self, key: str) -> list[int]:
        [page] = self._pages(Prefix=key, MaxKeys=1, most=1)
        found = [about for about in page.get("Contents", ()) if about["Key"] == key]
        return [found[0]["Size"], round(found[0]["LastModified"].timestamp() * 1e9)] if found else []

    def _pages(self, most: int | None = None, **asked: Any) -> list[dict[str, Any]]:
        def ask() -> list[dict[str, Any]]:
            pages: list[dict[str, Any]] = []
            more: dict[str, Any] = {}
            while True:
                pages.append(self._client.list_objects_v2(Bucket=self.name, **asked, **more))
                if not pages[-1].get("IsTruncated") or len(pages) == most:
                    return pages
                more = {"ContinuationToken": pages[-1]["NextContinuationToken"]}

        pages: list[dict[str, Any]] = self._asked(ask, asked["Prefix"])
        return pages

    def _asked(self, ask: Any, key: str) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        where = f"{SCHEME}{self.name}/{key}"
        try:
            return ask()
        except (NoCredentialsError, PartialCredentialsError) as e:
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            raise LeadlineError("rights", "no credentials for the object store", one_line(str(e)), hint, where) from None
        except ClientError as e:
            code = str(e.response.get("Error", {}).get("Code", ""))
            told = one_line(str(e))
            if code in _RIGHTS:
                hint = "s3:ListBucket of the bucket and s3:GetObject of its objects are needed"
                raise LeadlineError("rights", "the object store denies access", told, hint, where) from None
            if code == "InvalidObjectState":
                hint = "restore it in the store first, for as long as it is read"
                raise LeadlineError("unsupported", "the object is in an archive class of the store", told, hint, where) from None
            if code in ("PreconditionFailed", "412"):
                raise LeadlineError("gone", "the object was replaced while it was read", told, where=where) from None
            if code in ("NoSuchBucket", "NoSuchKey", "404"):
                raise LeadlineError("not_found", "no such bucket or object", told, where=where) from None
            raise LeadlineError("connection", "the object store answers with an error", told, where=where) from None
        except BotoCoreError as e:
            hint = "for a store that is not Amazon's: AWS_ENDPOINT_URL=https://HOST:PORT"
            raise LeadlineError("connection", "the object store cannot be reached", one_line(str(e)), hint, where) from None


def _client() -> Any:
    try:
        import botocore.session
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise LeadlineError("usage", "reading s3:// needs boto3, which is not installed", hint="pip install leadline[s3]") from None
    try:
        known = botocore.session.get_session()
        session = Session(botocore_session=known)
        client = session.client("s3")
        configured = known.get_scoped_config().get("s3")
        if ".amazonaws." in client.meta.endpoint_url or (isinstance(configured, dict) and "addressing_style" in configured):
            return client
        # Others rarely have a host name for each bucket.
        return session.client("s3", config=Config(s3={"addressing_style": "path"}))
    except (BotoCoreError, ValueError) as e:
        hint = "check AWS_ENDPOINT_URL and AWS_PROFILE"
        raise LeadlineError("usage", "boto3 does not accept these settings", one_line(str(e)), hint) from None
