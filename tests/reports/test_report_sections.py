"""What `roofcast report` adds when asked: plan, audit, calibration, prices, sources of constants."""

import json
import re
import shutil
from pathlib import Path

import pytest

from roofcast.hardware import links
from roofcast.hardware.catalog import find
from roofcast.reports import heat_data
from roofcast.reports.document import html, markdown
from roofcast.reports.document.blocks import Captioned, Figure, Fold
from roofcast.reports.gathering import Options, calibrated, gather
from roofcast.reports.sections import cases
from roofcast.reports.sections.asked import Asked
from roofcast.reports.sections.order import document
from roofcast.simulator.api import setup
from roofcast.simulator.engines import find_engine
from roofcast.simulator.models import from_fields
from roofcast.simulator.workload import Parallelism
from tests.reports.conftest import LLAMA_8B, PROFILE
from tests.reports.test_report import EVIL, Page

FILES = Path(__file__).parents[1] / "data" / "benchmark_files"
SCENARIO = """
model = "llama-3.1-8b"
[traffic]
requests_per_s = 20.0
input_tokens = 1000
output_tokens = 300
[objectives]
tpot_s = 0.05
[[devices]]
name = "h100-sxm"
[[devices]]
name = "l40s"
"""


def blocks_of(found):
    """Every block, those inside folds as well."""
    for block in found:
        yield block
        if isinstance(block, Fold):
            yield from blocks_of(block.blocks)


def captions(section) -> list[str]:
    return [
        block.caption
        for block in blocks_of(section.blocks)
        if isinstance(block, Captioned | Figure)
    ]


@pytest.fixture
def scenario(tmp_path) -> Path:
    path = tmp_path / "chat.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def results(tmp_path) -> Path:
    """A benchmark's file in a folder whose name is no one's business."""
    folder = tmp_path / "customer-x"
    folder.mkdir()
    return Path(shutil.copy(FILES / "vllm_serve.json", folder / "run.json"))


def test_all_sections_in_one_page(roofcast, tmp_path, scenario, results):
    status, out, err = roofcast(
        *("report", "llama-3.1-8b", "-d", "h100-sxm", "-b", "1,8", "-c", "1k"),
        *("--plan", scenario, "--audit", results, "--out", "r.html"),
    )
    assert (status, out, err) == (0, "Wrote r.html.\n", "")
    text = (tmp_path / "r.html").read_text()
    page = Page(text)
    assert {"verdict", "explore", "plan", "audit", "device-1", "provenance"} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "run.json: vLLM bench serve" in page.text
    assert "customer-x" not in text
    assert "18 deployments on 2 devices tried" in page.text


def test_json_holds_every_sentence_and_point(roofcast, scenario):
    arguments = ("-d", "h100-sxm", "-b", "1,8", "-c", "1k", "--plan", scenario, "--json")
    status, out, _ = roofcast("report", "llama-3.1-8b", *arguments)
    found = json.loads(out)
    assert status == 0
    assert [point["batch"] for point in found["points"]] == [1, 8]
    plan = next(section for section in found["sections"] if section["key"] == "plan")
    table = next(block for block in plan["blocks"] if "table" in block)
    assert table["columns"][:2] == ["device", "devices"]
    assert len(table["rows"][0]) == len(table["columns"])


