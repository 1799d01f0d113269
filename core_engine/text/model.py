"""TextModel: a model's tokenizer and chat template, without the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from core_engine.errors import InvalidRequest, ModelError
from core_engine.heap import give_back_memory
from core_engine.text.chat import ChatTemplate
from core_engine.text.fast import FastEncoder, fast_encoder
from core_engine.text.files import TokenizerFiles, read_tokenizer_files
from core_engine.text.vocabulary import TokenBytes

_SURROGATE = re.compile("[\ud800-\udfff]")
_GUARDS = ("\n", "0", ".")  # short texts that rarely merge with what follows


def load_text_model(directory: str | Path) -> TextModel:
    """Load `tokenizer.json` and what stands beside it from a model's directory; blocks for up to a second.

    Raises ModelError for a directory without a readable tokenizer.
    """
    path = Path(directory) / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{path} is missing: a model needs its tokenizer in the format of the tokenizers library")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"{path} can't be read as a tokenizer: {error}") from error
    text_model = TextModel(tokenizer, read_tokenizer_files(path.parent))
    give_back_memory()  # the tokenizer was read as text, and tried on more of it
    return text_model


class TextModel:
    """Text to tokens and back. Safe to use from several threads.

    `vocab_size` is one more than the highest token id; `special_token_ids` are those that give no
    text to a reader, `eos_token_ids` those that end an answer; `max_model_len` is the limit that the
    model's files name, in tokens. `outer_token_ids` are those that go before and after a raw prompt.
    `token_bytes_by_id` are the bytes of each token (see TokenBytes).
    """

    def __init__(self, tokenizer: Tokenizer, files: TokenizerFiles) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.token_bytes_by_id = TokenBytes(tokenizer)
        self.vocab_size = max(self.token_bytes_by_id, default=-1) + 1
        added = tokenizer.get_added_tokens_decoder()
        named = {text: tokenizer.token_to_id(text) for text in files.special_tokens.values()}
        eos = tokenizer.token_to_id(files.special_tokens.get("eos_token", ""))
        self.eos_token_ids = tuple(dict.fromkeys([*files.eos_token_ids, *([] if eos is None else [eos])]))
        self.max_model_len = files.max_model_len
        self.special_token_ids: frozenset[int] = frozenset(
            {id for id, token in added.items() if token.special}
            | {id for id in named.values() if id in added}
            | set(self.eos_token_ids)
        )
        self._set_outer_tokens(files)
        self._fast: FastEncoder | None = None
        self.outer_token_ids = self._outer_tokens()
        self._fast = fast_encoder(tokenizer) if self._is_surrounded_plainly() else None
        self._inserts_space = self._first_piece_gains_a_space()
        self._chat = self._chat_template(files) if files.templates else None

    @property
    def has_chat_template(self) -> bool:
        """Whether `render_chat` works for this model."""
        return self._chat is not None

    def template_says(self, text: str) -> bool:
        """Whether the chat template holds this text, to print it or to look for it."""
        return self._chat is not None and self._chat.says(text)

    def template_takes(self, variable: str) -> bool:
        """Whether the chat template makes use of this variable."""
        return self._chat is not None and self._chat.takes(variable)

    def token_ids_of(self, texts: Iterable[str]) -> frozenset[int]:
        """The ids of these texts, of those that are tokens."""
        token_ids = map(self._tokenizer.token_to_id, texts)
        return frozenset(token_id for token_id in token_ids if token_id is not None)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a raw prompt; special tokens spelled in it are parsed.

        Lone surrogates, which no tokenizer knows, become U+FFFD.
        """
        text = _SURROGATE.sub("\ufffd", text)
        fast = self._fast.encode(text) if self._fast is not None else None
        if fast is None:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
            return ids
        if not add_special_tokens:
            return fast
        before, after = self.outer_token_ids
        return [*before, *fast, *after]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens that stand at its beginning; bytes that form no character become U+FFFD.

        Raises InvalidRequest for an id that isn't in the vocabulary.
        """
        for token_id in token_ids:
            if not 0 <= token_id < self.vocab_size:
                raise InvalidRequest(
                    f"token id {token_id} isn't in the vocabulary, which ends at {self.vocab_size - 1}",
                    "invalid_value",
                    "tokens",
                )
        hidden = self.special_token_ids if skip_special_tokens else frozenset()
        return self.without_leading_space(self._text(token for token in token_ids if token not in hidden))

    def without_leading_space(self, text: str) -> str:
        """The beginning of a text without the space that some tokenizers put before a first word."""
        for _ in range(self.token_bytes_by_id.leading_spaces):
            text = text.removeprefix(" ")
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token; joined over an output they are its text in UTF-8."""
        return self.token_bytes_by_id[token_id]

    def token_text(self, token_id: int) -> str:
        """Return one token for display; bytes that are part of a character become U+FFFD."""
        return self._text([token_id])

    def render_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: dict[str, Any] | None = None,
    ) -> list[int]:
        """Return the prompt for a conversation through the model's chat template.

        Control tokens spelled anywhere in the messages are encoded as plain text, so that nobody
        can forge a role. `continue_final_message` ends the prompt inside the last message, for the
        model to go on with it; it excludes `add_generation_prompt`.

        Raises InvalidRequest, with the field at fault, where the template refuses or can't render.
        """
        if self._chat is None:
            raise InvalidRequest(
                "this model has no chat template; use /v1/completions with a prompt", "no_chat_template", "messages"
            )
        if continue_final_message and add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message needs add_generation_prompt to be false: a prompt either goes on with the "
                "last message or begins a new one",
                "invalid_value",
                "continue_final_message",
            )
        rendered = self._chat.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=template_kwargs or {},
        )
        first, *rest = self._chat.control.pieces(rendered) or [""]
        ids = self.encode(first, add_special_tokens=False)
        for piece in rest:
            ids += self._encode_continuation(piece)
        return ids

    def _text(self, token_ids: Iterable[int]) -> str:
        table = self.token_bytes_by_id
        return b"".join([table[token] for token in token_ids]).decode("utf-8", "replace")

    def _encode_continuation(self, piece: str) -> list[int]:
        """Encode a piece from the middle of a text, without the space that some tokenizers put before a first word."""
        for guard in _GUARDS if self._inserts_space else ():
            alone, together = (self.encode(text, add_special_tokens=False) for text in (guard, guard + piece))
            if together[: len(alone)] == alone:
                return together[len(alone) :]
        return self.encode(piece, add_special_tokens=False)

    def _outer_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        bare, whole = (tuple(self.encode("a", add_special_tokens=added)) for added in (False, True))
        start = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), 0)
        return whole[:start], whole[start + len(bare) :]

    def _is_surrounded_plainly(self) -> bool:
        """Whether the outer tokens are the same around every text."""
        before, after = self.outer_token_ids
        return all(
            self.encode(text) == [*before, *self.encode(text, add_special_tokens=False), *after]
            for text in ("", "a", " 1\n", "some more words")
        )

    def _first_piece_gains_a_space(self) -> bool:
        ids = self.encode("a", add_special_tokens=False)
        return self._text(ids).startswith(" ")

    def _set_outer_tokens(self, files: TokenizerFiles) -> None:
        """Let the configuration say which tokens surround a raw prompt, where it says so (as transformers does)."""
        if files.adds_bos is None and files.adds_eos is None:
            return
        tokens = {}
        for name, added in (("bos_token", files.adds_bos), ("eos_token", files.adds_eos)):
            text = files.special_tokens.get(name)
            token_id = self._tokenizer.token_to_id(text) if added and text else None
            tokens[name] = [] if token_id is None else [(text, token_id)]
        bos, eos = tokens["bos_token"], tokens["eos_token"]
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single=[*(text for text, _ in bos), "$A", *(text for text, _ in eos)],
            special_tokens=sorted({*bos, *eos}),
        )

    def _chat_template(self, files: TokenizerFiles) -> ChatTemplate:
        added = self._tokenizer.get_added_tokens_decoder()
        normalizer = self._tokenizer.normalizer
        normalized = normalizer is not None and any(token.normalized for token in added.values())
        return ChatTemplate(
            files.templates,
            special_tokens=files.special_tokens,
            control_tokens=[token.content for id, token in added.items() if id in self.special_token_ids],
            added_tokens=[token.content for token in added.values()],
            normalize=normalizer.normalize_str if normalizer is not None and normalized else None,
        )
