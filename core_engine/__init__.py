"""The engine of Jitney: scheduling at every iteration, with every decision behind a hook.

Everything public is named here; importing it loads neither torch nor a model.
"""

from core_engine.catalogue import BrokenPolicy, OptionDescription, PolicyDescription, catalogue, describe_policy
from core_engine.clock import Clock, MonotonicClock, VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.errors import (
    ConfigurationError,
    EngineDied,
    EngineUnavailable,
    IntegrityError,
    InvalidRequest,
    JitneyError,
    ModelError,
    Overloaded,
)
from core_engine.loading import prepare_model
from core_engine.messages import (
    Accepted,
    EngineFailed,
    EngineInfo,
    EngineReady,
    FromEngine,
    IterationOutput,
    IterationStats,
    ModelPrepared,
    Outcome,
    Rejected,
    SequenceOutput,
    TokenLogprobs,
)
from core_engine.request import FinishReason, Request, SamplingParams
from core_engine.selection import available_policies
from core_engine.service import EngineClient, Patience, Ticket

__all__ = [
    "Accepted",
    "BrokenPolicy",
    "Clock",
    "ConfigurationError",
    "Engine",
    "EngineClient",
    "EngineConfig",
    "EngineDied",
    "EngineFailed",
    "EngineInfo",
    "EngineReady",
    "EngineUnavailable",
    "FinishReason",
    "FromEngine",
    "IntegrityError",
    "InvalidRequest",
    "IterationOutput",
    "IterationStats",
    "JitneyError",
    "ModelError",
    "ModelPrepared",
    "MonotonicClock",
    "OptionDescription",
    "Outcome",
    "Overloaded",
    "Patience",
    "PolicyDescription",
    "Rejected",
    "Request",
    "SamplingParams",
    "SequenceOutput",
    "Ticket",
    "TokenLogprobs",
    "VirtualClock",
    "available_policies",
    "catalogue",
    "describe_policy",
    "prepare_model",
]
