"""The HTML report in headless Chromium: silent, offline, operable, accessible.

Skipped where Chromium or the packages that drive it are not installed. Playwright waits without end
for a browser that hangs (starting it, evaluating a script, closing it), so every fixture and every test
has a time limit of its own; on a machine without alarm signals there is none.
"""

import json
import shutil
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources

import pytest

from roofcast.hardware.catalog import find
from roofcast.reports.document import html
from roofcast.reports.gathering import Options, gather
from roofcast.reports.sections import cases
from roofcast.reports.sections.order import document
from roofcast.simulator.api import setup
from roofcast.simulator.models import from_fields
from tests.reports.conftest import LLAMA_8B
from tests.reports.test_report_sections import FILES, SCENARIO

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage "
    "--disable-background-networking --disable-component-update --disable-sync"
)
SIZES = {"wide": (1280, 900), "narrow": (390, 800)}
START_S, TEST_S = 120, 240  # machines that test are busy
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@contextmanager
def limited(seconds):
    """Ends in TimeoutError what takes longer."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(number, frame):
        raise TimeoutError(f"the browser did nothing for {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _in_time():
    with limited(TEST_S):
        yield


@pytest.fixture(scope="module")
def browser():
    with limited(START_S):
        driver = playwright.sync_playwright().start()
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=QUIET.split(), timeout=START_S * 1000
        )
    yield started
    with limited(START_S):
        started.close()
        driver.stop()


def test_a_browser_that_hangs_is_given_up():
    with pytest.raises(TimeoutError), limited(1):
        signal.pause()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two devices, a plan and an audit; names and files are someone hostile's."""
    where = [
        setup(from_fields(LLAMA_8B, name=name), find("h100-sxm"), engine=engine)
        for name, engine in ((EVIL, "vllm"), (EVIL, "sglang"))
    ]
    folder = tmp_path_factory.mktemp("report")
    result = folder / f"{EVIL.replace('/', chr(0x2044))}.json"
    result.write_text((FILES / "sglang_one_batch.jsonl").read_text())
    (folder / "chat.toml").write_text(SCENARIO)
    given = Options(plan=folder / "chat.toml", audit=[result])
    asked = gather(given, "llama-3.1-8b", [setup("llama-3.1-8b", "h100-sxm")], {})
    path = folder / "report.html"
    path.write_text(html.render(document(cases.build(where, [1, 64], [1024]), "0", asked=asked)))
    return path


@dataclass
class Watched:
    """What a page did besides showing itself."""

    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@contextmanager
def opened(browser, report, size="wide", **options):
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(START_S * 1000)
    page, seen = context.new_page(), Watched()
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda message: seen.messages.append(message.text))
    page.on("pageerror", lambda error: seen.messages.append(str(error)))
    page.on("dialog", lambda dialog: (seen.messages.append("dialog"), dialog.dismiss()))
    page.goto(report.as_uri())
    page.wait_for_selector("#plot-pareto .scatterlayer .points path", state="attached")
    try:
        yield page, seen
    finally:
        context.close()


def curve(page, key: str) -> list[float]:
    """The y values of the first drawn curve, as Plotly holds them."""
    script = f"document.getElementById('plot-{key}').data.find(t => t.mode === 'lines+markers').y"
    return [value for value in page.evaluate(script) if value is not None]


def test_it_is_silent_and_asks_the_network_for_nothing(browser, report):
    with opened(browser, report) as (page, seen):
        page.wait_for_timeout(300)
        assert seen.messages == []
        assert seen.requests == [report.as_uri()]


