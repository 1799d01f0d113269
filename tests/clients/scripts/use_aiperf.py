"""aiperf: a profile of streamed chats, with the options that say how they come, and the records it leaves behind.

Its arguments are the model's directory, for the tokenizer, the number of requests, and those options.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

directory_of_tokenizer, num_requests, *load = sys.argv[1:]
OUTPUT_TOKENS = 8
# Told to stay offline, it takes no directory for a tokenizer.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
with tempfile.TemporaryDirectory() as directory:
    subprocess.run(
        [
            *(Path(sys.executable).with_name("aiperf"), "profile", "--model", os.environ["MODEL"]),
            *("--url", os.environ["OPENAI_BASE_URL"].removesuffix("/v1"), "--endpoint-type", "chat", "--streaming"),
            *("--tokenizer", directory_of_tokenizer, "--request-count", num_requests, *load),
            *("--synthetic-input-tokens-mean", "32", "--output-tokens-mean", str(OUTPUT_TOKENS)),
            *("--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", directory),
        ],
        env=ENVIRONMENT,
        check=True,
        stdout=sys.stderr,
    )
    (summary,) = Path(directory).rglob("profile_export_aiperf.json")
    figures = json.loads(summary.read_text(encoding="utf-8"))
    (export,) = Path(directory).rglob("profile_export.jsonl")
    records = [json.loads(line) for line in export.read_text(encoding="utf-8").splitlines()]
names = ("request_count", "time_to_first_token", "inter_token_latency", "error_request_count")
print(
    json.dumps(
        {
            **{name: figures[name]["avg"] for name in names if figures.get(name)},
            "records": len(records),
            "errors": [record["error"] for record in records if record.get("error")],
            "output_tokens": sorted({record["metrics"]["usage_completion_tokens"]["value"] for record in records}),
        }
    )
)
