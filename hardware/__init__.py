"""What a machine is, and what it achieves.

    from roofcast.hardware import find
    find("h100-sxm").peak("bf16")            # dense FLOP/s, with fp32 accumulation
    find("h100-sxm").provenance["peak_flops_per_s.bf16"]

`catalog` finds devices by name, `detect` describes the attached one, `published`
holds what others measured, `profile` what a calibration measured; `errors` has
every exception of the project.
"""

from roofcast.hardware.accelerator import Accelerator, Provenance
from roofcast.hardware.catalog import all_accelerators, find, names
from roofcast.hardware.errors import InputError, RoofcastError

__all__ = [
    "Accelerator",
    "InputError",
    "Provenance",
    "RoofcastError",
    "all_accelerators",
    "find",
    "names",
]
