"""Held-out rows: reading them, selecting from them, and input that is refused."""

import json

import pytest

from eval.comparison import read_rows, select_rows, unique_prompts
from graph.errors import UserError


def test_rows_have_the_fields_that_a_comparison_needs(world):
    rows = read_rows(world.data, "test")
    assert len(rows) == 18
    assert (rows[1].id, rows[1].question_id, rows[1].context_size, len(rows[1].context_ids)) == (
        "test-0#2",
        "test-0",
        2,
        2,
    )
    assert rows[1].chosen == "###Reason: The mill 0 stands there [1] ###Answer: yes"
    assert rows[1].rejected == "yes"
    assert [row.hard_negative for row in rows[-2:]] == ["wrong", "wrong"]


def test_rows_are_selected_by_context_size_and_seed(world):
    rows = read_rows(world.data, "test")
    assert {row.context_size for row in select_rows(rows, [1], None, 0)} == {1}
    assert select_rows(rows, [], None, 0) == rows
    selected = select_rows(rows, [], 2, 0)
    assert len({row.question_id for row in selected}) == 2
    assert len(selected) == 6
    assert selected == select_rows(rows, [], 2, 0)
    assert selected == [row for row in rows if row in selected]
    assert any(select_rows(rows, [], 2, seed) != selected for seed in range(1, 9))
    assert select_rows(rows, [], 99, 0) == rows


def test_pairs_that_share_a_prompt_give_one_prompt(world):
    rows = read_rows(world.data, "test")
    prompts = unique_prompts(rows)
    assert len(prompts) == 12
    assert [row.id for row in prompts[:2]] == ["test-0#1", "test-0#2"]
    assert len({row.prompt for row in prompts}) == 12


def test_bad_input_is_reported(world, tmp_path):
    with pytest.raises(UserError, match=r"dev\.jsonl: no such file \(found: test\.jsonl, train\.jsonl\)"):
        read_rows(world.data, "dev")
    with pytest.raises(UserError, match=r"test\.jsonl: a file\. Expected a folder that contains test\.jsonl\. Give "):
        read_rows(world.data / "test.jsonl", "test")
    with pytest.raises(UserError, match=r"--context-size 7: no rows of this context size\. Expected one of 1, 2"):
        select_rows(read_rows(world.data, "test"), [7], None, 0)
    (tmp_path / "test.jsonl").write_text(json.dumps({"id": "1"}) + "\n")
    with pytest.raises(UserError, match=r"test\.jsonl line 1: no 'prompt'"):
        read_rows(tmp_path, "test")
