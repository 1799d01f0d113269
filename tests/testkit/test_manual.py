"""The guide for authors of policies: all of its code runs, and does what the text around it says."""

from __future__ import annotations

import re
import zlib
from typing import Any

import pytest

from core_engine.defaults import default_policies
from core_engine.engine import Engine
from core_engine.hookspecs import HOOKSPEC_VERSION, NoOptions
from core_engine.plan import PrefillLimit
from core_engine.policy_set import PolicySet
from core_engine.request import Request, SamplingParams
from core_engine.selection import NamedPolicy, build_policy, hook_names, hooks_of
from core_engine.testkit import check_policy, simulated_engine
from tests.contracts.tree import ROOT

GUIDE = (ROOT / "plugins" / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def run_blocks() -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for block in BLOCKS:
        if "check_policy" not in block:
            exec(block, namespace)
    return namespace


NAMESPACE = run_blocks()
EXAMPLES = {
    name: thing
    for name, thing in NAMESPACE.items()
    if isinstance(thing, type) and issubclass(thing, NAMESPACE["Policy"]) and thing is not NAMESPACE["Policy"]
}


def build(name: str) -> NamedPolicy:
    options, policy = build_policy(name.lower(), EXAMPLES[name], "", 0)
    return NamedPolicy(name.lower(), policy, "", options)


def crowded(policies: list[NamedPolicy], *, num_blocks: int = 12) -> tuple[Engine, list[Any]]:
    """An engine with more to do than it has room for, run to the end, and what each iteration told."""
    engine, _ = simulated_engine(policies, num_blocks=num_blocks, sequence_limit=4, token_limit=32, strict=True)
    for number in range(8):
        engine.submit(request(f"r{number}", 20 + 10 * number, priority=-number, tenant="ab"[number % 2]))
    outputs = []
    while engine.has_work:
        outputs.append(engine.step())
    return engine, outputs


def request(name: str, prompt_tokens: int, **fields: Any) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=24)
    tokens = [(zlib.crc32(name.encode()) + i) % 990 for i in range(prompt_tokens)]
    return Request(id=name, model="simulated", prompt_token_ids=tokens, sampling=sampling, **fields)


def test_there_is_an_example_of_every_hook_in_the_order_of_the_manual() -> None:
    shown = [hook for hook in re.findall(r"def (\w+)\(self", GUIDE) if hook in hook_names()]
    assert set(shown) == set(hook_names())
    assert len(shown) == len(set(shown))
    swap = ["on_adopt", "on_retire"]  # which the manual has between the questions and the events of an iteration
    others = [hook for hook in shown if hook not in swap]
    assert others[:3] == ["identify_caller", "create_block_allocator", "admit_request"]
    assert others[-3:] == ["on_memory_shortage", "on_iteration_end", "on_request_finished"]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_passes_the_conformance_kit(name: str) -> None:
    report = check_policy(EXAMPLES[name], num_workloads=4, cost=False)
    assert report.passed, str(report)


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"Timed"}))
def test_every_hook_of_an_example_is_called(name: str) -> None:
    policy = build(name)
    _, outputs = crowded([policy])
    called = {key for output in outputs for key in output.stats.decision_seconds}
    # Asked at start, and in the gateway: no iteration tells of it.
    elsewhere = {"create_block_allocator/oldestblockfirst", "identify_caller/tenantofproxy"}
    asked = called | elsewhere
    assert {f"{hook}/{policy.name}" for hook in hooks_of(EXAMPLES[name])} <= asked


def test_the_tenant_of_a_proxy_is_believed() -> None:
    policy = build("TenantOfProxy").policy
    assert policy.identify_caller({"x-tenant": "acme"}).tenant == "acme"
    assert policy.identify_caller({}) is None


def test_the_frame_is_enough_for_a_policy() -> None:
    assert NAMESPACE["Policy"](NoOptions(), 0).options == NoOptions()
    assert NAMESPACE["Policy"].hookspec_range == (HOOKSPEC_VERSION, HOOKSPEC_VERSION)
    assert f"`HOOKSPEC_VERSION` is {HOOKSPEC_VERSION}." in GUIDE


