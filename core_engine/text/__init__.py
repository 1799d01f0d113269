"""Text to tokens and back, without a model: tokenizer, chat templates, incremental detokenising, stop strings."""

from __future__ import annotations

from core_engine.text.detokenize import IncrementalDetokenizer
from core_engine.text.model import TextModel, load_text_model
from core_engine.text.stops import StopStrings

__all__ = ["IncrementalDetokenizer", "StopStrings", "TextModel", "load_text_model"]
