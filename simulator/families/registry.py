"""Which family reads which file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Final

from roofcast.hardware.errors import FileFormatError, UnknownNameError, suggestion
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.config import Config, class_defaults
from roofcast.simulator.families.family import Family

MODULES: Final = (
    "dbrx",
    "deepseek",
    "deepseek_v4",
    "gemma3n",
    "gemma4",
    "gpt",
    "gpt_kin",
    "jetmoe",
    "kimi",
    "lfm",
    "llama",
    "llama4",
    "llama_kin",
    "longcat",
    "mamba",
    "mamba_hybrid",
    "minimax_m3",
    "minimax_text",
    "mistral",
    "mixed_heads",
    "moe",
    "moe_kin",
    "nemotron_h",
    "nemotron_nas",
    "olmo_hybrid",
    "opt",
    "qwen",
    "qwen_next",
    "recurrent_gemma",
    "remote_code",
    "zamba",
)

# Where multimodal files keep their text model.
NESTS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
# LlamaForCausalLM -> Llama. Anything after that is another model: ...ForCausalLMEagle3 drafts.
_SUFFIX: Final = re.compile(
    r"(For(CausalLM|ConditionalGeneration|SequenceClassification|TokenClassification"
    r"|QuestionAnswering|RewardModel)|LMHeadModel|TextModel|Model)$"
)


@cache
def families() -> Mapping[str, Family]:
    """Every family by every model_type it reads."""
    modules = (import_module(f"roofcast.simulator.families.{name}") for name in MODULES)
    return {
        model_type: family
        for module in modules
        for family in module.FAMILIES
        for model_type in family.model_types
    }


@cache
def _class_stems() -> frozenset[str]:
    return frozenset(stem for family in families().values() for stem in family.classes)


def parse(fields: Mapping[str, object], source: str) -> tuple[Architecture, Family]:
    """The model that a config.json describes; an unknown family is an error, never a guess."""
    inner, where = _text_model(fields, source)
    model_type = _model_type(inner, fields, source)
    family = families().get(model_type)
    if family is None:
        raise unknown_family(model_type, source)
    if inner is fields:
        _check_class(fields, source)
    config = Config(
        inner,
        {**class_defaults(family.defaults_of or model_type), **family.defaults},
        source=where,
        outer=None if inner is fields else fields,
        core_defaults=family.core_defaults,
        spellings=family.spellings,
    )
    built = family.build(config)
    unread = tuple(
        f"field {name!r} is not understood for {model_type} and was left out of the counts"
        for name in config.unread()
    )
    return replace(built, warnings=built.warnings + unread), family


def unknown_family(model_type: str, source: str) -> UnknownNameError:
    """The error for a model_type nobody reads: nearest matches and all that are supported."""
    known = sorted(families())
    return UnknownNameError(
        f"{source}: unknown model_type {model_type!r}{suggestion(model_type, known)}"
        f"; supported: {', '.join(known)}"
    )


def _text_model(fields: Mapping[str, object], source: str) -> tuple[Mapping[str, object], str]:
    for name in NESTS:
        nested = fields.get(name)
        if isinstance(nested, dict):
            return _text_model(nested, f"{source}: {name}")
    return fields, source


def _model_type(inner: Mapping[str, object], outer: Mapping[str, object], source: str) -> str:
    given = inner.get("model_type", outer.get("model_type"))
    if given is None:
        raise FileFormatError(f"{source}: model_type is missing, so the family is unknown")
    if not isinstance(given, str):
        raise FileFormatError(f"{source}: model_type must be a string, not {given!r}")
    if "model_type" not in inner and f"{given}_text" in families():
        return f"{given}_text"
    return given


def _check_class(fields: Mapping[str, object], source: str) -> None:
    """Refuse a class nobody knows: a draft head or a fork says `llama` and builds something else."""
    given = fields.get("architectures")
    if not isinstance(given, list):
        return
    for name in given:
        stem = _SUFFIX.sub("", name) if isinstance(name, str) else ""
        if stem not in _class_stems():
            raise UnknownNameError(
                f"{source}: unknown architecture {name!r}"
                f"{suggestion(str(name), sorted(_class_stems()))}"
            )
