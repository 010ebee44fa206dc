"""What a checkpoint really stores: bytes by part, from tensor headers, and the formats they imply.

Where headers exist they are the truth: `stored` gives an `Architecture` the bytes its tensors have in
the file, so that resident and read bytes follow the file and not the config's word for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from roofcast.hardware.errors import bad_file
from roofcast.simulator.architecture import Architecture, Layer, Weight
from roofcast.simulator.checkpoint_parts import PARTS, draft_layers, part_of
from roofcast.simulator.config import read_json
from roofcast.simulator.families import registry
from roofcast.simulator.formats import BF16, FORMATS, FP8, FP16, FP32, WeightFormat
from roofcast.simulator.gguf_names import Model, read_model
from roofcast.simulator.quantization.patterns import canonical
from roofcast.simulator.safetensors_file import Tensor, read_header

INDEX: Final = "model.safetensors.index.json"
_LFS: Final = b"version https://git-lfs"
_LATER_PIECE: Final = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a checkpoint, or only their total where the files themselves are not there.

    `model` holds what a GGUF file says of the model besides: config fields, module names.
    """

    source: str
    total_bytes: int
    tensors: tuple[Tensor, ...] = ()
    model: Model | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def bytes_by_part(self) -> dict[str, int]:
        """Bytes of each part of the model, scales and zero points with what they belong to."""
        draft = draft_layers(tensor.name for tensor in self.tensors)
        found: Counter[str] = Counter()
        for tensor in self.tensors:
            found[part_of(tensor.name, draft)] += tensor.bytes
        return {part: found[part] for part in PARTS if found[part]}


def read(path: Path) -> Checkpoint | None:
    """The checkpoint in a folder, or of one .safetensors, index or .gguf file; None if there is none.

    Reads headers only. Raises FileFormatError where a file is truncated or contradicts itself.
    """
    if path.is_dir():
        return _read_folder(path)
    if path.suffix == ".gguf":
        model = read_model(path)
        return Checkpoint(str(path), sum(t.bytes for t in model.tensors), model.tensors, model)
    if path.name.endswith(".index.json"):
        return _read_index(path)
    return _read_files(path, [path])


def _read_folder(folder: Path) -> Checkpoint | None:
    index = folder / INDEX
    if index.is_file():
        return _read_index(index)
    files = [file for file in sorted(folder.glob("*.safetensors")) if _is_there(file)]
    # Mistral's repositories hold the weights twice, the second time as consolidated*.safetensors.
    sharded = [file for file in files if not file.name.startswith("consolidated")]
    if files:
        return _read_files(folder, sharded or files)
    quantised = [file for file in sorted(folder.glob("*.gguf")) if _is_there(file)]
    whole = [file for file in quantised if not _LATER_PIECE.search(file.name)]
    return read(whole[0]) if len(whole) == 1 else None


def architecture_of(checkpoint: Checkpoint, name: str) -> Architecture:
    """The model a GGUF file describes, its weights stored as they are there.

    Raises FileFormatError for a checkpoint that is not GGUF: its config.json describes the model.
    """
    if checkpoint.model is None:
        raise bad_file(checkpoint.source, "describes no model; expected a config.json beside it")
    architecture, _ = registry.parse(checkpoint.model.fields, name)
    return stored(replace(architecture, name=name), checkpoint)


def _read_index(index: Path) -> Checkpoint:
    """The shards an index lists; where none is there, the total it states."""
    fields = read_json(index)
    names = fields.get("weight_map")
    if not isinstance(names, Mapping) or not all(isinstance(n, str) for n in names.values()):
        raise bad_file(index, "expected tensor names and their files", where="weight_map")
    files = [index.parent / Path(str(name)).name for name in dict.fromkeys(names.values())]
    present = [file for file in files if _is_there(file)]
    if files and len(present) == len(files):
        read_ = _read_files(index.parent, files)
        missing = set(map(str, names)) - {tensor.name for tensor in read_.tensors}
        if missing:
            raise bad_file(index, f"its files lack {len(missing)} tensors, {min(missing)!r} first")
        return read_
    metadata = fields.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or total < 1:
        raise bad_file(index, "expected a number of bytes", where="metadata.total_size")
    lacking = f"{len(files) - len(present)} of {len(files)} weight files are missing"
    note = f"{index.parent.name}: {lacking}; only the index's total size was used"
    return Checkpoint(str(index), int(total), warnings=(note,) if present else ())


def _is_there(file: Path) -> bool:
    """Whether a file exists and is not the pointer that Git LFS leaves where it fetched nothing."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return not opened.read(len(_LFS)).startswith(_LFS)


def _read_files(source: Path, files: Iterable[Path]) -> Checkpoint:
    found: dict[str, Tensor] = {}
    for file in files:
        for tensor in read_header(file):
            if tensor.name in found:
                raise bad_file(file, f"stores {tensor.name!r}, which another file stores too")
            found[tensor.name] = tensor
    tensors = tuple(found.values())
    return Checkpoint(str(source), sum(tensor.bytes for tensor in tensors), tensors)


# ---- the formats of an architecture, from the file --------------------------------------------

_PLAIN: Final = {"BF16": BF16, "F16": FP16, "F32": FP32, "F8_E4M3": FP8, "F8_E5M2": FP8}
_EXPERT: Final = re.compile(r"\bexperts\.(?:\d+|\*)\.")
# Matrices that one side stores as one and the other apart: the whole, and its parts.
_FUSED: Final = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "fused_wqa_wkv": ("q_a_proj", "kv_proj"),
}
_SUFFIX: Final = re.compile(
    r"[._](weight|weight_scale(_inv|_2)?|input_scale|scale|weight_packed|weight_shape|weight_g_idx"
    r"|weight_zero_point|weight_global_scale|input_global_scale|qweight|qzeros|scales|g_idx|blocks"
    r"|absmax|quant_map|nested_absmax|nested_quant_map|SCB|quant_state\.\w+|weight_format)$"
)


@dataclass(slots=True)
class _Module:
    """What is stored under one module name: bytes without the bias, and the widest tensor's type."""

    bytes: int = 0
    dtype: str = ""
    widest: int = -1

    def add(self, tensor: Tensor) -> None:
        self.bytes += tensor.bytes
        if tensor.bytes > self.widest:
            self.widest, self.dtype = tensor.bytes, tensor.dtype


