"""Fuse, probe, keep or revert: known modules give way to fused ones, where these compute the same.

Every module is compared on its own, with the input that it gets in a pass of a few tokens. What
differs by more than rounding, or fails, stays as it is; the log says what and why.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn

from core_engine.executor import Batch
from core_engine.model import fused, memory
from core_engine.model.attention import AttentionSite, ForwardPass
from core_engine.model.kernels import AttentionShape, KernelRegistry
from core_engine.model.layout import BatchLayout
from core_engine.model.operators import JointHeads, Operators
from core_engine.model.tracing import TracedCall, trace_attention
from core_engine.request import Request, SamplingParams, Sequence

_log = logging.getLogger("jitney.model")

# Of the norm of the original's output: what other orders of rounding explain.
_TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 0.02, torch.float16: 0.003}
_BLOCK_SIZE = 8

# Attention that is: projections, perhaps norms of queries and keys, rotation by halves, attention, projection.
_ATTENTION_CLASSES = frozenset(
    f"{family}Attention"
    for family in (
        "Arcee", "Gemma", "Gemma2", "Gemma3", "Granite", "GraniteMoe", "GraniteMoeShared", "Llama", "Mistral",
        "Mixtral", "Olmo", "Olmo2", "Olmo3", "Phi3", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe", "SeedOss",
    )
)  # fmt: skip

# Layers that add what attention gives to what they are given, then what the MLP makes of that; one follows another.
_LAYER_CLASSES = frozenset(
    f"{family}DecoderLayer"
    for family in (
        "Arcee", "Ernie4_5", "Exaone4", "Gemma", "Gemma2", "Gemma3", "Granite", "GraniteMoe", "Helium",
        "HunYuanDenseV1", "Llama", "Mistral", "Mixtral", "Olmo2", "Olmo3", "Phi3", "Qwen2", "Qwen2Moe", "Qwen3",
        "Qwen3Moe", "SeedOss", "SmolLM3",
    )
)  # fmt: skip


class _Found(NamedTuple):
    """A module that may be fused, and where it hangs."""

    parent: nn.Module
    name: str
    module: Any

    def replace(self, module: nn.Module) -> None:
        setattr(self.parent, self.name, module)


class _Captured(NamedTuple):
    """What a module was called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class NotFusedError(Exception):
    """This module stays as it is; the text says why."""


@torch.inference_mode()
def fuse(model: Any, calls: list[TracedCall], kernels: KernelRegistry) -> int:
    """Replace what can be replaced in `model`, whose calls of attention are `calls`; returns how many modules.

    The log says what became of each kind.
    """
    operators = kernels.operators_for(model.dtype)
    shapes = {call.module: call.shape for call in calls}
    kept: Counter[str] = Counter()
    reverted: Counter[str] = Counter()
    fusers: list[tuple[Callable[[Any], bool], Callable[[_Found, _Captured], None]]] = [
        (
            lambda module: type(module).__name__ in _ATTENTION_CLASSES and module in shapes,
            lambda found, captured: _fuse_attention(found, captured, shapes[found.module], operators, kernels),
        ),
        (_is_gated_mlp, lambda found, captured: _fuse_mlp(found, captured, operators)),
        (_is_norm, lambda found, captured: _fuse_norm(found, captured, operators)),
        (  # last, since it takes the others fused
            lambda module: type(module).__name__ in _LAYER_CLASSES,
            lambda found, captured: _fuse_layer(found, captured, shapes, operators, kernels),
        ),
    ]
    children = list(_children(model))
    found = [(each, fuser) for wanted, fuser in fusers for each in children if wanted(each.module)]
    inputs = _capture(model, [each.module for each, _ in found])
    for each, fuser in found:
        kind = type(each.module).__name__
        try:
            if each.module not in inputs:
                raise NotFusedError("it wasn't called in the trial pass")
            fuser(each, inputs[each.module])
            kept[kind] += 1
        except NotFusedError as reason:
            reverted[f"{kind}: {reason}"] += 1
        except Exception as error:
            reverted[f"{kind}: {type(error).__name__}: {error}"] += 1
    _chain(model)
    _report(kept, reverted, operators)
    return kept.total()


