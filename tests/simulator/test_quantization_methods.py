"""Each method's block, as published checkpoints write it: bits, scales, exclusions, cache, compute."""

import pytest

from roofcast.hardware.errors import InputError, UnknownNameError
from roofcast.simulator.quantization import quantization

Q, UP, GATE, EXPERT = (
    "model.layers.3.self_attn.q_proj",
    "model.layers.3.mlp.up_proj",
    "model.layers.3.mlp.gate",
    "model.layers.3.mlp.experts.*.up_proj",
)


def read(block, side=None, **config):
    return quantization({"quantization_config": block, **config}, side)


def stored(read_, path):
    """(name, bits an element, compute dtype) of a module; None where it is left alone."""
    made = read_.format_for(path)
    return made and (made.name, made.bits_per_element, made.compute)


FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}


class TestFp8:
    def test_deepseek_v3_names_no_exclusions_and_keeps_head_tables_and_router(self):
        found = read(FP8)
        made = found.format_for(Q)
        assert (made.name, made.bits, made.scale_bits) == ("fp8_block", 8, 32)
        assert (made.block_rows, made.block_columns, made.compute) == (128, 128, "fp8")
        assert stored(found, EXPERT) == stored(found, UP) == stored(found, Q)
        for kept in ("lm_head", GATE, "model.layers.61.eh_proj", "model.layers.3.input_layernorm"):
            assert found.format_for(kept, "vector" if "norm" in kept else "matmul") is None
        assert found.format_for("model.embed_tokens", "lookup") is None
        assert found.activations == "dynamic"

    def test_the_indexers_weighing_projection_stays_bf16(self):
        # DeepSeek-V3.2, inference/model.py: weights_proj is not quantised, wk and wq_b are.
        found = read(FP8)
        assert found.format_for("model.layers.3.self_attn.indexer.weights_proj") is None
        assert stored(found, "model.layers.3.self_attn.indexer.wk")[0] == "fp8_block"

    def test_a_null_block_is_one_scale_a_tensor(self):
        found = read(FP8 | {"weight_block_size": None, "activation_scheme": "static"})  # Devstral-2
        made = found.format_for(Q)
        assert (made.name, made.bytes(256, 256)) == ("fp8", 256 * 256 + 8)
        assert found.activations == "static"

    def test_listed_modules_are_left_alone_under_either_key(self):
        for key in ("modules_to_not_convert", "ignored_layers"):
            found = read(FP8 | {key: ["lm_head", Q]})
            assert found.format_for(Q) is None
            assert found.format_for("model.layers.4.self_attn.q_proj") is not None

    @pytest.mark.parametrize("home", ["block", "config"])
    def test_deepseek_v4_experts_are_fp4_under_an_fp8_method(self, home):
        v4 = FP8 | {"scale_fmt": "ue8m0"}
        extra = {"model_type": "deepseek_v4"}
        (v4 if home == "block" else extra)["expert_dtype"] = "fp4"
        found = read(v4, **extra)
        assert stored(found, "layers.3.ffn.experts.*.w1") == ("mxfp4_w4a8", 4.25, "fp8")
        attention = found.format_for("layers.3.attn.wq_b")
        assert (attention.name, attention.scale_bits) == ("fp8_block", 8)
        assert stored(found, "layers.3.ffn.shared_experts.w1")[0] == "fp8_block"
        for kept in ("attn.compressor.wkv", "attn.compressor.wgate", "ffn.gate", "hc_attn_fn"):
            assert found.format_for(f"layers.3.{kept}") is None

    def test_nvidias_v4_overlays_nvfp4_experts(self):
        layers = {
            f"layers.{i}.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16} for i in (0, 1)
        }
        found = read(
            FP8 | {"moe_quant_algo": "NVFP4", "quantized_layers": layers, "ignore": ["*.attn.*"]},
            model_type="deepseek_v4",
            expert_dtype="fp4",
        )
        assert stored(found, "layers.1.ffn.experts.*.w1") == ("nvfp4", 4.5, "fp4")
        assert stored(found, "layers.1.attn.wq_b")[0] == "fp8_block"  # `ignore` is NVFP4's

    def test_mxfp8_is_a_row_of_32(self):
        found = read({"quant_method": "mxfp8", "weight_block_size": [1, 32], "scale_fmt": "ue8m0"})
        assert stored(found, Q) == ("mxfp8", 8.25, "fp8")

    def test_fbgemm_scales_every_row(self):
        found = read({"quant_method": "fbgemm_fp8", "modules_to_not_convert": [Q]})
        assert found.format_for(UP).bytes(10, 100) == 1000 + 40
        assert found.format_for(Q) is None


