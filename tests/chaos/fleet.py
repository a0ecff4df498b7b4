"""Three machines and seven Spaces: the rows from which every schedule starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.models import Uptime
from jobs.scheduling import RequirementSpec
from spaces.models import Space, Visibility
from tests.chaos.simulated_worker import Gpu, SimulatedWorker
from tests.chaos.wire import About, DirectWire, Wire
from workers import credentials
from workers.models import Worker

REVISION = "0123456789abcdef0123456789abcdef01234567"
CARD_MIB = 24_564
GB10_MIB = 9_536  # "vram-10gb"
NONCE = "n" * 32

CPU, GPU_FEATURES = ("cpu",), ("cpu", "cuda", "nvidia")


@dataclass(frozen=True)
class SpaceKind:
    """A Space of the fleet: what it needs and how it runs."""

    name: str
    mode: str
    requirement: RequirementSpec


def whole_gpus(count: int = 1, vram_mib: int | None = None) -> RequirementSpec:
    return RequirementSpec("gpu", gpu_count=count, vram_mib=vram_mib, exclusive=vram_mib is None)


SPACES = (
    SpaceKind("plain", "service", RequirementSpec("cpu")),
    SpaceKind("whole", "service", whole_gpus()),
    SpaceKind("shared", "service", whole_gpus(vram_mib=GB10_MIB)),
    SpaceKind("count", "batch", RequirementSpec("cpu")),
    SpaceKind("pair", "service", whole_gpus(2)),
    SpaceKind("measure", "batch", whole_gpus(vram_mib=14_900)),  # beside "shared": not with the margin
    SpaceKind("large", "service", whole_gpus(vram_mib=22_888)),
)


@dataclass(frozen=True)
class MachineKind:
    name: str
    local: bool
    gpus: int
    about: About


MACHINES = (
    MachineKind("here", True, 0, About(max_gpu=0, max_cpu=2, features=CPU)),
    MachineKind("one", False, 1, About(max_gpu=2, max_cpu=1, features=GPU_FEATURES)),
    MachineKind("two", False, 2, About(max_gpu=3, max_cpu=1, features=GPU_FEATURES)),
)


@dataclass(frozen=True)
class Fleet:
    """The committed rows from which every schedule starts: nothing queued, everybody registered and idle."""

    spaces: tuple[Space, ...]
    credentials: tuple[str, ...]
    gpu_uuids: tuple[tuple[str, ...], ...]


def found_fleet() -> Fleet:
    """Make the rows. Called once per database."""
    Uptime.objects.all().delete()
    Uptime.objects.create(pk=1)
    spaces = [
        Space.objects.create(
            repository_id=f"r{number}",
            owner="owner",
            name=kind.name,
            visibility=Visibility.PUBLIC,
            topics=["space"],
            head_revision=REVISION,
        )
        for number, kind in enumerate(SPACES)
    ]
    keys, cards = [], []
    for kind in MACHINES:
        worker = Worker.objects.create(
            name=kind.name,
            local=kind.local,
            gateway_url="http://127.0.0.1:8787",
            gateway_status=Worker.Gateway.OK,
            gateway_fixed=True,
        )
        credential = credentials.mint(worker.pk, token=f"token of {kind.name}", nonce=NONCE)
        Worker.objects.filter(pk=worker.pk).update(credential_hash=credentials.digest(credential.secret))
        keys.append(str(credential))
        cards.append(tuple(f"GPU-{kind.name}-{number}" for number in range(kind.gpus)))
    fleet = Fleet(tuple(spaces), tuple(keys), tuple(cards))
    for machine in machines_of(fleet, DirectWire):
        machine.start()
        machine.register()
        assert machine.session == 1
    return fleet


def machines_of(fleet: Fleet, wire: Callable[[str], Wire]) -> list[SimulatedWorker]:
    return [
        SimulatedWorker(
            kind.name,
            wire(fleet.credentials[number]),
            about=kind.about,
            gpus=[Gpu(uuid, CARD_MIB) for uuid in fleet.gpu_uuids[number]],
        )
        for number, kind in enumerate(MACHINES)
    ]
