"""What a quantisation config says, once read: which module is stored how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roofcast.simulator.architecture import Use
from roofcast.simulator.formats import Activations, WeightFormat
from roofcast.simulator.quantization.patterns import Patterns, globs


@dataclass(frozen=True, slots=True)
class Rule:
    """The modules `patterns` cover are stored in `format`; None: in the model's own dtype.

    `tables` says that looked-up tables are meant too, which no pattern means by accident.
    """

    patterns: Patterns
    format: WeightFormat | None
    tables: bool = False


# What no method quantises unless a config names it: the calibration tools leave these out by default
# (ModelOpt's default configs, llm-compressor recipes, transformers' get_keys_to_not_convert), and the
# checkpoints confirm it. DeepSeek-V3.2 and V4 keep the indexer's weights_proj and the compressors in
# bf16, V4 its hyper-connections in fp32 (transformers 5.24.0, modeling_deepseek_v4).
HEADS: Final = ("lm_head",)
KEPT: Final = (
    "embed_tokens",
    "gate",
    "shared_expert_gate",
    "shared_experts_gate",
    "weights_proj",
    "compressor.kv_proj",
    "compressor.gate_proj",
    "compressor.wgate",
    "indexer.kv_proj",
    "indexer.gate_proj",
    "attn_hc",
    "ffn_hc",
    "hc_head",
    "hc_attn_fn",
    "hc_ffn_fn",
    "hc_head_fn",
    "conv1d",
    "eh_proj",
    "mtp.fc",
    "shared_head",
)


def kept(*, heads: bool = True) -> Rule:
    """The rule that keeps routers, tables and, with `heads`, output heads in the model's dtype."""
    return Rule(globs(KEPT + HEADS if heads else KEPT), None)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a checkpoint stores its modules.

    The first of `rules` that covers a module decides; `default` is for matrices none covers.
    `kv_dtype` is the cache element type the checkpoint was calibrated for, if any.
    """

    method: str
    default: WeightFormat | None = None
    rules: tuple[Rule, ...] = ()
    kv_dtype: str | None = None
    warnings: tuple[str, ...] = ()

    def format_for(self, path: str, use: Use = "matmul") -> WeightFormat | None:
        """Storage of the module at a checkpoint path; None where it keeps the model's own dtype.

        Experts are named with ``*`` for their number: ``model.layers.3.mlp.experts.*.up_proj``.
        """
        if use not in ("matmul", "lookup"):
            return None
        for rule in self.rules:
            if rule.patterns.cover(path):
                return rule.format if use == "matmul" or rule.tables else None
        return self.default if use == "matmul" else None

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Every format some module may have."""
        found = [rule.format for rule in self.rules] + [self.default]
        return tuple(dict.fromkeys(entry for entry in found if entry))

    @property
    def activations(self) -> Activations:
        """How inputs of quantised matrices are quantised, the costliest kind any module needs."""
        kinds = {entry.activations for entry in self.formats}
        if "dynamic" in kinds:
            return "dynamic"
        return "static" if "static" in kinds else "none"


UNQUANTISED: Final = Quantization("none")
