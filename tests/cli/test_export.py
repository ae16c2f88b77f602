"""`outrider export`: a head goes in, the same head comes out in the words of another program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig
from typer.testing import CliRunner, Result

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.read import read_checkpoint
from outrider.checkpoints.tensors import expected_shapes
from outrider.checkpoints.write import write_checkpoint
from outrider.cli.main import app
from outrider.heads.config import EagleConfig, MedusaConfig
from outrider.targets.loading import load_model
from support.drafts import draft_of, save_draft
from support.files import save_tiny_model
from support.tiny import tiny_model

EAGLE = EagleConfig(
    version=3,
    hidden_size=8,
    target_hidden_size=8,
    intermediate_size=12,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=2,
    vocab_size=16,
    draft_vocab_size=16,
    max_position_embeddings=64,
    feature_layers=None,
    owns_embeddings=False,
    owns_head=True,
)
MEDUSA = MedusaConfig(num_heads=2, num_layers=1, hidden_size=8, vocab_size=16)


def save(folder: Path, config: EagleConfig | MedusaConfig) -> Checkpoint:
    tensors = {name: torch.randn(shape) for name, shape in expected_shapes(config).items()}
    checkpoint = Checkpoint(config=config, tensors=tensors)
    write_checkpoint(checkpoint, "native", folder)
    return checkpoint


@pytest.fixture
def target(tmp_path: Path) -> Path:
    config = AutoConfig.for_model(
        "llama",
        architectures=["LlamaForCausalLM"],
        hidden_size=8,
        vocab_size=16,
        num_attention_heads=2,
        num_hidden_layers=12,
    )
    config.save_pretrained(tmp_path / "target")
    return tmp_path / "target"


def run(drafter: str, format: str, out: Path, *more: str) -> Result:
    return CliRunner().invoke(
        app, ["export", drafter, "--format", format, "--out", str(out), *more]
    )


def test_a_head_is_written_for_its_target(tmp_path: Path, target: Path) -> None:
    saved = save(tmp_path / "head", EAGLE)
    out = tmp_path / "new"
    result = run(f"eagle:{tmp_path / 'head'}", "speculators", out, "--target", str(target))
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "EAGLE-3, read from native format\n"
        f"wrote {out}/config.json\nwrote {out}/model.safetensors\n"
    )
    written = read_checkpoint(out)
    assert written.target == str(target)
    assert isinstance(written.config, EagleConfig)
    assert written.config.feature_layers == (2, 6, 9)
    assert all(torch.equal(written.tensors[name], one) for name, one in saved.tensors.items())
    verifier = json.loads((out / "config.json").read_text())["speculators_config"]["verifier"]
    assert verifier["architectures"] == ["LlamaForCausalLM"]


def test_the_kind_may_be_left_out_but_not_be_wrong(tmp_path: Path, target: Path) -> None:
    head = tmp_path / "head"
    save(head, MEDUSA)
    assert run(str(head), "medusa", tmp_path / "a", "--target", str(target)).exit_code == 0
    assert run(f"medusa:{head}", "native", tmp_path / "b", "--target", str(target)).exit_code == 0
    for folder in (tmp_path / "a", tmp_path / "b"):
        written = read_checkpoint(folder)
        assert isinstance(written.config, MedusaConfig)
        assert written.target == written.config.base_model == str(target)
    result = run(f"eagle:{head}", "native", tmp_path / "c")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {head} is Medusa-1: write medusa:{head}\n"


def test_what_cannot_be_written_is_one_line_and_no_folder(tmp_path: Path, target: Path) -> None:
    save(tmp_path / "head", MEDUSA)
    save(tmp_path / "eagle", EAGLE)
    for drafter, format, code, problem in (
        ("head", "speculators", 2, "Medusa-1 heads cannot be written as speculators"),
        ("eagle", "medusa", 2, "an EAGLE-3 head cannot be written as medusa"),
        ("eagle", "speculators", 2, "speculators names the target of a head"),
        ("nowhere", "native", 1, "unknown head"),
    ):
        result = run(str(tmp_path / drafter), format, tmp_path / "new")
        assert (result.exit_code, result.stdout) == (code, "")
        assert result.stderr.startswith(f"error: {problem}") and result.stderr.count("\n") == 1
        assert not (tmp_path / "new").exists()


def test_a_target_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "head", EAGLE)
    small = AutoConfig.for_model("llama", hidden_size=8, vocab_size=17, num_attention_heads=2)
    small.save_pretrained(tmp_path / "small")
    target = str(tmp_path / "small")
    result = run(str(tmp_path / "head"), "native", tmp_path / "new", "--target", target)
    assert result.exit_code == 1
    assert "is for 16 token ids, but the target has 17" in result.stderr


def test_a_draft_model_is_written_whole_for_its_target(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "target")
    draft = draft_of(load_model(str(folder)).model, [0], [1, 2, 3])
    spec, out = save_draft(tmp_path / "draft", draft), tmp_path / "new"
    result = run(spec, "transformers", out)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "say which with --target" in result.stderr and not out.exists()
    result = run(spec, "transformers", out, "--target", str(folder))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("draft model, read from native format\n")
    assert f"wrote {out}/model.safetensors\n" in result.stdout
    assert load_model(str(out)).model.config.num_hidden_layers == 1


def test_a_draft_model_is_named_as_specs_name_it(tmp_path: Path) -> None:
    draft = save_draft(tmp_path / "draft", draft_of(tiny_model(), ids=[1, 2, 3]))
    assert run(draft, "native", tmp_path / "again").exit_code == 0
    result = run(draft.replace("model:", "eagle:"), "native", tmp_path / "head")
    assert f"is a draft model: write {draft}" in result.stderr
