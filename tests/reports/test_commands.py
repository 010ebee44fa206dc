"""What the commands print: whole texts for people, exact keys for programs."""

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest

from roofcast.reports import cli, units
from roofcast.simulator.tables import COLUMNS

CONTRACT = """
device engine profile model devices batch context step_time_s step_time_low_s step_time_high_s
tokens_per_s tokens_per_s_per_user tokens_per_s_per_device flops hbm_bytes weight_bytes kv_read_bytes
kv_write_bytes arithmetic_intensity bound mbu mfu memory_bytes fits
"""

# Llama-3.1-8B in bf16: every parameter but the embedding table and the norms is read once a step.
READ_BYTES = 2 * (8_030_261_248 - 128_256 * 4096 - 65 * 4096)
# 32 layers x 2 x 8 heads x 128 x 2 bytes.
KV_BYTES = 131_072


def predict(roofcast, llama, *options) -> list[dict]:
    status, out, err = roofcast("predict", llama, "-d", "h100-sxm", *options, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_predict_gives_the_columns_of_the_contract(roofcast, llama):
    rows = predict(roofcast, llama, "--batch", "1,8", "--context", "1024,8192")
    assert list(COLUMNS) == CONTRACT.split()
    assert [list(row) for row in rows] == [CONTRACT.split()] * 4
    points = [(row["batch"], row["context"]) for row in rows]
    assert points == [(1, 1024), (1, 8192), (8, 1024), (8, 8192)]
    assert rows[0]["device"] == "h100-sxm-80gb"
    assert rows[0]["fits"] is True


def test_predict_moves_the_bytes_counted_by_hand(roofcast, llama):
    row = predict(roofcast, llama, "--engine", "ideal", "--batch", "8", "--context", "1000")[0]
    assert row["weight_bytes"] == pytest.approx(READ_BYTES, rel=1e-4)
    assert row["kv_read_bytes"] == pytest.approx(8 * 1001 * KV_BYTES, rel=2e-3)
    assert row["kv_write_bytes"] == 8 * KV_BYTES
    # At the floor a memory-bound step lasts its bytes over 3.35 TB/s.
    assert row["bound"] == "memory"
    assert row["step_time_s"] == pytest.approx(row["hbm_bytes"] / 3.35e12, rel=1e-9)
    assert row["mbu"] == pytest.approx(1.0)
    assert row["tokens_per_s"] == pytest.approx(8 / row["step_time_s"])
    assert row["tokens_per_s_per_user"] == pytest.approx(1 / row["step_time_s"])


def test_predict_per_device_divides_by_the_replica(roofcast, llama):
    row = predict(roofcast, llama, "--tp", "4")[0]
    assert row["devices"] == 4
    assert row["tokens_per_s_per_device"] == pytest.approx(row["tokens_per_s"] / 4)


def test_csv_holds_the_same_as_json(roofcast, llama, tmp_path):
    rows = predict(roofcast, llama, "--batch", "1:4")
    assert roofcast("predict", llama, "-d", "h100-sxm", "-b", "1:4", "--csv", "out.csv")[0] == 0
    _, printed, _ = roofcast("predict", llama, "-d", "h100-sxm", "-b", "1:4", "--csv", "-")
    text = (tmp_path / "out.csv").read_text()
    assert text == printed
    read = list(csv.DictReader(io.StringIO(text)))
    assert [row["batch"] for row in read] == ["1", "2", "4"]
    assert [float(row["step_time_s"]) for row in read] == [row["step_time_s"] for row in rows]


def test_a_band_that_is_unknown_is_null(roofcast, llama, profile_file, tmp_path):
    with open(profile_file) as file:
        document = json.load(file)
    document["band"] = None
    (tmp_path / "bare.json").write_text(json.dumps(document))
    row = predict(roofcast, llama, "--profile", "bare.json")[0]
    assert row["step_time_low_s"] is None
    assert row["step_time_high_s"] is None


PREDICTED = """\
llama on NVIDIA H100 SXM5 80GB (h100-sxm-80gb), 1 device, bf16 weights, bf16 cache
Profile: ideal, the physical floor (every roof reached, no overhead).
Error: a floor has no error band; real engines take longer.

batch  context     step  tok/s  /user  /device  bound     MBU     MFU   memory  fits
    1    1,024  4.52 ms    221    221      221  memory  100 %  0.35 %  {0}  yes
    8    1,024  4.83 ms  1,657    207    1,657  memory  100 %   2.6 %  {1}  yes

Batch 1, context 1,024 is memory-bound: 99.0 % reading weights.
Batch 8, context 1,024 is memory-bound: 93 % reading weights, 6.7 % the KV cache.
At context 1,024, batching pays up to about 100, where the KV cache takes over; memory holds {2}.
"""


def test_predict_for_people(roofcast, llama):
    status, out, err = roofcast("predict", llama, "-d", "h100-sxm", "-e", "ideal", "-b", "1,8")
    assert (status, err) == (0, "")
    # How much memory an engine plans with is tested elsewhere.
    memory = [
        units.data(row["memory_bytes"])
        for row in predict(roofcast, llama, "-e", "ideal", "-b", "1,8")
    ]
    holds = re.search(r"memory holds ([\d,]+)", out)
    assert out == PREDICTED.format(*memory, holds and holds[1])


def test_predict_says_which_profile_and_how_far_to_trust_it(roofcast, llama, profile_file):
    _, out, _ = roofcast("predict", llama, "-d", "h100-sxm", "-p", profile_file, "-b", "1,128")
    lines = out.splitlines()
    assert lines[1] == "Profile: h100-test (vllm), made 2026-01-31: made for a test."
    assert lines[2] == (
        "Error: median 5.0 %, p90 11 % on 40 runs it had not seen (leave-one-model-out); "
        "80 % band −9.5 % to +22 % (80 % of 40 decode runs)."
    )
    assert lines[-1] == (
        "1 of 2 points lie outside what the profile was measured on "
        "(batch 1 to 64, context 128 to 8k): extrapolated."
    )
    table = [line for line in lines if line.strip().startswith(("1  ", "128  "))]
    assert [line.endswith("extrapolated") for line in table] == [False, True]


def test_a_profile_of_older_versions_names_todays(roofcast, llama):
    """The public runs on MI300X are of 2024; what vLLM does today is lent by relatives."""
    assert "--engine vllm forecasts today's" in roofcast("predict", llama, "-d", "mi300x")[1]
    assert "forecasts today's" not in roofcast("predict", llama, "-d", "h100-sxm")[1]


def test_a_profile_of_another_device_is_used_and_noted(roofcast, llama, profile_file):
    _, out, _ = roofcast("predict", llama, "-d", "h200-sxm", "-p", profile_file)
    assert "Note: h100.json was measured on h100-sxm-80gb, not on h200-sxm" in out


MODEL = """\
llama
family           llama
parameters       8.03 B (8,030,261,248)
weights          16.1 GB, bf16
cache per token  131 kB, bf16
layers           32: 32 full_attention+dense
longest context  131,072 tokens

part        parameters     held  read at batch 1  stored as
embeddings       525 M  1.05 GB          8.19 kB  bf16
attention       1.34 B  2.68 GB          2.68 GB  bf16
mlp             5.64 B  11.3 GB          11.3 GB  bf16
norms          266,240   532 kB           532 kB  bf16
lm head          525 M  1.05 GB          1.05 GB  bf16

One step at batch 8, context 1,024 takes 124 GFLOP and moves 16.2 GB: 15.0 GB of weights, 1.07 GB of \
cache (bf16) read, 1.05 MB written.
A sequence of 1,024 tokens keeps 134 MB (bf16); paged as vLLM does, it holds 134 MB.
"""


def test_model_for_people(roofcast, llama):
    assert roofcast("model", llama, "--batch", "8") == (0, MODEL, "")


def test_model_gives_the_keys_of_the_contract(roofcast, llama):
    facts = json.loads(roofcast("model", llama, "--json", "--kv-dtype", "fp8")[1])
    assert facts["parameters"] == facts["active_parameters"] == 8_030_261_248
    assert facts["weight_bytes"] == 2 * 8_030_261_248
    assert facts["kv_bytes_per_token"] == facts["kv_bytes_per_token_beyond_windows"] == KV_BYTES / 2
    assert facts["state_bytes_per_sequence"] == 0
    assert sum(facts["layers"].values()) == 32
    assert "step" not in facts


def test_bundled_models_are_listed_and_found_by_name(roofcast, llama):
    _, out, _ = roofcast("model")
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert {"llama-3.1-8b", "llama-3.1-70b", "smollm2-360m", "mixtral-8x7b"} <= set(names)
    assert [each["model"] for each in json.loads(roofcast("model", "--json")[1])] == names
    bundled = json.loads(roofcast("model", "Llama-3.1-8B", "--json")[1])
    own = json.loads(roofcast("model", llama, "--json")[1])
    assert {**bundled, "model": "llama"} == own


def test_calibrate_gives_the_keys_of_the_contract(roofcast, calibration, monkeypatch):
    from roofcast.reports.commands import calibrate

    monkeypatch.setattr(calibrate, "measure", lambda *arguments, **options: calibration)
    document = json.loads(roofcast("calibrate", "--json")[1])
    assert list(document) == ["profile", "device", "held_out", "warnings"]
    assert list(document["held_out"]) == ["runs", "median_ape", "p90_ape", "signed_median"]
    assert document["profile"] == str(calibration.path)
    _, out, _ = roofcast("calibrate")
    assert f"the profile is {calibration.path}," in out
    errors = f"{100 * document['held_out']['median_ape']:.2g} %"
    assert errors in next(line for line in out.splitlines() if line.startswith("held-out models"))


def test_a_calibration_is_shown(roofcast, calibration):
    status, out, _ = roofcast("calibrate", "show", calibration.path)
    assert status == 0
    assert "threads 2.0" in out
    assert re.search(r"^leave-one-model-out +\d+ +[\d.]+ % ", out, re.MULTILINE)
    assert re.search(r"^host\.layer_s +[\d.e-]+ +s +", out, re.MULTILINE)


def test_a_device_with_its_sources(roofcast):
    status, out, _ = roofcast("device", "H100 SXM")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "NVIDIA H100 SXM5 80GB (h100-sxm-80gb)"
    assert any(
        line.split() == ["memory", "bandwidth", "3.35", "TB/s", "primary", "[1]"] for line in lines
    )
    assert any(line.startswith("[1] NVIDIA H100") for line in lines)


def test_the_catalogue_has_a_row_a_device(roofcast):
    listed = json.loads(roofcast("device", "--json")[1])
    _, out, _ = roofcast("device")
    lines = out.splitlines()
    assert len(listed) >= 90
    assert [line.split()[0] for line in lines[1 : len(listed) + 1]] == [
        each["id"] for each in listed
    ]
    for each in listed:
        for number in each["numbers"].values():
            assert number["source"]
            assert number["confidence"]


def test_the_attached_device(roofcast):
    found = json.loads(roofcast("device", "cpu", "--json")[1])
    assert found["kind"] == "cpu"
    assert found["numbers"]["compute_units"]["value"] >= 1


def test_profiles_are_listed_and_shown(roofcast, profile_file, tmp_path):
    own = tmp_path / "profiles" / "h100-sxm-80gb.vllm.json"
    own.parent.mkdir()
    shutil.copy(profile_file, own)
    _, out, _ = roofcast("profile", "list")
    assert out.splitlines()[1].split() == [
        *("h100-sxm-80gb", "vllm", "own", "2026-01-31", "5.0", "%", "made", "for", "a", "test"),
    ]
    assert roofcast("profile")[1] == out
    _, shown, _ = roofcast("profile", "show", "h100-sxm-80gb.vllm")
    assert ["host.step_s", "0.0005", "s", "0.01", "fitted"] in [
        line.split() for line in shown.splitlines()
    ]
    assert json.loads(roofcast("profile", "show", own, "--json")[1])["name"] == "h100-test"


def test_an_own_profile_is_what_predict_uses(roofcast, llama, profile_file, tmp_path):
    own = tmp_path / "profiles" / "h100-sxm-80gb.vllm.json"
    own.parent.mkdir()
    shutil.copy(profile_file, own)
    assert predict(roofcast, llama)[0]["profile"] == "h100-test"


def test_decode_adds_up(roofcast, llama):
    status, out, _ = roofcast(
        "decode", llama, "-d", "h100-sxm", "-e", "ideal", "--output", "5", "-b", "2", "--json"
    )
    reply = json.loads(out)
    assert status == 0
    assert reply["output_tokens"] == 5
    assert len(reply["itl_s"]) == 4
    assert reply["total_s"] == pytest.approx(reply["ttft_s"] + sum(reply["itl_s"]))
    assert reply["tokens_per_s"] == pytest.approx(10 / reply["total_s"])
    assert sum(reply["decode_shares"].values()) == pytest.approx(1)
    # Each step reads one token more of each of the two caches.
    growth = [
        later - earlier for earlier, later in zip(reply["itl_s"], reply["itl_s"][1:], strict=False)
    ]
    assert growth == pytest.approx(np.full(3, 2 * KV_BYTES / 3.35e12), rel=0.05)


def test_decode_for_people(roofcast, llama):
    _, out, _ = roofcast("decode", llama, "-d", "h100-sxm", "-e", "ideal", "--output", "3")
    lines = out.splitlines()
    assert lines[4].startswith("First token after ")
    assert [line.split()[:2] for line in lines[7:10]] == [
        ["token", "cache"],
        ["2", "1,000"],
        ["3", "1,001"],
    ]
    assert lines[-1].startswith("The last of 3 tokens after ")


def test_help_lists_every_command_with_examples(roofcast):
    status, out, err = roofcast("--help")
    assert (status, err) == (0, "")
    assert roofcast() == (0, out, "")
    for command, line in cli.COMMANDS.items():
        assert f"  {command}" in out
        assert line.split()[0] in out
        status, text, _ = roofcast(command, "--help")
        assert status == 0
        assert f"roofcast {command}" in text.split("Examples:")[1]
        assert "--json" in text or command in ("profile", "report")


def test_version(roofcast):
    status, out, _ = roofcast("--version")
    assert (status, out.split()[0]) == (0, "roofcast")
