"""What is written is read back, to the bit, whatever the format."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_heads import (
    VOCAB,
    draft_config,
    eagle_config,
    eagle_configs,
    medusa_config,
    random_head,
    random_tensors,
    same_tensors,
)

from outrider.checkpoints.base import Checkpoint, Format, HeadConfig
from outrider.checkpoints.files import write_tensors
from outrider.checkpoints.read import read_checkpoint
from outrider.checkpoints.write import write_checkpoint
from outrider.errors import LoadError, OptionError

DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
MEDUSA = st.builds(
    medusa_config,
    num_heads=st.integers(1, 4),
    num_layers=st.integers(1, 2),
    base_model=st.sampled_from([None, "org/target"]),
)


def through(checkpoint: Checkpoint, *formats: Format) -> Checkpoint:
    """Write a head and read it again, in one format after the other."""
    with tempfile.TemporaryDirectory() as folder:
        for place, format in enumerate(formats):
            written = Path(folder) / str(place)
            write_checkpoint(checkpoint, format, written)
            # What the original formats cannot say has to be said again.
            checkpoint = replace(read_checkpoint(written), target=checkpoint.target)
            assert checkpoint.format == format
            checkpoint = replace(checkpoint, tensors={k: v.clone() for k, v in items(checkpoint)})
    return checkpoint


def items(checkpoint: Checkpoint) -> list[tuple[str, torch.Tensor]]:
    return list(checkpoint.tensors.items())


def survives(checkpoint: Checkpoint, *formats: Format) -> None:
    found = through(checkpoint, *formats)
    assert found.config == checkpoint.config
    assert found.target == checkpoint.target
    assert found.changes_target == checkpoint.changes_target
    assert same_tensors(found, checkpoint)


@settings(max_examples=15, deadline=None)
@given(eagle_configs(1), DTYPES)
def test_an_eagle_1_head_survives_its_formats(config: HeadConfig, dtype: torch.dtype) -> None:
    survives(random_head(config, dtype), "native", "eagle", "native")


@settings(max_examples=15, deadline=None)
@given(eagle_configs(3, is_plain=True), DTYPES)
def test_a_plain_eagle_3_head_survives_every_format(config: HeadConfig, dtype: torch.dtype) -> None:
    survives(random_head(config, dtype), "speculators", "eagle", "native", "speculators")


@settings(max_examples=15, deadline=None)
@given(eagle_configs(3))
def test_an_eagle_3_head_of_any_kind_survives_speculators(config: HeadConfig) -> None:
    survives(random_head(config), "native", "speculators", "native")


@settings(max_examples=15, deadline=None)
@given(MEDUSA, DTYPES)
def test_medusa_heads_survive_their_formats(config: HeadConfig, dtype: torch.dtype) -> None:
    survives(random_head(config, dtype), "native", "medusa", "native")


@pytest.mark.parametrize("owns_output", [True, False])
@pytest.mark.parametrize("changes_target", [True, False])
def test_our_own_format_says_all_there_is(owns_output: bool, changes_target: bool) -> None:
    head = random_head(medusa_config(owns_output=owns_output, base_model="org/target"))
    survives(replace(head, changes_target=changes_target), "native")


@pytest.mark.parametrize("drafted", [1, 5, VOCAB])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_draft_model_survives_its_format(drafted: int, dtype: torch.dtype) -> None:
    survives(random_head(draft_config(drafted, attention_bias=True), dtype), "native", "native")


def test_tensors_that_share_memory_are_written_apart(tmp_path: Path) -> None:
    config = medusa_config(num_layers=2)
    tensors = random_tensors(config)
    whole = torch.randn(4, 8, 8)
    for head in range(3):
        tensors[f"heads.{head}.blocks.0.weight"] = whole[head]
        tensors[f"heads.{head}.blocks.1.weight"] = whole[head]
    shared = Checkpoint(config=config, tensors=tensors)
    survives(shared, "native", "medusa")
    write_checkpoint(shared, "medusa", tmp_path / "new")
    alone = replace(shared, tensors={k: v.clone() for k, v in tensors.items()})
    write_checkpoint(alone, "medusa", tmp_path / "alone")
    for name in ("medusa_lm_head.pt", "medusa_lm_head.safetensors"):
        sizes = [(tmp_path / one / name).stat().st_size for one in ("new", "alone")]
        assert sizes[0] == pytest.approx(sizes[1], abs=64)


@pytest.mark.parametrize(
    ("head", "format", "reason"),
    [
        (random_head(medusa_config()), "speculators", "EAGLE-3 only"),
        (random_head(draft_config()), "speculators", "it can as native, or as transformers"),
        (random_head(draft_config()), "eagle", "a draft model cannot be written as eagle"),
        (random_head(draft_config()), "medusa", "a draft model cannot be written as medusa"),
        (random_head(medusa_config()), "eagle", "use medusa"),
        (random_head(eagle_config(1)), "speculators", "EAGLE-3 only"),
        (random_head(eagle_config(1)), "medusa", "use eagle"),
        (random_head(medusa_config(owns_output=False)), "medusa", "share the target's output"),
        (replace(random_head(medusa_config()), changes_target=True), "medusa", "trained along"),
        (random_head(eagle_config(norm_before_residual=True)), "eagle", "norm_before_residual"),
        (random_head(eagle_config(norm_before_fc=True)), "eagle", "norm_before_fc"),
        (random_head(eagle_config(fc_norm=True)), "eagle", "fc_norm"),
        (random_head(eagle_config(norm_output=True)), "eagle", "norm_output"),
        (random_head(eagle_config(attention_bias=True)), "eagle", "biases"),
        (random_head(eagle_config(num_layers=2)), "eagle", "2 layers"),
        (random_head(eagle_config(feature_layers=(1, 2))), "eagle", "2 feature layers"),
        (random_head(eagle_config(), target=None), "speculators", "--target"),
        (random_head(eagle_config()), "hydra", "format 'hydra' is unknown"),
    ],
)
def test_what_a_format_cannot_say_is_refused_and_nothing_is_left(
    head: Checkpoint, format: Format, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=reason):
        write_checkpoint(head, format, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_head_without_its_own_output_layer_is_written_natively_only(tmp_path: Path) -> None:
    head = random_head(eagle_config(owns_head=False, draft_vocab_size=16))
    survives(head, "native")
    for format in ("eagle", "speculators"):
        with pytest.raises(OptionError, match="no language-model head"):
            write_checkpoint(head, format, tmp_path / "new")


def test_tensors_that_do_not_fit_the_configuration_are_not_written(tmp_path: Path) -> None:
    head = random_head(medusa_config())
    with pytest.raises(LoadError, match=r"heads\.3\.blocks\.0\.bias"):
        write_checkpoint(
            replace(head, config=medusa_config(num_heads=4)), "native", tmp_path / "new"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_anything_in_it_is_not_written_to(tmp_path: Path) -> None:
    head = random_head(medusa_config())
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("mine")
    write_checkpoint(head, "native", tmp_path / "taken")  # it was empty
    before = sorted(path.name for path in (tmp_path / "taken").iterdir())
    for name in ("taken", "file"):
        with pytest.raises(OptionError, match="name a new folder"):
            write_checkpoint(head, "native", tmp_path / name)
    with pytest.raises(OptionError, match="cannot write"):
        write_checkpoint(head, "native", tmp_path / "file" / "below")
    assert sorted(path.name for path in (tmp_path / "taken").iterdir()) == before
    write_checkpoint(head, "native", tmp_path / "deep" / "new")
    (tmp_path / "deep" / "plain").mkdir()
    modes = {path.stat().st_mode for path in (tmp_path / "deep").iterdir()}
    assert len(modes) == 1  # as readable as any other folder
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "file", "taken"]


def test_what_is_written_can_be_read_by_whom_any_new_file_can(tmp_path: Path) -> None:
    write_tensors(tmp_path / "head.safetensors", {"weight": torch.zeros(2)})
    (tmp_path / "other").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
