"""TransformersExecutor: one forward pass of a transformers model over a flattened batch."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from core_engine.executor import Batch, BatchResult, ModelSpec
from core_engine.model.attention import AttentionSite, ForwardPass
from core_engine.model.grammar_masks import GrammarMasks
from core_engine.model.head import Head
from core_engine.model.layout import BatchLayout
from core_engine.model.prompt_scores import PromptScores, score
from core_engine.model.sampler import Sampled, Sampler


@dataclass(slots=True)
class _InFlight:
    """A pass that was submitted; `done` is what to wait for on a GPU."""

    sample_rows: list[int]
    sampled: Sampled | None
    scores: PromptScores | None
    done: torch.cuda.Event | None


class TransformersExecutor:
    """Executor over any transformers decoder whose only operation across tokens is attention.

    `hands_down_pass`: the model passes keyword arguments on to attention.
    """

    def __init__(
        self, model: Any, spec: ModelSpec, sites: list[AttentionSite], sampler: Sampler, *, hands_down_pass: bool
    ) -> None:
        self.model = model
        self.sites = sites
        self._spec = spec
        self._sampler = sampler
        self._hands_down_pass = hands_down_pass
        self._head = Head(model)
        self._device = torch.device(model.device)
        self._grammar_masks = GrammarMasks(spec.vocab_size, self._device)

    @property
    def spec(self) -> ModelSpec:
        """What is loaded."""
        return self._spec

    @property
    def kernel_names(self) -> list[str]:
        """The attention kernels in use."""
        return sorted({site.kernel.name for site in self.sites})

    @torch.inference_mode()
    def submit(self, batch: Batch) -> _InFlight:
        """Start one pass, sampling included. Nothing here waits for a GPU; a CPU is done when it returns."""
        decoded: list[Any] = []
        with self._head.listening(decoded) if batch.scored else nullcontext():
            logits = self.logits(batch)
        scores = self._score(batch, decoded) if batch.scored else None
        sampled = None
        if logits is not None:
            sequences = [batch.sequences[row] for row in batch.sample_rows]
            sampled = self._sampler.sample(logits, sequences, self._grammar_masks.fill(sequences))
        if scores is not None:
            scores.to_host()
        if sampled is not None:
            sampled.to_host()
        if self._device.type == "cpu" or (scores is None and sampled is None):
            return _InFlight(batch.sample_rows, sampled, scores, None)
        done = torch.cuda.Event()
        done.record()
        return _InFlight(batch.sample_rows, sampled, scores, done)

    def collect(self, handle: object) -> BatchResult:
        """Wait for the pass, the only time a device is waited for, and return its tokens."""
        assert isinstance(handle, _InFlight)
        if handle.done is not None:
            handle.done.synchronize()
        prompt_logprobs = handle.scores.fetch() if handle.scores is not None else {}
        if handle.sampled is None:
            return BatchResult([], prompt_logprobs=prompt_logprobs)
        token_ids, logprobs, failures = handle.sampled.fetch()
        return BatchResult(
            token_ids,
            logprobs,
            {handle.sample_rows[place]: reason for place, reason in failures.items()},
            prompt_logprobs,
        )

    @torch.inference_mode()
    def logits(self, batch: Batch) -> torch.Tensor | None:
        """Logits `[sample_rows, vocab_size]` of a batch, whose keys and values are written; None without rows."""
        layout = BatchLayout(batch, self._device)
        if layout.copies is not None:
            self._copy_blocks(*layout.copies)
        if layout.num_tokens + layout.num_idle == 0:
            return None
        # A pass that samples nothing still goes through the last layer, for one row that nobody reads.
        rows = layout.sample_index if batch.sample_rows else layout.sample_index.new_zeros(1)
        logits = self._forward(layout, rows)
        return logits if batch.sample_rows else None

    def _forward(self, layout: BatchLayout, rows: torch.Tensor) -> torch.Tensor:
        """Logits `[rows, vocab_size]` at these flat indices."""
        forward_pass = ForwardPass(layout, self.sites)
        handed = {"forward_pass": forward_pass} if self._hands_down_pass else {}
        with nullcontext() if self._hands_down_pass else forward_pass.set_aside():
            logits = self.model(
                input_ids=layout.token_ids,
                position_ids=layout.position_ids,
                use_cache=False,
                logits_to_keep=rows,
                **handed,
            ).logits[0]
        # A few models know no logits_to_keep and give them all.
        return logits if logits.shape[0] == rows.shape[0] else logits.index_select(0, rows)

    def _score(self, batch: Batch, decoded: list[Any]) -> PromptScores:
        """Log-probabilities of prompt tokens, from what the decoder answered in the batch's pass."""
        if self._head.can_use(decoded, batch.total_tokens):
            return score(batch, lambda rows: self._head.logits(decoded[0], rows), self._spec.vocab_size, self._device)
        # A decoder that answers in a way of its own: the pass once more, with all the logits.
        rows = torch.arange(batch.total_tokens, device=self._device)
        every = self._forward(BatchLayout(batch, self._device), rows)
        return score(batch, lambda rows: every.index_select(0, rows), self._spec.vocab_size, self._device)

    def _copy_blocks(self, sources: torch.Tensor, destinations: torch.Tensor) -> None:
        for site in self.sites:
            for paged in (site.cache.keys, site.cache.values):
                paged.index_copy_(1, destinations, paged.index_select(1, sources))
