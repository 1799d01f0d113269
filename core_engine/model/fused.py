"""Modules that do in one go what several of transformers' do, over the operators of the kernel registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from core_engine.model.attention import Angles, ForwardPass, attend_joint, current_pass
from core_engine.model.operators import ACTIVATIONS, JointHeads, Operators

_JOINT = "joint_proj"


class FusedNorm(nn.Module):
    """An RMSNorm in one pass over its input; `offset` is what the norm adds to its weight (1 for Gemma)."""

    def __init__(self, norm: nn.Module, operators: Operators, offset: float) -> None:
        super().__init__()
        self.epsilon = epsilon_of(norm)
        self.weight = nn.Parameter(norm.weight.detach().float() + offset, requires_grad=False)
        self.operators = operators

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """As the norm."""
        return self.operators.rms_norm(states, self.weight, self.epsilon)


class FusedGatedMLP(nn.Module):
    """Gate and up in one product, activation and multiplication in one pass, down."""

    def __init__(self, mlp: Any, joint: nn.Module, activation: str, operators: Operators) -> None:
        super().__init__()
        self.joint = joint
        self.down = mlp.down_proj
        self.activation = activation
        self.operators = operators

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """As the MLP."""
        return self.down(self.operators.gate(self.joint(states), self.activation))


class FusedAttention(nn.Module):
    """Query, key and value in one product; norms, rotation and the write to the cache in one pass.

    Outside a forward pass of the executor, while a probe compares with plain attention say, the
    original module does it its own way.
    """

    def __init__(self, attention: Any, heads: JointHeads, operators: Operators) -> None:
        super().__init__()
        self.original = attention
        self.heads = heads
        self.operators = operators
        self._joint_name = "qkv_proj" if hasattr(attention, "qkv_proj") else _JOINT

    @property
    def joint(self) -> Any:
        """The projection to queries, keys and values."""
        return getattr(self.original, self._joint_name)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """As the attention module, whose output weights nobody reads."""
        original = self.original
        forward_pass = kwargs.get("forward_pass") or current_pass()
        if not isinstance(forward_pass, ForwardPass):  # the pass that a trace hands down is none
            return original(
                hidden_states=hidden_states,
                position_embeddings=position_embeddings,
                attention_mask=attention_mask,
                **kwargs,
            )
        assert position_embeddings is not None
        joint = self.joint(hidden_states)
        mixed = attend_joint(original, joint, self.heads, position_embeddings, self.operators, forward_pass)
        return original.o_proj(mixed), None


class LayerNorms(NamedTuple):
    """The norms of a layer: of what attention and the MLP read, and of what they answer; None where there is none."""

    before_attention: FusedNorm | None
    after_attention: FusedNorm | None
    before_mlp: FusedNorm | None
    after_mlp: FusedNorm | None

    @classmethod
    def of(cls, layer: Any) -> LayerNorms:
        """A layer's norms by their place, which their names tell only together: Llama, Gemma 2 and OLMo 2 differ."""
        if hasattr(layer, "pre_feedforward_layernorm"):
            before, after = layer.input_layernorm, layer.post_attention_layernorm
            return cls(before, after, layer.pre_feedforward_layernorm, layer.post_feedforward_layernorm)
        if hasattr(layer, "post_feedforward_layernorm"):
            return cls(None, layer.post_attention_layernorm, None, layer.post_feedforward_layernorm)
        return cls(layer.input_layernorm, None, layer.post_attention_layernorm, None)


# Runs all layers of a pass and returns what the last one answers; None for a pass that it isn't for.
Stack = Callable[[torch.Tensor, Angles, ForwardPass], torch.Tensor | None]


