"""Refuse arguments that can only be mistakes, before a command sees them.

An empty argument is what a shell makes of an unset variable in quotes. As a path it would mean the current folder, so
no command accepts one. A photo whose name begins with a dash looks like an option; the error says how to write it.
A value that an option refuses is repeated in the error, since the parser's own sentence leaves it out.
"""

from __future__ import annotations

import os
import re
from typing import Any, cast

import typer
from typer.core import TyperCommand

_PREFIX = "Value error, "  # how the parser begins the sentence of a type of ours; it says nothing to a user
_SUFFIX = ", unable to parse"  # how it repeats that a number is none
_SHOWN = 100  # characters of a value in an error; longer ones are pasted by accident


class Checked(TyperCommand):
    """A command that refuses empty arguments, and whose help has plain names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as any command does, after checking that none is empty."""
        if ctx.resilient_parsing:  # a shell asks for completions
            return super().parse_args(ctx, args)
        arguments = list(args)
        try:
            if arguments or not self.no_args_is_help:
                self._refuse_empty(ctx, arguments)
            return super().parse_args(ctx, args)
        except Exception as error:
            if isinstance(error, typer.BadParameter):
                error.message = self._with_value(ctx, error, arguments)
            if hasattr(error, "message"):
                error.message += _hint(arguments)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command in the usage, without the braces that newer parsers put around them."""
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments by their names alone, since newer parsers add types of Python; then the options."""
        records = [(param.param_type_name, param.get_help_record(ctx)) for param in self.get_params(ctx)]
        arguments = [record for kind, record in records if record is not None and kind == "argument"]
        options = [record for kind, record in records if record is not None and kind != "argument"]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(name.partition(" <")[0], text) for name, text in arguments])
        if options:
            with formatter.section("Options"):
                formatter.write_dl(options)

    def _with_value(self, ctx: Any, error: typer.BadParameter, arguments: list[str]) -> str:
        """Return the message of an error, with the value that was refused unless it has it."""
        message = error.message.removeprefix(_PREFIX).partition(_SUFFIX)[0]
        try:
            given, _, _ = self.make_parser(ctx).parse_args(args=list(arguments))
        except Exception:  # the arguments could not be split: then there is no value to show
            return message
        value = given.get(str(getattr(error.param, "name", None)))
        if not isinstance(value, str) or not value or repr(value) in message:
            return message
        return f"{message.rstrip('.')}, got {value[:_SHOWN]!r}."

    def _refuse_empty(self, ctx: Any, arguments: list[str]) -> None:
        given, _, _ = self.make_parser(ctx).parse_args(args=list(arguments))
        for param in self.get_params(ctx):
            value = given.get(str(param.name))
            if "" in (value if isinstance(value, (list, tuple)) else [value]):
                raise typer.BadParameter("it is empty.", ctx=ctx, param=cast(Any, param))


def _hint(arguments: list[str]) -> str:
    """Return a hint how to write a file name that was taken for an option."""
    names = arguments[: arguments.index("--")] if "--" in arguments else arguments
    files = [argument for argument in names if argument.startswith("-") and os.path.isfile(argument)]  # noqa: PTH113
    return f" If {files[0]} is a file, write ./{files[0]}." if files else ""
