"""Options of `roofcast simulate`, by what they describe: traffic, limits, objectives, files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Traffic

Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        "-t",
        metavar="FILE",
        help="CSV or JSON Lines: arrival_s, input_tokens, output_tokens "
        "[, priority, cached_tokens].",
        show_default=False,
    ),
]
Rate = Annotated[
    float | None, typer.Option("--rate", "-r", help="Requests a second.", show_default=False)
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        "-C",
        metavar="N",
        help="A closed loop: N requests in flight, the next comes when one is answered.",
        show_default=False,
    ),
]
Arrivals = Annotated[
    str | None,
    typer.Option(
        metavar="poisson|gamma|constant", help="How they come at that rate. Default: poisson."
    ),
]
Variation = Annotated[
    float | None,
    typer.Option("--cv", help="Coefficient of variation of the gaps between gamma arrivals (1)."),
]
Count = Annotated[
    int | None, typer.Option("--requests", "-n", metavar="N", help="How many requests (1000).")
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="LENGTH",
        help="Prompt tokens: 1000 (the default), 500:1500 (uniform), 1000,p95=3000 (log-normal).",
    ),
]
Reply = Annotated[
    str | None,
    typer.Option("--output", metavar="LENGTH", help="Reply tokens, in the same way (200)."),
]
Hits = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Share of each prompt found in a prefix cache (0)."),
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Same seed, same requests (0).")]

# Limits

TokenBudget = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens of a step; the engine's own by default.")
]
MaxSequences = Annotated[
    int | None, typer.Option(metavar="N", help="Sequences at once; the engine's own by default.")
]
KvTokens = Annotated[
    int | None,
    typer.Option(metavar="N", help="Size of the KV cache; by default what memory leaves."),
]
BlockTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens of a block of the cache.")
]

# Objectives

TtftSlo = Annotated[
    str | None, typer.Option(metavar="TIME", help="Objective for the first token: 500ms, 2s.")
]
TpotSlo = Annotated[
    str | None, typer.Option(metavar="TIME", help="Objective for each further token: 50ms.")
]

# Files

Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write a row a request as CSV; - for standard output.",
        show_default=False,
    ),
]
Timeline = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write queue, cache and rates over time.")
]
ChromeTrace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a trace for chrome://tracing and Perfetto."),
]
Figure = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw FILE-state and FILE-latency, as PNG and SVG."),
]
Against = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Compare with a real run: arrival_s (or queued_s), output_tokens, first_token_s, "
        "last_token_s.",
    ),
]
AgainstCounts = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Compare with a real run's log: t, running, waiting."),
]
