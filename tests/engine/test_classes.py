from __future__ import annotations

import pytest

from core_engine.classes import class_of


@pytest.mark.parametrize(
    ("priority", "name"),
    [(-99, "interactive"), (-10, "interactive"), (-9, "standard"), (0, "standard"), (1, "batch"), (10, "batch"),
     (99, "batch")],
)  # fmt: skip
def test_a_priority_belongs_to_the_nearest_class_that_is_not_more_urgent(priority: int, name: str) -> None:
    assert class_of(priority) == name


def test_other_classes_may_be_given() -> None:
    classes = {"lead": 5, "gold": -5}
    assert [class_of(priority, classes) for priority in (-6, -5, -4, 5, 6)] == ["gold", "gold", "lead", "lead", "lead"]
