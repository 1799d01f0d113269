"""lm-eval: a task of multiple choice over `local-completions`, which ranks answers by echoed log-probabilities.

Its argument is the model's directory, for the tokenizer.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

QUESTIONS = [
    {"question": "The capital of France is", "choices": ["Paris", "Rome"], "answer": 0},
    {"question": "Passengers board and", "choices": ["leave", "helpful"], "answer": 0},
]
TASK = """
task: stops
dataset_path: json
dataset_kwargs:
  data_files: {path}
test_split: train
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
"""

with tempfile.TemporaryDirectory() as directory:
    data = Path(directory) / "stops.jsonl"
    data.write_text("\n".join(map(json.dumps, QUESTIONS)), encoding="utf-8")
    (Path(directory) / "stops.yaml").write_text(TASK.format(path=data), encoding="utf-8")
    arguments = {
        "model": os.environ["MODEL"],
        "base_url": f"{os.environ['OPENAI_BASE_URL']}/completions",
        "tokenizer": sys.argv[1],
        "num_concurrent": 2,
        "max_retries": 1,
    }
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=arguments,
        tasks=["stops"],
        task_manager=TaskManager(include_path=directory, include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
samples = found["samples"]["stops"]
print(
    json.dumps(
        {
            "accuracy": found["results"]["stops"]["acc,none"],
            "scored": [
                [*asked, float(answer[0])]
                for sample in samples
                for asked, answer in zip(sample["arguments"], sample["filtered_resps"], strict=True)
            ],
        }
    )
)
