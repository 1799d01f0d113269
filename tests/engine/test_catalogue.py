from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from core_engine.catalogue import catalogue, describe_policy
from core_engine.errors import ConfigurationError
from core_engine.selection import available_policies, build_policies
from tests.testkit.packages import GOOD, install


def test_every_installed_policy_is_described() -> None:
    sound, broken = catalogue()
    assert broken == []
    assert [policy.name for policy in sound] == sorted(available_policies())
    assert all(policy.summary and policy.hooks for policy in sound)
    assert msgspec.json.decode(msgspec.json.encode(sound))


def test_a_description_says_what_the_class_says() -> None:
    orca = describe_policy("orca")
    assert orca.source.endswith("plugins.orca:Orca")
    assert orca.summary == "Iteration-level FCFS as in Algorithm 1 of Orca (OSDI '22)."
    assert set(orca.hooks) == {"reserve_blocks", "plan_iteration"}
    assert [(o.name, o.values, o.default, o.required) for o in orca.options] == [
        ("max_batch", "integer 1 to 4096", 32, False),
        ("output", "declared or predicted", "declared", False),
    ]
    (guarantee,) = orca.guarantees
    assert guarantee.startswith("Guarantees, with ranks by arrival ")
    assert guarantee.endswith("as the later one.")


def test_sentences_and_ranges_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "described", {"good": "described_module:Good"}, GOOD)
    good = describe_policy("good")
    assert good.source == "described 1.0: described_module:Good"
    assert good.guarantees == ["Guarantees nothing at all."]
    assert [(o.name, o.values, o.default, o.required) for o in good.options] == [
        ("size", "integer 1 to 9", None, True),
        ("names", "list of text", [], False),
    ]


def test_broken_policies_are_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(catalogue()[0])
    install(
        tmp_path,
        monkeypatch,
        "halfbroken",
        {"absent": "halfbroken_module:Absent", "orca": "halfbroken_module:Good", "good": "halfbroken_module:Good"},
        GOOD,
    )
    sound, broken = catalogue()
    assert len(sound) == before + 1
    assert {(policy.name, policy.source) for policy in broken} == {
        ("absent", "halfbroken 1.0: halfbroken_module:Absent"),
        ("orca", "halfbroken 1.0: halfbroken_module:Good"),
    }
    assert all(policy.reason for policy in broken)
    with pytest.raises(ConfigurationError, match=r"'absent'.*can't be loaded"):
        describe_policy("absent")
    with pytest.raises(ConfigurationError, match=r"there is no policy 'zzz'; there are .*orca"):
        describe_policy("zzz")


def test_a_package_with_unreadable_metadata_hides_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "garbled", {"a": "b"})
    (tmp_path / "garbled-1.0.dist-info" / "entry_points.txt").write_text("[jitney.policies]\nneither name nor value\n")
    sound, broken = catalogue()
    assert {"orca", "fcfs"} <= {policy.name for policy in sound}
    assert [policy.name for policy in broken] == ["garbled"]
    assert "can't be read" in broken[0].reason
    assert describe_policy("orca").name == "orca"
    assert [policy.name for policy in build_policies(("orca",), 0)] == ["orca"]
