from __future__ import annotations

import random

from core_engine.predict import OutputPredictor


def test_knows_nothing_at_first() -> None:
    predictor = OutputPredictor()
    assert predictor.predict("a", 100, 77) == 77
    assert predictor.mean_output_tokens == 0


def test_stays_within_what_is_possible() -> None:
    predictor = OutputPredictor()
    predictor.learn("a", 100, 1000)
    assert predictor.predict("a", 100, 50) == 50
    predictor.learn("b", 100, 0)
    assert predictor.predict("b", 100, 50) >= 1


def test_settles_where_three_quarters_are_shorter() -> None:
    predictor, draw = OutputPredictor(), random.Random(0)
    for _ in range(4000):
        predictor.learn("a", 100, draw.randint(1, 100))
    assert 55 <= predictor.predict("a", 100, 1000) <= 90
    assert 45 < predictor.mean_output_tokens < 56


def test_tenants_and_prompt_lengths_differ() -> None:
    predictor = OutputPredictor()
    for _ in range(300):
        predictor.learn("short", 10, 5)
        predictor.learn("long", 10, 500)
        predictor.learn("long", 5000, 50)
    assert predictor.predict("short", 10, 10_000) < 20
    assert predictor.predict("long", 10, 10_000) > 200
    assert 20 < predictor.predict("long", 5000, 10_000) < 100


def test_a_stranger_gets_the_common_estimate() -> None:
    predictor = OutputPredictor()
    for _ in range(300):
        predictor.learn("a", 10, 50)
    assert 30 < predictor.predict("never seen", 9999, 10_000) < 70


def test_tenants_without_end_take_bounded_room() -> None:
    predictor = OutputPredictor()
    for tenant in range(6000):
        predictor.learn(str(tenant), 10, 5)
    assert len(predictor._estimates) <= 4096
