"""Clear refusals of what isn't there yet: never an answer that silently ignores what was asked for."""

from __future__ import annotations

from gateway.errors import ApiError, invalid
from gateway.protocol.chat import ChatRequest
from gateway.protocol.completions import CompletionRequest
from gateway.protocol.fields import GenerationFields


def refuse_unsupported(fields: GenerationFields) -> None:
    """Refuse what neither endpoint can do yet."""
    if fields.response_format is not None and fields.response_format.get("type") != "text":
        raise _missing("response_format", 'Only the response format {"type": "text"} is supported so far.')
    if fields.structured_outputs is not None:
        raise _missing("structured_outputs", "Structured outputs are not supported yet.")
    if fields.prompt_logprobs is not None:
        raise _missing("prompt_logprobs", "Log-probabilities of the prompt are not supported yet.")


def refuse_unsupported_chat(body: ChatRequest) -> None:
    """Refuse tools, unless the caller forbids the model to use them: then they are left out of the prompt."""
    refuse_unsupported(body)
    if isinstance(body.tool_choice, str) and body.tool_choice not in {"none", "auto", "required"}:
        raise invalid(
            "'tool_choice' must be 'none', 'auto', 'required' or an object that names a tool.", param="tool_choice"
        )
    if not body.tools and body.tool_choice not in {None, "none", "auto"}:
        raise invalid("'tool_choice' asks for a tool, but 'tools' has none.", param="tool_choice")
    if body.tools and body.tool_choice != "none":
        raise _missing(
            "tools", "Tool calls are not supported yet; with 'tool_choice' set to 'none' the tools are left aside."
        )
    if body.functions:
        raise _missing("functions", "Function calls are not supported.")


def refuse_unsupported_completion(body: CompletionRequest) -> None:
    """Refuse echo and infilling, and contradictions of `best_of`."""
    refuse_unsupported(body)
    if body.echo:
        raise _missing("echo", "'echo' is not supported yet.")
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
