"""`roofcast simulate` and `roofcast sweep`: files for programs, words for people, refusals."""

import csv
import json
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest

from roofcast.reports.chrome_trace import chrome_trace, stays
from roofcast.reports.figures import serving, sheet, style
from roofcast.reports.figures.geometry import overlaps
from roofcast.reports.figures.serving import Latencies, Series
from roofcast.reports.sweeps import run_simulation
from roofcast.simulator.requests import requests
from roofcast.simulator.results_store import ResultsStore
from roofcast.simulator.serving_stats import over_time
from roofcast.simulator.sweep import Workers, run_points
from roofcast.simulator.sweep_file import read_sweep
from tests.reports.test_errors import refused
from tests.simulator.test_batching import run as serve

TRACE = "arrival_s,input_tokens,output_tokens\n0.0,500,20\n0.5,800,30\n0.5,10,1\n"
SMALL = ("--rate", "4", "--requests", "40", "--input", "100:300", "--output", "20")


@pytest.fixture
def trace(workplace):
    path = workplace / "trace.csv"
    path.write_text(TRACE)
    return path


def table(path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def simulate(roofcast, llama, *options):
    return roofcast("simulate", llama, "-d", "h100-sxm", "--engine", "ideal", *options)


def test_a_trace_gets_three_times_on_its_own_clock(roofcast, llama, trace, workplace):
    status, _, err = simulate(roofcast, llama, "--trace", trace, "--out", "requests.csv")
    assert (status, err) == (0, "")
    rows = table(workplace / "requests.csv")
    wanted = ["arrival_s", "input_tokens", "output_tokens", "scheduled_s", "first_token_s"]
    assert [name for name in wanted if name not in rows[0]] == []
    assert [row["input_tokens"] for row in rows] == ["500", "800", "10"]
    for row in rows:
        at = [float(row[n]) for n in ("arrival_s", "scheduled_s", "first_token_s", "last_token_s")]
        assert at == sorted(at)
    assert rows[2]["tpot_s"] == ""
    # The first request is alone: 500 tokens of 6.98e9 weights at 989 TFLOP/s, and the head at
    # 3.35 TB/s; activations add to that.
    floor = 2 * 500 * 6.98e9 / 989e12 + 2 * 128256 * 4096 / 3.35e12
    assert floor < float(rows[0]["first_token_s"]) < 1.2 * floor


def test_json_holds_the_run_and_the_same_seed_the_same_run(roofcast, llama):
    status, out, _ = simulate(roofcast, llama, *SMALL, "--seed", "3", "--json")
    again = simulate(roofcast, llama, *SMALL, "--seed", "3", "--json")[1]
    other = simulate(roofcast, llama, *SMALL, "--seed", "4", "--json")[1]
    found = json.loads(out)
    assert status == 0
    assert out == again != other
    assert found["requests"] == 40
    assert found["policy"]["max_sequences"] == 1024
    assert found["ttft_s"]["p50"] <= found["ttft_s"]["p95"] <= found["ttft_s"]["max"]


def test_what_a_person_reads(roofcast, llama):
    goals = ("--ttft-slo", "1s", "--tpot-slo", "50ms")
    status, out, _ = simulate(roofcast, llama, *SMALL, *goals)
    assert status == 0
    assert "Serving 40 requests of" in out
    assert "Limits: 8,192 tokens a step, 1,024 sequences at once, a KV cache of" in out
    assert "100 % of the requests keep TTFT up to 1.00 s and TPOT up to 50.0 ms: goodput" in out


def test_a_closed_loop_and_a_timeline(roofcast, llama, workplace):
    options = ("--concurrency", "8", "--requests", "64", "--timeline", "state.csv", "--json")
    found = json.loads(simulate(roofcast, llama, *options)[1])
    assert found["running"] == pytest.approx(8, abs=0.5)
    rows = table(workplace / "state.csv")
    assert max(float(row["running"]) for row in rows) == 8
    assert {"time_s", "waiting", "kv_use", "ttft_p95_s"} <= set(rows[0])


def test_prefix_hits_of_made_up_traffic_spare_what_they_hold(roofcast, llama):
    """Of prompts of 1000 tokens, 900 are there: a tenth is read, and sooner answered."""
    same = ("--rate", "2", "--requests", "20", "--output", "5", "--json")
    cold = json.loads(simulate(roofcast, llama, *same)[1])
    warm = json.loads(simulate(roofcast, llama, *same, "--hits", "0.9")[1])
    read = [row["total_tokens_per_s"] * row["duration_s"] for row in (cold, warm)]
    assert read[0] == pytest.approx(read[1])  # users sent as much
    assert warm["ttft_s"]["p50"] < 0.5 * cold["ttft_s"]["p50"]


def test_a_run_is_compared_with_itself(roofcast, llama, trace):
    simulate(roofcast, llama, "--trace", trace, "--out", "measured.csv")
    options = ("--trace", trace, "--against", "measured.csv", "--json")
    found = json.loads(simulate(roofcast, llama, *options)[1])["against"]
    assert found[0]["metric"] == "output_tokens_per_s"
    assert [row["error"] for row in found] == pytest.approx([0.0] * len(found), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), ("say how requests arrive",)),
        (("--rate", "2", "--concurrency", "3"), ("say how requests arrive",)),
        (("--rate", "2", "--trace", "trace.csv"), ("a trace or a rate, not both",)),
        (("--trace", "trace.csv", "--input", "5"), ("a trace or input, not both",)),
        (("--trace", "trace.csv", "--requests", "5"), ("a trace or a number of requests",)),
        (("--concurrency", "3", "--arrivals", "constant"), ("constant arrivals need a rate",)),
        (("--rate", "2", "--arrivals", "closed"), ("closed arrivals need a concurrency",)),
        (("--rate", "2", "--cv", "3"), ("cv goes with gamma arrivals, not poisson ones",)),
        (("--rate", "2", "--hits", "1"), ("at least 0 and below 1, not 1",)),
        (("--rate", "0"), ("rate and cv must be positive, not 0",)),
        (("--rate", "1", "--requests", "0"), ("requests must be at least 1, not 0",)),
        (
            ("--rate", "1", "--arrivals", "gama"),
            ("unknown arrival process", "did you mean 'gamma'"),
        ),
        (("--rate", "1", "--input", "0"), ("input '0'", "from 1")),
        (("--concurrency", "0"), ("concurrency must be at least 1, not 0",)),
        (("--trace", "none.csv"), ("none.csv: cannot be read",)),
        (("--rate", "1", "--token-budget", "0"), ("token_budget must be at least 1, not 0",)),
        (
            ("--rate", "1", "--token-budget", "8", "--max-sequences", "9"),
            ("token_budget (8) must be at least max_sequences (9)",),
        ),
        (("--rate", "1", "--kv-tokens", "999"), ("can never fit in a cache of 992",)),
        (("--rate", "1", "--kv-tokens", "0"), ("no memory for a KV cache",)),
        (
            ("--rate", "1", "--tp", "3"),
            ("TP 3 does not divide the 32 attention heads: engines refuse",),
        ),
        (("--rate", "1", "-d", "t4"), ("1 x t4 leaves no memory", "weights, sharded take 16.1 GB")),
        (("--rate", "1", "--input", "200000"), ("beyond the 131072",)),
        (("--rate", "1", "--ttft-slo", "1us"), ("a TTFT of", "is out of reach")),
        (("--rate", "1", "--tpot-slo", "soon"), ("'soon' is not a time",)),
        (("--rate", "1", "--tpot-slo", "0"), ("must be positive",)),
    ],
)
def test_refusals(roofcast, llama, trace, options, said):
    refused(simulate(roofcast, llama, *options), *said)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "holds no request"),
        ("3,5,5\n1,5,5\n", "request 1 arrives at 1 s, before the one above it (3 s): sort"),
        ("-3,5,5\n", "request 0: arrival_s must be at least 0, not -3"),
        ("0,5,0\n", "request 0: output_tokens must be a whole number of at least 1, not 0"),
        ("0,five,5\n", "input_tokens must be a number, not 'five'"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_bad_traces_are_refused_by_name(roofcast, llama, workplace, command, rows, said):
    (workplace / "bad.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    found = roofcast(command, llama, "-d", "h100-sxm", "-e", "ideal", "--trace", "bad.csv")
    refused(found, "bad.csv: ", said)


def crowded():
    """A run with chunks, queues and preemptions."""
    rng = np.random.default_rng(2)
    trace = requests(
        np.sort(rng.uniform(0, 1, 60)), rng.integers(20, 250, 60), rng.integers(1, 60, 60)
    )
    served = serve(trace, kv_tokens=800, ahead=True)
    assert served.preemptions.sum() > 5
    return served


def test_every_stay_begins_and_ends_once():
    served = crowded()
    found = stays(served)
    assert len(found) == 60 + served.preemptions.sum()
    ends = Counter(stay.request for stay in found if not stay.preempted)
    assert set(ends.values()) == {1}
    assert len(ends) == 60


def test_a_chrome_trace_is_well_formed():
    """Phases and their required keys as in Google's Trace Event Format; spans of a lane don't cross."""
    document = json.loads(json.dumps(chrome_trace(crowded())))
    assert document["displayTimeUnit"] == "ms"
    events = document["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "i", "C"}
    lanes = {}
    for event in events:
        assert {"name", "pid", "tid", "ph"} <= set(event)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "i":
            assert event["s"] == "t"
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
    assert sum(event["ph"] == "i" for event in events) == 60
    for spans in lanes.values():
        for one, following in pairwise(spans):
            assert following["ts"] >= one["ts"] + one["dur"] - 1e-3
    sequences = {tid for pid, tid in lanes if pid == 2}
    assert len(sequences) <= 9  # eight at once, and one that is known to be gone a step late


def test_the_chrome_trace_is_written(roofcast, llama, workplace):
    assert simulate(roofcast, llama, *SMALL, "--chrome-trace", "trace.json")[0] == 0
    assert json.loads((workplace / "trace.json").read_text())["traceEvents"]


def test_figures_are_drawn(roofcast, llama, workplace):
    simulate(roofcast, llama, *SMALL, "--out", "measured.csv")
    (workplace / "log.csv").write_text("t,running,waiting\n1,2,0\n5,3,1\n")
    options = ("--against", "measured.csv", "--against-counts", "log.csv", "--ttft-slo", "1s")
    status, _, err = simulate(roofcast, llama, *SMALL, *options, "--figure", "run")
    assert status == 0
    for part in ("state", "latency"):
        assert f"run-{part}.png" in err
        assert (workplace / f"run-{part}.svg").stat().st_size > 10_000


@pytest.mark.parametrize("size", [sheet.COLUMN_IN, sheet.PAGE_IN, sheet.SLIDE_IN])
def test_nothing_overlaps_in_the_figures(size):
    mpl.use("agg")
    served = crowded()
    windows = over_time(served)
    series = [
        Series(name, windows.time_s, getattr(windows, name), windows.time_s, windows.running + 1)
        for name in ("running", "waiting")
    ]
    with style.applied():
        for draw in (
            lambda axes: serving.counts(axes, series),
            lambda axes: serving.cache(axes, windows.time_s, windows.kv_use),
            lambda axes: serving.spread(
                axes, Latencies("first token", served.ttft_s, 0.3, served.ttft_s * 1.1)
            ),
        ):
            (axes,) = sheet.sheet("Title", "subtitle", size_in=size)[1]
            draw(axes)
            assert overlaps(axes) == []


def test_the_spread_is_the_empirical_distribution():
    mpl.use("agg")
    with style.applied():
        (axes,) = sheet.sheet("Title")[1]
        serving.spread(axes, Latencies("first token", np.array([4.0, 1.0, np.nan, 2.0])))
    curve = axes.lines[0].get_xydata()
    assert curve.tolist() == [[1.0, 1 / 3], [2.0, 2 / 3], [4.0, 1.0]]


SWEEP = """
[scenario]
model = "llama.json"
engine = "ideal"
requests = 20
input = 100
output = "10"
[sweep]
device = ["h100-sxm", "rtx-4090"]
rate = [2.0, 20.0]
kv_tokens = [105, 4000]
"""


@pytest.fixture
def swept(llama, workplace):
    path = workplace / "sweep.toml"
    path.write_text(SWEEP)
    return path


def test_a_sweep_runs_every_combination(roofcast, swept, workplace):
    options = ("--out", "r.sqlite", "--jobs", "1", "--backend", "sequential", "--csv", "-")
    status, out, _ = roofcast("sweep", swept, *options)
    rows = list(csv.DictReader(out.splitlines()))
    assert status == 0
    points = {(row["device"], row["rate"], row["kv_tokens"]) for row in rows}
    assert len(rows) == len(points) == 8
    # 110 tokens never fit in 6 blocks of 16: refused, and the sweep went on
    for row in rows:
        assert ("can never fit" in row["refused"]) == (row["kv_tokens"] == "105")
    with closing(sqlite3.connect(workplace / "r.sqlite")) as kept:
        assert kept.execute("select count(*) from results").fetchone() == (8,)


def test_an_interrupted_sweep_resumes(swept, workplace):
    points = read_sweep(swept).points
    ran = []

    def stops(document):
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(document)
        return {"n": len(ran)}

    def goes_on(document):
        ran.append(document)
        return {"n": len(ran)}

    workers = Workers(1, "sequential")
    with ResultsStore(workplace / "s.sqlite") as store, pytest.raises(KeyboardInterrupt):
        run_points(points, stops, store, workers, lambda *_: None)
    with ResultsStore(workplace / "s.sqlite") as store:
        told = []
        results = run_points(points, goes_on, store, workers, lambda *said: told.append(said[:2]))
    assert [document in ran[:3] for document in ran[3:]] == [False] * 5
    assert told == [(n, 8) for n in range(4, 9)]
    assert [each.number for each in results] == list(range(8))


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_a_sweep_gives_the_same_in_parallel(backend, swept, workplace):
    if backend == "dask":
        pytest.importorskip("distributed")
    points = read_sweep(swept).points
    with ResultsStore(workplace / "a.sqlite") as store:
        alone = run_points(points, run_simulation, store, Workers(1, "sequential"), lambda *_: None)
    with ResultsStore(workplace / "b.sqlite") as store:
        shared = run_points(points, run_simulation, store, Workers(2, backend), lambda *_: None)
    assert shared == alone


def test_a_sweep_of_plans(roofcast, workplace):
    (workplace / "plan.toml").write_text(
        'run = "plan"\n[scenario]\nmodel = "llama-3.1-8b"\ndevices = [{name = "h100-sxm", '
        "rent_usd_per_hour = 3.0}]\ntraffic = {requests_per_s = 1.0, input_tokens = 1000, "
        'output_tokens = 300}\n[sweep]\n"traffic.requests_per_s" = [10.0, 80.0]\n'
    )
    options = ("--out", "p.sqlite", "--jobs", "1", "--backend", "sequential", "--json")
    rows = json.loads(roofcast("sweep", "plan.toml", *options)[1])
    assert [row["traffic.requests_per_s"] for row in rows] == [10.0, 80.0]
    assert rows[0]["replicas"] <= rows[1]["replicas"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ("scenario: expected a table",)),
        ("[scenario", ("not valid TOML",)),
        ('[scenario]\nmodel = "llama.json"\n[swep]\n', ("swep: unknown key", "'sweep'")),
        ('[scenario]\nmodle = "llama.json"\n', ("modle: unknown key", "did you mean 'model'")),
        ('[scenario]\nmodel = "llama.json"\n[sweep]\nrate = 3\n', ("sweep.rate: expected a list",)),
        (
            '[scenario]\nmodel = "llama.json"\n[sweep]\nrate = []\n',
            ("sweep.rate: expected a list",),
        ),
        ('[scenario]\nmodel = "llama.json"\n[sweep]\nrate = ["x"]\n', ("rate:", "number")),
        ('[scenario]\nmodel = "m"\n[sweep]\n"model.x" = [1]\n', ("model is no table",)),
        ('run = "simulat"\n[scenario]\nmodel = "m"\n', ("unknown run", "did you mean 'simulate'")),
    ],
)
def test_bad_sweeps(roofcast, workplace, text, said):
    (workplace / "bad.toml").write_text(text)
    refused(roofcast("sweep", "bad.toml", "--out", "r.sqlite"), *said)


def test_bad_stores_and_workers(roofcast, swept, workplace):
    (workplace / "text.sqlite").write_text("not a store " * 100)
    refused(roofcast("sweep", swept, "--out", "text.sqlite"), "is no store of results")
    refused(roofcast("sweep", swept, "--out", "nowhere/r.sqlite"), "nowhere/r.sqlite")
    refused(roofcast("sweep", swept, "--out", "r.sqlite", "--jobs", "0"), "jobs must be at least 1")
    refused(
        roofcast("sweep", swept, "--out", "r.sqlite", "--backend", "daks"),
        "unknown backend 'daks'",
        "did you mean 'dask'",
    )
