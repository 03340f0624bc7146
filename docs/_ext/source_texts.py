"""Texts in source code: literals, f-strings and sums of them."""

import ast


def text_of(node: ast.expr) -> str | None:
    """Return the text of a literal, an f-string or a sum of them; None for other expressions.

    Args:
        node: An expression.

    Returns:
        The text. Values that are filled in show as `…`, and so does a part of a sum that is another expression.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = text_of(node.left)
        right = text_of(node.right)
        if left is None and right is None:
            return None
        return (left or "…") + (right or "…")
    return None


def called_name(node: ast.Call) -> str:
    """Return the name of the called function or method."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
