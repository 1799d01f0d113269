"""The policy under test, which is built anew for every run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from core_engine.errors import ConfigurationError
from core_engine.selection import NamedPolicy, available_policies, build_policies, build_policy


class Subject(NamedTuple):
    """`spec` says which policy it is, `build` makes a fresh one from a seed.

    `is_importable`: another process finds the same by `spec`.
    """

    spec: str
    build: Callable[[int], NamedPolicy]
    is_importable: bool = True


def subject(policy: str | type) -> Subject:
    """The policy as in a configuration (`"orca:max_batch=4"`), by module (`"my_module:MyPolicy:size=3"`), or a class.

    Raises ConfigurationError where there is none, it isn't a policy or its options are wrong.
    """
    if isinstance(policy, type):
        spec = f"{policy.__module__}:{policy.__qualname__}"
        found = Subject(spec, lambda seed: _named(policy.__name__, policy, "", spec, seed), is_importable=False)
    else:
        name, _, rest = policy.partition(":")
        if name in available_policies() or not rest:
            policy_class = type(build_policies((policy,), 0)[0].policy)
            found = Subject(policy, lambda seed: _named(name, policy_class, rest, policy, seed))
        else:
            class_name, _, options = rest.partition(":")
            policy_class = _import(name, class_name)
            found = Subject(policy, lambda seed: _named(class_name, policy_class, options, policy, seed))
    found.build(0)
    return found


def _named(name: str, policy_class: type, options: str, spec: str, seed: int) -> NamedPolicy:
    built, policy = build_policy(name.lower(), policy_class, options, seed)
    return NamedPolicy(name.lower(), policy, spec, built)


def _import(module: str, class_name: str) -> type:
    try:
        policy_class: type = getattr(importlib.import_module(module), class_name)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"there is no class {class_name!r} in module {module!r}: {error!r}") from error
    return policy_class
