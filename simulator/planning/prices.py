"""What a device costs by the hour: rented, or bought and powered; and the energy it takes."""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError

HOURS_A_YEAR = 8766.0
DRAW = 0.8
"""Share of its thermal design power that a busy device draws. Assumed; decode is bound by memory."""


@dataclass(frozen=True, slots=True)
class Power:
    """The cost of electricity: per kWh, times what the building takes besides (PUE)."""

    usd_per_kwh: float = 0.12
    overhead: float = 1.3
    draw: float = DRAW

    def __post_init__(self) -> None:
        if self.usd_per_kwh < 0 or self.overhead < 1 or not 0 < self.draw <= 1.5:
            raise InputError(
                "electricity costs at least 0 a kWh, its overhead (PUE) is at least 1, and a device "
                "draws a share of its design power above 0"
            )


@dataclass(frozen=True, slots=True)
class Price:
    """Rent by the hour, or a purchase written off over years; the source says whose price it is."""

    rent_usd_per_hour: float | None = None
    purchase_usd: float | None = None
    years: float = 4.0
    source: str = "given"

    def __post_init__(self) -> None:
        if (self.rent_usd_per_hour is None) == (self.purchase_usd is None):
            raise InputError("a price is a rent by the hour or a purchase, one of the two")
        for name in ("rent_usd_per_hour", "purchase_usd", "years"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(
                    f"a price's {name} must be above 0, not {value:g}; "
                    "rank by throughput or latency where price does not matter"
                )

    def usd_per_hour(self, device: Accelerator, power: Power) -> float:
        """One device for an hour; a bought one pays its electricity, a rented one has paid.

        >>> from roofcast.hardware.catalog import find
        >>> h100 = find("h100-sxm")
        >>> round(Price(purchase_usd=30_000).usd_per_hour(h100, Power()), 3)  # 0.856 + 0.087
        0.943
        """
        if self.rent_usd_per_hour is not None:
            return self.rent_usd_per_hour
        bought = float(self.purchase_usd or 0.0) / (self.years * HOURS_A_YEAR)
        return bought + watts(device, power) / 1e3 * power.overhead * power.usd_per_kwh


def watts(device: Accelerator, power: Power) -> float:
    """What one busy device draws, without the building's share; UnknownSpecError without a power."""
    return device.require("tdp_w") * power.draw


def listed(device: Accelerator) -> Price | None:
    """The price in the device's own spec: rent, else purchase over four years; None without either."""
    if device.rent_usd_per_hour is not None:
        return Price(device.rent_usd_per_hour, source=device.rent_note or "spec")
    if device.price_usd is not None:
        return Price(purchase_usd=device.price_usd, source=device.price_note or "spec")
    return None


def parse(text: str) -> tuple[str, Price]:
    """A price as it is typed: DEVICE=2.5 (rent an hour), DEVICE=30000/4y (bought, over four years).

    >>> parse("h100-sxm=2.5"), parse("b200=40000/5y")[1].years
    (('h100-sxm', Price(rent_usd_per_hour=2.5, purchase_usd=None, years=4.0, source='given')), 5.0)
    """
    name, equals, value = text.replace(" ", "").partition("=")
    bought, slash, years = value.partition("/")
    try:
        if not (name and equals) or (slash and not years.endswith("y")):
            raise ValueError
        if slash:
            return name, Price(purchase_usd=float(bought), years=float(years[:-1]))
        return name, Price(float(value))
    except ValueError:
        raise InputError(
            f"price {text!r} cannot be read; write DEVICE=2.5 for a rent in USD an hour, or "
            "DEVICE=30000/4y for a purchase used for four years"
        ) from None
