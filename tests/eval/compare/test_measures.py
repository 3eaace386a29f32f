"""Measures from hand-made answers and scores: values, pairing, hard negatives, classes."""

from dataclasses import replace

import pytest

from data_synth.rows import PreferenceRow
from eval.compare.compare import score_answer
from eval.compare.measures import choice_scores, differences_by_seed, differences_of, measures_of, seed_systems
from eval.comparison import Measure, PairScore, Policy, PolicyResult
from eval.statistics import bootstrap_difference
from graph.answer.prompt import answer_messages
from graph.errors import UserError
from graph.types import Completion, Excerpt, Message
from tests.eval.conftest import run_record


def row(name: str, gold: str, hard_negative: str = "") -> PreferenceRow:
    prompt = (Message("user", name),)
    fields = (name, f"{name}?", (gold,), "single", "test", 2, ("a", "b"), 1.0, "")
    return PreferenceRow(name, prompt, "c", "r", *fields, hard_negative)


def completion(text: str, finish: str = "stop") -> Completion:
    return Completion(text, finish, prompt_tokens=5, completion_tokens=len(text.split()))  # type: ignore[arg-type]


ROWS = [row("q1", "yes"), row("q2", "no"), row("q3", "the old mill")]
TEXTS = {
    "ms": [
        "###Reason: a [1] ###Answer: yes",
        "###Reason: b [3] ###Answer: yes",
        "###Reason: c [2][9] ###Answer: a mill [2]",
    ],
    "sft": ["yes", "No, never", "###Answer: old mill"],
}
REFERENCE = (PairScore(-10, -5, 10, 5), PairScore(-10, -5, 10, 5), PairScore(-10, -5, 10, 5))
SCORES = {"ms": (PairScore(-6, -5, 10, 5), PairScore(-10, -9, 10, 5), PairScore(-12, -5, 10, 5)), "sft": REFERENCE}


def results() -> list[PolicyResult]:
    found = []
    for name, beta in (("ms", 0.5), ("sft", None)):
        policy = Policy(name, name, run_record(name, "sft", beta), "sft" if beta else "")
        answers = tuple(score_answer(r, completion(text)) for r, text in zip(ROWS, TEXTS[name], strict=True))
        found.append(PolicyResult(policy, answers, SCORES[name], REFERENCE if beta else None, 0.0))
    return found


def test_score_answer_parses_and_scores_an_answer():
    scored = results()[0].answers[2]
    assert (scored.answer, scored.exact_match, scored.f1) == ("a mill", 0.0, pytest.approx(2 / 3))
    assert (scored.cited, scored.missing, scored.well_formed) == ((2,), (9,), 1.0)
    cut = score_answer(ROWS[0], completion("###Reason: on and on", "length"))
    assert (cut.cut, cut.well_formed, cut.choice, cut.exact_match) == (True, 0.0, "", 0.0)


def test_an_answer_is_well_formed_if_it_has_the_form_that_its_prompt_requests():
    row = replace(ROWS[0], prompt=answer_messages("q1?", [Excerpt("a", "A", "Yes it is.", "a", 0, 10)], "cited"))
    reasoned, cited = completion("###Reason: a [1] ###Answer: yes"), completion("yes [1]")
    assert [score_answer(row, text).well_formed for text in (reasoned, cited)] == [0.0, 1.0]
    assert [score_answer(ROWS[0], text).well_formed for text in (reasoned, cited)] == [1.0, 0.0]


def test_an_answer_that_repeats_the_prompt_cites_no_passage():
    example = "###Reason: The reasoning, citing passages by number like [1]. ###Answer: the short answer."
    scored = score_answer(ROWS[0], completion(example))
    assert (scored.cited, scored.missing) == ((), ())


