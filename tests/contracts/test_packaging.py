"""pyproject.toml, constraints.txt, the Makefile and the code agree."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement

from core_engine.hookspecs import PROJECT
from tests.contracts.tree import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
POLICIES: dict[str, str] = PYPROJECT["project"]["entry-points"]["jitney.policies"]
TARGETS = {"help", "serve", "test", "test-fast", "test-full", "test-clients", "check", "bench"}


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def requirements() -> list[Requirement]:
    project = PYPROJECT["project"]
    return [Requirement(line) for line in (*project["dependencies"], *project["optional-dependencies"]["dev"])]


def test_the_installed_policies_are_those_declared() -> None:
    installed = importlib.metadata.distribution("jitney").entry_points.select(group="jitney.policies")
    assert {entry.name: entry.value for entry in installed} == POLICIES, "install again: the declaration has changed"


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_can_be_loaded_and_implements_a_hook(name: str) -> None:
    module, _, attribute = POLICIES[name].partition(":")
    policy = getattr(importlib.import_module(module), attribute)
    assert [member for member in vars(policy).values() if hasattr(member, f"{PROJECT}_impl")]
    assert policy.__doc__


def test_the_command_can_be_loaded() -> None:
    module, _, attribute = PYPROJECT["project"]["scripts"]["jitney"].partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_a_direct_dependency_is_pinned_within_its_range(requirement: Requirement) -> None:
    version = pinned()[requirement.name]
    assert requirement.specifier.contains(version, prereleases=True), f"{version} is not {requirement.specifier}"


def test_the_make_targets_are_all_there_and_listed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    declared = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert declared == set(phony.split()) == TARGETS
    make = shutil.which("make")
    assert make is not None
    # Under `make test` this one would be told by its environment that it is not the outermost, and say so.
    alone = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    listed = subprocess.run([make, "help"], capture_output=True, text=True, check=True, cwd=ROOT, env=alone).stdout
    assert {line.split()[1] for line in listed.splitlines()} == TARGETS
