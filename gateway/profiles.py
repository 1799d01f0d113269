"""Profiles of `jitney serve`: policies and limits that fit a use, under one name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Profile(NamedTuple):
    """What it is for, its policies in the order they are asked, and its limits by the names of EngineConfig."""

    summary: str
    policies: tuple[str, ...]
    limits: dict[str, int]


PROFILES = {
    "chat": Profile(
        "streams without long gaps: prompts make no iteration much longer than three times its decodes",
        policies=("stretch:max_stretch=3",),
        # A chunk of a prompt is a block at least, and where a row costs much, 32 of them take too long.
        limits={"token_limit": 256, "sequence_limit": 64, "block_size": 16},
    ),
    "batch": Profile(
        "most tokens a second: large iterations, many sequences, a long queue",
        policies=("queue_limit:max_requests=8192",),
        limits={"token_limit": 2048, "sequence_limit": 128},
    ),
    "shared": Profile(
        "tenants side by side: fair shares, a rate for each, the least urgent class gives way",
        policies=("fair_share", "lowest_class", "stretch", "token_bucket", "queue_limit:max_requests=512"),
        limits={"token_limit": 512, "sequence_limit": 64},
    ),
}


def with_profile(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `jitney serve` with the profile that they name spelled out; what is given beside it wins.

    Policies that are named are asked first and take the place of the profile's of the same name. Raises ValueError
    for a profile that doesn't exist, with those that do.
    """
    given = dict(options)
    name = given.pop("profile", None)
    if name is None:
        return given
    if not isinstance(name, str) or name not in PROFILES:
        raise ValueError(f"there is no profile {name!r:.60}; there are {', '.join(PROFILES)}")
    profile = PROFILES[name]
    policies = given.get("policies", ())
    if isinstance(policies, list | tuple):  # else it is refused with all that is wrong
        names = [str(spec).partition(":")[0] for spec in policies]
        given["policies"] = [*policies, *(spec for spec in profile.policies if spec.partition(":")[0] not in names)]
    return {**profile.limits, **given}
