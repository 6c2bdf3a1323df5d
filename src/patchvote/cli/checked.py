"""Words of the command line that nobody can mean, found before a command sees them.

An empty word is what a shell makes of a variable that is not set. As a path it would be the current folder, so no
command takes one. A photo whose name begins with a dash looks like an option; the error says how to name it.
"""

from __future__ import annotations

import os
from typing import Any, cast

import typer
from typer.core import TyperCommand


class Checked(TyperCommand):
    """A command that takes no empty words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words as any command does, once none of them is empty."""
        if ctx.resilient_parsing:  # a shell asks for completions
            return super().parse_args(ctx, args)
        words = list(args)
        try:
            if words or not self.no_args_is_help:
                self._refuse_empty(ctx, words)
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "message"):
                error.message += _hint(words)
            raise

    def _refuse_empty(self, ctx: Any, words: list[str]) -> None:
        given, _, _ = self.make_parser(ctx).parse_args(args=list(words))
        for param in self.get_params(ctx):
            value = given.get(str(param.name))
            if "" in (value if isinstance(value, (list, tuple)) else [value]):
                raise typer.BadParameter("it is empty.", ctx=ctx, param=cast(Any, param))


def _hint(words: list[str]) -> str:
    """Say how to name a file that was taken for an option."""
    names = words[: words.index("--")] if "--" in words else words
    files = [word for word in names if word.startswith("-") and os.path.isfile(word)]  # noqa: PTH113 - may be no name
    return f" If {files[0]} is a file, write ./{files[0]}." if files else ""
