"""Answers that may call tools or not, and yet are held to a grammar: text of a form, calls that fit their schemas."""

from __future__ import annotations

import re
from typing import Literal

from core_engine import Grammar, rule_of
from core_engine.text import TextModel
from gateway.errors import invalid
from gateway.tools import thoughts
from gateway.tools.choice import ToolUse
from gateway.tools.syntax import CallSyntax, Spell, checked_if_strict, quoted

Thinking = Literal["never", "maybe", "begun"]  # before the answer; "begun" where the prompt has opened it


def held_grammar(
    text_model: TextModel, answer: Grammar | None, calls: tuple[ToolUse, CallSyntax] | None, thinking: Thinking
) -> Grammar | None:
    """The grammar of all that may be written; None where anything may.

    With `answer`, what is said fits it unless tools are called instead. Without, text is free, and calls of strict
    tools fit their schemas from the mark on that begins them. Raises a 400 for a grammar in Lark beside tools.
    """
    if calls is not None and answer is None and not calls[0].is_strict:
        calls = None
    if answer is not None and answer.kind == "lark":
        if calls is not None:
            message = (
                "'structured_outputs' with a 'grammar' can't be combined with tools that may be called or not: "
                "set 'tool_choice' to 'none' or 'required'."
            )
            raise invalid(message, param="structured_outputs")
        return answer
    if calls is None and (answer is None or thinking == "never"):
        return answer

    def spell(text: str) -> str:
        special = text_model.token_ids_of([text]) & text_model.special_token_ids
        return f"<[{min(special)}]>" if special else quoted(text)

    rules = _with_thoughts(thinking, spell)
    if answer is not None:
        rules += ["body: said", f"said: {rule_of(answer)}"] if calls is None else _said_or_calls(answer, calls[1])
    if calls is not None:
        use, syntax = calls
        rules += syntax.rules(use, spell, checked_if_strict)
        rules += _calls_alone(use, syntax, spell) if answer is not None else _calls_in_text(*calls, thinking, spell)
    return Grammar("lark", "\n".join(rules))


def _with_thoughts(thinking: Thinking, spell: Spell) -> list[str]:
    if thinking == "never":
        return ["start: body"]
    thought = "thought BLANK?" if thinking == "begun" else f"(BLANK? {spell(thoughts.START)} thought BLANK?)?"
    # White space is bounded: small models go on with it for ever.
    return [
        f"start: {thought} body",
        *_up_to("thought", "ANY", thoughts.END, spell),
        _terminal("ANY"),
        "BLANK: /\\s{1,8}/",
    ]


def _said_or_calls(answer: Grammar, syntax: CallSyntax) -> list[str]:
    """Text of the form of the answer, which can't be taken for a call."""
    said = rule_of(answer)
    if answer.kind in {"regex", "choice"} and syntax.mark:
        return ["body: SAID | calls", f"SAID: {said} & ~/{_with(syntax.mark)}/"]
    return ["body: said | calls", f"said: {said}"]


def _calls_alone(use: ToolUse, syntax: CallSyntax, spell: Spell) -> list[str]:
    if not syntax.mark:
        return ["calls: row"]
    mark = spell(syntax.mark)
    if syntax.bare:
        return [f"calls: {mark}? row"]
    more = f' ("\\n" {mark} row){{0,{syntax.max_rows(use) - 1}}}' if syntax.max_rows(use) > 1 else ""
    return [f"calls: {mark} row{more}"]


def _calls_in_text(use: ToolUse, syntax: CallSyntax, thinking: Thinking, spell: Spell) -> list[str]:
    """Text that can't be taken for a call or a thought, and calls."""
    never = [_with(syntax.mark)] if syntax.mark else []
    never += ["\\s*[\\[{](?s:.*)"] if syntax.bare else []
    never += [f"\\s*{re.escape(thoughts.START)}(?s:.*)"] if thinking == "maybe" else []
    marked = [f"(marked row){{0,{syntax.max_rows(use)}}}"] if syntax.mark else []
    body = " ".join(["body:", *marked, "TEXT"]) + (" | BLANK_BEFORE? row" if syntax.bare else "")
    rules = [body, _terminal("TEXT", *never)]
    if syntax.mark:
        rules += _up_to("marked", "TEXT", syntax.mark, spell)
    if syntax.bare:
        rules.append("BLANK_BEFORE: /\\s{1,8}/")
    return rules


def _up_to(name: str, text: str, mark: str, spell: Spell) -> list[str]:
    """A rule for text up to the first mark and with it."""
    spelled = spell(mark)
    return [f"{name}: {text} {spelled}"] if spelled.startswith("<") else [f"{name}[lazy]: {text} {spelled}"]


def _terminal(name: str, *never: str) -> str:
    """Any text, but none that one of these expressions matches as a whole."""
    return f"{name}: " + " & ".join(["/(?s:.*)/", *(f"~/{expression}/" for expression in never)])


def _with(mark: str) -> str:
    """An expression for every text that has the mark."""
    return f"(?s:.*){re.escape(mark)}(?s:.*)"