def test_before_and_after(roofcast, results, tmp_path):
    fields = json.loads(results.read_text())
    faster = {key: value / 1.5 for key, value in fields.items() if "tpot" in key}
    after = results.with_name("after.json")
    after.write_text(json.dumps({**fields, **faster}))
    arguments = ("-d", "h100-sxm", "-b", "1", "-c", "1k", "-f", "markdown", "--out", "r.md")
    change = ("--change", "kv=fp8", "--before", results, "--audit", after)
    assert roofcast("report", "llama-3.1-8b", *arguments, *change)[0] == 0
    assert "not possible by this change alone" in (tmp_path / "r.md").read_text()
    drawn = ("-m", "llama-3.1-8b", "-d", "h100-sxm", "--change", "kv=fp8", "--figure", "gain.png")
    status, _, err = roofcast("audit", results, after, *drawn)
    assert (status, err) == (0, "wrote gain.png, gain.svg\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--before", "a.json"), "--before needs --change"),
        (("--change", "kv=fp8"), "--change needs the runs --before"),
        (("--plan", "none.toml"), "cannot read none.toml"),
        (("--calibration", "none.json"), "cannot read none.json"),
        (("--price", "l40s=2"), "--price names l40s, which is not among the devices"),
    ],
)
def test_mistakes_are_one_line(roofcast, arguments, error):
    status, out, err = roofcast("report", "llama-3.1-8b", "-d", "h100-sxm", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("roofcast: ")
    assert err.count("\n") == 1
    assert error.rpartition(" ")[2].strip(".") in err


def test_one_device_alone_has_its_curves():
    """On paper, where the interactive view is not, they are all there is of throughput."""
    where = setup(from_fields(LLAMA_8B, name="m"), "h100-sxm", profile=PROFILE)
    alone = document(cases.build([where], [1, 8], [1024]), "0")
    section = next(s for s in alone.sections if s.key == "device-1")
    assert {"Tokens/s by batch.", "Time per token by context."} <= set(captions(section))


class TestComparison:
    @pytest.fixture
    def two(self):
        where = [
            setup(from_fields(LLAMA_8B, name="m"), name, engine="vllm", parallelism=Parallelism(2))
            for name in ("h100-sxm", "mi300x")
        ]
        return cases.build(where, [1, 64], [1024])

    def test_it_has_costs_and_trade_offs(self, two):
        section = next(s for s in document(two, "0").sections if s.key == "comparison")
        found = captions(section)
        assert "Cost of a million output tokens by batch at context 1,024." in found
        assert "What a device gives against what a user sees." in found

    def test_a_price_that_was_given_sets_the_cost(self, roofcast):
        def costs(*price):
            arguments = ("-d", "h100-sxm,h200-sxm", "-b", "64", "-c", "1k", "--json", *price)
            found = json.loads(roofcast("report", "llama-3.1-8b", *arguments)[1])
            section = next(s for s in found["sections"] if s["key"] == "comparison")
            table = next(b for b in section["blocks"] if b.get("table", "").startswith("Cost"))
            column = table["columns"].index("USD/M tokens")
            return [float(row[column]) for row in table["rows"]]

        one, two = costs("--price", "h100-sxm=2"), costs("--price", "h100-sxm=4")
        assert two[0] == pytest.approx(2 * one[0], rel=0.01)
        assert two[1] == one[1]

    def test_constants_outside_of_profiles_have_their_sources(self, two):
        text = Page(html.render(document(two, "0", asked=Asked(model_source="a config")))).text
        assert "a config" in text
        assert links.source("scale_up") in text
        assert find_engine("vllm").source in text
        link = links.inside(find("h100-sxm"), 2, "all_reduce")
        assert f"{100 * link.efficiency:.0f} %" in text
        for source in two[0].points.memory.policy.sources.values():
            assert source in text

    def test_the_config_of_a_bundled_model_has_a_source(self):
        where = [setup("llama-3.1-8b", "h100-sxm")]
        found = gather(Options(), "llama-3.1-8b", where, {})
        assert re.match(r"config.json of meta-llama/Llama-3.1-8B", found.model_source)


class TestCalibration:
    def test_residuals_where_the_samples_are_at_hand(self, calibration):
        where = [setup(from_fields(LLAMA_8B, name="m"), "h100-sxm", profile=PROFILE)]
        built = cases.build(where, [1], [1024])
        made = document(built, "0", asked=Asked(calibration=calibration))
        section = next(s for s in made.sections if s.key == "calibration")
        assert any("Forecast against measured" in caption for caption in captions(section))
        assert 'id="residuals-' in html.render(made)

    def test_a_profile_alone_shows_its_errors(self, profile_file):
        found, gap = calibrated(Path(profile_file))
        assert found.name == PROFILE.name
        assert gap == "no raw samples lie beside h100.json"

    def test_samples_of_a_device_that_is_not_here(self, calibration):
        found, gap = calibrated(calibration.path)
        assert found.name == calibration.profile.name
        assert "its raw samples can't be fitted again: unknown device" in gap

    def test_samples_stay_untouched(self, calibration):
        before = calibration.journal.read_bytes()
        calibrated(calibration.path)
        assert calibration.journal.read_bytes() == before


class TestMalice:
    def test_a_benchmark_file_cannot_inject(self, roofcast, tmp_path):
        fields = json.loads((FILES / "vllm_serve.json").read_text())
        fields |= {"backend": EVIL, "model_id": EVIL, "tokenizer_id": EVIL, EVIL: EVIL}
        name = "</script><img src=x onerror=alert(1)>.json".replace("/", "\N{FRACTION SLASH}")
        path = tmp_path / name
        path.write_text(json.dumps(fields))
        for kind in ("html", "markdown"):
            arguments = ("-b", "1", "-c", "1k", "-f", kind, "--out", f"r.{kind}")
            status, _, err = roofcast(
                "report", "llama-3.1-8b", "-d", "h100-sxm", "--audit", path, *arguments
            )
            assert (status, err) == (0, "")
        found = Page((tmp_path / "r.html").read_text())
        assert found.tags.count("script") == 3
        assert "img" not in found.tags
        assert not [attribute for _, attribute, _ in found.attributes if attribute.startswith("on")]
        reader = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
        shown = Page(reader.render((tmp_path / "r.markdown").read_text()))
        assert not {"img", "script", "a"} & set(shown.tags)

    def test_a_scenario_cannot_inject(self):
        """Names in a plan's figure are text, also inside the drawing."""
        where = [setup(from_fields(LLAMA_8B, name=EVIL), "h100-sxm", profile=PROFILE)]
        made = document(cases.build(where, [1], [1024]), "0", asked=Asked(model_source=EVIL))
        found = Page(html.render(made))
        assert "img" not in found.tags
        assert "alert(2)" in found.text
        assert "<img" not in markdown.render(made).replace("\\<img", "")


class TestHeat:
    def test_regions_are_those_of_the_forecast(self):
        where = setup(from_fields(LLAMA_8B, name="m"), "h100-sxm", profile=PROFILE)
        found = heat_data.heat(where)
        for row, column in ((0, 0), (10, 20), (-1, 0)):
            step = where.decode(found.batch[row], found.context[column])
            memory = {"weights", "kv_cache", "activations"}
            bound = "memory" if found.region[row, column] in memory else found.region[row, column]
            assert bound == str(step.bound)
            assert found.tokens_per_s[row, column] == pytest.approx(float(step.tokens_per_s))

    def test_the_limit_is_where_memory_ends(self):
        where = setup(from_fields(LLAMA_8B, name="m"), "h100-sxm", profile=PROFILE)
        found = heat_data.heat(where)
        at = 24
        most = found.limit[at]
        assert bool(where.decode(most, found.context[at]).memory.fits)
        assert not bool(where.decode(most + 1, found.context[at]).memory.fits)

    def test_weights_bound_one_sequence_and_the_cache_many_long_ones(self):
        """At batch 1 a step reads 15 GB of weights; 40 x 32k tokens of cache are 172 GB."""
        where = setup(from_fields(LLAMA_8B, name="m"), "h100-sxm", engine="ideal")
        found = heat_data.heat(where)
        assert found.region[0, 0] == "weights"
        assert found.region[20, 32] == "kv_cache"
