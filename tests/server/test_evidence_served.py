"""Evidence that is checked over REST and on its page: the same that `leadline book verify` says, within the bounds of a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.operation import perform
from leadline.server.read import runs, sandbox
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME
from serving import Served, serving, wait_until


@pytest.fixture
def store(place: Place) -> Store:
    return Store(place)


def taken_in(place: Place, store: Store) -> None:
    ingest(place, store)
    runs.assign(store)


def verified(place: Place, store: Store, uid: str) -> dict[str, Any]:
    answer: dict[str, Any] = perform(BY_NAME["run.verify"], OWNER, store, place, {"run": uid})
    return answer


def test_a_changed_byte_is_found_on_both_stores(place: Place, store: Store, tmp_path: Path) -> None:
    recorder = Recorder(place)
    recorder.begin("command", "makes", ["true"])
    made = Path(os.path.realpath(tmp_path)) / "made.txt"
    made.write_text("as it was")
    recorder.artifact("file", made)
    with pytest.raises(LeadlineError, match="has not ended"):
        taken_in(place, store)
        verified(place, store, recorder.uid)
    recorder.end(0)
    taken_in(place, store)
    check = {"run": recorder.uid, "what": "file", "name": str(made), "state": "ok", "detail": ""}
    assert verified(place, store, recorder.uid) == {"run": recorder.uid, "checks": [check], "differing": 0}
    made.write_text("as it wax")
    check |= {"state": "changed", "detail": "as many bytes as before, but others"}
    assert verified(place, store, recorder.uid) == {"run": recorder.uid, "checks": [check], "differing": 1}
    store.close()


def experiment(place: Place, store: Store, *, metric: str = "v=(.*)", trial: str = "") -> str:
    """An experiment as a spool may say it; its trial printed something, or is another run."""
    recorder = Recorder(place)
    recorder.begin("experiment", "forged", ["x"])
    uid = recorder.uid
    if not trial:
        part = Recorder(place)
        part.begin("leg", "forged: baseline", ["x"], parent=uid)
        place.log_of(part.uid).write_text("a" * 40 + "!\n")
        part.end(0)
        trial = part.uid
    texts = {"baseline": "x", "variant": "y", "metric": metric, "better": "less"} | dict.fromkeys(("hypothesis", "prepare", "folder"), "")
    design = {**texts, "pairs": 1, "order": "BV", "seed": 1, "warmup": 0, "margin": 0.1, "keep_going": False}
    recorder.event("experiment.design", design=json.dumps(design), question="q", registered=1, seal="s", earlier=[])
    recorder.event("experiment.leg", part="leg", number=0, side="baseline", leg=trial, started=2, value=1.5, problem="")
    recorder.end(0)
    taken_in(place, store)
    return uid


def test_a_pattern_that_takes_for_ever_is_ended(place: Place, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PATIENCE_S", 3)
    uid = experiment(place, store, metric="(a+)+$")
    with pytest.raises(LeadlineError) as told:
        verified(place, store, uid)
    store.close()
    assert told.value.message == "the evidence cannot be read within the bounds of a server (2 GB, 3 s)"
    assert told.value.hint == "leadline book verify RUN has no such bounds"


def test_of_a_run_that_is_no_part_nothing_is_said(place: Place, store: Store) -> None:
    """A forged trial must not tell what another run has measured."""
    other = Recorder(place)
    other.begin("command", "other", ["true"])
    other.end(0)
    uid = experiment(place, store, metric="seconds", trial=other.uid)
    found = {check["what"]: (check["state"], check["detail"]) for check in verified(place, store, uid)["checks"]}
    store.close()
    assert found["trial"] == ("changed", "its run is no part of this experiment")
    assert other.uid[:5] not in found["design"][1]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("evidence")) as served:
        yield served


def test_rest_page_and_shell_say_the_same(served: Served) -> None:
    served.record("seq", "1", "5000", name="prints")
    client = served.client()
    [run] = wait_until(lambda: client.call("GET", "/runs?name=prints&status=ok").json["runs"], "the run")
    log = served.book / "logs" / f"{run['uid']}.log"
    for changes, state in ((False, "ok"), (True, "changed")):
        if changes:
            log.write_bytes(log.read_bytes().replace(b"777", b"778"))
        answer = client.call("GET", f"/runs/{run['uid']}/evidence").json
        assert [(check["what"], check["state"]) for check in answer["checks"]] == [("output", state)]
        shell = json.loads(served.leadline("book", "verify", run["uid"], "--json").stdout)
        assert (shell["checks"], shell["differing"]) == (answer["checks"], answer["differing"])
        assert client.get(f"/runs/{run['uid']}/evidence.json").json == answer
        page = client.get(f"/runs/{run['uid']}/evidence")
        assert (f"{1 - changes} of 1 are as recorded" in page.text, "1 differs" in page.text) == (True, changes)
    assert f'href="/runs/{run["uid"]}/evidence"' in client.get(f"/runs/{run['uid']}").text


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
