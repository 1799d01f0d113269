"""A small simulated engine in virtual time."""

from __future__ import annotations

from collections.abc import Iterable

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import ModelSpec
from core_engine.lab.simulated import SimulatedExecutor, SimulatedModel
from core_engine.selection import NamedPolicy, build_policies

VOCAB_SIZE = 1000


def simulated_engine(
    policies: Iterable[str | object | NamedPolicy] = (),
    *,
    num_blocks: int = 64,
    block_size: int = 16,
    max_model_len: int = 4096,
    max_lone_prompt_tokens: int | None = None,
    model: SimulatedModel | None = None,
    **options: object,
) -> tuple[Engine, VirtualClock]:
    """An engine named `simulated` that audits itself after every iteration, and its clock at 0.

    `policies` are specifications as in a configuration (`"orca:max_batch=4"`), named policies, or policy
    objects, which go by the names of their classes. `options` are further fields of EngineConfig. The last token of the
    vocabulary of 1,000 ends a sequence.
    """
    config = EngineConfig(
        **{  # type: ignore[arg-type]
            "executor": "simulated",
            "block_size": block_size,
            "token_limit": 64,
            "sequence_limit": 8,
            "check_integrity": True,
            "seed": 0,
            **options,
        }
    )
    spec = ModelSpec(
        name="simulated",
        architecture="simulated",
        dtype="float32",
        device="simulated",
        vocab_size=VOCAB_SIZE,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        block_size=block_size,
        kv_bytes_per_token=1024,
        eos_token_ids=(VOCAB_SIZE - 1,),
        row_flops=1e6,
        attention_flops=1e3,
        max_lone_prompt_tokens=max_lone_prompt_tokens,
    )
    built: list[NamedPolicy] = []
    for policy in policies:
        if isinstance(policy, str):
            built += build_policies((policy,), 0)
        elif isinstance(policy, NamedPolicy):
            built.append(policy)
        else:
            built.append(NamedPolicy(type(policy).__name__.lower(), policy))
    clock = VirtualClock()
    return Engine(config, SimulatedExecutor(spec, clock, model), clock=clock, policies=built), clock
