"""Find the possible mutants of the source and draw a stratified random sample of them.

A site is a place in the source and a family of operators, such as the comparison in one condition. The sample draws
sites first and then one mutant of each site, so that an operator with many variants does not fill the sample.
"""

import ast
import hashlib
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.plugins
import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.work_item import MutationSpec, WorkItem

from tests.mutation.operators import OPERATORS, OperatorProvider

# Cosmic Ray finds operators through entry points; a checkout has none of its own
cosmic_ray.plugins.OPERATOR_PROVIDERS["relmap"] = OperatorProvider()

# Steps of the pipeline that download, draw, simulate or print, and have no logic that a fast test could check
EXCLUDED = (
    "tasks/download.py",
    "tasks/watch.py",
    "tasks/page/",
    "tasks/figures/",
    "tasks/simulation/",
    "tasks/sources/",
    "tasks/expectations/docs.py",
    "relmap/__main__.py",
)
# Of the operators of Cosmic Ray: the changes that look like a mistake
FAMILIES = {
    "core/AddNot": "logic",
    "core/ReplaceTrueWithFalse": "logic",
    "core/ReplaceFalseWithTrue": "logic",
    "core/ReplaceAndWithOr": "logic",
    "core/ReplaceOrWithAnd": "logic",
    "core/ReplaceUnaryOperator_Delete_Not": "logic",
    "core/ReplaceUnaryOperator_Delete_Invert": "logic",
    "core/ReplaceUnaryOperator_USub_UAdd": "arithmetic",
    "core/ReplaceBreakWithContinue": "flow",
    "core/ReplaceContinueWithBreak": "flow",
    "core/ZeroIterationForLoop": "flow",
    "core/NumberReplacer": "constant",
    "core/ReplaceBinaryOperator_Add_Sub": "arithmetic",
    "core/ReplaceBinaryOperator_Sub_Add": "arithmetic",
    "core/ReplaceBinaryOperator_Mul_Div": "arithmetic",
    "core/ReplaceBinaryOperator_Div_Mul": "arithmetic",
    "core/ReplaceBinaryOperator_FloorDiv_Div": "arithmetic",
    "core/ReplaceBinaryOperator_Mod_FloorDiv": "arithmetic",
    "core/ReplaceBinaryOperator_Pow_Mul": "arithmetic",
    "core/ReplaceBinaryOperator_BitOr_BitAnd": "arithmetic",
    "core/ReplaceBinaryOperator_BitAnd_BitOr": "arithmetic",
    "core/ReplaceComparisonOperator_Lt_LtE": "comparison",
    "core/ReplaceComparisonOperator_LtE_Lt": "comparison",
    "core/ReplaceComparisonOperator_Gt_GtE": "comparison",
    "core/ReplaceComparisonOperator_GtE_Gt": "comparison",
    "core/ReplaceComparisonOperator_Lt_Gt": "comparison",
    "core/ReplaceComparisonOperator_Gt_Lt": "comparison",
    "core/ReplaceComparisonOperator_LtE_GtE": "comparison",
    "core/ReplaceComparisonOperator_GtE_LtE": "comparison",
    "core/ReplaceComparisonOperator_Eq_NotEq": "comparison",
    "core/ReplaceComparisonOperator_NotEq_Eq": "comparison",
    "core/ReplaceComparisonOperator_Is_IsNot": "comparison",
    "core/ReplaceComparisonOperator_IsNot_Is": "comparison",
} | {f"relmap/{operator.__name__}": operator.__name__ for operator in OPERATORS}

Position = tuple[int, int]


@dataclass(frozen=True)
class Span:
    """A range of the source, from the start to before the end, as (line, column)."""

    start: Position
    end: Position

    def contains(self, start: Position, end: Position) -> bool:
        """Return whether the range from `start` to `end` lies inside this one."""
        return self.start <= start and end <= self.end


@dataclass(frozen=True)
class Mutant:
    """One possible change of one file."""

    path: str
    operator: str
    occurrence: int
    start: Position
    end: Position

    def apply(self, source: str) -> str:
        """Return the source with the change made."""
        mutated = mutate_code(source, cosmic_ray.plugins.get_operator(self.operator)(), self.occurrence)
        if mutated is None:
            raise ValueError(f"{self.path}: {self.operator} has no occurrence {self.occurrence}; delete the session")
        return mutated


def package_of(path: str) -> str:
    """Return the stratum of a source file: a package of relmap, `relmap` for its other modules, or `tasks`."""
    parts = Path(path).parts
    in_package = parts[0] == "relmap" and len(parts) == 3 and parts[1] != "simulation"
    return parts[1] if in_package else parts[0]


def source_files(root: Path) -> list[str]:
    """Return the files that can be mutated, relative to `root`."""
    files = sorted(str(file.relative_to(root)) for top in ("relmap", "tasks") for file in (root / top).rglob("*.py"))
    return [file for file in files if not file.startswith(EXCLUDED)]


