"""`roofcast validate`: a line per point and metric, a named reason where there is none, no peeking."""

import csv
import json

import pytest

from tests.reports.conftest import LLAMA_8B

HEADER = (
    "id,source,source_ref,source_license,model,model_reported,config_file,gpu,n_gpu,tp,pp,ep,dp,"
    "serving_mode,engine,engine_version,weight_dtype,kv_dtype,isl,osl,concurrency_or_batch,"
    "load_mode,tpot_ms,ttft_ms,e2e_s,output_tok_s,total_tok_s,tpot_stat,power_w,"
    "est_mean_decode_batch,weight_bw_bound_ms,measured,use,flag,notes"
)


def row(name: str, **cells: object) -> dict[str, object]:
    """A closed-loop point of Llama-3.1-8B on an H100, with made-up measurements."""
    plain = dict.fromkeys(HEADER.split(","), "")
    known = {
        "id": name, "source": "made up", "model": "meta-llama/Llama-3.1-8B",
        "config_file": "llama.json", "gpu": "h100_sxm", "n_gpu": 1, "tp": 1, "pp": 1, "ep": 1,
        "dp": 1, "serving_mode": "aggregated", "engine": "vllm", "weight_dtype": "bf16",
        "isl": 1000, "osl": 200, "concurrency_or_batch": 8, "load_mode": "closed_loop",
        "tpot_ms": 8.0, "ttft_ms": 60.0, "use": "ok",
    }  # fmt: skip
    return {**plain, **known, **cells}


@pytest.fixture
def points(workplace):
    def write(*rows: dict[str, object]) -> str:
        folder = workplace / "points"
        (folder / "configs").mkdir(parents=True, exist_ok=True)
        (folder / "configs" / "llama.json").write_text(json.dumps(LLAMA_8B))
        path = folder / "points.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, HEADER.split(","))
            writer.writeheader()
            writer.writerows(rows)
        return str(path)

    return write


def read(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_line_for_each_metric_a_row_holds(roofcast, points, workplace):
    path = points(row("a"), row("b", ttft_ms=""), row("c", tpot_ms="", ttft_ms="", e2e_s=2.0))
    assert roofcast("validate", path, "--out", "predictions.csv")[0] == 0
    lines = read(workplace / "predictions.csv")
    assert [(line["id"], line["metric"]) for line in lines] == [
        ("a", "tpot_ms"), ("a", "ttft_ms"), ("b", "tpot_ms"), ("c", "e2e_s")
    ]  # fmt: skip
    for line in lines:
        low, mid, high = (float(line[k]) for k in ("predicted_low", "predicted", "predicted_high"))
        assert low < mid < high


def test_measurements_never_reach_a_forecast(roofcast, points, workplace):
    said = []
    for factor in (1.0, 7.0):
        path = points(row("a", tpot_ms=8 * factor, est_mean_decode_batch=7 * factor))
        roofcast("validate", path, "--out", "out.csv")
        said.append(next(line["predicted"] for line in read(workplace / "out.csv")))
    assert said[0] == said[1]


def test_a_row_that_cannot_be_forecast_says_why(roofcast, points, workplace):
    path = points(
        row("model", config_file="", model="nobody/unheard-of"),
        row("device", gpu="abacus"),
        row("mode", serving_mode="disaggregated"),
        row("fine"),
    )
    assert roofcast("validate", path, "--out", "out.csv")[0] == 0
    reasons = {line["id"]: line["reason"] for line in read(workplace / "out.csv")}
    assert "nobody/unheard-of" in reasons["model"]
    assert "abacus" in reasons["device"]
    assert "disaggregated" in reasons["mode"]


def test_errors_by_group_as_json(roofcast, points):
    path = points(row("a"), row("b", concurrency_or_batch=16, use="caution"))
    _, out, _ = roofcast("validate", path, "--json", "--by", "engine")
    report = json.loads(out)
    assert report["points"] == 2
    assert report["errors"]["tpot_ms"]["all"]["rows"] == 2
    assert report["errors"]["tpot_ms"]["vllm"]["median_ape"] >= 0
    _, out, _ = roofcast("validate", path, "--json", "--use", "ok")
    assert json.loads(out)["points"] == 1


def test_a_point_faster_than_physics_is_flagged(roofcast, points):
    # 15 GB of weights at 3.35 TB/s are 4.5 ms
    _, out, _ = roofcast("validate", points(row("real"), row("dream", tpot_ms=1.0)), "--json")
    assert json.loads(out)["too_fast"] == ["dream"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["missing.csv"], "missing.csv"), (["--by", "moon"], "unknown grouping 'moon'")],
)
def test_bad_input_is_one_line(roofcast, points, arguments, said):
    given = arguments if arguments[0].endswith(".csv") else [points(row("a")), *arguments]
    status, out, err = roofcast("validate", *given)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
