"""Mutation operators that Cosmic Ray does not have: arguments, operands, statements, conditions and names.

Cosmic Ray changes single tokens. The mistakes that people make more often are larger: a swapped argument, a weight that
is not passed on, a check that is missing. The operators here make those changes. Each has examples, which a test runs.
"""

from abc import abstractmethod
from collections.abc import Iterator

from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import Name
from parso.tree import NodeOrLeaf

Positions = Iterator[tuple[tuple[int, int], tuple[int, int]]]

# Calls in which a changed argument raises an error at once, or changes a message only
UNINTERESTING_CALLS = frozenset(
    {"isinstance", "issubclass", "len", "range", "enumerate", "zip", "print", "getattr", "hasattr", "Field", "field"}
)
SIMILAR_NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "argmin": "argmax",
    "argmax": "argmin",
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
    "sum": "mean",
    "mean": "sum",
    "head": "tail",
    "tail": "head",
    "zeros": "ones",
    "ones": "zeros",
    "first": "last",
    "last": "first",
    "sample_weight": "None",
    "weight": "None",
    "weights": "None",
    "groups": "None",
    "group": "None",
}
# Functions whose result does not depend on the order of their arguments
SYMMETRIC_CALLS = frozenset({"min", "max", "minimum", "maximum", "min_horizontal", "max_horizontal", "array_equal"})
SIMILAR_STRINGS = {'"left"': '"right"', '"right"': '"left"'}
UNARY_FUNCTIONS = frozenset(
    {"abs", "sorted", "reversed", "set", "sqrt", "log", "exp", "log1p", "expm1", "expit", "logit", "unique", "sort"}
)
NEVER_RAISED = "StopAsyncIteration"  # in code without asynchronous iterators
OPERAND_LISTS = frozenset({"arith_expr", "term", "and_test", "or_test", "expr", "and_expr"})
NON_COMMUTATIVE = frozenset({"-", "/", "//", "%", "@", "**"})


def replacement(node: NodeOrLeaf, code: str) -> Name:
    """Return a leaf that stands for `node` in the syntax tree and prints as `code`."""
    return Name(code, node.start_pos, prefix=node.get_first_leaf().prefix)


def code_of(node: NodeOrLeaf) -> str:
    """Return the source code of a node without the whitespace and comments before it."""
    return node.get_code(include_prefix=False)


def value_of(node: NodeOrLeaf) -> str:
    """Return the text of a leaf, or an empty string for other nodes."""
    return getattr(node, "value", "")


def called_name(trailer: NodeOrLeaf) -> str:
    """Return the last name before the parenthesis of a call."""
    return value_of(trailer.get_previous_leaf())


def call_arguments(node: NodeOrLeaf) -> list[NodeOrLeaf]:
    """Return the arguments of a call, or an empty list where `node` is not the parenthesis of a call."""
    if node.type != "trailer" or value_of(node.children[0]) != "(" or called_name(node) in UNINTERESTING_CALLS:
        return []
    inner = node.children[1:-1]
    if inner and inner[0].type == "arglist":
        inner = inner[0].children
    return [argument for argument in inner if value_of(argument) != ","]


def is_keyword_argument(argument: NodeOrLeaf) -> bool:
    """Return whether an argument has the form `name=value`."""
    return argument.type == "argument" and value_of(argument.children[1]) == "="


def is_augmented(statement: NodeOrLeaf) -> bool:
    """Return whether a statement has the form `x += y`."""
    return value_of(statement.children[1]) not in {"", "="}


class NodeOperator(Operator):
    """An operator that replaces a node by one of several pieces of code."""

    @classmethod
    @abstractmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the code of each mutation of `node`; an empty list where the operator does not apply."""

    def mutation_positions(self, node: NodeOrLeaf) -> Positions:
        """Yield the start and end of `node` once for each mutation."""
        for _ in self.variants(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        """Return the replacement number `index` of `node`."""
        return replacement(node, self.variants(node)[index])


class RemoveKeywordArgument(NodeOperator):
    """Remove an argument that is passed by keyword."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the argument list once without each keyword argument."""
        arguments = call_arguments(node)
        codes = []
        for removed in arguments:
            if is_keyword_argument(removed):
                others = [code_of(argument) for argument in arguments if argument is not removed]
                codes.append(f"({', '.join(others)})")
        return codes

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("f(a, b=c)", "f(a)"), Example("f(a=b, c=d)", "f(a=b)", occurrence=1))


