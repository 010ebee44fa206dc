"""Result files of inference benchmarks, each format in a reader of its own, as one kind of record.

    from roofcast.calibrate.benchmark_files.reader import read
    read("vllm.json")[0].tpot_s     # Quantity(value=0.0102, source='mean_tpot_ms')

What a file says is kept with the place where it says it; what it doesn't say stays unknown.
"""
