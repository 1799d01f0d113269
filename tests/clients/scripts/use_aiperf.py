"""aiperf: a small profile of streamed chats; its argument is the model's directory, for the tokenizer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

NUM_REQUESTS, OUTPUT_TOKENS = 12, 8
# Told to stay offline, it takes no directory for a tokenizer.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
with tempfile.TemporaryDirectory() as directory:
    subprocess.run(
        [
            *(Path(sys.executable).with_name("aiperf"), "profile", "--model", os.environ["MODEL"]),
            *("--url", os.environ["OPENAI_BASE_URL"].removesuffix("/v1"), "--endpoint-type", "chat", "--streaming"),
            *("--tokenizer", sys.argv[1], "--request-count", str(NUM_REQUESTS), "--concurrency", "3"),
            *("--synthetic-input-tokens-mean", "32", "--output-tokens-mean", str(OUTPUT_TOKENS)),
            *("--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", directory),
        ],
        env=ENVIRONMENT,
        check=True,
        stdout=sys.stderr,
    )
    (export,) = Path(directory).rglob("profile_export_aiperf.json")
    figures = json.loads(export.read_text(encoding="utf-8"))
names = ("request_count", "time_to_first_token", "inter_token_latency", "output_sequence_length", "error_request_count")
print(json.dumps({name: figures[name]["avg"] for name in names if figures.get(name)}))
