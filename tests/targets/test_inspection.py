"""A report on a pair tells what loading it would give, without its weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.drafters import translation
from outrider.drafters.translation import Overlap
from outrider.errors import LoadError, OptionError, VocabularyMismatchError
from outrider.targets.inspection import PairReport, inspect_pair
from outrider.targets.loading import load_model
from support.files import save_tiny_model, word_tokenizer, write_tiny_gguf


def _inspect_with_drafter(target: Path, drafter: Path) -> PairReport:
    return inspect_pair(str(target), f"model:{drafter}")


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("llama", {"num_key_value_heads": 2}),
        ("llama", {"tie_word_embeddings": True, "head_dim": 16}),
        ("gpt2", {}),
        ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
    ],
)
def test_sizes_are_those_of_the_loaded_model(
    architecture: str, options: dict[str, Any], tmp_path: Path
) -> None:
    folder = str(save_tiny_model(tmp_path, architecture=architecture, **options))
    report = inspect_pair(folder).target
    model: Any = load_model(folder, device="cpu").model
    assert report.parameters == sum(p.numel() for p in model.parameters())
    assert report.weight_bytes == sum(p.nbytes for p in model.parameters())
    cached = model(torch.tensor([[1]]), use_cache=True).past_key_values.layers
    assert report.kv_bytes_per_token == sum(c.keys.nbytes + c.values.nbytes for c in cached)
    assert report.model_class == type(model).__name__
    assert report.file_bytes == (tmp_path / "model.safetensors").stat().st_size
    assert (report.layers, report.context_length) == (2, 128)
    assert (report.rows, report.vocabulary) == (64, 64)
    assert report.unsupported == ()


def test_bytes_follow_the_dtype(tmp_path: Path) -> None:
    folder = str(save_tiny_model(tmp_path))
    full = inspect_pair(folder, dtype="float32").target
    half = inspect_pair(folder, dtype="bfloat16").target
    assert full.weight_bytes is not None and half.weight_bytes is not None
    assert full.kv_bytes_per_token is not None and half.kv_bytes_per_token is not None
    assert (full.dtype, half.dtype) == ("float32", "bfloat16")
    assert full.weight_bytes == 2 * half.weight_bytes
    assert full.kv_bytes_per_token == 2 * half.kv_bytes_per_token


def test_no_weights_are_read(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path)
    (folder / "model.safetensors").write_bytes(b"damaged")
    report = inspect_pair(str(folder), f"model:{folder}")
    assert report.target == report.drafter
    assert report.target.file_bytes == len(b"damaged")


def test_memory_is_the_weights_and_one_full_context(tmp_path: Path) -> None:
    target = save_tiny_model(tmp_path / "target")
    drafter = save_tiny_model(tmp_path / "drafter", num_hidden_layers=1)
    report = _inspect_with_drafter(target, drafter)
    models = [report.target, report.drafter]
    expected = 0
    for model in models:
        assert model is not None
        assert model.weight_bytes is not None and model.kv_bytes_per_token is not None
        expected += model.weight_bytes + 128 * model.kv_bytes_per_token
    assert report.total_bytes == expected


@pytest.mark.parametrize(
    ("layers", "verdict"),
    [
        (16, "a good size"),
        (5, "one at least 10 times smaller is likelier to pay"),
        (1, "cannot pay"),
    ],
)
def test_the_size_ratio_leads_to_a_recommendation(
    layers: int, verdict: str, tmp_path: Path
) -> None:
    target = save_tiny_model(tmp_path / "target", num_hidden_layers=layers, vocab_size=64)
    drafter = save_tiny_model(
        tmp_path / "drafter", num_hidden_layers=1, tie_word_embeddings=layers > 1
    )
    report = _inspect_with_drafter(target, drafter)
    assert report.size_ratio is not None
    assert (report.size_ratio > 1) == (layers > 1)
    assert (report.size_ratio >= 10) == (layers == 16)
    assert report.recommendation is not None and report.recommendation.endswith(verdict)


def test_padded_vocabularies_of_one_tokenizer_fit(tmp_path: Path) -> None:
    """VOCAB-1."""
    target = save_tiny_model(tmp_path / "target")
    drafter = save_tiny_model(tmp_path / "drafter", vocab_size=72)
    report = _inspect_with_drafter(target, drafter)
    assert report.vocabulary is not None
    assert (report.vocabulary.shared_ids, report.vocabulary.draft_rows) == (64, 72)
    assert report.unsupported == ()


def _with_words_exchanged(tmp_path: Path) -> tuple[Path, Path]:
    """Save a target, and a draft model whose tokenizer has two of its words the other way round."""
    target = save_tiny_model(tmp_path / "target")
    drafter = save_tiny_model(tmp_path / "drafter")
    file = drafter / "tokenizer.json"
    content = json.loads(file.read_text())
    words = content["model"]["vocab"]
    words["w10"], words["w11"] = words["w11"], words["w10"]
    file.write_text(json.dumps(content))
    return target, drafter


def test_other_ids_are_translated_and_the_overlap_is_reported(tmp_path: Path) -> None:
    """VOCAB-2."""
    target, drafter = _with_words_exchanged(tmp_path)
    report = _inspect_with_drafter(target, drafter)
    assert report.vocabulary is None
    assert report.overlap == Overlap(63, 63, 63, ("tokens", "text"))  # the unknown word aside
    assert report.unsupported == ()
    named = inspect_pair(str(target), f"model:{drafter}?way=text")
    assert named.overlap == replace(report.overlap, ways=("text",))
    assert named.to_dict()["overlap"]["ways"] == ("text",)


def test_the_first_id_that_differs_is_reported_where_none_can_be_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VOCAB-2."""

    def refuse(*_: Any) -> None:
        raise VocabularyMismatchError("no fast tokenizer")

    monkeypatch.setattr(translation, "spell", refuse)
    report = _inspect_with_drafter(*_with_words_exchanged(tmp_path))
    assert report.overlap is None
    assert report.vocabulary_problem == (
        "the drafter's vocabulary is not the target's: token id 10 is 'w10' to the target and "
        "'w11' to the drafter; no fast tokenizer"
    )
    assert report.unsupported == (report.vocabulary_problem,)


