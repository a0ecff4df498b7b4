"""What the owner of the machine gets back: prune the images, or leave with everything that is this worker's."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from gpu_worker.agent import make_executor
from gpu_worker.answer import Answer
from gpu_worker.config import WorkerConfig
from gpu_worker.containers import ContainerEngine
from gpu_worker.credentials import Credential, CredentialStore, Former
from gpu_worker.data_dir import LEAVE, WHICH, DataDirLock
from gpu_worker.enrollment import control_plane
from gpu_worker.errors import ConfigError, Revoked
from gpu_worker.executor import Executor
from gpu_worker.garbage import EVERYTHING, OwnImage, make_room, survey
from gpu_worker.journal import JobRecord, Journal
from gpu_worker.pause import PauseFile

LEAVE_GRACE_SECONDS = 10.0
IN_USE = "The worker is running with the data directory {}: stop it first."
MIB = 1024 * 1024


def prune(config: WorkerConfig, arguments: Namespace) -> Answer:
    """Remove images that no job needs now; with ``--dry-run`` only say which. The worker may go on meanwhile."""
    executor = make_executor(config, _own(config).worker_id)
    if not isinstance(executor, ContainerEngine):
        return Answer({"removed": [], "kept": []}, "Plain processes have no images.")
    in_hand = {record.image_id for record in _records(config) if record.image_id}
    last_good_too = bool(arguments.all)
    seen = survey(executor.images, in_hand=in_hand, last_good_too=last_good_too)
    if arguments.dry_run:
        gone: Sequence[OwnImage] = seen.removable
    else:
        gone = make_room(
            executor.images,
            lambda: EVERYTHING,
            in_hand=in_hand,
            last_good_too=last_good_too,
            tell=_progress(arguments),
        )
    facts = {"dry_run": bool(arguments.dry_run), "removed": [image.wire() for image in gone], **_kept(seen.kept)}
    lines = [_line("would go" if arguments.dry_run else "gone", image) for image in gone]
    lines += [f"{_line('kept', image)}: {why}" for image, why in seen.kept]
    size = sum(image.size for image in gone) // MIB
    lines.append(f"{len(gone)} image(s), at most {size} MiB. Layers that other images share stay.")
    return Answer(facts, "\n".join(lines))


def leave(config: WorkerConfig, arguments: Namespace) -> Answer:
    """End this worker's credential and remove what is its own here. What Spaces keep goes only where that is said."""
    _own(config)  # before the lock, which would make the directory
    with DataDirLock(config.data_dir, LEAVE, taken=IN_USE):
        store, own = CredentialStore(config.data_dir), _own(config)
        executor = make_executor(config, own.worker_id)
        volumes = executor.volumes.all() if isinstance(executor, ContainerEngine) else []
        if volumes and not (arguments.keep_data or arguments.delete_data):
            raise ConfigError(
                f"{len(volumes)} volume(s) hold what Spaces have written here. "
                "Say --delete-data to remove them, or --keep-data to leave them with Docker."
            )
        if isinstance(own, Credential):
            client = control_plane(config)
            client.credential = own
            with contextlib.suppress(Revoked):  # an operator was quicker; what is here still has to go
                client.leave()
        apps = _remove_apps(config, executor)
        images = 0
        if isinstance(executor, ContainerEngine):
            executor.remove_stray_networks(set())
            tell = _progress(arguments)
            gone = make_room(executor.images, lambda: EVERYTHING, last_good_too=True, fresh_too=True, tell=tell)
            images = len(gone)
            if arguments.delete_data:
                executor.volumes.remove_all()
        PauseFile(config.data_dir).remove()
        if isinstance(own, Credential):
            store.wipe(reason="This worker left.")
    kept = [] if arguments.delete_data else [volume.name for volume in volumes]
    facts = {
        "worker_id": own.worker_id,
        "removed_apps": apps,
        "removed_images": images,
        "removed_volumes": len(volumes) - len(kept),
        "kept_volumes": kept,
    }
    text = f"{own.name} has left; {apps} app(s) and {images} image(s) removed."
    if volumes:
        text += f" {len(volumes) - len(kept)} volume(s) removed, {len(kept)} kept."
    lines = [
        text,
        *(f"kept: {name}" for name in kept),
        "The rest of Docker's build cache stays: docker builder prune.",
    ]
    return Answer(facts, "\n".join(lines))


def _own(config: WorkerConfig) -> Credential | Former:
    """Whose things are here: this worker's, or those of the one that was revoked or has left. Raises ConfigError."""
    store = CredentialStore(config.data_dir)
    own = store.load() or store.former()
    if own is None:
        raise ConfigError(f"There is no worker in {config.data_dir}, so nothing is known to be its own. {WHICH}")
    return own


def _records(config: WorkerConfig) -> list[JobRecord]:
    return Journal(config.data_dir).load_all() if (config.data_dir / "jobs").is_dir() else []


def _remove_apps(config: WorkerConfig, executor: Executor) -> int:
    journal, removed = Journal(config.data_dir), 0
    for found in executor.inventory():
        runtime = executor.find(JobRecord(found.facts))
        if runtime is not None:
            runtime.stop(LEAVE_GRACE_SECONDS)
            runtime.remove()
            removed += 1
    for record in journal.load_all():
        journal.drop(record.facts.lease)
    return removed


def _progress(arguments: Namespace) -> Callable[[int, int], None]:
    """Tells people on stderr how far it is; programs nothing."""

    def tell(gone: int, of: int) -> None:
        sys.stderr.write(f"removed {gone} of {of} images\n")
        if gone == of:
            sys.stderr.write("looking for what only they had in the build cache\n")

    return tell if not arguments.json else lambda gone, of: None


def _kept(kept: Sequence[tuple[OwnImage, str]]) -> dict[str, object]:
    return {"kept": [{**image.wire(), "because": why} for image, why in kept]}


def _line(word: str, image: OwnImage) -> str:
    return f"{word:9} {image.size // MIB:6} MiB  {image.names[0] if image.names else image.id[:19]}"
