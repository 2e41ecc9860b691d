"""Demands for memory by module on their way through the hub: who is asked, and who is answered."""

import base64
import os
from pathlib import Path

from vramscope.engine.ranks import demands
from vramscope.engine.ranks.demands import PackedModules, Wish
from vramscope.engine.ranks.messages import DemandRefused, ModulesPart

from .probe_client import MIB, ProbeClient, make_hello, make_readings
from .rosters import open_roster

ASKER = (b"peer", 1)


def test_modules_are_of_the_next_step_and_an_old_probe_is_not_asked(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(MIB))
        bench.tick()
        bench.roster.ask(os.getpid(), Wish("modules", ASKER))
        (answer,) = bench.roster.take_answers()
        assert "is too old for modules" in (answer.refusal or "")
        probe.send(make_hello(demands=("segments", "modules")))
        bench.tick()
        for number in (2, 3):
            bench.roster.ask(os.getpid(), Wish("modules", (b"peer", number)))
        demand = probe.receive()
        assert (demand.kind, demand.seconds) == ("modules", demands.MODULES_WITHIN_S)
        bench.tick(after_s=demands.MODULES_WITHIN_S)
        data = base64.b64encode(b"packed").decode()
        probe.send(ModulesPart(v=1, request=demand.request, part=1, parts=2, data=data[4:]))
        probe.send(ModulesPart(v=1, request=demand.request, part=0, parts=2, data=data[:4]))
        bench.tick()
        answers = bench.roster.take_answers()
        assert [(it.asker[1], it.modules) for it in answers] == [
            (number, PackedModules(os.getpid(), b"packed")) for number in (2, 3)
        ]
        assert bench.roster.take_maps() == []
        bench.roster.ask(os.getpid(), Wish("modules", ASKER))
        probe.send(DemandRefused(v=1, request=probe.receive().request, reason="has not ended a step"))
        bench.tick()
        (answer,) = bench.roster.take_answers()
        assert answer.refusal == f"process {os.getpid()} has not ended a step"
