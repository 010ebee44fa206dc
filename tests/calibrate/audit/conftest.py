"""Llama-3.1-8B in bf16 on an H100, with the ideal profile and with one that knows overheads."""

import pytest

from roofcast.calibrate.audit.audit import Audited, audit
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.hardware.profile import Band, Parameter, Profile

GIVEN = Conditions(model="llama-3.1-8b", device="h100-sxm", kv_dtype="bf16", tp=1)

# Every parameter but the embedding table and the norms is read once a step.
WEIGHT_BYTES = 2 * (8_030_261_248 - 128_256 * 4096 - 65 * 4096)
KV_BYTES = 131_072  # 32 layers x 2 x 8 heads x 128 x 2 bytes, a token
BANDWIDTH = 3.35e12


def parameter(value: float, unit: str = "1") -> Parameter:
    return Parameter(value, unit, "fitted", 0.01)


CALIBRATED = Profile(
    name="h100-test",
    device="h100-sxm-80gb",
    engine="vllm",
    origin="made for a test",
    parameters={
        "gemm.bandwidth_efficiency": parameter(0.8),
        "attention.bandwidth_efficiency": parameter(0.8),
        "host.step_s": parameter(0.4e-3, "s"),
    },
    band=Band(-0.1, 0.1, "made for a test"),
)


def floor_s(batch: float, context: float) -> float:
    """A memory-bound step by hand: weights, and the cache read and appended to."""
    return (WEIGHT_BYTES + batch * (context + 2) * KV_BYTES) / BANDWIDTH


def record(**quantities: float | str | tuple) -> Record:
    """A record of a static batch of 8 with a prompt of 1000 and a reply of 200, unless said."""
    numbers = {"batch": 8.0, "input_tokens": 1000.0, "output_tokens": 200.0, **quantities}
    words = {k: numbers.pop(k) for k in ("batch_kind", "flags", "file", "where") if k in numbers}
    fields = {k: Quantity(v, k) for k, v in numbers.items() if v is not None}
    return Record(
        **{"file": "run.json", "where": "", "format": "test", "batch_kind": "static", **words},
        **fields,
    )


@pytest.fixture
def judged():
    """Audit one record under the ideal profile, or another."""

    def run(profile="ideal", given=GIVEN, **quantities) -> Audited:
        (found,) = audit([record(**quantities)], given, profile)
        return found

    return run
