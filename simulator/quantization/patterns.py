"""Which modules a quantisation config means, whatever dialect it names them in.

Configs name modules as the checkpoint does, and checkpoints disagree: ``model.layers.3``,
``language_model.model.layers.3`` and ``backbone.layers.3`` are one thing, so are ``mlp`` and
``block_sparse_moe``. Names and globs are therefore compared in one canonical spelling; a regular
expression cannot be respelt, so it is tried on every spelling a module may have.

An expert stack is described once, with ``*`` for the expert's number: a pattern covers the stack if
it covers every expert.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from roofcast.hardware.errors import InputError

_PREFIXES: Final = re.compile(
    r"^(?:(?:model|language_model|backbone|transformer|decoder|text_model|base_model|gpt_neox"
    r"|thinker|llm)\.)+"
)
# Component names that mean the same module in one checkpoint or another.
_SAME: Final = {
    "h": "layers",
    "blocks": "layers",
    "attn": "self_attn",
    "attention": "self_attn",
    "self_attention": "self_attn",
    "ffn": "mlp",
    "feed_forward": "mlp",
    "block_sparse_moe": "mlp",
    "moe": "mlp",
    "router": "gate",
    "w1": "gate_proj",
    "w3": "up_proj",
    "w2": "down_proj",
    "wq_a": "q_a_proj",
    "wq_b": "q_b_proj",
    "wkv": "kv_proj",
    "wo_a": "o_a_proj",
    "wo_b": "o_b_proj",
    "head": "lm_head",
    "embed_out": "lm_head",
    "output_layer": "lm_head",
    "embed": "embed_tokens",
    "wte": "embed_tokens",
}
_SPELLINGS: Final[tuple[dict[str, str], ...]] = (  # stems that regular expressions were written for
    {},
    {"self_attn": "attn", "mlp": "ffn", "q_b_proj": "wq_b", "o_a_proj": "wo_a", "o_b_proj": "wo_b"},
    {"mlp": "block_sparse_moe", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
    {"mlp": "feed_forward", "gate": "router"},
)
# vLLM fuses DeepSeek-V4's two compressing projections; recipes written there use its name.
_FUSED: Final = re.compile(r"\battn\.(?:q_a_proj|kv_proj)\b")
_HOMES: Final = ("", "model.", "language_model.model.", "model.language_model.", "backbone.")
_EXPERT: Final = re.compile(r"\bexperts\.(\d+)(?=\.|$)")
_LAYER: Final = re.compile(r"^layers\.\d+")

Regex = re.Pattern[str]


def canonical(name: str) -> str:
    """A module name or glob in the one spelling that names are compared in.

    >>> canonical("language_model.model.layers.3.block_sparse_moe.gate")
    'layers.3.mlp.gate'
    >>> canonical("*.attn.*")
    '*.self_attn.*'
    """
    bare = _PREFIXES.sub("", name).replace("indexers_proj", "indexer.weights_proj")
    return ".".join(
        _SAME.get(part, part) if part[-1:] != "*" else _SAME.get(part[:-1], part[:-1]) + "*"
        for part in bare.split(".")
    )


@dataclass(frozen=True, slots=True)
class Patterns:
    """A set of modules, given by what a config wrote.

    `names` cover the module of that name and all below it, wherever the name stands in a path;
    `heads` are globs that end in their only star; `globs` and `expressions` are compiled; `pieces`
    cover any path they are a part of (AutoAWQ's rule).
    """

    names: frozenset[str] = frozenset()
    heads: tuple[str, ...] = ()
    globs: tuple[Regex, ...] = ()
    expressions: tuple[Regex, ...] = ()
    pieces: tuple[str, ...] = ()
    uneven: tuple[str, ...] = field(default=(), compare=False)

    def cover(self, path: str) -> bool:
        """Whether the module at that path is one of these."""
        spelt = canonical(path)
        parts = spelt.split(".")
        if self.names and any(
            ".".join(parts[i:j]) in self.names
            for i in range(len(parts))
            for j in range(i + 1, len(parts) + 1)
        ):
            return True
        if not (self.heads or self.globs or self.expressions or self.pieces):
            return False
        if ".*" in spelt:  # an expert stack: every expert must be covered, two stand for all
            return all(self._wild(spelt.replace(".*", f".{index}", 1)) for index in (0, 1))
        return self._wild(spelt)

    def _wild(self, spelt: str) -> bool:
        if spelt.startswith(self.heads) or any(glob.match(spelt) for glob in self.globs):
            return True
        if any(piece in f"model.{spelt}" for piece in self.pieces):
            return True
        return bool(self.expressions) and _expressed(self.expressions, _without_layer(self, spelt))


def modules(entries: Iterable[str]) -> Patterns:
    """Names, with ``*`` or as regular expressions where they hold such signs (transformers)."""
    plain = [entry for entry in entries if entry and not set(entry) & set("\\^$+?[](){}|")]
    signs = [entry for entry in entries if entry and set(entry) & set("\\^$+?[](){}|")]
    return _merge(globs(plain), Patterns(expressions=_compiled(signs, ends=r"(?=\.|$)")))


def globs(entries: Iterable[str]) -> Patterns:
    """Shell globs in which a star crosses dots (ModelOpt, Quark)."""
    names: list[str] = []
    heads: list[str] = []
    rest: list[Regex] = []
    for entry in entries:
        spelt = canonical(entry)
        if "*" not in spelt and "?" not in spelt:
            names.append(spelt)
        elif spelt.endswith("*") and not set(spelt[:-1]) & set("*?"):
            heads.append(spelt[:-1])
        else:
            text = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in spelt)
            rest.append(re.compile(f"{text}(?:\\..*)?\\Z"))
    stacked, uneven = _stacks(names)
    return Patterns(frozenset(names) | stacked, tuple(heads), tuple(rest), uneven=uneven)


def prefixed(entries: Iterable[str]) -> Patterns:
    """Module names, or regular expressions after ``re:`` (compressed-tensors)."""
    given = tuple(entries)
    found = globs(entry for entry in given if not entry.startswith("re:"))
    expressions = _compiled(entry[3:] for entry in given if entry.startswith("re:"))
    return _merge(found, Patterns(expressions=expressions))


def pieces(entries: Iterable[str]) -> Patterns:
    """Any part of a path (AutoAWQ's modules_to_not_convert)."""
    return Patterns(pieces=tuple(entry for entry in entries if entry))


def expressions(entries: Iterable[str]) -> Patterns:
    """Regular expressions (GPTQModel's dynamic rules)."""
    return Patterns(expressions=_compiled(entries))


def _merge(left: Patterns, right: Patterns) -> Patterns:
    return Patterns(
        left.names | right.names,
        left.heads + right.heads,
        left.globs + right.globs,
        left.expressions + right.expressions,
        left.pieces + right.pieces,
        left.uneven + right.uneven,
    )


def _stacks(names: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Stacks whose experts are all named, 0 to n - 1, and those named only in part."""
    seen: dict[str, set[int]] = {}
    for name in names:
        match = _EXPERT.search(name) if "experts." in name else None
        if match:
            stack = f"{name[: match.start(1)]}*{name[match.end(1) :]}"
            seen.setdefault(stack, set()).add(int(match[1]))
    whole = frozenset(s for s, ids in seen.items() if len(ids) > 1 and max(ids) + 1 == len(ids))
    return whole, tuple(stack for stack in seen if stack not in whole)


def _compiled(entries: Iterable[str], ends: str = "") -> tuple[Regex, ...]:
    made = []
    for entry in entries:
        try:
            made.append(re.compile(f"(?:{entry}){ends}" if ends else entry))
        except re.error as error:
            raise InputError(
                f"quantization_config: {entry!r} is not a regular expression ({error})"
            ) from error
    return tuple(made)


def _without_layer(patterns: Patterns, spelt: str) -> str:
    """The path with layer 0 where no expression can tell layers apart, so that answers repeat."""
    if any(sign.isdigit() for entry in patterns.expressions for sign in entry.pattern):
        return spelt
    return _LAYER.sub("layers.0", spelt)


@lru_cache(maxsize=8192)
def _expressed(expressions_: tuple[Regex, ...], spelt: str) -> bool:
    return any(entry.match(name) for name in _spellings(spelt) for entry in expressions_)


def _spellings(spelt: str) -> tuple[str, ...]:
    parts = spelt.split(".")
    stems = dict.fromkeys(
        _FUSED.sub("attn.fused_wqa_wkv", ".".join(words.get(part, part) for part in parts))
        for words in _SPELLINGS
    )
    return tuple(home + stem for stem in stems for home in _HOMES)
