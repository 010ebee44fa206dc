"""Where every number comes from: device specs, profile parameters, links, the model's sizes."""

from __future__ import annotations

from collections.abc import Sequence

from roofcast.hardware.profile import Profile
from roofcast.reports import device_text, profile_text, units, words
from roofcast.reports.document.blocks import Block, Bullets, Captioned, Fold, Section, Text
from roofcast.reports.sections import constants
from roofcast.reports.sections.cases import Case
from roofcast.reports.tables import Column, Table


def section(cases: Sequence[Case], model_source: str = "") -> Section:
    """The model, every device once, every profile once, and the constants of engines and links."""
    devices = {case.where.device.id: case.where.device for case in cases}
    profiles = {case.where.profile.name: case.where.profile for case in cases}
    blocks: list[Block] = [Captioned("The model", model(cases[0]))]
    blocks += [Bullets((f"Source: {model_source}.",))] if model_source else []
    for device in devices.values():
        sources = device_text.sources(device)
        blocks += [
            Captioned(f"Datasheet of {device}", device_text.numbers(device, sources)),
            Bullets(
                (
                    *(f"[{number}] {source}" for number, source in enumerate(sources, start=1)),
                    *(f"Note: {note}" for note in device.notes),
                )
            ),
        ]
    blocks += [_profile(profile) for profile in profiles.values() if profile.engine != "ideal"]
    blocks += constants.folds(cases)
    return Section("provenance", "Where every number comes from", tuple(blocks))


def model(case: Case) -> Table:
    """What the forecast read off the model's config."""
    architecture = case.where.architecture
    longest = architecture.max_context
    facts = [
        ("name", architecture.name),
        ("family", architecture.family),
        ("parameters", f"{architecture.parameters:,}"),
        ("active per token", f"{architecture.active_parameters:,.0f}"),
        ("weights", f"{units.data(architecture.weight_bytes)}"),
        ("layers", f"{len(architecture.layers):,}"),
        ("hidden size", f"{architecture.hidden_size:,}"),
        ("vocabulary", f"{architecture.vocab_size:,}"),
        ("longest context", units.UNKNOWN if longest is None else f"{longest:,}"),
    ]
    return Table(
        (
            Column("what", [name for name, _ in facts], right=False),
            Column("value", [value for _, value in facts], right=False),
        )
    )


def _profile(profile: Profile) -> Fold:
    """Every parameter of a profile; its sources are numbered, because they repeat."""
    sources = list(dict.fromkeys(s for each in profile.parameters.values() for s in each.sources))
    blocks: list[Block] = [
        Text(f"{words.provenance(profile)} {words.trust(profile)}"),
        Captioned(f"Parameters of {words.profile_name(profile)}", _parameters(profile, sources)),
        Bullets(tuple(f"[{number}] {source}" for number, source in enumerate(sources, start=1))),
    ]
    extra = [f"measured: {profile_text.roof(key, value)}" for key, value in profile.roofs.items()]
    extra += [
        f"curve {key}: {len(curve.points)} points over {curve.axis}, {curve.origin}"
        f"{', ' if curve.sources else ''}{'; '.join(curve.sources)}"
        for key, curve in profile.curves.items()
    ]
    extra += [f"condition {key}: {value}" for key, value in profile.conditions.items()]
    blocks += [Bullets(tuple(extra))] if extra else []
    count = len(profile.parameters)
    return Fold(f"Profile {words.profile_name(profile)}: {count} parameters", tuple(blocks))


def _parameters(profile: Profile, sources: Sequence[str]) -> Table:
    items = profile.parameters.items()
    shown = profile_text.parameters(profile).columns[:5]
    return Table(
        (
            *shown,
            Column("source", [_numbers(each.sources, sources) for _, each in items], right=False),
            Column("note", [each.note for _, each in items], right=False),
        )
    )


def _numbers(own: Sequence[str], sources: Sequence[str]) -> str:
    return " ".join(f"[{sources.index(source) + 1}]" for source in own)
