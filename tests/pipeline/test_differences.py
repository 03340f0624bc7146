"""Registry of the differences from the paper's text and from its release, and what is generated from it."""

from importlib import import_module

import pytest

from tasks.tables.differences import (
    _DIFFERENCES,
    DIFFERENCES,
    KIND_TITLES,
    PAGE_TITLE,
    TOPICS,
    differences_of_kind,
    summarize_differences,
)


def resolve(name: str) -> object:
    """Import the longest prefix of a dotted name that is a module, and get the rest as attributes."""
    parts = name.split(".")
    for n_parts in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:n_parts]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n_parts:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(name)


def test_keys_are_unique_and_each_kind_has_differences():
    assert len(DIFFERENCES) == len(_DIFFERENCES)
    assert sum(len(differences_of_kind(kind)) for kind in KIND_TITLES) == len(DIFFERENCES)
    assert all(differences_of_kind(kind) for kind in KIND_TITLES)


@pytest.mark.parametrize("key", DIFFERENCES)
def test_a_difference_names_code_that_exists_and_says_what_this_project_does_where_it_does_not_follow_the_release(key):
    difference = DIFFERENCES[key]
    resolve(difference.code)
    assert difference.topic in TOPICS
    assert bool(difference.project) == (difference.kind != "text")
    assert difference.release.endswith(".")
    assert difference.effect.endswith(".")


def test_a_name_that_does_not_exist_is_noticed():
    with pytest.raises(AttributeError):
        resolve("relmap.projection.rows.no_such_function")


def test_the_summary_counts_each_kind_and_names_the_page():
    summary = summarize_differences()
    for kind in KIND_TITLES:
        assert str(len(differences_of_kind(kind))) in summary
    assert PAGE_TITLE in summary
