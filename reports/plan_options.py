"""Options of `roofcast plan`, by what they describe: traffic, objectives, prices, what to try."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ModelOrScenario = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|SCENARIO.toml",
        help="A model, or a scenario kept earlier.",
        show_default=False,
    ),
]

# Traffic

Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device", "-d", metavar="NAME", help="A device to consider; repeatable, or a,b."
    ),
]
Rate = Annotated[float | None, typer.Option(metavar="R", help="Requests per second.")]
Users = Annotated[
    float | None, typer.Option(metavar="N", help="Requests in flight instead of a rate.")
]
Prompt = Annotated[
    str | None, typer.Option("--input", metavar="TOKENS", help="Prompt length, see below.")
]
Reply = Annotated[
    str | None, typer.Option("--output", metavar="TOKENS", help="Reply length, see below.")
]
Trace = Annotated[
    str | None, typer.Option(metavar="CSV", help="Rate and lengths from a trace instead.")
]
Hits = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Share of prompt tokens found in a prefix cache."),
]

# Objectives

Ttft = Annotated[
    str | None, typer.Option(metavar="TIME", help="Limit on the time to the first token: 1s.")
]
Tpot = Annotated[
    str | None, typer.Option(metavar="TIME", help="Limit on the time per output token: 50ms.")
]
Percentile = Annotated[
    float | None,
    typer.Option(metavar="P", help="Requests that the limits hold for, in per cent."),
]

# Prices

Price = Annotated[
    list[str] | None,
    typer.Option(metavar="DEVICE=USD", help="Rent an hour, or a purchase: DEVICE=30000/4y."),
]
Kwh = Annotated[
    float | None, typer.Option(metavar="USD", help="Electricity of bought devices, per kWh.")
]

# What to try

Tensor = Annotated[str | None, typer.Option(metavar="LIST", help="Tensor-parallel sizes to try.")]
Pipeline = Annotated[str | None, typer.Option(metavar="LIST", help="Pipeline stages to try.")]
Expert = Annotated[str | None, typer.Option(metavar="LIST", help="Expert-parallel sizes to try.")]
Data = Annotated[str | None, typer.Option(metavar="LIST", help="Attention groups to try.")]
WeightDtypes = Annotated[
    str | None,
    typer.Option(
        "--weight-dtype", "-w", metavar="LIST", help="Weight formats to try: checkpoint,fp8."
    ),
]
KvDtypes = Annotated[
    str | None,
    typer.Option("--kv-dtype", "-k", metavar="LIST", help="Cache dtypes to try: checkpoint,fp8."),
]
Replica = Annotated[int | None, typer.Option(metavar="N", help="Most devices of one replica (8).")]
Network = Annotated[
    float | None,
    typer.Option(metavar="GB_PER_S", help="Network between nodes, per device and direction."),
]
Speculate = Annotated[
    int | None, typer.Option(metavar="K", help="Draft K tokens a step and verify them.")
]
Acceptance = Annotated[
    float | None, typer.Option(metavar="A", help="Chance that a drafted token is accepted.")
]
Draft = Annotated[
    str | None, typer.Option(metavar="WHO", help="mtp, ngram, or a small model. Default: mtp.")
]
Offload = Annotated[
    float | None, typer.Option(metavar="SHARE", help="Routed experts kept in host memory.")
]
Disaggregate = Annotated[
    bool, typer.Option("--disaggregate", help="Also try prompts on devices of their own.")
]
TokenBudget = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens of one step (chunked prefill).")
]

# What to show

Rank = Annotated[
    Literal["cost", "throughput", "latency"] | None,
    typer.Option(help="What to rank by (cost)."),
]
Every = Annotated[
    bool, typer.Option("--every", help="List every deployment, not the best of each device.")
]
Top = Annotated[int, typer.Option(metavar="N", help="Rows to print.")]
Keep = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the question as a scenario file.")
]
Against = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Compare with another scenario file.")
]
