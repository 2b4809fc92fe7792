"""Each flag of torchrun is known, and means the same here, or is refused by name with the reason."""

from __future__ import annotations

from argparse import Action

import pytest
from torch.distributed.run import get_args_parser

from elasticjob.cli.errors import Failure
from elasticjob.cli.main import application
from elasticjob.cli.standalone.torchrun import KEYS, REFUSED, REFUSED_KEYS, conf
from tests.kit.commands import click_command

FLAGS = [action for action in get_args_parser()._actions if action.option_strings]


def ours() -> set[str]:
    """Return the flags of `elasticjob run`."""
    run = click_command("run")
    spelled = {flag for parameter in run.params for flag in parameter.opts}
    return spelled | set(run.context_settings["help_option_names"])


@pytest.mark.parametrize("action", FLAGS, ids=lambda action: action.dest)
def test_flag_of_torchrun_is_known_in_all_its_spellings(action: Action) -> None:
    assert set(action.option_strings) <= ours()


@pytest.mark.parametrize(
    "action", [a for a in FLAGS if type(a).__name__ in ("env", "check_env")], ids=lambda action: action.dest
)
def test_flag_is_read_from_torchruns_variable(action: Action) -> None:
    [ours] = [each for each in click_command("run").params if set(each.opts) & set(action.option_strings)]
    assert f"PET_{action.dest.upper()}" in ours.envvar


@pytest.mark.parametrize("flag", REFUSED)
def test_flag_without_a_meaning_is_refused_by_name(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for spelled in (flag, "--" + flag[2:].replace("-", "_")):
        with pytest.raises(SystemExit) as end:
            application(["run"])(["run", spelled, "x", "train.py"])
        assert end.value.code == 2
        assert f"{flag} is not supported: {REFUSED[flag][1]}" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["is_host", "store_type", "read_timeout", "cas_backoff_max_seconds"])
@pytest.mark.parametrize("timeout", ["join", "last_call", "close", "heartbeat"])
def test_keys_of_torchs_rendezvous_are_known(key: str, timeout: str) -> None:
    assert {key, f"{timeout}_timeout", "keep_alive_interval", "keep_alive_max_attempt"} <= {
        *KEYS,
        *REFUSED_KEYS,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("read_timeout=5", "--rdzv-conf read_timeout is not supported: requests have limits"),
        ("jion_timeout=5", "--rdzv-conf has 'jion_timeout=5'; give KEY=VALUE with close_timeout, "),
        ("join_timeout", "--rdzv-conf has 'join_timeout'"),
        ("join_timeout=soon", "--rdzv-conf join_timeout is 'soon'"),
        ("join_timeout=0", "--rdzv-conf join_timeout is '0': not above 0"),
        ("is_host=maybe", "--rdzv-conf is_host is 'maybe': neither true nor false"),
        ("store_type=file", "--rdzv-conf store_type is 'file': nodes meet over TCP"),
    ],
)
def test_rdzv_conf_without_a_meaning_is_refused_by_name(text: str, sentence: str) -> None:
    with pytest.raises(Failure) as caught:
        conf(text)
    assert sentence in str(caught.value)
