"""`/v1/models`, `/tokenize` and `/detokenize`."""

from __future__ import annotations

from gateway.openapi.endpoint import Answer, Content, Endpoint
from gateway.openapi.endpoints.generation import CREATED, MODEL
from gateway.protocol.models import ModelCard, ModelList
from gateway.protocol.tokens import DetokenizeAnswer, DetokenizeRequest, TokenizeAnswer, TokenizeRequest

_CARD = ModelCard(id=MODEL, root=MODEL, created=CREATED, max_model_len=8192)

MODELS = (
    Endpoint(
        method="get",
        path="/v1/models",
        also_at="/models",
        name="list_models",
        family="Models",
        summary="List the served models, aliases too",
        description="With the header `anthropic-version` as pages in Anthropic's form, by `limit`, `after_id` and "
        "`before_id`.",
        answers={200: Answer("Every name", Content(ModelList, ModelList(data=[_CARD])))},
        errors=(503,),
    ),
    Endpoint(
        method="get",
        path="/v1/models/{model_id}",
        also_at="/models/{model_id}",
        name="retrieve_model",
        family="Models",
        summary="Describe a model",
        description="Its name may hold slashes. With the header `anthropic-version` it comes in Anthropic's form.",
        answers={200: Answer("The model", Content(ModelCard, _CARD))},
        errors=(404, 503),
    ),
    Endpoint(
        method="post",
        path="/tokenize",
        also_at="/v1/tokenize",
        name="tokenize",
        family="Models",
        summary="Turn text or messages into tokens",
        request=Content(TokenizeRequest, {"model": MODEL, "prompt": "Hello"}),
        answers={
            200: Answer(
                "The tokens", Content(TokenizeAnswer, TokenizeAnswer(tokens=[19556], count=1, max_model_len=8192))
            )
        },
        errors=(404, 503),
    ),
    Endpoint(
        method="post",
        path="/detokenize",
        also_at="/v1/detokenize",
        name="detokenize",
        family="Models",
        summary="Turn tokens into text",
        request=Content(DetokenizeRequest, {"model": MODEL, "tokens": [42]}),
        answers={200: Answer("The text", Content(DetokenizeAnswer, DetokenizeAnswer(prompt="G")))},
        errors=(404, 503),
    ),
)
