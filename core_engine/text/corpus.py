"""Texts on which two encoders of one vocabulary would differ if they did anywhere."""

from __future__ import annotations

_SENTENCES = (
    "It's what they'd said: we've 1,234.56 reasons, I'm sure you'll DON'T won't can't 'tis O'Neill's.",
    "Größe, naïve café, Ærøskøbing, Łódź, çığ; ¿Qué tal? «Voilà» „so“ – und — weiter …",
    "Быстрая лиса перепрыгнула через ленивую собаку. Їжак. Ελληνικά με τόνους.",
    "東京は今日も晴れ。中文没有空格，但是有标点！한국어 문장도 있습니다. 𠮷野家",
    "שלום עולם مرحبا بالعالم ١٢٣ नमस्ते दुनिया १२३ สวัสดีชาวโลก ไม่มีช่องว่าง",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🚌🎉 ☃️ ❤️‍🔥 \u200d\u200b\ufeff e\u0301 A\u030a ﬁ ǆ ½ ² Ⅷ ㊿",
    "def f(x: int = 0) -> list[str]:\n\treturn [f'{x!r}' for _ in range(10**6)]  # ok\n\n\nclass A(B): ...\n",
    "<a href=\"https://example.org/?q=1&r=%20#x\">{{x}}</a> <!-- --> \\n \\u00e9 $x_1^2$ || && => != ==\r\n",
    "SELECT * FROM t WHERE a>=1.5e-10 AND b='x''y'; -- 0xDEADBEEF 192.168.0.1 2026-01-31T12:00:00Z",
    " a  b   c    d\t\te \n f\n\ng \n\n h\r\n\r\ni\u00a0j\u3000k\u2003l \u0085m \x0b\x0c n ",
    "1 22 333 4444 55555 a1 1a  1   2\n3\n\n4 \n5\t6 ½1 ²3 1'2 's1 ' s 'S 'LL ''s",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa           ---------=======******\n\n\n\n\n\n!!!!!!!????",
    "",
)  # fmt: skip
_MAX_TOKENS = 16_384  # of the vocabulary that are tried
_CONTEXTS = (" a", "1", ". ", " \n", "x")


def corpus(special: list[str], vocabulary: list[bytes]) -> list[str]:
    """Some thousands of texts, the same every time.

    Sentences, source code and white space; special tokens amid text; characters and bytes of every kind; and tokens
    of the vocabulary, alone and one after another.
    """
    numbers = _Numbers()
    tokens = [token.decode("utf-8", "replace") for token in vocabulary[:: 1 + len(vocabulary) // _MAX_TOKENS]]
    characters = [chr(code) for code in [*range(0x3000), *range(0x3000, 0x110000, 97)] if not 0xD800 <= code < 0xE000]
    texts = [*_SENTENCES, *tokens]
    texts += [f"a{token} {token}{token}\n{token}1" for token in special]
    texts += ["".join(numbers.choose(tokens) for _ in range(200)) for _ in range(100)]
    texts += ["".join(numbers.choose(characters) for _ in range(50)) for _ in range(100)]
    texts += [bytes(numbers.below(256) for _ in range(100)).decode(code, "replace") for code in ("latin-1", "utf-8")]
    texts += [
        "".join(
            character + _CONTEXTS[place % len(_CONTEXTS)] for place, character in enumerate(characters[i : i + 500])
        )
        for i in range(0, len(characters), 500)
    ]
    return texts


class _Numbers:
    """The same numbers without a pattern in every run (Knuth's linear congruence)."""

    def __init__(self) -> None:
        self._state = 1

    def below(self, end: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 33) % end

    def choose(self, items: list[str]) -> str:
        return items[self.below(len(items))]
