"""What a table can't tell about its kernels, taken from relatives instead of from a bound.

A fit may end where an efficiency sits at a bound, or where the rows can't tell it from the other terms:
4096 tokens spread over 256 experts never come near the peak. The value there is an accident. The group
is then fitted again with the value of its nearest relatives on the same device held, and if that
explains the rows as well, the relatives' value stands and is called transferred. Where it doesn't, the
rows do say something, and the bound stays, with its status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from roofcast.calibrate.fitting import Errors
from roofcast.calibrate.kernel_tables.forms import form
from roofcast.calibrate.kernel_tables.kernel_fit import KernelFit, Lent, fit_group
from roofcast.hardware.accelerator import Accelerator

_TERMS: Final = ("bandwidth_efficiency", "compute_efficiency")
_VAGUE: Final = 0.3
"""Standard error, relative to the value, beyond which a term counts as not told by its rows."""
_WORSE: Final = 1.05
_SLACK: Final = 0.003
"""How much larger errors may be, times and plus, under a lent value that explains the rows as well."""


def settled(
    fits: Sequence[KernelFit], relatives: Sequence[KernelFit], device: Accelerator
) -> Iterator[KernelFit]:
    """The fits, with values of `relatives` where theirs are accidents."""
    for each in fits:
        yield _settled(each, dict(_lent(each, relatives)), device)


def doubtful(fit: KernelFit) -> tuple[str, ...]:
    """Efficiencies at a bound, told by the rows badly or not at all, or that their form lends."""
    return tuple(
        name
        for name in _TERMS
        if (fit.status(name) not in ("ok", "lent", "absent") or _vague(fit, name))
        or (name in fit.form.lent and fit.status(name) != "lent")
    )


def _vague(fit: KernelFit, name: str) -> bool:
    if fit.status(name) != "ok":
        return False
    estimate = fit.found[name]
    return (estimate.standard_error or 0.0) > _VAGUE * estimate.value


def _settled(fit: KernelFit, offered: Mapping[str, Lent], device: Accelerator) -> KernelFit:
    """The fit again with all that relatives offer, else with the first offer that fits as well."""
    if not offered:
        return fit

    def again(lent: Mapping[str, Lent]) -> KernelFit:
        return fit_group(fit.group, device, form(fit.group.table), lent)

    due = {name: lent for name, lent in offered.items() if name in fit.form.lent}
    best = again(due) if due else fit
    rest = {name: lent for name, lent in offered.items() if name not in due}
    choices = [rest, *({name: lent} for name, lent in rest.items())] if len(rest) > 1 else [rest]
    for lent in choices:
        if lent and _as_good(found := again({**due, **lent}), best):
            return found
    return best


def _lent(fit: KernelFit, relatives: Sequence[KernelFit]) -> Iterator[tuple[str, Lent]]:
    for name in doubtful(fit):
        for circle in _circles(fit, relatives):
            known = [
                each for each in circle if each.status(name) == "ok" and not _vague(each, name)
            ]
            if known:
                value = float(np.exp(np.mean([np.log(each.values[name]) for each in known])))
                whose = ", ".join(sorted({each.group.label for each in known}))
                status = fit.status(name)
                own = "not identifiable" if status in ("ok", "absent") else status
                why = f"{own} in its own rows; that of {whose} on this device"
                yield name, Lent(value, why)
                break


def _circles(fit: KernelFit, relatives: Sequence[KernelFit]) -> Iterator[list[KernelFit]]:
    """Relatives from near to far: the same operator and format, operator, format, kind."""
    others = [r for r in relatives if r is not fit and r.form.kind == fit.form.kind]
    operator, stored = _parts(fit)
    if fit.form.lent:
        plain = [each for each in others if _parts(each)[0] == fit.form.kind]
        yield [each for each in plain if _parts(each)[1] == stored]
        yield plain
    alike = [each for each in others if _parts(each)[0] == operator]
    yield [each for each in alike if _parts(each)[1] == stored]
    yield alike
    yield [each for each in others if _parts(each)[1] == stored]
    yield others


def _parts(fit: KernelFit) -> tuple[str, str]:
    """Operator and format of a group: ('.attention', 'fp8') of '.attention.fp8'."""
    operator, _, stored = fit.group.suffix.rpartition(".")
    return f"{fit.group.table}{operator}", stored


def _as_good(new: KernelFit, old: KernelFit) -> bool:
    was, is_ = Errors.of(old.found.residuals), Errors.of(new.found.residuals)
    return (
        is_.median_ape <= _WORSE * was.median_ape + _SLACK
        and is_.p90_ape <= _WORSE * was.p90_ape + _SLACK
    )
