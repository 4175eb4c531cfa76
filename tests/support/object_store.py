"""An object store of this process that speaks S3, and files put into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "backups"
KEYS = {"AWS_ACCESS_KEY_ID": "of-a-test", "AWS_SECRET_ACCESS_KEY": "the-secret-of-a-test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class ObjectStore:
    url: str
    client: Any

    def put(self, folder: Path, prefix: str) -> str:
        """All files of a folder, also those that links lead to; the URL of what the folder is there."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())
        return f"s3://{BUCKET}/{prefix}"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """boto3 finds it by its environment variables, as leadline does."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in (KEYS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
            monkeypatch.setenv(name, value)
        try:
            client = boto3.client("s3")
            client.create_bucket(Bucket=BUCKET)
            yield ObjectStore(f"http://{host}:{port}", client)
        finally:
            server.stop()
