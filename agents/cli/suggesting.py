"""Groups of commands that say which command may have been meant."""

from __future__ import annotations

from difflib import get_close_matches

import click


class SuggestingGroup(click.Group):
    """A group that answers an unknown command with the nearest one that it has."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with. Raises UsageError where there is none."""
        known = self.list_commands(ctx)
        name = args[0]
        if name not in known and not name.startswith("-"):
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            ctx.fail(f"no such command {name!r}: {hint}")
        return super().resolve_command(ctx, args)
