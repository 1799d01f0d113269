"""The C++ kernels are built once, and a machine without a compiler goes on without them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from contrib_kernels.cpu import build as building
from contrib_kernels.cpu import register_kernels
from contrib_kernels.cpu.build import VARIANTS, BuildError, build, usable_variants
from core_engine.model.kernels import KernelRegistry
from core_engine.model.reference import ReferenceAttention
from tests.kernels.exact import shape_of

PLAIN = VARIANTS[-1]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def registry() -> KernelRegistry:
    made = KernelRegistry("cpu")
    made.register(ReferenceAttention())
    return made


def test_built_once_with_a_line_of_progress(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="jitney.kernels"):
        try:
            first = build(PLAIN)
        except BuildError as error:
            pytest.skip(str(error))
        assert build(PLAIN) == first
    assert caplog.text.count("building kernels for this processor (plain)") == 1
    assert first.file.is_relative_to(cache)


def test_without_a_compiler_torch_serves(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(building, "_COMPILERS", ("no-such-compiler",))
    made = registry()
    register_kernels(made)
    assert made.attention_for(shape_of()).name == "torch"
    (line,) = caplog.messages
    assert line == (
        "going on with torch's own operations, which are slower: no C++ compiler (no-such-compiler) to build the CPU "
        "kernels with; install g++"
    )


def test_a_compiler_that_fails_is_quoted(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "bad-compiler"
    compiler.write_text("#!/bin/sh\necho unknown option -fopenmp >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(building, "_COMPILERS", (str(compiler),))
    with pytest.raises(BuildError, match="bad-compiler can't build the CPU kernels: unknown option -fopenmp"):
        build(PLAIN)


def test_there_is_always_a_variant() -> None:
    assert usable_variants()[-1] == PLAIN


def test_tiles_need_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "may_use_tiles", lambda: False)
    assert not any("amx" in variant.name for variant in usable_variants())
    with pytest.raises(BuildError, match=r"this machine doesn't run the amx_bf16 kernels; it runs .*plain"):
        build(VARIANTS[0])


def test_nothing_is_built_for_a_gpu(cache: Path) -> None:
    register_kernels(KernelRegistry("cuda"))
    assert not list(cache.iterdir())