class ReplaceArgumentWithNone(NodeOperator):
    """Pass None instead of a variable, as if the caller had not passed it on."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return `None` for an argument that is a name or an attribute and not the first argument of its call."""
        call = node.parent if node.parent is None or node.parent.type == "trailer" else node.parent.parent
        if call is None or node.type not in {"name", "atom_expr", "argument"}:
            return []
        if not any(argument is node for argument in call_arguments(call)[1:]):
            return []
        if node.type != "argument":
            return ["None"]
        if is_keyword_argument(node) and node.children[2].type in {"name", "atom_expr"}:
            return [f"{code_of(node.children[0])}=None"]
        return []

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("f(a, b, 1)", "f(a, None, 1)"), Example("f(a, b=c.d)", "f(a, b=None)"))


class SwapArguments(NodeOperator):
    """Swap two adjacent positional arguments."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the argument list once with each pair swapped."""
        arguments = call_arguments(node)
        if arguments and called_name(node) in SYMMETRIC_CALLS:
            return []
        codes = [code_of(argument) for argument in arguments]
        swapped = []
        for first in range(len(arguments) - 1):
            pair = arguments[first : first + 2]
            if any(argument.type == "argument" for argument in pair) or codes[first] == codes[first + 1]:
                continue
            order = [*codes[:first], codes[first + 1], codes[first], *codes[first + 2 :]]
            swapped.append(f"({', '.join(order)})")
        return swapped

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("f(a, b)", "f(b, a)"), Example("f(a, b, c, d=e)", "f(a, c, b, d=e)", occurrence=1))


class SwapOperands(NodeOperator):
    """Swap the operands of subtraction, division, power and matrix product."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the expression with its two operands swapped."""
        if node.type not in {"arith_expr", "term", "power"} or len(node.children) != 3:
            return []
        left, sign, right = node.children
        if value_of(sign) not in NON_COMMUTATIVE:
            return []
        return [f"({code_of(right)}) {value_of(sign)} ({code_of(left)})"]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("a - b", "(b) - (a)"), Example("a ** b", "(b) ** (a)"))


class RemoveOperand(NodeOperator):
    """Remove one operand of a sum, a product or a condition, with its operator."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the expression once without each operand."""
        if node.type not in OPERAND_LISTS:
            return []
        codes = []
        for index in range(0, len(node.children), 2):
            start = max(index - 1, 0)
            rest = [*node.children[:start], *node.children[start + 2 :]]
            codes.append(" ".join(code_of(child) for child in rest))
        return codes

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("a * b", "b"), Example("a and b and c", "a and c", occurrence=1))


class RemoveStatement(NodeOperator):
    """Remove a call, an assignment to an element, an error, or a check."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return `pass` for a statement that can be removed."""
        if node.type == "if_stmt" and len(node.children) == 4:
            return [] if code_of(node.children[1]) == "TYPE_CHECKING" else ["pass\n"]
        if node.type != "simple_stmt":
            return []
        statement = node.children[0]
        is_call = statement.type == "atom_expr" and value_of(statement.get_last_leaf()) == ")"
        is_assignment = statement.type == "expr_stmt" and (
            is_augmented(statement) or statement.children[0].type == "atom_expr"
        )
        return ["pass\n"] if is_call or is_assignment or statement.type == "raise_stmt" else []

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (
            Example("f(a)\n", "pass\n"),
            Example("a[b] = c\n", "pass\n"),
            Example("if a:\n    raise b\nc\n", "pass\nc\n"),
        )


class ChooseBranch(NodeOperator):
    """Always take one branch of a conditional expression."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return each branch of `a if b else c`."""
        if node.type not in {"test", "ternary"} or len(node.children) != 5:
            return []
        return [code_of(node.children[0]), code_of(node.children[4])]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("a if b else c", "a"), Example("a if b else c", "c", occurrence=1))


class RemoveFilter(NodeOperator):
    """Remove the condition of a comprehension."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return nothing in place of `if a`."""
        return [""] if node.type == "comp_if" and len(node.children) == 2 else []

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("[a for a in b if a]", "[a for a in b ]"),)


