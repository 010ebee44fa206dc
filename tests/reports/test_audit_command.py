"""`roofcast audit`: contract keys, texts for people, before and after, and bad input."""

import json
import shutil
from pathlib import Path

import pytest

from roofcast.reports import audit_rows

DATA = Path(__file__).parents[1] / "data" / "benchmark_files"

CONTRACT = """
file batch input_tokens output_tokens tpot_s ttft_s output_tokens_per_s floor_step_time_s
forecast_step_time_s mbu mfu flags suspects
"""


@pytest.fixture
def audit(roofcast, llama):
    """Run the command on files of the data folder under the ideal profile, or as said."""

    def call(*files, model=llama, device="h100-sxm", options=("--profile", "ideal")):
        paths = [DATA / name for name in files]
        return roofcast("audit", *paths, "-m", model, "-d", device, *options)

    return call


def rows(result) -> list[dict]:
    status, out, err = result
    assert (status, err) == (0, "")
    return json.loads(out)


def test_the_keys_of_the_contract(audit):
    (row,) = rows(audit("vllm_serve.json", options=("--profile", "ideal", "--json", "--tp", "1")))
    assert list(audit_rows.COLUMNS) == CONTRACT.split()
    assert list(row)[: len(CONTRACT.split())] == CONTRACT.split()
    assert row["batch"] == pytest.approx(4)
    assert row["tpot_s"] == pytest.approx(0.02)
    assert row["output_tokens_per_s"] == pytest.approx(101 * 4 / 2.08)
    # 3.85 sequences decode: 15.0 GB of weights and their caches over 3.35 TB/s.
    weights = 2 * (8_030_261_248 - 128_256 * 4096 - 65 * 4096)
    least = (weights + 4 * 2 / 2.08 * 564 * 131_072) / 3.35e12
    assert row["floor_step_time_s"] == pytest.approx(least, rel=2e-3)
    assert row["mbu"] == pytest.approx(row["floor_step_time_s"] / 0.02, rel=0.01)
    assert sum(row["waterfall_s"].values()) == pytest.approx(row["step_time_s"])
    assert row["sources"]["tpot_s"] == "mean_tpot_ms"
    assert "contradiction" in row["flags"]  # the file says TP 2
    assert all(isinstance(words, str) for words in row["suspects"])


def test_several_files_and_runs(audit):
    found = rows(
        audit(
            "vllm_serve_appended.json",
            "llama_bench.json",
            options=("--json", "--profile", "ideal"),
        )
    )
    assert [row["format"] for row in found] == ["vLLM bench serve"] * 2 + ["llama-bench"] * 2
    assert [row["where"] for row in found] == ["object 1", "object 2", "[1]", "[2]"]


@pytest.mark.parametrize(
    "name", [path.name for path in sorted(DATA.iterdir()) if path.name != "README.md"]
)
def test_every_format_is_audited(audit, name):
    status, out, err = audit(name)
    assert (status, err) == (0, "")
    assert name in out
    for row in rows(audit(name, options=("--json", "--profile", "ideal"))):
        assert set(CONTRACT.split()) <= set(row)


SHOWN = """\
llama on NVIDIA H100 SXM5 80GB (h100-sxm-80gb), 1 device, bf16 weights, bf16 cache
Profile: ideal, the physical floor (every roof reached, no overhead).
Assumed: weights as the model's config stores them (--weight-dtype), one device (--tp), \
bf16 cache, the model's own (--kv-dtype).
Batch: a fixed batch, started together (batch_size).

          batch  decoding  input  output  measured    floor  forecast   MBU     MFU  tok/s
object 1      4         4    512     101   20.0 ms  4.57 ms   4.58 ms  23 %  0.31 %    200  slow
object 2      4         4    512     101   20.0 ms  4.57 ms   4.58 ms  23 %  0.31 %    200  slow
"""


def test_for_people(audit):
    status, out, _ = audit("sglang_one_batch.jsonl")
    lines = out.splitlines()
    assert status == 0
    assert lines[0].endswith("sglang_one_batch.jsonl: SGLang bench_one_batch")
    assert "\n".join(lines[1:9]) + "\n" == SHOWN
    assert lines[10] == "object 1:"
    assert lines[11] == "Slower than the forecast's interval."
    assert lines[12].startswith("Time: 4.4")
    assert lines[13].startswith("1. Eager kernels rather than replayed graphs: 15.4 ms a step")


def test_a_sidecar_stands_in_for_options(roofcast, llama, workplace):
    shutil.copy(DATA / "vllm_serve.json", workplace / "run.json")
    status, out, err = roofcast("audit", "run.json", "--json")
    assert (status, out) == (2, "")
    assert "give --model and --device" in err
    (workplace / "run.conditions.toml").write_text(
        f'model = "{llama}"\ndevice = "h100-sxm"\ntp = 2\nkv_dtype = "fp8"\n'
    )
    (row,) = rows(roofcast("audit", "run.json", "--json", "--profile", "ideal"))
    assert (row["devices"], row["kv_dtype"]) == (2, "fp8")
    (row,) = rows(roofcast("audit", "run.json", "--json", "--profile", "ideal", "--tp", "1"))
    assert row["devices"] == 1


