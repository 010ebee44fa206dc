"""Kernel parameters of a device from tables of measured kernels.

`calibrate_kernels` reads a folder of tables (tidy CSV, or the parquet layout of aiconfigurator-core),
leaves out what is known to be wrong, and fits one profile per engine; `compare_forms` says what each
term of the model is worth on shapes the fit has not seen.
"""

from __future__ import annotations

from roofcast.calibrate.kernel_tables.calibration import calibrate_kernels
from roofcast.calibrate.kernel_tables.judging import Comparison, compare_forms

__all__ = ["Comparison", "calibrate_kernels", "compare_forms"]