class TestModelOpt:
    def test_nvfp4_in_config_json(self):
        found = read(
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": ["lm_head", "model.layers.0*", "model.layers.3.self_attn*"],
                "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16}}},
            }
        )
        assert stored(found, UP) == ("nvfp4", 4.5, "fp4")
        assert found.format_for(Q) is None
        assert found.format_for("model.layers.0.mlp.up_proj") is None
        assert found.format_for(GATE) is None
        assert (found.kv_dtype, found.activations) == ("fp8", "dynamic")

    def test_the_side_file_alone_tells(self):
        side = {
            "producer": {"name": "modelopt"},
            "quantization": {
                "quant_algo": "FP8",
                "kv_cache_quant_algo": "FP8",
                "exclude_modules": ["lm_head"],
            },
        }
        found = quantization({"model_type": "llama"}, side)
        assert stored(found, Q) == ("fp8", 8.0, "fp8")
        assert (found.kv_dtype, found.activations) == ("fp8", "static")
        assert found.format_for("lm_head") is None

    def test_the_config_counts_where_both_speak_and_the_side_file_fills_in_the_cache(self):
        side = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
        found = read({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []}, side)
        assert stored(found, Q)[0] == "fp8"
        assert found.kv_dtype == "fp8"

    def test_no_method_but_an_algorithm_and_a_cache_named_by_a_string(self):
        found = read({"quant_algo": "FP8", "kv_cache_scheme": "FP8", "ignore": ["lm_head"]})
        assert (found.method, found.kv_dtype) == ("modelopt", "fp8")  # Qwen3-32B-FP8-Static

    def test_mixed_precision_lists_what_is_quantised_head_included(self):
        w4 = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
        found = read(
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "ignore": ["mtp*"],
                "quantized_layers": {
                    "lm_head": w4,
                    "model.language_model.layers.3.mlp.experts": w4,
                    "model.language_model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
                },
            }
        )
        assert stored(found, "lm_head") == ("nvfp4_w4a16", 4.5, "bf16")
        assert stored(found, EXPERT) == ("nvfp4_w4a16", 4.5, "bf16")
        assert stored(found, Q) == ("fp8", 8.0, "fp8")
        assert found.format_for(UP) is None

    @pytest.mark.parametrize(
        ("algorithm", "expected"),
        [
            ("MXFP8", ("mxfp8", 8.25, "fp8")),
            ("FP8_PER_CHANNEL_PER_TOKEN", ("fp8", 8.0, "fp8")),
            ("fp8_pb_wo", ("fp8_block", 8 + 32 / 128**2, "fp8")),
            ("W4A16_AWQ", ("int4", 4.125, "bf16")),
            ("W4A8_AWQ", ("int4_w4a8", 4.125, "fp8")),
            ("W8A8_SQ_PER_CHANNEL", ("int8", 8.0, "int8")),
        ],
    )
    def test_other_algorithms(self, algorithm, expected):
        assert stored(read({"quant_method": "modelopt", "quant_algo": algorithm}), Q) == expected

    def test_an_unknown_algorithm_names_those_known(self):
        with pytest.raises(UnknownNameError, match=r"quant_algo 'NVFP5'; did you mean 'NVFP4'"):
            read({"quant_method": "modelopt", "quant_algo": "NVFP5"})


def group(weights, inputs=None, targets=("Linear",), **fields):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"targets": list(targets), "weights": weights, "input_activations": inputs}
        },
        **fields,
    }


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


