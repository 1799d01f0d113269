"""`/admin`: policies shown and swapped while requests run, and why a request is where it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.server import ServerProcess, eventually, serving
from tests.support.tiny_model import write_tiny_model

ADMIN = {"authorization": "Bearer operators-only"}
SLOW = {"base_seconds": 0.004, "row_seconds": 0.0}
FAULTY = """
from core_engine.hookspecs import hookimpl, NoOptions

class Faulty:
    Options = NoOptions
    hookspec_range = (1, 1)

    def __init__(self, options, seed):
        self.asked = 0

    @hookimpl
    def rank_sequences(self):
        self.asked += 1
        if self.asked > 50:
            raise RuntimeError("as told")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A slow simulated model, two seats, an admin key, and a stranger's policy that turns faulty."""
    directory = tmp_path_factory.mktemp("admin")
    model = write_tiny_model(directory / "tiny", config={"simulated": SLOW})
    (directory / "faulty_plugin.py").write_text(FAULTY)
    metadata = directory / "faulty_plugin-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty_plugin\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[jitney.policies]\nfaulty = faulty_plugin:Faulty\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory), prepend=":")
        arguments = ("--executor", "simulated", "--model", str(model), "--sequence-limit", "2")
        with serving(directory / "log", *arguments, "--admin-key", "operators-only") as running:
            yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    """An operator; the defaults are in force before and after."""
    with server.client() as client:
        client.headers.update(ADMIN)
        yield client
        assert client.post("/admin/policies", json={"policies": []}).status_code == 200


def body(server: ServerProcess, num_tokens: int) -> dict[str, object]:
    return {"model": server.model, "prompt": "The bus", "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}


def complete(server: ServerProcess, num_tokens: int) -> str:
    with server.client() as client:
        answer = client.post("/v1/completions", json=body(server, num_tokens))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])


def test_without_an_admin_key_there_is_no_admin(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    with serving(tmp_path / "log", "--executor", "simulated", "--model", str(model)) as plain, plain.client() as client:
        for path in ("/admin/policies", "/admin/models"):
            answer = client.get(path)
            assert answer.status_code == 404
            assert "--admin-key" in answer.json()["error"]["message"]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer guess"}])
def test_only_the_admin_key_opens_it(server: ServerProcess, headers: dict[str, str]) -> None:
    with server.client() as client:
        answer = client.get("/admin/policies", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"


def test_the_policies_in_force_are_shown_with_options_and_hooks(client: httpx.Client) -> None:
    report = client.get("/admin/policies").json()
    paged = next(policy for policy in report["policies"] if policy["name"] == "paged")
    assert paged["options"] == {"headroom": 1}
    assert paged["is_default"]
    assert "limit_prefill" in paged["hooks"]


def test_requests_in_flight_survive_a_swap_with_the_same_texts(server: ServerProcess, client: httpx.Client) -> None:
    alone = complete(server, 60)
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(complete, server, 60) for _ in range(6)]
        versions = []
        for number in range(10):
            names = [["orca"], ["static_batch:batch_size=2"], ["stall_free", "prefill_share"], []][number % 4]
            answer = client.post("/admin/policies", json={"policies": names})
            assert answer.status_code == 200, answer.text
            assert answer.json()["policies"] == names
            versions.append(answer.json()["version"])
        assert [answer.result() for answer in answers] == [alone] * 6
    assert versions == list(range(versions[0], versions[0] + 10))
    history = client.get("/admin/policies/history").json()["history"]
    assert [event["version"] for event in history if event["version"] in versions] == versions


@pytest.mark.parametrize(
    ("policies", "status", "said"),
    [
        (["orka"], 400, "orca"),
        (["orca:max_batch=0"], 400, "max_batch"),
        (["orca", "orca:max_batch=2"], 400, "twice"),
        (["contiguous"], 409, "restart"),
        ("orca", 400, "policies"),
    ],
)
def test_a_swap_that_can_not_be_is_refused_and_changes_nothing(
    client: httpx.Client, policies: object, status: int, said: str
) -> None:
    before = client.get("/admin/policies").json()["version"]
    answer = client.post("/admin/policies", json={"policies": policies})
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"] + str(answer.json()["error"]["param"])
    assert client.get("/admin/policies").json()["version"] == before


def test_a_policy_that_turns_faulty_is_rolled_back_and_clients_see_nothing(
    server: ServerProcess, client: httpx.Client
) -> None:
    alone = complete(server, 150)
    client.post("/admin/policies", json={"policies": ["orca"]}).raise_for_status()
    client.post("/admin/policies", json={"policies": ["faulty"]}).raise_for_status()
    assert complete(server, 150) == alone
    last = client.get("/admin/policies/history").json()["history"][-1]
    assert last["kind"] == "rolled_back"
    assert "faults" in last["reason"]


def test_a_waiting_request_is_told_its_place(server: ServerProcess, client: httpx.Client) -> None:
    with ThreadPoolExecutor(2) as pool, server.client() as streaming:
        for _ in range(2):
            pool.submit(complete, server, 300)
        assert eventually(lambda: "vllm:num_requests_running" in client.get("/metrics").text)
        wish = body(server, 8) | {"stream": True}
        with streaming.stream("POST", "/v1/completions", json=wish) as response:
            first = next(line for line in response.iter_lines() if line.startswith("data: {"))
            number = json.loads(first.removeprefix("data: "))["id"]
            report = client.get(f"/admin/requests/{number}")
            assert report.status_code in {200, 404}, "it may have ended already"
        if report.status_code == 200:
            (prompt,) = report.json()["prompts"]
            assert prompt["tenant"] == "anonymous"
            assert prompt["sequences"][0]["state"] in {"waiting", "running"}


def test_an_unknown_request_is_a_404(client: httpx.Client) -> None:
    answer = client.get("/admin/requests/cmpl-nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "request_not_found"
