"""Definitions of the concepts that report pages use."""

import re

import pytest

from relmap.report.concepts import CONCEPTS, Concept


def test_concept_definitions_are_short():
    for concept in CONCEPTS.values():
        assert 1 <= len(re.findall(r"\.(\s|$)", concept.definition)) <= 2
        assert len(concept.definition.split()) <= 60
        assert concept.page == f"docs/concepts/{concept.name}"


def test_a_concept_is_immutable():
    concept = CONCEPTS["intervals"]
    with pytest.raises(AttributeError):
        concept.title = "other"
    assert concept == Concept(name="intervals", title=concept.title, definition=concept.definition)
