"""What a machine is: one frozen value, SI units, a source for every number.

Peaks are dense, with fp32 accumulation; a sparse marketing figure is never
stored. `None` means that no citable figure was found, never zero. Callers that
need a number ask `require` or `peak`, which name the device and the field that
is missing instead of guessing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from roofcast.hardware.errors import UnknownSpecError, unknown

Kind = Literal["gpu", "cpu", "tpu", "asic", "soc"]
Confidence = Literal["primary", "secondary", "inferred", "unverified", "measured"]

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8")
CONFIDENCES: tuple[str, ...] = get_args(Confidence)

# Transfer rate per lane in one direction (GT/s) and the share left by line coding.
# PCI-SIG base specifications: 128b/130b from 3.0 on; 236 of 256 bytes of a 6.0 flit are payload.
_PCIE_LANES = {
    3: (8e9, 128 / 130),
    4: (16e9, 128 / 130),
    5: (32e9, 128 / 130),
    6: (64e9, 236 / 256),
}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one number comes from.

    confidence: `primary` was traced to a named vendor document, `secondary` to a
    third-party table, `inferred` was computed or assumed, `unverified` was filled
    in from general knowledge and not found, `measured` was read on a machine.
    """

    source: str
    confidence: Confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as its vendor describes it, or as its driver reports it."""

    id: str
    name: str
    vendor: str
    kind: Kind
    architecture: str | None = None
    isa: str | None = None
    """CUDA compute capability, AMD gfx target or CPU vector extensions."""
    status: str | None = None
    year: int | None = None

    aliases: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    """Names that also fit other devices; looking one of them up is an error where they do."""
    driver_names: tuple[str, ...] = ()

    memory_type: str | None = None
    memory_capacity_bytes: int | None = None
    """As marketed; `memory_capacity_note` says what the vendor's GB meant."""
    memory_capacity_note: str | None = None
    memory_usable_bytes: int | None = None
    """As the driver reports it, before any process allocates."""
    memory_bandwidth_bytes_per_s: float | None = None
    memory_bandwidth_note: str | None = None

    peak_flops_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Dense, fp32 accumulation, by dtype (int8: integer operations with int32 accumulation)."""
    fp8_fp16_accumulate_flops_per_s: float | None = None
    """GeForce cards run fp8 twice as fast when they accumulate in fp16; kept apart from `fp8`."""
    peak_note: str | None = None
    compute_units: int | None = None
    """SMs, CUs, Xe cores, GPU cores or CPU cores."""
    boost_clock_hz: float | None = None
    l2_bytes: int | None = None
    llc_bytes: int | None = None
    """Last-level cache beyond L2, or software-managed SRAM."""
    tdp_w: float | None = None

    scale_up_link: str | None = None
    """Device-to-device link; "none" where there is none and traffic goes over PCIe."""
    scale_up_bytes_per_s: float | None = None
    """Per device, in one direction."""
    scale_up_max_devices: int | None = None
    scale_up_note: str | None = None
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    peer_access: bool | None = None
    """Whether devices reach each other's memory over PCIe; unknown counts as yes."""
    peer_access_note: str | None = None
    node_devices: int | None = None
    """Devices of one server."""
    network_bytes_per_s: float | None = None
    """Between servers, per device, in one direction: no part of a device, but of where it stands."""

    price_usd: float | None = None
    price_note: str | None = None
    rent_usd_per_hour: float | None = None
    rent_note: str | None = None

    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, hash=False)
    """By attribute name; a peak is `peak_flops_per_s.bf16`."""

    def __str__(self) -> str:
        """Name and id, as messages show a device."""
        return f"{self.name} ({self.id})"

    def known_numbers(self) -> Iterator[tuple[str, float]]:
        """Every number this spec knows, as (key of `provenance`, SI value)."""
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "peak_flops_per_s":
                yield from ((f"{item.name}.{dtype}", peak) for dtype, peak in value.items())
            elif type(value) in (int, float) and item.name != "year":
                yield item.name, value

    def require(self, name: str) -> float:
        """The number in attribute `name`, or UnknownSpecError naming device and field.

        >>> from roofcast.hardware.catalog import find
        >>> find("h100-sxm").require("memory_bandwidth_bytes_per_s")
        3350000000000.0
        """
        value = getattr(self, name)
        if value is None:
            raise UnknownSpecError(
                f"{self}: its spec does not know {name}; "
                "measure it with a calibration, or give a TOML spec that states it"
            )
        return float(value)

    def peak(self, dtype: str) -> float:
        """Dense peak in FLOP/s (int8: operation/s) with fp32 accumulation.

        There is no fallback: a device without native fp8 has no fp8 peak, and the
        caller who stores weights in fp8 and computes in bf16 asks for bf16.

        >>> from roofcast.hardware.catalog import find
        >>> find("h100-sxm").peak("bf16")
        989400000000000.0
        """
        if dtype not in DTYPES:
            raise unknown("compute dtype", dtype, DTYPES)
        if dtype not in self.peak_flops_per_s:
            known = ", ".join(d for d in DTYPES if d in self.peak_flops_per_s) or "none"
            raise UnknownSpecError(
                f"{self}: its spec knows no dense {dtype} peak (known: {known}); either the device "
                f"has no native {dtype} or no citable figure exists, so name another compute dtype"
            )
        return self.peak_flops_per_s[dtype]

    def ridge_point_flop_per_byte(self, dtype: str) -> float:
        """Arithmetic intensity at which the roofline bends: peak over memory bandwidth.

        Below it an operator is bound by memory, above it by compute (Williams,
        Waterman and Patterson, "Roofline", CACM 52(4), 2009).

        >>> from roofcast.hardware.catalog import find
        >>> round(find("h100-sxm").ridge_point_flop_per_byte("bf16"), 1)  # 989.4e12 / 3.35e12
        295.3
        """
        return self.peak(dtype) / self.require("memory_bandwidth_bytes_per_s")

    @property
    def memory_bytes(self) -> int:
        """The most that programs can allocate: the driver's total, else the marketed capacity."""
        if self.memory_usable_bytes is not None:
            return self.memory_usable_bytes
        return int(self.require("memory_capacity_bytes"))

    @property
    def pcie_bytes_per_s(self) -> float:
        """PCIe bandwidth in one direction after line coding, before protocol overhead.

        lanes * GT/s * coding / 8, with the rates of the PCI-SIG base specifications.

        >>> from roofcast.hardware.catalog import find
        >>> round(find("l40s").pcie_bytes_per_s / 1e9, 2)  # 4.0 x16: 16 * 16e9 * 128/130 / 8
        31.51
        """
        generation = int(self.require("pcie_generation"))
        if generation not in _PCIE_LANES:
            raise UnknownSpecError(
                f"{self}: no rate is known for PCIe {generation}; known: 3, 4, 5, 6"
            )
        transfers_per_s, coding = _PCIE_LANES[generation]
        return self.require("pcie_lanes") * transfers_per_s * coding / 8
