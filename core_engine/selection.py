"""From the names in a configuration to policy objects: `name:option=value,...` through entry points."""

from __future__ import annotations

import difflib
import importlib.metadata
from typing import Any, NamedTuple

import msgspec

from core_engine.errors import ConfigurationError
from core_engine.hookspecs import HOOKSPEC_VERSION, NoOptions

GROUP = "jitney.policies"


class NamedPolicy(NamedTuple):
    """A policy object and the name it goes by in configuration, logs and metrics.

    `spec` and `options` are what it was built from, where it was built by name.
    """

    name: str
    policy: Any
    spec: str = ""
    options: msgspec.Struct | None = None


def available_policies() -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of all installed policies, by name; nothing is imported."""
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def build_policies(specs: tuple[str, ...], seed: int) -> list[NamedPolicy]:
    """The policies of a configuration, in its order.

    Raises ConfigurationError for an unknown name (with the near ones), a class that doesn't load or
    wants other hookspecs, a policy named twice, and a wrong option (with its policy, name, value and range).
    """
    known = available_policies()
    built: list[NamedPolicy] = []
    for spec in specs:
        name, _, text = spec.partition(":")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(known))}"
            raise ConfigurationError(f"there is no policy {name!r}; {hint}")
        if any(name == other.name for other in built):
            raise ConfigurationError(f"policy {name!r} is named twice; give all its options at once")
        try:
            policy_class = known[name].load()
        except Exception as error:
            raise ConfigurationError(f"policy {name!r} ({known[name].value}) can't be loaded: {error!r}") from error
        options, policy = build_policy(name, policy_class, text, seed)
        built.append(NamedPolicy(name, policy, spec, options))
    return built


def build_policy(name: str, policy_class: Any, option_text: str, seed: int) -> tuple[msgspec.Struct, Any]:
    """The options and the policy object, from its class and the text of its options."""
    low, high = getattr(policy_class, "hookspec_range", (HOOKSPEC_VERSION, HOOKSPEC_VERSION))
    if not low <= HOOKSPEC_VERSION <= high:
        raise ConfigurationError(
            f"policy {name!r} needs hookspecs {low} to {high}; this engine has version {HOOKSPEC_VERSION}"
        )
    options_type = getattr(policy_class, "Options", NoOptions)
    given = parse_options(name, option_text)
    fields = [field.name for field in msgspec.structs.fields(options_type)]
    for option in given:
        if option not in fields:
            hint = f"its options are {', '.join(fields)}" if fields else "it has none"
            raise ConfigurationError(f"policy {name!r} has no option {option!r}; {hint}")
    for option, value in given.items():
        try:
            msgspec.convert({**_required(options_type, given), option: value}, options_type, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"policy {name!r}: option {option}={value!r} is wrong: {error}") from error
    try:
        options = msgspec.convert(given, options_type, strict=False)
        return options, policy_class(options, seed)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise ConfigurationError(f"policy {name!r} with options {option_text!r}: {error}") from error


def parse_options(name: str, text: str) -> dict[str, Any]:
    """`a=1,b=[1,2],c=word` as a dict: each value is JSON where it parses, else a string."""
    options: dict[str, Any] = {}
    for item in _split(text):
        option, equals, value = item.partition("=")
        if not equals or not option.strip():
            raise ConfigurationError(f"policy {name!r}: {item!r} is not option=value")
        try:
            options[option.strip()] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            options[option.strip()] = value.strip()
    return options


def _required(options_type: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The given values of the fields without a default, so that one field at a time can be tried."""
    return {f.name: given[f.name] for f in msgspec.structs.fields(options_type) if f.required and f.name in given}


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    items, depth, current = [], 0, ""
    for character in text:
        depth += (character in "[({") - (character in "])}")
        if character == "," and depth == 0:
            items.append(current)
            current = ""
        else:
            current += character
    items.append(current)
    return [item for item in items if item.strip()]
