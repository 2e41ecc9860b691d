"""Secrets in commands and variables are masked; what is none stays readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.masking import MASKED_WORD, mask_command, name_program

M = MASKED_WORD


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python train.py --lr 1e-4 --tokenizer gpt2", "python train.py --lr 1e-4 --tokenizer gpt2"),
        ("python train.py --max-tokens 4096 --num-key-value-heads 8", None),
        ("serve --api-key s3cret --port 8000", f"serve --api-key {M} --port 8000"),
        ("serve --api-key=s3cret", f"serve --api-key={M}"),
        ("env WANDB_API_KEY=s3cret python a.py", f"env WANDB_API_KEY={M} python a.py"),
        ("run model.auth.token=s3cret lr=1", f"run model.auth.token={M} lr=1"),
        ("run +wandb.api_key=s3cret ++hub.token=s3cret", f"run +wandb.api_key={M} ++hub.token={M}"),
        ("get https://h/x?api_key=s3cret&lr=1", f"get https://h/x?api_key={M}&lr=1"),
        ("get https://h/x?lr=1&tokens=8", None),
        ("db --password --verbose", None),
        ("db --password  s3cret", f"db --password  {M}"),
        ("get postgres://me:s3cret@db/x", f"get postgres://me:{M}@db/x"),
        ("push hf_abcdefghijklmnopqrstu now", f"push {M} now"),
        ("curl -H Authorization: Bearer s3cret", f"curl -H Authorization: Bearer {M}"),
        ("[kworker/0:1]", None),
        ("", None),
    ],
)
def test_secrets_of_a_command_are_masked(command: str, shown: str | None) -> None:
    assert mask_command(command) == (command if shown is None else shown)


@given(st.text(max_size=60))
def test_any_command_is_masked_without_an_error_and_its_program_has_no_arguments(command: str) -> None:
    masked = mask_command(command)
    assert mask_command(masked) == masked
    assert " " not in name_program(command).removesuffix(" …")


def test_a_program_is_named_without_its_folder() -> None:
    assert name_program("/home/ada/venv/bin/python /home/ada/train.py --token x") == "python …"
    assert name_program("nvidia-smi") == "nvidia-smi"
