"""Errors about values say what would be right, wherever in a struct the value is."""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec
import pytest

from core_engine.choices import checked, near_or_all, with_choices


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Named(msgspec.Struct, tag_field="type", tag="named"):
    name: str


class Every(msgspec.Struct, tag_field="type", tag="every"):
    pass


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    colour: Literal["red", "blue"] = "red"
    level: Literal[1, 2] = 1


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: Inner | None = None
    many: list[Inner] = []
    by_name: dict[str, Inner] = {}
    size: Size = Size.SMALL
    pair: tuple[int, Literal["x", "y"]] = (1, "x")
    choice: Literal["none"] | Named | Every = "none"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"size": "m"}, "'m' is not one of s, l - at `$.size`"),
        ({"inner": {"colour": "grey"}}, "'grey' is not one of blue, red - at `$.inner.colour`"),
        ({"inner": {"level": 3}}, "3 is not one of 1, 2 - at `$.inner.level`"),
        ({"many": [{}, {"colour": "it's"}]}, '"it\'s" is not one of blue, red - at `$.many[1].colour`'),
        ({"by_name": {"a": {"colour": ""}}}, "'' is not one of blue, red - at `$.by_name[...].colour`"),
        ({"pair": (1, "z")}, "'z' is not one of x, y - at `$.pair[1]`"),
        ({"choice": "all"}, "'all' is not one of none - at `$.choice`"),
        ({"choice": {"type": "all"}}, "'all' is not one of named, every - at `$.choice.type`"),
        ({"inner": {"color": "red"}}, "unknown field `color`; there are colour, level - at `$.inner`"),
        ({"iner": {}}, "unknown field `iner`; there are inner, many, by_name, size, pair, choice"),
        ({"size": 5}, "Expected `str`, got `int` - at `$.size`"),
    ],
)
def test_an_error_says_what_would_be_right(values: Any, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        checked(values, Outer)
    assert said in str(refused.value)


def test_a_long_value_leaves_room_for_what_is_right() -> None:
    with pytest.raises(msgspec.ValidationError, match="is not one of blue, red") as refused:
        checked({"colour": "grey" * 1000}, Inner)
    assert len(str(refused.value)) < 200


def test_what_is_right_passes() -> None:
    assert checked({"inner": {"colour": "blue"}}, Outer).inner == Inner("blue")
    assert checked({"level": "2"}, Inner, strict=False).level == 2


def test_other_messages_stay_as_they_are() -> None:
    assert with_choices("Expected `int` >= 1 - at `$.size`", Outer) == "Expected `int` >= 1 - at `$.size`"
    assert with_choices("Invalid value 'x' - at `$.nowhere`", Outer) == "Invalid value 'x' - at `$.nowhere`"


def test_names_that_are_near_are_told_else_all() -> None:
    assert near_or_all("orka", ["paged", "orca"]) == "did you mean orca?"
    assert near_or_all("nope", ["paged", "orca"]) == "there are orca, paged"