@pytest.mark.parametrize(
    ("architecture", "options", "reason", "kind"),
    [
        ("mamba", {}, "target: it has linear_attention layers", "refused"),
        ("bloom", {}, "target: BloomForCausalLM does not declare Transformers' attention", "crop"),
    ],
)
def test_what_is_unsupported_is_reported_with_its_reason(
    architecture: str, options: dict[str, Any], reason: str, kind: str, tmp_path: Path
) -> None:
    report = inspect_pair(str(save_tiny_model(tmp_path, architecture=architecture, **options)))
    assert report.target.rollback.kind == kind
    assert any(found.startswith(reason) for found in report.unsupported)
    assert report.target.kv_bytes_per_token is None
    assert report.total_bytes is None


def test_an_encoder_decoder_is_reported(tmp_path: Path) -> None:
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48}
    layers = {"num_layers": 2, "num_decoder_layers": 3}
    config = {"model_type": "t5", "dtype": "float32"} | sizes | layers
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text(json.dumps(config))
    word_tokenizer().save_pretrained(tmp_path / "t5")
    report = inspect_pair(str(tmp_path / "t5"), f"model:{tmp_path / 't5'}")
    assert report.target.model_class == "T5ForConditionalGeneration"
    assert (report.target.has_encoder, report.target.layers) == (True, 3)
    # Keys and values of four heads of eight, in three layers of four bytes.
    assert report.target.kv_bytes_per_token == 2 * 4 * 8 * 3 * 4
    assert report.unsupported == ()


