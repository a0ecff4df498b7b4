"""The wire's own files: schemas and golden messages of fixtures/protocol/v1."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

WIRE = Path(__file__).parents[2] / "fixtures" / "protocol" / "v1"


@cache
def _registry() -> Registry[Any]:
    schemas = {path.name: json.loads(path.read_text()) for path in WIRE.glob("*.schema.json")}
    return Registry().with_resources([(name, Resource.from_contents(schema)) for name, schema in schemas.items()])


@cache
def _validator(message: str) -> Draft202012Validator:
    return Draft202012Validator(_registry().contents(f"{message}.schema.json"), registry=_registry())


def complaints(message: str, body: object) -> list[str]:
    """What the schema of *message* has against *body*."""
    return [f"{problem.json_path}: {problem.message}" for problem in _validator(message).iter_errors(body)]


def golden(message: str) -> dict[str, Any]:
    """The golden messages of one kind, by case."""
    return {
        path.name.split(".")[2]: json.loads(path.read_text())
        for path in sorted(WIRE.glob(f"{message}.*.json"))
        if not path.name.endswith(".schema.json")
    }
