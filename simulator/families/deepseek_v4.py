"""DeepSeek-V4: one shared key-value head, compressed long-range caches, hyper-connections.

Every layer attends to a sliding window; most attend besides to compressed entries, one for
`compress_ratio` tokens: few enough to read all (ratio 128) or picked by an indexer (ratio 4).
Keys are values. Module names are those of DeepSeek's checkpoints.
Shapes: transformers 5.24.0, modeling_deepseek_v4.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import (
    Architecture,
    AttentionCore,
    Indexer,
    Layer,
    Weight,
)
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import stack, top_k
from roofcast.simulator.families.parts import norm, vector
from roofcast.simulator.families.patterns import SLIDING
from roofcast.simulator.formats import FP32

SPARSE: Final = "compressed_sparse_attention"
HEAVY: Final = "heavily_compressed_attention"
RATIO_KINDS: Final = {0: SLIDING, 4: SPARSE, 128: HEAVY}
RATES: Final = {SPARSE: ("compress_rate_csa", 4), HEAVY: ("compress_rate_hca", 128)}


def build(config: Config) -> Architecture:
    """The model of a deepseek_v4 (or deepseek_ref) file."""
    layers = stack(_kinds(config), lambda kind: _layer(config, kind))
    config.ignore("mlp_layer_types", "num_hash_layers", "qk_rope_head_dim", "qk_nope_head_dim")
    config.ignore("hc_sinkhorn_iters", "hc_eps", "expert_dtype", "num_key_value_heads")
    config.ignore("compress_rope_theta", "compress_rope_parameters")
    tables, output = embeddings_and_head(config, table="embed", final_norm="norm", output="head")
    copies = config.size("hc_mult")
    collapse = _hyper(config, "hc_head", copies, scales=1)
    mtp, drafted = _mtp(config)
    body = Body(
        layers,
        tables,
        collapse + output,
        mtp,
        tuple(one.experts for one in drafted if one.experts),
        hidden_copies=copies,
    )
    return architecture(config, body)


def _kinds(config: Config) -> tuple[str, ...]:
    """Attention by layer: `layer_types`, else `compress_ratios` (entries past the end are drafts)."""
    count = config.layers
    given = config.names("layer_types", None, RATIO_KINDS.values())
    ratios = config.wholes("compress_ratios")
    if given is None and ratios is not None:
        unknown = [ratio for ratio in ratios if ratio not in RATIO_KINDS]
        if unknown:
            raise config.error("compress_ratios", f"has {unknown[0]}; each must be 0, 4 or 128")
        given = tuple(RATIO_KINDS[ratio] for ratio in ratios)
    if given is None:
        late = (SPARSE if i % 2 else HEAVY for i in range(max(count - 2, 0)))
        given = (HEAVY,) * min(count, 2) + tuple(late)
    if len(given) < count:
        raise config.error("compress_ratios", f"has {len(given)} entries for {count} layers")
    return given[:count]


def _rate(config: Config, kind: str) -> int:
    """Tokens behind one compressed entry."""
    field, default = RATES[kind]
    rates = config.raw("compress_rates", None)
    known = rates.get(kind, default) if isinstance(rates, dict) else default
    rate = config.raw(field, known)
    if isinstance(rate, bool) or not isinstance(rate, int) or rate < 1:
        raise config.error(field, "must be a positive whole number")
    return rate


def _layer(config: Config, kind: str) -> Layer:
    hidden, copies = config.size("hidden_size"), config.size("hc_mult")
    count, width = config.size("num_experts"), config.size("moe_intermediate_size")
    if config.size("intermediate_size", width) != width:
        raise config.error("intermediate_size", f"must equal moe_intermediate_size = {width}")
    bias = config.flag("mlp_bias")
    moe = parts.Moe(
        hidden, count, top_k(config, count), width, router="ffn.gate", experts="ffn.experts"
    )
    # One shared expert of the routed width is built, whatever n_shared_experts says.
    config.ignore("n_shared_experts", "first_k_dense_replace")
    shared = parts.Mlp(
        hidden,
        width,
        bias=bias,
        prefix="ffn.shared_experts",
        part="shared_experts",
        ops=("shared_gate_up", "shared_down"),
    )
    weights = (
        _attention(config),
        _compressor(config, kind),
        moe.weights(),
        shared.weights(),
        parts.norms(("attn_norm", "ffn_norm"), hidden),
        _hyper(config, "hc_attn", copies, scales=3),
        _hyper(config, "hc_ffn", copies, scales=3),
    )
    made = layer(f"{kind}+moe", *weights, cores=_cores(config, kind), experts=moe.routed())
    # Each of the two hyper-connections mixes the residual streams: copies x copies times hidden.
    return replace(made, mixing_flops=2 * 2 * copies * copies * hidden)


def _attention(config: Config) -> tuple[Weight, ...]:
    """Low-rank queries, one key-value head, and an output projection in `o_groups` blocks."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    dim, rank = config.size("head_dim"), config.size("q_lora_rank")
    groups, output_rank = config.size("o_groups"), config.size("o_lora_rank")
    if heads * dim % groups:
        raise config.error("o_groups", f"= {groups} must divide heads x head_dim = {heads * dim}")
    columns = heads * dim // groups

    def matrix(path: str, op: str, rows: int, columns: int, pieces: int = 1) -> Weight:
        return Weight(f"attn.{path}", op, "attention", rows, columns, pieces=pieces)

    return (
        matrix("fused_wqa_wkv", "q_a_kv_proj", rank, hidden),
        matrix("fused_wqa_wkv", "q_a_kv_proj", dim, hidden),
        matrix("wq_b", "q_b_proj", heads * dim, rank, heads),
        matrix("wo_a", "o_a_proj", groups * output_rank, columns, groups),
        matrix("wo_b", "o_b_proj", hidden, groups * output_rank, groups),
        *norm("attn.q_norm", rank),
        *norm("attn.kv_norm", dim),
        vector("attn.attn_sink", heads, "attention", op="attention_sinks"),
    )


