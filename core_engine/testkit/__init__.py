"""For authors of policies: a simulated engine, and the conformance kit that proves a policy sound."""

from core_engine.testkit.conformance import check_policy, replay
from core_engine.testkit.cost import Cost
from core_engine.testkit.engine import VOCAB_SIZE, simulated_engine
from core_engine.testkit.report import Check, CounterExample, Report, Wait
from core_engine.testkit.trial import Finding
from core_engine.testkit.workloads import Flood, Machine, Wish, Workload

__all__ = [
    "VOCAB_SIZE",
    "Check",
    "Cost",
    "CounterExample",
    "Finding",
    "Flood",
    "Machine",
    "Report",
    "Wait",
    "Wish",
    "Workload",
    "check_policy",
    "replay",
    "simulated_engine",
]
