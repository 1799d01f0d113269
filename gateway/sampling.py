"""From the parameters of a request to SamplingParams, checked against the model that is served."""

from __future__ import annotations

from core_engine import EngineInfo, SamplingParams
from core_engine.text import TextModel
from gateway.errors import ApiError, invalid
from gateway.protocol.fields import GenerationFields
from gateway.structured import output_grammar


def sampling_params(
    fields: GenerationFields,
    text_model: TextModel,
    info: EngineInfo,
    *,
    output_limit: tuple[int | None, str],
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """Return how to draw tokens; raises a 400 for what this model can't do.

    `output_limit` is the caller's bound on new tokens and the name of the field that gave it.
    """
    max_tokens, limit_name = output_limit
    if max_tokens is not None and max_tokens > info.max_model_len:
        raise invalid(
            f"'{limit_name}' is {max_tokens}, but this model's context holds {info.max_model_len} tokens.",
            param=limit_name,
        )
    min_tokens = fields.min_tokens or 0
    if min_tokens > (info.max_model_len if max_tokens is None else max_tokens):
        limit = info.max_model_len if max_tokens is None else max_tokens
        raise invalid(f"'min_tokens' is {min_tokens}, above the most that can be made, {limit}.", param="min_tokens")
    for name, token_ids in (("stop_token_ids", fields.stop_token_ids), ("allowed_token_ids", fields.allowed_token_ids)):
        check_token_ids(token_ids or (), name, info.vocab_size)
    # A nucleus of nothing still holds the most probable token.
    nothing_but_the_best = fields.top_p == 0
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=_or(fields.temperature, 1.0),
        top_p=1.0 if nothing_but_the_best else _or(fields.top_p, 1.0),
        top_k=1 if nothing_but_the_best else max(0, fields.top_k or 0),
        min_p=_or(fields.min_p, 0.0),
        presence_penalty=_or(fields.presence_penalty, 0.0),
        frequency_penalty=_or(fields.frequency_penalty, 0.0),
        repetition_penalty=_or(fields.repetition_penalty, 1.0),
        logit_bias=_logit_bias(fields.logit_bias or {}, info.vocab_size),
        allowed_token_ids=None if fields.allowed_token_ids is None else tuple(fields.allowed_token_ids),
        bad_words_token_ids=_bad_words(fields.bad_words or [], text_model),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        ignore_eos=bool(fields.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        seed=fields.seed,
        grammar=output_grammar(fields),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def check_token_ids(token_ids: list[int] | tuple[int, ...], param: str, vocab_size: int) -> None:
    """Raise a 400 that names the first id outside the vocabulary."""
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise invalid(
                f"'{param}' has {token_id}, which is no token id of this model: they go from 0 to {vocab_size - 1}.",
                param=param,
            )


def _logit_bias(biases: dict[str, float], vocab_size: int) -> dict[int, float]:
    result = {}
    for key, bias in biases.items():
        if not (key.isascii() and key.isdigit()):
            raise invalid(f"The keys of 'logit_bias' are token ids; '{key[:64]}' is not one.", param="logit_bias")
        check_token_ids((int(key),), "logit_bias", vocab_size)
        result[int(key)] = bias
    return result


def _bad_words(words: list[str], text_model: TextModel) -> tuple[tuple[int, ...], ...]:
    """Token ids of each word, at the start of a text and after a space, where it is written with other tokens."""
    found = dict.fromkeys(
        tuple(text_model.encode(prefix + word.strip(), add_special_tokens=False))
        for word in words
        for prefix in ("", " ")
    )
    return tuple(token_ids for token_ids in found if token_ids)


def context_error(num_prompt_tokens: int, max_model_len: int, param: str) -> ApiError:
    """A 400 in OpenAI's wording, which other tools match on."""
    what = "messages" if param == "messages" else "prompt"
    return invalid(
        f"This model's maximum context length is {max_model_len} tokens. However, your {what} resulted in "
        f"{num_prompt_tokens} tokens. Please reduce the length of the {what}.",
        param=param,
        code="context_length_exceeded",
    )
