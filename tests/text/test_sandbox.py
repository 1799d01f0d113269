"""BoundedSandbox: templates that try to escape, to run for ever, or to grow without bound."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2.exceptions import SecurityError, UndefinedError

from core_engine.text.sandbox import BoundedSandbox, LimitExceeded, TemplateRefusal


def render(source: str, **variables: Any) -> str:
    sandbox = BoundedSandbox(max_seconds=0.05, max_characters=100_000)
    return sandbox.render(sandbox.from_string(source), variables)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) if false %}{% endfor %}{% endfor %}",
        "{% macro grow(n) %}{% if n %}{{ grow(n - 1) }}{{ grow(n - 1) }}{% endif %}{% endmacro %}{{ grow(60) }}",
        "{% for a in items recursive %}{{ loop(items) }}{% endfor %}",
        "{% for a in range(99999) %}{{ items | sort | join | length }}{% endfor %}",
    ],
)
def test_time_runs_out(source: str) -> None:
    with pytest.raises((LimitExceeded, RecursionError), match=r"of computing|recursion"):
        render(source, items=list(range(1000)))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * 'x' }}",
        "{{ ([0] * 10**9) | length }}",
        "{% set n = namespace(x='xy') %}{% for _ in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='xy') %}{% for _ in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='xy') %}{% for _ in range(99) %}{% set n.x = [n.x, n.x] | join %}{% endfor %}",
        "{% set n = namespace(x='xy') %}{% for _ in range(99) %}{% set n.x = n.x.replace('x', n.x) %}{% endfor %}",
        "{% set n = namespace(x=9) %}{% for _ in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'x' | center(10**9) }}",
        "{{ 'x'.ljust(10**9) }}",
        "{{ 'x' | indent(10**9, true) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '{:>999999999}'.format('x') }}",
        "{{ '{:>{}}'.format('x', 999999999) }}",
        "{% for _ in range(99999) %}{{ 'some text' }}{% endfor %}",
    ],
)
def test_room_runs_out(source: str) -> None:
    with pytest.raises(LimitExceeded, match=r"more than|longer than|formats with"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ('{0.__class__.__mro__}').format('') }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ messages.append(1) }}",
        "{{ tick() }}{{ self.__init__.__globals__ }}",
    ],
)
def test_there_is_no_way_out(source: str) -> None:
    with pytest.raises((SecurityError, UndefinedError), match=r"unsafe|undefined|not safely"):
        render(source, messages=[])


def test_range_is_limited() -> None:
    with pytest.raises(OverflowError, match="Range too big"):
        render("{{ range(10**9) | length }}")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("  {% if true %}\n  a\n  {% endif %}\n", "  a\n"),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"),
        ("{% for x in [1, 2, 3] %}{{ loop.index }}{{ ',' if not loop.last }}{% break %}{% endfor %}", "1,"),
        ("{{ {'b': '<é>', 'a': [1]} | tojson }}", '{"b": "<é>", "a": [1]}'),
        ("{{ {'a': 'é🎉'} | tojson(ensure_ascii=true) }}", '{"a": "\\u00e9\\ud83c\\udf89"}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{% generation %}said{% endgeneration %}", "said"),
        ("{{ 'a' ~ missing ~ 1 ~ none }}", "a1None"),
        (
            "{{ '%05.1f' % 3.14159 }} {{ '{:,}'.format(1234567) }} {{ '%s' | format(1234567) }}",
            "003.1 1,234,567 1234567",
        ),
        ("{{ 2 ** 10 }} {{ 3 * 'ab' }} {{ 7 % 4 }} {{ [1] + [2] }}", "1024 ababab 3 [1, 2]"),
        ("{{ ' x ' | trim | center(5) | length }}", "5"),
        (
            "{% set n = namespace(found=false) %}{% for x in [1] %}{% set n.found = true %}{% endfor %}{{ n.found }}",
            "True",
        ),
        ("{% macro say(x) %}<{{ x }}{{ caller() }}>{% endmacro %}{% call say('b') %}!{% endcall %}", "<b!>"),
        ("{% for x in [[1, [2]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "12"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_ordinary_templates_work(source: str, expected: str) -> None:
    assert render(source) == expected


def test_a_template_refuses_in_its_own_words() -> None:
    with pytest.raises(TemplateRefusal, match=r"^roles must alternate$"):
        render("{{ raise_exception('roles must alternate') }}")
