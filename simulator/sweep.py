"""Many points at once through joblib: on this machine, or on a Dask or Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from roofcast.hardware.errors import InputError, unknown
from roofcast.simulator.results_store import Result, ResultsStore, key_of
from roofcast.simulator.sweep_file import Point

BACKENDS: Final = ("loky", "threading", "sequential", "dask", "ray")

Runner = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From the document of a point to its results; InputError refuses the point."""

Done = Callable[[int, int, Mapping[str, Any]], None]
"""Told how many points are done, of how many, and what was varied in the last one."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Where points run: `jobs` at once (-1: one a processor), on a backend, at a cluster's address."""

    jobs: int = -1
    backend: str = "loky"
    address: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        if self.jobs == 0 or self.jobs < -1:
            raise InputError(f"jobs must be at least 1, or -1 for one a processor, not {self.jobs}")


def run_points(
    points: Sequence[Point], runner: Runner, store: ResultsStore, workers: Workers, done: Done
) -> list[Result]:
    """Run the points that the store lacks and return the results of all, in order.

    A refused point has its reason for a result. Results are written as they come, so that the same
    call resumes an interrupted one.
    """
    keys = {key_of(point.document): point for point in points}
    missing = {key: point for key, point in keys.items() if key not in store.done()}
    count = len(keys) - len(missing)
    if not missing:
        return list(store.results(set(keys)))
    with _parallel(workers) as parallel:
        from joblib import delayed

        tasks = (delayed(_run)(runner, key, point) for key, point in missing.items())
        for key, result in parallel(tasks):
            store.add(key, result)
            count += 1
            done(count, len(keys), result.point)
    return list(store.results(set(keys)))


def _run(runner: Runner, key: str, point: Point) -> tuple[str, Result]:
    """One point, in whatever process this is called."""
    try:
        return key, Result(point.number, point.varied, runner(point.document))
    except InputError as error:
        return key, Result(point.number, point.varied, {}, str(error))


@contextmanager
def _parallel(workers: Workers) -> Iterator[Any]:
    """A joblib Parallel whose results come one by one, in any order."""
    try:
        from joblib import Parallel, parallel_config
    except ImportError:
        raise InputError("sweeps need joblib: pip install 'roofcast[sweep]'") from None
    with ExitStack() as stack:
        options: dict[str, Any] = {}
        if workers.backend == "dask":
            options["client"] = stack.enter_context(_dask_client(workers))
        if workers.backend == "ray":
            _register_ray(workers)
        stack.enter_context(parallel_config(workers.backend, n_jobs=workers.jobs, **options))
        yield Parallel(return_as="generator_unordered")


def _dask_client(workers: Workers) -> Any:
    """A client of the cluster at the address, or of one started here."""
    try:
        import distributed
    except ImportError:
        raise InputError("the dask backend needs Dask: pip install distributed") from None
    client: Any = distributed.Client  # it carries no types
    if workers.address is not None:
        try:
            return client(workers.address)
        except OSError as error:
            raise InputError(f"no Dask scheduler answers at {workers.address}: {error}") from None
    count = None if workers.jobs < 0 else workers.jobs
    return client(n_workers=count, threads_per_worker=1, dashboard_address=None)


def _register_ray(workers: Workers) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise InputError("the ray backend needs Ray: pip install ray") from None
    ray.init(address=workers.address, ignore_reinit_error=True)
    register_ray()
