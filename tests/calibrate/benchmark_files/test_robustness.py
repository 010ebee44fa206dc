"""Files as they come: other line ends, other encodings, cut off, malformed, hostile, huge."""

import gzip
import json
import math
import random
import tracemalloc

import pytest

from roofcast.calibrate.benchmark_files import documents
from roofcast.calibrate.benchmark_files.conditions import Conditions, sidecar
from roofcast.calibrate.benchmark_files.reader import FORMATS, read
from roofcast.calibrate.benchmark_files.text import printable
from roofcast.hardware.errors import FileFormatError, InputError

JSON_FILES = (
    "vllm_serve.json",
    "vllm_serve_appended.json",
    "vllm_serve_detailed.json",
    "sglang_serving.jsonl",
    "sglang_one_batch.jsonl",
    "aiperf.json",
    "aiperf_requests.jsonl",
    "guidellm.json",
    "trtllm.json",
    "inferencex.json",
    "llama_bench.json",
    "llama_batched_bench.jsonl",
    "ollama_api.jsonl",
)
TEXT_FILES = ("llama_bench.csv", "llama_bench.md", "llama_batched_bench.md", "ollama_verbose.txt")
QUANTITIES = ("batch", "input_tokens", "output_tokens", "tpot_s", "ttft_s", "output_tokens_per_s")


def values(found) -> list[list[float | None]]:
    return [[record.value(name) for name in QUANTITIES] for record in found]


def attempt(path):
    """The records of a file and no error, or none and the error's one line."""
    try:
        return read(path), ""
    except FileFormatError as error:
        return (), str(error)


@pytest.mark.parametrize("name", [*JSON_FILES, *TEXT_FILES, "points.csv"])
@pytest.mark.parametrize("change", ["crlf", "bom", "blank lines"])
def test_ends_of_lines_marks_and_blank_lines_change_nothing(data, tmp_path, name, change):
    text = (data / name).read_bytes().replace(b"\r\n", b"\n")
    made = {
        "crlf": text.replace(b"\n", b"\r\n"),
        "bom": b"\xef\xbb\xbf" + text,
        "blank lines": text + b"\n\n  \n",
    }[change]
    path = tmp_path / name
    path.write_bytes(made)
    if change == "blank lines" and name == "points.csv":
        pytest.skip("a row of a table of points is a point")
    assert values(read(path)) == values(read(data / name))


@pytest.mark.parametrize("name", ["vllm_serve.json", "ollama_verbose.txt", "llama_bench.md"])
def test_what_powershell_redirects_is_utf_16(data, tmp_path, name):
    path = tmp_path / name
    path.write_text((data / name).read_text(encoding="utf-8"), encoding="utf-16")
    assert values(read(path)) == values(read(data / name))


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_file_cut_off_anywhere_gives_values_or_one_clear_error(data, tmp_path, name):
    text = (data / name).read_text()
    path = tmp_path / name
    for part in (0.02, 0.3, 0.6, 0.9, 0.99):
        path.write_text(text[: int(part * len(text))])
        found, error = attempt(path)
        assert found or ("\n" not in error and name in error)


def test_a_truncated_file_is_called_so(data, tmp_path):
    path = tmp_path / "cut.json"
    path.write_text((data / "vllm_serve.json").read_text()[:300])
    with pytest.raises(FileFormatError, match=r"cut.json: line \d+: .*truncated"):
        read(path)


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_any_field_may_be_missing_or_no_number(data, tmp_path, name, missing):
    """Each field in turn null, NaN or Infinity: values or one clear error, never a traceback."""
    lines = (data / name).read_text()
    first = json.JSONDecoder().raw_decode(lines)[0]
    path = tmp_path / "odd.json"
    target = first[-1] if isinstance(first, list) else first
    for holder, key in list(_leaves(target)):
        kept = holder[key]
        holder[key] = missing
        path.write_text(json.dumps(first))
        found, error = attempt(path)
        assert "\n" not in error
        for row in values(found):
            assert all(value is None or math.isfinite(value) for value in row)
        holder[key] = kept


