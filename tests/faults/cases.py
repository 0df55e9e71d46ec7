"""Many cases in one test: each in a folder of its own, all of them run, those that fail listed at the end."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from faults.commands import remove, sandbox

T = TypeVar("T")
SHOWN = 400
"""Characters of a failure that are shown."""


class Cases:
    """The cases of a test, and what came of them."""

    def __init__(self, test: pytest.Item, thorough: bool, most: int | None = None):
        self.test, self.thorough, self.most = test, thorough, most
        self.total = 0
        self.failed: dict[str, str] = {}

    def chosen(self, given: Iterable[T], short: int = 1) -> list[T]:
        """All of what is given, or a few in short tests. Tests choose different ones, and always the same."""
        known = list(given)
        number = (self.most or len(known)) if self.thorough else short
        if len(known) <= number:
            return known
        first, step = zlib.crc32(self.test.nodeid.encode()) % len(known), len(known) / number
        return [known[(first + int(k * step)) % len(known)] for k in range(number)]

    def items(self, given: Mapping[str, T], short: int = 1) -> list[tuple[str, T]]:
        """All items, or a few in short tests."""
        return self.chosen(given.items(), short)

    @contextlib.contextmanager
    def case(self, name: str, count: int = 1) -> Iterator[Path]:
        """One case, or several that are tried together, in a new folder that every user can write to."""
        self.total += count
        place = sandbox()
        try:
            yield place
        except (AssertionError, OSError) as error:
            self.failed[name] = f"{type(error).__name__}: {error}"
        finally:
            remove(place)

    def finish(self) -> None:
        """Record the counts, and fail if a case failed."""
        self.test.user_properties += [("cases", self.total), ("failed", list(self.failed))]
        if self.failed:
            listed = "\n".join(f"- {name}: {' '.join(why.split())[:SHOWN]}" for name, why in self.failed.items())
            pytest.fail(f"{len(self.failed)} of {self.total} cases failed:\n{listed}", pytrace=False)
        assert self.total, "there was no case"
