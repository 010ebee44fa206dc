"""What a plan is asked: model, traffic, objectives, devices with prices, options to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.memory_policy import Launch
from roofcast.simulator.planning.prices import Power, Price
from roofcast.simulator.planning.speculation import Speculation
from roofcast.simulator.planning.traffic import Objectives, Traffic

Rank = Literal["cost", "throughput", "latency"]


@dataclass(frozen=True, slots=True)
class Options:
    """What to try. Sizes are ranks; `expert` None tries no expert parallelism and all ranks of it.

    A dtype of None is the checkpoint's own. `replica_devices` caps the devices of one replica.
    `offload` is the share of routed experts kept in host memory, `disaggregated` also tries prompts and
    decode on devices of their own.
    """

    tensor: tuple[int, ...] = (1, 2, 4, 8)
    pipeline: tuple[int, ...] = (1, 2, 4)
    data: tuple[int, ...] = (1, 2, 4, 8)
    expert: tuple[int, ...] | None = None
    weight_dtypes: tuple[str | None, ...] = (None,)
    kv_dtypes: tuple[str | None, ...] = (None,)
    replica_devices: int = 8
    engine: str | None = None
    profile: str | None = None
    launch: Launch = Launch()
    speculation: Speculation | None = None
    offload: float = 0.0
    disaggregated: bool = False

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data"):
            sizes = getattr(self, name)
            if not sizes or min(sizes) < 1:
                raise InputError(f"{name} parallelism to try must be at least 1, not {sizes}")
        if self.replica_devices < 1:
            raise InputError(f"a replica has at least 1 device, not {self.replica_devices}")
        if not 0 <= self.offload < 1:
            raise InputError(f"experts to offload: a share from 0 to below 1, not {self.offload:g}")
        smallest = min(self.tensor) * min(self.pipeline) * min(self.data)
        if smallest > self.replica_devices:
            raise InputError(
                f"the smallest layout to try has {smallest} devices, but a replica may have "
                f"{self.replica_devices}"
            )


@dataclass(frozen=True)
class Asked:
    """A whole question. `prices` by device id override the specs' own."""

    model: Architecture
    traffic: Traffic
    objectives: Objectives
    devices: tuple[Accelerator, ...]
    options: Options = field(default_factory=Options)
    prices: Mapping[str, Price] = field(default_factory=dict)
    power: Power = field(default_factory=Power)
    rank: Rank = "cost"

    def __post_init__(self) -> None:
        if not self.devices:
            raise InputError("name at least one device to plan with")
        known = {device.id for device in self.devices}
        for name in self.prices:
            if name not in known:
                raise InputError(
                    f"a price is given for {name}, which is not among the devices to plan with "
                    f"({', '.join(sorted(known))})"
                )
        limit = self.model.max_context
        if limit is not None and self.traffic.longest > limit:
            raise InputError(
                f"requests of up to {self.traffic.longest:,.0f} tokens are beyond the {limit:,} that "
                f"{self.model.name} allows"
            )
