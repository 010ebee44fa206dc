"""How far reality is from the roof: real decode runs, micro-benchmarks, fits, validation."""
