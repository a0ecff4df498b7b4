"""WebSockets: small messages to and fro beside nginx, and what a thousand idle ones cost."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from benchmarks.measurement import Measurement, at_least, below, rss_mib
from benchmarks.proxying.stage import Missing, Stage, in_turns, stage
from tests.e2e.world import World

SECONDS = 2.0
CONNECTIONS = 64
IDLE = 1000
CONTESTANTS = ("nginx", "one", "chain")
RATIO_GOAL, CHAIN_RATIO_GOAL, IDLE_GOAL_MIB = 0.4, 0.15, 100.0


def measure(world: World) -> list[Measurement]:
    """Echo on 64 connections in turns, five times; then open a thousand and leave them alone."""
    try:
        with stage(world) as there:
            rounds = in_turns("ws_load", there.echo, CONTESTANTS, connections=CONNECTIONS, seconds=SECONDS)
            idle = _idle(there)
    except Missing as missing:
        return [Measurement("ws_msgs_ratio_to_nginx", None, "", str(missing), ok=None)]

    def per_second(name: str) -> list[float]:
        return [each[name]["messages"] / each[name]["seconds"] for each in rounds]

    def ratio(name: str) -> float:
        return median(mine / nginx for mine, nginx in zip(per_second(name), per_second("nginx"), strict=True))

    return [
        at_least("ws_msgs_ratio_to_nginx", ratio("one"), "", RATIO_GOAL),
        at_least("ws_chain_ratio_to_nginx", ratio("chain"), "", CHAIN_RATIO_GOAL),
        *(Measurement(f"ws_{name}_echoes_per_s", round(median(per_second(name))), "1/s") for name in CONTESTANTS),
        *idle,
    ]


def _idle(there: Stage) -> list[Measurement]:
    pids = {"data_plane": there.data_pid, "gateway": there.gateway_pid}
    way = there.echo["chain"]
    before = {name: rss_mib(pid) for name, pid in pids.items()}
    job = json.dumps({"port": way.port, "path": way.path, "connections": IDLE, "seconds": 0})
    command = [sys.executable, "-m", "benchmarks.proxying.ws_load", job]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as idlers:
        assert idlers.stdout is not None
        assert idlers.stdout.readline() == "open\n", "the idle WebSockets could not be opened"
        after = {name: rss_mib(pid) for name, pid in pids.items()}
        idlers.communicate()
    return [below(f"ws_1000_idle_{name}_mib", after[name] - before[name], "MiB", IDLE_GOAL_MIB) for name in pids]
