"""An engine in a process of its own, and its asyncio client."""

from __future__ import annotations

from core_engine.service.client import EngineClient
from core_engine.service.supervisor import Patience, State
from core_engine.service.ticket import Ticket

__all__ = ["EngineClient", "Patience", "State", "Ticket"]
