"""Precision and recall of impossible points against flags."""

from dataclasses import replace

import pytest

from roofcast.calibrate.audit.audit import Audited, audit
from roofcast.calibrate.audit.judging import judge
from roofcast.calibrate.audit.ranges import judged_flags
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.reader import read
from roofcast.calibrate.serving_points.points import Point
from tests.calibrate.audit.conftest import record
from tests.calibrate.audit.test_audit import DATA


def audited(name: str, flag: str, *flags: str) -> Audited:
    point = Point(name, "s", "g", "vllm", "static_batch", flag=flag)
    return Audited(replace(record(), point=point), None, object(), None, flags, ())  # type: ignore[arg-type]


def test_counts_by_hand():
    wrong, doubted = "agg_label_but_total_gpu_count", "worker_count_unknown"
    found = judge(
        [
            audited("a", wrong, "does_not_fit"),
            audited("b", f"{wrong}|{doubted}", "faster_than_physics"),
            audited("c", wrong, "over_admission"),
            audited("d", wrong),
            audited("e", doubted, "does_not_fit"),
            audited("f", "", "cut_short"),
            audited("g", "", "slower_than_forecast"),
        ]
    )
    assert (found.audited, found.expected, found.found, found.agreed) == (7, 4, 4, 2)
    assert (found.recall, found.precision) == (0.5, 0.5)
    assert found.recall_with_admitted == 0.75
    assert found.precision_with_doubtful == 0.75
    assert found.unflagged == ("f",)
    assert found.missed == ("c", "d")
    counts = {each.flag: (each.kind, each.points, each.found) for each in found.flags}
    assert counts == {wrong: ("impossible", 4, 2), doubted: ("doubtful", 2, 2)}


def test_the_small_table_is_judged_right():
    found = judge(audit(read(DATA / "points.csv"), Conditions(), "ideal"))
    # a3 and a6 are flagged and found; a7 (1.9 ms a step where 16 GB have to move) has no flag.
    assert (found.expected, found.agreed, found.unflagged) == (2, 2, ("a7",))


def test_the_audit_never_reads_flags():
    points = read(DATA / "points.csv")
    bare = [replace(each, point=replace(each.point, flag="", use="ok")) for each in points]
    for one, other in zip(audit(points, Conditions()), audit(bare, Conditions()), strict=True):
        assert one.flags == other.flags
        assert [s.words for s in one.suspects] == [s.words for s in other.suspects]


def test_flags_mean_one_thing():
    assert not judged_flags("impossible") & judged_flags("doubtful")
    with pytest.raises(KeyError):
        judged_flags("certain")
