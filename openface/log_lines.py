"""Log lines for people and for `grep`: the sentence, then what it is about as `name=value`."""

from __future__ import annotations

import json
import logging

# What every record has; the rest was given as `extra`.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Objects that Django attaches to its own records: no words for a line.
_NOT_SHOWN = frozenset({"request", "server_time", "status_code"})


class Formatter(logging.Formatter):
    """The usual line, with what was given as `extra` behind its sentence. A value with blanks is quoted as in JSON."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's name
        line = super().formatMessage(record)
        extra = {
            name: value
            for name, value in vars(record).items()
            if name not in _OF_EVERY_RECORD and name not in _NOT_SHOWN
        }
        return " ".join([line, *(f"{name}={_spelt(value)}" for name, value in extra.items())])


def _spelt(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') and text else json.dumps(text, ensure_ascii=False)
