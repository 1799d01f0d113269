"""instructor: records of a model that knows nothing, held to the class by the server; its argument is the mode."""

from __future__ import annotations

import json
import os
import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Shirt(BaseModel):
    """A shirt."""

    # Else the schema allows anything besides, and a model that knows nothing never comes to an end.
    model_config = ConfigDict(extra="forbid")

    colour: Literal["red", "blue"]
    size: int = Field(ge=30, le=60)
    clean: bool


client = instructor.from_openai(OpenAI(max_retries=0), mode=instructor.Mode[sys.argv[1]])
options = {
    "model": os.environ["MODEL"],
    "response_model": Shirt,
    "messages": [{"role": "user", "content": "A shirt."}],
    "max_retries": 0,
    "temperature": 1,
    "max_tokens": 200,
}
whole = client.chat.completions.create(**options)
streamed = list(client.chat.completions.create_partial(**options))[-1]
print(json.dumps({"shirts": [whole.model_dump(), streamed.model_dump()]}))
