"""What packages took when the warm process imported them, each fork takes anew."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from elasticjob.trainer.agent.processes.fresh import renew
from elasticjob.trainer.agent.processes.warm import import_variables


def test_what_counts_at_an_import_is_told_from_what_scripts_read() -> None:
    environment = {"TF_NUM_INTRAOP_THREADS": "2", "GRPC_VERBOSITY": "error", "TF_CONFIG": "{}", "HOME": "/"}
    assert import_variables(environment) == {"TF_NUM_INTRAOP_THREADS": "2", "GRPC_VERBOSITY": "error"}


def test_forks_have_a_rank_and_random_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rank_zero_only = SimpleNamespace(rank=0)
    package = SimpleNamespace(rank_zero_only=rank_zero_only)
    monkeypatch.setitem(sys.modules, "lightning_utilities.core.rank_zero", package)
    drawn = set()
    for rank in (1, 2):
        random.seed(0)
        np.random.seed(0)
        renew({"RANK": str(rank)})
        assert rank_zero_only.rank == rank
        drawn |= {random.random(), float(np.random.rand())}
    assert len(drawn) == 4
