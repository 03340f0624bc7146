"""Docstrings of the public interface: complete sections, and examples that run."""

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import relmap

SOURCES = Path(relmap.__file__).parent


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(SOURCES.parent).with_suffix("").parts)


MODULES = [module_name(file) for file in sorted(SOURCES.rglob("*.py")) if ">>>" in file.read_text(encoding="utf-8")]
PUBLIC = [name for name in relmap.__all__ if callable(getattr(relmap, name))]


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the public functions, and the methods that public classes define."""
    for name in PUBLIC:
        function_or_class = getattr(relmap, name)
        if not isinstance(function_or_class, type):
            yield name, function_or_class
            continue
        for method_name in vars(function_or_class):
            method = inspect.unwrap(getattr(function_or_class, method_name))
            is_generated = method_name.startswith("set_") and method_name.endswith("_request")  # by scikit-learn
            if inspect.isroutine(method) and not method_name.startswith("_") and not is_generated:
                yield f"{name}.{method_name}", method


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    result = doctest.testmod(import_module(name))
    assert result.failed == 0
    assert result.attempted > 0


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_an_example(name):
    assert "Example:" in str(getattr(relmap, name).__doc__)


def find_documented_arguments(docstring: str) -> list[str]:
    return re.findall(r"^    \*{0,2}(\w+): ", docstring, re.MULTILINE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_document_arguments_results_and_an_example(name):
    signature = inspect.signature(FUNCTIONS[name])
    docstring = inspect.getdoc(FUNCTIONS[name]) or ""
    documented = find_documented_arguments(docstring)
    arguments = [argument for argument in signature.parameters if argument not in ("self", "cls")]
    assert [argument for argument in documented if argument in arguments] == arguments
    assert "Returns:" in docstring or signature.return_annotation in (None, "None")
    assert "Example:" in docstring


def test_an_undocumented_argument_is_not_found_in_the_docstring():
    def undocumented(first: int) -> int:
        """Return the first."""
        return first

    assert find_documented_arguments(inspect.getdoc(undocumented) or "") == []