def source_hash(root: Path) -> str:
    """Return a hash of all files of the library and the steps."""
    digest = hashlib.sha256()
    for top in ("relmap", "tasks"):
        for file in sorted((root / top).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def find_mutants(path: str, source: str) -> list[Mutant]:
    """Find all mutants of a file that change what the program does.

    Args:
        path: Path of the file relative to the root of the project.
        source: Content of the file.

    Returns:
        The mutants outside of annotations, docstrings, decorators, assertions (also the argument `strict` of `zip`)
        and error messages. The marks `*` and `/` in the parameters of a function are not operators.
    """
    ignored = list(_ignored_spans(source))
    operations = list(_operation_spans(source))
    tree = parso.parse(source)
    nodes = list(ast_nodes(tree))
    mutants = []
    for name in FAMILIES:
        operator = cosmic_ray.plugins.get_operator(name)()
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        allowed = operations if name.startswith("core/ReplaceBinaryOperator") else None
        for occurrence, (start, end) in enumerate(positions):
            if any(span.contains(start, end) for span in ignored):
                continue
            if allowed is None or any(span.contains(start, end) for span in allowed):
                mutants.append(Mutant(path, name, occurrence, start, end))
    return mutants


def _span(node: ast.AST, lines: list[str]) -> Span:
    """Return the range of a node, with columns in characters; `ast` counts bytes."""
    start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
    end = len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode())
    return Span((node.lineno, start), (node.end_lineno, end))


def _operation_spans(source: str) -> Iterator[Span]:
    """Yield the operations with two operands."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp):
            yield _span(node, lines)


def _ignored_spans(source: str) -> Iterator[Span]:
    """Yield the parts of a file that are not mutated."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        parts = [*annotations, *getattr(node, "decorator_list", [])]
        if isinstance(node, ast.Assert):
            parts.append(node)
        if isinstance(node, ast.Raise):
            parts.extend([node.exc, node.cause])
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts.append(node)
        if isinstance(node, ast.Module):
            parts.extend(_type_aliases(node))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
            parts.extend(keyword.value for keyword in node.keywords)
        yield from (_span(part, lines) for part in parts if part is not None)


def _type_aliases(module: ast.Module) -> list[ast.stmt]:
    """Return the assignments of a module whose value is a union or a subscript of types."""
    assignments = [node for node in module.body if isinstance(node, ast.Assign)]
    return [
        node
        for node in assignments
        if isinstance(node.value, ast.Subscript)
        or (isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr))
    ]


def shares(sizes: dict[str, int], n: int) -> dict[str, int]:
    """Distribute `n` mutants over packages: half of them equally, half in proportion to the size.

    Args:
        sizes: Number of sites of each package.
        n: Number of mutants.

    Returns:
        Number of mutants of each package; the sum is `n`.
    """
    total = sum(sizes.values())
    exact = {name: n * (0.5 / len(sizes) + 0.5 * size / total) for name, size in sizes.items()}
    share = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(sizes, key=lambda name: share[name] - exact[name])
    for name in by_remainder[: n - sum(share.values())]:
        share[name] += 1
    return share


def draw_sample(root: Path, seed: int, n: int, packages: tuple[str, ...] = ()) -> list[WorkItem]:
    """Draw a stratified random sample of mutants.

    Args:
        root: Folder of the project.
        seed: Seed of the sample.
        n: Number of mutants.
        packages: Packages to draw from; all of them if empty.

    Returns:
        Work items of Cosmic Ray, in the order in which they are to be run.
    """
    generator = random.Random(seed)
    sources = {path: (root / path).read_text(encoding="utf-8") for path in source_files(root)}
    sites: dict[str, dict[tuple, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
    for path, source in sources.items():
        if packages and package_of(path) not in packages:
            continue
        for mutant in find_mutants(path, source):
            site = (path, mutant.start, mutant.end, FAMILIES[mutant.operator])
            sites[package_of(path)][site].append(mutant)
    share = shares({package: len(found) for package, found in sites.items()}, n)
    drawn: list[Mutant] = []
    for package in sorted(sites):
        places = sorted(sites[package])
        generator.shuffle(places)
        chosen: list[Mutant] = []
        for place in places:
            if len(chosen) == share[package]:
                break
            mutant = generator.choice(sites[package][place])
            if is_different_program(sources[mutant.path], mutant):
                chosen.append(mutant)
        drawn.extend(chosen)
    generator.shuffle(drawn)
    return [_work_item(number, mutant) for number, mutant in enumerate(drawn)]


def is_different_program(source: str, mutant: Mutant) -> bool:
    """Return whether the mutated source compiles, and to other code than the original."""
    mutated = mutant.apply(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _work_item(number: int, mutant: Mutant) -> WorkItem:
    spec = MutationSpec(mutant.path, mutant.operator, mutant.occurrence, mutant.start, mutant.end)
    return WorkItem.single(f"{number:04d}", spec)


def mutant_of(item: WorkItem) -> Mutant:
    """Return the mutant of a work item."""
    spec = item.mutations[0]
    return Mutant(str(spec.module_path), spec.operator_name, spec.occurrence, spec.start_pos, spec.end_pos)
