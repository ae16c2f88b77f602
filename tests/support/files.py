"""Tiny models as files: a folder as Transformers saves it, and a GGUF file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from outrider.targets.quiet import quiet_transformers

WORDS = 64


def word_tokenizer(words: int = WORDS) -> PreTrainedTokenizerFast:
    """Return the tokenizer whose id i is the word `w{i}`."""
    backend = Tokenizer(WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0"))
    make: Any = PreTrainedTokenizerFast  # its constructor is untyped
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer: PreTrainedTokenizerFast = make(tokenizer_object=backend, unk_token="w0")
    return tokenizer


def save_tiny_model(
    folder: Path, *, architecture: str = "llama", tokenizer: bool = True, **overrides: Any
) -> Path:
    """Save a random model, and a word tokenizer, as a user would have them."""
    options: dict[str, Any] = {
        "vocab_size": WORDS,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    config = AutoConfig.for_model(architecture, **(options | overrides))
    from_config: Any = AutoModelForCausalLM.from_config  # untyped
    with quiet_transformers():
        from_config(config).save_pretrained(folder)
        if tokenizer:
            word_tokenizer().save_pretrained(folder)
    return folder


def add_own_class(folder: Path) -> Path:
    """Make a saved Llama one whose classes come with it, as code."""
    (folder / "own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n"
        "    model_type = 'own'\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n"
        "    config_class = OwnConfig\n"
    )
    path = folder / "config.json"
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    config = json.loads(path.read_text()) | {"model_type": "own", "auto_map": own}
    path.write_text(json.dumps(config))
    return folder


def write_tiny_gguf(path: Path, *, seed: int = 0, formats: Sequence[str] = ("F32",)) -> Path:
    """Write a random two-layer Llama of 64 tokens, with a byte-level tokenizer.

    Its matrices have the `formats` in turn.
    """
    hidden, inner, heads, layers = 32, 64, 4, 2
    types = itertools.cycle([GGMLQuantizationType[name] for name in formats])
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(WORDS)
    writer.add_tokenizer_model("gpt2")
    tokens = ["<|endoftext|>", *(chr(ord("!") + i) for i in range(WORDS - 2)), "()"]
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (WORDS - 1))
    writer.add_token_merges(["( )"])
    writer.add_eos_token_id(0)
    random = np.random.default_rng(seed)

    def add(name: str, *shape: int) -> None:
        values = random.normal(size=shape).astype(np.float32)
        form = next(types) if len(shape) == 2 else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(values, form), raw_dtype=form)

    add("token_embd.weight", WORDS, hidden)
    add("output_norm.weight", hidden)
    for layer in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", hidden, hidden)
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", hidden)
        add(f"blk.{layer}.ffn_gate.weight", inner, hidden)
        add(f"blk.{layer}.ffn_up.weight", inner, hidden)
        add(f"blk.{layer}.ffn_down.weight", hidden, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
