"""Rows as columns and values, for the few statements that write more than one table at once. Values as Django sends
them, so that a column added to a model needs no second mention in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection
from django.db.models import Model
from django.db.models.expressions import DatabaseDefault


def insertable(row: Model) -> dict[str, Any]:
    """Return the values of a new row by quoted column, without those that the database gives."""
    values = {}
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if not isinstance(value, DatabaseDefault) and not (field.primary_key and value is None):
            values[_quoted(field)] = field.get_db_prep_save(value, connection)
    return values


def assignable(model: type[Model], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes of a row, given by the names of its fields, as values by quoted column."""
    fields: dict[str, Any] = {name: model._meta.get_field(name) for name in changes}
    return {_quoted(fields[name]): fields[name].get_db_prep_save(value, connection) for name, value in changes.items()}


def _quoted(field: Any) -> str:
    return connection.ops.quote_name(field.column)