class FusedLayer(nn.Module):
    """A layer that adds the answer of attention, and then that of the MLP, to what it was given.

    Additions go with the norms that follow them in one pass, also that of the MLP's answer, which is left to the
    next layer where `hands_on`. What the layers add up stays in float32 all the way: rounded to bfloat16 after every
    addition, as transformers does, it is what costs a model most of its precision. `factor` scales the answers.

    The first layer may have a `stack`: where that runs all layers in one call, the others have nothing left to do.
    """

    def __init__(self, layer: Any, norms: LayerNorms, factor: float, operators: Operators) -> None:
        super().__init__()
        self.attention = layer.self_attn
        self.mlp = layer.mlp if hasattr(layer, "mlp") else layer.block_sparse_moe
        self.norms = nn.ModuleList([norm for norm in norms if norm is not None])
        self.hands_on = False
        self.stack: Stack | None = None
        self.placed_norms = norms
        self.factor = factor
        self.operators = operators

    def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """As the layer; to the next layer, where it hands on, the MLP's answer alone."""
        norms = self.placed_norms
        found = kwargs.get("forward_pass") or current_pass()
        forward_pass = found if isinstance(found, ForwardPass) else None  # the pass that a trace hands down is none
        if forward_pass and forward_pass.is_finished(hidden_states):
            return hidden_states
        if forward_pass and self.stack is not None:
            answer = self.stack(hidden_states, kwargs["position_embeddings"], forward_pass)
            if answer is not None:
                forward_pass.finish(answer)
                return answer
        residual = forward_pass.take_residual(hidden_states) if forward_pass else None
        if residual is not None:
            states = self._add(hidden_states, residual, norms.before_attention)
        else:
            residual = hidden_states.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            states = norms.before_attention(hidden_states) if norms.before_attention else hidden_states
        mixed, _ = self.attention(hidden_states=states, **kwargs)
        states = self._add(self._scale(mixed, norms.after_attention), residual, norms.before_mlp)
        answer = self._scale(self.mlp(states), norms.after_mlp)
        if forward_pass and self.hands_on:
            forward_pass.hand_on(answer, residual)
            return answer
        return self._add(answer, residual, None)

    def _scale(self, answer: torch.Tensor, norm: FusedNorm | None) -> torch.Tensor:
        if norm is not None:
            answer = norm(answer)
        return answer if self.factor == 1.0 else answer * self.factor

    def _add(self, answer: torch.Tensor, residual: torch.Tensor, norm: FusedNorm | None) -> torch.Tensor:
        """Add to the residual in place; its norm, or itself in the model's format."""
        if norm is None:
            return residual.add_(answer).to(answer.dtype)
        return self.operators.add_rms_norm(answer, residual, norm.weight, norm.epsilon)


class _Part(nn.Module):
    """Some of the outputs of a joint projection, for the original module's own way."""

    def __init__(self, attention: nn.Module, outputs: slice) -> None:
        super().__init__()
        self._attention = (attention,)  # in a tuple, or it would count as a child
        self._outputs = outputs

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """As the projection it replaces."""
        return getattr(self._attention[0], _JOINT)(states)[..., self._outputs]


_USERS = (FusedNorm, FusedGatedMLP, FusedAttention, FusedLayer)


def join(linears: list[nn.Linear]) -> nn.Linear:
    """One linear layer that gives the outputs of all, one after another."""
    joint = nn.Linear(linears[0].in_features, sum(linear.out_features for linear in linears), bias=False, device="meta")
    joint.weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), requires_grad=False)
    if any(linear.bias is not None for linear in linears):
        biases = [
            linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias.detach()
            for linear in linears
        ]
        joint.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    return joint


def add_joint_projection(attention: Any) -> None:
    """Give an attention module the projection that FusedAttention uses, beside its own three."""
    if not hasattr(attention, "qkv_proj"):
        attention.add_module(_JOINT, join([attention.q_proj, attention.k_proj, attention.v_proj]))


def drop_projections(attention: Any) -> None:
    """Let an attention module's own projections be parts of the joint one, so that weights are held once."""
    if hasattr(attention, "qkv_proj"):
        return
    start = 0
    for name in ("q_proj", "k_proj", "v_proj"):
        stop = start + getattr(attention, name).out_features
        setattr(attention, name, _Part(attention, slice(start, stop)))
        start = stop


def drop_joint_projection(attention: Any) -> None:
    """Undo `add_joint_projection`."""
    if hasattr(attention, _JOINT):
        delattr(attention, _JOINT)


def operators_in(model: nn.Module) -> list[Operators]:
    """The operators that fused modules of a model use."""
    found = {id(module.operators): module.operators for module in model.modules() if isinstance(module, _USERS)}
    return list(found.values())


@contextmanager
def layer_by_layer(model: nn.Module) -> Iterator[None]:
    """Let every layer run by itself meanwhile, for whoever wants to look at each."""
    stacks = {module: module.stack for module in model.modules() if isinstance(module, FusedLayer)}
    for layer in stacks:
        layer.stack = None
    try:
        yield
    finally:
        for layer, stack in stacks.items():
            layer.stack = stack


def epsilon_of(norm: Any) -> float:
    """The number that keeps a norm from dividing by zero; transformers has two names for it."""
    return norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps


def activation_name(function: Any) -> str | None:
    """Which of ACTIVATIONS a function is, by what it computes."""
    from core_engine.model.operators import ReferenceOperators

    states = torch.linspace(-6, 6, 97)
    joint = torch.cat([states, torch.ones_like(states)])
    found = function(states)
    for name in ACTIVATIONS:
        if torch.allclose(ReferenceOperators().gate(joint, name), found, rtol=0, atol=1e-5):
            return name
    return None
