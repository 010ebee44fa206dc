"""A plan in a report: which deployments serve a traffic within its objectives, and at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.reports import plan_text
from roofcast.reports.document.blocks import Block, Bullets, Captioned, Fold, Section, Text
from roofcast.reports.sections import drawing
from roofcast.reports.tables import Column, Table
from roofcast.simulator.planning.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

_SHOWN = 40


def section(plan: Plan) -> Section:
    """The question, the best deployment of each device, why it is best, and what was left out."""
    best = plan.best_by_device()
    blocks: list[Block] = [
        Text(f"{plan_text.question(plan.asked)} {plan_text.tried(plan)}"),
        Bullets(tuple(plan_text.reasons(plan, plan.deployments[0]))),
        Captioned("The best deployment of each device", plan_text.table(plan, best)),
        _figure(plan),
    ]
    if len(plan.deployments) > len(best):
        shown = plan.deployments[:_SHOWN]
        caption = f"The {len(shown)} best of {len(plan.deployments):,} deployments"
        blocks.append(Fold(caption, (Captioned(caption, plan_text.table(plan, shown)),)))
    if plan.rejected:
        blocks.append(Fold("Deployments left out, by reason", (_rejected(plan),)))
    prices = {each.where.device.id: plan_text.price_of(each) for each in best}
    blocks.append(Bullets(tuple(f"Price of {name}: {words}." for name, words in prices.items())))
    return Section("plan", "Plan", tuple(blocks))


def _figure(plan: Plan) -> Block:
    def draw() -> Drawn:
        from roofcast.reports.figures.plan_pages import plan_figure

        return plan_figure(plan)

    return drawing.block(
        draw,
        "planned",
        "Every deployment that meets the objectives.",
        "Cost of a million output tokens (or what a device gives, without prices) against the speed "
        "that a user sees; the best of each device is named.",
    )


def _rejected(plan: Plan) -> Captioned:
    reasons = list(plan.rejected)
    return Captioned(
        "Left out",
        Table(
            (
                Column("reason", reasons, right=False),
                Column("deployments", [f"{plan.rejected[each]:,}" for each in reasons]),
                Column("such as", [plan.examples[each] for each in reasons], right=False),
            )
        ),
    )