class TestCompressedTensors:
    def test_kimi_k2_5_quantises_only_the_routed_experts_and_says_so_inside_text_config(self):
        block = group(
            INT4,
            format="pack-quantized",
            ignore=[
                "lm_head",
                "re:.*self_attn.*",
                "re:.*shared_experts.*",
                r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
            ],
        )
        found = quantization(
            {"model_type": "kimi_k25", "text_config": {"quantization_config": block}}
        )
        assert stored(found, EXPERT) == ("int4", 4.5, "bf16")
        for kept in (Q, UP, GATE, "lm_head", "model.layers.3.mlp.shared_experts.up_proj"):
            assert found.format_for(kept) is None
        assert found.activations == "none"

    def test_kimi_k3_mxfp4(self):
        weights = {
            "num_bits": 4,
            "type": "float",
            "strategy": "group",
            "group_size": 32,
            "scale_dtype": "torch.uint8",
        }
        found = read(group(weights, format="mxfp4-pack-quantized", ignore=["re:.*self_attn.*"]))
        assert stored(found, "model.layers.3.block_sparse_moe.experts.*.w1") == (
            "mxfp4",
            4.25,
            "bf16",
        )

    def test_fp8_with_dynamic_tokens(self):
        found = read(
            group(
                {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"},
                format="float-quantized",
                ignore=["lm_head"],
            )
        )
        assert stored(found, Q) == ("fp8", 8.0, "fp8")
        assert found.format_for(Q).bytes(10, 100) == 1000 + 20
        assert found.activations == "dynamic"

    def test_int8_in_and_out_of_activations(self):
        weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
        inputs = {"num_bits": 8, "type": "int", "dynamic": True}
        assert stored(read(group(weights, inputs)), Q) == ("int8", 8.0, "int8")
        assert stored(read(group(weights)), Q) == ("int8_w8a16", 8.0, "bf16")

    def test_asymmetric_weights_carry_packed_zero_points(self):
        found = read(group(INT4 | {"symmetric": False}, format="pack-quantized"))
        assert found.format_for(Q).bits_per_element == 4 + 20 / 32

    def test_groups_by_name_blocks_and_nvfp4_in_one_file(self):
        block = {
            "quant_method": "compressed-tensors",
            "format": "mixed-precision",
            "ignore": [],
            "config_groups": {
                "group_0": {
                    "format": "float-quantized",
                    "targets": ["re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$"],
                    "weights": {
                        "num_bits": 8,
                        "type": "float",
                        "strategy": "block",
                        "block_structure": [128, 128],
                    },
                    "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
                },
                "group_1": {
                    "format": "nvfp4-pack-quantized",
                    "targets": ["re:.*ffn.*(gate|up|down)_proj$"],
                    "weights": {
                        "num_bits": 4,
                        "type": "float",
                        "strategy": "tensor_group",
                        "group_size": 16,
                        "scale_dtype": "torch.float8_e4m3fn",
                    },
                    "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local"},
                },
            },
        }
        found = read(block)
        assert stored(found, "layers.3.attn.wo_a")[0] == "fp8_block"
        assert stored(found, "layers.3.ffn.experts.*.gate_proj") == ("nvfp4", 4.5, "fp4")
        assert found.format_for("layers.3.attn.compressor.wkv") is None
        assert found.format_for("head") is None

    def test_the_head_is_quantised_where_nothing_excludes_it(self):
        # llm-compressor takes every Linear it is not told to ignore.
        assert stored(read(group(INT4)), "lm_head")[0] == "int4"
        assert read(group(INT4, ignore=["lm_head"])).format_for("lm_head") is None

    def test_sparse_storage_is_refused(self):
        with pytest.raises(InputError, match="sparse"):
            read(group(INT4, sparsity_config={"format": "sparse-24-bitmask"}))


class TestWeightOnlyIntegers:
    @pytest.mark.parametrize(
        "keys", [{"bits": 4, "group_size": 128}, {"w_bit": 4, "q_group_size": 128}]
    )
    def test_awq_under_new_and_old_keys(self, keys):
        found = read({"quant_method": "awq", "zero_point": True, "version": "gemm", **keys})
        assert stored(found, Q) == ("int4", 4 + 20 / 128, "bf16")
        assert found.format_for("lm_head") is None

    def test_awq_without_a_method_is_known_by_its_old_keys(self):
        assert read({"w_bit": 4, "q_group_size": 128}).method == "awq"

    def test_gptq_per_column_group(self):
        found = read({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True})
        made = found.format_for(Q)
        assert made.bytes(10, 64) == 640 + 10 * 3 + 64 * 4  # f16 scale, 8-bit zero, int32 g_idx

    def test_gptq_dynamic_rules_leave_out_and_override(self):
        found = read(
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 128,
                "dynamic": {
                    r"-:.*shared_expert.*": {},
                    r"+:.*\.down_proj.*": {"bits": 8, "group_size": 32},
                },
            }
        )
        assert found.format_for("model.layers.3.mlp.shared_expert.up_proj") is None
        assert found.format_for("model.layers.3.mlp.down_proj").bits == 8
        assert found.format_for(UP).bits == 4

    def test_gptq_of_chosen_modules_only(self):
        found = read(
            {
                "quant_method": "gptq",
                "bits": 4,
                "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.up_proj"]],
            }
        )
        assert found.format_for(Q) is not None
        assert found.format_for("model.layers.3.self_attn.o_proj") is None

    def test_auto_round_exceptions(self):
        found = read(
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 128,
                "sym": True,
                "packing_format": "auto_round:auto_gptq",
                "extra_config": {Q: {"bits": 16}, UP: {"bits": 8}},
            }
        )
        assert found.format_for(Q) is None
        assert found.format_for(UP).bits == 8
        assert found.format_for("model.layers.3.self_attn.k_proj").bits == 4

    def test_bitsandbytes_by_flags_alone(self):
        flags = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
        double = read(flags | {"bnb_4bit_use_double_quant": True})
        assert stored(double, Q)[1:] == (pytest.approx(4.127, abs=1e-3), "fp32")
        plain = read(flags | {"bnb_4bit_compute_dtype": "bfloat16"})
        assert stored(plain, Q) == ("nf4", 4.5, "bf16")
        assert stored(read({"load_in_8bit": True}), Q) == ("int8", 8.0, "int8")
        assert plain.format_for("lm_head") is None

    def test_hqq(self):
        found = read(
            {
                "quant_method": "hqq",
                "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
                "skip_modules": ["lm_head", "self_attn.q_proj"],
            }
        )
        assert stored(found, UP) == ("int4", 4.5, "bf16")
        assert found.format_for(Q) is None

    def test_bitnet_packs_four_weights_in_a_byte(self):
        found = read({"quant_method": "bitnet", "linear_class": "autobitlinear"})
        assert found.format_for(Q).bytes(64, 64) == 64 * 16 + 2
        assert read({"quant_method": "bitnet", "quantization_mode": "online"}).format_for(Q) is None


