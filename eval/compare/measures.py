"""A comparison's measures from answers and log-probabilities, among them the margin of the implicit reward: one value per row for each policy that
has the measure. Does not import torch.

Source: DPO (Rafailov et al. 2023, Eq. 5): r(x, y) = β [log π_θ(y|x) − log π_ref(y|x)] + a term that depends on x alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from data_synth.rows import PreferenceRow
from eval.comparison import ChoiceScore, Measure, PairScore, Policy, PolicyResult, ScoredAnswer
from eval.metrics.answers import CHOICES, accuracy, accuracy_per_class, majority_class
from eval.statistics import Interval, SeedVerdict, compare_seeds, holm_intervals
from graph.answer.match import normalise


def reward_margin(policy: PairScore, reference: PairScore, beta: float) -> float:
    """β (Δ_w − Δ_l), Δ = log π_θ(y|x) − log π_ref(y|x): above 0 if the policy prefers the chosen side more than its reference does."""
    chosen = policy.chosen_logp - reference.chosen_logp
    rejected = policy.rejected_logp - reference.rejected_logp
    return beta * (chosen - rejected)


def reward_margin_per_token(policy: PairScore, reference: PairScore, beta: float) -> float:
    """β (Δ_w / |y_w| − Δ_l / |y_l|): the same margin, normalised so that a longer side does not weigh more."""
    chosen = (policy.chosen_logp - reference.chosen_logp) / policy.chosen_tokens
    rejected = (policy.rejected_logp - reference.rejected_logp) / policy.rejected_tokens
    return beta * (chosen - rejected)


MarginFunction = Callable[[PairScore, PairScore, float], float]

ANSWER_MEASURES: tuple[tuple[str, Callable[[ScoredAnswer], float], bool], ...] = (
    ("exact match", lambda answer: answer.exact_match, True),
    ("token F1", lambda answer: answer.f1, True),
    ("contains a gold answer", lambda answer: answer.contains, True),
    ("well-formed answers", lambda answer: answer.well_formed, True),
    ("cites a passage that exists", lambda answer: float(bool(answer.cited)), True),
    ("cites a passage that does not exist", lambda answer: float(bool(answer.missing)), True),
    ("answer length, tokens", lambda answer: float(answer.tokens), False),
    ("cut at the token limit", lambda answer: float(answer.cut), True),
)
PAIR_MEASURES: tuple[tuple[str, Callable[[PairScore], float]], ...] = (
    ("log π(y_w|x)", lambda score: score.chosen_logp),
    ("log π(y_l|x)", lambda score: score.rejected_logp),
    ("log π(y_w|x) per token", lambda score: score.chosen_logp / score.chosen_tokens),
    ("log π(y_l|x) per token", lambda score: score.rejected_logp / score.rejected_tokens),
)
MARGIN_MEASURES: tuple[tuple[str, MarginFunction, bool], ...] = (
    ("reward margin β(Δ_w − Δ_l)", reward_margin, False),
    ("preference accuracy (margin > 0)", lambda *scores: float(reward_margin(*scores) > 0), True),
    ("reward margin per token", reward_margin_per_token, False),
    ("preference accuracy per token", lambda *scores: float(reward_margin_per_token(*scores) > 0), True),
)


def measures_of(
    prompts: Sequence[PreferenceRow], pairs: Sequence[PreferenceRow], results: Sequence[PolicyResult]
) -> tuple[Measure, ...]:
    """All measures: of answers, of yes/no/maybe questions, of the pairs without a hard negative, and of the pairs with each kind of hard negative."""
    measures = [*answer_measures(prompts, results)]
    for hard_negative in sorted({row.hard_negative for row in pairs}):
        measures += pair_measures(hard_negative, pairs, results)
    return tuple(measures)


def answer_measures(prompts: Sequence[PreferenceRow], results: Sequence[PolicyResult]) -> list[Measure]:
    """The measures that apply to every answer, and accuracy over the prompts whose gold answer is yes, no or maybe."""
    questions = tuple(row.question_id for row in prompts)
    measures = [
        Measure(name, questions, {r.policy.name: tuple(of(answer) for answer in r.answers) for r in results}, share)
        for name, of, share in ANSWER_MEASURES
    ]
    labels = choice_prompts(prompts)
    if labels:
        accuracies = {
            result.policy.name: tuple(float(result.answers[index].choice == gold) for index, gold in labels.items())
            for result in results
        }
        measures.append(Measure("yes/no/maybe accuracy", tuple(questions[index] for index in labels), accuracies, True))
    return measures


def pair_measures(hard_negative: str, pairs: Sequence[PreferenceRow], results: Sequence[PolicyResult]) -> list[Measure]:
    """Log-probabilities and margins over the pairs with one kind of hard negative ("" for those without)."""
    indices = [index for index, row in enumerate(pairs) if row.hard_negative == hard_negative]
    questions = tuple(pairs[index].question_id for index in indices)
    suffix = f" [{hard_negative}]" if hard_negative else ""
    measures = []
    for name, of in PAIR_MEASURES:
        logps = {result.policy.name: tuple(of(result.scores[index]) for index in indices) for result in results}
        measures.append(Measure(name + suffix, questions, logps, share=False))
    for name, of_margin, share in MARGIN_MEASURES:
        if margins := _margins(of_margin, indices, results):
            measures.append(Measure(name + suffix, questions, margins, share))
    return measures


def _margins(
    of: MarginFunction, indices: Sequence[int], results: Sequence[PolicyResult]
) -> dict[str, tuple[float, ...]]:
    values: dict[str, tuple[float, ...]] = {}
    for result in results:
        record = result.policy.record
        if record is not None and record.beta is not None and result.reference_scores is not None:
            scores = [(result.scores[index], result.reference_scores[index], record.beta) for index in indices]
            values[result.policy.name] = tuple(of(*score) for score in scores)
    return values


def differences_of(measures: Sequence[Measure], first: str, seed: int) -> dict[str, Mapping[str, Interval]]:
    """For each measure that the policy `first` has: every other policy minus `first`, by a paired bootstrap over questions, Holm-corrected over policies."""
    differences: dict[str, Mapping[str, Interval]] = {}
    for measure in measures:
        if baseline := measure.values.get(first):
            pairs = {policy: (values, baseline) for policy, values in measure.values.items() if policy != first}
            differences[measure.name] = holm_intervals(pairs, measure.clusters, seed)
    return differences


MAY_DIFFER = ("seed", "output", "reference_cache")
"""Settings in which runs of one system may differ."""


def seed_systems(policies: Sequence[Policy]) -> dict[str, dict[int, str]]:
    """The name of each system and its policies by seed: runs that differ only in MAY_DIFFER form a system if they have at least two seeds.

    A second run with the same seed belongs to a second system, and so on.
    """
    systems: dict[tuple[str, int], dict[int, str]] = {}
    repetitions: Counter[tuple[str, int]] = Counter()
    for policy in policies:
        if policy.record is not None:
            settings = {key: value for key, value in policy.record.settings.items() if key not in MAY_DIFFER}
            key = repr((policy.record.stage, policy.record.base_model, sorted(settings.items())))
            seed = int(policy.record.settings.get("seed", 0))
            systems.setdefault((key, repetitions[key, seed]), {})[seed] = policy.name
            repetitions[key, seed] += 1
    return {
        f"{min(by_seed.values())} … ({len(by_seed)} seeds)": by_seed for by_seed in systems.values() if len(by_seed) > 1
    }


def differences_by_seed(
    measures: Sequence[Measure], systems: Mapping[str, Mapping[int, str]], seed: int
) -> dict[str, dict[str, SeedVerdict]]:
    """For each measure that the first system has: every other system minus the first, paired by seed. UserError for a seed that one system lacks."""
    verdicts = {}
    for measure in measures if len(systems) > 1 else ():
        values = {
            system: {one: measure.question_means(policy) for one, policy in by_seed.items()}
            for system, by_seed in systems.items()
            if all(policy in measure.values for policy in by_seed.values())
        }
        first = next(iter(systems))
        if first in values and len(values) > 1:
            verdicts[measure.name] = compare_seeds(values, first, seed=seed)
    return verdicts


def choice_prompts(prompts: Sequence[PreferenceRow]) -> dict[int, str]:
    """The prompts whose only gold answer is yes, no or maybe: index -> label."""
    labels = {index: choice_label(row) for index, row in enumerate(prompts)}
    return {index: label for index, label in labels.items() if label}


def choice_label(row: PreferenceRow) -> str:
    """A row's gold answer if it is yes, no or maybe, else ""."""
    golds = {normalise(answer) for answer in row.answers}
    return golds.pop() if len(golds) == 1 and golds <= set(CHOICES) else ""


def choice_scores(
    prompts: Sequence[PreferenceRow], results: Sequence[PolicyResult], train_rows: Sequence[PreferenceRow]
) -> tuple[tuple[ChoiceScore, ...], dict[str, int]]:
    """Yes/no/maybe accuracy of each policy and of always giving the train split's majority label; and the number of prompts with each label.

    Train labels count once per question. No scores if no prompt is a yes/no/maybe question.
    """
    labels = choice_prompts(prompts)
    gold = list(labels.values())
    if not gold:
        return (), {}
    train_labels = {row.question_id: label for row in train_rows if (label := choice_label(row))}
    majority = majority_class(list(train_labels.values()))
    predicted = {result.policy.name: [result.answers[index].choice for index in labels] for result in results}
    if majority:
        predicted[f"always “{majority}” (majority of train)"] = [majority] * len(gold)
    scores = [ChoiceScore(name, accuracy(p, gold), accuracy_per_class(p, gold)) for name, p in predicted.items()]
    return tuple(scores), dict(sorted(Counter(gold).items()))
