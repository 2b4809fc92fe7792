"""The rules: promtool evaluates each alert in three forms, and each alert has a page that helps."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elasticjob.kube.objects.kinds import Manifest
from lab.metrics import declared
from tests.kit.monitoring.rig import CONFIG, METRIC, RECORDED, RULES, rules
from tests.monitoring.cases import CASES, Case

ROOT: Final = CONFIG.parents[1]
PLAIN: Final = CONFIG / "plain"
GROUPS: Final = rules()
CLASSES: Final = {group["name"].removeprefix("elasticjob."): group for group in GROUPS}
ALERTS: Final = {rule["alert"]: rule for rule in RULES if "alert" in rule}
SEVERITIES: Final = ("critical", "warning", "info")
RUNBOOKS: Final = {page.stem: page for page in (ROOT / "docs" / "runbooks").glob("*.md")}
OPERATOR: Final[list[Manifest]] = [*yaml.safe_load_all((ROOT / "config/rbac/operator.yaml").read_text())]
HEADINGS: Final = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
FROM: Final = re.compile(
    r'component(="elasticjob-(operator|brain|di-server)"|=~"elasticjob-\(operator\|brain\|di-server\)")'
)

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def test_each_alert_has_its_cases_and_its_cases_an_alert() -> None:
    assert {case.alert for case in CASES} == set(ALERTS)
    assert len(ALERTS) == sum("alert" in rule for rule in RULES)


@pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)
def test_an_alert_says_how_bad_it_is_and_what_to_read(rule: Manifest) -> None:
    assert rule["for"]
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    assert rule["annotations"]["description"].endswith(".")


def test_the_class_of_an_alert_is_its_group() -> None:
    for name, group in CLASSES.items():
        assert {rule["labels"]["class"] for rule in group["rules"] if "alert" in rule} == {name}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_page_that_helps(alert: str) -> None:
    text = RUNBOOKS[alert].read_text()
    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    diagnosis = text.partition("## Diagnosis")[2].partition("## Mitigation")[0]
    assert re.search(r"^```\n\$ ", diagnosis, re.MULTILINE)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_page_s_commands_are_about_our_namespace_and_rights_that_roles_grant(alert: str) -> None:
    text = RUNBOOKS[alert].read_text()
    assert re.findall(r"`helm (?!-n elasticjob-system )", text) == []
    for verb, resource, name in re.findall(
        r"can-i (\w+) (\w+)(?:/(\S+))? .*--as system:serviceaccount:elasticjob-system:elasticjob-operator",
        text,
    ):
        granted = [
            rule for role in OPERATOR for rule in role.get("rules", ()) if resource in rule["resources"]
        ]
        assert any(verb in rule["verbs"] and name in rule.get("resourceNames", [""]) for rule in granted)


def test_each_page_is_that_of_an_alert() -> None:
    assert set(RUNBOOKS) == set(ALERTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_no_job_s_master_can_raise_an_alert_about_others(rule: Manifest) -> None:
    """A tenant's master may serve any series; only its target says that it is a master."""
    masters = {each.name for each in declared("master")}
    asked = re.findall(rf"(\bup\b|{METRIC.pattern})(\{{[^}}]*\}})?", rule["expr"])
    others = [(name, selector) for name, selector in asked if name not in {*masters, "up"}]
    assert [name for name, selector in others if not FROM.search(selector)] == []


def test_what_is_recorded_is_asked_for_or_is_for_panels() -> None:
    asked = {name for rule in RULES for name in RECORDED.findall(rule["expr"])}
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    assert recorded - asked == {"elasticjob:lost_time_by_cause:ratio_rate1h"}


@needs_promtool
def test_a_prometheus_without_the_operator_reads_the_same(tmp_path: Path) -> None:
    """Debian's has no discovery by Kubernetes: a fixed target takes its place."""
    found = yaml.safe_load((PLAIN / "prometheus.yaml").read_text())
    for job in found["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs")
        job["static_configs"] = [{"targets": ["127.0.0.1:1"]}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(found))
    (tmp_path / "elasticjob-rules.yaml").write_text(yaml.safe_dump({"groups": GROUPS}))
    promtool(tmp_path, "check", "config", "prometheus.yaml")
    relabelings = [each for job in found["scrape_configs"] for each in job["relabel_configs"]]
    components = {each["replacement"] for each in relabelings if each.get("target_label") == "component"}
    assert components == {"elasticjob-master", "elasticjob-$1"}


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
def test_the_example_of_routes_is_right() -> None:
    file = PLAIN / "alertmanager.yaml"
    command = ["amtool", "check-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    routed = " ".join(re.findall(r'class =~ "(.+?)"', file.read_text()))
    assert set(re.findall(r"[\w-]+", routed)) == set(CLASSES)


@needs_promtool
def test_each_alert_fires_is_resolved_and_is_silent(tmp_path: Path) -> None:
    """For each case the rules of its class alone are evaluated: all of them take five times as long."""
    files = []
    for name, group in CLASSES.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"groups": [group]}))
        files.append(f"{name}.yaml")
    suites: list[str] = []
    for (name, every), cases in groupby(CASES, lambda case: (class_of(case), case.every)):
        tests = [test for case in cases for test in (goes_and_comes(case), stays_silent(case))]
        suite = {"rule_files": [f"{name}.yaml"], "evaluation_interval": f"{every}m", "tests": tests}
        suites.append(f"{len(suites)}.yaml")
        (tmp_path / suites[-1]).write_text(yaml.safe_dump(suite, sort_keys=False))
    promtool(tmp_path, "check", "rules", *files)
    promtool(tmp_path, "test", "rules", *suites)


def class_of(case: Case) -> str:
    """Return the class of a case's alert."""
    name: str = ALERTS[case.alert]["labels"]["class"]
    return name


def goes_and_comes(case: Case) -> Manifest:
    """Return promtool's test of an alert that fires and is resolved."""
    rule = ALERTS[case.alert]
    expected = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {**rule["annotations"], "description": case.says},
    }
    return {
        "name": f"{case.alert} fires, and is resolved",
        "interval": f"{case.every}m",
        "input_series": given(case.series),
        "alert_rule_test": [
            {"alertname": case.alert, "eval_time": f"{case.fires}m", "exp_alerts": [expected]},
            {"alertname": case.alert, "eval_time": f"{case.resolved}m", "exp_alerts": []},
        ],
    }


def stays_silent(case: Case) -> Manifest:
    """Return promtool's test of something like what an alert is about, and no alert at any time."""
    never = f'max_over_time(ALERTS{{alertname="{case.alert}", alertstate="firing"}}[1d])'
    return {
        "name": f"{case.alert} is silent",
        "interval": f"{case.every}m",
        "input_series": given(case.silent),
        "promql_expr_test": [{"expr": never, "eval_time": f"{case.resolved}m", "exp_samples": []}],
    }


def given(series: Any) -> list[Manifest]:
    """Return series as promtool reads them."""
    return [{"series": name, "values": values} for name, values in series.items()]


def promtool(folder: Path, *arguments: str) -> None:
    """Run promtool, which has to be content."""
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
