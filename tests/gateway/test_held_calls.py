"""Tools that may be called or not, while a grammar holds the answer: to a form, or calls to their schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import openai
import pytest
from llguidance import LLTokenizer

from core_engine import Grammar
from core_engine.grammars.compiler import compile_grammar
from core_engine.grammars.vocabulary import Vocabulary
from core_engine.text import TextModel
from gateway.deployment import Parsers, ToolParser
from gateway.protocol.tools import FunctionTool
from gateway.tools.choice import ToolUse
from gateway.tools.reading import reading
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.test_tool_requests import tiny
from tests.gateway.tool_examples import TIME, functions, message_of
from tests.support.tiny_model import CHATML

TOWN = {
    "type": "object",
    "properties": {"town": {"enum": ["Oslo", "Rome"]}},
    "required": ["town"],
    "additionalProperties": False,
}
ANSWER = Grammar("json_schema", json.dumps({**TOWN, "properties": {"town": {"const": "Bern"}}}))
SAID = '{"town": "Bern"}'
USE = ToolUse(
    (FunctionTool(name="weather", parameters=TOWN, strict=True), FunctionTool(name="time")), "auto", one_call=False
)
LAX = ToolUse((FunctionTool(name="weather", parameters=TOWN),), "auto", one_call=False)
ONE = ToolUse(USE.tools, "auto", one_call=True)
STRICT = {"type": "function", "function": {"name": "weather", "parameters": TOWN, "strict": True}}
Mark = Literal["plain", "special"]


def call(town: str = "Oslo", arguments: str = "arguments") -> str:
    return json.dumps({"name": "weather", arguments: {"town": town}})


def tagged(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[Mark, TextModel]:
    """A model that spells the marks of its calls, and one for which they are control tokens."""
    directory = tmp_path_factory.mktemp("models")
    marks = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>")
    return {"plain": tiny(directory / "plain", CHATML), "special": tiny(directory / "special", CHATML, *marks)}


@pytest.fixture(scope="module")
def tokenizers(models: dict[Mark, TextModel]) -> dict[Mark, LLTokenizer]:
    return {
        mark: Vocabulary.of(model, model.vocab_size, model.eos_token_ids).prepare() for mark, model in models.items()
    }


class Judge:
    """Says of texts whether the model could write them."""

    def __init__(self, model: TextModel, tokenizer: LLTokenizer, grammar: Grammar | None) -> None:
        assert grammar is not None
        self._model = model
        self._grammar = compile_grammar(tokenizer, grammar)

    def allows(self, text: str) -> bool:
        matcher = self._grammar.matcher()
        for token in self._model.encode(text, add_special_tokens=False):
            if token not in matcher.allowed_token_ids():
                return False
            matcher.advance(token)
        return self._model.eos_token_ids[0] in matcher.allowed_token_ids()

    def expect(self, good: list[str], bad: list[str]) -> None:
        assert [text for text in good if not self.allows(text)] == []
        assert [text for text in bad if self.allows(text)] == []


PARSERS: dict[ToolParser, tuple[str, list[str]]] = {
    # an answer with calls, and some that are no such answers
    "hermes": (tagged(call()), [call(), tagged(call("Bern")), f"<tool_call>\n{call()}"]),
    "mistral": (f"[TOOL_CALLS][{call()}]", [f"[TOOL_CALLS][{call('Bern')}]", "[TOOL_CALLS][]", "[TOOL_CALLS]"]),
    "llama": (call(arguments="parameters"), [call("Bern", "parameters"), f"[{call()}]"]),
    "pythonic": (f"[{call()}]", [f"[{call('Bern')}]", '[weather(town="Oslo")]', "[]"]),
    "json": (f"[{call()}]", [f"[{call('Bern')}]", "[]"]),
}


@pytest.mark.parametrize("mark", ["plain", "special"])
@pytest.mark.parametrize("parser", list(PARSERS))
class TestFormats:
    @pytest.fixture
    def judge(
        self, mark: Mark, parser: ToolParser, models: dict[Mark, TextModel], tokenizers: dict[Mark, LLTokenizer]
    ) -> Any:
        def judge(use: ToolUse, answer: Grammar | None) -> Judge:
            read = reading(models[mark], Parsers(tool_parser=parser, reasoning_parser="none"), use, [], answer)
            return Judge(models[mark], tokenizers[mark], read.grammar)

        return judge

    def test_an_answer_is_of_the_form_or_calls(self, judge: Any, parser: ToolParser) -> None:
        calls, wrong = PARSERS[parser]
        judge(USE, ANSWER).expect([calls, SAID], [*wrong, "", "Hello", call("Bern"), SAID + calls, calls + SAID])
        judge(LAX, ANSWER).expect([calls, SAID, calls.replace("Oslo", "Paris")], ["", "Hello"])
        judge(USE, Grammar("choice", '["yes", "no"]')).expect(["yes", calls], ["maybe", *wrong])
        judge(USE, Grammar("regex", "(?s:[^\\[{].*)")).expect(["yes\n[]", calls], ["", *wrong[1:]])

    def test_text_is_free_and_calls_of_strict_tools_are_not(self, judge: Any, parser: ToolParser) -> None:
        calls, wrong = PARSERS[parser]
        free = ["", "Hello", "a <b> [c] {d}\n", " 12"]
        judge(USE, None).expect(
            [*free, calls, calls.replace('"town": "Oslo"', "").replace("weather", "time")], wrong[1:]
        )
        judge(ONE, None).expect([*free, calls], wrong[1:])


Judges = Callable[[list[int], ToolUse | None, Grammar | None], Judge]


@pytest.fixture(params=["plain", "special"])
def judges(request: Any, models: dict[Mark, TextModel], tokenizers: dict[Mark, LLTokenizer]) -> Judges:
    """Judges of answers to a prompt by a model that thinks."""
    model, tokenizer = models[request.param], tokenizers[request.param]
    parsers = Parsers(tool_parser="hermes", reasoning_parser="think")
    return lambda prompt, use, answer: Judge(model, tokenizer, reading(model, parsers, use, prompt, answer).grammar)


def test_text_and_calls_take_turns(judges: Judges) -> None:
    two = f"Let me see.\n{tagged(call())}\n{tagged(call('Rome'))}"
    good = [two, f"{two} So.", "One < two <tool_cal"]
    judges([], USE, None).expect(good, [two.replace("Rome", "Bern"), f"{two}<tool_call>"])


def test_thoughts_come_before(judges: Judges, models: dict[Mark, TextModel]) -> None:
    thought = "<think>\nA {} or so?\n</think>\n\n"
    judges([], None, ANSWER).expect([SAID, thought + SAID], [thought, f"Hm. {SAID}", "<think>Hm"])
    good = [thought + tagged(call()), thought + "Yes.", "Yes."]
    judges([], USE, None).expect(good, [thought + tagged(call("Bern")), tagged(call("Bern"))])
    judges([], USE, ANSWER).expect([thought + tagged(call()), thought + SAID], [thought + "Yes."])
    opened = models["plain"].encode("<|im_start|>assistant\n<think>\n", add_special_tokens=False)
    judges(opened, None, ANSWER).expect([f"Hm.</think>{SAID}"], [SAID, f"Hm.</think>{SAID}{SAID}"])


def test_a_thought_may_speak_of_calls(models: dict[Mark, TextModel], tokenizers: dict[Mark, LLTokenizer]) -> None:
    read = reading(models["plain"], Parsers(tool_parser="hermes", reasoning_parser="think"), USE, [], None)
    thought = "<think>Shall I write <tool_call>?</think>"
    good = [f"{thought}No.", f"{thought}{tagged(call())}"]
    Judge(models["plain"], tokenizers["plain"], read.grammar).expect(good, [f"{thought}{tagged(call('Bern'))}"])


def test_without_anything_to_hold_to_there_is_no_grammar(text_model: TextModel) -> None:
    assert reading(text_model, Parsers(), LAX, [], None).grammar is None
    assert reading(text_model, Parsers(tool_parser="none"), USE, [], None).grammar is None
    assert reading(text_model, Parsers(), None, [], ANSWER).grammar == ANSWER


FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": TOWN}}


@pytest.mark.parametrize("fields", [{"response_format": FORMAT}, {"tools": [STRICT, TIME]}])
def test_the_engine_is_asked_for_it(server: RunningGateway, fields: dict[str, Any]) -> None:
    message = message_of(server, tagged(call()), **{"tools": [STRICT], **fields})
    assert (functions(message), message["content"]) == ([("weather", {"town": "Oslo"})], None)
    grammar = server.engine.submitted[-1].sampling.grammar
    assert grammar is not None
    assert grammar.kind == "lark"
    assert message_of(server, SAID, **{"tools": [STRICT], **fields})["content"] == SAID


def test_what_can_not_be_held_is_refused(server: RunningGateway) -> None:
    bad = {"type": "object", "properties": {"town": {"type": "nope"}}}
    strict = {"type": "function", "function": {"name": "weather", "parameters": bad, "strict": True}}
    for fields, param in (
        ({"tools": [strict]}, "tools"),
        ({"tools": [TIME], "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": bad}}},
         "response_format"),
        ({"tools": [TIME], "structured_outputs": {"grammar": 'start: "x"'}}, "structured_outputs"),
        ({"tools": [TIME], "structured_outputs": {"json": "{"}}, "structured_outputs"),
    ):  # fmt: skip
        answer = server.chat(**fields)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param
    assert not server.engine.submitted
    for fields in ({"tool_choice": "none"}, {"tools": []}):
        assert server.chat(**{"tools": [TIME], "structured_outputs": {"grammar": 'start: "x"'}, **fields}).is_success


def test_the_sdk_parses_what_it_asked_for(sdk: openai.OpenAI, server: RunningGateway) -> None:
    server.engine.script = server.saying(tagged(call()))
    answer = sdk.chat.completions.parse(
        model="tiny",
        messages=[{"role": "user", "content": "Rain?"}],
        tools=[STRICT],  # type: ignore[list-item]
        response_format=FORMAT,  # type: ignore[arg-type]
    )
    (made,) = answer.choices[0].message.tool_calls or []
    assert made.function.parsed_arguments == {"town": "Oslo"}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A model whose template begins its reasoning."""
    template = CHATML + "{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}"
    with running_gateway(tiny(tmp_path_factory.mktemp("thinker") / "tiny", template)) as running:
        yield running


def test_reasoning_comes_before_structured_output(thinker: RunningGateway) -> None:
    thinker.engine.script = thinker.saying(f"Hm.\n</think>\n\n{SAID}")
    message = thinker.chat(response_format=FORMAT).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", SAID)


def test_a_grammar_of_the_clients_own_is_the_whole_answer(thinker: RunningGateway) -> None:
    thinker.engine.script = thinker.saying("x")
    message = thinker.chat(structured_outputs={"grammar": 'start: "x"'}).json()["choices"][0]["message"]
    assert message["content"] == "x"
    assert "reasoning_content" not in message
