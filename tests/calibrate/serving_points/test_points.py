"""The reader of point files: what it takes, what it refuses, what it never reads."""

import gzip
from pathlib import Path

import pytest

from roofcast.calibrate.serving_points.points import read_points
from roofcast.hardware.errors import FileFormatError

PUBLISHED = Path(__file__).with_name("published.csv")


def test_a_published_excerpt_reads_as_written():
    first = read_points(PUBLISHED)[0]
    assert (first.model, first.gpu, first.tp, first.concurrency) == (
        "meta-llama/Llama-3.1-70B",
        "b200_sxm",
        1,
        4,
    )
    assert first.measured.tpot_ms == 14.87
    assert first.measured.e2e_s is None
    assert first.kv_dtype == ""


def test_compressed_and_plain_files_say_the_same(tmp_path):
    packed = tmp_path / "points.csv.gz"
    packed.write_bytes(gzip.compress(PUBLISHED.read_bytes()))
    assert read_points(packed) == read_points(PUBLISHED)


def test_columns_derived_from_measured_times_are_not_read(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(
        "id,source,model,gpu,engine,load_mode,est_mean_decode_batch,weight_bw_bound_ms\n"
        "p,s,m,h200_sxm,vllm,closed_loop,17.3,0.6\n"
    )
    assert "17.3" not in repr(read_points(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,gpu\nm,h200\n", "no column id"),
        ("id,model,gpu,engine,load_mode\np,m,h200,vllm,now_and_then\n", "line 2: load_mode"),
        ("id,model,gpu,engine,load_mode,source,isl\np,m,h,v,closed_loop,s,long\n", "line 2: isl"),
    ],
)
def test_a_file_that_makes_no_sense_is_named_with_its_line(tmp_path, text, said):
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=said):
        read_points(path)


def test_a_missing_and_a_broken_file_are_refused_in_one_line(tmp_path):
    with pytest.raises(FileFormatError, match="No such file"):
        read_points(tmp_path / "none.csv")
    broken = tmp_path / "points.csv.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(FileFormatError):
        read_points(broken)
