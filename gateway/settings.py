"""GatewaySettings: what the operator decides about the HTTP side."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_engine import KeyConfig

PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the gateway.

    `cors_origins` None means the rule by keys: with keys any origin, without only loopback ones.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8000  # 0: any free one
    keys: tuple[KeyConfig, ...] = ()  # API keys, and whose they are; without any the server is open
    admin_key: Annotated[str, msgspec.Meta(min_length=1)] | None = None  # opens /admin; without one there is none
    cors_origins: tuple[str, ...] | None = None
    public_metrics: bool = False  # /metrics without a key even where keys are set
    drain_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0  # for running requests, after the first signal
    data_dir: str | None = None  # what outlives the process; default: the user's data directory
    max_file_size_bytes: Annotated[int, msgspec.Meta(ge=1)] = 200 * 1024 * 1024  # of one upload
    file_storage_bytes: Annotated[int, msgspec.Meta(ge=1)] = 10 * 1024**3  # of all files and results of batches
    file_retention_days: PositiveFloat = 30.0  # for files that name no time, and for batches that have ended
    response_retention_days: PositiveFloat = 30.0
    max_stored_responses: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    max_stored_response_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1024**3

    max_models: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8  # loaded at once, each with an engine process

    max_body_bytes: int = 10 * 1024 * 1024
    max_header_bytes: int = 64 * 1024
    max_json_depth: int = 64
    body_timeout_seconds: PositiveFloat = 60.0
    header_timeout_seconds: PositiveFloat = 30.0
    keep_alive_seconds: int = 120  # above the idle time of the usual proxies and pooled clients
    heartbeat_seconds: PositiveFloat = 15.0
    text_workers: Annotated[int, msgspec.Meta(ge=1)] = 2  # threads for tokenising and templates
    max_waiting_texts: Annotated[int, msgspec.Meta(ge=1)] = 1024
