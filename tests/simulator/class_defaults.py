"""The class defaults in simulator/families/defaults.json, read from transformers itself.

`python -m tests.simulator.class_defaults` rewrites the file for all registered families; do that
after adding one.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from roofcast.simulator.families.registry import families
from roofcast.simulator.harmless import is_harmless

VERSION: Final = "5.24.0"
FILE: Final = Path(__file__).parents[2] / "simulator" / "families" / "defaults.json"
SOURCE: Final = (
    f"dataclass defaults of the configuration classes of transformers {VERSION} (Apache-2.0), "
    "fields that matter to sizes"
)
# Harmless to sizes, yet read: the longest context, and what a real run of the decoder needs.
_ALSO: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "rms_norm_eps",
    "layer_norm_epsilon",
    "layer_norm_eps",
    "norm_eps",
    "norm_epsilon",
    "norm_topk_prob",
)


def stored() -> dict[str, Any]:
    """What the file says."""
    table: dict[str, Any] = json.loads(FILE.read_text())
    table.pop("_source")
    return table


def from_transformers() -> dict[str, Any]:
    """What the classes say, for every registered model_type that has one."""
    from transformers import PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    inherited = {field.name for field in dataclasses.fields(PretrainedConfig)}
    names = sorted({family.defaults_of or name for name, family in families().items()})
    found = {
        name: _defaults(CONFIG_MAPPING[name], inherited) for name in names if name in CONFIG_MAPPING
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))  # tuples as the lists a file holds
    return plain


def _defaults(config_class: Any, inherited: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        if field.name in inherited or (is_harmless(field.name) and field.name not in _ALSO):
            continue
        value: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if value is dataclasses.MISSING or (field.name.endswith("_config") and value is None):
            continue
        found[field.name] = value
    return found


def write() -> None:
    """Rewrite the file, one line a class."""
    lines = [f' "_source": {json.dumps(SOURCE)}']
    lines += [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in from_transformers().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write()
