"""Who a request belongs to, and how urgent it may be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from core_engine import Caller, Callers, ConfigurationError, KeyConfig
from core_engine.classes import class_of
from core_engine.hookspecs import NoOptions, hookimpl

ACME = KeyConfig(key="sk-acme", tenant="acme", class_name="interactive", weight=2.0)


class ByHeader:
    """Believes a header that a proxy in front has set."""

    hookspec_range = (1, 1)

    def __init__(self, options: NoOptions, seed: int) -> None:
        pass

    @hookimpl
    def identify_caller(self, headers: Mapping[str, str]) -> object:
        match headers.get("x-tenant"):
            case None:
                return None
            case "raise":
                raise RuntimeError("no")
            case "garbage":
                return {"tenant": "a tenant with spaces"}
            case tenant:
                return Caller(tenant=tenant, class_name="batch")


class _Point:
    name, value = "by_header", "somewhere:ByHeader"

    def load(self) -> type[ByHeader]:
        return ByHeader


@pytest.fixture
def by_header(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setattr("core_engine.selection._installed", lambda: {"by_header": [_Point()]})
    return ("by_header",)


def test_a_key_says_whose_it_is() -> None:
    callers = Callers((), (ACME,))
    assert callers.identify({}, "sk-acme") == ACME
    assert callers.identify({}, "sk-other").tenant == "anonymous"


def test_plain_keys_are_tenants_of_their_own() -> None:
    callers = Callers((), (KeyConfig.plain("a"), KeyConfig.plain("b")))
    tenants = {callers.identify({}, key).tenant for key in ("a", "b")}
    assert len(tenants) == 2
    assert all(tenant.startswith("key-") for tenant in tenants)


def test_a_key_configured_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        Callers((), (ACME, ACME))


def test_a_policy_is_asked_before_the_keys(by_header: tuple[str, ...]) -> None:
    callers = Callers(by_header, (ACME,))
    assert callers.identify({"x-tenant": "t1"}, "sk-acme") == Caller(tenant="t1", class_name="batch")
    assert callers.identify({}, "sk-acme") == ACME


@pytest.mark.parametrize("header", ["raise", "garbage"])
def test_a_policy_that_fails_costs_nobody_a_request(by_header: tuple[str, ...], header: str) -> None:
    assert Callers(by_header, (ACME,)).identify({"x-tenant": header}, "sk-acme") == ACME


@pytest.mark.parametrize(
    ("caller", "asked", "placed"),
    [
        (Caller(), None, ("standard", 0)),
        (Caller(class_name="interactive"), None, ("interactive", -10)),
        (Caller(), 10, ("batch", 10)),
        (Caller(), 3, ("batch", 3)),
        (Caller(), -5, ("standard", 0)),
        (Caller(highest_priority=-7), -5, ("standard", -5)),
        (Caller(highest_priority=-7), -100, ("standard", -7)),
        (Caller(class_name="gold"), None, ("gold", 0)),
        (Caller(class_name="gold"), 0, ("gold", 0)),
    ],
)
def test_a_priority_lowers_itself_freely_and_raises_itself_as_far_as_the_key_allows(
    caller: Caller, asked: int | None, placed: tuple[str, int]
) -> None:
    assert caller.place(asked) == placed


def test_without_keys_a_priority_is_free() -> None:
    assert Callers((), ()).identify({}, None).place(-10) == ("interactive", -10)


@pytest.mark.parametrize(
    ("priority", "name"),
    [(-11, "interactive"), (-10, "interactive"), (-9, "standard"), (0, "standard"), (1, "batch"), (99, "batch")],
)
def test_the_class_of_a_priority_is_the_nearest_that_is_not_more_urgent(priority: int, name: str) -> None:
    assert class_of(priority) == name
