"""`jitney policies`: what is installed, what it does, and whether it can be trusted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from core_engine import OptionDescription, PolicyDescription


@click.group()
def policies() -> None:
    """List, show and check policies."""


@policies.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def list_policies(as_json: bool) -> None:
    """Every installed policy, with its hooks and options; broken ones are named and left out."""
    from core_engine import catalogue

    sound, broken = catalogue()
    if as_json:
        _print_json({"policies": sound, "broken": broken})
        return
    for policy in sound:
        click.echo(f"{policy.name}\n    {policy.summary}\n    hooks: {', '.join(policy.hooks)}")
        if policy.options:
            click.echo(f"    options: {', '.join(map(_option, policy.options))}")
    for other in broken:
        click.echo(f"{other.name} is left out ({other.source}): {other.reason}", err=True)


@policies.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def show(name: str, as_json: bool) -> None:
    """What the policy NAME does, promises and may be told."""
    from core_engine import ConfigurationError, describe_policy

    try:
        policy = describe_policy(name)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        _print_json(policy)
        return
    click.echo("\n".join(_description(policy)))


@policies.command()
@click.argument("policy", metavar="MODULE:CLASS")
@click.option("--workloads", type=click.IntRange(1), default=200, help="How many random workloads [200].")
@click.option("--seed", type=int, default=0, help="Of the policy and of the first workload [0].")
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the counter-example in this file again, and nothing else.",
)
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("counter-example.json"),
    help="Where a counter-example goes [counter-example.json].",
)
@click.option("--cost/--no-cost", default=True, help="Measure what the hooks cost [on].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def check(policy: str, workloads: int, seed: int, replay: Path | None, keep: Path, cost: bool, as_json: bool) -> None:
    """Run the conformance kit over a policy: MODULE:CLASS[:OPTION=VALUE,...] or the name of an installed one.

    Exit status: 0 where it passes, 1 where it fails, 2 where there is no such policy.
    """
    from core_engine import ConfigurationError
    from core_engine.testkit import check_policy

    sys.path.insert(0, str(Path.cwd()))  # where a policy that isn't installed yet lies
    try:
        if replay is not None:
            sys.exit(_replay(policy, replay, as_json))
        report = check_policy(policy, num_workloads=workloads, seed=seed, cost=cost)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    if report.counter_example is not None:
        keep.write_bytes(report.counter_example.to_json())
    if as_json:
        _print_json(report)
    else:
        click.echo(str(report))
        if report.counter_example is not None:
            click.echo(f"kept in {keep}; run it again: jitney policies check {policy} --replay {keep}")
    sys.exit(0 if report.passed else 1)


def _replay(policy: str, path: Path, as_json: bool) -> int:
    """Run the counter-example; returns the exit status."""
    import msgspec

    from core_engine.testkit import CounterExample, replay

    try:
        example = CounterExample.from_json(path.read_bytes())
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"{path} holds no counter-example: {error}") from error
    finding = replay(example, policy)
    if as_json:
        _print_json({"policy": policy, "finding": finding})
    elif finding is None:
        click.echo(f"{policy}: the counter-example against {example.policy} passes")
    else:
        click.echo(f"{policy}: {finding.kind}: {finding.message}")
    return 0 if finding is None else 1


def _description(policy: PolicyDescription) -> list[str]:
    low, high = policy.hookspec_range
    lines = [f"{policy.name} ({policy.source})", "", policy.text, "", f"hooks: {', '.join(policy.hooks)}"]
    lines += [f"option: {_option(option)}" for option in policy.options]
    lines += policy.guarantees
    if policy.promised_wait_iterations is not None:
        lines.append(f"promised: nobody waits longer than {policy.promised_wait_iterations} iterations")
    return [*lines, f"hookspecs: {low} to {high}"]


def _option(option: OptionDescription) -> str:
    default = option.default if isinstance(option.default, str) else json.dumps(option.default)
    given = "" if option.required else f"={default}"
    return f"{option.name}{given} ({option.values}{', required' if option.required else ''})"


def _print_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