def test_sliders_change_the_figures_and_the_table_from_the_keyboard(browser, report):
    with opened(browser, report) as (page, seen):
        before = {key: curve(page, key) for key in ("throughput", "latency", "pareto")}
        table = page.inner_text("#chosen tbody")
        page.focus("#context")
        page.keyboard.press("End")
        assert curve(page, "throughput") != before["throughput"]
        assert curve(page, "pareto") != before["pareto"]
        assert page.inner_text("#chosen-caption") == "At batch 64, context 65,536"
        assert page.inner_text("#chosen tbody") != table
        assert page.get_attribute("#context", "aria-valuetext") == "65,536 tokens"
        page.focus("#batch")
        page.keyboard.press("Home")
        assert curve(page, "latency") != before["latency"]
        assert "Batch 1, context 65,536" in page.text_content("#explorer-status")
        assert seen.messages == []


def test_shown_values_are_those_of_the_grid(browser, report):
    with opened(browser, report) as (page, _):
        data = json.loads(page.text_content("#explorer-data"))
        b, c = data["batches"].index(64), data["contexts"].index(1024)
        step_s = data["devices"][0]["step_s"][b][c]
        rates = [
            batch / row[c]
            for batch, row in zip(data["batches"], data["devices"][0]["step_s"], strict=True)
        ]
        fits = [row[c] for row in data["devices"][0]["fits"]]
        drawn = curve(page, "throughput")
        assert drawn == pytest.approx([rate for rate, ok in zip(rates, fits, strict=True) if ok])
        cells = page.locator("#chosen tbody tr").first.locator("td").all_inner_texts()
        assert float(cells[0].split()[0]) == pytest.approx(step_s * 1e3, rel=0.01)
        assert float(cells[2].replace(",", "")) == pytest.approx(64 / step_s, rel=0.01)


def test_toggles_and_units(browser, report):
    with opened(browser, report) as (page, _):
        replica = curve(page, "throughput")
        page.select_option("#counted", "user")
        assert max(curve(page, "throughput")) < max(replica)
        assert page.locator("#chosen tbody tr").count() == 2
        page.locator("[name=device]").first.focus()
        page.keyboard.press("Space")
        assert page.locator("#chosen tbody tr").count() == 1
        page.locator("[name=device]").nth(1).uncheck()
        assert page.locator("#chosen tbody tr").count() == 0
        assert "no device chosen" in page.text_content("#explorer-status")


def test_a_point_tells_its_values_when_hovered(browser, report):
    with opened(browser, report) as (page, seen):
        point = page.locator("#plot-throughput .scatterlayer .points path").nth(6)
        point.scroll_into_view_if_needed()
        box = point.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_selector("#plot-throughput .hoverlayer .hovertext")
        text = page.text_content("#plot-throughput .hoverlayer .hovertext")
        assert "tok/s" in text
        assert "context 1,024" in text
        assert seen.messages == []


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_no_serious_accessibility_fault(browser, report, size, scheme):
    with opened(browser, report, size, color_scheme=scheme, bypass_csp=True) as (page, _):
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        page.evaluate(resources.files(axe).joinpath("axe.min.js").read_text("utf-8"))
        found = page.evaluate("axe.run({exclude: ['.drawing svg']})")[
            "violations"
        ]  # hidden from readers
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]


def test_dark_pages_have_light_letters_in_their_figures(browser, report):
    colours = {}
    for scheme in ("light", "dark"):
        with opened(browser, report, color_scheme=scheme) as (page, _):
            page.wait_for_selector("#plot-latency .xtitle", state="attached")
            colours[scheme] = page.evaluate(
                "getComputedStyle(document.querySelector('#plot-latency .xtitle')).fill"
            )
    assert colours == {"light": "rgb(34, 34, 34)", "dark": "rgb(232, 234, 237)"}


def test_print_leaves_out_what_paper_cannot_do(browser, report):
    with opened(browser, report, color_scheme="dark") as (page, _):
        page.emulate_media(media="print")
        assert not page.is_visible("#explore")
        assert page.is_visible("#verdict")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
        assert len(page.pdf()) > 10_000


def test_the_first_tab_stop_skips_to_the_report(browser, report):
    with opened(browser, report) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.url.endswith("#main")
