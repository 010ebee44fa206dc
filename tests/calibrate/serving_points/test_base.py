"""Kernels that fits of serving points start from: whose tables speak for an engine on a device."""

from roofcast.calibrate.serving_points.base import TABLED, base_profile
from roofcast.hardware.catalog import find


def fixed_s(device: str, engine: str, stored: str) -> float:
    """The fixed time of experts in a format, as `engine` runs them on a device."""
    profile = base_profile(find(device), engine, engine)
    return profile.parameters[f"experts.fixed_s.{stored}"].value


def test_collectives_reach_what_the_best_algorithm_does():
    """Whichever engine asks, large messages go by the widest all-reduce measured on the device."""
    name = "collective.bandwidth_efficiency.all_reduce.8"
    device = find("h100-sxm-80gb")
    found = {e: base_profile(device, e, e).parameters[name].value for e in TABLED}
    assert len(set(found.values())) == 1
    assert 0.3 < found["vllm"] <= 1.0


def test_tensorrt_llm_runs_its_own_experts_on_blackwell():
    """Its tables time CUTLASS and DeepGEMM there; SGLang's time the kernels that its runs ask for."""
    for device in ("b200-sxm", "b300-sxm", "gb200"):
        for stored in ("nvfp4", "fp8_block"):
            assert fixed_s(device, "trtllm", stored) == fixed_s(device, "sglang", stored)
    assert fixed_s("b200-sxm", "vllm", "nvfp4") != fixed_s("b200-sxm", "sglang", "nvfp4")


def test_elsewhere_each_engine_has_its_own_experts():
    """Hopper and Blackwell with GDDR7 lack those kernels: TensorRT-LLM runs CUTLASS, SGLang Triton."""
    assert fixed_s("h200-sxm", "trtllm", "fp8_block") != fixed_s("h200-sxm", "sglang", "fp8_block")
    card = "rtx-pro-6000-blackwell-server"
    assert fixed_s(card, "trtllm", "nvfp4") != fixed_s(card, "sglang", "nvfp4")
