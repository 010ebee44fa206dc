"""Fits of serving points: they find what they were simulated from; profiles repeat what they say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roofcast.calibrate.serving_points.calibration import fitting_profile, leave_out, model_of
from roofcast.calibrate.serving_points.design import design
from roofcast.calibrate.serving_points.fit import ServingFit, families, fit_family
from roofcast.calibrate.serving_points.forecasts import forecast_cases, setup_costs
from roofcast.calibrate.serving_points.knobs import Panel
from roofcast.calibrate.serving_points.merge import merge
from roofcast.calibrate.serving_points.model import predict
from roofcast.calibrate.serving_points.points import Measured, Point
from roofcast.calibrate.serving_points.resolve import Case, Resolver
from roofcast.simulator.planning.speculation import Speculation, draft_setup
from roofcast.simulator.serving_costs import BATCHES

INFERENCEX = "request lengths uniform in [0.8,1.0] x nominal"
MODERN = replace(families()[0], news=1.0)  # simulated points err apart, so each of them counts


def points() -> list[Point]:
    made = []
    for model, weights in (
        ("llama-3.1-8b", "bf16"),
        ("llama-3.1-70b", "fp8"),
        ("gpt-oss-120b", ""),
    ):
        for engine in ("vllm", "sglang", "trtllm"):
            for flight in (1, 4, 16, 64, 256):
                for prompt, reply in ((1024, 1024), (8192, 1024), (512, 256)):
                    made.append(
                        Point(
                            id=f"{model}-{engine}-{flight}-{prompt}-{reply}",
                            source="aiconfigurator",
                            model=model,
                            gpu="h200_sxm",
                            engine=engine,
                            load_mode="closed_loop",
                            tp=8.0 if "70b" in model else 1.0,
                            weight_dtype=weights,
                            isl=float(prompt),
                            osl=float(reply),
                            concurrency=float(flight),
                            notes=INFERENCEX if reply == 1024 else "",
                        )
                    )
    return made


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    resolved = Resolver((Path("nowhere"),), fitting_profile).all(points())
    assert all(isinstance(each, Case) for each in resolved), [
        each.reason for each in resolved if not isinstance(each, Case)
    ]
    return [each for each in resolved if isinstance(each, Case)]


@pytest.fixture(scope="module")
def truth(cases):
    """Values off their starts, and points measured under them."""
    panel = Panel(MODERN.knobs, design(cases))
    values = {u.name: u.start * (1.15 if i % 2 else 0.9) for i, u in enumerate(panel.unknowns())}
    found = predict(panel, values)
    measured = [
        replace(
            case,
            point=replace(
                case.point,
                measured=Measured(tpot_ms=found.tpot_s[i] * 1e3, ttft_ms=found.ttft_s[i] * 1e3),
            ),
        )
        for i, case in enumerate(cases)
    ]
    return values, measured


def test_a_fit_forecasts_the_points_it_was_simulated_from(truth):
    """Priors pull back a little; what remains is far below the scatter of real points."""
    _, measured = truth
    table = design(measured)
    found = fit_family(MODERN, table).predict(table)
    errors = np.abs(found.tpot_s * 1e3 / table.measured("tpot_ms") - 1.0)
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.03


def test_a_fit_moves_towards_the_truth(truth):
    values, measured = truth
    fitted = fit_family(MODERN, design(measured))
    starts = {u.name: u.start for u in Panel(MODERN.knobs, design(measured)).unknowns()}
    for name in ("request[vllm]", "request[sglang]", "request[trtllm]", "prompt"):
        assert abs(np.log(fitted.values[name] / values[name])) < abs(
            np.log(starts[name] / values[name])
        )


def test_the_regular_path_repeats_what_the_fit_said(truth):
    """A merged profile, an ordinary forecast and the closed loop give the fit's own numbers."""
    _, measured = truth
    fitted = fit_family(MODERN, design(measured))
    said = fitted.predict(design(measured))
    merged = {
        id(c.setup): replace(c.setup, profile=merge(c.setup.profile, fitted)) for c in measured
    }
    again, _ = forecast_cases([replace(c, setup=merged[id(c.setup)]) for c in measured])
    np.testing.assert_allclose(again.tpot_s, said.tpot_s, rtol=1e-9)
    np.testing.assert_allclose(again.ttft_s, said.ttft_s, rtol=1e-9)
    np.testing.assert_allclose(again.batch, said.batch, rtol=1e-9)


@pytest.mark.parametrize("draft", ["mtp", "ngram"])
def test_drafts_count_by_the_token_in_fits_and_forecasts(draft):
    """A step verifies four positions and drafts three; at 50 % it brings 1.875 tokens."""
    point = Point(
        id="one", model="deepseek-r1", gpu="h200_sxm", engine="sglang", load_mode="closed_loop",
        tp=8.0, isl=1024.0, osl=1024.0, concurrency=16.0,
    )  # fmt: skip
    (case,) = Resolver((Path("nowhere"),), fitting_profile).all([point])
    assert isinstance(case, Case)
    recipe = replace(case.recipe, speculation=Speculation(3, 0.5, draft))
    drafted = replace(case, recipe=recipe)
    table = design([drafted])
    start = {u.name: u.start for u in Panel(MODERN.knobs, table).unknowns()}
    said = predict(Panel(MODERN.knobs, table), start)
    fitted = ServingFit(MODERN, start)
    setup = replace(case.setup, profile=merge(case.setup.profile, fitted))
    again, _ = forecast_cases([replace(drafted, setup=setup)])
    np.testing.assert_allclose(again.tpot_s, said.tpot_s, rtol=1e-9)
    step = setup.decode(16, 1536, 4).step_time_s
    if draft == "mtp":
        drafter = draft_setup(setup, recipe.speculation)
        step = step + 3 * drafter.decode(16, 1536).step_time_s
    column = list(BATCHES).index(16.0)
    assert setup_costs([replace(drafted, setup=setup)]).decode.step_s[0, column] == pytest.approx(
        float(step) / 1.875
    )


def test_leaving_a_model_out_keeps_its_points_from_the_fit(truth):
    """Spoiling the measurements of one model must not change its own held-out forecasts."""
    _, measured = truth
    spoilt = [
        replace(
            case,
            point=replace(case.point, measured=Measured(tpot_ms=case.point.measured.tpot_ms * 3)),
        )
        if case.point.model == "gpt-oss-120b"
        else case
        for case in measured
    ]
    sound = np.ones(len(measured), dtype=bool)
    own = np.array([case.point.model == "gpt-oss-120b" for case in measured])
    results = []
    for given in (measured, spoilt):
        table = design(given)
        whole = fit_family(MODERN, table)
        held = leave_out(MODERN, table, sound, whole, model_of)
        results.append(table.measured("tpot_ms")[own] / np.exp(held.ratios["tpot_ms"][own]))
    np.testing.assert_allclose(results[0], results[1], rtol=0.01)


def test_merged_parameters_say_where_they_come_from(truth):
    _, measured = truth
    fitted = fit_family(MODERN, design(measured))
    profile = merge(measured[0].setup.profile, fitted, ["a table"])
    launch = profile.parameters["attention.launch_s"]
    assert launch.origin == "fitted"
    assert launch.sources == ("a table",)
    assert launch.value == fitted.values["kernel"]
    kernels = {
        n: p for n, p in measured[0].setup.profile.parameters.items() if n.startswith("gemm.b")
    }
    assert kernels
    assert all(profile.parameters[name] == parameter for name, parameter in kernels.items())
