"""CEL: compile and evaluate expressions.

    program = compile("self.replicas <= self.most", ("self",))
    program.evaluate({"self": {"replicas": 1, "most": 3}})     # True

The evaluator is Google's `cel-expr-python`, an optional dependency: without it each expression is
refused with a message that names the command to install it. Kubernetes' CEL functions are in
`functions`. Unknown functions are refused when the object with the expression is created.

Note: variables have no declared types. A comparison of a number with a string compiles, and fails
when it is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from hekla.apiserver.cel import functions

MAX_EXPRESSION: Final = 16 * 1024
INSTALL: Final = "pip install 'hekla[cel]'"
_KEPT = 4096

try:
    from cel_expr_python import cel as _cel
    from cel_expr_python.ext import (
        ext_bindings,
        ext_encoders,
        ext_math,
        ext_optional,
        ext_strings,
    )
except ImportError:
    _cel = None


class Refused(Exception):
    """The expression does not compile."""


class Failed(Exception):
    """The evaluation failed."""


class Program:
    """A compiled expression; reusable."""

    __slots__ = ("_compiled", "expression", "yields")

    def __init__(self, expression: str, compiled: Any) -> None:
        self.expression = expression
        self._compiled = compiled
        self.yields: str = compiled.return_type().name()

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return its value for these variables as plain Python; raise Failed on error."""
        try:
            result = self._compiled.eval(data=values)
            if result.type() == _cel.Type.ERROR:
                raise Failed(_without_code(result.plain_value()))
            return result.plain_value()
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise Failed(_without_code(str(error))) from error

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return its value, which must be a boolean."""
        result = self.evaluate(values)
        if not isinstance(result, bool):
            raise Failed(f"expression evaluated to {result!r}, not to true or false")
        return result


def is_available() -> bool:
    """Return whether the evaluator is installed."""
    return _cel is not None


def compile(expression: str, variables: Sequence[str], *, yields: str = "BOOL") -> Program:
    """Compile an expression with these variables; `result` is BOOL, STRING or "" for any type."""
    if not expression.strip():
        raise Refused("the expression is empty")
    if len(expression) > MAX_EXPRESSION:
        raise Refused(f"the expression is longer than {MAX_EXPRESSION} characters")
    if _cel is None:
        raise Refused(f"this server has no CEL evaluator; install it with: {INSTALL}")
    program = _compiled(expression, tuple(variables))
    if yields and program.yields not in (yields, "DYN"):
        wanted = {"BOOL": "bool", "STRING": "string"}[yields]
        raise Refused(f"must evaluate to {wanted}, not to {program.yields.lower()}")
    return program


@lru_cache(maxsize=_KEPT)
def _compiled(expression: str, variables: tuple[str, ...]) -> Program:
    try:
        return Program(expression, _environment(variables).compile(expression))
    except (RuntimeError, TypeError, ValueError) as error:
        raise Refused(f"compilation failed: {_without_code(str(error))}") from error


@lru_cache(maxsize=32)
def _environment(variables: tuple[str, ...]) -> Any:
    return _cel.NewEnv(
        variables={name: _cel.Type.DYN for name in variables},
        extensions=[
            ext_strings.ExtStrings(),
            ext_optional.ExtOptional(),
            ext_math.ExtMath(),
            ext_bindings.ExtBindings(),
            ext_encoders.ExtEncoders(),
            _cel.CelExtension("kubernetes", _declared()),
        ],
    )


def _declared() -> list[Any]:
    """Return Kubernetes' functions as extensions of the evaluator."""
    types = {
        "bool": _cel.Type.BOOL,
        "double": _cel.Type.DOUBLE,
        "dyn": _cel.Type.DYN,
        "int": _cel.Type.INT,
        "list": _cel.Type.List(_cel.Type.DYN),
        "string": _cel.Type.STRING,
        "strings": _cel.Type.List(_cel.Type.STRING),
    }
    by_name: dict[str, list[Any]] = {}
    for name, is_member, parameters, result, implementation in functions.TABLE:
        identifier = "_".join(["k8s", name.replace(".", "_"), *parameters])
        by_name.setdefault(name, []).append(
            _cel.Overload(
                identifier,
                types[result],
                [types[parameter] for parameter in parameters],
                is_member,
                implementation,
            )
        )
    return [_cel.FunctionDecl(name, overloads) for name, overloads in by_name.items()]


def _without_code(text: str) -> str:
    """Return the evaluator's message without its status code, on one line."""
    text = text.split(" [", 1)[0] if text.endswith("]") and " [" in text[-40:] else text
    code, _, rest = text.partition(": ")
    if code.isupper():
        text = rest
    return " ".join(line.strip() for line in text.splitlines())[:1000]
