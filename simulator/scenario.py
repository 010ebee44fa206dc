"""One simulation written down: model, device, engine, traffic, limits, objectives.

A sweep file multiplies lists of any of these; see sweep_file.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.hardware.errors import InputError
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.batching import Served
from roofcast.simulator.requests import Requests
from roofcast.simulator.serving_stats import Objectives, Summary, summary
from roofcast.simulator.simulation import Simulation, launched, simulation
from roofcast.simulator.trace_file import read_trace
from roofcast.simulator.traffic import Traffic, lengths
from roofcast.simulator.workload import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What `roofcast simulate` is asked for; None leaves a choice to the engine or the model.

    Requests come from `trace`, or are made up: `requests` of them with `input` and `output` lengths
    (see `lengths`), arriving at `rate` a second, or `concurrency` at a time. A trace with
    `concurrency` keeps its lengths only.
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
    arrivals: str = "poisson"
    rate: float | None = None
    cv: float = 1.0
    requests: int = 1000
    input: str = "1000"
    output: str = "200"
    concurrency: int | None = None
    seed: int = 0
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
        """The requests, read or made up. InputError where neither a rate nor a number is given."""
        if self.trace is not None:
            if self.rate is not None:
                raise InputError("give a trace or a rate, not both: a trace has its arrival times")
            return read_trace(self.trace)
        closed = self.concurrency is not None
        if closed == (self.rate is not None):
            raise InputError(
                "say how requests arrive: a trace file, a rate (requests a second) or a concurrency "
                "(requests in flight)"
            )
        return Traffic(
            count=self.requests,
            input_tokens=lengths(self.input, "input"),
            output_tokens=lengths(self.output, "output"),
            process="closed" if closed else self.arrivals,
            rate_per_s=1.0 if self.rate is None else self.rate,
            cv=self.cv,
            seed=self.seed,
        ).requests()


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
