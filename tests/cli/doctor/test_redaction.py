"""What is taken out of a text or an object, and what is left of it."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from elasticjob.cli.doctor.redaction import OUT, of_secrets, redacted, text, without


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("DB_PASSWORD=hun,ter2 next", f"DB_PASSWORD={OUT} next"),
        ("export WANDB_API_KEY='a b' x", f"export WANDB_API_KEY={OUT} x"),
        ("password: hunter two", f"password: {OUT}"),
        (
            "PGPASSWORD=a SSHPASS=b dbpassword=c mypasswd=d userpwd=e",
            " ".join(
                f"{name}={OUT}" for name in ("PGPASSWORD", "SSHPASS", "dbpassword", "mypasswd", "userpwd")
            ),
        ),
        (
            "authtoken=a AUTHTOKEN=b secretkey=c X_PAT=d NETRC=e dbpass=f",
            " ".join(
                f"{name}={OUT}"
                for name in ("authtoken", "AUTHTOKEN", "secretkey", "X_PAT", "NETRC", "dbpass")
            ),
        ),
        ("token=123456789 tokens=5f3a tokens=5/ab", f"token={OUT} tokens={OUT} tokens={OUT}"),
        ("credentials: |\n  id: a\n  b\nx: 1", f"credentials: {OUT}\n  {OUT}\n  {OUT}\nx: 1"),
        ("hvs.CAESIJabcdefghij0123 dckr_pat_abcdefghij0123456789", f"{OUT} {OUT}"),
        ("curl -su a:b -X GET; curl --user 'a:b c' x", f"curl -su {OUT} -X GET; curl --user {OUT} x"),
        ("\x1b[36mapi_key\x1b[0m=\x1b[35mabc\x1b[0m x=1", f"api_key={OUT} x=1"),
        (
            "2026-11-30T12:00:00Z  password:\n2026-11-30T12:00:01.5Z    a b\n2026-11-30T12:00:01Z  b: 1",
            f"2026-11-30T12:00:00Z  password:\n2026-11-30T12:00:01.5Z    {OUT}\n2026-11-30T12:00:01Z  b: 1",
        ),
        ('{"n": 1, "clientSecret": "a\\"b", "m": 2}', f'{{"n": 1, "clientSecret": {OUT}, "m": 2}}'),
        ('\\"passwd\\": \\"x\\" y', f'\\"passwd\\": {OUT} y'),
        ("run --token abc --lr 0.1 --api-key=abc", f"run --token {OUT} --lr 0.1 --api-key={OUT}"),
        ("Authorization: Basic dXNlcjpw", f"Authorization: {OUT}"),
        ("with bearer token abcdef0123", f"with bearer token {OUT}"),
        ("Cookie: a=b; c=d", f"Cookie: {OUT}"),
        ("the token of this job is abc", f"the token of this job is {OUT}"),
        ("x eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl y", f"x {OUT} y"),
        ("ghp_0123456789abcdefghij, AKIAABCDEFGHIJKLMNOP", f"{OUT}, {OUT}"),
        ("hf_abcdefghijklmnopqrst xoxb-0123456789-a", f"{OUT} {OUT}"),
        ("postgres://me:p@ss/w@db/x", f"postgres://me:{OUT}@db/x"),
        ("git clone https://tok@host/x", f"git clone https://{OUT}@host/x"),
        ("GET /a?sig=b&c=d HTTP/1.1", f"GET /a?{OUT} HTTP/1.1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nend", f"{OUT}\nend"),
    ],
)
def test_a_secret_goes_and_the_rest_stays(words: str, left: str) -> None:
    assert text(words) == left
    assert text(left) == left


@pytest.mark.parametrize(
    "words",
    [
        "loss: 0.5 tokens=512 tokens/s: 7 max_tokens: 4",
        'tokens_per_second=3 tokens: 1.2M, {"total_tokens": 12345678, "pad_token_id": 0}',
        "tokenizer: bert tokenizer=bert restartPolicy: Never bypass=1 path=/x compass: north",
        "secret:\n  secretName: digits\nimagePullSecrets:\n- name: hub",
        "TOKENIZERS_PARALLELISM=false ELASTICJOB_TOKEN_FILE=/var/run/x",
        "2026-11-30T12:00:00Z info [team/digits worker-0] a pass failed key=team/digits error=x",
        "topologyKey: kubernetes.io/hostname, secretName: digits, is it? yes",
        "pulled s3://bucket/data from 10.0.0.1:80",
    ],
)
def test_what_is_no_secret_stays(words: str) -> None:
    assert text(words) == words


def test_objects_keep_their_shape() -> None:
    variables: Any = [{"name": "API_TOKEN", "value": "a"}, {"name": "LR", "value": "1"}]
    applied = '{"spec": {"env": [{"name": "X_SECRET", "value": "a"}]}}'
    found = redacted(
        {
            "metadata": {
                "managedFields": [1],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied},
            },
            "spec": {
                "env": variables,
                "args": ["--password", "a", "-v", "x", "--max-tokens", "5", "curl", "-u", "a:b"],
                "tokens": 5,
                "envs": {"S_KEY": {"value": "a"}},
            },
            "volume": {"secret": {"secretName": "digits"}, "tolerations": [{"key": "gpu", "value": "a100"}]},
        }
    )
    assert found["metadata"]["annotations"].popitem()[1] == applied.replace('"a"', f'"{OUT}"')
    assert "managedFields" not in found["metadata"]
    assert found["spec"] == {
        "env": [{"name": "API_TOKEN", "value": OUT}, {"name": "LR", "value": "1"}],
        "args": ["--password", OUT, "-v", "x", "--max-tokens", "5", "curl", "-u", OUT],
        "tokens": 5,
        "envs": {"S_KEY": {"value": OUT}},
    }
    assert found["volume"]["secret"] == {"secretName": "digits"}
    assert found["volume"]["tolerations"] == [{"key": "gpu", "value": "a100"}]
    assert redacted({"kind": "Secret", "data": {"a": "b"}})["data"] == {"a": OUT}


def test_values_of_secrets_go_in_each_form() -> None:
    hide = of_secrets([b'hun"ter22', b"first line\nsecond line\n", b"short"])
    forms = ['hun"ter22', json.dumps('hun"ter22')[1:-1], "aHVuInRlcjIy", "aHVuInRlcjIyCg", "x second line x"]
    assert [hide(each) for each in forms] == [OUT] * 4 + [f"x {OUT} x"]
    for value in ("Tit'Lark\"99", 'Müller-Heron-88"x', "DOM\\\\svc:Heron-Pass9", 'Horn"et\\Zz-42é&/x'):
        gone = of_secrets([value.encode()])
        plain = json.dumps(value, ensure_ascii=False)
        said = {f"{value!r}", f"{ {chr(100): value} }", f"{value.encode()!r}", plain}
        for each in (
            said | {json.dumps(each) for each in said} | {json.dumps(json.dumps(each)) for each in said}
        ):
            assert not re.search("Lark|Heron|Zz-42", gone(each)), each
    assert without({"n": ['hun"ter22', 7, True], "k": "short"}, hide) == {"n": [OUT, 7, True], "k": "short"}


@pytest.mark.parametrize(
    "part",
    ["tokens: 1_", "curl -u ", "a:\n", "a-", "\\", "a: ", '"', 'a="', "x://a:", "--a ", "eyJ", "?a=", "key "],
)
def test_hostile_lines_take_no_time(part: str) -> None:
    began = time.process_time()
    text(part * (200_000 // len(part)))
    assert time.process_time() - began < 2, "a pattern goes back over what it has read"
