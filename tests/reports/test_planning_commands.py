"""`roofcast memory`, `plan` and `compare`: what they print, keep, draw and refuse."""

import json
import tomllib

import numpy as np
import pytest

from roofcast.hardware.catalog import find
from roofcast.reports.figures import compare_pages
from roofcast.reports.figures.sheet import save
from roofcast.simulator import setup
from roofcast.simulator.comparison import contender, tensor_curve, tradeoff
from roofcast.simulator.planning import scenario
from roofcast.simulator.planning.prices import Power, Price

FLOOR = ("-p", "ideal")
CHAT = ("--rate", "20", "--input", "1000", "--output", "200")

MEMORY = """\
llama on NVIDIA GeForce RTX 4090 (rtx-4090), 1 device, bf16 weights, bf16 cache
The fullest rank under vllm at batch 1, context 8,192, 2,048 tokens a step:

line                bytes            why
weights, sharded  16.1 GB  computed  tensors cut over ranks: TP 1, EP 1, PP 1
KV cache          1.08 GB  computed  bf16, pages of 16 tokens, windows: pages
activations        210 MB  computed  the largest layer at 2,048 tokens a step
logits            1.01 GB  assumed   sampling 256 sequences, beyond what activations leave
graphs             540 MB  assumed   captured steps, outside the engine's share
context            100 MB  assumed   driver, kernels, allocator

18.5 GB of the usable 22.9 GB (90 % of 25.4 GB): it fits.
At context 8,192 5 sequences fit at once; KV cache binds.
At batch 1 contexts of up to 41,791 tokens fit; KV cache binds.
"""


def test_memory_for_people(roofcast, llama):
    status, out, err = roofcast("memory", llama, "-d", "rtx-4090")
    assert (status, err) == (0, "")
    assert out.startswith(MEMORY)
    assert "Assumed lines, until a start-up log replaces them (--log):" in out
    assert "  logits: start-up logs: 1.19 to 1.26 GiB for Llama-3-8B" in out


def test_memory_adds_up(roofcast, llama):
    found = json.loads(
        roofcast("memory", llama, "-d", "h100-sxm", "--tp", "2", "-b", "8", "--json")[1]
    )
    assert sum(line["bytes"] for line in found["lines"]) == pytest.approx(found["total_bytes"])
    inside = sum(line["bytes"] for line in found["lines"] if line["inside_share"])
    cache = sum(line["bytes"] for line in found["lines"] if line["name"] == "KV cache")
    assert found["cache_room_bytes"] == pytest.approx(found["usable_bytes"] - inside + cache)
    assert cache == 8 * 8208 * 131_072 / 2  # 8193 tokens in pages of 16, half of the KV heads
    assert found["devices"] == 2


def test_memory_takes_a_start_up_log(roofcast, llama, tmp_path):
    log = tmp_path / "vllm.log"
    log.write_text(
        "INFO total_gpu_memory (22.07GiB) x gpu_memory_utilization (0.90) = 19.86GiB\n"
        "INFO model weights take 14.99GiB; non_torch_memory takes 0.05GiB; PyTorch activation peak "
        "memory takes 0.22GiB; the rest of the memory reserved for KV Cache is 4.60GiB.\n"
    )
    found = json.loads(roofcast("memory", llama, "-d", "a10g", "--log", log, "--json")[1])
    lines = {line["name"]: line["origin"] for line in found["lines"]}
    assert lines["weights, sharded"] == lines["activations"] == lines["context"] == "measured"
    assert found["longest_context"] == pytest.approx(2356 * 16, abs=32)  # "# CUDA blocks: 2356"


def test_memory_notes_what_engines_refuse(roofcast, llama):
    _, out, _ = roofcast("memory", llama, "-d", "h100-sxm", "--tp", "3")
    assert "Note: TP 3 does not divide the 32 attention heads; engines refuse that" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--log", "absent.log"), "absent.log: No such file or directory"),
        (("--utilisation", "1.5"), "memory utilisation must be above 0 and at most 1, not 1.5"),
        (("--token-budget", "0"), "token_budget must be at least 1, not 0"),
    ],
)
def test_memory_refuses(roofcast, llama, options, message):
    status, out, err = roofcast("memory", llama, "-d", "h100-sxm", *options)
    assert (status, out) == (2, "")
    assert err == f"roofcast: {message}\n"


