"""How well impossible points are found: precision and recall against the flags of a table of points.

The flags were put there by people who knew the sources; the audit never reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from roofcast.calibrate.audit.audit import Audited
from roofcast.calibrate.audit.ranges import judged_flags


@dataclass(frozen=True, slots=True)
class FlagCount:
    """One flag: points that carry it, that could be audited, and that the audit calls impossible."""

    flag: str
    kind: str
    points: int
    audited: int
    found: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """Counts of audited points. `expected` carry an impossible flag, `found` are called impossible.

    `doubtful` are found without an impossible flag, but with one that says they are mislabelled;
    `unflagged` (ids) are found with neither. Of the `missed`, `admitted` were at least called more than
    an engine admits: the cache would fit, but only without any reserve.
    """

    audited: int
    expected: int
    found: int
    agreed: int
    doubtful: int
    unflagged: tuple[str, ...]
    missed: tuple[str, ...]
    admitted: int
    flags: tuple[FlagCount, ...]

    @property
    def recall(self) -> float:
        """Part of the impossible points that was found."""
        return self.agreed / self.expected if self.expected else 1.0

    @property
    def recall_with_admitted(self) -> float:
        """The same, with points called over-admitted counted as found."""
        return (self.agreed + self.admitted) / self.expected if self.expected else 1.0

    @property
    def precision(self) -> float:
        """Part of the found points that carries an impossible flag."""
        return self.agreed / self.found if self.found else 1.0

    @property
    def precision_with_doubtful(self) -> float:
        """The same, with points flagged as mislabelled counted as right."""
        return (self.agreed + self.doubtful) / self.found if self.found else 1.0


def judge(audited: Iterable[Audited]) -> Judgement:
    """Compare the verdicts on points of a table with their flags."""
    wrong, doubted = judged_flags("impossible"), judged_flags("doubtful")
    total, seen, hit = Counter[str](), Counter[str](), Counter[str]()
    expected, found, agreed, doubtful, unflagged, missed = 0, 0, 0, 0, [], []
    count = admitted = 0
    for each in audited:
        point = each.record.point
        flags = frozenset(point.flag.split("|")) - {""} if point is not None else frozenset()
        total.update(flags)
        if point is None or each.cost is None:
            continue
        count += 1
        seen.update(flags)
        is_wrong = bool(flags & wrong)
        expected += is_wrong
        if not each.impossible:
            missed += [point.id] if is_wrong else []
            admitted += is_wrong and "over_admission" in each.flags
            continue
        hit.update(flags)
        found += 1
        agreed += is_wrong
        doubtful += not is_wrong and bool(flags & doubted)
        unflagged += [] if flags & (wrong | doubted) else [point.id]
    kinds = {**dict.fromkeys(doubted, "doubtful"), **dict.fromkeys(wrong, "impossible")}
    rows = (
        FlagCount(flag, kinds.get(flag, "remark"), total[flag], seen[flag], hit[flag])
        for flag, _ in total.most_common()
    )
    return Judgement(
        audited=count,
        expected=expected,
        found=found,
        agreed=agreed,
        doubtful=doubtful,
        unflagged=tuple(unflagged),
        missed=tuple(missed),
        admitted=admitted,
        flags=tuple(rows),
    )