def test_lengths_by_option(roofcast, llama, workplace):
    shutil.copy(DATA / "vllm_latency.json", workplace / "latency.json")
    given = ("audit", "latency.json", "-m", llama, "-d", "h100-sxm", "--profile", "ideal")
    _, out, _ = roofcast(*given)
    assert "give --batch --input --output" in out
    sizes = ("--batch", "4", "--input", "512", "--output", "101")
    (row,) = rows(roofcast(*given, *sizes, "--json"))
    assert row["step_time_s"] == pytest.approx((2.08 - 0.033) / 100, rel=0.05)


def test_a_table_of_points_needs_no_options(roofcast):
    found = rows(roofcast("audit", DATA / "points.csv", "--json", "--profile", "ideal"))
    assert len(found) == 7
    assert "cut_short" in found[2]["flags"]
    assert found[4]["reason"].startswith("unknown model 'no-such-model'")
    status, out, _ = roofcast("audit", DATA / "points.csv", "--judge", "--profile", "ideal")
    assert status == 0
    assert "Recall 100 % (2 of 2)" in out
    assert "Precision 67 % (2 of 3)" in out


def test_before_and_after(roofcast, llama, workplace):
    document = json.loads((DATA / "vllm_serve.json").read_text())
    for name, tpot in (("old", 20.0), ("new", 12.0)):
        (workplace / f"{name}.json").write_text(json.dumps({**document, "mean_tpot_ms": tpot}))
    where = ("-m", llama, "-d", "h100-sxm", "--profile", "ideal")
    (row,) = rows(roofcast("audit", "old.json", "new.json", "--change", "fp8-kv", *where, "--json"))
    assert row["gain"] == pytest.approx(20 / 12 - 1)
    assert row["verdict"] == "not possible by this change alone"
    assert row["available_gain"] < row["possible_gain"] < 0.02
    again = rows(
        roofcast(
            *("audit", "new.json", "--before", "old.json", "--change", "kv=fp8"), *where, "--json"
        )
    )
    assert again == [row]
    _, out, _ = roofcast("audit", "old.json", "new.json", "--change", "graphs", *where)
    assert out.splitlines()[0].split()[-5:] == ["available", "at", "most", "reached", "verdict"]
    assert "Consistent: replayed graphs can save up to" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--change", "kv=fp8"), "needs two results, before and after, not 1"),
        (("--before", "x.json"), "--before needs --change"),
        (("--change", "magic", "--before", DATA / "vllm_serve.json"), "unknown change 'magic'"),
        (("--tp", "0"), "--tp"),
        (("--kv-dtype", "fp9"), "fp9"),
        (("--figure", "x.png/y"), ""),
    ],
)
def test_bad_options(roofcast, llama, options, said):
    result = roofcast("audit", DATA / "vllm_serve.json", "-m", llama, "-d", "h100-sxm", *options)
    if said:
        assert result[0] == 2
        assert result[2].count("\n") == 1
        assert said in result[2]


def test_bad_files(roofcast, llama, workplace):
    (workplace / "odd.json").write_text('{"speed": 1}')
    (workplace / "cut.json").write_text((DATA / "vllm_serve.json").read_text()[:99])
    for name, said in (
        ("none.json", "no such file"),
        ("odd.json", "looked for"),
        ("cut.json", "cut"),
    ):
        status, out, err = roofcast("audit", name, "-m", llama, "-d", "h100-sxm")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert said in err


def test_a_hostile_file_cannot_steer_the_terminal_or_leave_the_folder(roofcast, llama, workplace):
    document = json.loads((DATA / "vllm_serve.json").read_text())
    hostile = "\x1b]0;owned\x07\x1b[2J../../../etc/passwd\u202e\x9b5m"
    document.update(model_id=hostile, backend=hostile, date=hostile, tensor_parallel_size=hostile)
    name = "bad\x1b[31m.json"
    (workplace / name).write_text(json.dumps(document))
    before = {path.name for path in workplace.iterdir()}
    for options in ((), ("--json",), ("--figure", "drawn")):
        status, out, err = roofcast(
            *("audit", name, "-m", llama, "-d", "h100-sxm", "--profile", "ideal"), *options
        )
        assert status == 0
        shown = (out + err).replace("\n", "")
        assert shown.isprintable()
    _, _, err = roofcast("audit", name)
    assert err.replace("\n", "").isprintable()
    assert {path.name for path in workplace.iterdir()} - before == {"drawn.png", "drawn.svg"}
