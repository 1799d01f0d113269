from __future__ import annotations

from core_engine.plan import PrefillLimit, tightest


def test_no_opinion_limits_nothing() -> None:
    assert tightest([]) == PrefillLimit()
    assert tightest([("a", PrefillLimit())]) == PrefillLimit()


def test_the_tightest_of_each_field_holds_with_its_reason() -> None:
    combined = tightest(
        [
            ("a", PrefillLimit(prompt_tokens=100, new_sequences=3, reason="slow")),
            ("b", PrefillLimit(prompt_tokens=50, new_sequences=5, seconds=0.5)),
        ]
    )
    assert (combined.prompt_tokens, combined.new_sequences, combined.seconds) == (50, 3, 0.5)
    assert combined.reasons == {"prompt_tokens": "b", "new_sequences": "a: slow", "seconds": "b"}


def test_blocks_to_keep_free_are_tightest_when_most() -> None:
    combined = tightest([("a", PrefillLimit(keep_free_blocks=2)), ("b", PrefillLimit(keep_free_blocks=7))])
    assert combined.keep_free_blocks == 7
    assert combined.reasons == {"keep_free_blocks": "b"}


def test_zero_is_an_opinion() -> None:
    combined = tightest([("a", PrefillLimit(new_sequences=0)), ("b", PrefillLimit(new_sequences=1))])
    assert combined.new_sequences == 0


def test_of_equal_answers_the_first_gives_the_reason() -> None:
    combined = tightest([("a", PrefillLimit(prompt_tokens=5)), ("b", PrefillLimit(prompt_tokens=5))])
    assert combined.reasons == {"prompt_tokens": "a"}


def test_held_sequences_add_up_and_name_who_held_them_first() -> None:
    combined = tightest([("a", PrefillLimit(held={1: "long"})), ("b", PrefillLimit(held={1: "late", 2: "late"}))])
    assert combined.held == {1: "a: long", 2: "b: late"}
