"""What the documents say holds: tables are complete, examples run, commands exist."""

from __future__ import annotations

import importlib.metadata
import inspect
import re

from core_engine import EngineConfig
from core_engine.hookspecs import PROJECT
from gateway.commands.bench import bench
from gateway.commands.serve import serve
from gateway.profiles import PROFILES, Profile
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


def profile_row(name: str, profile: Profile) -> str:
    policies = ", ".join(f"`{spec}`" for spec in profile.policies)
    config = EngineConfig(**profile.limits)
    limits = f"{config.token_limit}, {config.sequence_limit}, {config.block_size}"
    return f"| `{name}` | {profile.summary} | {policies} | {limits} |"


def test_the_readme_has_a_row_for_every_profile() -> None:
    missing = [row for name, profile in PROFILES.items() if (row := profile_row(name, profile)) not in README]
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
    examples = [path for path in (ROOT / "examples").iterdir() if path.suffix == ".py" or (path / "README.md").exists()]
    assert not [path.name for path in examples if f"[{path.name}]" not in listed]


def test_the_readme_names_options_that_exist() -> None:
    named = set(re.findall(r"--[a-z][a-z-]+", README)) - {"--help"}
    parameters = [*serve.params, *(parameter for command in bench.commands.values() for parameter in command.params)]
    existing = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    assert named, "the README names no option"
    assert named <= existing
