"""Small requests: the data plane, and the whole chain, beside a bare proxy on the same server."""

from __future__ import annotations

from statistics import median

from benchmarks.measurement import Measurement, at_least, at_most
from benchmarks.proxying.stage import ROUNDS, Missing, in_turns, load, stage
from tests.e2e.world import World

SECONDS = 2.0
CONNECTIONS = 16
CONTESTANTS = ("bare", "one", "chain", "nginx")
RATIO_GOAL, CHAIN_RATIO_GOAL, ADDED_MS_GOAL = 0.9, 0.4, 2.0


def measure(world: World) -> list[Measurement]:
    """Load each way in turn, five times; what is compared was measured in the same round."""
    try:
        with stage(world) as there:
            ways = there.small
            rounds = in_turns("http_load", ways, CONTESTANTS, connections=CONNECTIONS, seconds=SECONDS)
            alone = [
                {
                    name: load("http_load", ways[name], connections=1, seconds=1.0)["p50_ms"]
                    for name in ("direct", "chain")
                }
                for _ in range(ROUNDS)
            ]
    except Missing as missing:
        return [Measurement("proxy_rps_ratio_to_bare", None, "", str(missing), ok=None)]

    def per_second(name: str) -> list[float]:
        return [each[name]["answers"] / each[name]["seconds"] for each in rounds]

    def per_cpu_second(name: str) -> list[float]:
        return [each[name]["answers"] / max(each[name]["cpu"], 0.01) for each in rounds]

    def ratio(of: list[float], to: list[float]) -> float:
        return median(mine / theirs for mine, theirs in zip(of, to, strict=True))

    bare, bare_cpu = per_second("bare"), per_cpu_second("bare")
    return [
        at_least("proxy_rps_ratio_to_bare", ratio(per_second("one"), bare), "", RATIO_GOAL),
        Measurement("proxy_rps_per_cpu_s_ratio_to_bare", round(ratio(per_cpu_second("one"), bare_cpu), 2), ""),
        at_least("chain_rps_ratio_to_bare", ratio(per_second("chain"), bare), "", CHAIN_RATIO_GOAL),
        Measurement("chain_rps_per_cpu_s_ratio_to_bare", round(ratio(per_cpu_second("chain"), bare_cpu), 2), ""),
        *(Measurement(f"{name}_rps", round(median(per_second(name))), "1/s") for name in CONTESTANTS),
        *(Measurement(f"{name}_rps_per_cpu_s", round(median(per_cpu_second(name))), "1/CPU s") for name in CONTESTANTS),
        at_most("chain_added_ms_p50", median(each["chain"] - each["direct"] for each in alone), "ms", ADDED_MS_GOAL),
    ]
