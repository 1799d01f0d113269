"""Who may import whom.

examples -> gateway -> core_engine <- plugins
                            ^--------- contrib_kernels
"""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tests.contracts.tree import PACKAGES, ROOT, imports, is_within, sources

PUBLIC_MODULES = ("core_engine", "core_engine.text", "core_engine.testkit")
# Each of its modules is a tool of its own, so the package exports nothing and they are named directly.
TOOLS = "core_engine.lab"
MODEL_LIBRARIES = ("torch", "transformers", "safetensors", "gguf", "huggingface_hub", "accelerate")
SERVER_LIBRARIES = ("litestar", "uvicorn", "opentelemetry", "prometheus_client")
FOR_POLICIES = (
    "core_engine.budget",
    "core_engine.classes",
    "core_engine.cost",
    "core_engine.hookspecs",
    "core_engine.kv",
    "core_engine.lab.journal",
    "core_engine.messages",
    "core_engine.plan",
    "core_engine.request",
    "core_engine.testkit",
    "core_engine.view",
)


def reached(source: str) -> set[str]:
    """Every module that a file imports from; `from package import module` counts as the module too."""
    return {module for module, _ in imports(source)} | {f"{module}.{name}" for module, name in imports(source) if name}


@pytest.mark.parametrize("source", sources("core_engine"))
def test_the_engine_knows_nobody_else_here(source: str) -> None:
    others = {package for package in PACKAGES if package != "core_engine"} | {"examples", "tests"}
    assert not [module for module in reached(source) if is_within(module, *others)]


@pytest.mark.parametrize("source", sources("core_engine", "gateway", "plugins"))
def test_only_the_model_half_knows_model_libraries(source: str) -> None:
    if not source.startswith("core_engine/model/"):
        assert not [module for module in reached(source) if is_within(module, *MODEL_LIBRARIES)]


@pytest.mark.parametrize("source", sources("core_engine"))
def test_the_model_half_is_reached_in_one_place(source: str) -> None:
    if not source.startswith("core_engine/model/") and source != "core_engine/loading.py":
        assert not [module for module in reached(source) if is_within(module, "core_engine.model")]


@pytest.mark.parametrize("source", sources("core_engine", "plugins", "contrib_kernels"))
def test_only_the_gateway_knows_server_libraries(source: str) -> None:
    assert not [module for module in reached(source) if is_within(module, *SERVER_LIBRARIES)]


@pytest.mark.parametrize("source", sources("gateway"))
def test_the_gateway_uses_public_names_only(source: str) -> None:
    assert not [module for module in reached(source) if is_within(module, "plugins", "contrib_kernels", "tests")]
    for module, name in imports(source):
        if is_within(module, "core_engine"):
            assert name is not None, f"import names from {module}, not all of it"
            if is_within(module, TOOLS):
                assert not name.startswith("_"), f"{module}.{name} is private"
                continue
            assert module in PUBLIC_MODULES, f"{module} is not public"
            assert name in importlib.import_module(module).__all__, f"{module} does not export {name}"


@pytest.mark.parametrize("source", sources("plugins"))
def test_policies_use_what_policies_may_use(source: str) -> None:
    for module, _ in imports(source):
        if is_within(module, *PACKAGES):
            assert is_within(module, *FOR_POLICIES), f"{module} is not for policies"


@pytest.mark.parametrize("source", sources("contrib_kernels"))
def test_kernels_use_the_model_half_only(source: str) -> None:
    for module, _ in imports(source):
        if is_within(module, *PACKAGES):
            assert is_within(module, "core_engine.model", "contrib_kernels"), f"{module} is not for kernels"


def test_plugins_is_a_namespace_that_others_may_extend() -> None:
    assert not (ROOT / "plugins" / "__init__.py").exists()


@pytest.mark.parametrize("module", ["core_engine", "core_engine.text", "core_engine.defaults"])
def test_importing_the_engine_loads_no_heavy_library(module: str) -> None:
    heavy = (*MODEL_LIBRARIES, *SERVER_LIBRARIES)
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & {set(heavy)!r}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []
