"""A million points of Llama-3.1-70B in one pass; run with `pytest tests/benchmarks -s`."""

from time import perf_counter

import numpy as np

from roofcast.simulator import grid, setup

REPEATS = 5


def test_a_million_points() -> None:
    where = setup("llama-3.1-70b", "h100-sxm", profile="ideal")
    points = grid(np.arange(1, 1001), np.arange(128, 128_128, 128))
    seconds = []
    for _ in range(REPEATS):
        start = perf_counter()
        swept = where.decode(*points)
        breakdown = [np.broadcast_to(time.total_s, swept.step_time_s.shape) for time in swept.times]
        seconds.append(perf_counter() - start)
    count = swept.step_time_s.size
    median = float(np.median(seconds))
    print(
        f"\n{count:,} points, {len(breakdown)} operators each: median {median:.3f} s of "
        f"{REPEATS} ({min(seconds):.3f} to {max(seconds):.3f}), "
        f"{count / median / 1e6:.1f} million points/s, {median / count * 1e6:.3f} us a point"
    )
    assert count == 1_000_000
