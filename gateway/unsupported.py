"""Clear refusals of what isn't there yet: never an answer that silently ignores what was asked for."""

from __future__ import annotations

from gateway.errors import ApiError, invalid
from gateway.protocol.completions import CompletionRequest
from gateway.protocol.fields import GenerationFields


def refuse_unsupported(fields: GenerationFields) -> None:
    """Refuse what neither endpoint can do yet."""
    if fields.prompt_logprobs is not None and fields.stream:
        message = "'prompt_logprobs' can't be streamed; completions stream them with 'echo' and 'logprobs'."
        raise invalid(message, param="prompt_logprobs")


def refuse_unsupported_completion(body: CompletionRequest) -> None:
    """Refuse infilling, and contradictions of `best_of`."""
    refuse_unsupported(body)
    if body.suffix:
        raise _missing("suffix", "'suffix' is not supported: this model does not fill in text before a suffix.")
    if body.best_of is not None:
        num_choices = body.n or 1
        if body.best_of < num_choices:
            raise invalid(f"'best_of' is {body.best_of}, below 'n', which is {num_choices}.", param="best_of")
        if body.stream and body.best_of > 1:
            raise invalid("'best_of' above 1 can't be streamed: the best is known only in the end.", param="best_of")


def _missing(param: str, message: str) -> ApiError:
    return invalid(message, param=param, code="unsupported_parameter")
