"""What a report was asked to hold besides its forecasts: a plan, audits, a calibration, prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roofcast.calibrate.audit.audit import Audited
from roofcast.calibrate.audit.before_after import Gain
from roofcast.calibrate.calibration import Calibration
from roofcast.hardware.profile import Profile
from roofcast.simulator.planning.plan import Plan
from roofcast.simulator.planning.prices import Power, Price


@dataclass(frozen=True)
class Asked:
    """Everything optional; what is absent has no section.

    `prices` are by device id and come before those of the specs. `calibration` is a profile with its
    raw samples, or the profile alone where those are not at hand, which `calibration_gap` explains.
    `model_source` says where the model's config comes from.
    """

    plan: Plan | None = None
    audited: Sequence[Audited] = ()
    gains: Sequence[Gain] = ()
    calibration: Calibration | Profile | None = None
    calibration_gap: str = ""
    prices: Mapping[str, Price] = field(default_factory=dict)
    power: Power = field(default_factory=Power)
    model_source: str = ""
