"""Reading a Hugging Face config.json: names, defaults and types checked at the door.

A file says less than it seems to. Absent is not null: an absent field takes the default of its
transformers class, null is a value of its own. The same fact has several spellings. Multimodal files
nest the text model. `Config` settles all of that, and remembers which fields nobody asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from roofcast.hardware.errors import FileFormatError, InputError, bad_file
from roofcast.simulator.harmless import is_harmless

MAX_FILE_BYTES: Final = 32 * 2**20
MAX_SIZE: Final = 2**40  # no dimension of a model comes near; more is a broken file
MAX_LAYERS: Final = 10_000

# A field's first name is the one adapters use; the others are spellings seen in files.
# Source: the attribute_map of each transformers 5.24.0 config class, and remote-code configs.
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "num_attention_groups"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "model_max_length", "seq_length"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size", "dim_feedforward"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        "num_experts_per_token",
        "experts_per_token",
        "moe_k",
        "moe_topk",
        "moe_top_k",
        "top_k_experts",
    ),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "num_nextn_predict_layers": ("num_mtp_layers", "mtp_num_hidden_layers"),
    "layer_types": ("layers_block_type",),
    "norm_topk_prob": ("moe_renormalize",),
    "tie_word_embeddings": ("tie_embedding",),
    "hidden_act": ("hidden_activation", "activation_function", "mlp_hidden_act"),
    "rms_norm_eps": ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"),
    "dtype": ("torch_dtype",),
}

# Spellings that may honestly differ within one file; the first of them counts.
LOOSE: Final = frozenset({"max_position_embeddings", "hidden_act", "rms_norm_eps", "dtype"})

# Sizes without which a file describes no model. Published top-level files always carry them;
# nested text_configs are saved as differences from the class, so there the class default is meant.
CORE: Final = frozenset(
    {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}
)

_MISSING: Final = object()


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in a file; anything else is a FileFormatError of one line."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise bad_file(
                path, f"larger than {MAX_FILE_BYTES // 2**20} MiB; no config.json is that large"
            )
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise bad_file(path, f"cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise bad_file(path, "expected JSON text, found binary data") from error
    except ValueError as error:
        raise bad_file(path, f"not valid JSON ({error})") from error
    except RecursionError as error:
        raise bad_file(path, "nested too deeply to be a config.json") from error
    if not isinstance(value, dict):
        raise bad_file(path, f"expected a JSON object, found {_kind(value)}")
    return value


@cache
def class_defaults(model_type: str) -> Mapping[str, object]:
    """What transformers 5.24.0 takes for fields that a file of this model_type leaves out."""
    table = resources.files("roofcast.simulator.families").joinpath("defaults.json")
    return _all_defaults(table.read_text()).get(model_type, {})


@cache
def _all_defaults(text: str) -> dict[str, dict[str, object]]:
    table: dict[str, dict[str, object]] = json.loads(text)
    return table


class Config:
    """One text model's fields, typed, with the defaults of its class underneath.

    `outer` is the whole file where the text model is nested in it, else empty. `core_defaults` says
    that published files of this family leave core sizes to the class. `spellings` are names that mean
    a field in this family only.
    """

    def __init__(
        self,
        fields: Mapping[str, object],
        defaults: Mapping[str, object],
        *,
        source: str,
        outer: Mapping[str, object] | None = None,
        core_defaults: bool = False,
        spellings: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Take the file's fields; nothing is read or checked before it is asked for."""
        self.fields = fields
        self.outer = outer or {}
        self.source = source
        self._defaults = defaults
        self._core_defaults = core_defaults or bool(outer)
        self._own_spellings = spellings or {}
        self._read: set[str] = {"model_type", "architectures", "text_config"}

    # ---- looking a field up -------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the file itself has the field, null or not, under any of its spellings."""
        return any(spelling in self.fields for spelling in self._spellings(name))

    def raw(self, name: str, default: object = _MISSING) -> object:
        """The file's value, else the class default, else `default`, else an error."""
        found = [s for s in self._spellings(name) if s in self.fields]
        self._read.update(found)
        values = [self.fields[spelling] for spelling in found]
        known = [value for value in values if value is not None]
        if known:
            if name not in LOOSE and any(value != known[0] for value in known):
                pairs = ", ".join(f"{s} = {_show(self.fields[s])}" for s in found)
                raise self.error(name, f"is given twice with different values: {pairs}")
            return known[0]
        if values:
            return None
        if name not in CORE or self._core_defaults:
            for spelling in self._spellings(name):
                if spelling in self._defaults:
                    return self._defaults[spelling]
        if default is _MISSING:
            raise self.error(name, "is missing, and a model cannot be sized without it")
        return default

    def error(self, name: str, problem: str) -> InputError:
        """An error about one field of this file."""
        return FileFormatError(f"{self.source}: {name} {problem}")

    # ---- typed access -------------------------------------------------------------------------

    def size(self, name: str, default: int | None = None) -> int:
        """A positive whole number; null and absent take `default` where one is given."""
        value = self.raw(name, _MISSING if default is None else default)
        return self._whole(name, default if value is None and default is not None else value, 1)

    def optional_size(self, name: str) -> int | None:
        """A positive whole number, or None where the field is null, zero or absent everywhere."""
        value = self.raw(name, None)
        return self._whole(name, value, 0) or None if value is not None else None

    def count(self, name: str, default: int = 0) -> int:
        """A whole number that may be zero; null and absent mean `default`."""
        value = self.raw(name, default)
        return self._whole(name, default if value is None else value, 0)

    def flag(self, name: str, default: bool = False) -> bool:
        """A true or false; null and absent mean `default`."""
        value = self.raw(name, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, not {_show(value)}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number, whole or not."""
        value = self.raw(name, _MISSING if default is None else default)
        value = default if value is None and default is not None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(name, f"must be a positive number, not {_show(value)}")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self.raw(name, _MISSING if default is None else default)
        value = default if value is None and default is not None else value
        if not isinstance(value, str):
            raise self.error(name, f"must be a string, not {_show(value)}")
        return value

    def items(self, name: str, length: int | None = None) -> tuple[object, ...] | None:
        """A list of `length` entries, or None where null or absent."""
        value = self.raw(name, None)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.error(name, f"must be a list, not {_show(value)}")
        if length is not None and len(value) != length:
            raise self.error(name, f"has {len(value)} entries, but the model has {length} layers")
        return tuple(value)

    def names(
        self, name: str, length: int | None = None, allowed: Iterable[str] = ()
    ) -> tuple[str, ...] | None:
        """A list of strings, each one of `allowed` where that is given."""
        entries = self.items(name, length)
        if entries is None:
            return None
        choices = tuple(allowed)
        for entry in entries:
            if not isinstance(entry, str) or (choices and entry not in choices):
                wanted = f"one of {', '.join(choices)}" if choices else "a string"
                raise self.error(name, f"has an entry {_show(entry)}; each must be {wanted}")
        return tuple(str(entry) for entry in entries)

    def wholes(self, name: str, length: int | None = None) -> tuple[int, ...] | None:
        """A list of whole numbers, zero included."""
        entries = self.items(name, length)
        return None if entries is None else tuple(self._whole(name, e, 0) for e in entries)

    def per_layer(self, name: str, layers: int, default: int | None = None) -> tuple[int, ...]:
        """A positive number for each layer, given once or as a list."""
        value = self.raw(name, _MISSING if default is None else default)
        if isinstance(value, list | tuple):
            entries = self.items(name, layers) or ()
            return tuple(self._whole(name, entry, 1) for entry in entries)
        return (self.size(name, default),) * layers

    def section(self, name: str) -> Config:
        """A nested object, read like a file of its own; empty where null or absent."""
        value = self.raw(name, None)
        if value is not None and not isinstance(value, dict):
            raise self.error(name, f"must be an object, not {_show(value)}")
        return Config(
            value or {}, {}, source=f"{self.source}: {name}", outer=self.fields, core_defaults=True
        )

    # ---- facts that several families share ----------------------------------------------------

    @property
    def layers(self) -> int:
        """The number of decoder layers."""
        count = self.size("num_hidden_layers")
        if count > MAX_LAYERS:
            raise self.error("num_hidden_layers", f"must be at most {MAX_LAYERS}, not {count}")
        return count

    def tied(self) -> bool:
        """Whether head and embedding are one table.

        The text model's own flag counts, then the outer one, then the default of the class; Qwen3-VL
        and Qwen3.5 say it on the outer level only.
        """
        name = "tie_word_embeddings"
        if name not in self.fields and isinstance(self.outer.get(name), bool):
            return bool(self.outer[name])
        return self.flag(name)

    def unread(self) -> tuple[str, ...]:
        """Fields of the file that may matter and that nothing asked for.

        Left out: what is null, false or empty; what the family's own class knows, so that its
        adapter has decided about it; what is known to be harmless.
        """
        return tuple(
            name
            for name, value in self.fields.items()
            if value and name not in self._read | self._defaults.keys() and not is_harmless(name)
        )

    def ignore(self, *names: str) -> None:
        """Mark fields as understood although this family does not build anything from them."""
        self._read.update(names)

    def _spellings(self, name: str) -> tuple[str, ...]:
        return (name, *SPELLINGS.get(name, ()), *self._own_spellings.get(name, ()))

    def _whole(self, name: str, value: object, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            wanted = "a positive whole number" if least else "a whole number"
            raise self.error(name, f"must be {wanted}, not {_show(value)}")
        if not least <= value <= MAX_SIZE:
            raise self.error(name, f"must be between {least} and {MAX_SIZE}, not {_show(value)}")
        return value


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    return "null" if value is None else f"a {type(value).__name__}"


def _show(value: object) -> str:
    text = "null" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
