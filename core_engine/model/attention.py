"""The attention function that transformers calls in every layer, and how it finds the batch it is in.

A forward pass carries a ForwardPass down to the attention layers as a keyword argument. Some models
drop keyword arguments on the way; for those it is also set aside for the duration of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AttentionInterface

from core_engine.model.kernels import AttentionKernel, AttentionShape
from core_engine.model.kv_cache import KVCache
from core_engine.model.layout import BatchLayout
from core_engine.model.operators import JointHeads, Operators

IMPLEMENTATION = "jitney"  # the name that transformers' AttentionInterface knows `attend` by

Angles = tuple[torch.Tensor, torch.Tensor]  # cosines and sines

_set_aside: ContextVar[ForwardPass | None] = ContextVar("forward_pass", default=None)


@dataclass(slots=True)
class AttentionSite:
    """One call of attention in a forward pass; the n-th call of every pass is of the n-th site."""

    module: torch.nn.Module
    shape: AttentionShape
    kernel: AttentionKernel
    cache: KVCache


class ForwardPass:
    """What the attention layers need to know of the batch; lives for one pass."""

    def __init__(self, layout: BatchLayout, sites: list[AttentionSite]) -> None:
        self.layout = layout
        self.sites = sites
        self._next_site = 0
        self._plans: dict[tuple[int, AttentionShape], Any] = {}
        self._found: dict[tuple[int, int], tuple[Any, AttentionShape]] = {}
        self._angles: dict[int, tuple[Angles, Angles]] = {}
        self._handed_on: tuple[torch.Tensor, torch.Tensor] | None = None
        self._finished: torch.Tensor | None = None

    def site_of(self, module: torch.nn.Module) -> AttentionSite:
        """The site of this call, which must come in the order that was seen at load."""
        site = self.sites[self._next_site] if self._next_site < len(self.sites) else None
        if site is None or site.module is not module:
            raise RuntimeError(f"{type(module).__name__} attends out of the order that was seen at load")
        self._next_site += 1
        return site

    def plan_for(self, site: AttentionSite) -> tuple[Any, AttentionShape]:
        """The kernel's plan for layers like this one, made at the first of them, and the shape it is for."""
        # Sites of equal shape share the object, so that most layers find their plan without comparing shapes.
        found = self._found.get((id(site.kernel), id(site.shape)))
        if found is None:
            shape = replace(site.shape, reach=self.layout.effective(site.shape.reach))
            key = (id(site.kernel), shape)
            if key not in self._plans:
                self._plans[key] = site.kernel.plan(self.layout, shape, site.cache.null_block)
            found = self._found[id(site.kernel), id(site.shape)] = (self._plans[key], shape)
        return found

    def angles_of_tokens(self, angles: Angles) -> Angles:
        """Cosines and sines less those of idle rows, `[num_tokens, rotary size]`: the same for many layers."""
        found = self._angles.get(id(angles[0]))
        if found is None:
            n = self.layout.num_tokens
            found = (angles[0][0, :n], angles[1][0, :n]), angles  # kept, so that no others get their identity
            self._angles[id(angles[0])] = found
        return found[0]

    def hand_on(self, addend: torch.Tensor, residual: torch.Tensor) -> None:
        """Leave it to the next layer to add what this one answers, `addend`, to the residual."""
        self._handed_on = (addend, residual)

    def take_residual(self, addend: torch.Tensor) -> torch.Tensor | None:
        """The residual that a layer's input is still to be added to; None where it is complete."""
        if self._handed_on is None:
            return None
        expected, residual = self._handed_on
        if addend is not expected:
            raise RuntimeError("a layer's answer was changed on its way to the next, which would have added it up")
        self._handed_on = None
        return residual

    def finish(self, answer: torch.Tensor) -> None:
        """Tell the layers that follow that all of them have run, and gave `answer`."""
        self._finished = answer

    def is_finished(self, states: torch.Tensor) -> bool:
        """Whether a layer that is given `states` has run, these being what the last layer answered."""
        if self._finished is None:
            return False
        if states is not self._finished:
            raise RuntimeError("a layer's answer was changed on its way to the next, which has run already")
        return True

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Let attention find this pass without being handed it."""
        token = _set_aside.set(self)
        try:
            yield
        finally:
            _set_aside.reset(token)


def current_pass() -> ForwardPass | None:
    """The pass that was set aside, if any."""
    return _set_aside.get()


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    *,
    forward_pass: ForwardPass | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one layer over the flattened batch, as AttentionInterface wants it.

    Query, key and value are `[1, heads, total_tokens, size]`, the answer is
    `[1, total_tokens, heads, value_size]`; idle tokens get zeros. Scaling, soft-cap and reach are
    the site's, seen when the model was loaded.
    """
    forward_pass = forward_pass or current_pass()
    if forward_pass is None:
        raise RuntimeError("attention was called outside a forward pass of the executor")
    site = forward_pass.site_of(module)
    layout = forward_pass.layout
    n = layout.num_tokens
    output = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
    if output.shape[1] > n:
        output[:, n:] = 0
    if n:
        plan, shape = forward_pass.plan_for(site)
        site.kernel.write(key[0, :, :n], value[0, :, :n], site.cache, layout)
        site.kernel.attend(query[0, :, :n], site.cache, plan, shape, s_aux, output[0, :n])
    return output, None


def attend_joint(
    module: torch.nn.Module,
    joint: torch.Tensor,
    heads: JointHeads,
    angles: Angles,
    operators: Operators,
    forward_pass: ForwardPass,
) -> torch.Tensor:
    """The same from one product for queries, keys and values, `[1, total_tokens, width]`, not yet rotated.

    `angles` are cosines and sines, `[1, total_tokens, rotary size]`; the answer is
    `[1, total_tokens, heads * size]`.
    """
    site = forward_pass.site_of(module)
    layout = forward_pass.layout
    n = layout.num_tokens
    output = joint.new_empty(1, joint.shape[1], heads.num_heads, heads.size)
    if output.shape[1] > n:
        output[:, n:] = 0
    if n:
        plan, shape = forward_pass.plan_for(site)
        if site.kernel.reads_whole_blocks:
            site.cache.clear(layout.stale_blocks)
        cosines, sines = forward_pass.angles_of_tokens(angles)
        query = operators.rotate_and_write(joint[0, :n], heads, cosines, sines, site.cache, layout.slots)
        site.kernel.attend(query.transpose(0, 1), site.cache, plan, shape, None, output[0, :n])
    return output.flatten(2)


AttentionInterface.register(IMPLEMENTATION, attend)
