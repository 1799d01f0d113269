"""Sequences in any state, built by hand."""

from __future__ import annotations

from core_engine.request import Request, SamplingParams, Sequence, Status


def make_sequence(
    id: int = 0,
    *,
    prompt: int = 10,
    output: int = 0,
    computed: int = 0,
    blocks: list[int] | None = None,
    running: bool = False,
    max_tokens: int = 16,
    tenant: str = "anonymous",
    class_name: str = "standard",
) -> Sequence:
    request = Request(
        id=f"r{id}",
        model="simulated",
        prompt_token_ids=list(range(prompt)),
        sampling=SamplingParams(max_tokens=max_tokens),
        tenant=tenant,
        class_name=class_name,
    )
    sequence = Sequence(id, request, 0, max_tokens=max_tokens, seed=0, arrival_seconds=0.0, arrival_iteration=0)
    for token_id in range(output):
        sequence.append_token(token_id)
    sequence.num_computed_tokens = computed
    sequence.block_table = list(blocks or [])
    if running:
        sequence.status = Status.RUNNING
    return sequence
