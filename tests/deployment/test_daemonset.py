"""The DaemonSet of docs/deployment: its agent starts with what the pod is given, and with no more."""

import json

from vramscope.cli.frame.parse import parse
from vramscope.engine.cluster.addresses import DEFAULT_PORT
from vramscope.engine.cluster.keys import keys_folder, make_key_pair, save_key_pair

from .pod import KEYS, MANIFEST, read_field, read_variables, skip_without_mounts, start_beside, start_in_pod

COMMAND: list[str] = json.loads(read_field("command"))


def test_the_manifest_starts_an_agent_on_the_port_that_it_opens() -> None:
    arguments = parse(COMMAND[1:])
    assert (COMMAND[0], arguments.verb, arguments.listen) == ("vramscope", "agent", f"*:{DEFAULT_PORT}")
    assert read_field("containerPort") == read_field("hostPort") == str(DEFAULT_PORT)
    assert MANIFEST.count("vramscope-keys") == 1
    assert f"mountPath: {KEYS}\n" in MANIFEST
    assert read_field("defaultMode") == "0400"
    assert "privileged: true" not in MANIFEST


def test_the_agent_of_the_pod_serves_who_is_let_in() -> None:
    path = save_key_pair(make_key_pair(), keys_folder())
    skip_without_mounts(path)
    agent = start_in_pod(path, *COMMAND[1:])
    try:
        assert agent.stderr is not None
        told = "".join(agent.stderr.readline() for _ in range(2))
        assert f"serving {read_variables()['VRAMSCOPE_RUNTIME_DIR']} " in told
        assert "listening on 0.0.0.0:5757 for the keys in" in told
        said, complained = start_beside(agent, "--json", "--duration", "1s").communicate(timeout=60)
        status = json.loads(said.splitlines()[0])
        assert (status["node"], status["agent"]["pid"]) == ("gpu-7", agent.pid), complained
    finally:
        agent.terminate()
        agent.communicate(timeout=60)
    assert agent.returncode == 0