def test_a_device_shows_what_surrounds_it(roofcast, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'id = "mine"\nname = "Mine"\nvendor = "Me"\nkind = "gpu"\n'
        "[node]\ndevices = 4\nnetwork_gb_per_s = 25\n"
    )
    status, out, err = roofcast("device", "mine.toml")
    assert (status, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["devices", "of", "a", "node", "4"] in [row[:5] for row in rows]
    assert ["network,", "one", "direction", "25", "GB/s"] in [row[:5] for row in rows]


# plan


def plan(roofcast, llama, *options) -> dict:
    status, out, err = roofcast("plan", llama, *FLOOR, *options, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_plan_for_people(roofcast, llama):
    status, out, err = roofcast(
        "plan", llama, "-d", "h100-sxm,l40s", *FLOOR, *CHAT, "--ttft", "500ms", "--tpot", "20ms"
    )
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == (
        "llama for 20.0 requests/s, prompts of 1,000 and replies of 200 tokens; "
        "95 % within TTFT 500 ms and TPOT 20.0 ms."
    )
    assert lines[1].startswith("18 deployments on 2 devices tried, ")
    assert lines[1].endswith("; ranked by cost.")
    header = lines[3].split()
    assert header[:3] == ["device", "devices", "replicas"]
    best = next(line for line in lines if line.startswith("Best: "))
    assert "of what they can take; " in best
    assert any(line.startswith("Its fullest device holds 16.1 GB of weights") for line in lines)
    assert any(line.startswith("Profile: ideal, the physical floor") for line in lines)
    assert any(line.startswith("Price: ") for line in lines)


def test_plan_gives_costs_memory_and_what_was_left_out(roofcast, llama):
    found = plan(
        roofcast, llama, "-d", "h100-sxm,rtx-4090", *CHAT, "--tpot", "4ms", "--tp", "1,2,3"
    )
    reasons = {each["reason"]: each["count"] for each in found["rejected"]}
    assert reasons["TP 3 does not divide the 32 attention heads"] == 4  # two devices, PP 1 and 2
    assert any(reason.startswith("the TPOT objective is missed") for reason in reasons)
    assert found["tried"] == len(found["deployments"]) + sum(reasons.values())
    best = found["deployments"][0]
    assert best["tpot_percentile_s"] <= 0.004 * 1.001
    tokens = best["output_tokens_per_s"] * 3600 / 1e6
    assert best["usd_per_million_output_tokens"] == pytest.approx(best["usd_per_hour"] / tokens)
    assert best["memory"]["weights, sharded"] > 0
    origins = best["memory_origin"]
    assert (origins["KV cache"], origins["graphs"]) == ("computed", "assumed")
    assert best["steady_state_checked"] is (best["prompt_load"] <= 0.8)
    assert sum(best["memory"].values()) - best["memory"]["graphs"] <= best["usable_bytes"]


def test_experts_on_the_host_are_no_weights_of_the_device(roofcast):
    options = ("-d", "rtx-5090", "--users", "1", "--input", "500", "--output", "200", "--tp", "1")
    _, out, _ = roofcast("plan", "qwen3-30b-a3b", *FLOOR, *options, "--dp", "1", "--offload", "0.7")
    assert out.startswith("qwen3-30b-a3b for 1 user at once")
    # of 61.1 GB in bf16 (30.5 billion parameters), 0.7 x 48 layers x 128 experts x 9.44 MB elsewhere
    assert "holds 20.5 GB of weights" in out
    assert "Its host keeps 40.6 GB of experts." in out


def test_a_plan_is_kept_and_rerun(roofcast, llama, tmp_path):
    options = (
        "-d",
        "h100-sxm,l40s",
        *CHAT,
        "--tpot",
        "20ms",
        "--price",
        "l40s=0.9",
        "-k",
        "checkpoint,fp8",
    )
    status, out, err = roofcast("plan", llama, *FLOOR, *options, "--keep", "chat.toml", "--json")
    assert (status, err) == (0, "wrote chat.toml\n")
    kept = tomllib.loads((tmp_path / "chat.toml").read_text())
    assert kept["objectives"] == {"tpot_s": 0.02}
    assert kept["devices"][1] == {"name": "l40s", "rent_usd_per_hour": 0.9}
    assert roofcast("plan", "chat.toml", "--json")[1] == out
    # options beside a scenario replace what it says
    faster = json.loads(roofcast("plan", "chat.toml", "--tpot", "5ms", "--json")[1])
    assert (
        faster["deployments"][0]["usd_per_hour"]
        >= json.loads(out)["deployments"][0]["usd_per_hour"]
    )


def test_two_scenarios_beside_each_other(roofcast, llama):
    roofcast("plan", llama, *FLOOR, "-d", "l40s", *CHAT, "--tpot", "30ms", "--keep", "a.toml")
    roofcast(
        "plan",
        llama,
        *FLOOR,
        "-d",
        "l40s",
        *CHAT,
        "--tpot",
        "30ms",
        "-w",
        "fp8",
        "--keep",
        "b.toml",
    )
    status, out, _ = roofcast("plan", "a.toml", "--against", "b.toml")
    assert status == 0
    row = next(line.split() for line in out.splitlines() if line.startswith("USD/h"))
    assert float(row[2]) < float(row[1])  # half the weight bytes need fewer cards
    assert row[3].startswith("−")


def test_every_scenario_reads_back(tmp_path):
    document = {
        "model": 'odd "name"\\',
        "rank": "latency",
        "traffic": {"users": 4, "input_tokens": {"low": 1, "high": 9}, "output_tokens": 5.5},
        "devices": [{"name": "a", "purchase_usd": 3e4, "years": 5.0, "peer_access": True}],
        "options": {
            "tensor": [1, 2],
            "speculation": {"tokens": 2, "acceptance": 0.5},
            "disaggregated": True,
        },
    }
    made = scenario.checked(document)
    path = tmp_path / "s.toml"
    path.write_text(scenario.to_toml(made))
    assert scenario.read(path) == made


GOOD = """\
model = "llama-3.1-8b"
[traffic]
requests_per_s = 5
input_tokens = 100
output_tokens = 100
[[devices]]
name = "l40s"
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("requests_per_s", "request_per_s"), "did you mean 'requests_per_s'?"),
        (
            GOOD.replace("output_tokens = 100", ""),
            "give input_tokens and output_tokens, or a trace",
        ),
        (GOOD + "rent_usd_per_hour = 0\n", "rent_usd_per_hour must be above 0, not 0"),
        (GOOD + "rent_usd_per_hour = 1\npurchase_usd = 1\n", "one of the two"),
        (GOOD.replace("= 5", '= "many"'), "traffic.requests_per_s"),
        (GOOD + '[[devices]]\nname = "L40S"\n', "device l40s is named twice"),
        (GOOD.replace('name = "l40s"', 'name = "l40x"'), "unknown device 'l40x'"),
        (GOOD + "[options]\ntensor = [0]\n", "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_with_a_scenario(roofcast, tmp_path, text, message):
    (tmp_path / "bad.toml").write_text(text)
    status, out, err = roofcast("plan", "bad.toml")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rate", "5", "--users", "5"), "give --rate or --users, not both"),
        (("--rate", "0"), "traffic must be above 0, not 0"),
        (("--rate", "5", "--tpot", "soon"), "tpot 'soon' is not a time; write 50ms, 1.5s or 0.05"),
        (("--rate", "5", "--price", "h100-sxm=0"), "rent_usd_per_hour must be above 0, not 0"),
        (("--rate", "5", "--price", "b200-sxm=3"), "not among the devices to plan with"),
        (("--rate", "5", "--price", "3"), "price '3' cannot be read"),
        (("--rate", "5", "--speculate", "3"), "--speculate needs --acceptance"),
        (("--rate", "5", "--draft", "mtp"), "go with --speculate"),
        (("--rate", "5", "--tp", "3"), "TP 3 does not divide the 32 attention heads"),
        (("--rate", "5", "--tpot", "1us"), "is the best reachable"),
        (("--rate", "5", "--top", "0"), "--top must be at least 1, not 0"),
        ((), "requests per second or concurrent users"),
    ],
)
def test_plan_refuses(roofcast, llama, options, message):
    status, out, err = roofcast(
        "plan", llama, *FLOOR, "-d", "h100-sxm", "--input", "100", "--output", "100", *options
    )
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_plan_reads_a_trace_beside_its_scenario(roofcast, tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    rows = "".join(f"{i / 4},{500 + i},{100}\n" for i in range(9))
    (folder / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    text = GOOD.replace(
        "requests_per_s = 5\ninput_tokens = 100\noutput_tokens = 100", 'trace = "trace.csv"'
    )
    (folder / "s.toml").write_text(text + '[options]\nprofile = "ideal"\n')
    found = json.loads(roofcast("plan", folder / "s.toml", "--json")[1])
    assert found["deployments"][0]["output_tokens_per_s"] == pytest.approx(4 * 100, rel=0.02)


# compare


def test_compare_gives_speed_cost_energy_and_capacity(roofcast, llama):
    status, out, err = roofcast(
        "compare", llama, *FLOOR, "-d", "h100-sxm,l40s", "-b", "1,16", "-c", "2048", "--json"
    )
    assert (status, err) == (0, "")
    found = json.loads(out)
    points = {(row["device"], row["batch"]): row for row in found["points"]}
    assert len(points) == 4
    one = points["l40s", 1]
    # 2.25 USD an hour over the tokens of an hour
    assert one["usd_per_million_output_tokens"] == pytest.approx(
        2.25 / (one["tokens_per_s_per_device"] * 3600 / 1e6)
    )
    assert one["bound"] == "memory"
    assert points["h100-sxm-80gb", 1]["tokens_per_s_per_user"] > 3 * one["tokens_per_s_per_user"]
    for front in found["pareto"].values():
        users = [point["tokens_per_s_per_user"] for point in front]
        assert users == sorted(users, reverse=True)


def test_compare_for_people(roofcast, llama):
    _, out, _ = roofcast(
        "compare", llama, *FLOOR, "-d", "h100-sxm,l40s,mi355x", "-b", "1", "-c", "2048"
    )
    assert "h100-sxm-80gb gives more tokens/s per device than l40s at every batch up to " in out
    assert (
        "h100-sxm-80gb is cheaper per token than l40s" in out or "l40s is cheaper per token" in out
    )
    assert "mi355x is cheaper" not in out  # its price is unknown
    assert "The best trade-offs of tokens/s per user against tokens/s per device:" in out


def test_compare_shows_what_ranks_bring(roofcast):
    _, out, _ = roofcast("compare", "llama-3.1-70b", *FLOOR, "-d", "h100-sxm", "--tp", "1,2,4,8")
    assert "Tensor parallelism on h100-sxm-80gb:" in out
    assert "One user is served fastest with TP 8" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--price", "h100-sxm=0"), "must be above 0, not 0"),
        (("--price", "b200-sxm=1"), "not among the devices compared"),
        (("-c", "200000"), "beyond the 131072 that llama allows"),
        (("--batch", "0"), "batch must be a whole number of at least 1"),
        (("--tp", "1,3"), "TP 3 does not divide the 32 attention heads: engines refuse"),
    ],
)
def test_compare_refuses(roofcast, llama, options, message):
    status, out, err = roofcast("compare", llama, *FLOOR, "-d", "h100-sxm", *options)
    assert (status, out) == (2, "")
    assert message in err


def test_figures_are_drawn_and_say_what_they_show(roofcast, llama, tmp_path):
    status, _, err = roofcast(
        "compare",
        llama,
        *FLOOR,
        "-d",
        "h100-sxm,l40s",
        "--tp",
        "1,2",
        "-c",
        "2048",
        "--figures",
        "out",
    )
    assert status == 0
    assert err.startswith("wrote out/tradeoff.png, out/tradeoff.svg, out/cost.png")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"tradeoff.png", "cost.svg", "tensor-l40s.png"} <= names


def test_figures_label_devices_and_axes(tmp_path):
    places = [setup("llama-3.1-8b", name, profile="ideal") for name in ("h100-sxm", "l40s")]
    fronts = [tradeoff(where, 2048, [1, 2]) for where in places]
    figure = compare_pages.tradeoff_figure(fronts, "a test")
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert {"h100-sxm-80gb", "l40s"} <= set(texts)
    assert axes.get_xlabel() == "output tokens/s per user"
    drawn = [line.get_xydata() for line in axes.get_lines()]
    for front, line in zip(fronts, drawn, strict=True):
        assert np.allclose(line, np.stack([front.per_user, front.per_device], axis=1))
    who = [contender(where, 2048, Price(1.0), 1) for where in places]
    (one, _) = compare_pages.cost_lines(who, 2048, Power())
    assert one.y[0] == pytest.approx(1e6 / 3600 / float(places[0].decode(1, 2048).tokens_per_s))
    curve = tensor_curve(places[0], 2048, [1, 2, 4])
    tensor = compare_pages.tensor_figure(curve, find("h100-sxm").name)
    assert "one user" in [text.get_text() for text in tensor.axes[0].texts]
    assert len(save(tensor, tmp_path / "tensor")) == 2


# techniques


def test_techniques_say_what_they_bring_and_where_they_pay(roofcast, llama):
    _, out, _ = roofcast("techniques", llama, *FLOOR, "-d", "h100-sxm", "-b", "1,64", "-c", "8192")
    rows = {line.split("  ")[0]: line for line in out.splitlines()}
    assert "always" in rows["weights in fp8"]
    assert "2.53 tokens a step at 70 % by lookup in the prompt" in rows["speculation"]
    assert "Prefix caching: a prompt takes " in out
    found = json.loads(
        roofcast("techniques", llama, *FLOOR, "-d", "h100-sxm", "-b", "1,64", "--json")[1]
    )
    assert found["batches"] == [1, 64]
    fp8 = next(each for each in found["techniques"] if each["name"] == "weights in fp8")
    assert fp8["pays"] == [True, True]
    assert fp8["memory_bytes"] < -6.9e9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hits", "1"), "--hits lies from 0 to below 1"),
        (("--draft", "mtp"), "has no next-token-prediction layers"),
        (("--acceptance", "2"), "acceptance is a chance from 0 to 1, not 2"),
        (("-w", "fp17"), "unknown"),
        (("--tp", "3"), "TP 3 does not divide the 32 attention heads: engines refuse"),
    ],
)
def test_techniques_refuse(roofcast, llama, options, message):
    status, out, err = roofcast("techniques", llama, *FLOOR, "-d", "h100-sxm", *options)
    assert (status, out) == (2, "")
    assert message in err
