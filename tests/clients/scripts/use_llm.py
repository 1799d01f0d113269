"""The `llm` command with a model declared in extra-openai-models.yaml, streamed and not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

home = Path("llm-home")
home.mkdir(exist_ok=True)
(home / "extra-openai-models.yaml").write_text(
    f"- model_id: bus\n  model_name: {os.environ['MODEL']}\n  api_base: {os.environ['OPENAI_BASE_URL']}\n",
    encoding="utf-8",
)


def ask(*options: str) -> str:
    command = [Path(sys.executable).with_name("llm"), "-m", "bus", "-o", "max_tokens", "6", "-o", "temperature", "0"]
    environment = {**os.environ, "LLM_USER_PATH": str(home.resolve()), "LLM_OPENAI_API_KEY": "none"}
    return subprocess.run(
        [*command, *options, "Hello"],
        env={**environment, "OPENAI_API_KEY": "none"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


print(json.dumps({"streamed": ask(), "text": ask("--no-stream")}))
