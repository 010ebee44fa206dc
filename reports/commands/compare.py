"""`roofcast compare`: devices side by side for one workload, and where one overtakes another."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from roofcast.hardware.errors import InputError
from roofcast.reports import compare_text, options, output, units, words
from roofcast.reports.places import placed
from roofcast.reports.ranges import numbers
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.comparison import (
    Contender,
    TensorCurve,
    Tradeoff,
    contender,
    tensor_curve,
    tensor_sizes,
    tradeoff,
)
from roofcast.simulator.layouts import require_servable
from roofcast.simulator.planning import prices
from roofcast.simulator.workload import Parallelism

app = options.new_app()


@app.command()
def compare(
    model: options.Model,
    *,
    device: Annotated[
        list[str],
        typer.Option("--device", "-d", metavar="NAME", help="A device; repeatable, or a,b."),
    ],
    batch: Annotated[
        str, typer.Option("--batch", "-b", metavar="LIST", help="Sequences decoded together.")
    ] = "1,64",
    context: Annotated[
        int, typer.Option("--context", "-c", metavar="N", help="Tokens cached per sequence.")
    ] = 4096,
    tp: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Tensor-parallel ranks: one size for all devices, or several to see what they bring. "
            "Default: the smallest that holds the model.",
        ),
    ] = None,
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    network: options.Network = None,
    peer_access: options.PeerAccess = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE=USD", help="Rent an hour, or a purchase: DEVICE=30000/4y."),
    ] = None,
    kwh: Annotated[
        float, typer.Option(metavar="USD", help="Electricity of bought devices, per kWh.")
    ] = 0.12,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw trade-offs, costs and tensor curves."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare devices: speed, cost, energy, capacity, what limits each, and who overtakes whom.

    \b
    Examples:
      roofcast compare llama-3.1-8b -d l40s,h100-sxm,rtx-4090 --context 8192
      roofcast compare llama-3.1-70b -d h200-sxm,b200-sxm,mi300x -w fp8 --figures out
      roofcast compare llama-3.1-70b -d h100-sxm --tp 1,2,4,8
    """
    names = [name.strip() for text in device for name in text.split(",")]
    sizes = None if tp is None else numbers(tp, "tp")
    batches = numbers(batch, "batch")
    power = prices.Power(usd_per_kwh=kwh)
    places = [
        setup(
            model,
            placed(name, network, peer_access),
            engine=engine,
            profile=profile,
            weight_dtype=weight_dtype,
            kv_dtype=kv_dtype,
        )
        for name in names
    ]
    for where, size in product(places, sizes or ()):
        require_servable(where.architecture, Parallelism(size))
    given = _prices(price or [], places)
    one = sizes[0] if sizes is not None and len(sizes) == 1 else None
    who = [_contender(where, context, given, one, sizes) for where in places]
    made = compare_text.rows(who, batches, context, power)
    several = sizes is not None and len(sizes) > 1
    curves = [tensor_curve(where, context, sizes) for where in places] if several and sizes else []
    fronts = [_front(where, context, sizes) for where in places]
    if json:
        output.emit_json(_document(places, made, fronts, curves))
    else:
        _print(who, made, fronts, curves, batches, context, power)
    if figures is not None:
        _draw(figures, who, fronts, curves, context, power)


def _contender(
    where: Setup,
    context: int,
    given: dict[str, prices.Price],
    tensor: int | None,
    sizes: list[int] | None,
) -> Contender:
    price = given.get(where.device.id) or prices.listed(where.device)
    if tensor is None and sizes is not None:
        fitting = tensor_curve(where, context, sizes).ranks
        tensor = int(fitting[0])
    return contender(where, context, price, tensor)


def _front(where: Setup, context: int, sizes: list[int] | None) -> Tradeoff:
    return tradeoff(where, context, sizes or tensor_sizes(where))


def _prices(texts: list[str], places: list[Setup]) -> dict[str, prices.Price]:
    from roofcast.hardware.catalog import find

    found = {}
    known = {where.device.id for where in places}
    for text in texts:
        name, price = prices.parse(text)
        device = find(name).id
        if device not in known:
            raise InputError(f"--price names {name}, which is not among the devices compared")
        found[device] = price
    return found


def _document(
    places: list[Setup],
    made: list[compare_text.Row],
    fronts: list[Tradeoff],
    curves: list[TensorCurve],
) -> dict[str, object]:
    return {
        "points": compare_text.describe(made),
        "pareto": {
            front.name: [
                {
                    "tp": int(front.tensor[i]),
                    "batch": int(front.batch[i]),
                    "tokens_per_s_per_user": float(front.per_user[i]),
                    "tokens_per_s_per_device": float(front.per_device[i]),
                }
                for i in range(front.batch.size)
            ]
            for front in fronts
        },
        "tensor": {
            where.device.id: compare_text.describe_tensor(curve)
            for where, curve in zip(places, curves, strict=False)
        },
    }


def _print(
    who: list[Contender],
    made: list[compare_text.Row],
    fronts: list[Tradeoff],
    curves: list[TensorCurve],
    batches: list[int],
    context: int,
    power: prices.Power,
) -> None:
    where = who[0].where
    stored = f"{words.weight_format(where.architecture)} weights, {where.kv_dtype} cache"
    output.say(f"{where.architecture.name}, context {context:,}, {stored}")
    for each in who:
        profile = each.where.profile
        output.say(f"{compare_text.name(each)}: {words.provenance(profile)} {words.trust(profile)}")
    output.say()
    output.show(compare_text.table(made))
    output.say()
    for each, curve in zip(who, curves, strict=False):
        output.say(f"Tensor parallelism on {each.where.device.id}:")
        output.show(compare_text.tensor_table(curve))
        output.say(compare_text.tensor_verdict(curve))
        output.say()
    for sentence in compare_text.overtakings(who, batches[0], context, power):
        output.say(sentence)
    output.say()
    output.say("The best trade-offs of tokens/s per user against tokens/s per device:")
    output.show(compare_text.fronts(fronts))


def _draw(
    folder: Path,
    who: list[Contender],
    fronts: list[Tradeoff],
    curves: list[TensorCurve],
    context: int,
    power: prices.Power,
) -> None:
    from roofcast.reports.figures import compare_pages
    from roofcast.reports.figures.sheet import save

    about = f"{who[0].where.architecture.name}, context {units.tokens(context)}"
    written = save(compare_pages.tradeoff_figure(fronts, about), folder / "tradeoff")
    lines = compare_pages.cost_lines(who, context, power)
    if lines:
        written += save(compare_pages.cost_figure(lines, about), folder / "cost")
    for each, curve in zip(who, curves, strict=False):
        subtitle = f"{about}, {each.where.device.name}"
        stem = folder / f"tensor-{each.where.device.id}"
        written += save(compare_pages.tensor_figure(curve, subtitle), stem)
    output.note(f"wrote {', '.join(str(path) for path in written)}")
