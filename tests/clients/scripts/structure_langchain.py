"""langchain-openai: a record by a schema, by a call of a function, and streamed."""

from __future__ import annotations

import json
import os
from typing import Literal

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Shirt(BaseModel):
    """A shirt."""

    colour: Literal["red", "blue"]
    size: int = Field(ge=30, le=60)
    clean: bool


chat = ChatOpenAI(model=os.environ["MODEL"], temperature=1, max_tokens=200, max_retries=0)
by_schema = chat.with_structured_output(Shirt, method="json_schema")
by_function = chat.with_structured_output(Shirt, method="function_calling")
answers = [by_schema.invoke("A shirt."), by_function.invoke("A shirt."), list(by_schema.stream("A shirt."))[-1]]
print(json.dumps({"shirts": [answer.model_dump() for answer in answers]}))
