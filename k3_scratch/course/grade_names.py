"""Marking: which names a cell of a notebook defines, and which it takes from other cells."""

import ast
import re
import symtable


def python(source):
    """Without lines that only IPython understands, should they stand in the way."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join("" if re.match(r"\s*[%!]|.*\?\s*$", line) else line for line in source.split("\n"))
    return source


def parsed(source):
    """The tree of a cell; an empty one when it is no Python."""
    try:
        return ast.parse(python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def bound(tree):
    """Names that a cell defines, outside its functions."""
    names, todo = set(), list(ast.iter_child_nodes(tree))
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            todo += ast.iter_child_nodes(node)
    return names


def used(tree):
    """Names that a cell or a statement takes from the notebook, in its functions too; their own variables not."""
    try:
        todo = [symtable.symtable(ast.unparse(tree), "cell", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names, outermost = set(), todo[0]
    while todo:
        table = todo.pop()
        names |= {symbol.get_name() for symbol in table.get_symbols()
                  if symbol.is_referenced() and (table is outermost or symbol.is_global())}
        todo += table.get_children()
    return names | {node.target.id for node in ast.walk(tree)
                    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}
