"""Chat completions: what a request asks for."""

from __future__ import annotations

import msgspec

from gateway.chat_writer import ChatWriter
from gateway.echo import check_repeated
from gateway.errors import invalid
from gateway.generation import GenerationPlan
from gateway.operation import new_id
from gateway.prompts import chat_prompt
from gateway.protocol.chat import ChatRequest
from gateway.sampling import sampling_params
from gateway.served_model import Serving
from gateway.structured import grammar_field, naming
from gateway.tools.choice import tool_use
from gateway.tools.reading import reading
from gateway.unsupported import refuse_unsupported


class ChatOperation:
    """One request to `/v1/chat/completions`."""

    name = "chat"

    def __init__(self, fields: ChatRequest) -> None:
        self.fields = fields

    @property
    def max_tokens(self) -> int | None:
        """The caller's bound on new tokens."""
        return self.fields.output_limit[0]

    def plan(self, serving: Serving) -> GenerationPlan:
        """Check and render; see Operation."""
        fields = self.fields
        refuse_unsupported(fields)
        if fields.top_logprobs is not None and not fields.logprobs:
            raise invalid("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")
        sampling = sampling_params(
            fields,
            serving.text_model,
            serving.info,
            output_limit=fields.output_limit,
            logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
            prompt_logprobs=fields.prompt_logprobs,
        )
        use = tool_use(fields)
        prompt = chat_prompt(fields, use, serving)
        field = grammar_field(fields)
        with naming(field):
            read = reading(serving.text_model, serving.parsers, use, prompt, sampling.grammar)
        sampling = msgspec.structs.replace(sampling, grammar=read.grammar)
        if fields.prompt_logprobs is not None:
            check_repeated([prompt], 1, fields.prompt_logprobs, "prompt_logprobs")
        return GenerationPlan(
            id=new_id("chatcmpl"),
            model=serving.info.model,
            prompts=[prompt],
            sampling=sampling,
            num_samples=fields.n or 1,
            stops=fields.stops,
            skip_special_tokens=fields.skip_special_tokens is not False,
            priority=fields.priority,
            cache_salt=fields.cache_salt or "",
            grammar_field=field,
            new_reader=read.new_reader,
            shown_token_ids=read.shown_token_ids,
        )

    def writer(self, plan: GenerationPlan, serving: Serving) -> ChatWriter:
        """A writer for the answer."""
        return ChatWriter(self.fields, plan, serving)
