"""Requests that schemathesis makes up from the server's own document, right ones and wrong ones.

Its arguments are the most of them for each operation, a seed, and the name of an embedding model.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from openapi_spec_validator import validate

# Of what is made up by a schema the server may still refuse something, so that it is not among the checks.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)

url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
per_operation, seed, embedding_model = sys.argv[1:]
with urlopen(f"{url}/openapi.json") as response:
    document = json.load(response)
validate(document)
# A name made up is a 404, and so is all that comes after it.
for name, schema in document["components"]["schemas"].items():
    if name.endswith(("Request", "Conversation")) and "model" in schema["properties"]:
        model = embedding_model if name == "EmbeddingRequest" else os.environ["MODEL"]
        schema["properties"]["model"] = {"enum": [model]}
Path("openapi.json").write_text(json.dumps(document), encoding="utf-8")
command = [
    Path(sys.executable).with_name("schemathesis"),
    "run",
    "openapi.json",
    f"--url={url}",
    f"--checks={','.join(CHECKS)}",
    "--phases=examples,fuzzing",
    f"--max-examples={per_operation}",
    f"--seed={seed}",
    "--generation-database=none",
    "--no-color",
]
done = subprocess.run(command, check=False, capture_output=True, text=True)
generated = re.search(r"(\d+) generated", done.stdout)
print(
    json.dumps(
        {
            "failed": done.returncode != 0,
            "generated": generated and int(generated.group(1)),
            "told": done.stdout[-5000:],
        }
    )
)
