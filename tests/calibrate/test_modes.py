"""Steps of every mode stay at the context that was asked for, and count their cache right."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from roofcast.calibrate import modes  # noqa: E402 - torch may be missing
from roofcast.calibrate.decoder import Decoder  # noqa: E402
from roofcast.calibrate.kv_cache import Cache  # noqa: E402
from roofcast.calibrate.plan import Target, make_plan  # noqa: E402
from roofcast.simulator.models import from_fields  # noqa: E402
from tests.calibrate.simulated import TARGET  # noqa: E402

FIELDS = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 256,
}
CONTEXT = 20


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(from_fields(FIELDS, name="tiny"), "cpu", "fp32", packed=False)


def filled(decoder: Decoder) -> Cache:
    cache = decoder.new_cache(2, CONTEXT + modes.ROOM)
    decoder.fill(cache, CONTEXT)
    return cache


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_steps_stay_near_the_context(
    decoder: Decoder, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    cache = filled(decoder)
    step = modes.stepper(decoder, cache, CONTEXT, mode)
    seen = []
    for _ in range(2 * modes.ROOM + 1):
        step()
        seen.append(int(cache.position))
    assert min(seen) == CONTEXT + 1
    assert max(seen) == CONTEXT + modes.ROOM
    assert seen[modes.ROOM] == CONTEXT + 1


def test_a_mode_plans_the_kernels_it_runs() -> None:
    eager, compiled = (make_plan(TARGET, quick=True, mode=mode) for mode in ("eager", "compiled"))
    assert eager.identity != compiled.identity
    attention = [task for task in compiled.kernels if task.kind == "attention"]
    assert attention
    assert all(task.facts["masked"] for task in attention)
    assert all(t.facts["packed"] is False for t in compiled.kernels if t.kind == "gemm")
    assert all("masked" not in task.facts for task in eager.kernels)
    assert {task.facts["mode"] for task in compiled.runs} == {"compiled"}


def test_plans_are_the_same_for_the_same_seed_only() -> None:
    def identity(target: Target, seed: int) -> str:
        return make_plan(target, quick=False, seed=seed).identity

    assert identity(TARGET, 1) == identity(TARGET, 1)
    assert identity(TARGET, 1) != identity(TARGET, 2)
