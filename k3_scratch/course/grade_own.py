"""Marking: is an answer the student's own work, or does it call the package's function or go a way round?

Found are the ordinary ways, by reading. What a text cannot show, `grade` sees while the answer runs.
"""

import ast

from k3_scratch import course
from k3_scratch.course.grade_names import bound, parsed, used

# Parts of the package, and files of reference/, that any answer may use; all else must be named by the exercise.
FREE = {"config", "shapes", "files", "tasks", "plots"}
HELPERS = {"sigmoid", "silu", "softmax", "gelu", "unit_keys", "rms_norm", "memory"}
# Ways round that no answer needs: an answer computes from its arguments. Python's own functions count by their plain
# name alone (`model.eval()` and `re.compile()` are others), modules also where another module leads to them.
MODULES_ROUND = {"importlib", "inspect", "gc", "ctypes", "builtins", "pickle", "marshal", "subprocess"}
PLAIN_ROUND = MODULES_ROUND | {"exec", "eval", "compile", "open", "globals"}
INSIDES = {"__import__", "__builtins__", "__globals__", "__code__", "__closure__", "__dict__", "__subclasses__",
           "__wrapped__", "__loader__", "__spec__", "setprofile", "settrace", "_getframe", "f_globals", "f_back"}


def is_given(origin, asked):
    """May the answer use this part of the package?   origin  "reference.delta_rule.delta_step" (without k3_scratch)"""
    parts = origin.split(".")
    if parts[0] == "course":
        return len(parts) == 2 and parts[1] in course.__all__
    if asked.is_value:
        return parts[0] != ""
    if parts[-1] == asked.solution:
        return False
    helper = parts[0] == "reference" and parts[1:2] and parts[1] in HELPERS
    made = {part for part in parts if part[:1].isupper()}                # a class, of which a method is called
    return bool(parts[0] in FREE or helper or asked.given & {parts[-1], *made})


def foreign(sources, imports, asked):
    """Sentences on what an answer takes that is not the student's own: the package's functions, ways round.   -> [str]

    Looked at are the statements that the answer is made of, not what else stands in its cell (such as a comparison
    with the package's function).
    """
    everything = [node for text in (imports, *sources) for node in parsed(text).body]
    statements, python = _behind(everything, asked.name), PLAIN_ROUND - _functions(everything)
    origins, found = {}, []
    for node in (inner for statement in statements for inner in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom):
            origins |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            origins |= {(alias.asname or alias.name).split(".")[0]: alias.name if alias.asname
                        else alias.name.split(".")[0] for alias in node.names}
    for statement in statements:
        if not isinstance(statement, (ast.Import, ast.ImportFrom)):
            found += _taken(statement, origins, asked, python)
    return sorted(set(found))


def _behind(statements, name):
    """The statements that define a name, and those that define what they use."""
    chosen, todo = [], [name]
    for wanted in todo:
        for statement in statements:
            if statement not in chosen and wanted in bound(ast.Module([statement], [])):
                chosen.append(statement)
                todo += sorted(used(ast.Module([statement], [])) - {*todo})
    return chosen


def _functions(statements):
    """Names of the functions and classes that statements define for good."""
    deleted = {node.id for statement in statements for node in ast.walk(statement)
               if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)}
    return {node.name for node in statements if isinstance(node, (ast.FunctionDef, ast.ClassDef))} - deleted


def _taken(statement, origins, asked, python):
    """-> sentences   python  plain names that are a way round, where they are Python's and no variable of the answer"""
    docstrings = {id(node.value) for node in ast.walk(statement) if isinstance(node, ast.Expr)}
    outer = used(ast.Module([statement], [])) | {
        (alias.asname or alias.name).split(".")[0] for node in ast.walk(statement)
        if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    bases = {id(node.value): node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
    called = {id(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    for node in ast.walk(statement):
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        plain = isinstance(node, ast.Name) and word in outer
        origin = origins.get(word, "") if plain else ""
        if origin.split(".")[0] == "k3_scratch":
            whole = ".".join([origin, *([bases[id(node)]] if id(node) in bases else [])]).partition(".")[2]
            if not is_given(whole, asked):
                yield f"it uses {whole.rpartition('.')[2] or 'k3_scratch'} of the package"
        elif word in INSIDES or origin.split(".")[0] in MODULES_ROUND or (plain and not origin and word in python) or (
                isinstance(node, ast.Attribute) and word in MODULES_ROUND and id(node) not in called):
            yield f"it uses {word}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "k3_scratch" in node.value \
                and id(node) not in docstrings:
            yield "it names the package in a text"
