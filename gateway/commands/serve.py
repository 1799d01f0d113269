"""`jitney serve`."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click

from gateway.commands.options import Size, read_keys


@click.command()
@click.option("--model", help="A directory, a .gguf file, a hub id or `smollm2`, the default.")
@click.option("--served-model-name", help="The name clients use; default: the model's own.")
@click.option("--host", help="Address to listen on [127.0.0.1].")
@click.option("--port", type=int, help="Port to listen on; 0 takes any free one [8000].")
@click.option("--dtype", type=click.Choice(["auto", "float32", "bfloat16", "float16"]), help="Number format [auto].")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where the model runs [auto].")
@click.option("--threads", type=int, help="CPU threads of the model; default: one per core.")
@click.option("--executor", type=click.Choice(["transformers", "simulated"]), help="What executes [transformers].")
@click.option("--probe/--no-probe", default=None, help="Compare mixed batches with lone ones after loading [on].")
@click.option("--block-size", type=int, help="Tokens per KV block [32].")
@click.option("--kv-memory", "kv_memory_bytes", type=Size(), help="Memory for keys and values, such as 512M or 2G.")
@click.option("--kv-memory-fraction", type=float, help="The same as a share of free device memory.")
@click.option("--max-model-len", type=int, help="Tokens of prompt and output; default: the model's own limit.")
@click.option("--default-max-tokens", type=int, help="For requests that give none; default: what fits.")
@click.option("--token-limit", type=int, help="Tokens per iteration [512].")
@click.option("--sequence-limit", type=int, help="Sequences running at once [64].")
@click.option("--waiting-window", type=int, help="Waiting sequences of each queue that an iteration sees [256].")
@click.option("--max-wait-iterations", type=int, help="After so many a request boards next [4096].")
@click.option("--policy", "policies", multiple=True, metavar="NAME[:OPTION=VALUE,...]", help="Repeatable.")
@click.option("--max-policy-faults", type=int, help="A policy with more faults in the window is retired [3].")
@click.option("--fault-window-iterations", type=int, help="The window of that count [1000].")
@click.option("--strict", is_flag=True, default=None, help="Stop at a policy's fault instead of falling back.")
@click.option("--check-integrity", is_flag=True, default=None, help="Audit the KV pool after every iteration.")
@click.option("--seed", type=int, help="For requests without one; default: drawn at start.")
@click.option("--api-key", "keys", multiple=True, help="A key that clients must send; repeatable.")
@click.option(
    "--api-key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="More keys, one a line."
)
@click.option("--cors-origin", "cors_origins", multiple=True, help="Origin whose pages may ask; repeatable; * for any.")
@click.option("--public-metrics", is_flag=True, default=None, help="Serve /metrics without a key.")
@click.option("--drain-seconds", type=float, help="Time for running requests after the first signal to stop [30].")
def serve(**options: Any) -> None:
    """Serve a model to OpenAI clients."""
    import msgspec

    from core_engine import ConfigurationError, EngineConfig
    from gateway.server import serve as run
    from gateway.settings import GatewaySettings

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("jitney").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are about clients
    try:
        settings = msgspec.convert(_gateway_options(options), GatewaySettings)
        config = msgspec.convert({name: value for name, value in options.items() if value is not None}, EngineConfig)
        status = _run(run(config, settings))
    except msgspec.ValidationError as error:
        raise click.UsageError(_readable(str(error))) from error
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(status)


def _gateway_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take the gateway's options out of all options, leaving the engine's."""
    names = ("host", "port", "public_metrics", "drain_seconds")
    taken = {name: value for name in names if (value := options.pop(name)) is not None}
    keys, path = options.pop("keys"), options.pop("api_key_file")
    found = [*keys, *(read_keys(path) if path else ())]
    if any(not key.strip() for key in found) or (path and not found):
        raise click.UsageError("an API key is empty, or the file of keys has none")
    taken["api_keys"] = found
    if origins := options.pop("cors_origins"):
        taken["cors_origins"] = origins
    return taken


def _readable(text: str) -> str:
    """An error of a struct as one of the command line."""
    problem, _, path = text.partition(" - at `$.")
    option = path.rstrip("`").replace("_", "-").removesuffix("-bytes")
    return f"--{option}: {problem[:1].lower()}{problem[1:]}" if option else text


def _run(work: Any) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return int(runner.run(work))
