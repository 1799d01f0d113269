"""Callers: whose request it is, and how urgent it may be."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec

from core_engine.classes import CLASS_PRIORITIES, DEFAULT_CLASS, class_of
from core_engine.errors import ConfigurationError
from core_engine.policy_set import PolicySet
from core_engine.selection import build_policies

_log = logging.getLogger("jitney.callers")

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is: its tenant, class of service and weight among tenants.

    `highest_priority` is the most urgent priority its requests may give themselves (lower is served
    earlier); without one, that of its class.
    """

    tenant: Name = "anonymous"
    class_name: Name = DEFAULT_CLASS
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    highest_priority: int | None = None

    def place(self, priority: int | None) -> tuple[str, int]:
        """The class and priority of a request that asks for this priority, or for none."""
        own = CLASS_PRIORITIES.get(self.class_name, CLASS_PRIORITIES[DEFAULT_CLASS])
        if priority is None:
            return self.class_name, own
        granted = max(priority, own if self.highest_priority is None else self.highest_priority)
        return (self.class_name, own) if granted == own else (class_of(granted), granted)


class KeyConfig(Caller, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An API key and the caller that it stands for."""

    key: Annotated[str, msgspec.Meta(min_length=1)]

    @classmethod
    def plain(cls, key: str) -> KeyConfig:
        """A key of which nothing is configured: a tenant of its own, named after its digest."""
        return cls(key=key, tenant=f"key-{_digest(key).hex()[:8]}")


def weights_of(keys: Iterable[KeyConfig]) -> dict[str, float]:
    """Weight by tenant; raises ConfigurationError where two keys of one tenant contradict each other."""
    weights: dict[str, float] = {}
    for key in keys:
        if weights.setdefault(key.tenant, key.weight) != key.weight:
            raise ConfigurationError(
                f"keys of tenant {key.tenant!r} have weights {weights[key.tenant]:g} and {key.weight:g}; "
                "a tenant has one weight: give all of its keys the same"
            )
    return weights


# Without keys a priority is free: nobody is there to be protected from anybody.
ANYBODY = Caller(highest_priority=-(2**31))


class Callers:
    """Identifies the caller of each request: by policies first, then by configured keys.

    Lives in the gateway's process, with instances of the policies of its own.
    """

    def __init__(self, policies: tuple[str, ...], keys: tuple[KeyConfig, ...], seed: int = 0) -> None:
        self._by_digest = {_digest(key.key): key for key in keys}
        if len(self._by_digest) < len(keys):
            raise ConfigurationError("an API key is configured twice")
        self._policies: list[tuple[str, Callable[..., Caller | None]]] = []
        if policies:
            found = PolicySet(build_policies(policies, seed), []).hooks["identify_caller"]
            self._policies = [(i.policy, i.call) for i in found]

    def identify(self, headers: Mapping[str, str], key: str | None) -> Caller:
        """Who sent this; never raises."""
        for policy, call in self._policies:
            try:
                caller = call(headers, key)
                if caller is not None:
                    return msgspec.convert(msgspec.to_builtins(caller), Caller)
            except Exception as error:
                _log.warning("policy %s: identify_caller: %r", policy, error)
        known = self._by_digest.get(_digest(key)) if key is not None else None
        if known is not None:
            return known
        return ANYBODY if not self._by_digest else Caller()


def _digest(key: str) -> bytes:
    """Keys are looked up by digest, so that the time of a look-up says nothing about them."""
    return hashlib.sha256(key.encode()).digest()
