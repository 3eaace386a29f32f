"""Cores are shared among busy workers."""

import multiprocessing
import os

import pytest
import torch

from eval.run import workers
from eval.run.workers import busy, join_workers, share_cores


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "_busy_workers", None)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_worker_has_its_share_and_the_last_one_all() -> None:
    at_work = multiprocessing.get_context("spawn").Value("i", 0)
    join_workers(at_work)
    with busy():
        share_cores()
        assert torch.get_num_threads() == 6
        at_work.value += 2
        share_cores()
        assert torch.get_num_threads() == 2
        at_work.value += 20
        share_cores()
        assert torch.get_num_threads() == 1
        at_work.value -= 22
    assert at_work.value == 0


def test_a_failed_group_is_no_longer_at_work() -> None:
    at_work = multiprocessing.get_context("spawn").Value("i", 0)
    join_workers(at_work)
    with pytest.raises(ValueError, match="broken"), busy():
        raise ValueError("broken")
    assert at_work.value == 0


def test_without_workers_nothing_is_set() -> None:
    torch.set_num_threads(2)
    with busy():
        share_cores()
    assert torch.get_num_threads() == 2