class ReplaceMembership(NodeOperator):
    """Replace `in` with `not in` and the reverse."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the opposite operator."""
        if node.parent is None or node.parent.type != "comparison":
            return []
        if node.type == "comp_op" and code_of(node).split() == ["not", "in"]:
            return ["in"]
        return ["not in"] if value_of(node) == "in" else []

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("a in b", "a not in b"), Example("a not in b", "a in b"))


class ReplaceSimilarName(NodeOperator):
    """Replace a function or a side with a similar one, and weights and groups that are passed with None."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the similar name."""
        if node.type == "string":
            is_side = node.parent.type == "argument" and value_of(node.parent.children[0]) == "side"
            return [SIMILAR_STRINGS[node.value]] if is_side and node.value in SIMILAR_STRINGS else []
        if node.type != "name" or node.parent is None or node.parent.type in {"param", "funcdef", "import_from"}:
            return []
        if node.parent.type == "argument" and node.parent.children[0] is node:
            return []
        similar = SIMILAR_NAMES.get(node.value)
        if similar is None:
            return []
        is_function = node.parent.type in {"trailer", "atom_expr"}
        if is_function != (similar != "None"):
            return []
        is_target = node.parent.type in {"expr_stmt", "annassign"} and node.parent.children[0] is node
        return [] if is_target or node.is_definition() else [similar]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (
            Example("max(a)", "min(a)"),
            Example("a.sum()", "a.mean()"),
            Example('f(a, side="left")', 'f(a, side="right")'),
        )


class RemoveFunction(NodeOperator):
    """Use the argument of a function of one argument in place of its result."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the argument of a call such as `np.log(a)`."""
        if node.type != "atom_expr" or node.children[-1].type != "trailer":
            return []
        arguments = call_arguments(node.children[-1])
        if (
            len(arguments) != 1
            or arguments[0].type == "argument"
            or called_name(node.children[-1]) not in UNARY_FUNCTIONS
        ):
            return []
        return [f"({code_of(arguments[0])})"]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples."""
        return (Example("np.log(a)", "(a)"), Example("sorted(a)", "(a)"))


class ReplaceException(NodeOperator):
    """Catch an exception that is never raised in place of one that is caught; Cosmic Ray replaces plain names only."""

    @classmethod
    def variants(cls, node: NodeOrLeaf) -> list[str]:
        """Return the exceptions of an `except` clause, once without each of them."""
        clause = node.parent
        if clause is None or clause.type != "except_clause" or node is not clause.children[1]:
            return []
        is_tuple = node.type == "atom" and code_of(node.children[1]).count(",") > 0
        caught = node.children[1].children[::2] if is_tuple else [node]
        codes = []
        for replaced in caught:
            exceptions = [NEVER_RAISED if exception is replaced else code_of(exception) for exception in caught]
            codes.append(f"({', '.join(exceptions)})" if is_tuple else exceptions[0])
        return codes

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return mutations with their results."""
        return (
            Example("try: f()\nexcept OSError: pass", "try: f()\nexcept StopAsyncIteration: pass"),
            Example("try: f()\nexcept a.Error as e: pass", "try: f()\nexcept StopAsyncIteration as e: pass"),
            Example(
                "try: f()\nexcept (a.Error, OSError): pass",
                "try: f()\nexcept (a.Error, StopAsyncIteration): pass",
                occurrence=1,
            ),
        )


OPERATORS = (
    RemoveKeywordArgument,
    ReplaceArgumentWithNone,
    SwapArguments,
    SwapOperands,
    RemoveOperand,
    RemoveStatement,
    ChooseBranch,
    RemoveFilter,
    ReplaceMembership,
    ReplaceSimilarName,
    RemoveFunction,
    ReplaceException,
)


class OperatorProvider:
    """The operators of this module, as Cosmic Ray looks them up."""

    def __init__(self) -> None:
        self._operators = {operator.__name__: operator for operator in OPERATORS}

    def __iter__(self) -> Iterator[str]:
        return iter(self._operators)

    def __getitem__(self, name: str) -> type[Operator]:
        return self._operators[name]