def test_oldest_block_first_grants_what_has_been_free_longest() -> None:
    allocator = EXAMPLES["OldestBlockFirst"](NoOptions(), 0).create_block_allocator(4)
    first = allocator.allocate(2)
    allocator.release(first)
    assert not set(allocator.allocate(2)) & set(first)


def test_fair_queue_refuses_a_tenant_and_no_other() -> None:
    engine, _ = simulated_engine([build("FairQueue")], sequence_limit=1)
    for number in range(102):
        engine.submit(request(f"r{number}", 1, tenant="crowd"))
    engine.submit(request("other", 1, tenant="other"))
    output = engine.step()
    assert [(r.request_id, r.reason) for r in output.rejected] == [
        ("r100", "tenant_queue_full"),
        ("r101", "tenant_queue_full"),
    ]
    assert output.accepted[0].limits == {"x-ratelimit-remaining-requests": "99"}


def test_short_talk_predicts() -> None:
    engine, _ = simulated_engine([build("ShortTalk")])
    engine.submit(request("r", 80))
    engine.step()
    (sequence,) = engine.state.running
    assert sequence.predicted_output_tokens == 24  # 42, clamped to max_tokens


def test_by_priority_the_last_comes_first() -> None:
    _, outputs = crowded([build("ByPriority")], num_blocks=64)
    ended = [outcome.request_id for output in outputs for outcome in output.finished]
    assert ended.index("r7") < ended.index("r0")


def test_least_done_is_preempted_first() -> None:
    engine, _ = simulated_engine([build("LeastDone")], num_blocks=12, sequence_limit=4, token_limit=64)
    for number, prompt in enumerate((60, 40, 20)):
        engine.submit(request(f"r{number}", prompt))
    while not engine.state.preempted:
        before = {s.id: s.num_computed_tokens for s in engine.state.running}
        engine.step()
    (victim,) = engine.state.preempted
    assert before[victim] == min(before.values())


def test_half_for_prompts_holds_only_beside_decodes() -> None:
    policy = EXAMPLES["HalfForPrompts"](NoOptions(), 0)
    engine, _ = simulated_engine([NamedPolicy("half", policy)])
    engine.submit(request("r", 100))
    assert policy.limit_prefill(engine.state) is None
    while not any(s.num_pending_tokens == 1 for s in engine.state.running):
        engine.step()
    assert policy.limit_prefill(engine.state) == PrefillLimit(prompt_tokens=32, reason="decodes are running")


def test_room_for_prompt_is_taken_at_once() -> None:
    engine, _ = simulated_engine([build("RoomForPrompt")], token_limit=16)
    engine.submit(request("r", 100))
    engine.step()
    (sequence,) = engine.state.running
    assert (sequence.num_computed_tokens, len(sequence.block_table)) == (16, 7)


def test_one_prompt_at_a_time() -> None:
    _, outputs = crowded([build("OnePromptAtATime")], num_blocks=64)
    boarded = [output.stats.sequences_running for output in outputs]
    assert all(after - before <= 1 for before, after in zip([0, *boarded], boarded, strict=False))


def test_the_bookkeeper_counts() -> None:
    policy = build("Bookkeeper")
    crowded([policy])
    assert policy.policy.missing_blocks > 0
    assert policy.policy.finished_requests == 8
    assert policy.policy.computed_tokens == sum(
        20 + 10 * number + 23 for number in range(8)
    )  # the last is not computed


def test_timed_knows_how_long_it_was_asked() -> None:
    timed = build("Timed")
    engine, clock = simulated_engine([])
    engine.adopt_policies(PolicySet([timed], default_policies(0)))
    clock.advance(3.0)
    engine.adopt_policies(PolicySet([], default_policies(0)))
    assert timed.policy.seconds == pytest.approx(3.0)


def test_the_test_in_the_guide_passes() -> None:
    (block,) = (block for block in BLOCKS if "check_policy" in block)
    namespace = dict(NAMESPACE)
    exec(block.replace("num_workloads=20", "num_workloads=3"), namespace)
    assert namespace["report"].passed
    assert not namespace["engine"].has_work