@pytest.mark.parametrize("wrong", ["text", [1, 2], {"a": 1}, True, -3.0])
def test_a_number_of_the_wrong_kind_names_its_field(data, tmp_path, wrong):
    document = json.loads((data / "vllm_serve.json").read_text())
    document["mean_tpot_ms"] = wrong
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FileFormatError, match=r"wrong\.json: mean_tpot_ms: "):
        read(path)


def test_unknown_fields_are_ignored(data, tmp_path):
    document = json.loads((data / "vllm_serve.json").read_text())
    path = tmp_path / "more.json"
    path.write_text(json.dumps({"new": {"deep": [1]}, **document, "tpot": "fast", "": None}))
    assert values(read(path)) == values(read(data / "vllm_serve.json"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\r\n ", "is empty"),
        (b"\x00\x01\x02" * 50, "looked for"),
        (b"hello world\n", "no benchmark's result that is known; looked for"),
        (b"{}", "looked for"),
        (b"[]", "looked for"),
        (b'{"a": 1}', "looked for"),
        (b'["a", 3]', "looked for"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"avg_latency": ' + b"9" * 5000 + b', "latencies": []}', "not usable JSON"),
        (b"\xff\xfe{\x00", "truncated"),
        (b"\x1f\x8b\x08\x00broken", "cannot be read"),
        (b'{"total_output_tokens": 1 "request_throughput": 2}', "not valid JSON"),
    ],
    ids=range(13),
)
def test_what_is_no_result_is_one_clear_error(tmp_path, content, said):
    path = tmp_path / "odd.bin"
    path.write_bytes(content)
    with pytest.raises(FileFormatError) as caught:
        read(path)
    assert said in str(caught.value)
    assert str(caught.value).count("\n") == 0
    assert "odd.bin" in str(caught.value)


def test_an_unknown_format_lists_what_was_looked_for(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"speed": 3}')
    with pytest.raises(FileFormatError) as caught:
        read(path)
    assert all(each.name in str(caught.value) for each in FORMATS)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileFormatError, match="no such file"):
        read(tmp_path / "none.json")
    with pytest.raises(FileFormatError, match="is a folder"):
        read(tmp_path)


def test_a_file_of_prompt_rows_only_says_so(data, tmp_path):
    rows = json.loads((data / "llama_bench.json").read_text())
    path = tmp_path / "pp.json"
    path.write_text(json.dumps(rows[:1]))
    with pytest.raises(FileFormatError, match="1 rows that read prompts"):
        read(path)


def test_a_run_in_which_nothing_completed_has_no_values(data, tmp_path):
    document = json.loads((data / "vllm_serve.json").read_text())
    path = tmp_path / "failed.json"
    dead = {key: 0 if isinstance(value, (int, float)) else value for key, value in document.items()}
    path.write_text(json.dumps(dead))
    (record,) = read(path)
    assert "no_requests" in record.flags
    assert values([record]) == [[None] * 6]


def test_a_table_may_be_packed(data, tmp_path):
    path = tmp_path / "points.csv.gz"
    path.write_bytes(gzip.compress((data / "points.csv").read_bytes()))
    assert values(read(path)) == values(read(data / "points.csv"))


def test_an_unknown_unit_names_the_known_ones(data, tmp_path):
    document = json.loads((data / "aiperf.json").read_text())
    document["inter_token_latency"]["unit"] = "fortnights"
    path = tmp_path / "unit.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"unknown unit of inter_token_latency.*'fortnights'"):
        read(path)


