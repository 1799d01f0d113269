"""`jitney serve`."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gateway.commands.options import Alias, NamedModel, Size, read_config, read_keys, readable
from gateway.profiles import PROFILES, with_profile

if TYPE_CHECKING:
    from gateway.deployment import Deployment
    from gateway.settings import GatewaySettings


def _profiles() -> str:
    return "; ".join(f"{name}: {profile.summary}" for name, profile in PROFILES.items()) + "."


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file with these options (`port = 80`), [objectives.CLASS], [tenant_weights], [[models]], [[keys]].",
)
@click.option(
    "--model",
    "models",
    type=NamedModel(),
    multiple=True,
    metavar="[NAME=]MODEL",
    help="A directory, a .gguf file, a hub id or `smollm2`, the default; repeatable.",
)
@click.option(
    "--embedding-model",
    "embedding_models",
    type=NamedModel(),
    multiple=True,
    metavar="[NAME=]MODEL",
    help="A directory or hub id of sentence-transformers, for /v1/embeddings; repeatable.",
)
@click.option("--served-model-name", help="The name clients use for a single model; default: the model's own.")
@click.option(
    "--alias", "aliases", type=Alias(), multiple=True, metavar="ALIAS=NAME", help="Another name of a model; repeatable."
)
@click.option("--max-models", type=int, help="Models that may be loaded at once [8].")
@click.option("--host", help="Address to listen on [127.0.0.1].")
@click.option("--port", type=int, help="Port to listen on; 0 takes any free one [8000].")
@click.option("--dtype", type=click.Choice(["auto", "float32", "bfloat16", "float16"]), help="Number format [auto].")
@click.option("--quantize", type=click.Choice(["int8"]), help="Linear layers with such weights, on CPUs [not].")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where the model runs [auto].")
@click.option("--threads", type=int, help="CPU threads of the model; default: one per core.")
@click.option("--executor", type=click.Choice(["transformers", "simulated"]), help="What executes [transformers].")
@click.option("--probe/--no-probe", default=None, help="Compare mixed batches with lone ones after loading [on].")
@click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Kernels to use; repeatable; `torch`: none.")
@click.option("--fuse/--no-fuse", default=None, help="Swap known modules for fused ones that compute the same [on].")
@click.option("--block-size", type=int, help="Tokens per KV block [32].")
@click.option("--kv-memory", "kv_memory_bytes", type=Size(), help="Memory for keys and values, such as 512M or 2G.")
@click.option("--kv-memory-fraction", type=float, help="The same as a share of free device memory.")
@click.option("--max-model-len", type=int, help="Tokens of prompt and output; default: the model's own limit.")
@click.option("--default-max-tokens", type=int, help="For requests that give none; default: what fits.")
@click.option("--token-limit", type=int, help="Tokens per iteration [512].")
@click.option("--sequence-limit", type=int, help="Sequences running at once [64].")
@click.option("--waiting-window", type=int, help="Waiting sequences of each queue that an iteration sees [256].")
@click.option("--max-wait-iterations", type=int, help="After so many a request boards next [4096].")
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help=f"Policies and limits for a use, over which other options win: {_profiles()}",
)
@click.option("--policy", "policies", multiple=True, metavar="NAME[:OPTION=VALUE,...]", help="Repeatable.")
@click.option("--max-policy-faults", type=int, help="A policy with more faults in the window is retired [3].")
@click.option("--fault-window-iterations", type=int, help="The window of that count [1000].")
@click.option("--probation-iterations", type=int, help="After a swap, with a way back [1000].")
@click.option("--strict", is_flag=True, default=None, help="Stop at a policy's fault instead of falling back.")
@click.option("--check-integrity", is_flag=True, default=None, help="Audit the KV pool after every iteration.")
@click.option("--seed", type=int, help="For requests without one; default: drawn at start.")
@click.option("--api-key", "api_keys", multiple=True, help="A key that clients must send; repeatable.")
@click.option(
    "--api-key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="More keys, one a line."
)
@click.option("--admin-key", help="Opens /admin; without one there is none.")
@click.option("--cors-origin", "cors_origins", multiple=True, help="Origin whose pages may ask; repeatable; * for any.")
@click.option("--public-metrics", is_flag=True, default=None, help="Serve /metrics without a key.")
@click.option("--data-dir", help="For what outlives the server; default: jitney in the user's data directory.")
@click.option("--file-retention-days", type=float, help="For files that name no time, and ended batches [30].")
@click.option("--max-file-size", "max_file_size_bytes", type=Size(), help="Size of one uploaded file [200M].")
@click.option(
    "--file-storage", "file_storage_bytes", type=Size(), help="Disk space for all files and results of batches [10G]."
)
@click.option("--tool-parser", help="hermes, llama, mistral, pythonic, json or none [auto: by the chat template].")
@click.option("--reasoning-parser", help="think or none [auto: by the chat template].")
@click.option("--response-retention-days", type=float, help="How long stored responses can be read [30].")
@click.option("--drain-seconds", type=float, help="Time for running requests after the first signal to stop [30].")
def serve(**options: Any) -> None:
    """Serve models to OpenAI clients."""
    from core_engine import ConfigurationError
    from gateway.server import serve as run

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("jitney").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are about clients
    file = options.pop("config_file")
    in_file, given = read_config(file), _given(options)
    if "models" in given:
        in_file.pop("model", None)
    try:
        status = _run(run(*configured(in_file | given)))
    except msgspec.ValidationError as error:
        raise click.UsageError(readable(error, given, file)) from error
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(status)


def configured(options: dict[str, Any]) -> tuple[Deployment, GatewaySettings]:
    """What is served and how, from options by name.

    Raises ConfigurationError and msgspec.ValidationError.
    """
    from core_engine import checked, weights_of
    from gateway.deployment import Deployment
    from gateway.settings import GatewaySettings

    try:
        given = with_profile(options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    of_gateway = {name: given.pop(name) for name in GatewaySettings.__struct_fields__ if name in given}
    settings = checked(of_gateway, GatewaySettings)
    weights = given.get("tenant_weights", {})
    if isinstance(weights, dict):  # else it is refused with all that is wrong
        given["tenant_weights"] = weights | weights_of(settings.keys)
    return Deployment(given), settings


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the command line that were given, under the names of the settings."""
    from core_engine import KeyConfig

    keys, path = options.pop("api_keys"), options.pop("api_key_file")
    found = [*keys, *(read_keys(path) if path else ())]
    if any(not key.strip() for key in found) or (path and not found):
        raise click.UsageError("an API key is empty, or the file of keys has none")
    given = {name: value for name, value in options.items() if value not in (None, ())}
    if "models" in given:
        given["models"] = list(given["models"])
    if "aliases" in given:
        given["aliases"] = dict(given["aliases"])
    if found:
        given["keys"] = [msgspec.to_builtins(KeyConfig.plain(key)) for key in found]
    return given


def _run(work: Any) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return int(runner.run(work))
