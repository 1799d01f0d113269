"""The stack: all layers of a pass of few rows in one call, where they are of the plainest kind.

With one to eight rows a layer's products take so little time that calling its nine kernels from Python takes half as
long again. The first layer runs them all, and the others see that nothing is left to do; passes of more rows,
and models with layers of another kind, go layer by layer. As with fused modules, a trial decides.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from core_engine.driver import HandDriver
from core_engine.executor import Batch
from core_engine.model.attention import Angles, AttentionSite, ForwardPass
from core_engine.model.executor import TransformersExecutor
from core_engine.model.fused import FusedAttention, FusedGatedMLP, FusedLayer
from core_engine.model.kernels import AttentionShape, LayerStack, PlainLayer, RunLayers
from core_engine.model.packing import PACKED_LAYERS

_log = logging.getLogger("jitney.model")

_TOLERANCE = 0.02  # of the norm of the logits; kernels that are the same one by one leave no difference at all


class NotStackedError(Exception):
    """These layers run one by one; the text says why."""


class _Stack:
    """The layers of one executor as one function, for those of its passes that have few rows."""

    def __init__(self, sites: list[AttentionSite], first_joint: Any, run: RunLayers) -> None:
        self._sites = sites
        self._first_joint = first_joint
        self._sites_by_plan = list({site.shape: site for site in sites}.values())  # by the first of each shape
        self._run = run

    @property
    def max_rows(self) -> int:
        """How many rows a pass may have."""
        return self._run.max_rows

    def __call__(self, states: torch.Tensor, angles: Angles, forward_pass: ForwardPass) -> torch.Tensor | None:
        """What the last layer answers; None for many rows, none that attend, or a pass of another executor.

        None too while quantised layers are asked to be precise.
        """
        layout = forward_pass.layout
        if (
            states.shape[1] > self.max_rows
            or not layout.num_tokens
            or forward_pass.sites is not self._sites
            or self._first_joint.few_rows is None
        ):
            return None
        plans = [forward_pass.plan_for(site)[0] for site in self._sites_by_plan]
        return self._run(states, plans, forward_pass.angles_of_tokens(angles), layout.slots)


@torch.inference_mode()
def adopt_stack(executor: TransformersExecutor, layer_stack: LayerStack) -> None:
    """Let the executor's first layer run all of them, if they can be and it gives the same; the log says so.

    Needs the executor's KV blocks for itself.
    """
    layers = [module for module in executor.model.modules() if isinstance(module, FusedLayer)]
    if not layers:
        return
    try:
        stack = _build(layers, executor.sites, layer_stack)
        _compare(executor, layers, stack)
    except NotStackedError as reason:
        _log.info("layers run one by one for few rows too: %s", reason)
    except Exception as error:
        layers[0].stack = None
        _log.warning("layers run one by one for few rows too: %s: %s", type(error).__name__, error)
    else:
        _log.info("%d layers in one call for up to %d rows, by %s", len(layers), stack.max_rows, layer_stack.name)


def _build(layers: list[FusedLayer], sites: list[AttentionSite], layer_stack: LayerStack) -> _Stack:
    if not all(isinstance(layer.attention, FusedAttention) for layer in layers):
        raise NotStackedError("their attention isn't fused")
    if [layer.attention.original for layer in layers] != [site.module for site in sites]:
        raise NotStackedError("not every layer that attends is fused, or some run more than once")
    if not all(layer.hands_on for layer in layers[:-1]) or layers[-1].hands_on:
        raise NotStackedError("they don't follow one another")
    if any(site.kernel.reads_whole_blocks for site in sites):
        raise NotStackedError("their attention reads whole blocks")
    plans: dict[AttentionShape, int] = {}
    plain = [
        _plain(layer, site, plans.setdefault(site.shape, len(plans))) for layer, site in zip(layers, sites, strict=True)
    ]
    run = layer_stack.build(plain)
    if run is None:
        raise NotStackedError(f"{layer_stack.name} can't run such layers")
    return _Stack(sites, layers[0].attention.joint, run)


def _plain(layer: FusedLayer, site: AttentionSite, plan: int) -> PlainLayer:
    norms, attention, mlp = layer.placed_norms, layer.attention, layer.mlp
    before_attention, before_mlp = norms.before_attention, norms.before_mlp
    if before_attention is None or before_mlp is None or norms.after_attention or norms.after_mlp:
        raise NotStackedError("their norms are elsewhere than before attention and before the MLP")
    if layer.factor != 1.0:
        raise NotStackedError("they scale what they add")
    if not isinstance(mlp, FusedGatedMLP):
        raise NotStackedError("their MLPs aren't fused")
    linears = [attention.joint, attention.original.o_proj, mlp.joint, mlp.down]
    products = [linear.few_rows if isinstance(linear, PACKED_LAYERS) else None for linear in linears]
    joint, output, gate_up, down = products
    if joint is None or output is None or gate_up is None or down is None:
        raise NotStackedError("not all of their linear layers have a product for few rows")
    return PlainLayer(
        operators=layer.operators,
        before_attention=(before_attention.weight, before_attention.epsilon),
        joint=joint,
        heads=attention.heads,
        attention=site.kernel,
        cache=site.cache,
        plan=plan,
        output=output,
        before_mlp=(before_mlp.weight, before_mlp.epsilon),
        gate_up=gate_up,
        activation=mlp.activation,
        down=down,
    )


def _compare(executor: TransformersExecutor, layers: list[FusedLayer], stack: _Stack) -> None:
    """Use the stack if two small passes, chunks and then decodes, give what they give layer by layer."""
    driver = HandDriver(executor.spec)
    first, second = (
        driver.sequence([(31 * i * i + step) % executor.spec.vocab_size for i in range(6)]) for step in (7, 5)
    )
    for plan, idle_rows in (([(first, 5), (second, 3)], 0), ([(first, 1), (second, 1)], 1)):
        batch = driver.bind(plan, sample_all=True, idle_rows=idle_rows)
        layers[0].stack = None
        expected = _logits_by_layer(executor, layers, batch)
        layers[0].stack = stack
        found = executor.logits(batch)
        assert found is not None
        driver.advance(batch)
        deviation = float((found.float() - expected).norm() / expected.norm())
        if not deviation <= _TOLERANCE:
            raise RuntimeError(f"in one call they differ by {deviation:.2g} of what they give one by one")


def _logits_by_layer(executor: TransformersExecutor, layers: list[FusedLayer], batch: Batch) -> torch.Tensor:
    """Float32 logits; raises NotStackedError where layers rotate by different angles."""
    angles: list[Angles] = []
    handles = [
        layer.register_forward_pre_hook(
            lambda module, args, kwargs: angles.append(kwargs["position_embeddings"]), with_kwargs=True
        )
        for layer in layers
    ]
    try:
        logits = executor.logits(batch)
    finally:
        for handle in handles:
            handle.remove()
    if any(each is not angles[0] for each in angles):
        raise NotStackedError("they rotate by different angles")
    assert logits is not None
    return logits.float()
