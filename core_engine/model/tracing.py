"""Learn from one small forward pass where and how a model attends, whatever its architecture.

Under the name of a second attention implementation, transformers is asked for masks and answered
with notes of what each mask would have been; the layers hand these notes to attention, so it is seen
which layer looks how far back. No mask tensor is built, and none ever is in a real pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from core_engine.errors import ModelError
from core_engine.model.attention import IMPLEMENTATION
from core_engine.model.kernels import AttentionShape
from core_engine.model.layout import Reach

_TRACING = "jitney-tracing"
_NUM_TOKENS = 4

# Arguments that attention honours or may ignore; any other could change what is computed.
_HONOURED = {"scaling", "softcap", "s_aux", "forward_pass"}
_IGNORED = {
    "cache_position", "dropout", "is_causal", "output_attentions", "output_hidden_states", "output_router_logits",
    "position_embeddings", "position_ids", "sliding_window", "use_cache",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of attention as it was seen."""

    module: torch.nn.Module
    shape: AttentionShape
    was_handed_pass: bool


@dataclass(frozen=True, slots=True)
class _MaskNote:
    """What a mask would have allowed; `reach` is None for a mask that isn't causal."""

    reach: Reach | None


class _Trace:
    """Stands in for a forward pass and collects calls."""

    def __init__(self) -> None:
        self.calls: list[TracedCall] = []

    def call(self, module: torch.nn.Module, states: tuple[torch.Tensor, ...], mask: object, kwargs: Any) -> None:
        query, key, value = states
        where = f"layer {len(self.calls)} ({type(module).__name__})"
        if not isinstance(mask, _MaskNote):
            raise ModelError(f"{where} attends without one of transformers' masks, so what it may see is unknown")
        if mask.reach is None:
            raise ModelError(f"{where} doesn't attend causally, or by a rule that isn't known here")
        unknown = sorted(k for k, v in kwargs.items() if v is not None and k not in _HONOURED | _IGNORED)
        if unknown:
            raise ModelError(f"{where} passes {', '.join(unknown)} to attention, which isn't supported (ALiBi, say)")
        scaling = kwargs.get("scaling")
        shape = AttentionShape(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            key_size=key.shape[3],
            value_size=value.shape[3],
            scaling=query.shape[3] ** -0.5 if scaling is None else float(scaling),
            reach=mask.reach,
            softcap=kwargs.get("softcap"),
            has_sinks=kwargs.get("s_aux") is not None,
            dtype=key.dtype,
            device_type=key.device.type,
        )
        self.calls.append(TracedCall(module, shape, kwargs.get("forward_pass") is self))


# A model that drops keyword arguments can't be handed the trace.
_current: ContextVar[_Trace] = ContextVar("trace")


def trace_attention(model: Any) -> list[TracedCall]:
    """Every call of attention in one forward pass of `model`, in order; leaves the model set to `attend`.

    Raises ModelError for a model that doesn't attend as selective batching needs it, saying why.
    """
    name = type(model).__name__
    trace = _Trace()
    token = _current.set(trace)
    try:
        model.set_attn_implementation(_TRACING)
        token_ids = torch.arange(1, _NUM_TOKENS + 1, device=model.device).unsqueeze(0)
        positions = token_ids - 1
        with torch.inference_mode():  # called as in a real pass, which some models look at
            model(
                input_ids=token_ids,
                position_ids=positions,
                use_cache=False,
                logits_to_keep=positions[0],
                forward_pass=trace,
            )
    except ModelError as error:
        raise ModelError(f"{name} can't be served: {error}") from error
    except Exception as error:
        raise ModelError(
            f"{name} can't be served: it doesn't run on token ids and positions alone ({type(error).__name__}: {error})"
        ) from error
    finally:
        _current.reset(token)
    if not trace.calls:
        raise ModelError(
            f"{name} can't be served: none of its layers attends through transformers' AttentionInterface "
            "(it is recurrent, or its attention is of an older style)"
        )
    num_layers = getattr(model.config.get_text_config(), "num_hidden_layers", len(trace.calls))
    if len(trace.calls) < num_layers:
        raise ModelError(
            f"{name} can't be served: only {len(trace.calls)} of its {num_layers} layers attend; the others keep "
            "a state of another kind (a hybrid), which is not supported"
        )
    model.set_attn_implementation(IMPLEMENTATION)
    return trace.calls


def _note_call(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    _current.get().call(module, (query, key, value), attention_mask, kwargs)
    # Each token attends to itself alone, so that what follows gets numbers like those of a real pass.
    return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1).transpose(1, 2), None


def _note_mask(*, mask_function: Callable[..., Any], local_size: int | None = None, **kwargs: Any) -> _MaskNote:
    """The reach of a mask, found by asking it about a few queries: the first key that each may see."""
    span = 8 if local_size is None else local_size
    candidates = [Reach()] if local_size is None else [Reach(window=span), Reach(chunk=span)]
    keys = torch.arange(2 * span + 2)
    queries = [span - 1, span, span + 1, 2 * span + 1]
    allowed = [torch.as_tensor(mask_function(0, 0, torch.tensor(query), keys)).expand(keys.shape) for query in queries]
    for reach in candidates:
        if all(
            torch.equal(seen.cpu(), (keys <= query) & (keys >= reach.first_key(query)))
            for query, seen in zip(queries, allowed, strict=True)
        ):
            return _MaskNote(reach)
    return _MaskNote(None)


AttentionInterface.register(_TRACING, _note_call)
AttentionMaskInterface.register(_TRACING, _note_mask)