def test_a_model_with_an_encoder_and_one_without_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text('{"model_type": "t5", "vocab_size": 64}')
    word_tokenizer().save_pretrained(tmp_path / "t5")
    folder = save_tiny_model(tmp_path / "llama")
    report = inspect_pair(str(folder), f"model:{tmp_path / 't5'}")
    assert report.unsupported == ("the drafter alone has an encoder: they read different things",)


def test_a_sliding_window_is_noted(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path, architecture="mistral", sliding_window=8)
    assert inspect_pair(str(folder)).target.rollback.reason == "sliding window of 8 tokens"


def test_a_gguf_file_is_reported_as_it_would_be_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    report = inspect_pair(str(path)).target
    assert report.file_bytes == path.stat().st_size
    assert report.parameters is not None
    assert report.weight_bytes == report.parameters * getattr(torch, report.dtype).itemsize


def test_a_quantised_checkpoint_weighs_what_its_files_weigh(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    report = inspect_pair(str(folder)).target
    assert report.weight_bytes == report.file_bytes == (folder / "model.safetensors").stat().st_size


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_int8_model_weighs_what_it_does_when_loaded(
    dtype: str, tied: bool, tmp_path: Path
) -> None:
    spec = f"{save_tiny_model(tmp_path, tie_word_embeddings=tied)}@int8"
    report = inspect_pair(spec, f"model:{spec}", dtype=dtype)
    model = load_model(spec, device="cpu", dtype=dtype).model
    buffers = [b for name, b in model.named_buffers() if "rotary" not in name]
    assert report.target.weight_bytes == sum(t.nbytes for t in (*model.parameters(), *buffers))
    assert report.target.spec == spec
    assert report.target.dtype == f"int8 and {dtype}"
    plain = inspect_pair(spec.removesuffix("@int8"), dtype=dtype).target
    assert report.target.kv_bytes_per_token == plain.kv_bytes_per_token
    assert report.target.parameters == plain.parameters
    assert report.drafter == report.target


def test_a_suffix_that_cannot_be_had_is_reported(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    }
    experts = save_tiny_model(tmp_path / "experts", architecture="qwen3_moe", **options)
    (problem,) = inspect_pair(f"{experts}@int8").unsupported
    assert "cannot be quantised to int8" in problem
    quantised = save_tiny_model(tmp_path / "quantised")
    config = json.loads((quantised / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (quantised / "config.json").write_text(json.dumps(config))
    (problem,) = inspect_pair(f"{quantised}@int8").unsupported
    assert "quantised already, with gptq" in problem


@pytest.mark.parametrize("drafter", [None, "none", "ngram", "suffix", "prediction:FILE"])
def test_drafters_without_a_model_have_no_report(drafter: str | None, tmp_path: Path) -> None:
    report = inspect_pair(str(save_tiny_model(tmp_path)), drafter)
    assert report.drafter_kind == (drafter or "none").partition(":")[0]
    assert (report.drafter, report.vocabulary, report.recommendation) == (None, None, None)


def test_an_unknown_drafter_or_model_is_an_error(tmp_path: Path) -> None:
    folder = str(save_tiny_model(tmp_path))
    with pytest.raises(OptionError, match="drafter 'sufix' is unknown; known are none, ngram"):
        inspect_pair(folder, "sufix")
    with pytest.raises(OptionError, match="names no model"):
        inspect_pair(folder, "model:")
    with pytest.raises(LoadError, match="unknown model 'no/such'"):
        inspect_pair(folder, "model:no/such")


def test_a_report_is_plain_json(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path)
    report = _inspect_with_drafter(folder, folder)
    document = json.loads(json.dumps(report.to_dict()))
    assert document["target"]["parameters"] == report.target.parameters
    assert document["vocabulary"]["shared_ids"] == 64
    assert document["size_ratio"] == 1.0
    assert document["unsupported"] == []