def test_a_huge_detailed_file_gives_its_values_in_bounded_memory(data, tmp_path, monkeypatch):
    """200 MB in the wild; here the limits are scaled down by 64 with the file."""
    monkeypatch.setattr(documents, "WHOLE_BYTES", documents.WHOLE_BYTES // 64)
    document = json.loads((data / "vllm_serve_detailed.json").read_text())
    document["itls"] = [[0.02] * 100] * 4000
    document["generated_texts"] = ['say "itls": [[{ \\ ' * 20] * 2000
    path = tmp_path / "huge.json"
    path.write_text(json.dumps(document) + "\n" + json.dumps(document))
    size = path.stat().st_size
    assert size > 12 * documents.WHOLE_BYTES
    tracemalloc.start()
    found = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values(found) == values(read(data / "vllm_serve_detailed.json")) * 2
    assert peak < size / 2


def test_a_huge_file_of_lines_is_read_line_by_line(data, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "WHOLE_BYTES", 64 * 1024)
    lines = (data / "aiperf_requests.jsonl").read_text().splitlines()
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join([*lines[1:4] * 500]) + "\n")
    assert path.stat().st_size > 8 * documents.WHOLE_BYTES
    tracemalloc.start()
    (record,) = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert record.value("samples") == 1500
    assert peak < path.stat().st_size


def test_a_huge_file_that_stays_huge_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "WHOLE_BYTES", 64 * 1024)
    path = tmp_path / "huge.json"
    path.write_text(json.dumps({"avg_latency": 1.0, "notes": ["x" * 100] * 3000}, indent=1))
    with pytest.raises(FileFormatError, match="too large for a benchmark's result"):
        read(path)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07name", "name"),
        ("\x9b2Jclear", "clear"),
        ("a\r\nb\tc", "a b c"),
        ("user\u202egpj.exe", "usergpj.exe"),
        ("zero\u200bwidth", "zerowidth"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("nul\x00l", "null"),
        ("Qwen/Qwen3-8B – größer", "Qwen/Qwen3-8B – größer"),
    ],
)
def test_strings_from_files_cannot_steer_a_terminal(data, tmp_path, hostile, shown):
    assert printable(hostile) == shown
    document = json.loads((data / "vllm_serve.json").read_text())
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps({**document, "model_id": hostile}))
    assert read(path)[0].stated.model == shown


def test_errors_about_hostile_content_are_safe(data, tmp_path):
    document = json.loads((data / "vllm_serve.json").read_text())
    path = tmp_path / "bad\x1b[2J.json"
    path.write_text(json.dumps({**document, "mean_tpot_ms": "\x1b[2J\u202e"}))
    with pytest.raises(FileFormatError) as caught:
        read(path)
    assert str(caught.value).isprintable()


def test_a_sidecar_says_what_the_file_does_not(tmp_path):
    (tmp_path / "conditions.toml").write_text('device = "h100-sxm"\ntp = 4\n')
    (tmp_path / "run.conditions.toml").write_text('model = "llama-3.1-8b"\ntp = 2\n')
    found = sidecar(tmp_path / "run.json")
    assert found == Conditions(model="llama-3.1-8b", device="h100-sxm", tp=2)
    assert sidecar(tmp_path / "other.json") == Conditions(device="h100-sxm", tp=4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modle = 'x'", "unknown key.*did you mean 'model'"),
        ("tp = 0", "tp"),
        ("tp = 'four'", "tp"),
        ("= 3", "not valid TOML"),
    ],
)
def test_a_sidecar_with_a_mistake_names_it(tmp_path, text, said):
    (tmp_path / "run.conditions.toml").write_text(text)
    with pytest.raises(FileFormatError, match=said):
        sidecar(tmp_path / "run.json")


@pytest.mark.parametrize("name", [*JSON_FILES, *TEXT_FILES])
def test_random_damage_gives_values_or_one_clear_error(data, tmp_path, name):
    rng = random.Random(name)
    whole = (data / name).read_bytes()
    path = tmp_path / name
    for _ in range(12):
        raw = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 30)] = bytes(
                rng.choices(b'{}[]",:019eE.-|\n\x00\xff', k=3)
            )
        path.write_bytes(raw)
        found, error = attempt(path)
        assert found or (error.isprintable() and name in error)


def _leaves(tree):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (tree, key)
            yield from _leaves(value)
