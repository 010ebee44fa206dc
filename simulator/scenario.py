"""One simulation written down: model, device, engine, traffic, limits, objectives.

A sweep file multiplies lists of any of these; see sweep_file.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from roofcast.hardware.errors import InputError
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.batching import Served
from roofcast.simulator.requests import Requests
from roofcast.simulator.serving_stats import Objectives, Summary, summary
from roofcast.simulator.simulation import Simulation, launched, simulation
from roofcast.simulator.trace_file import read_trace
from roofcast.simulator.traffic import CLOSED, Traffic, lengths
from roofcast.simulator.workload import Parallelism

MADE_UP: Final[Mapping[str, Any]] = {
    "arrivals": "poisson",
    "cv": 1.0,
    "requests": 1000,
    "input": "1000",
    "output": "200",
    "hits": 0.0,
    "seed": 0,
}
"""Traffic that is made up, where a scenario says nothing else."""

_A: Final = {"rate": "a rate", "cv": "a cv", "seed": "a seed", "requests": "a number of requests"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What `roofcast simulate` is asked for; None leaves a choice to the engine or the model.

    Requests come from `trace`, or are made up: `requests` of them with `input` and `output` lengths
    (see `lengths`), the share `hits` of each prompt found in a prefix cache, arriving at `rate` a
    second as `arrivals` says, or `concurrency` at a time. A trace with `concurrency` keeps its lengths
    only. What is None of these is as in `MADE_UP`.
    """

    model: str
    device: str = "auto"
    engine: str | None = None
    profile: str | None = None
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    trace: str | None = None
    arrivals: str | None = None
    rate: float | None = None
    cv: float | None = None
    requests: int | None = None
    input: str | None = None
    output: str | None = None
    hits: float | None = None
    concurrency: int | None = None
    seed: int | None = None
    token_budget: int | None = None
    max_sequences: int | None = None
    block_tokens: int | None = None
    kv_tokens: int | None = None
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None

    @property
    def objectives(self) -> Objectives:
        """What a request must keep to count as good."""
        return Objectives(self.ttft_slo_s, self.tpot_slo_s)

    def setup(self) -> Setup:
        """The deployment, its names resolved."""
        where = setup(
            self.model,
            self.device,
            engine=self.engine,
            profile=self.profile,
            parallelism=Parallelism(self.tp, self.pp, self.ep, self.dp),
            weight_dtype=self.weight_dtype,
            kv_dtype=self.kv_dtype,
        )
        return launched(where, self.token_budget, self.max_sequences, self.block_tokens)

    def traffic(self) -> Requests:
        """The requests, read or made up. InputError for options that contradict each other."""
        self._check()
        if self.trace is not None:
            return read_trace(self.trace)
        chosen = {name: self._chosen(name) for name in MADE_UP}
        return Traffic(
            count=chosen["requests"],
            input_tokens=lengths(chosen["input"], "input"),
            output_tokens=lengths(chosen["output"], "output"),
            process=chosen["arrivals"] if self.concurrency is None else CLOSED,
            rate_per_s=1.0 if self.rate is None else self.rate,
            cv=chosen["cv"],
            hits=chosen["hits"],
            seed=chosen["seed"],
        ).requests()

    def _chosen(self, name: str) -> Any:
        given = getattr(self, name)
        return MADE_UP[name] if given is None else given

    def _check(self) -> None:
        """One source of requests, and nothing that it would not use."""
        closed = self.concurrency is not None
        if self.trace is None and closed == (self.rate is not None):
            raise InputError(
                "say how requests arrive: a trace file, a rate (requests a second) or a concurrency "
                "(requests in flight)"
            )
        if self.trace is not None:
            for name in ("rate", *MADE_UP):
                if getattr(self, name) is not None:
                    raise InputError(
                        f"give a trace or {_A.get(name, name)}, not both: a trace has its own "
                        "arrivals and lengths"
                    )
        if closed and self.arrivals not in (None, CLOSED):
            raise InputError(
                f"{self.arrivals} arrivals need a rate; with a concurrency the next request comes "
                "when one is answered"
            )
        if not closed and self.arrivals == CLOSED:
            raise InputError("closed arrivals need a concurrency instead of a rate")
        if self.cv is not None and self.arrivals != "gamma":
            raise InputError(f"cv goes with gamma arrivals, not {self._chosen('arrivals')} ones")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scenario, the deployment that it describes and what came of it."""

    scenario: Scenario
    simulation: Simulation
    served: Served

    @property
    def summary(self) -> Summary:
        """The run in numbers."""
        return summary(self.served, self.scenario.objectives)


def simulate(scenario: Scenario) -> Outcome:
    """Serve the scenario's requests. Raises InputError for what can't be, before it starts."""
    requests = scenario.traffic()
    ready = simulation(scenario.setup(), requests, scenario.kv_tokens)
    scenario.objectives.check(requests, ready.policy, ready.times)
    return Outcome(scenario, ready, ready.run(requests, scenario.concurrency))
