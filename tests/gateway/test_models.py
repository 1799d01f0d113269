"""Several models behind one gateway, each with an engine process of its own; they come and go while others serve."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.gateway.events import read_events
from tests.support.server import ServerProcess, eventually, serving
from tests.support.tiny_model import write_tiny_model

SLOW = {"base_seconds": 0.01, "row_seconds": 0.0}
ADMIN = {"authorization": "Bearer operators-only"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories a, b and c of three models that differ in their context length."""
    directory = tmp_path_factory.mktemp("models")
    for number, name in enumerate("abc", 1):
        write_tiny_model(directory / name, max_model_len=1000 * number, config={"simulated": SLOW})
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[ServerProcess]:
    """Serves a and b, b under a name of its own, with aliases, a limit of three and 1 s for drains."""
    arguments = (
        "--executor", "simulated", "--model", str(models / "a"), "--model", f"org/b={models / 'b'}",
        "--alias", "short=org/b", "--alias", "first=a", "--admin-key", "operators-only", "--max-models", "3",
        "--drain-seconds", "1",
    )  # fmt: skip
    with serving(tmp_path_factory.mktemp("server") / "log", *arguments) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with operator(server) as client:
        yield client


def operator(server: ServerProcess) -> httpx.Client:
    client = server.client()
    client.headers.update(ADMIN)
    return client


def complete(client: httpx.Client, model: str, max_tokens: int = 3) -> httpx.Response:
    return client.post("/v1/completions", json=wish(model, max_tokens))


def wish(model: str, max_tokens: int, **fields: Any) -> dict[str, Any]:
    return {"model": model, "prompt": "Hello", "max_tokens": max_tokens, "ignore_eos": True, **fields}


def engine_of(client: httpx.Client, model: str) -> psutil.Process:
    (report,) = [report for report in client.get("/admin/models").json()["models"] if report["name"] == model]
    return psutil.Process(report["engine_pid"])


def states(client: httpx.Client) -> dict[str, str]:
    found: dict[str, str] = client.get("/health").json()["models"]
    return found


def metric(client: httpx.Client, name: str, model: str) -> float:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name + "{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if f'model_name="{model}"' in line)


def test_each_name_leads_to_its_model(client: httpx.Client) -> None:
    for name, model in (("a", "a"), ("first", "a"), ("org/b", "org/b"), ("short", "org/b")):
        answer = complete(client, name)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == model
    unknown = complete(client, "b")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert "'a', 'org/b'" in unknown.json()["error"]["message"]


def test_all_names_are_listed_with_what_they_stand_for(client: httpx.Client) -> None:
    cards = client.get("/v1/models").json()["data"]
    assert [(card["id"], card["root"], card["max_model_len"]) for card in cards] == [
        ("a", "a", 1000), ("first", "a", 1000), ("org/b", "org/b", 2000), ("short", "org/b", 2000),
    ]  # fmt: skip
    assert {card["owned_by"] for card in cards} == {"jitney"}
    assert client.get("/v1/models/org/b").json()["max_model_len"] == 2000
    assert client.get("/v1/models/short").json() == cards[3]


def test_tokens_are_those_of_the_model_that_is_named(client: httpx.Client) -> None:
    for model, max_model_len in ((None, 1000), ("a", 1000), ("short", 2000)):
        body = {"prompt": "x"} | ({} if model is None else {"model": model})
        assert client.post("/tokenize", json=body).json()["max_model_len"] == max_model_len
    assert client.post("/tokenize", json={"prompt": "x", "model": "nobody"}).status_code == 404


def test_metrics_tell_models_apart(client: httpx.Client) -> None:
    before = {model: metric(client, "vllm:generation_tokens_total", model) for model in ("a", "org/b")}
    complete(client, "short", 7)
    assert metric(client, "vllm:generation_tokens_total", "a") == before["a"]
    assert metric(client, "vllm:generation_tokens_total", "org/b") == before["org/b"] + 7


def test_policies_are_a_models_own(client: httpx.Client) -> None:
    swapped = client.post("/admin/policies", params={"model": "short"}, json={"policies": ["orca"]})
    assert swapped.status_code == 200, swapped.text
    in_force = {
        model: {policy["name"] for policy in client.get("/admin/policies", params=query).json()["policies"]}
        for model, query in (("a", {}), ("b", {"model": "org/b"}))
    }
    assert "orca" in in_force["b"]
    assert "orca" not in in_force["a"]
    assert client.get("/admin/policies", params={"model": "nobody"}).status_code == 404


def test_a_dead_engine_leaves_the_other_models_serving(server: ServerProcess, client: httpx.Client) -> None:
    with client.stream("POST", "/v1/completions", json=wish("a", 100, stream=True)) as response:
        chunks = response.iter_raw()
        received = next(chunks)
        engine = engine_of(client, "org/b")
        engine.kill()
        with server.client() as other:
            assert eventually(lambda: metric(other, "jitney_engine_ready", "org/b") == 0)
            assert complete(other, "a").status_code == 200
        events = read_events(received + b"".join(chunks))
    assert events.done
    assert eventually(lambda: client.get("/ready").status_code == 200)
    assert complete(client, "org/b").status_code == 200


