"""What attention kernels, products of few rows and stacks are, and the registry that backends put theirs into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from core_engine.errors import ModelError
from core_engine.model.int8_rows import Int8Rows, ReferenceInt8Rows
from core_engine.model.kv_cache import KVCache
from core_engine.model.layout import BatchLayout, Reach
from core_engine.model.operators import JointHeads, Operators, ReferenceOperators


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What one attention layer is like; fixed for the life of a model.

    Query heads come in groups of `num_heads // num_kv_heads` that share a key head. Sizes are
    elements per head. `softcap` bounds the scores by `softcap * tanh(score / softcap)`; `has_sinks`
    says that each head has one more logit in its softmax that no key stands for.
    """

    num_heads: int
    num_kv_heads: int
    key_size: int
    value_size: int
    scaling: float
    reach: Reach
    softcap: float | None
    has_sinks: bool
    dtype: torch.dtype
    device_type: str


class AttentionKernel(Protocol):
    """Attention of a flattened batch over paged keys and values.

    Called on the engine thread. Within one pass `plan` is called once for each different shape, and
    `write` before `attend` for every layer. A reach that no sequence of the pass is long enough to
    meet is given as the unbounded one, so that layers of different reach share a plan where they can.
    `reads_whole_blocks`: slots that no token has been written to are read too, if only to be masked,
    so they must hold finite numbers.
    """

    name: str
    reads_whole_blocks: bool

    def refusal(self, shape: AttentionShape) -> str | None:
        """Why this kernel can't serve such a layer; None where it can."""
        ...

    def plan(self, layout: BatchLayout, shape: AttentionShape, null_block: int) -> Any:
        """What all layers of that shape share in this pass: indices, masks, partitions."""
        ...

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layout: BatchLayout) -> None:
        """Store `[num_kv_heads, num_tokens, size]` at the slots of the layout."""
        ...

    def attend(
        self,
        query: torch.Tensor,
        cache: KVCache,
        plan: Any,
        shape: AttentionShape,
        sinks: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        """Fill `output` `[num_tokens, num_heads, value_size]` from `query` `[num_heads, num_tokens, key_size]`.

        The query at position p of a sequence sees its keys `shape.reach.first_key(p)` to p.
        `sinks` is `[num_heads]`.
        """
        ...


class BestTokens(Protocol):
    """The greedy choice: from logits `[rows, vocab_size]` the int64 index of each row's largest, the first of equals.

    It is -1 for a row whose largest isn't finite, or that holds a NaN.
    """

    name: str

    def refusal(self, dtype: torch.dtype) -> str | None:
        """Why this can't read such logits; None where it can."""
        ...

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Tokens `[rows]`; `logits` are left as they are."""
        ...


class RowProduct(Protocol):
    """Linear layers for a few rows, which are memory bound: what counts is to read the weight once, at full speed."""

    name: str
    max_rows: int

    def product(
        self,
        packed_weight: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The layer as a function of states `[.., inputs]`, of `max_rows` rows at most; None where it can't be.

        `packed_weight` is what oneDNN made of `weight` `[outputs, inputs]`, which is there to compare with and
        must not be kept. The caller keeps the former alive and compares the function with oneDNN's
        product before use.
        """
        ...


class PackedProduct(Protocol):
    """A linear layer as a function of float32 states `[.., inputs]`, of any number of rows."""

    @property
    def packed_bytes(self) -> int:
        """Memory that its weight takes."""
        ...

    def weight(self) -> torch.Tensor:
        """The weight as float32 `[outputs, inputs]` again."""
        ...

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """Float32 rows `[.., inputs]` of the weight at int64 `[..]`: what an embedding that shares it looks up."""
        ...

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """`states @ weight.T + bias`, `[.., outputs]`."""
        ...


class FloatProduct(Protocol):
    """Linear layers of float32 rows, for processors without units for anything smaller.

    There too few rows are memory bound, so that a weight held in fewer bits, and widened on the way, counts double.
    """

    name: str

    def product(
        self, weight: torch.Tensor, scales: torch.Tensor | None, bias: torch.Tensor | None
    ) -> PackedProduct | None:
        """The layer, with a packed copy of `weight` `[outputs, inputs]`; None where it can't be.

        The weight is float32, bfloat16, or int8 with float32 `scales` `[outputs]`, which are kept, as the bias is. The
        caller compares it with torch's product before use.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PlainLayer:
    """A layer that norms, attends, adds, norms, gates and adds, by its parts.

    Norms are float32 weights `[width]` with their epsilons. The four linear layers are products for few rows as
    RowProduct, Int8Rows or FloatProduct made them: of queries, keys and values jointly, of what attention answers, of
    gate and up jointly, and down. `plan` tells which of a pass's plans is for its attention.
    """

    operators: Operators
    before_attention: tuple[torch.Tensor, float]
    joint: Callable[[torch.Tensor], torch.Tensor]
    heads: JointHeads
    attention: AttentionKernel
    cache: KVCache
    plan: int
    output: Callable[[torch.Tensor], torch.Tensor]
    before_mlp: tuple[torch.Tensor, float]
    gate_up: Callable[[torch.Tensor], torch.Tensor]
    activation: str
    down: Callable[[torch.Tensor], torch.Tensor]


class RunLayers(Protocol):
    """A stack of layers as one function, of `max_rows` rows at most."""

    max_rows: int

    def __call__(
        self,
        states: torch.Tensor,
        plans: list[Any],
        angles: tuple[torch.Tensor, torch.Tensor],
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """What the last layer answers, a new tensor like `states`, `[1, rows, width]`.

        Rows beyond the `slots` are idle. `plans` are what the layers' attention kernel planned for the pass; angles
        and slots are as in Operators.
        """
        ...


class LayerStack(Protocol):
    """Plain layers in one call where a pass has few rows: else the way there and back takes a third of the time."""

    name: str

    def build(self, layers: list[PlainLayer]) -> RunLayers | None:
        """These layers one after another; None where it can't be, since some of their parts are others' say.

        The caller keeps the model alive, and compares with the layers one by one before use.
        """
        ...


class KernelRegistry:
    """Kernels in the order of preference: what registers later is asked earlier.

    `device_type` ("cpu", "cuda") is where the model will run.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        self.device_type = device_type
        self.row_product: RowProduct | None = None
        self.float_product: FloatProduct | None = None
        self.layer_stack: LayerStack | None = None
        self.int8_rows: Int8Rows = ReferenceInt8Rows()
        self.best_tokens: BestTokens | None = None
        self._kernels: list[AttentionKernel] = []
        self._operators: list[Operators] = [ReferenceOperators()]

    def register(self, kernel: AttentionKernel) -> None:
        """Prefer this kernel to those registered so far."""
        self._kernels.insert(0, kernel)

    def register_operators(self, operators: Operators) -> None:
        """Prefer these operators to those registered so far."""
        self._operators.insert(0, operators)

    def register_row_product(self, row_product: RowProduct) -> None:
        """Take this product for few rows, instead of what was registered before."""
        self.row_product = row_product

    def register_float_product(self, float_product: FloatProduct) -> None:
        """Take this for linear layers of float32 rows, instead of what was registered before."""
        self.float_product = float_product

    def register_layer_stack(self, layer_stack: LayerStack) -> None:
        """Run stacks of plain layers by this, instead of what was registered before."""
        self.layer_stack = layer_stack

    def register_int8_rows(self, int8_rows: Int8Rows) -> None:
        """Take this for what lies around int8 products, instead of what was registered before."""
        self.int8_rows = int8_rows

    def register_best_tokens(self, best_tokens: BestTokens) -> None:
        """Choose greedily by this, instead of what was registered before."""
        self.best_tokens = best_tokens

    def attention_for(self, shape: AttentionShape) -> AttentionKernel:
        """The preferred kernel that serves this shape; raises ModelError with every refusal if none does."""
        refusals = []
        for kernel in self._kernels:
            refusal = kernel.refusal(shape)
            if refusal is None:
                return kernel
            refusals.append(f"{kernel.name}: {refusal}")
        raise ModelError(f"no attention kernel serves {shape}: " + "; ".join(refusals or ["none is registered"]))

    def operators_for(self, dtype: torch.dtype) -> Operators:
        """The preferred operators for this format; torch's own serve every one."""
        return next(operators for operators in self._operators if operators.refusal(dtype, self.device_type) is None)
