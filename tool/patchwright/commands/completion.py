"""``patchwright completion``: the script by which a shell completes commands and options."""

from __future__ import annotations

import click

from patchwright.errors import PatchwrightError

VARIABLE = "_PATCHWRIGHT_COMPLETE"


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script that lets SHELL complete commands and options.

    \b
    bash: eval "$(patchwright completion bash)" in ~/.bashrc
    zsh:  eval "$(patchwright completion zsh)" in ~/.zshrc
    fish: patchwright completion fish > ~/.config/fish/completions/patchwright.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise PatchwrightError(f"click knows no completion for {shell}")
    complete = found(ctx.find_root().command, {}, "patchwright", VARIABLE)
    # The bash class starts a bash to ask for its version first: not to print a text.
    click.echo(ShellComplete.source(complete))
    return 0