def test_a_model_is_loaded_and_unloaded_while_others_serve(
    server: ServerProcess, client: httpx.Client, models: Path
) -> None:
    loaded = client.post(
        "/admin/models", json={"model": str(models / "c"), "name": "third", "aliases": ["c3"], "max_model_len": 500}
    )
    assert loaded.status_code == 201, loaded.text
    assert loaded.json()["max_model_len"] == 500
    assert complete(client, "c3").json()["model"] == "third"
    full = client.post("/admin/models", json={"model": str(models / "c"), "name": "fourth"})
    assert full.status_code == 409
    assert full.json()["error"]["code"] == "too_many_models"
    assert client.delete("/admin/models/c3").json() == {"name": "third", "deleted": True}
    assert complete(client, "third").status_code == 404
    assert [report["name"] for report in client.get("/admin/models").json()["models"]] == ["a", "org/b"]
    assert 'model_name="third"' not in "".join(
        line for line in client.get("/metrics").text.splitlines() if line.startswith("jitney_engine_ready")
    )
    assert eventually(lambda: len(psutil.Process(server.process.pid).children()) == 2)


@pytest.mark.parametrize(
    ("table", "status", "code", "said"),
    [
        ({"model": "no/such/place"}, 400, "model_not_loaded", "no/such/place"),
        ({"model": "x", "name": "a"}, 409, "model_exists", "'a'"),
        ({"model": "x", "name": "y", "aliases": ["short"]}, 409, "model_exists", "'short'"),
        ({"model": "x", "blok_size": 8}, 400, "invalid_model_options", "block_size"),
        ({"model": "x", "block_size": 7}, 400, "invalid_model_options", "block_size"),
        ({"model": "x", "name": "a b"}, 400, "invalid_model_options", "a b"),
        ({"name": "x"}, 400, "invalid_model_options", "`model`"),
        ([], 400, None, ""),
    ],
)
def test_what_can_not_be_loaded_is_refused_and_disturbs_nothing(
    client: httpx.Client, table: object, status: int, code: str | None, said: str
) -> None:
    refused = client.post("/admin/models", json=table)
    assert refused.status_code == status, refused.text
    assert code is None or refused.json()["error"]["code"] == code
    assert said in refused.json()["error"]["message"]
    assert states(client) == {"a": "ready", "org/b": "ready"}
    assert client.get("/ready").status_code == 200


@pytest.mark.parametrize(("max_tokens", "finished"), [(40, True), (990, False)])
def test_what_runs_may_finish_until_the_deadline_when_its_model_goes(
    server: ServerProcess, client: httpx.Client, models: Path, max_tokens: int, finished: bool
) -> None:
    client.post("/admin/models", json={"model": str(models / "c"), "name": "leaving"}).raise_for_status()
    with ThreadPoolExecutor(1) as pool, server.client() as streaming:
        with streaming.stream("POST", "/v1/completions", json=wish("leaving", max_tokens, stream=True)) as response:
            chunks = response.iter_raw()
            received = next(chunk for chunk in chunks if chunk.startswith(b"data: "))
            gone = pool.submit(lambda: httpx.delete(f"{server.url}/admin/models/leaving", headers=ADMIN, timeout=60))
            assert eventually(lambda: states(client).get("leaving") != "ready")
            refused = complete(client, "leaving")
            assert refused.status_code in {404, 503}
            events = read_events(received + b"".join(chunks))
        assert gone.result().status_code == 200
    assert events.done is finished
    if not finished:
        assert events.chunks[-1]["error"]["code"] == "engine_died"
    assert complete(client, "a").status_code == 200


def test_without_any_model_the_server_says_so(tmp_path: Path, models: Path) -> None:
    arguments = ("--executor", "simulated", "--model", str(models / "a"), "--admin-key", "operators-only")
    with serving(tmp_path / "log", *arguments) as server, operator(server) as client:
        assert client.delete("/admin/models/a").status_code == 200
        for answer in (client.get("/ready"), complete(client, "a"), client.get("/v1/models")):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "no_model"
        assert client.post("/admin/models", json={"model": str(models / "b")}).status_code == 201
        assert client.get("/ready").status_code == 200
        assert complete(client, "b").status_code == 200


def test_a_file_gives_each_model_options_of_its_own(tmp_path: Path, models: Path) -> None:
    config = tmp_path / "jitney.toml"
    config.write_text(
        f"""
        executor = "simulated"
        block_size = 64
        admin_key = "operators-only"
        [aliases]
        long = "roomy"
        [[models]]
        model = "{models / "a"}"
        policies = ["orca"]
        [[models]]
        name = "roomy"
        model = "{models / "b"}"
        aliases = ["wide"]
        block_size = 16
        max_model_len = 128
        kv_memory_fraction = 0.1
        """,
        encoding="utf-8",
    )
    with serving(tmp_path / "log", "--config", str(config)) as server, operator(server) as client:
        a, roomy = client.get("/admin/models").json()["models"]
        assert (a["name"], a["block_size"], a["max_model_len"]) == ("a", 64, 1000)
        assert (roomy["name"], roomy["block_size"], roomy["max_model_len"]) == ("roomy", 16, 128)
        assert roomy["aliases"] == ["wide", "long"]
        policies = client.get("/admin/policies").json()["policies"]
        assert "orca" in [policy["name"] for policy in policies]


def test_a_model_that_can_not_be_loaded_at_start_ends_the_server(tmp_path: Path, models: Path) -> None:
    (tmp_path / "empty").mkdir()
    arguments = ("--executor", "simulated", "--model", str(models / "a"), "--model", str(tmp_path / "empty"))
    server = ServerProcess(tmp_path / "log", *arguments)
    try:
        assert eventually(lambda: server.ended)
        assert server.process.returncode == 1
        assert server.log.count("config.json does not describe a model") == 1
        assert f"loading a ({models / 'a'}), empty ({tmp_path / 'empty'})" in server.log
    finally:
        server.stop()


def test_engines_that_share_cores_wait_asleep(client: httpx.Client) -> None:
    assert [engine_of(client, model).environ().get("GOMP_SPINCOUNT") for model in ("a", "org/b")] == ["1000", "1000"]
