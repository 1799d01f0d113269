"""Builds the C++ kernels once for this processor, and keeps the result in the user's cache."""

from __future__ import annotations

import functools
import logging
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from contrib_kernels.cpu.tiles import may_use_tiles
from core_engine.model.cache import CacheError, cached_directory, digest
from core_engine.model.devices import describe

_log = logging.getLogger("jitney.kernels")

SOURCES = Path(__file__).parent / "src"
_COMPILERS = ("g++", "c++", "clang++")
# The library must use the OpenMP runtime that torch has loaded, or there would be two sets of threads.
_FLAGS = ("-O3", "-std=gnu++17", "-fopenmp", "-shared", "-fPIC")
_LIBRARY = "kernels.so"


class BuildError(Exception):
    """The kernels can't be had here; the text says why and what would help."""


@dataclass(frozen=True, slots=True)
class Variant:
    """An instruction set to build for: compiler flags, and the flags of /proc/cpuinfo that it takes."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_AVX512_BF16 = (
    *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
    *("-mavx512vnni", "-mavx512bf16", "-mfma", "-mtune=native"),
)
_NEEDS_AVX512_BF16 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "fma"})

VARIANTS = (
    Variant(
        "amx_bf16",
        (*_AVX512_BF16, "-mamx-tile", "-mamx-bf16"),
        _NEEDS_AVX512_BF16 | {"amx_tile", "amx_bf16"},
    ),
    Variant(
        "avx512_bf16",
        _AVX512_BF16,
        _NEEDS_AVX512_BF16,
    ),
    Variant(
        "avx512",
        ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mtune=native"),
        frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}),
    ),
    Variant("avx2", ("-mavx2", "-mfma", "-mtune=native"), frozenset({"avx2", "fma"})),
    Variant("plain", (), frozenset()),
)


@dataclass(frozen=True, slots=True)
class Build:
    """A library that was built: its file, the variant, and a short name of all that went into it."""

    file: Path
    variant: Variant
    identity: str


def usable_variants() -> list[Variant]:
    """What this processor runs and the system lets this process run, best first."""
    words = set(describe(torch.device("cpu")).split())
    usable = [variant for variant in VARIANTS if variant.needs <= words]
    return [variant for variant in usable if "amx_tile" not in variant.needs or may_use_tiles()]


def build(variant: Variant | None = None) -> Build:
    """The library for `variant`, by default the best one, from the cache or built now. Raises BuildError."""
    usable = usable_variants()
    variant = variant or usable[0]
    if variant not in usable:
        raise BuildError(f"this machine doesn't run the {variant.name} kernels; it runs {_names(usable)}")
    compiler = _compiler()
    sources = sorted(SOURCES.iterdir())
    identity = digest(
        *(file.name + file.read_text(encoding="utf-8") for file in sources),
        *(*_FLAGS, *variant.flags, _version(compiler), describe(torch.device("cpu"))),
    )

    def compile_into(directory: Path) -> None:
        _log.info("building kernels for this processor (%s); this is done once and takes seconds", variant.name)
        command = [compiler, *_FLAGS, *variant.flags, str(SOURCES / "kernels.cpp"), "-o", str(directory / _LIBRARY)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- fixed but for the compiler's path
        if done.returncode != 0:
            raise BuildError(f"{compiler} can't build the CPU kernels: {done.stderr.strip()[-500:] or done.returncode}")

    try:
        directory = cached_directory(f"cpu-{variant.name}-{identity}", compile_into, section="kernels")
    except CacheError as error:  # no cache that can be written: build for this process alone
        _log.warning("%s; building the kernels anew at every start", error)
        directory = Path(tempfile.mkdtemp(prefix="jitney-kernels-"))
        compile_into(directory)
    return Build(directory / _LIBRARY, variant, identity)


def _names(variants: list[Variant]) -> str:
    return ", ".join(variant.name for variant in variants)


def _compiler() -> str:
    for name in _COMPILERS:
        if (path := shutil.which(name)) is not None:
            return path
    raise BuildError(f"no C++ compiler ({', '.join(_COMPILERS)}) to build the CPU kernels with; install g++")


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603 -- a fixed option
