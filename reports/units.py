"""SI numbers to the text a person reads: three significant digits, a prefix, the unit.

Prefixes are decimal everywhere (1 GB = 1e9 bytes), as in datasheets and in bandwidths. `gib` is only
for what a driver or an operating system reports, which counts in 2**30; text then says GiB.
"""

from __future__ import annotations

import math

_LARGE = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNT_WORDS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
UNKNOWN = "–"
_MANY = 10_000  # of a binary unit; who means so many would take the next one


def significant(value: float, digits: int = 3) -> str:
    """A plain number of `digits` significant digits, never in exponent form, grouped in thousands.

    >>> significant(3.349), significant(988.6), significant(0.01234), significant(45_678.0)
    ('3.35', '989', '0.0123', '45,678')
    >>> significant(9.996), significant(0.0), significant(float("nan"))
    ('10.0', '0', '–')
    """
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{value if decimals == 0 else rounded:,.{decimals}f}"


def scaled(value: float, unit: str, digits: int = 3) -> str:
    """A number of SI `unit` with a decimal prefix from k to E.

    >>> scaled(3.35e12, "B/s"), scaled(989.4e12, "FLOP/s"), scaled(80e9, "B"), scaled(512, "B")
    ('3.35 TB/s', '989 TFLOP/s', '80.0 GB', '512 B')
    >>> scaled(999.9e9, "B/s")  # rounds up into the next prefix
    '1.00 TB/s'
    """
    if not math.isfinite(value):
        return significant(value)
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    for factor, prefix in _LARGE:
        if rounded >= factor:
            return f"{significant(value / factor, digits)} {prefix}{unit}"
    return f"{significant(value, digits)} {unit}"


def tidy(value: float, unit: str, digits: int = 3) -> str:
    """`scaled` without zeros that carry nothing: for nominal figures, such as a datasheet's.

    >>> tidy(80e9, "B"), tidy(3.35e12, "B/s"), tidy(8e12, "B/s"), tidy(100, "W")
    ('80 GB', '3.35 TB/s', '8 TB/s', '100 W')
    """
    number, _, rest = scaled(value, unit, digits).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {rest}"


def seconds(value: float, digits: int = 3) -> str:
    """A time: ns to s below a minute, then minutes and hours.

    >>> seconds(12.4e-3), seconds(850e-6), seconds(1.2), seconds(125.0), seconds(7384.0)
    ('12.4 ms', '850 µs', '1.20 s', '2 min 5 s', '2 h 3 min')
    >>> seconds(0.9999e-3), seconds(0), seconds(float("nan"))
    ('1.00 ms', '0 s', '–')
    """
    if math.isnan(value):
        return UNKNOWN
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    if rounded >= 3600:
        minutes = round(value / 60)
        return f"{minutes // 60} h {minutes % 60} min"
    if rounded >= 60:
        whole = round(value)
        return f"{whole // 60} min {whole % 60} s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if rounded >= factor:
            return f"{significant(value / factor, digits)} {unit}"
    return "0 s"


def seconds_range(low: float, high: float) -> str:
    """Two times, the unit once where it is the same.

    >>> seconds_range(4.15e-3, 6.83e-3), seconds_range(0.98e-3, 1.2e-3)
    ('4.15–6.83 ms', '980 µs – 1.20 ms')
    """
    first, last = seconds(low), seconds(high)
    number, _, unit = first.partition(" ")
    same = last.endswith(f" {unit}") and last.count(" ") == 1
    return f"{number}–{last}" if same else f"{first} – {last}"


def data(value: float) -> str:
    """Bytes in decimal units.

    >>> data(16.06e9), data(131_072)
    ('16.1 GB', '131 kB')
    """
    return scaled(value, "B")


def rate(value: float) -> str:
    """A nominal bandwidth.

    >>> rate(3.35e12), rate(450e9)
    ('3.35 TB/s', '450 GB/s')
    """
    return tidy(value, "B/s")


def flop_rate(value: float) -> str:
    """A nominal peak.

    >>> flop_rate(1978.9e12)
    '1.98 PFLOP/s'
    """
    return tidy(value, "FLOP/s")


def capacity(value: float) -> str:
    """A nominal size: in binary units where it is whole in them, as memories are made, else decimal.

    >>> capacity(80 * 2**30), capacity(141e9), capacity(50 * 2**20), capacity(12 * 2**9)
    ('80 GiB', '141 GB', '50 MiB', '6 KiB')
    >>> capacity(80e9)  # 78,125,000 KiB as well, but nobody would say so
    '80 GB'
    """
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value % factor == 0 and 1 <= value / factor < _MANY:
            return f"{value / factor:,.0f} {unit}"
    return tidy(value, "B")


def gib(value: float) -> str:
    """Bytes in binary units, for what drivers and operating systems report.

    >>> gib(85_520_809_984)
    '79.6 GiB'
    """
    return f"{significant(value / 2**30)} GiB"


def count(value: float) -> str:
    """How many, as model cards write it: 8.03 B parameters; exact below a million.

    >>> count(8_030_261_248), count(361_821_120), count(4096)
    ('8.03 B', '362 M', '4,096')
    """
    rounded = float(f"{value:.2e}")
    for factor, word in _COUNT_WORDS:
        if rounded >= factor:
            return f"{significant(value / factor)} {word}"
    return f"{value:,.0f}"


def percent(fraction: float) -> str:
    """A fraction in per cent: two digits below ten, else none after the point.

    >>> percent(0.783), percent(0.0421), percent(1.0), percent(0.0004), percent(0.998)
    ('78 %', '4.2 %', '100 %', '0.040 %', '99.8 %')
    """
    if math.isnan(fraction):
        return UNKNOWN
    value = 100 * fraction
    near_full = 99 < abs(value) < 99.95
    digits = 3 if near_full or abs(value) >= 99.5 else 2
    return f"{significant(value, digits) if value else '0'} %"


def tokens(value: float) -> str:
    """A number of tokens, short: a power of two in k = 1024 as context lengths are named.

    >>> tokens(8192), tokens(131072), tokens(1000), tokens(512), tokens(1536)
    ('8k', '128k', '1000', '512', '1536')
    """
    whole = round(value)
    if whole >= 1024 and whole % 1024 == 0:
        return f"{whole // 1024}k"
    return str(whole)
