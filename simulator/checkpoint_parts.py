"""Which part of a model a tensor belongs to, told by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from roofcast.simulator.quantization.patterns import canonical

PARTS: Final = (
    "embeddings",
    "attention",
    "indexer",
    "linear_attention",
    "mlp",
    "router",
    "experts",
    "shared_experts",
    "norms",
    "lm_head",
    "mtp",
    "vision",
    "other",
)

# Patterns of canonical tensor names, first match wins. GGUF names are translated before they come here.
_PARTS: Final = tuple(
    (part, re.compile(pattern))
    for part, pattern in (
        ("mtp", r"(^|\.)(mtp|mtp_layers|nextn)\."),
        ("vision", r"(^|\.)(vision\w*|visual|multi_modal_projector|mm_projector|embed_vision"
                   r"|embed_audio|audio\w*|aligner|image_\w+)\b"),
        ("embeddings", r"(^|\.)(embed_tokens\w*|wpe|word_embeddings|embed_in|embed_positions"
                       r"|embeddings)\b"),
        ("lm_head", r"(^|\.)lm_head\b"),
        ("router", r"\b(mlp|mixer)\.gate\b|\bgate\.(wg|layer|classifier|proj)\b"
                   r"|e_score_correction_bias|\blayers\.\d+\.gate\b|expert_bias"),
        ("shared_experts", r"\bshare(d_)?_?experts?(_gate)?\b|\bshared_mlp\b"),
        ("norms", r"norm\w*(\.\d+)?(\.(weight|bias))?$|\bln_\w+"),
        ("indexer", r"\bindexer\b"),
        ("experts", r"\bexperts\b"),
        ("linear_attention", r"\b(linear_attn|mamba|ssm\w*|conv|conv1d|temporal_block)\b"
                             r"|\bmixer\.(in_proj|out_proj|x_proj|dt_proj|A_log|D|dt_bias|conv1d)\b"
                             r"|\b(A_log|dt_bias)\b"),
        ("attention", r"attn|attention|\bmixer\.[qkvo]_proj\b|query_key_value"),
        ("mlp", r"\bmlps?\b|\bmixer\.(up|down|gate)_proj\b|\bfc[12]\b|\bmlp_block\b"),
    )
)  # fmt: skip
_DRAFT: Final = re.compile(r"^layers\.(\d+)\.(eh_proj|enorm|hnorm|shared_head)\b")


def part_of(name: str, drafts: frozenset[int] = frozenset()) -> str:
    """The part of the model a tensor belongs to; `drafts` are MTP layers among the others.

    >>> part_of("model.layers.0.mlp.experts.7.up_proj.weight_scale_inv")
    'experts'
    >>> part_of("model.layers.61.self_attn.o_proj.weight", frozenset({61}))
    'mtp'
    """
    spelt = canonical(name)
    layer = re.match(r"layers\.(\d+)\.", spelt)
    if layer and int(layer[1]) in drafts:
        return "mtp"
    return next((part for part, pattern in _PARTS if pattern.search(spelt)), "other")


def draft_layers(names: Iterable[str]) -> frozenset[int]:
    """DeepSeek and GLM number their MTP layers on from the decoder's; their extra norms tell."""
    matches = (_DRAFT.match(canonical(name)) for name in names)
    return frozenset(int(match[1]) for match in matches if match)
