"""The catalogue: every installed policy described, and those that are broken named with the reason."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from typing import Any

import msgspec

from core_engine.choices import near_or_all
from core_engine.errors import ConfigurationError
from core_engine.hookspecs import NoOptions
from core_engine.selection import (
    available_policies,
    check_policy_class,
    hooks_of,
    load_policy_class,
    origin,
    rivals,
    unreadable_packages,
)


class OptionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a policy; `values` says in words what it may be."""

    name: str
    values: str
    default: Any = None
    required: bool = False


class PolicyDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A policy as its class describes itself.

    `summary` is the first line of its docstring, `text` all of it; `guarantees` are the sentences of it
    that begin with "Guarantees". `source` names package and class.
    """

    name: str
    source: str
    summary: str
    text: str
    guarantees: list[str]
    hooks: list[str]
    options: list[OptionDescription]
    hookspec_range: tuple[int, int]
    promised_wait_iterations: int | None = None


class BrokenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """An installed policy that can't be used, and why."""

    name: str
    source: str
    reason: str


def catalogue() -> tuple[list[PolicyDescription], list[BrokenPolicy]]:
    """All installed policies by name, and those that are left out. Imports every one of them."""
    sound: list[PolicyDescription] = []
    broken: list[BrokenPolicy] = []
    for name, point in sorted(available_policies().items()):
        try:
            sound.append(_described(point))
        except ConfigurationError as error:
            broken.append(BrokenPolicy(name=name, source=origin(point), reason=str(error)))
    for name, points in sorted(rivals().items()):
        broken += (
            BrokenPolicy(name=name, source=origin(point), reason="another package has a policy of this name")
            for point in points
        )
    for package, reason in sorted(unreadable_packages().items()):
        broken.append(BrokenPolicy(name=package, source=package, reason=f"its entry points can't be read: {reason}"))
    return sound, broken


def describe_policy(name: str) -> PolicyDescription:
    """The installed policy of that name; raises ConfigurationError where there is none or it is broken."""
    point = available_policies().get(name)
    if point is None:
        raise ConfigurationError(f"there is no policy {name!r}; {near_or_all(name, available_policies())}")
    return _described(point)


def _described(point: importlib.metadata.EntryPoint) -> PolicyDescription:
    policy_class = load_policy_class(point)
    check_policy_class(point.name, policy_class)
    try:
        text = inspect.getdoc(policy_class) or ""
        return PolicyDescription(
            name=point.name,
            source=origin(point),
            summary=text.partition("\n")[0],
            text=text,
            guarantees=re.findall(r"Guarantees\b.*?(?:\.(?=\s|$)|$)", " ".join(text.split())),
            hooks=hooks_of(policy_class),
            options=_options(getattr(policy_class, "Options", NoOptions)),
            hookspec_range=policy_class.hookspec_range,
            promised_wait_iterations=getattr(policy_class, "promised_wait_iterations", None),
        )
    except Exception as error:
        raise ConfigurationError(f"policy {point.name!r} can't be described: {error!r}") from error


def _options(options_type: type[msgspec.Struct]) -> list[OptionDescription]:
    described = []
    inspected = msgspec.inspect.type_info(options_type)
    assert isinstance(inspected, msgspec.inspect.StructType)
    for field in inspected.fields:
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        described.append(
            OptionDescription(
                name=field.name,
                values=_values(field.type),
                default=None if field.required else msgspec.to_builtins(default),
                required=field.required,
            )
        )
    return described


def _values(kind: Any) -> str:
    """What values of a type may be, in words."""
    match kind:
        case msgspec.inspect.UnionType():
            return " or ".join(_values(part) for part in kind.types)
        case msgspec.inspect.LiteralType():
            return " or ".join(str(value) for value in kind.values)
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.NoneType():
            return "null"
        case msgspec.inspect.IntType():
            return _ranged("integer", kind)
        case msgspec.inspect.FloatType():
            return _ranged("number", kind)
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.TupleType():
            return f"[{', '.join(_values(item) for item in kind.item_types)}]"
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return f"list of {_values(kind.item_type)}"
        case msgspec.inspect.DictType():
            return f"object of {_values(kind.key_type)} to {_values(kind.value_type)}"
        case _:
            return type(kind).__name__.removesuffix("Type").lower()


def _ranged(noun: str, kind: Any) -> str:
    """The bounds of a number, such as `integer 1 to 4096` or `number over 0`."""
    if kind.ge is not None and kind.le is not None:
        return f"{noun} {kind.ge} to {kind.le}"
    bounds = [
        f"{word} {bound}"
        for word, bound in (("from", kind.ge), ("over", kind.gt), ("up to", kind.le), ("below", kind.lt))
        if bound is not None
    ]
    return " ".join([noun, " and ".join(bounds)]).strip()
