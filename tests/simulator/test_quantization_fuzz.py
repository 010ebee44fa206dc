"""Whatever stands in a quantisation block, reading it ends in a Quantization or one clear line."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofcast.hardware.errors import InputError
from roofcast.simulator.quantization import quantization
from roofcast.simulator.quantization.read import READERS

KEYS = (
    "bits", "w_bit", "group_size", "q_group_size", "weight_block_size", "quant_algo", "ignore",
    "kv_cache_scheme", "kv_cache_quant_algo", "exclude_modules", "quantized_layers", "quantization",
    "config_groups", "format", "modules_to_not_convert", "ignored_layers", "activation_scheme",
    "scale_fmt", "expert_dtype", "zero_point", "sym", "dynamic", "lm_head", "desc_act",
    "modules_in_block_to_quantize", "extra_config", "data_type", "packing_format", "load_in_4bit",
    "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "llm_int8_skip_modules",
    "quant_config", "skip_modules", "nbits", "quantization_mode", "quant_type", "quant_type_kwargs",
    "global_quant_config", "layer_quant_config", "exclude", "export", "sparsity_config", "targets",
    "weights", "input_activations", "num_bits", "type", "strategy", "block_structure", "symmetric",
    "scale_dtype", "actorder", "_type", "_data", "default", "weight", "input_tensors", "dtype",
    "qscheme", "scale_format", "is_dynamic", "modules_to_convert", "include_input_output_embeddings",
)  # fmt: skip
WORDS = (
    "fp8", "FP8", "NVFP4", "MIXED_PRECISION", "int", "float", "group", "tensor", "channel", "block",
    "Linear", "re:.*self_attn.*", "re:(", "lm_head", "model.layers.0*", "static", "ue8m0", "fp4",
    "nf4", "per_group", "Int4WeightOnlyConfig", "gate", "", "*", "e8m0", "torch.uint8",
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 200), st.sampled_from(WORDS), st.floats(-1, 9)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from(KEYS), st.sampled_from(WORDS)), inner, max_size=5
        ),
    ),
    max_leaves=20,
)
BLOCKS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8)
PATHS = ("model.layers.3.mlp.experts.*.up_proj", "model.layers.3.self_attn.q_proj", "lm_head")


def outcome(block, side):
    """The formats of some modules, or the message of a refusal."""
    try:
        found = quantization({"quantization_config": block}, side)
        return [found.format_for(path) for path in PATHS]
    except InputError as error:
        return str(error)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(method=st.sampled_from((*READERS, None, "aqlm", 7)), block=BLOCKS, side=st.none() | BLOCKS)
def test_any_block_is_read_or_refused_in_one_line(method, block, side):
    found = outcome(block if method is None else block | {"quant_method": method}, side)
    if isinstance(found, str):
        assert found
        assert "\n" not in found
        return
    for made in found:
        assert made is None or 0 < made.bits_per_element <= 64
        assert made is None or made.bytes(256, 512) > 0
