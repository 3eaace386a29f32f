"""A tiny random model of each type of causal language model in transformers, except the types in NOT_TINY."""

import inspect
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCABULARY = 64
MODEL_TYPES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
SMALL_SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("sliding_window", "index_topk", "attention_window_size", "attention_chunk_size"), 64),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "word_embed_proj_dim", "emb_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "decoder_ffn_dim", "encoder_ffn_dim", "ffn_dim", "d_inner", "dff"), 48),
    **dict.fromkeys(("dim_ff", "shared_intermediate_size", "dense_intermediate_size", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(("moe_shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank", "index_head_dim"), 16),
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "dim_head", "kv_channels"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "index_n_heads"), 2),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("initializer_range", "init_std"), 0.3),
    "rotary_dim": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def tiny_model(model_type: str, **changes: Any) -> Any:
    """A model with weights initialised with seed 0; dropout and other noise rates are 0.3 where its configuration has them."""
    kind = CONFIG_MAPPING[model_type]
    parameters = inspect.signature(kind.__init__).parameters
    values = {name: value for name, value in SMALL_SIZES.items() if name in parameters}
    if "kv_lora_rank" in parameters:
        values["num_key_value_heads"] = 4
    values |= {
        name: 0.3
        for name, field in parameters.items()
        if ("drop" in name or "jitter" in name) and "classifier" not in name and isinstance(field.default, float)
    }
    config = kind(**values | {"is_decoder": True} | SETTINGS_OF_TYPES.get(model_type, {}) | changes)
    torch.manual_seed(0)
    with torch.device("meta"):
        weights = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    assert weights < 500_000, (
        f"{model_type} has {weights:,} weights; expected fewer than 500,000: give it an entry in SETTINGS_OF_TYPES"
    )
    model = AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        if weight.dim() > 1 and weight.std() < 0.05:
            torch.nn.init.normal_(weight, std=0.2)
        elif not weight.any():
            torch.nn.init.normal_(weight, std=0.1)
    return model


MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_chunk_size": 8}
SETTINGS_OF_TYPES: dict[str, dict[str, Any]] = {
    "bamba": MAMBA2 | {"attn_layer_indices": [1]},
    "deepseek_v4": {"o_groups": 2, "o_lora_rank": 16, "hc_mult": 2, "num_key_value_heads": 1},
    "diffllama": {"attention_dropout": 0.0},
    "dots1": {"n_shared_experts": 1},
    "ernie4_5_moe": {"moe_k": 2},
    "falcon_h1": MAMBA2 | {"mamba_d_ssm": 64},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": 64,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0, 0.0],
    },
    "gemma4_text": {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": MAMBA2 | {"layer_types": ["mamba", "attention"]},
    "inkling_text": {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 8,
        "sliding_window_size": 64,
        "rel_extent": 64,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {"ffn_hidden_size": 48, "zero_expert_num": 2, "moe_topk": 2},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 1, "chunk_size": 8},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "ssm_state_size": 16,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {
        "attn_layers": ["local", "local"],
        "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [16, 16],
        "attention_head_size": 8,
        "feed_forward_size": 48,
        "local_attn_chunk_length": 8,
    },
    "roc_bert": {
        "pronunciation_embed_dim": 8,
        "pronunciation_vocab_size": 64,
        "shape_embed_dim": 8,
        "shape_vocab_size": 64,
    },
    "zamba2": {
        "num_hidden_layers": 3,
        "layers_block_type": ["mamba", "mamba", "hybrid"],
        "num_key_value_heads": 4,
        "mamba_d_state": 16,
        "n_mamba_heads": 8,
        "chunk_size": 8,
        "adapter_rank": 8,
        "use_mamba_kernels": False,
    },
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 16},
}

MULTIMODAL = "combines a text model with models of images or sound; the text model has a separate type"
NOT_TINY = {
    "blt": "four models in one; the entropy of the first decides how text is cut into patches",
    "cohere_compass_text": "transformers 5.19 finds no rotary positions for the layers of a new configuration",
    "dbrx": "transformers 5.19 finds no rotary base in a new configuration",
    "zamba": "transformers 5.19 fails to tie the shared block if a model has fewer layers than the published one",
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), "drafts tokens for another model"),
    **dict.fromkeys(("emu3", "fuyu", "gemma3", "gemma3n", "gemma4", "gemma4_unified", "git", "got_ocr2"), MULTIMODAL),
    **dict.fromkeys(("llama4", "mllama", "moshi", "musicgen", "musicgen_melody", "phi4_multimodal"), MULTIMODAL),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen4_exp"), MULTIMODAL),
}
"""Types for which no tiny model is made, with the reason."""
FAILURE, CHANGE = "a trial of it failed", "its log-probabilities change by"
NOISE = "its log-probabilities differ by"
REFUSED = {
    "cpmant": CHANGE,
    "phimoe": NOISE,
    "prophetnet": CHANGE,
    "reformer": FAILURE,
    "trocr": CHANGE,
    "whisper": CHANGE,
    "xlm": CHANGE,
    "xlnet": CHANGE,
    "xlstm": CHANGE,
}
"""Types that training refuses, and how the error message continues after the name of the type."""
