"""Who may import whom.

examples -> gateway -> core_engine <- plugins
                            ^--------- contrib_kernels
"""

from __future__ import annotations

import importlib
import subprocess
import sys

from tests.contracts.tree import PACKAGES, ROOT, imports, is_within, sources

PUBLIC_MODULES = ("core_engine", "core_engine.text", "core_engine.testkit")
# Each of its modules is a tool of its own, so the package exports nothing and they are named directly.
TOOLS = "core_engine.lab"
MODEL_LIBRARIES = ("torch", "transformers", "safetensors", "gguf", "huggingface_hub", "accelerate")
SERVER_LIBRARIES = ("litestar", "uvicorn", "opentelemetry", "prometheus_client")
FOR_POLICIES = (
    "core_engine.budget",
    "core_engine.callers",
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
FOR_KERNELS = ("core_engine.model", "contrib_kernels")


def reached(source: str) -> set[str]:
    """Every module that a file imports from; `from package import module` counts as the module too."""
    return {module for module, _ in imports(source)} | {f"{module}.{name}" for module, name in imports(source) if name}


def arrows(*folders: str, to: tuple[str, ...]) -> list[str]:
    """`file -> module` for every import of these modules in these folders."""
    return [
        f"{source} -> {module}"
        for source in sources(*folders)
        for module in sorted(reached(source))
        if is_within(module, *to)
    ]


def outside(found: list[str], *allowed: str) -> list[str]:
    """Those arrows that start in none of the allowed places."""
    return [arrow for arrow in found if not arrow.startswith(allowed)]


def test_the_engine_knows_nobody_else_here() -> None:
    others = (*(package for package in PACKAGES if package != "core_engine"), "examples", "tests")
    assert not arrows("core_engine", to=others)


def test_only_the_model_half_knows_model_libraries() -> None:
    assert not outside(arrows("core_engine", "gateway", "plugins", to=MODEL_LIBRARIES), "core_engine/model/")


def test_the_model_half_is_reached_in_one_place() -> None:
    found = arrows("core_engine", to=("core_engine.model",))
    assert not outside(found, "core_engine/model/", "core_engine/loading.py ")


def test_only_the_gateway_knows_server_libraries() -> None:
    assert not arrows("core_engine", "plugins", "contrib_kernels", to=SERVER_LIBRARIES)


def test_the_gateway_uses_public_names_only() -> None:
    assert not arrows("gateway", to=("plugins", "contrib_kernels", "tests"))
    private = []
    for source in sources("gateway"):
        for module, name in imports(source):
            if not is_within(module, "core_engine"):
                continue
            if is_within(module, TOOLS):
                public = name is not None and not name.startswith("_")
            else:
                public = module in PUBLIC_MODULES and name in importlib.import_module(module).__all__
            if not public:
                private.append(f"{source} -> {module} import {name}")
    assert not private


def test_policies_and_kernels_use_what_is_for_them() -> None:
    for folder, allowed in (("plugins", FOR_POLICIES), ("contrib_kernels", FOR_KERNELS)):
        wrong = [
            f"{source} -> {module}"
            for source in sources(folder)
            for module, _ in imports(source)
            if is_within(module, *PACKAGES) and not is_within(module, *allowed)
        ]
        assert not wrong


def test_plugins_is_a_namespace_that_others_may_extend() -> None:
    assert not (ROOT / "plugins" / "__init__.py").exists()


def test_importing_the_engine_loads_no_heavy_library() -> None:
    heavy = (*MODEL_LIBRARIES, *SERVER_LIBRARIES)
    modules = "core_engine, core_engine.text, core_engine.defaults"
    code = f"import sys, {modules}; print(*sorted(set(sys.modules) & {set(heavy)!r}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []
