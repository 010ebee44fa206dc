"""How checkpoints store their weights: reading quantisation configs, applying them, what-ifs.

`quantization` reads a config, `apply` gives an `Architecture` the formats it names, `requantise`
answers what a model would cost in another format. One reader per method; see `read.READERS`.
"""

from roofcast.simulator.quantization.apply import apply, requantise
from roofcast.simulator.quantization.read import quantization
from roofcast.simulator.quantization.scheme import Quantization

__all__ = ["Quantization", "apply", "quantization", "requantise"]
