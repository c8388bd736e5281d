"""Findings about the score plugins of the profiles, where the extender answers one node: these plugins then have no choice.

So the extender chooses by `answers.scores` and `answers.scoringStrategy`, which must say what the profile says.
https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
"""

from collections.abc import Iterator
from typing import Final, get_args

import msgspec

from extender.doctor.facts import Finding
from extender.doctor.scheduler_validation import CHECK, PLUGINS
from extender.settings.configuration import Settings
from extender.settings.rules import ScorePlugins, ScoringStrategy
from extender.wire.scheduler_config import (
    Extender,
    KubeSchedulerConfiguration,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    Profile,
    ResourceSpec,
)

_LEAST_ALLOCATED: Final = "LeastAllocated"
_IMAGES: Final = "ImageLocality"
_USUAL_RESOURCES: Final = (("cpu", 1), ("memory", 1))


def examine_scores(config: KubeSchedulerConfiguration, ours: Extender, settings: Settings) -> Iterator[Finding]:
    """Differences between a profile and our settings. ``ours``: the entry of this service in `extenders`."""
    if settings.placement != "decisive":
        return
    for profile in config.all_profiles:
        yield from _strategy(profile, settings)
        # With another score plugin kube-scheduler chooses from a list, by scores of its own.
        if settings.answers.names == "one" and not settings.answers.scores.others:
            yield from _weights(profile, settings.answers.scores)
            yield from _others(profile)
            if settings.answers.scoring_strategy != "Ignored":
                yield from _resources(profile)
    yield from _extenders(config, ours, settings)


def _strategy(profile: Profile, settings: Settings) -> Iterator[Finding]:
    ours, given = settings.answers.scoring_strategy, profile.arguments(NodeResourcesFitArgs)
    theirs = _LEAST_ALLOCATED
    if given is not None and given.scoring_strategy is not None:
        theirs = given.scoring_strategy.type or _LEAST_ALLOCATED
    if ours not in ("Ignored", theirs):
        problem = f"profile {profile.name}: NodeResourcesFit scores by {theirs}, and answers.scoringStrategy is {ours}"
        remedy = "use the same for both"
        if theirs not in get_args(ScoringStrategy):
            remedy = "set answers.scoringStrategy to the nearer of LeastAllocated and MostAllocated, or to Ignored"
        yield _info(problem, remedy)


def score_weights(profile: Profile) -> dict[str, int]:
    """The weight of each plugin that scores in the profile, as kube-scheduler merges its entries with the defaults."""
    plugins = profile.plugins
    usual = {**ScorePlugins().by_plugin(), _IMAGES: 1}
    weights = {}
    for name in dict.fromkeys((*usual, *plugins.multi_point.enabled_names, *plugins.score.enabled_names)):
        if plugins.is_active(name, "score") and "score" in PLUGINS.get(name, "score").split():
            entries = [each for each in (*plugins.score.enabled, *plugins.multi_point.enabled) if each.name == name]
            # An entry without a weight has weight 1, also for a plugin whose default is another one.
            weights[name] = (entries[0].weight or 1) if entries else usual[name]
    return weights


def _weights(profile: Profile, scores: ScorePlugins) -> Iterator[Finding]:
    ours, all_theirs = scores.by_plugin(), score_weights(profile)
    theirs = {name: all_theirs.get(name, 0) for name in ours}
    if not any(theirs.values()):
        return  # kube-scheduler scores nothing either
    # Only the proportions matter: answers.scoreScale inTree multiplies all weights.
    total, our_total = sum(theirs.values()), sum(ours.values())
    if any(theirs[name] * our_total != ours[name] * total for name in ours):
        differing = [name for name in ours if theirs[name] != ours[name]]
        texts = [f"{name} {theirs[name]}" for name in differing]
        wanted = {f"{name[0].lower()}{name[1:]}": weight for name, weight in theirs.items()}
        yield _info(
            f"profile {profile.name}: answers.scores has other weights than the plugins: {', '.join(texts)}",
            f"set answers.scores: {msgspec.json.encode(wanted).decode()}",
        )
    if all_theirs.get(_IMAGES, 0) > max(theirs["NodeResourcesFit"], 1):
        problem = f"profile {profile.name}: {_IMAGES} has weight {all_theirs[_IMAGES]}, and does not count where filter answers one node"
        yield _info(problem, _list_for(_IMAGES))


def _others(profile: Profile) -> Iterator[Finding]:
    plugins = profile.plugins
    for name in score_weights(profile):
        if name in PLUGINS:
            continue
        scores = "scores" if name in plugins.score.enabled_names else "may score"
        problem = f"profile {profile.name}: {name} {scores} nodes, and the extender does not know these scores"
        yield (_warning if scores == "scores" else _info)(problem, _list_for(name))
    given = profile.arguments(NodeAffinityArgs)
    if given is not None and given.added_affinity is not None and given.added_affinity.preferred:
        problem = f"profile {profile.name}: NodeAffinity adds preferred terms, and the extender does not know them"
        yield _info(problem, _list_for("NodeAffinity"))


def _resources(profile: Profile) -> Iterator[Finding]:
    fit, balance = profile.arguments(NodeResourcesFitArgs), profile.arguments(NodeResourcesBalancedAllocationArgs)
    strategy = None if fit is None else fit.scoring_strategy
    for plugin, given in (
        ("NodeResourcesFit", () if strategy is None else strategy.resources),
        ("NodeResourcesBalancedAllocation", () if balance is None else balance.resources),
    ):
        if given and not _are_usual(given):
            problem = f"profile {profile.name}: {plugin} does not score CPU and memory alone with equal weights, as the extender does"
            yield _info(problem, "set answers.scoringStrategy: Ignored, unless the difference is small")


def _are_usual(resources: tuple[ResourceSpec, ...]) -> bool:
    weights = {each.name: each.weight or 1 for each in resources}
    return [name for name, _ in _USUAL_RESOURCES] == sorted(weights) and len(set(weights.values())) == 1


def _extenders(config: KubeSchedulerConfiguration, ours: Extender, settings: Settings) -> Iterator[Finding]:
    if settings.answers.names != "one":
        return
    for entry in config.extenders:
        if entry is not ours and entry.prioritize_verb and not entry.managed_resources:
            problem = f"the scores of the extender {entry.url_prefix} do not count where filter answers one node"
            yield _info(problem, "set answers.names: shortlist, if they matter")


def _list_for(plugin: str) -> str:
    return f"set answers.scores.others: [{plugin}], so that the scheduler chooses from a list"


def _warning(problem: str, remedy: str) -> Finding:
    return Finding("warning", CHECK, problem, remedy)


def _info(problem: str, remedy: str) -> Finding:
    return Finding("info", CHECK, problem, remedy)
