"""What a wrong value could have been: msgspec names the value and its place, the type knows the rest."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_WRONG = re.compile(
    r"""^Invalid (?:enum )?value (?P<value>'.*'|".*"|-?\d+)(?P<where> - at `\$(?P<path>.*)`)?$""", re.DOTALL
)
_UNKNOWN = re.compile(r"^Object contains unknown field `.*?`(?= - at `\$(?P<path>.*)`$|$)", re.DOTALL)
_SHOWN_CHARS = 100  # of a value, so that what is right isn't cut off
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def near_or_all(wrong: str, known: Iterable[str]) -> str:
    """What to say to who wrote a name that isn't known: the near ones, else all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(wrong, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"


def checked(values: Any, of: type[T], *, strict: bool = True) -> T:
    """`values` converted to the type `of`; raises msgspec.ValidationError that says what would be right."""
    try:
        return msgspec.convert(values, of, strict=strict)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(with_choices(str(error), of)) from None


def with_choices(message: str, of: Any) -> str:
    """A message of msgspec's about a value of type `of`, completed by what would be right.

    It is for a value that is none of a few, and for a field that there is not; others stay as they are.
    """
    if wrong := _WRONG.match(message):
        choices = _choices(of, wrong["path"] or "")
        value = wrong["value"] if len(wrong["value"]) <= _SHOWN_CHARS else wrong["value"][:_SHOWN_CHARS] + "..."
        return f"{value} is not one of {', '.join(choices)}{wrong['where'] or ''}" if choices else message
    if unknown := _UNKNOWN.match(message):
        fields = [field.encode_name for kind in _at(of, unknown["path"] or "") for field in _fields(kind)]
        return f"{unknown[0]}; there are {', '.join(fields)}{message[unknown.end() :]}" if fields else message
    return message


def _choices(of: Any, path: str) -> list[str]:
    """The few values that a place may have, by its own type or as the tag of what it is in."""
    found = [str(value) for kind in _at(of, path) for value in _listed(kind)]
    holder, dot, name = path.rpartition(".")
    if dot and not found:
        found = [
            str(kind.tag)
            for kind in _at(of, holder)
            if isinstance(kind, msgspec.inspect.StructType) and kind.tag_field == name
        ]
    return found


def _listed(kind: Any) -> Sequence[Any]:
    match kind:
        case msgspec.inspect.LiteralType():
            return kind.values
        case msgspec.inspect.EnumType():
            return [member.value for member in kind.cls]
    return ()


def _at(of: Any, path: str) -> list[Any]:
    """The types that a place may have; `path` as msgspec writes it, without the `$`."""
    kinds = _parts(_type_info(of))
    for step in _STEP.finditer(path):
        kinds = [part for kind in kinds for inner in _inside(kind, step[1]) for part in _parts(inner)]
    return kinds


def _inside(kind: Any, name: str | None) -> Iterable[Any]:
    """The types of the field of that name, of an element or of a value."""
    match kind:
        case msgspec.inspect.StructType():
            return [field.type for field in kind.fields if field.encode_name == name]
        case msgspec.inspect.TupleType():
            return kind.item_types
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType() | msgspec.inspect.SetType():
            return [kind.item_type]
        case msgspec.inspect.DictType():
            return [kind.value_type]
    return ()


def _parts(kind: Any) -> list[Any]:
    """The members of a union, or the type itself, without what is written beside it."""
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    if isinstance(kind, msgspec.inspect.UnionType):
        return [part for member in kind.types for part in _parts(member)]
    return [kind]


def _fields(kind: Any) -> Sequence[Any]:
    return kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()


@functools.cache
def _type_info(of: Any) -> Any:
    return msgspec.inspect.type_info(of)