def _children(model: nn.Module) -> Iterator[_Found]:
    """Every module but those inside an attention module, which is fused whole."""
    for name, child in model.named_children():
        if "forward" not in vars(child):  # somebody has changed what this one does
            yield _Found(model, name, child)
        if type(child).__name__ not in _ATTENTION_CLASSES:
            yield from _children(child)


def _is_gated_mlp(module: Any) -> bool:
    children = {name for name, child in module.named_children() if type(child) is nn.Linear}
    return type(module).__name__.endswith("MLP") and children in (
        {"gate_proj", "up_proj", "down_proj"},
        {"gate_up_proj", "down_proj"},
    )


def _is_norm(module: Any) -> bool:
    return (
        type(module).__name__.endswith("RMSNorm")
        and [name for name, _ in module.named_parameters()] == ["weight"]
        and (hasattr(module, "variance_epsilon") or hasattr(module, "eps"))
    )


def _capture(model: Any, modules: list[nn.Module]) -> dict[nn.Module, _Captured]:
    """Arguments of the first call of each module in a pass of a few tokens."""
    captured: dict[nn.Module, _Captured] = {}

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        captured.setdefault(module, _Captured(args, kwargs))

    handles = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    try:
        trace_attention(model)
    finally:
        for handle in handles:
            handle.remove()
    return captured


def _fuse_norm(found: _Found, captured: _Captured, operators: Operators) -> None:
    expected = found.module(*captured.args, **captured.kwargs)
    reasons = []
    for offset in (0.0, 1.0):
        module = fused.FusedNorm(found.module, operators, offset)
        reason = _difference(module(*captured.args, **captured.kwargs), expected)
        if reason is None:
            return found.replace(module)
        reasons.append(reason)
    raise NotFusedError(min(reasons))


def _fuse_mlp(found: _Found, captured: _Captured, operators: Operators) -> None:
    mlp = found.module
    activation = fused.activation_name(getattr(mlp, "act_fn", None) or mlp.activation_fn)
    if activation is None:
        raise NotFusedError("no operator for its activation")
    joint = mlp.gate_up_proj if hasattr(mlp, "gate_up_proj") else fused.join([mlp.gate_proj, mlp.up_proj])
    module = fused.FusedGatedMLP(mlp, joint, activation, operators)
    expected = mlp(*captured.args, **captured.kwargs)
    if reason := _difference(module(*captured.args, **captured.kwargs), expected):
        raise NotFusedError(reason)
    found.replace(module)


def _fuse_attention(
    found: _Found, captured: _Captured, shape: AttentionShape, operators: Operators, kernels: KernelRegistry
) -> None:
    attention = found.module
    if shape.key_size != shape.value_size or shape.has_sinks:
        raise NotFusedError("its keys and values differ in size, or it has sinks")
    norm = getattr(attention, "q_norm", None)
    expected = _attend_alone(attention, captured, attention, shape, kernels)
    fused.add_joint_projection(attention)
    reasons = []
    try:
        for offset in (0.0, 1.0) if norm is not None else (0.0,):
            module = fused.FusedAttention(attention, _joint_heads(attention, shape, offset), operators)
            reason = _difference(_attend_alone(module, captured, attention, shape, kernels), expected)
            if reason is None:
                fused.drop_projections(attention)
                return found.replace(module)
            reasons.append(reason)
        raise NotFusedError(min(reasons))
    except Exception:
        fused.drop_joint_projection(attention)  # or its weights would be held twice
        raise


