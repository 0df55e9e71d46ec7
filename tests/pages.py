"""Sections of a page taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actiongap.reporting.page import Prose, Section


def blocks_of(found: Iterable[Section]) -> dict[str, Any]:
    """All blocks but prose, by their titles."""
    return {block.title: block for section in found for block in section.blocks if not isinstance(block, Prose)}


def prose_of(found: Iterable[Section]) -> str:
    """All prose."""
    return "\n".join(block.text for section in found for block in section.blocks if isinstance(block, Prose))
