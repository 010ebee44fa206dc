"""The figure of a plan."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from roofcast.reports import plan_text, units
from roofcast.reports.figures import deployments, style
from roofcast.reports.figures.deployments import Deployments
from roofcast.reports.figures.sheet import sheet
from roofcast.simulator.planning.plan import Deployment, Plan


def plan_figure(plan: Plan) -> Figure:
    """Every deployment: cost against speed, or without prices what a device gives against it."""
    priced = all(each.usd_per_million_tokens is not None for each in plan.deployments)
    value = "USD per million output tokens" if priced else "output tokens/s per device"
    goal = plan.asked.objectives.tpot_s
    title = "Deployments that meet the objectives"
    with style.applied():
        figure, (axes,) = sheet(title, _about(plan))
        groups = [_group(plan, best, priced) for best in plan.best_by_device()]
        deployments.draw(axes, groups, value, None if goal is None else 1.0 / goal)
        return figure


def _group(plan: Plan, best: Deployment, priced: bool) -> Deployments:
    device = best.where.device.id
    alike = [each for each in plan.deployments if each.where.device.id == device]
    values = [
        (each.usd_per_million_tokens if priced else each.tokens_per_s_per_device) or np.nan
        for each in alike
    ]
    index = next(i for i, each in enumerate(alike) if each is best)
    speeds = np.array([each.tokens_per_s_per_user for each in alike])
    name = f"{best.devices} x {device}\n{plan_text.replicas(best)}"
    return Deployments(name, speeds, np.array(values), index)


def _about(plan: Plan) -> str:
    traffic = plan.asked.traffic
    if traffic.users is None:
        amount = f"{units.significant(traffic.amount)} requests/s"
    else:
        amount = f"{traffic.amount:,.0f} users at once"
    return f"{plan.asked.model.name}, {amount}"
