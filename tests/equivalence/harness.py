"""Runs sequences through an executor in chunks and mixed, and alone through plain transformers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.driver import HandDriver
from core_engine.model.executor import TransformersExecutor
from core_engine.model.load import Assembly
from core_engine.request import Sequence

BLOCK_SIZE = 8
LENGTHS = (37, 21, 5, 30)


def token_ids(length: int, salt: int, vocab_size: int = 128) -> list[int]:
    """Tokens without a pattern, none of them special."""
    return [3 + (salt * 1009 + i * i * 31 + i * 7) % (vocab_size - 3) for i in range(length)]


@torch.inference_mode()
def lone_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Float32 logits `[tokens, vocab_size]` of one sequence through transformers' eager attention."""
    model.set_attn_implementation("eager")
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()


def build_executor(model: Any, **options: Any) -> TransformersExecutor:
    """An executor over a model in memory, with little room for keys and values."""
    config = EngineConfig(block_size=BLOCK_SIZE, kv_memory_bytes=4 << 20, token_limit=64, sequence_limit=8, **options)
    return Assembly(model, config).executor("tiny")


@dataclass(slots=True)
class Run:
    """Sequences under way, with what each should give; `deviation` is the largest difference met."""

    executor: TransformersExecutor
    expected: dict[int, torch.Tensor]
    driver: HandDriver
    deviation: float = 0.0
    positions: set[tuple[int, int]] = field(default_factory=set)

    def step(self, plan: list[tuple[Sequence, int]], *, idle_rows: int = 0) -> None:
        """Execute so many tokens of each and compare the logits of each row's last token."""
        batch = self.driver.bind(plan, sample_all=True, idle_rows=idle_rows)
        logits = self.executor.logits(batch)
        assert logits is not None
        self.driver.advance(batch)
        for row, (sequence, _) in enumerate(plan):
            position = sequence.num_computed_tokens - 1
            difference = (logits[row].float() - self.expected[sequence.id][position]).abs().max()
            self.deviation = max(self.deviation, float(difference))
            self.positions.add((sequence.id, position))


def run_mixed(model: Any, **options: Any) -> Run:
    """Chunks, decodes, a preemption and recomputation, and idle rows, over sequences longer than any window."""
    prompts = [token_ids(length, salt) for salt, length in enumerate(LENGTHS)]
    lone = [lone_logits(model, prompt) for prompt in prompts]
    executor = build_executor(model, **options)
    driver = HandDriver(executor.spec)
    a, b, c, d = (driver.sequence(prompt) for prompt in prompts)
    run = Run(executor, {s.id: logits for s, logits in zip((a, b, c, d), lone, strict=True)}, driver)
    run.step([(a, 9)])
    run.step([(a, 1), (b, 21)])
    run.step([(c, 4), (a, 14), (d, 3)], idle_rows=3)
    run.step([(c, 1), (d, 1), (a, 1)])  # decodes of different lengths only
    driver.release(d)  # preempted: all of it is computed again, in other chunks
    run.step([(a, 2), (d, 17)])
    for _ in range(6):
        run.step([(d, 1), (a, 1)], idle_rows=1)
    run.step([(a, a.num_pending_tokens), (d, d.num_pending_tokens)])
    return run
