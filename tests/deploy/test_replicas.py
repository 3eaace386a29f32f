"""Two replicas behind nginx share an index in PostgreSQL: each answers from what the other indexed; restarts lose no request, and a kill loses few."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import psycopg
import pytest

from graph.build.lifecycle import index_status, verify_index
from graph.postgres.connect import dsn_of
from graph.store.index_settings import DATABASE_FILE as DATABASE
from graph.types import Document
from tests.corpora import guild_documents
from tests.deploy.cluster import Cluster, LoggedRequest, Replica, running_cluster
from tests.deploy.crowd import READ_ONLY_KINDS, Outcome, running_clients
from tests.postgres_server import fresh_database
from tests.processes import until

CLIENTS = 20
VISIBLE_WITHIN_S = 2.0
pytestmark = [pytest.mark.machines, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster for all tests of this file; each test must leave both replicas running."""
    with (
        fresh_database(postgres, "replicas") as dsn,
        running_cluster(dsn, tmp_path_factory.mktemp("replicas")) as running,
    ):
        yield running


def upload(replica: Replica, *documents: Document) -> dict[str, object]:
    rows = [{"source": each.source, "title": each.title, "text": each.text} for each in documents]
    response = replica.post("/v1/documents", json={"documents": rows})
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


def answers_from(replica: Replica, document: Document) -> bool:
    """Whether the prompt for a question that is the document's text also contains the document as a passage, and thus this text twice."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": document.text}]}
    response = replica.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return any(str(each["messages"]).count(document.text) > 1 for each in replica.model.requests)


def test_a_document_uploaded_to_one_replica_is_used_by_the_other(cluster: Cluster) -> None:
    took = []
    for number in range(6):
        here, there = cluster.replicas[number % 2], cluster.replicas[1 - number % 2]
        gull = Document(f"gull{number}", f"Gull {number}", f"Gull Rock number {number} was lit by Ines Vaar.")
        upload(here, gull)
        uploaded_s = time.monotonic()
        until(lambda there=there, gull=gull: answers_from(there, gull), 60)  # type: ignore[misc]
        took.append(time.monotonic() - uploaded_s)
    print(f"visible to the other replica after {', '.join(f'{each:.2f}' for each in took)} s")
    if os.environ.get("MODEGRAPH_TIMES"):
        assert max(took) < VISIBLE_WITHIN_S


def test_documents_uploaded_to_both_replicas_simultaneously_are_indexed_once(cluster: Cluster) -> None:
    documents = guild_documents()[:6]
    before = index_status(cluster.index)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda pair: upload(*pair), [(one, each) for each in documents for one in cluster.replicas]))
    after = index_status(cluster.index)
    assert after.rows["documents"] == before.rows["documents"] + len(documents)
    assert before.generation < after.generation <= before.generation + 2 * len(documents)
    with psycopg.connect(dsn_of(cluster.index)) as connection:
        statement = 'SELECT count(*), count(DISTINCT (source, "start", "end")) FROM modegraph_index.passages'
        passages, different = connection.execute(statement).fetchone() or (0, 1)
        assert passages == different >= after.rows["documents"]
        assert connection.execute("SELECT count(*) FROM modegraph_index.leases").fetchone() == (0,), (
            "all leases should be released"
        )
    until(lambda: {each.get("/ready").json()["index"] for each in cluster.replicas} == {after.identity}, 60)
    assert after.unfinished == "" and verify_index(cluster.index) == []


def test_a_killed_replica_loses_only_the_requests_that_it_was_processing(cluster: Cluster) -> None:
    first = cluster.replicas[0]
    with running_clients(cluster.url, CLIENTS) as outcomes:
        until(lambda: len(outcomes) > 4 * CLIENTS and first.model.running > 1, 60)
        killed_at = time.time()
        first.kill()
        before = len(outcomes)
        until(lambda: len(outcomes) > before + 4 * CLIENTS, 60)
        first.start()
        until(
            lambda: any(each.replicas == (address(first),) for each in requests_since(cluster, time.time() - 0.5)),
            60,
        )
    logged = cluster.logged_requests()
    failed = [each for each in outcomes if each.problem]
    print(f"{len(outcomes)} requests, {len(failed)} failed, {Counter(each.kind for each in failed)}")
    assert 0 < len(failed) <= CLIENTS
    for each in failed:
        assert logged[each.id].replicas == (address(first),) and logged[each.id].arrived_at <= killed_at + 0.1, each
        assert each.kind not in READ_ONLY_KINDS, "nginx should retry requests that only read"
        assert times_forwarded(cluster, each) <= 1, "no answer should be generated twice"
    assert any(len(each.replicas) == 2 and each.status == 200 for each in logged.values()), (
        "nginx should retry some requests on the other replica"
    )
    assert times_forwarded(cluster, next(each for each in outcomes if each.kind == "answer" and not each.problem)) == 1


def test_a_rolling_restart_loses_no_request(cluster: Cluster) -> None:
    with running_clients(cluster.url, CLIENTS) as outcomes:
        for number, each in enumerate(cluster.replicas):
            until(lambda: len(outcomes) > 4 * CLIENTS, 60)
            each.stop()
            before = len(outcomes)
            lighthouse = Document(f"light{number}", "Lighthouse", f"Lighthouse number {number} is of brick.")
            upload(cluster.replicas[1 - number], lighthouse)
            until(lambda before=before: len(outcomes) > before + 2 * CLIENTS, 60)  # type: ignore[misc]
            each.start()
            assert answers_from(each, lighthouse), "a replica should start with the newest index"
        before = len(outcomes)
        until(lambda: len(outcomes) > before + 4 * CLIENTS, 60)
    print(f"{len(outcomes)} requests, {sum(bool(each.problem) for each in outcomes)} failed")
    assert [each for each in outcomes if each.problem] == []
    served = Counter(request.replicas[-1] for request in cluster.logged_requests().values())
    assert all(served[address(each)] > CLIENTS for each in cluster.replicas), "both replicas should get requests"


def test_feedback_sent_to_one_replica_is_shown_and_deleted_by_the_other(cluster: Cluster) -> None:
    here, there = cluster.replicas
    vote = {
        "kind": "vote",
        "user": "reader-0001",
        "consent": True,
        "question": "Who built the Lantern?",
        "rating": "up",
    }
    assert here.post("/v1/feedback", json={**vote, "answer": {"model": "tiny", "text": "so"}}).status_code == 200
    assert [each["kind"] for each in there.get("/v1/feedback/reader-0001").json()["entries"]] == ["vote"]
    deleted = httpx2.delete(f"{there.url}/v1/feedback/reader-0001", timeout=60, verify=False)
    assert deleted.json() == {"deleted": 1} and here.get("/v1/feedback/reader-0001").json()["entries"] == []


def test_metrics_come_from_each_replica_and_not_through_nginx(cluster: Cluster) -> None:
    assert httpx2.get(f"{cluster.url}/metrics", verify=False).status_code == 404
    assert all("modegraph_requests_waiting 0.0" in each.get("/metrics").text for each in cluster.replicas)


def test_without_the_database_search_still_works_and_uploads_are_refused(cluster: Cluster) -> None:
    """This test must be the last one in the file, because it leaves the database unreachable."""
    file = cluster.index / DATABASE
    file.write_text(json.dumps({"postgresql": {"host": "127.0.0.1", "port": "9", "dbname": "hidden"}}))
    one = cluster.replicas[0]
    response = one.post("/v1/documents", json={"documents": [{"source": "new", "text": "New."}]})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")
    assert "hidden" not in response.text and "127.0.0.1" not in response.text and response.headers["retry-after"]
    assert one.get("/v1/feedback/reader-0001").json()["error"]["code"] == "store_unavailable"
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "add_document", "arguments": {"source": "new", "text": "New."}},
    }
    reply = one.post("/mcp", json=call, headers={"Accept": "application/json, text/event-stream"}).text
    assert "the database of the index does not answer" in reply and "hidden" not in reply
    assert (
        one.get("/ready").status_code == 200 and one.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
    )


def address(replica: Replica) -> str:
    return replica.url.removeprefix("http://")


def requests_since(cluster: Cluster, moment: float) -> list[LoggedRequest]:
    """The requests that reached nginx after `moment`."""
    return [each for each in cluster.logged_requests().values() if each.arrived_at > moment]


def times_forwarded(cluster: Cluster, outcome: Outcome) -> int:
    """The number of requests to the model servers that this request caused."""
    return sum(outcome.id in str(body["messages"]) for each in cluster.replicas for body in each.model.requests)
