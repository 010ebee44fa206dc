"""What a micro-benchmark moves and computes, counted by the simulator itself.

A benchmark of one kernel is costed as that operator of a model that has nothing else, so that the fit
and the forecast can never count differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roofcast.calibrate.samples import Measurement, Task
from roofcast.simulator.architecture import Architecture, AttentionCore, Experts, Layer, Weight
from roofcast.simulator.formats import find_format
from roofcast.simulator.operators import operators
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.workload import Array, Workload

ENGINE = "torch"
"""Whose kernel counts apply; see simulator/engines.toml."""


@dataclass(frozen=True)
class Counted:
    """Measurements of one shape as one operator whose arrays run over them."""

    operators: tuple[Operator, ...]
    measured_s: Array
    label: str


def count_all(measurements: Sequence[Measurement], over: tuple[str, ...]) -> list[Counted]:
    """Measurements grouped by the facts outside `over`; those inside vary along the arrays."""
    groups: dict[tuple[tuple[str, object], ...], list[Measurement]] = {}
    for entry in measurements:
        rest = tuple((name, fact) for name, fact in entry.facts.items() if name not in over)
        groups.setdefault(rest, []).append(entry)
    return [
        Counted(
            operators=operators_of([entry.task for entry in group]),
            measured_s=np.array([entry.median_s for entry in group]),
            label=" ".join(f"{name}={fact}" for name, fact in rest),
        )
        for rest, group in groups.items()
    ]


def operators_of(tasks: Sequence[Task]) -> tuple[Operator, ...]:
    """The operators of kernel tasks that differ only in rows, batch and context."""
    first = tasks[0]
    architecture, names = KERNELS[first.kind](first)
    dtype = first.text("dtype")
    work = Pass(
        architecture,
        Workload.decode(
            batch=[int(task.facts.get("rows", task.facts.get("batch", 1))) for task in tasks],
            context=[int(task.facts.get("context", 0)) for task in tasks],
        ),
        kv_dtype=dtype,
        activation_dtype=dtype,
        sampled=first.kind == "sampler",
        engine=ENGINE,
    )
    return tuple(operator for operator in operators(work) if operator.name in names)


def _model(layers: tuple[Layer, ...] = (), **sizes: int) -> Architecture:
    """A model of those layers alone; the head is there because only a head is sampled from."""
    head = Weight("lm_head", "lm_head", "lm_head", sizes.get("vocabulary", 1))
    return Architecture(
        name="kernel",
        family="kernel",
        hidden_size=sizes.get("hidden", 1),
        vocab_size=sizes.get("vocabulary", 1),
        layers=layers,
        embeddings=(),
        head=(head,),
    )


def _gemm(task: Task) -> tuple[Architecture, tuple[str, ...]]:
    format_ = find_format(task.text("dtype"))
    matrix = Weight(
        "matrix", "matrix", "other", task.whole("outputs"), task.whole("inputs"), format=format_
    )
    return _model((Layer("gemm", (matrix,)),)), ("matrix",)


def _attention(task: Task) -> tuple[Architecture, tuple[str, ...]]:
    window = task.whole("window") or None
    dim = task.whole("head_dim")
    core = AttentionCore(task.whole("query_heads"), task.whole("kv_heads"), dim, dim, window=window)
    return _model((Layer("attention", (), (core,)),)), ("attention", "window_attention")


def _experts(task: Task) -> tuple[Architecture, tuple[str, ...]]:
    format_ = find_format(task.text("dtype"))
    hidden, width = task.whole("hidden"), task.whole("width")
    weights = (
        Weight("gate_up", "experts_gate_up", "experts", 2 * width, hidden, format=format_),
        Weight("down", "experts_down", "experts", hidden, width, format=format_),
    )
    experts = Experts(task.whole("count"), task.whole("top_k"), weights)
    router = Weight("router", "router", "router", task.whole("count"), hidden, format=format_)
    layer = Layer("experts", (router,), experts=experts)
    names = ("router", "experts_gate_up", "experts_down", "activation")
    return _model((layer,), hidden=hidden), names


def _norm(task: Task) -> tuple[Architecture, tuple[str, ...]]:
    return _model((Layer("norm", ()),), hidden=task.whole("width")), ("norm_residual",)


def _activation(task: Task) -> tuple[Architecture, tuple[str, ...]]:
    pair = Weight("gate_up", "gate_up_proj", "mlp", 2 * task.whole("width"), 1)
    return _model((Layer("mlp", (pair,)),)), ("activation",)


def _sampler(task: Task) -> tuple[Architecture, tuple[str, ...]]:
    return _model(vocabulary=task.whole("vocabulary")), ("sampler",)


KERNELS: Mapping[str, Callable[[Task], tuple[Architecture, tuple[str, ...]]]] = {
    "gemm": _gemm,
    "attention": _attention,
    "experts": _experts,
    "norm": _norm,
    "activation": _activation,
    "sampler": _sampler,
}
"""Kinds of micro-benchmarks: each gives a model of that kernel alone and its operators' names."""
