"""A few rounds of threads that share everything; see `threads`."""

import pytest

import gradtape as gt
from tests.fuzz.threads import run_round


@pytest.mark.parametrize("seed", [1, 2])
def test_threads_get_what_one_thread_gets(seed):
    with gt.config.override(disk_cache=False):
        problems = run_round(seed)
    assert not problems, "\n".join(problems)
