"""Profiles: what they stand for, and how other options win over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from core_engine import ConfigurationError, Engine, EngineConfig
from core_engine.testkit import simulated_engine
from gateway.cli import main
from gateway.commands.options import read_config
from gateway.commands.serve import configured
from gateway.profiles import PROFILES

KEYS = [{"key": "a", "tenant": "acme", "weight": 3.0}, {"key": "b", "tenant": "acme", "weight": 3.0}]


def engine_of(options: dict[str, Any]) -> EngineConfig:
    """The configuration of the only model."""
    (model,) = configured(options)[0].models
    return model.config


def named(engine: Engine) -> list[str]:
    return [policy.spec for policy in engine.describe_policies().policies if not policy.is_default]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_can_be_served(name: str) -> None:
    config = engine_of({"profile": name})
    assert {limit: getattr(config, limit) for limit in PROFILES[name].limits} == PROFILES[name].limits
    engine, _ = simulated_engine(config.policies, strict=True)
    assert named(engine) == list(PROFILES[name].policies)


def test_options_win_over_a_profile() -> None:
    config = engine_of({"profile": "batch", "token_limit": 1024, "port": 0})
    assert (config.token_limit, config.sequence_limit) == (1024, PROFILES["batch"].limits["sequence_limit"])


def test_a_model_of_its_own_policies_keeps_them() -> None:
    tables = [{"model": "a", "name": "a"}, {"model": "b", "name": "b", "policies": ["orca"], "token_limit": 256}]
    deployment, _ = configured({"profile": "batch", "models": tables})
    assert [model.config.policies for model in deployment.models] == [PROFILES["batch"].policies, ("orca",)]
    assert [model.config.token_limit for model in deployment.models] == [PROFILES["batch"].limits["token_limit"], 256]


def test_named_policies_come_first_and_replace_their_namesakes() -> None:
    config = engine_of({"profile": "shared", "policies": ["orca", "stretch:max_stretch=2"]})
    rest = [spec for spec in PROFILES["shared"].policies if spec != "stretch"]
    assert list(config.policies) == ["orca", "stretch:max_stretch=2", *rest]


def test_a_file_may_name_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "jitney.toml"
    path.write_text('profile = "batch"\n', encoding="utf-8")
    config = engine_of(read_config(path))
    assert config.token_limit == PROFILES["batch"].limits["token_limit"]


@pytest.mark.parametrize("wrong", ['"chatty"', "3", "[]"])
@pytest.mark.parametrize("where", ["option", "file"])
def test_a_wrong_name_lists_the_right_ones(tmp_path: Path, wrong: str, where: str) -> None:
    path = tmp_path / "jitney.toml"
    path.write_text(f"profile = {wrong}\n" if where == "file" else "", encoding="utf-8")
    arguments = ["--config", str(path)] + (["--profile", wrong] if where == "option" else [])
    result = CliRunner().invoke(main, ["serve", "--executor", "simulated", *arguments])
    assert result.exit_code == 2
    assert all(name in result.output for name in PROFILES)


def test_help_describes_profiles() -> None:
    output = " ".join(CliRunner().invoke(main, ["serve", "--help"]).output.split())
    assert all(f"{name}: {profile.summary}" in output for name, profile in PROFILES.items())


def test_weights_of_keys_reach_the_engine() -> None:
    config = engine_of({"keys": KEYS, "tenant_weights": {"beta": 2.0}})
    assert config.tenant_weights == {"acme": 3.0, "beta": 2.0}
    assert simulated_engine(tenant_weights=config.tenant_weights)[0].state.tenant_weights["acme"] == 3.0


def test_a_tenant_has_one_weight() -> None:
    with pytest.raises(ConfigurationError, match=r"acme.*3 and 1"):
        configured({"keys": [*KEYS, {"key": "c", "tenant": "acme"}]})