class TestOthers:
    def test_gpt_oss_is_mxfp4_in_its_experts_alone(self):
        found = read(
            {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
            }
        )
        assert stored(found, "model.layers.3.mlp.experts.*.gate_up_proj") == ("mxfp4", 4.25, "bf16")
        for kept in (Q, "model.layers.3.mlp.router", "lm_head"):
            assert found.format_for(kept) is None

    def test_torchao_int4(self):
        quant_type = {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}}
        found = read({"quant_method": "torchao", "quant_type": quant_type})
        assert stored(found, Q) == ("int4", 5.0, "bf16")  # a bf16 scale and zero per 32
        legacy = {"quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 128}}
        assert stored(read({"quant_method": "torchao", **legacy}), Q)[1] == 4.25

    def test_quark_mxfp4_and_its_cache(self):
        mx = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
        fp8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
        found = read(
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": mx, "input_tensors": mx | {"is_dynamic": True}},
                "layer_quant_config": {"*k_proj": {"weight": mx, "output_tensors": fp8}},
                "exclude": ["lm_head", "re:.*self_attn.o_proj"],
                "export": {"kv_cache_group": ["*k_proj"]},
            }
        )
        assert stored(found, EXPERT) == ("mxfp4_w4a4", 4.25, "fp4")
        assert found.format_for("model.layers.3.self_attn.o_proj") is None
        assert (found.kv_dtype, found.activations) == ("fp8", "dynamic")


class TestRefusals:
    def test_an_unknown_method_names_those_supported(self):
        with pytest.raises(UnknownNameError, match=r"'aqlm'.*supported: fp8.*compressed-tensors"):
            read({"quant_method": "aqlm"})

    def test_a_block_without_a_method(self):
        with pytest.raises(InputError, match="quant_method is missing"):
            read({"bits": 4})

    def test_no_block_is_no_quantisation(self):
        found = quantization({"model_type": "llama"})
        assert found.method == "none"
        assert found.format_for(Q) is None

    @pytest.mark.parametrize(
        "block",
        [
            {"quant_method": "gptq", "bits": 5.5},
            {"quant_method": "gptq", "bits": 7},
            {"quant_method": "gptq"},
            {"quant_method": "gptq", "bits": 4, "dynamic": {"(": {}}},
            {"quant_method": "fp8", "weight_block_size": [128]},
            {"quant_method": "fp8", "weight_block_size": "128x128"},
            {"quant_method": "fp8", "modules_to_not_convert": [1]},
            {"quant_method": "fp8", "expert_dtype": "fp3"},
            {"quant_method": 8},
            {"quant_method": "modelopt"},
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP9"},
            {"quant_method": "compressed-tensors", "config_groups": []},
            {"quant_method": "compressed-tensors", "config_groups": {"g": 1}},
            {"quant_method": "bitsandbytes"},
            {"quant_method": "torchao", "quant_type": "float6_weights"},
            ["fp8"],
        ],
    )
    def test_a_senseless_block_is_one_clear_line(self, block):
        with pytest.raises(InputError) as caught:
            read(block)
        assert "\n" not in str(caught.value)
        assert "quantization_config" in str(caught.value)
