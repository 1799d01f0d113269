"""The engine of Jitney: scheduling at every iteration, with every decision behind a hook.

Everything public is named here; importing it loads neither torch nor a model.
"""

from core_engine.callers import Caller, Callers, KeyConfig, weights_of
from core_engine.catalogue import BrokenPolicy, OptionDescription, PolicyDescription, catalogue, describe_policy
from core_engine.choices import checked, with_choices
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
from core_engine.grammars.checker import GrammarChecker
from core_engine.grammars.grammar import Grammar, GrammarKind
from core_engine.grammars.source import rule_of
from core_engine.loading import model_name, prepare_model
from core_engine.messages import (
    Accepted,
    Answer,
    DescribePolicies,
    DescribeRequest,
    EngineFailed,
    EngineInfo,
    EngineReady,
    FirstTokenTiming,
    FromEngine,
    IterationOutput,
    IterationStats,
    ModelPrepared,
    Outcome,
    PolicyEvent,
    PolicyInfo,
    PolicyReport,
    Rejected,
    RequestReport,
    SequenceOutput,
    Setback,
    SwapPolicies,
    TokenLogprobs,
)
from core_engine.prompt_logprobs import PromptLogprobs
from core_engine.request import FinishReason, Kind, Request, SamplingParams
from core_engine.selection import available_policies
from core_engine.service import EngineClient, Patience, Ticket

__all__ = [
    "Accepted",
    "Answer",
    "Caller",
    "Callers",
    "BrokenPolicy",
    "Clock",
    "ConfigurationError",
    "DescribePolicies",
    "DescribeRequest",
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
    "Grammar",
    "GrammarChecker",
    "GrammarKind",
    "IntegrityError",
    "InvalidRequest",
    "IterationOutput",
    "IterationStats",
    "JitneyError",
    "KeyConfig",
    "Kind",
    "ModelError",
    "ModelPrepared",
    "MonotonicClock",
    "OptionDescription",
    "Outcome",
    "Overloaded",
    "Patience",
    "PolicyEvent",
    "PolicyInfo",
    "PolicyReport",
    "PolicyDescription",
    "PromptLogprobs",
    "Rejected",
    "Request",
    "RequestReport",
    "SamplingParams",
    "SequenceOutput",
    "Setback",
    "SwapPolicies",
    "Ticket",
    "TokenLogprobs",
    "VirtualClock",
    "FirstTokenTiming",
    "available_policies",
    "catalogue",
    "checked",
    "describe_policy",
    "model_name",
    "prepare_model",
    "rule_of",
    "weights_of",
    "with_choices",
]
