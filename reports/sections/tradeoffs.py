"""Speed for a user against what a device gives, cost over batch, and who overtakes whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from roofcast.hardware.errors import CapacityError
from roofcast.reports import compare_text, units
from roofcast.reports.document.blocks import Block, Bullets, Captioned
from roofcast.reports.sections import drawing
from roofcast.reports.sections.asked import Asked
from roofcast.reports.sections.cases import Case
from roofcast.simulator.comparison import Contender, Tradeoff, tensor_sizes, tradeoff
from roofcast.simulator.insight import largest_batch, largest_context
from roofcast.simulator.planning import prices

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


def blocks(cases: Sequence[Case], asked: Asked) -> Iterator[Block]:
    """What `roofcast compare` says, for the layouts of the report."""
    context = cases[0].contexts[0]
    who = [each for case in cases if (each := contender(case, context, asked)).largest_batch > 0]
    if who:
        yield from _costs(who, cases, asked)
    found = [front for case in cases if (front := _front(case, context)) is not None]
    about = f"{cases[0].where.architecture.name}, context {units.tokens(context)}"
    if found:
        yield _fronts(found, about)
        yield Captioned("Ends and middles of the best trade-offs", compare_text.fronts(found))


def contender(case: Case, context: int, asked: Asked) -> Contender:
    """A case as a comparison sees it: its layout, its price, what it holds."""
    where = case.where
    at = where.decode(1, context)
    price = asked.prices.get(where.device.id) or prices.listed(where.device)
    most, longest = int(np.min(largest_batch(at))), int(np.min(largest_context(at)))
    return Contender(where, price, most, longest)


def _costs(who: Sequence[Contender], cases: Sequence[Case], asked: Asked) -> Iterator[Block]:
    context = cases[0].contexts[0]
    made = compare_text.rows(who, cases[0].batches, context, asked.power)
    caption = f"Cost, energy and capacity of pure decode at context {context:,}"
    yield Captioned(caption, compare_text.table(made))
    if len(who) > 1:
        said = compare_text.overtakings(who, cases[0].batches[0], context, asked.power)
        yield Bullets(tuple(said))
    about = f"{cases[0].where.architecture.name}, context {units.tokens(context)}"
    if any(each.price is not None for each in who):

        def draw() -> Drawn:
            from roofcast.reports.figures import compare_pages

            lines = compare_pages.cost_lines(who, context, asked.power)
            return compare_pages.cost_figure(lines, about)

        yield drawing.block(
            draw,
            "cost",
            f"Cost of a million output tokens by batch at context {context:,}.",
            "Pure decode at a full batch, one curve a device, up to what memory holds; prompts and "
            "idle time come on top.",
        )
    yield Bullets(tuple(_price(each) for each in who))


def _price(each: Contender) -> str:
    name, price = each.where.device.id, each.price
    if price is None:
        return f"No price is known for {name}."
    if price.rent_usd_per_hour is not None:
        amount = f"{units.significant(price.rent_usd_per_hour)} USD an hour"
    else:
        amount = f"{price.purchase_usd:,.0f} USD over {price.years:g} years, and electricity"
    return f"Price of {name}: {amount} and device ({price.source})."


def _front(case: Case, context: int) -> Tradeoff | None:
    try:
        return tradeoff(case.where, context, tensor_sizes(case.where))
    except CapacityError:
        return None


def _fronts(found: Sequence[Tradeoff], about: str) -> Block:
    def draw() -> Drawn:
        from roofcast.reports.figures import compare_pages

        return compare_pages.tradeoff_figure(found, about)

    return drawing.block(
        draw,
        "fronts",
        "What a device gives against what a user sees.",
        "The Pareto front of each device over tensor-parallel sizes and batches: no layout or batch "
        "is better in both. Upper right is better.",
    )
