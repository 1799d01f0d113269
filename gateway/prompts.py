"""From the prompts of a request to token ids that fit the model."""

from __future__ import annotations

from core_engine.text import TextModel
from gateway.errors import invalid
from gateway.messages import check_template_options, template_messages
from gateway.protocol.chat import ChatRequest
from gateway.protocol.completions import MAX_PROMPTS, CompletionRequest
from gateway.sampling import check_token_ids, context_error
from gateway.served_model import Serving
from gateway.tools.choice import ToolUse
from gateway.tools.teaching import taught


def chat_prompt(body: ChatRequest, use: ToolUse | None, serving: Serving) -> list[int]:
    """Render and tokenise messages with the tools that may be called; raises a 400 where it can't be or doesn't fit."""
    return _fitting(chat_tokens(body, use, serving.text_model), body.truncate_prompt_tokens, serving, "messages")


def chat_tokens(body: ChatRequest, use: ToolUse | None, text_model: TextModel) -> list[int]:
    """The same, whatever the number of tokens.

    Tools go through the model's own chat template where it takes some, else into the messages.
    """
    variables = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    check_template_options(
        body.chat_template,
        variables,
        add_generation_prompt=body.add_generation_prompt,
        continue_final=body.continue_final_message,
    )
    continue_final, tools = bool(body.continue_final_message), use.for_template() if use else []
    conversation = template_messages(body.messages)
    if not text_model.template_takes("tools"):
        conversation = taught(conversation, tools)
    elif tools:
        variables["tools"] = tools
    add_prompt = body.add_generation_prompt
    return text_model.render_chat(
        conversation,
        add_generation_prompt=not continue_final if add_prompt is None else add_prompt,
        continue_final_message=continue_final,
        template_kwargs=variables,
    )


def completion_prompts(body: CompletionRequest, serving: Serving) -> list[list[int]]:
    """Tokenise every prompt; raises a 400 where one can't be served or they are too many."""
    prompts = separate_prompts(body.prompt, "prompt")
    if len(prompts) > MAX_PROMPTS:
        raise invalid(f"There are {len(prompts)} prompts; at most {MAX_PROMPTS} fit in a request.", param="prompt")
    add_special_tokens = body.add_special_tokens is not False
    result = []
    for prompt in prompts:
        if isinstance(prompt, str):
            token_ids = serving.text_model.encode(prompt, add_special_tokens=add_special_tokens)
        else:
            check_token_ids(prompt, "prompt", serving.info.vocab_size)
            token_ids = prompt
        room = 0 if body.max_tokens == 0 else 1
        result.append(_fitting(token_ids, body.truncate_prompt_tokens, serving, "prompt", room_tokens=room))
    return result


def separate_prompts(prompt: str | list[str | int | list[int]], param: str) -> list[str] | list[list[int]]:
    """The prompts of a field one by one, of which a list of token ids is a single one. Raises a 400 for a mixture."""
    if isinstance(prompt, str):
        return [prompt]
    strings = [item for item in prompt if isinstance(item, str)]
    token_ids = [item for item in prompt if isinstance(item, int)]
    lists = [item for item in prompt if isinstance(item, list)]
    if len(strings) == len(prompt):
        return strings
    if len(token_ids) == len(prompt):
        return [token_ids]
    if len(lists) == len(prompt):
        return lists
    message = f"'{param}' mixes kinds: give a string, strings, token ids, or lists of token ids."
    raise invalid(message, param=param)


def _fitting(
    token_ids: list[int], keep_tokens: int | None, serving: Serving, param: str, *, room_tokens: int = 1
) -> list[int]:
    """The prompt, cut from the left where the caller wants that; raises a 400 where no room is left for an answer."""
    if not token_ids:
        raise invalid(f"'{param}' gives no token, and the model needs at least one to go on from.", param=param)
    if keep_tokens is not None:
        token_ids = token_ids[-keep_tokens:]
    if len(token_ids) + room_tokens > serving.info.max_model_len:
        raise context_error(len(token_ids), serving.info.max_model_len, param)
    return token_ids
