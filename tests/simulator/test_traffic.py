"""Made-up traffic against the moments of its distributions; traces against what a file can hold."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from roofcast.hardware.errors import FileFormatError, InputError, UnknownNameError
from roofcast.simulator.trace_file import read_trace
from roofcast.simulator.traffic import Traffic, arrivals, lengths

COUNT = 20_000


def made(**given: object) -> Traffic:
    fixed = {"input_tokens": lengths("1000", "input"), "output_tokens": lengths("200", "output")}
    return Traffic(**{"count": COUNT, **fixed, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("process", "cv", "spread"),
    [("constant", 1.0, 0.0), ("poisson", 3.0, 1.0), ("gamma", 2.0, 2.0)],
)
def test_arrivals_have_the_rate_and_the_spread_of_their_process(
    process: str, cv: float, spread: float
) -> None:
    times = arrivals(process, 4.0, COUNT, np.random.default_rng(1), cv)
    gaps = np.diff(times)
    assert times[0] == 0.0
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(spread, abs=0.05)


@pytest.mark.parametrize(
    ("text", "mean", "cv"),
    [
        ("1000", 1000, 0.0),
        ("uniform:500:1500", 1000, 1000 / 12**0.5 / 1000),
        ("500:1500", 1000, 1000 / 12**0.5 / 1000),
        ("lognormal:1000:0.6", 1000, 0.6),
        ("1000,p95=2000", 1000, 0.536),
    ],
)
def test_lengths_have_their_mean_and_spread(text: str, mean: float, cv: float) -> None:
    drawn = lengths(text, "input").draw(np.random.default_rng(2), COUNT)
    assert drawn.min() >= 1
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, abs=0.02)


def test_a_95th_percentile_is_where_it_was_asked() -> None:
    drawn = lengths("1000,p95=3000", "input").draw(np.random.default_rng(3), COUNT)
    assert np.quantile(drawn, 0.95) == pytest.approx(3000, rel=0.03)


def test_a_seed_fixes_the_requests_and_each_part_has_its_own_stream() -> None:
    first, again = made(seed=5).requests(), made(seed=5).requests()
    assert first.arrival_s.tolist() == again.arrival_s.tolist()
    assert first.arrival_s.tolist() != made(seed=6).requests().arrival_s.tolist()
    longer = made(seed=5, input_tokens=lengths("uniform:1:9", "input")).requests()
    assert longer.arrival_s.tolist() == first.arrival_s.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("many", "is no length; write 1000"),
        ("0", "from 1 to 10,000,000"),
        ("-5", "is no length"),
        ("uniform:9:3", "the least is larger than the most"),
        ("normal:100:3", "is no length"),
        ("lognormal:100", "is no length"),
        ("lognormal:nan:1", "is no length"),
        ("1000,p95=500", "between the mean"),
    ],
)
def test_bad_lengths(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        lengths(text, "input")


def test_bad_traffic() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UnknownNameError, match="did you mean 'poisson'"):
        arrivals("poison", 1.0, 5, rng)
    for rate, cv in [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0)]:
        with pytest.raises(InputError, match="rate and cv must be positive"):
            arrivals("gamma", rate, 5, rng, cv)
    with pytest.raises(InputError, match="requests must be at least 1"):
        made(count=0).requests()
    with pytest.raises(InputError, match="seed"):
        made(seed=-1).requests()


ROWS = [(0.0, 10, 5), (1.5, 20, 6)]


def test_csv_json_lines_and_gzip_hold_the_same(tmp_path: Path) -> None:
    text = "output_tokens,arrival_s,note,input_tokens\n" + "".join(
        f"{reply},{time},x,{prompt}\n" for time, prompt, reply in ROWS
    )
    lines = "\n".join(
        json.dumps({"arrival_s": t, "input_tokens": p, "output_tokens": r}) for t, p, r in ROWS
    )
    (tmp_path / "a.csv").write_text("\ufeff" + text)
    (tmp_path / "b.jsonl").write_text(lines + "\n\n")
    with gzip.open(tmp_path / "c.csv.gz", "wt") as file:
        file.write(text)
    for name in ("a.csv", "b.jsonl", "c.csv.gz"):
        trace = read_trace(tmp_path / name)
        found = zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True)
        assert [(float(t), int(p), int(r)) for t, p, r in found] == ROWS


def test_an_engines_own_log_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("request_id,input_tokens,output_tokens,queued_s,first_token_s\na,7,2,0.5,0.9\n")
    assert read_trace(path).arrival_s.tolist() == [0.5]


HEADER = "arrival_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "t.csv",
            "",
            "header: needs the columns arrival_s, input_tokens, output_tokens; it is empty",
        ),
        ("t.csv", "time,in,out\n0,1,1\n", "it has time, in, out"),
        ("t.csv", HEADER, "holds no request"),
        ("t.csv", HEADER + "0,ten,1\n", "line 2: input_tokens must be a number, not 'ten'"),
        ("t.csv", HEADER + "0,10\n", "line 2: output_tokens is missing"),
        (
            "t.csv",
            HEADER + "0,10,0\n",
            "request 0: output_tokens must be a whole number of at least 1",
        ),
        ("t.csv", HEADER + "0,nan,1\n", "request 0: input_tokens must be a whole number"),
        ("t.csv", HEADER + "2,10,1\n1,10,1\n", "sort the trace by arrival_s"),
        ("t.csv", HEADER + "-2,10,1\n", "arrival_s must be at least 0, not -2"),
        ("t.jsonl", "{]\n", "line 1: is no JSON"),
        ("t.jsonl", "[1]\n", "line 1: must be an object"),
        (
            "t.jsonl",
            '{"arrival_s": true, "input_tokens": 1, "output_tokens": 1}',
            "must be a number",
        ),
        ("t.jsonl", '{"arrival_s": 0, "input_tokens": 1}', "output_tokens is missing"),
        ("t.csv.gz", "not gzip", "cannot be read"),
    ],
)
def test_bad_traces_are_named(tmp_path: Path, name: str, content: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert words in str(caught.value)


def test_a_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="No such file"):
        read_trace(tmp_path / "none.csv")
