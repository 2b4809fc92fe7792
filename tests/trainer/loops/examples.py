"""The shipped examples with a job.yaml, applied on devcluster: each succeeds, and no pod fails.

python -m tests.trainer.loops.examples --times 20 [--only jax,tensorflow]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
SHORT: Final = {
    "digits": ["--epochs", "3"],
    "jax": ["--epochs", "10", "--checkpoint", "/checkpoints"],
    "parameters": ["--records", "20000", "--epochs", "1"],
    "keras": ["--records", "20000", "--epochs", "1"],
    "tensorflow": ["40000"],
}
"""The arguments of workers that make each one short."""
LIMIT: Final = 300.0  # seconds of one run
INSIDE: Final = "ELASTICJOB_EXAMPLES_INSIDE"


def main() -> int:
    """Run the examples in turn, on a cluster of their own; print a table. 1 if a run was not as it should."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--only", default=",".join(SHORT))
    given = parser.parse_args()
    if INSIDE not in os.environ:
        command = [
            "-m",
            "elasticjob.cli",
            "devcluster",
            "--operator",
            "--",
            sys.executable,
            "-m",
            __spec__.name,
        ]
        return subprocess.call([sys.executable, *command, *sys.argv[1:]], env=os.environ | {INSIDE: "1"})
    failed = 0
    for name in given.only.split(","):
        began = time.monotonic()
        runs = [run(name, number) for number in range(given.times)]
        wrong = [each for each in runs if each]
        failed += len(wrong)
        took = (time.monotonic() - began) / given.times
        print(
            f"{name:12} {given.times - len(wrong)} of {given.times} succeeded, {took:.0f} s each", flush=True
        )
        for each in wrong:
            print(f"  {each}", flush=True)
    return int(failed > 0)


def run(example: str, number: int) -> str:
    """Run an example once; return what was wrong."""
    name = f"{example}-{number}"
    for each in objects(example, name):
        kubectl("apply", "-f", "-", given=yaml.safe_dump(each))
    until = time.monotonic() + LIMIT
    while (phase := status(name).get("phase")) not in ("Succeeded", "Failed") and time.monotonic() < until:
        time.sleep(0.5)
    found = status(name)
    pods = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
    codes = [code for pod in pods if pod["metadata"]["name"].startswith(name) for code in codes_of(pod)]
    restarts, said = found.get("restarts") or 0, [each["message"] for each in found.get("conditions", [])]
    kubectl("delete", "elasticjob", name, "--wait=true")
    if phase != "Succeeded" or restarts or any(codes):
        return f"{name}: {phase}, {restarts} restarts, exit codes {codes}: {said[-1:]}"
    return ""


def objects(example: str, name: str) -> list[dict[str, Any]]:
    """Return the objects of an example under another name, with a short run."""
    text = (EXAMPLES / example / "job.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    job = next(each for each in documents if each["kind"] == "ElasticJob")
    old = job["metadata"]["name"]
    job["metadata"]["name"] = name
    worker = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    if example == "tensorflow":  # of the user's own image
        worker["command"][1:2] = [str(EXAMPLES / "tensorflow" / "train.py")]
        worker["command"] += SHORT[example]
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": old}
        documents.append(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim}
        )
    else:
        worker["args"] = SHORT[example]
    for volume in (
        volume
        for role in job["spec"]["replicaSpecs"].values()
        for volume in role["template"]["spec"].get("volumes", [])
    ):
        if claim_ := volume.get("persistentVolumeClaim"):
            claim_["claimName"] = claim_["claimName"].replace(old, name)
    for each in documents:
        if each["kind"] == "PersistentVolumeClaim":
            each["metadata"]["name"] = each["metadata"]["name"].replace(old, name)
    return documents


def codes_of(pod: dict[str, Any]) -> list[int]:
    """Return the exit codes of a pod's containers that have ended."""
    states = [each.get("state", {}) for each in pod.get("status", {}).get("containerStatuses", [])]
    return [state["terminated"]["exitCode"] for state in states if "terminated" in state]


def status(name: str) -> dict[str, Any]:
    """Return the status of a job."""
    found: dict[str, Any] = json.loads(kubectl("get", "elasticjob", name, "-o", "json")).get("status", {})
    return found


def kubectl(*arguments: str, given: str = "") -> str:
    """Return what kubectl prints."""
    return subprocess.run(
        ["kubectl", *arguments], input=given, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