def _compressor(config: Config, kind: str) -> tuple[Weight, ...]:
    """What makes compressed entries, and the indexer that picks among the finer ones."""
    if kind == SLIDING:
        return ()
    dim, rate = config.size("head_dim"), _rate(config, kind)
    series = 2 if kind == SPARSE else 1
    made = _pooling(config, "attn.compressor", dim, rate, series)
    if kind == HEAVY:
        return made
    hidden, heads = config.size("hidden_size"), config.size("index_n_heads")
    index_dim, rank = config.size("index_head_dim"), config.size("q_lora_rank")
    return (
        *made,
        *_pooling(config, "attn.indexer.compressor", index_dim, rate, series, indexer=True),
        Weight("attn.indexer.wq_b", "indexer_q_proj", "indexer", heads * index_dim, rank),
        Weight("attn.indexer.weights_proj", "indexer_proj", "indexer", heads, hidden),
    )


def _pooling(
    config: Config, at: str, dim: int, rate: int, series: int, *, indexer: bool = False
) -> tuple[Weight, ...]:
    """Values and gates of the softmax that merges `rate` tokens; overlapping windows need 2 series."""
    hidden, rows = config.size("hidden_size"), series * dim
    part, op = ("indexer", "indexer_proj") if indexer else ("attention", "compressor_proj")
    return (
        Weight(f"{at}.wkv", op, part, rows, hidden),  # type: ignore[arg-type]
        Weight(f"{at}.wgate", op, part, rows, hidden),  # type: ignore[arg-type]
        Weight(f"{at}.ape", "compressor", "attention", rate, rows, use="vector", format=FP32),
        *norm(f"{at}.norm", dim),
    )


def _cores(config: Config, kind: str) -> tuple[AttentionCore, ...]:
    heads, dim = config.size("num_attention_heads"), config.size("head_dim")
    window = AttentionCore(
        heads, 1, dim, dim, window=config.size("sliding_window"), value_is_key=True
    )
    if kind == SLIDING:
        return (window,)
    far = replace(window, window=None, compression=_rate(config, kind))
    if kind == HEAVY:
        return window, far
    index_dim = config.size("index_head_dim")
    indexer = Indexer(config.size("index_n_heads"), index_dim, index_dim, weighs_heads=False)
    return window, replace(far, selected=config.size("index_topk"), indexer=indexer)


def _hyper(config: Config, at: str, copies: int, *, scales: int) -> tuple[Weight, ...]:
    """What weighs the residual streams against each other, in float32."""
    rows = copies if scales == 1 else copies * (2 + copies)
    columns = copies * config.size("hidden_size")
    return (
        Weight(f"{at}_fn", "hyper_connection", "other", rows, columns, format=FP32),
        replace(vector(f"{at}_base", rows, "other", op="hyper_connection"), format=FP32),
        replace(vector(f"{at}_scale", scales, "other", op="hyper_connection"), format=FP32),
    )


def _mtp(config: Config) -> tuple[tuple[Weight, ...], tuple[Layer, ...]]:
    """Draft layers: windowed attention over the merged embedding and hidden state."""
    count, hidden = config.count("num_nextn_predict_layers"), config.size("hidden_size")
    made = (_layer(config, SLIDING),) * count
    merge = (
        Weight("mtp.e_proj", "mtp_merge", "other", hidden, hidden),
        Weight("mtp.h_proj", "mtp_merge", "other", hidden, hidden),
        *parts.norms(("mtp.enorm", "mtp.hnorm", "mtp.norm"), hidden),
        *_hyper(config, "mtp.hc_head", config.size("hc_mult"), scales=1),
    )
    weights = tuple(weight for one in made for weight in (*merge, *one.weights))
    return weights, made


FAMILIES: Final = (
    Family(
        ("deepseek_v4", "deepseek_ref"),
        ("DeepseekV4",),
        build,
        defaults_of="deepseek_v4",
        layers_at="layers",
    ),
)
