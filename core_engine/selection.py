"""From the names in a configuration to policy objects: `name:option=value,...` through entry points.

Nothing here trusts a plugin: whatever is wrong with one becomes a ConfigurationError that names it, and
one that nobody asked for is never imported.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from core_engine.choices import checked, near_or_all
from core_engine.errors import ConfigurationError
from core_engine.hookspecs import HOOKSPEC_VERSION, PROJECT, HookSpecs, NoOptions

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
    """The entry points of all installed policies, by name; nothing is imported.

    Of several with one name our own counts, so that no package can take its place; see `rivals`.
    """
    return {name: points[0] for name, points in _installed().items()}


def rivals() -> dict[str, list[importlib.metadata.EntryPoint]]:
    """By name: the entry points that are left out because another package has one of that name."""
    return {name: points[1:] for name, points in _installed().items() if len(points) > 1}


def _installed() -> dict[str, list[importlib.metadata.EntryPoint]]:
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for point in _entry_points():
        found.setdefault(point.name, []).append(point)
    for points in found.values():
        if len(points) > 1:  # to tell whose one is takes a look into a package's metadata
            points.sort(key=lambda point: not _is_ours(point))
    return found


def unreadable_packages() -> dict[str, str]:
    """Installed packages whose entry points can't be read, and why."""
    broken = {}
    for package in importlib.metadata.distributions():
        try:
            package.entry_points.select(group=GROUP)
        except Exception as error:
            broken[package.name] = repr(error)
    return broken


def _entry_points() -> Iterable[importlib.metadata.EntryPoint]:
    try:
        return importlib.metadata.entry_points(group=GROUP)
    except Exception:
        # One package is broken; the others are found one by one.
        broken = unreadable_packages()
        packages: dict[str, importlib.metadata.Distribution] = {}
        for package in importlib.metadata.distributions():
            packages.setdefault(package.name, package)  # the first on the path is the one that is imported
        sound = (package for name, package in packages.items() if name not in broken)
        return [point for package in sound for point in package.entry_points.select(group=GROUP)]


def build_policies(specs: tuple[str, ...], seed: int) -> list[NamedPolicy]:
    """The policies of a configuration, in its order.

    Raises ConfigurationError for an unknown name (with the near ones) or one that two packages claim, a
    class that doesn't load, isn't a policy or wants other hookspecs, a policy named twice, and a wrong
    option (with its policy, name, value and range).
    """
    if not specs:
        return []
    known = _installed()
    built: list[NamedPolicy] = []
    for spec in specs:
        name, _, text = spec.partition(":")
        if name not in known:
            raise ConfigurationError(f"there is no policy {name!r}; {near_or_all(name, known)}")
        if any(name == other.name for other in built):
            raise ConfigurationError(f"policy {name!r} is named twice; give all its options at once")
        point = known[name][0]
        if len(known[name]) > 1 and not _is_ours(point):
            claims = " and ".join(map(origin, known[name]))
            raise ConfigurationError(f"policy {name!r} is offered by {claims}; uninstall all but one of them")
        options, policy = build_policy(name, load_policy_class(point), text, seed)
        built.append(NamedPolicy(name, policy, spec, options))
    return built


