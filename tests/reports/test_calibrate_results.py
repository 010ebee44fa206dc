"""`roofcast calibrate serving` on the result files of benchmarks."""

import json

import pytest

from roofcast.simulator.api import setup

BATCHES, INPUTS, SLOWER = (1, 2, 4, 8, 16, 32, 64), (256, 1024, 4096), 1.1


@pytest.fixture
def results(tmp_path):
    """Runs of SGLang's bench_one_batch that are a tenth slower than the shipped forecast."""
    where = setup("llama-3.1-8b", "h100-sxm", engine="sglang")
    lines = []
    for batch in BATCHES:
        for tokens in INPUTS:
            step_s = SLOWER * float(where.decode(batch, tokens + 50).step_time_s)
            lines.append(
                {
                    "run_name": "default",
                    "batch_size": batch,
                    "input_len": tokens,
                    "output_len": 101,
                    "prefill_latency": 0.08,
                    "prefill_throughput": batch * tokens / 0.08,
                    "median_decode_latency": step_s,
                    "median_decode_throughput": batch / step_s,
                    "total_latency": 0.08 + 100 * step_s,
                    "overall_throughput": batch * (tokens + 101) / (0.08 + 100 * step_s),
                }
            )
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


CONDITIONS = ("-m", "llama-3.1-8b", "-d", "h100-sxm", "-e", "sglang")


def test_own_results_calibrate_the_device_they_ran_on(roofcast, results, tmp_path):
    out = tmp_path / "fitted"
    status, printed, _ = roofcast("calibrate", "serving", results, *CONDITIONS, "--out", out)
    assert status == 0
    assert "1 profile written" in printed
    (profile,) = out.iterdir()
    assert profile.name == "h100-sxm-80gb.sglang.json"
    given = setup("llama-3.1-8b", "h100-sxm", engine="sglang").decode(8, 1074)
    fitted = setup("llama-3.1-8b", "h100-sxm", profile=profile).decode(8, 1074)
    assert float(fitted.step_time_s / given.step_time_s) == pytest.approx(SLOWER, abs=0.04)


def test_what_the_file_does_not_hold_is_asked_for(roofcast, results):
    status, out, err = roofcast("calibrate", "serving", results)
    assert (status, out) == (2, "")
    assert "give --model and --device" in err
    assert err.count("\n") == 1
