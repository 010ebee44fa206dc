"""Bad input of every kind: one line on standard error that says what to do, exit status 2."""

import json

import pytest

from roofcast.reports.cli import INTERRUPTED
from tests.reports.conftest import LLAMA_8B


def refused(result: tuple[int, str, str], *said: str) -> None:
    status, out, err = result
    assert status == 2, (out, err)
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("roofcast: ")
    for text in said:
        assert text in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-d", "h1000-sxm"), ("unknown device 'h1000-sxm'", "did you mean", "'H100 SXM'")),
        (("-d", "A100"), ("ambiguous device 'A100'", "a100-pcie-40gb", "a100-sxm-80gb")),
        (("--batch", "0"), ("batch", "at least 1", "not 0")),
        (("--batch", "1,x"), ("batch 'x'", "1,8,64")),
        (("--batch", "1:9000:+1", "--context", "1:9000:+1"), ("9,000 batches x 9,000 contexts",)),
        (("--batch", "9" * 400), ("is not a whole number",)),
        (("--context", "131072"), ("131073", "131072 that llama allows")),
        (("--tp", "0"), ("tensor parallelism", "at least 1", "not 0")),
        (("--tp", "many"), ("'--tp'", "integer")),
        (("--batchs", "1"), ("unknown option '--batchs'", "did you mean '--batch'")),
        (("--engine", "vllmm", "--profile", "none.json"), ("none.json",)),
        (("--weight-dtype", "fp9"), ("'fp9'", "fp8")),
        (("--kv-dtype", "fp9"), ("'fp9'", "fp8")),
        (("--json", "--csv", "out.csv"), ("--json or --csv",)),
        (("--csv", "llama.json/out.csv"), ("cannot write llama.json/out.csv",)),
    ],
)
def test_a_bad_option_of_predict(roofcast, llama, options, said):
    device = () if "-d" in options else ("-d", "h100-sxm")
    refused(roofcast("predict", llama, *device, *options), *said)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.json", None, ("missing.json", "no such file")),
        ("cut.json", json.dumps(LLAMA_8B)[:200], ("cut.json", "JSON")),
        ("list.json", "[1, 2]", ("list.json",)),
        (
            "new.json",
            json.dumps({**LLAMA_8B, "model_type": "lama", "architectures": ["LamaForCausalLM"]}),
            ("new: ", "'lama'", "did you mean 'llama'"),
        ),
    ],
)
def test_a_bad_config(roofcast, tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    refused(roofcast("predict", name, "-d", "h100-sxm"), *said)
    refused(roofcast("model", name), *said)


def test_a_folder_without_config(roofcast, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(roofcast("model", "empty"), "config.json", "no such file")


def test_an_unknown_model(roofcast):
    refused(roofcast("model", "no-such-model"), "unknown model 'no-such-model'")


def test_a_profile_of_another_schema(roofcast, llama, profile_file):
    with open(profile_file) as file:
        document = json.load(file)
    document["schema_version"] = 99
    with open(profile_file, "w") as file:
        json.dump(document, file)
    refused(
        roofcast("predict", llama, "-d", "h100-sxm", "--profile", profile_file),
        "schema version 99",
        "recalibrate",
    )


def test_a_truncated_profile(roofcast, llama, tmp_path):
    (tmp_path / "cut.json").write_text('{"schema_version": 1, "name": "x"')
    refused(
        roofcast("predict", llama, "-d", "h100-sxm", "--profile", "cut.json"), "cut.json", "JSON"
    )


def test_a_device_spec_with_a_misspelt_key(roofcast, llama, tmp_path):
    spec = 'id = "x"\nname = "X"\nvendor = "V"\nkind = "gpu"\n[memory]\nbandwith_gb_per_s = 1\n'
    (tmp_path / "x.toml").write_text(spec)
    refused(
        roofcast("predict", llama, "-d", "x.toml"), "x.toml", "did you mean 'bandwidth_gb_per_s'"
    )


def test_an_unmeasured_machine(roofcast, llama):
    refused(roofcast("predict", llama, "-d", "cpu"), "roofcast calibrate")


@pytest.mark.parametrize(
    ("command", "said"),
    [("predcit", "'predict'"), ("Predict", "'predict'"), ("", "`roofcast --help`")],
)
def test_an_unknown_command(roofcast, command, said):
    refused(roofcast(command), f"unknown command {command!r}", said)


def test_a_missing_argument(roofcast):
    refused(roofcast("predict"), "missing argument 'MODEL'", "`roofcast predict --help`")


def test_a_reply_of_nothing(roofcast, llama):
    refused(roofcast("decode", llama, "-d", "h100-sxm", "--output", "0"), "at least 1 token, not 0")
    refused(
        roofcast("decode", llama, "-d", "h100-sxm", "--prompt", "131072", "--output", "2"), "131072"
    )


def test_an_interrupted_calibration_says_what_is_kept(roofcast, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    from roofcast.calibrate import bench, calibration
    from roofcast.calibrate.samples import Measurement

    def measure(ready, plan, scale, journal, listener):
        journal.add(Measurement("gemm", {"rows": 1}, (1e-3, 2e-3)))
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "make_bench", lambda device: None)
    monkeypatch.setattr(calibration, "_measure", measure)
    status, out, err = roofcast("calibrate", "--device", "cpu", "--quick", "--out", "mine.json")
    assert (status, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("roofcast: interrupted: 1 measurements are kept in ")
    assert "--resume" in last
    kept = (tmp_path / "mine.samples.jsonl").read_text()
    assert "0.001" in kept
    assert not (tmp_path / "mine.json").exists()


def test_an_interruption_elsewhere(roofcast, monkeypatch, llama):
    from roofcast.reports.commands import predict

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(predict, "setup", interrupted)
    status, out, err = roofcast("predict", llama)
    assert (status, out) == (INTERRUPTED, "")
    assert err == "roofcast: interrupted; files are complete or absent, never partial\n"
