"""Laws of each framework: what agents read of its environment, and what admission says of its checks."""

from __future__ import annotations

import re

import pytest

from elasticjob.api.rpc.environment import MODULES
from elasticjob.controllers.parts.frameworks import FRAMEWORKS, Framework
from lab.build.jobs import job, role

ROLES = {
    "AllreduceStrategy": {"worker": role(2), "evaluator": role(1)},
    "ParameterServerStrategy": {"ps": role(1), "chief": role(1), "worker": role(2)},
    "CustomStrategy": {"worker": role(2)},
    "Local": {"worker": role(1)},
}


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
@pytest.mark.parametrize("strategy", ROLES)
def test_a_framework_has_variables_and_sentences(framework: Framework, strategy: str) -> None:
    made = job(roles=ROLES[strategy], distributionStrategy=strategy)
    for name in made.spec.roles:
        for index in (0, 1, 11):
            variables = framework.environment(made, name, index)
            assert all(re.fullmatch("[A-Z_][A-Z0-9_]*", each) for each in variables)
            assert all(str.isprintable(each) for each in variables.values())
            modules = variables.get(MODULES, "os").split(",")
            assert all(module.replace(".", "").isidentifier() for module in modules)
    for problem in framework.check(made.spec):
        assert problem.path.startswith("spec.")
        assert problem.message
