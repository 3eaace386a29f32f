"""log π_ref of groups of responses: in the order of the groups, the same for any number of groups per pass; the groups of a prompt share a pass if they fit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.train.world import response_row
from train.model.load import load_policy
from train.model.packing import TokenizedGroup, pack_rows, packed_logps, plain_logps
from train.preference.groups import ResponseGroup, scored_groups
from train.preference.reference import group_logps

WEIGHTS = {"correct": 1.0}


class Recorder:
    """Replaces the packed or plain layout: computes log-probabilities from token ids alone, and records every forward pass."""

    def __init__(self) -> None:
        self.passes: list[list[TokenizedGroup]] = []

    def __call__(self, model: Any, groups: Sequence[TokenizedGroup]) -> torch.Tensor:
        self.passes.append(list(groups))
        return torch.tensor([logp(group.prompt, response) for group in groups for response in group.responses])


def logp(prompt: Sequence[int], response: Sequence[int]) -> float:
    return -sum(prompt) - sum((place + 1) * token for place, token in enumerate(response)) / 64


ids = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
tokenized_groups = st.lists(
    st.builds(TokenizedGroup, ids, st.lists(ids, min_size=1, max_size=4).map(tuple)), min_size=1, max_size=12
)


@given(tokenized_groups, st.integers(1, 3))
def test_log_probabilities_stay_in_order_and_no_pass_exceeds_its_limit(
    groups: list[TokenizedGroup], groups_per_pass: int
) -> None:
    wrapped = [ResponseGroup(str(n), group, (0.0,) * len(group.responses)) for n, group in enumerate(groups)]
    recorder = Recorder()
    found = group_logps(nn.Linear(1, 1), wrapped, recorder, groups_per_pass)
    assert [logps.tolist() for logps in found] == [[logp(g.prompt, r) for r in g.responses] for g in groups]
    max_responses = groups_per_pass * max(len(group.responses) for group in groups)
    for groups_read in recorder.passes:
        assert sum(len(group.responses) for group in groups_read) <= max_responses
        assert len({group.prompt for group in groups_read}) == len(groups_read)


def test_the_pairs_of_one_prompt_share_a_pass() -> None:
    prompts = [(1, 2), (3, 4)]
    pairs = [ResponseGroup(f"{n}", TokenizedGroup(prompts[n % 2], ((n + 1,), (n + 2,))), (0.0, 0.0)) for n in range(8)]
    recorder = Recorder()
    group_logps(nn.Linear(1, 1), pairs, recorder, groups_per_pass=4)
    assert [[group.prompt for group in each] for each in recorder.passes] == [[(1, 2)], [(3, 4)]]


@pytest.mark.parametrize("packed", [True, False])
def test_log_probabilities_do_not_depend_on_the_groups_per_pass(base: Path, packed: bool) -> None:
    model, tokenizer = load_policy(str(base))
    split = list(scored_groups([response_row(0), response_row(1)], tokenizer, WEIGHTS, False, 2, 0))

    def logps_of(model: Any, groups: Sequence[TokenizedGroup]) -> torch.Tensor:
        return packed_logps(model, pack_rows(groups, 1024)) if packed else plain_logps(model, groups)

    three_per_pass, one_per_pass = (group_logps(model, split, logps_of, groups_per_pass) for groups_per_pass in (3, 1))
    assert len(split) == 6
    torch.testing.assert_close(torch.stack(three_per_pass), torch.stack(one_per_pass), atol=1e-4, rtol=0)
