"""`roofcast report`: what is in it, what stays out of it, and where it may be written."""

import csv
import hashlib
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from roofcast.hardware.catalog import find
from roofcast.hardware.profile import Band, HeldOut, Parameter, Profile
from roofcast.reports.document import files, html, markdown
from roofcast.reports.document.blocks import Bullets, Captioned, Document, Fold, Section, Text
from roofcast.reports.sections import cases, verdict
from roofcast.reports.sections.order import document
from roofcast.reports.tables import Column, Table
from roofcast.simulator.api import setup
from roofcast.simulator.tables import COLUMNS
from roofcast.simulator.workload import Parallelism
from tests.reports.conftest import LLAMA_8B

MEGABYTE = 1_000_000
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{7*7}}"


class Page(HTMLParser):
    """What a parser sees: elements, ids, attributes, and the text of the data block."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.ids, self.attributes, self.data, self.text = [], [], [], "", ""
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.attributes += [(tag, *pair) for pair in attrs]
        self.ids += [found["id"]] if "id" in found else []
        self._inside = "data" if found.get("id") == "explorer-data" else tag

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "data":
            self.data += data
        elif self._inside not in ("script", "style"):
            self.text += data


@pytest.fixture(scope="module")
def three():
    """Llama-3.1-70B in four ways on three devices."""
    where = [
        setup("llama-3.1-70b", name, engine="vllm", parallelism=Parallelism(4))
        for name in ("h100-sxm", "h200-sxm", "mi300x")
    ]
    return cases.build(where, [1, 128], [1024, 8192])


@pytest.fixture(scope="module")
def page(three):
    return html.render(document(three, "0"))


def test_the_plotting_library_is_the_published_one():
    """plotly.js-cartesian-dist-min 4.1.1 as the npm registry has it."""
    text = html._asset("vendor/plotly-cartesian.min.js")
    assert "v4.1.1" in text[:200]
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
    )


class TestHtml:
    def test_it_is_one_file_below_six_megabytes(self, page):
        assert len(page.encode()) < 6 * MEGABYTE
        outside = [
            value
            for _, name, value in Page(page).attributes
            if name in ("src", "href", "xlink:href") and not value.startswith("#")
        ]
        assert outside == []
        assert "@import" not in page.split("<script>")[0]

    def test_every_id_is_there_once_and_every_reference_leads_somewhere(self, page):
        found = Page(page)
        assert len(found.ids) == len(set(found.ids))
        wanted = {
            target
            for _, name, value in found.attributes
            if name in ("aria-labelledby", "for") or (name.endswith("href") and value[0] == "#")
            for target in value.lstrip("#").split()
        }
        assert wanted <= set(found.ids)

    def test_tables_have_captions_and_headers_with_a_scope(self, page):
        found = Page(page)
        assert found.tags.count("table") == found.tags.count("caption") > 10
        scopes = [value for tag, name, value in found.attributes if (tag, name) == ("th", "scope")]
        assert len(scopes) == found.tags.count("th")

    def test_the_policy_allows_only_the_scripts_in_it(self, page):
        policy = next(v for t, n, v in Page(page).attributes if n == "content" and "default" in v)
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        assert [f"'sha256-{html._digest(script)}'" in policy for script in scripts] == [True, True]
        assert "unsafe-eval" not in policy

    def test_the_grids_of_the_interactive_view_are_those_of_the_forecast(self, page, three):
        data = json.loads(Page(page).data)
        where, device = three[1].where, data["devices"][1]
        assert device["devices"] == 4
        b, c = data["batches"].index(128), data["contexts"].index(8192)
        point = where.decode(128, 8192)
        assert device["step_s"][b][c] == pytest.approx(float(point.step_time_s), rel=1e-3)
        causes = sum(grid[b][c] for grid in device["causes_s"].values())
        assert causes == pytest.approx(device["step_s"][b][c], rel=2e-3)
        assert device["fits"][b][c] == bool(point.memory.fits)

    def test_every_constant_has_its_source(self, page, three):
        text = Page(page).text
        for case in three:
            for name in case.where.profile.parameters:
                assert name in text
            for origin in case.where.device.provenance.values():
                assert origin.source in text
        for line in three[0].points.memory.lines:
            assert line.source in text

    def test_sections_are_those_that_were_asked_for(self, three):
        keys = [section.key for section in document(three, "0").sections]
        assert keys == [
            *("verdict", "explore", "comparison", "device-1", "device-2", "device-3"),
            *("trust", "assumptions", "limits", "provenance"),
        ]
        assert "comparison" not in [s.key for s in document(three[:1], "0").sections]


class TestVerdict:
    def test_a_tie_within_the_bands_is_called_one(self, three):
        said = verdict.comparison(three)
        assert "The 80 % ranges of" in said
        assert "overlap" in said

    def test_the_best_is_the_one_with_most_tokens_per_device(self, three):
        rates = {case.label: case.points.tokens_per_s_per_device[-1, 0] for case in three}
        best = max(rates, key=rates.get)
        assert f"{best} gives the most tokens/s per device" in verdict.comparison(three)

    def test_engines_that_differ_are_named(self, three):
        other = setup("llama-3.1-70b", "h200-sxm", engine="trtllm", parallelism=Parallelism(4))
        mixed = cases.build([three[0].where, other], [1], [1024])
        sentences = verdict.section(mixed).blocks[0].items
        assert any("different engines (vllm, trtllm)" in sentence for sentence in sentences)


@pytest.fixture
def evil(tmp_path):
    """A model, a device and a profile whose every text tries to break out."""
    folder = tmp_path / "models"
    folder.mkdir()
    name = "</script><img src=x onerror=alert(1)>".replace("/", "\N{FRACTION SLASH}")
    config = folder / f"{name}.json"
    config.write_text(json.dumps(LLAMA_8B))
    profile = Profile(
        EVIL,
        "h100-sxm-80gb",
        "vllm",
        EVIL,
        parameters={EVIL: Parameter(1.0, EVIL, "assumed", sources=(EVIL,), note=EVIL)},
        roofs={EVIL: 1.0},
        held_out=(HeldOut(EVIL, 1, 0.1, 0.1, 0.1),),
        band=Band(-0.1, 0.1, EVIL),
        conditions={EVIL: EVIL},
        warnings=(EVIL,),
        created=EVIL,
    )
    device = replace(find("h100-sxm"), id=EVIL, name=EVIL, notes=(EVIL,), aliases=(EVIL,))
    return setup(str(config), device, profile=profile)


class TestMalice:
    def test_no_text_becomes_markup_or_script(self, evil):
        built = cases.build([evil, evil], [1], [1024])
        found = Page(html.render(document(built, EVIL)))
        assert found.tags.count("script") == 3  # the library, ours, the data
        assert "img" not in found.tags
        assert not [name for _, name, _ in found.attributes if name.startswith("on")]
        assert "alert(2)" in found.text  # shown, as text
        assert "{{7*7}}" in found.text
        assert "onerror" in json.loads(found.data)["devices"][0]["label"]

    def test_markdown_holds_no_html_link_or_mention(self, evil):
        attack = f"{EVIL} [x](javascript:alert) ![i](http://h/p.png) @everyone | a\n# b `c`"
        table = Table((Column(attack, [attack]),))
        text = markdown.render(
            Document(
                attack,
                attack,
                attack,
                (
                    Section(
                        "s",
                        attack,
                        (
                            Text(attack),
                            Bullets((attack,)),
                            Captioned(attack, table),
                            Fold(attack, (Text(attack),)),
                        ),
                    ),
                ),
                [],
            )
        )
        assert "@everyone" not in text
        reader = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
        shown = Page(reader.render(text))
        ours = {"h1", "h2", "p", "ul", "li", "strong", "details", "summary"}
        assert set(shown.tags) == ours | {"table", "thead", "tbody", "tr", "th", "td"}
        assert {name for _, name, _ in shown.attributes} <= {"style"}
        assert "[x](javascript:alert)" in shown.text

    def test_a_name_cannot_leave_the_folder(self, roofcast, tmp_path):
        inside = tmp_path / "out"
        inside.mkdir()
        for name in ("../../evil", "/etc/passwd", "..", "a\0b", "CON", "x" * 5000, "\u202egpj.exe"):
            path = files.target(inside, name, "html")
            assert path.parent == inside
            assert path.resolve().is_relative_to(inside.resolve())
            assert len(path.name) < 100
            assert path.name.isascii()

    def test_a_model_from_a_hostile_folder_stays_in_the_given_one(self, roofcast, tmp_path):
        hostile = tmp_path / "..%2f$(rm -rf)`;'\""
        hostile.mkdir()
        (hostile / "config.json").write_text(json.dumps(LLAMA_8B))
        inside = tmp_path / "out"
        inside.mkdir()
        before = {path for path in tmp_path.rglob("*") if inside not in path.parents}
        arguments = ("-d", "h100-sxm", "-b", "1", "-c", "1k", "--out", inside, "-f", "csv")
        assert roofcast("report", hostile, *arguments)[0] == 0
        assert [path.suffix for path in inside.iterdir()] == [".csv"]
        after = {path for path in tmp_path.rglob("*") if inside not in path.parents}
        assert after == before

    def test_a_spreadsheet_runs_nothing(self, three):
        row = {**cases.all_rows(three)[0], "model": "=HYPERLINK(1)", "profile": "@sum"}
        cell = next(csv.DictReader(io.StringIO(files.csv_text([row]))))
        assert (cell["model"], cell["profile"]) == ("'=HYPERLINK(1)", "'@sum")

    def test_a_dollar_sign_is_no_mathematics(self, tmp_path):
        path = tmp_path / r"$\frac{1$.json"
        path.write_text(json.dumps(LLAMA_8B))
        built = cases.build([setup(str(path), "h100-sxm")], [1], [1024])
        assert "frac" in html.render(document(built, "0"))


class TestCommand:
    ARGUMENTS = ("-d", "h100-sxm,h200-sxm", "-b", "1,64", "-c", "1k")

    def test_markdown_and_html_say_the_same(self, roofcast, tmp_path):
        for name in ("r.md", "r.html"):
            status, out, err = roofcast("report", "llama-3.1-8b", *self.ARGUMENTS, "--out", name)
            assert (status, out, err) == (0, f"Wrote {name}.\n", "")
        text = Page((tmp_path / "r.html").read_text()).text
        plain = re.sub(r"\\(.)", r"\1", (tmp_path / "r.md").read_text())
        for sentence in re.findall(r"^- (.*)$", plain, re.MULTILINE)[:4]:
            assert sentence in text

    def test_csv_and_parquet_hold_the_points(self, roofcast, tmp_path):
        parquet = pytest.importorskip("pyarrow.parquet")
        for name in ("r.csv", "r.parquet"):
            assert roofcast("report", "llama-3.1-8b", *self.ARGUMENTS, "--out", name)[0] == 0
        rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
        table = parquet.read_table(tmp_path / "r.parquet")
        assert list(rows[0]) == table.column_names == list(COLUMNS)
        assert len(rows) == table.num_rows == 4
        steps = table.column("step_time_s").to_pylist()
        assert [float(row["step_time_s"]) for row in rows] == pytest.approx(steps)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (("--out", "r.pdf"), "no format has the ending '.pdf'"),
            (("-d", ","), "give 1 to 6 devices"),
            (("-b", "1:20:+1", "-c", "1:40:+1"), "20 batches x 40 contexts"),
            (("-d", "h100-sxm,h999"), "unknown device 'h999'"),
            (("--out", "no/file.html/r.html"), "cannot write"),
        ],
    )
    def test_mistakes_are_one_line(self, roofcast, tmp_path, arguments, error):
        (tmp_path / "no").mkdir()
        (tmp_path / "no" / "file.html").write_text("")
        base = ("-d", "h100-sxm") if "-d" not in arguments else ()
        status, out, err = roofcast("report", "llama-3.1-8b", *base, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith(f"roofcast: {error}")
        assert err.count("\n") == 1

    @pytest.mark.parametrize(("module", "kind"), [("jinja2", "html"), ("pyarrow", "parquet")])
    def test_a_missing_extra_is_one_line(self, roofcast, monkeypatch, module, kind):
        monkeypatch.setitem(sys.modules, module, None)
        status, out, err = roofcast("report", "llama-3.1-8b", "-d", "h100-sxm", "-f", kind)
        assert (status, out) == (2, "")
        assert f"needs {module}" in err
        assert "pip install" in err


def test_curves_hold_the_points_that_were_asked_for(three):
    assert {1, 128} <= set(cases.many_batches(three[0]))
    assert {1024, 8192} <= set(cases.many_contexts(three[0]))
    assert np.all(np.diff(cases.many_contexts(three[0])) > 0)