def test_means_match_values_computed_by_hand():
    found = {measure.name: measure for measure in measures_of(ROWS, ROWS, results())}
    assert found["exact match"].mean("ms") == pytest.approx(1 / 3)
    # "Old mill" equals "the old mill" because articles are dropped; "No, never" is not "no".
    assert found["exact match"].mean("sft") == pytest.approx(2 / 3)
    assert found["token F1"].mean("sft") == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert found["well-formed answers"].values == {"ms": (1.0, 1.0, 1.0), "sft": (0.0, 0.0, 0.0)}
    assert found["cites a passage that exists"].values["ms"] == (1.0, 0.0, 1.0)
    assert found["cites a passage that does not exist"].values["ms"] == (0.0, 1.0, 1.0)
    assert found["yes/no/maybe accuracy"].values == {"ms": (1.0, 0.0), "sft": (1.0, 1.0)}
    assert found["yes/no/maybe accuracy"].clusters == ("q1", "q2")
    assert found["log π(y_w|x)"].mean("ms") == pytest.approx(-28 / 3)
    assert found["log π(y_l|x) per token"].mean("sft") == pytest.approx(-1.0)
    # Δ_w = 4, 0, −2 and Δ_l = 0, −4, 0: margins 2, 2, −1; per token .2, .4, −.1.
    assert found["reward margin β(Δ_w − Δ_l)"].values == {"ms": (2.0, 2.0, -1.0)}
    assert found["preference accuracy (margin > 0)"].mean("ms") == pytest.approx(2 / 3)
    assert found["reward margin per token"].values["ms"] == pytest.approx((0.2, 0.4, -0.1))


def test_differences_are_relative_to_the_given_policy_if_both_have_the_measure():
    measures = measures_of(ROWS, ROWS, results())
    found = differences_of(measures, "ms", seed=0)
    assert found["well-formed answers"]["sft"].mean == -1.0
    assert found["exact match"]["sft"].mean == pytest.approx(1 / 3)
    assert found["reward margin per token"] == {}
    assert "reward margin per token" not in differences_of(measures, "sft", seed=0)


def test_pairs_with_hard_negatives_are_measured_separately():
    pairs = [ROWS[0], row("q2", "no", hard_negative="wrong"), row("q3", "x", hard_negative="wrong")]
    found = {measure.name: measure for measure in measures_of(ROWS, pairs, results())}
    assert found["log π(y_w|x)"].values["ms"] == (-6,)
    assert found["log π(y_w|x) [wrong]"].values["ms"] == (-10, -12)
    assert found["reward margin β(Δ_w − Δ_l) [wrong]"].clusters == ("q2", "q3")


def test_the_majority_class_comes_from_the_train_rows_and_counts_each_question_once():
    train = [row("t1", "no"), row("t1", "no"), row("t1", "no"), row("t2", "Yes"), row("t3", "yes"), row("t4", "a mill")]
    scores, gold = choice_scores(ROWS, results(), train)
    by_name = {score.name: score for score in scores}
    assert gold == {"no": 1, "yes": 1}
    assert (by_name["ms"].accuracy, dict(by_name["ms"].per_class)) == (0.5, {"no": 0.0, "yes": 1.0})
    assert dict(by_name["sft"].per_class) == {"no": 1.0, "yes": 1.0}
    majority = by_name["always “yes” (majority of train)"]
    assert (majority.accuracy, dict(majority.per_class)) == (0.5, {"no": 0.0, "yes": 1.0})


def test_without_yes_no_questions_there_are_no_choice_scores():
    assert choice_scores([ROWS[2]], results(), []) == ((), {})
    assert "yes/no/maybe accuracy" not in {measure.name for measure in measures_of([ROWS[2]], [], [])}
    assert [score.name for score in choice_scores(ROWS, results(), [])[0]] == ["ms", "sft"]


def test_contexts_of_one_question_are_resampled_together():
    # Two questions with twenty contexts each: whole questions are resampled, so the mean can only be 0, ½ or 1.
    values = {"a": (0.0,) * 40, "b": (1.0,) * 20 + (0.0,) * 20}
    measure = Measure("m", ("q1",) * 20 + ("q2",) * 20, values, share=False)
    interval = differences_of([measure], "a", seed=0)["m"]["b"]
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.0, 1.0)