def _fuse_layer(
    found: _Found,
    captured: _Captured,
    shapes: dict[nn.Module, AttentionShape],
    operators: Operators,
    kernels: KernelRegistry,
) -> None:
    layer = found.module
    norms = fused.LayerNorms.of(layer)
    if not all(norm is None or isinstance(norm, fused.FusedNorm) for norm in norms):
        raise NotFusedError("its norms aren't")
    attention = getattr(layer.self_attn, "original", layer.self_attn)
    shape = shapes[attention]
    module = fused.FusedLayer(layer, norms, getattr(layer, "residual_multiplier", 1.0), operators)
    expected = _attend_alone(layer, captured, attention, shape, kernels)
    if reason := _difference(_attend_alone(module, captured, attention, shape, kernels), expected):
        raise NotFusedError(reason)
    found.replace(module)


def _chain(model: nn.Module) -> None:
    """Let fused layers that another follows leave their last addition to that one."""
    for layers in model.modules():
        if isinstance(layers, nn.ModuleList):
            for layer, following in pairwise(layers):
                if isinstance(layer, fused.FusedLayer) and isinstance(following, fused.FusedLayer):
                    layer.hands_on = True


def _joint_heads(attention: Any, shape: AttentionShape, offset: float) -> JointHeads:
    heads = JointHeads(shape.num_heads, shape.num_kv_heads, shape.key_size)
    if getattr(attention, "q_norm", None) is None:
        return heads
    query, key = (norm.weight.detach().float() + offset for norm in (attention.q_norm, attention.k_norm))
    return JointHeads(
        heads.num_heads, heads.num_kv_heads, heads.size, query, key, query.numel() != heads.size,
        fused.epsilon_of(attention.q_norm),
    )  # fmt: skip


def _attend_alone(
    module: nn.Module, captured: _Captured, attention: nn.Module, shape: AttentionShape, kernels: KernelRegistry
) -> torch.Tensor:
    """Output of a module that attends in a pass of its own, one sequence of what was captured."""
    states = captured.args[0] if captured.args else captured.kwargs["hidden_states"]
    num_blocks = -(-states.shape[1] // _BLOCK_SIZE)
    (cache,) = memory.allocate_caches([shape], num_blocks, _BLOCK_SIZE, states.device)
    site = AttentionSite(attention, shape, kernels.attention_for(shape), cache)
    forward_pass = ForwardPass(BatchLayout(_batch(states.shape[1], num_blocks), states.device), [site])
    kwargs = {**captured.kwargs, "attention_mask": None}
    kwargs.pop("forward_pass", None)
    with forward_pass.set_aside():
        return module(*captured.args, **kwargs)[0]


def _batch(num_tokens: int, num_blocks: int) -> Batch:
    request = Request(id="", model="", prompt_token_ids=[0] * num_tokens, sampling=SamplingParams())
    sequence = Sequence(0, request, 0, max_tokens=1, seed=0, arrival_seconds=0.0, arrival_iteration=0)
    sequence.block_table = list(range(num_blocks))
    return Batch(
        iteration=0,
        block_size=_BLOCK_SIZE,
        sequences=[sequence],
        num_query_tokens=[num_tokens],
        num_kv_tokens=[num_tokens],
        token_ids=[0] * num_tokens,
        positions=list(range(num_tokens)),
        slot_mapping=list(range(num_tokens)),
    )


def _difference(found: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Why the two are not the same but for rounding; None if they are."""
    tolerance = _TOLERANCES[expected.dtype]
    size = float(expected.float().norm())
    if size == 0:
        return "gives nothing but zeros in the trial pass"
    deviation = float((found.float() - expected.float()).norm()) / size
    if deviation <= tolerance:
        return None
    return f"differs by {deviation:.2g} of the original, where {tolerance} would be rounding"


def _report(kept: Counter[str], reverted: Counter[str], operators: Operators) -> None:
    if kept:
        what = ", ".join(f"{count} {kind}" for kind, count in kept.most_common())
        _log.info("fused with %s: %s", operators.name, what)
    for reason, count in reverted.most_common():
        _log.warning("not fused: %d %s", count, reason)
