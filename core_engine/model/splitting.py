"""How a GGUF file's tokenizer splits text before its merges apply.

The file names a rule (`tokenizer.ggml.pre`) without spelling it out. transformers knows some of
these names; for the others it splits as GPT-2 does, which gives different tokens without a word.
"""

from __future__ import annotations

import logging

from tokenizers import Tokenizer, pre_tokenizers

from core_engine.errors import ModelError

_log = logging.getLogger("jitney.model")

# Each digit apart, then as GPT-2. Names as llama.cpp defines them.
_SINGLE_DIGITS = {"codeshell", "command-r", "exaone", "minerva-7b", "refact", "smollm", "starcoder"}
_AS_GPT2 = {"a.x-4.0", "gigachat", "gpt-2", "jais", "jina-de", "jina-es", "mellum", "mpt", "olmo", "phi-2", "trillion"}


def restore_splitting(tokenizer: Tokenizer, rule: str | None, where: str) -> None:
    """Make a converted byte-level tokenizer split by the rule its file names.

    Raises ModelError for a rule that neither transformers nor this module knows.
    """
    if not isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel):
        return  # transformers knew the rule, or the tokenizer isn't byte-level and has none
    if rule in _SINGLE_DIGITS:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    elif rule is None:
        _log.warning("%s doesn't say how its tokenizer splits text; assuming GPT-2's rule", where)
    elif rule not in _AS_GPT2:
        raise ModelError(
            f"{where} splits text by the rule '{rule}', which isn't known here, so its tokens would come out wrong; "
            "use the model in Hugging Face's format"
        )
