"""instructor: a record out of an answer; what doesn't fit the class goes back with the validator's complaint.

Its argument is the name of the mode.
"""

from __future__ import annotations

import json
import os
import sys

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int


client = instructor.from_openai(OpenAI(max_retries=0), mode=instructor.Mode[sys.argv[1]])
person, completion = client.chat.completions.create_with_completion(
    model=os.environ["MODEL"],
    response_model=Person,
    messages=[{"role": "user", "content": "who is Ada"}],
    max_retries=2,
)
print(json.dumps({"person": person.model_dump(), "finish_reason": completion.choices[0].finish_reason}))