def load_policy_class(point: importlib.metadata.EntryPoint) -> Any:
    """What the entry point leads to; raises ConfigurationError where its import fails in any way."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"policy {point.name!r} ({origin(point)}) can't be loaded: {error!r}") from error


def origin(point: importlib.metadata.EntryPoint) -> str:
    """The package of an entry point and what it names there."""
    package = f"{point.dist.name} {point.dist.version}: " if point.dist is not None else ""
    return f"{package}{point.value}"


def build_policy(name: str, policy_class: Any, option_text: str, seed: int) -> tuple[msgspec.Struct, Any]:
    """The options and the policy object, from its class and the text of its options.

    Raises ConfigurationError.
    """
    check_policy_class(name, policy_class)
    options_type = getattr(policy_class, "Options", NoOptions)
    given = parse_options(name, option_text)
    fields = [field.name for field in msgspec.structs.fields(options_type)]
    for option in given:
        if option not in fields:
            hint = f"its options are {', '.join(fields)}" if fields else "it has none"
            raise ConfigurationError(f"policy {name!r} has no option {option!r}; {hint}")
    for option, value in given.items():
        try:
            checked({**_required(options_type, given), option: value}, options_type, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"policy {name!r}: option {option}={value!r} is wrong: {error}") from error
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"policy {name!r} with {option}={value!r}: {error!r}") from error
    try:
        options = checked(given, options_type, strict=False)
        return options, policy_class(options, seed)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigurationError(f"policy {name!r} with options {option_text!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"policy {name!r} with options {option_text!r} can't be built: {error!r}") from error


def check_policy_class(name: str, policy_class: Any) -> None:
    """Raise ConfigurationError unless it is a class of policies for hookspecs of this version."""
    if not isinstance(policy_class, type):
        raise ConfigurationError(f"policy {name!r} is {policy_class!r:.80}, not a class")
    stated = getattr(policy_class, "hookspec_range", None)
    if not (isinstance(stated, tuple) and len(stated) == 2 and all(type(version) is int for version in stated)):
        raise ConfigurationError(
            f"policy {name!r} states no range of hookspecs; this engine has version {HOOKSPEC_VERSION}: write "
            f"hookspec_range = ({HOOKSPEC_VERSION}, {HOOKSPEC_VERSION}) into class {policy_class.__name__}"
        )
    low, high = stated
    if not low <= HOOKSPEC_VERSION <= high:
        raise ConfigurationError(
            f"policy {name!r} needs hookspecs {low} to {high}; this engine has version {HOOKSPEC_VERSION}"
        )
    options_type = getattr(policy_class, "Options", NoOptions)
    if not (isinstance(options_type, type) and issubclass(options_type, msgspec.Struct)):
        raise ConfigurationError(f"policy {name!r}: Options is {options_type!r:.80}, not a msgspec.Struct")
    unmarked = [hook for hook in hook_names() if hasattr(policy_class, hook) and not _is_marked(policy_class, hook)]
    if unmarked:
        raise ConfigurationError(f"policy {name!r}: {', '.join(unmarked)} is not marked with hookimpl")
    if strangers := _marked_strangers(policy_class):
        hint = near_or_all(strangers[0], hook_names())
        raise ConfigurationError(f"policy {name!r}: {strangers[0]} is marked with hookimpl, but is no hook; {hint}")
    if not hooks_of(policy_class):
        raise ConfigurationError(f"policy {name!r} answers no hook: mark its methods with hookimpl")


def hook_names() -> list[str]:
    """Every hook that a policy may answer, in the order of the manual."""
    return [name for name in vars(HookSpecs) if not name.startswith("_")]


def hooks_of(policy_class: type) -> list[str]:
    """The hooks that a class answers."""
    return [hook for hook in hook_names() if _is_marked(policy_class, hook)]


def parse_options(name: str, text: str) -> dict[str, Any]:
    """`a=1,b=[1,2],c=word` as a dict: each value is JSON where it parses, else a string."""
    options: dict[str, Any] = {}
    for item in _split(text):
        option, equals, value = item.partition("=")
        option = option.strip()
        if not equals or not option:
            raise ConfigurationError(f"policy {name!r}: {item!r} is not option=value")
        if option in options:
            raise ConfigurationError(f"policy {name!r}: option {option} is given twice")
        try:
            options[option] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            options[option] = value.strip()
    return options


def _required(options_type: Any, given: Mapping[str, Any]) -> dict[str, Any]:
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


def _marked_strangers(policy_class: type) -> list[str]:
    """Its marked methods with names of no hook, but for those that say that this may be."""
    marks = {name: getattr(getattr(policy_class, name, None), f"{PROJECT}_impl", None) for name in dir(policy_class)}
    return [
        name
        for name, mark in marks.items()
        if mark and name not in hook_names() and not mark.get("optionalhook") and not mark.get("specname")
    ]


def _is_marked(policy_class: type, hook: str) -> bool:
    return hasattr(getattr(policy_class, hook, None), f"{PROJECT}_impl")


def _is_ours(point: importlib.metadata.EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == PROJECT