def test_citations_in_a_thinking_block_do_not_count():
    scored = score_answer(ROWS[0], completion("<think>[1] or [9]?</think>###Reason: so ###Answer: Tarn"))
    assert (scored.cited, scored.missing, scored.answer, scored.well_formed) == ((), (), "Tarn", 1.0)


def policy_with_seed(stage: str, seed: int, **settings: object) -> Policy:
    name = f"{stage}-s{seed}{''.join(map(str, settings.values()))}"
    record = replace(run_record(stage, "sft", 0.5), settings={"seed": seed, "output": name, **settings})
    return Policy(name, name, record, "sft")


def test_runs_that_differ_only_in_their_seed_are_one_system() -> None:
    policies = [
        policy_with_seed("ms", 1),
        policy_with_seed("ms", 0),
        policy_with_seed("ms", 0, beta=2),
        policy_with_seed("dpo", 0),
        policy_with_seed("dpo", 1),
        policy_with_seed("sft", 0),
    ]
    untuned = Policy("untuned", "base", None, "")
    assert seed_systems([*policies, untuned]) == {
        "ms-s0 … (2 seeds)": {1: "ms-s1", 0: "ms-s0"},
        "dpo-s0 … (2 seeds)": {0: "dpo-s0", 1: "dpo-s1"},
    }
    again = [replace(policy, name=f"again-{policy.name}") for policy in policies[:2]]
    assert seed_systems([*policies[:2], *again]) == {
        "ms-s0 … (2 seeds)": {1: "ms-s1", 0: "ms-s0"},
        "again-ms-s0 … (2 seeds)": {1: "again-ms-s1", 0: "again-ms-s0"},
    }, "the same seeds again should form a second system"


def test_systems_of_several_seeds_are_compared_seed_by_seed() -> None:
    """Results differ more by seed than by system, so each run is paired with the run of the same seed."""
    policies = [policy_with_seed(stage, seed) for stage in ("ms", "dpo") for seed in range(6)]
    values = {
        f"{stage}-s{seed}": (seed + gain,) * 8 for stage, gain in (("ms", 0.0), ("dpo", 0.5)) for seed in range(6)
    }
    measures = [Measure("F1", tuple("abcdefgh"), values, True), Measure("of ms", ("a",), {"ms-s0": (1.0,)}, False)]
    found = differences_by_seed(measures, seed_systems(policies), seed=0)
    assert list(found) == ["F1"] and list(found["F1"]) == ["dpo-s0 … (6 seeds)"]
    verdict = found["F1"]["dpo-s0 … (6 seeds)"]
    assert verdict.by_seed == (0.5,) * 6 and verdict.p == 2 / 64 and verdict.shown
    twice = [
        Measure(
            "F1", tuple("aaaaaabc"), {k: (9 * v[0], 3 * v[0], *([0.0] * 4), 1.0, 2.0) for k, v in values.items()}, True
        )
    ]
    by_seed = differences_by_seed(twice, seed_systems(policies), seed=0)["F1"]["dpo-s0 … (6 seeds)"].by_seed
    assert by_seed == pytest.approx((12 * 0.5 / 6 / 3,) * 6), "rows of one question should count as one"
    assert differences_by_seed(measures, seed_systems(policies[:6]), seed=0) == {}, (
        "a single system should not be compared"
    )
    with pytest.raises(UserError, match="seed 5 is unpaired: dpo-s0 … \\(5 seeds\\) has no run with it"):
        differences_by_seed(measures, seed_systems(policies[:-1]), seed=0)


def test_of_two_differences_the_one_with_the_smaller_p_gets_a_wider_interval_than_it_would_alone() -> None:
    """The level of its interval is 0.025 instead of 0.05."""
    gains = tuple(n / 10 for n in range(1, 25))
    values = {"a": (0.0,) * 24, "b": gains, "c": (1.0, -1.0) * 12}
    found = differences_of([Measure("F1", tuple(map(str, range(24))), values, False)], "a", seed=0)["F1"]
    plain = bootstrap_difference(gains, values["a"])
    assert found["b"].mean == plain.mean == pytest.approx(1.25)
    assert found["b"].low < plain.low and found["b"].high > plain.high
