"""Mistral AI's decoders."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.families import patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.style import MoeStyle, Style, build

MIXTRAL_MOE: Final = MoeStyle(
    width="intermediate_size",
    router="block_sparse_moe.gate",
    experts="block_sparse_moe.experts",
    names=("w1", "w3", "w2"),
)

FAMILIES: Final = (
    Family(("mistral",), ("Mistral",), build(Style(kinds=patterns.all_windowed, runs=True))),
    Family(
        ("ministral",),
        ("Ministral",),
        build(Style(kinds=patterns.listed(patterns.all_windowed))),
    ),
    Family(("ministral3",), ("Ministral3", "Mistral3"), build(Style(kinds=patterns.all_windowed))),
    Family(
        ("mixtral",),
        ("Mixtral",),
        build(Style(kinds=patterns.all_windowed, moe=MIXTRAL_MOE, runs=True)),
    ),
)
