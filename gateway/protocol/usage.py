"""Token counts of an answer."""

from __future__ import annotations

import msgspec


class PromptDetails(msgspec.Struct, frozen=True):
    """How much of the prompt needed no computation."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens of prompts (each counted once) and of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails

    @classmethod
    def of(cls, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
        """Add up the counts; no more of the prompt can be cached than there is."""
        details = PromptDetails(min(cached_tokens, prompt_tokens))
        return cls(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, details)
