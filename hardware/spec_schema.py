"""The TOML format of a device, checked strictly: unknown keys, wrong types and NaN are errors.

Importing this module costs a pydantic import, so `spec_file` does it only for
files that a user gives; the shipped ones pass the same check in the tests.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from roofcast.hardware.accelerator import Confidence, Kind

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]


class Table(BaseModel):
    """Any table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Memory(Table):
    """Capacity as marketed (GB or GiB, not both) and as the driver reports it; bandwidth."""

    type: Text | None = None
    capacity_gb: Positive | None = None
    capacity_gib: Positive | None = None
    capacity_note: Text | None = None
    usable_bytes: Count | None = None
    bandwidth_gb_per_s: Positive | None = None
    bandwidth_note: Text | None = None

    @model_validator(mode="after")
    def _one_capacity(self) -> Memory:
        if self.capacity_gb is not None and self.capacity_gib is not None:
            raise ValueError("give capacity_gb or capacity_gib, not both")
        return self


class Compute(Table):
    """Processors, clock and caches."""

    units: Count | None = None
    boost_clock_mhz: Positive | None = None
    l2_bytes: Count | None = None
    llc_bytes: Count | None = None


class PeakTflops(Table):
    """Dense peaks with fp32 accumulation, in 1e12 operations per second."""

    fp32: Positive | None = None
    tf32: Positive | None = None
    bf16: Positive | None = None
    fp16: Positive | None = None
    fp8: Positive | None = None
    fp6: Positive | None = None
    fp4: Positive | None = None
    int8: Positive | None = None
    fp8_fp16_accumulate: Positive | None = None
    note: Text | None = None


class Power(Table):
    """Board or module power."""

    tdp_w: Positive | None = None


class ScaleUp(Table):
    """The link between devices; one direction, per device."""

    link: Text | None = None
    gb_per_s_per_direction: Positive | None = None
    max_devices: Count | None = None
    note: Text | None = None


class Pcie(Table):
    """The host interface, and whether devices reach each other's memory over it."""

    generation: Count | None = None
    lanes: Count | None = None
    peer_access: bool | None = None
    peer_access_note: Text | None = None


class Node(Table):
    """The server a device stands in: devices it holds, network per device and direction."""

    devices: Count | None = None
    network_gb_per_s: Positive | None = None


class Price(Table):
    """What one device costs to buy, and to rent for an hour."""

    usd: Positive | None = None
    usd_note: Text | None = None
    rent_usd_per_hour: Positive | None = None
    rent_note: Text | None = None


class SourceException(Table):
    """Fields, as `table.key`, whose source or confidence differs from the file's."""

    fields: Annotated[list[Text], Field(min_length=1)]
    source: Text | None = None
    confidence: Confidence | None = None


class FileProvenance(Table):
    """The source of every number that no exception names."""

    confidence: Confidence = "unverified"
    sources: list[Text] = []
    vendor_text: Literal["direct", "partial", "quoted"] | None = None
    """How the vendor's own text was seen: read, read in part, or quoted by a third party."""
    exceptions: list[SourceException] = []


class SpecFile(Table):
    """A whole file; the keys before the first table are what a device is called."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$")]
    name: Text
    vendor: Text
    kind: Kind
    aliases: list[Text] = []
    families: list[Text] = []
    driver_names: list[Text] = []
    architecture: Text | None = None
    isa: Text | None = None
    status: Text | None = None
    year: Count | None = None
    notes: list[Text] = []

    memory: Memory = Memory()
    compute: Compute = Compute()
    peak_tflops: PeakTflops = PeakTflops()
    power: Power = Power()
    scale_up: ScaleUp = ScaleUp()
    pcie: Pcie = Pcie()
    node: Node = Node()
    price: Price = Price()
    provenance: FileProvenance = FileProvenance()
