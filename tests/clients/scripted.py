"""A gateway whose "model" says what a test of a client needs: a call of a tool, then an answer made of its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core_engine import Request
from core_engine.text import load_text_model
from tests.gateway.fake_engine import MODEL, Script
from tests.gateway.running import running_gateway
from tests.support.tiny_model import write_tiny_model

CALL = 'Let me look. <tool_call>\n{"name": "weather", "arguments": {"town": "Oslo"}}\n</tool_call>'
RESULT = "rain, 7 degrees"  # what the clients' function returns
ANSWER = "Take an umbrella: it rains in Oslo."
RECORD = '{"name": "Ada", "age": 36}'
FAULTY_RECORD = '{"name": "Ada", "age": "old"}'


@dataclass(frozen=True)
class Address:
    """Where a server is, and the model it serves."""

    url: str
    model: str


@contextmanager
def scripted_gateway(directory: Path) -> Iterator[Address]:
    """Answers by what the prompt ends with."""
    text_model = load_text_model(write_tiny_model(directory))

    def said(prompt: str, *, is_json: bool) -> str:
        if "who is Ada" in prompt:
            record = RECORD if "validation error" in prompt else FAULTY_RECORD
            return record if is_json else f"```json\n{record}\n```"
        return ANSWER if RESULT in prompt else CALL

    def tokens(request: Request, index: int) -> list[int]:
        prompt = text_model.decode(request.prompt_token_ids, skip_special_tokens=False)
        text = said(prompt, is_json=request.sampling.grammar is not None)
        return [*text_model.encode(text, add_special_tokens=False), text_model.eos_token_ids[0]]

    with running_gateway(text_model) as running:
        running.engine.script = Script(tokens=tokens, together=3)
        yield Address(f"http://127.0.0.1:{running.port}", MODEL)
