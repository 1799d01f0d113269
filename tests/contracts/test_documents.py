"""What the documents say holds: tables are complete, examples run, commands exist."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from typing import Any

from core_engine import Engine, EngineConfig, Request, SamplingParams, VirtualClock
from core_engine.executor import ModelSpec
from core_engine.hookspecs import PROJECT
from core_engine.lab.simulated import SimulatedExecutor
from core_engine.selection import NamedPolicy, build_policy
from gateway.commands.serve import serve
from gateway.telemetry.names import METRICS, Metric
from tests.contracts.tree import ROOT, all_files
from tests.telemetry.samples import prometheus_name

README = (ROOT / "README.md").read_text()


def policy_row(entry: importlib.metadata.EntryPoint) -> str:
    policy = entry.load()
    hooks = [f"`{name}`" for name, member in vars(policy).items() if hasattr(member, f"{PROJECT}_impl")]
    (first_line, *_) = (inspect.getdoc(policy) or "").splitlines()
    return f"| `{entry.name}` | {', '.join(hooks)} | {first_line} |"


def metric_row(metric: Metric) -> str:
    exported = ", ".join(f"`{prometheus_name(metric, stream)}`" for stream in metric.streams)
    return f"| {exported} | {metric.kind} | {metric.description} |"


def test_the_readme_has_a_row_for_every_policy() -> None:
    ours = importlib.metadata.distribution("jitney").entry_points.select(group="jitney.policies")
    missing = [row for row in map(policy_row, ours) if row not in README]
    assert not missing, "\n".join(missing)


def test_the_readme_has_a_row_for_every_metric() -> None:
    missing = [row for row in map(metric_row, METRICS.values()) if row not in README]
    assert not missing, "\n".join(missing)


def test_documents_name_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for path in all_files()
        if path.suffix == ".md"
        for target in re.findall(r"(?:`|^ +)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }
    assert named, "no document names a make target"
    assert named <= targets


def test_every_example_is_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    assert not [path.name for path in (ROOT / "examples").glob("*.py") if f"[{path.name}]" not in listed]


def test_the_readme_names_options_that_exist() -> None:
    named = set(re.findall(r"--[a-z][a-z-]+", README)) - {"--help"}
    existing = {option for parameter in serve.params for option in parameter.opts}
    assert named, "the README names no option"
    assert named <= existing


def finished_in_order(policies: list[NamedPolicy]) -> list[str]:
    """Ids of a long and a short request as they end, where one sequence runs at a time and the long one came first."""
    spec = ModelSpec(
        name="simulated",
        architecture="simulated",
        dtype="float32",
        device="cpu",
        vocab_size=64,
        max_model_len=256,
        num_blocks=64,
        block_size=32,
        kv_bytes_per_token=1,
    )
    clock = VirtualClock()
    config = EngineConfig(sequence_limit=1, strict=True, seed=0)
    engine = Engine(config, SimulatedExecutor(spec, clock), clock=clock, policies=policies)
    for name, prompt_tokens in (("long", 100), ("short", 10)):
        sampling = SamplingParams(max_tokens=4)
        engine.submit(Request(id=name, model="simulated", prompt_token_ids=[1] * prompt_tokens, sampling=sampling))
    ended: list[str] = []
    while engine.has_work:
        ended += [outcome.request_id for outcome in engine.step().finished]
    return ended


def test_the_policy_in_the_manual_works() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "plugins" / "README.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    policy = build_policy("short_prompts", namespace["ShortPrompts"], "max_tokens=20", 0)
    assert finished_in_order([NamedPolicy("short_prompts", policy)]) == ["short", "long"]
    assert finished_in_order([]) == ["long", "short"]