def stored(architecture: Architecture, checkpoint: Checkpoint) -> Architecture:
    """The architecture with the bytes its tensors have in the checkpoint.

    A module whose stored bytes are those its format gives keeps that format; another takes a format
    of the stored size. Modules not found keep what the config says, which a warning counts.
    """
    if not checkpoint.tensors:
        return architecture
    modules = _modules(checkpoint)
    missed: list[str] = []

    def found(weight: Weight, prefix: str, share: float) -> Weight:
        if weight.use == "unused":
            return weight
        module = _find(modules, _key(f"{prefix}{weight.path}"))
        if module is None and weight.part == "lm_head" and not weight.resident:
            module = modules.get("embed_tokens")
        if module is None:
            missed.append(weight.path)
            return weight
        return replace(weight, format=_format(weight, module.bytes * share, module.dtype))

    def group(weights: tuple[Weight, ...], prefix: str, count: int = 1) -> tuple[Weight, ...]:
        shares = _shares(weights, count)
        return tuple(found(w, prefix, s) for w, s in zip(weights, shares, strict=True))

    def layer(index: int, given: Layer) -> Layer:
        prefix, experts = f"layers.{index}.", given.experts
        if experts:
            stack = group(experts.weights, prefix, experts.count)
            experts = replace(experts, weights=stack)
        return replace(given, weights=group(given.weights, prefix), experts=experts)

    made = replace(
        architecture,
        layers=tuple(layer(i, given) for i, given in enumerate(architecture.layers)),
        embeddings=group(architecture.embeddings, ""),
        head=group(architecture.head, ""),
    )
    warnings = checkpoint.warnings + _missed(missed, checkpoint.source)
    return replace(made, warnings=made.warnings + warnings)


def _shares(weights: tuple[Weight, ...], count: int) -> list[float]:
    """The part of its module that each weight is: several may be one tensor of the file, and one
    expert is one of `count`."""
    sizes: Counter[str] = Counter()
    for weight in weights:
        sizes[weight.path] += weight.rows * weight.columns
    return [w.rows * w.columns / sizes[w.path] / count for w in weights]


def _missed(paths: list[str], source: str) -> tuple[str, ...]:
    if not paths:
        return ()
    kinds = ", ".join(sorted(set(paths))[:5])
    return (
        f"{source}: {len(paths)} weights were not found in the files ({kinds}); sized by config",
    )


def _format(weight: Weight, stored_bytes: float, dtype: str) -> WeightFormat:
    """The format the config gave where its bytes agree, else one of the stored size."""
    rows, columns = weight.rows, weight.columns
    agrees = abs(weight.format.bytes(rows, columns) - stored_bytes) < 1
    if agrees and not weight.format.plain:
        return weight.format
    known = FORMATS.get(dtype.lower()) or _PLAIN.get(dtype)
    if known is not None and known.bytes(rows, columns) == stored_bytes:
        return known
    if agrees:
        return weight.format
    bits = stored_bytes * 8 / (rows * columns)
    if known is not None and bits >= known.bits:
        base = known
    elif weight.format.plain:
        base = replace(weight.format, name="packed")
    else:
        base = weight.format
    return replace(base, bits=bits, scale_bits=0.0, tensor_bits=0.0, column_bits=0.0)


def _modules(checkpoint: Checkpoint) -> dict[str, _Module]:
    found: dict[str, _Module] = {}
    for tensor in checkpoint.tensors:
        if not tensor.name.endswith("bias"):
            key = _key(_SUFFIX.sub("", tensor.name))
            found.setdefault(key, _Module()).add(tensor)
    return found


def _key(path: str) -> str:
    """The name by which modules of the architecture and of the file are matched: experts as one."""
    spelt = canonical(path).replace("shared_expert.", "shared_experts.")
    return _EXPERT.sub("experts.", spelt)


def _find(modules: Mapping[str, _Module], key: str) -> _Module | None:
    """The module of that name, the sum of its parts, or its half of a fused gate and up."""
    if key in modules:
        return modules[key]
    stem, _, leaf = key.rpartition(".")
    parts = [modules.get(f"{stem}.{part}") for part in _FUSED.get(leaf, ())]
    there = [part for part in parts if part]
    if there:
        return _Module(sum(part.bytes for part in there), dtype=there[0].dtype)
    whole = modules.get(f"{stem}.gate_up_proj") if leaf in _FUSED["gate_up_proj"] else None
    return _Module(whole.bytes // 2, dtype=whole.dtype) if whole else None
