from pathlib import Path
from typing import Annotated, Literal

import click

from proreus.process.cli.documented_options import documented_options


@click.command("try")
@documented_options
def command(
    *,
    count: Annotated[int, click.IntRange(1)] = 2,
    from_: tuple[Path, ...] = (),
    pair: tuple[str, str] | None = None,
    output: Literal["table", "json"] = "table",
    quiet: bool = False,
    watch: bool = True,
) -> tuple[object, ...]:
    """Try options.

    A line may begin with
    --output without being an option.

    --count
        Number of tries,
        one or more. [default]
    --from FILE
        File to read; may be repeated.
    --pair A B
        Two names.
    -o, --output
        Form. [default]
    --quiet
        Say nothing.
    --watch/--no-watch
        Whether to watch.
    """
    return count, from_, pair, output, quiet, watch


def call(*arguments: str) -> tuple[object, ...]:
    return command.main(list(arguments), standalone_mode=False)


def test_options_have_the_types_and_defaults_of_the_parameters() -> None:
    assert call() == (2, (), None, "table", False, True)
    given = ("--count", "3", "--from", "a", "--from", "b", "--pair", "x", "y", "-o", "json")
    expected = (3, (Path("a"), Path("b")), ("x", "y"), "json", True, False)
    assert call(*given, "--quiet", "--no-watch") == expected


def test_help_has_the_paragraphs_of_the_docstring() -> None:
    text = command.get_help(click.Context(command, info_name="try"))
    assert "--output without being an option." in text
    assert "--count INTEGER RANGE" in text
    assert "Number of tries, one or more. [default: 2; x>=1]" in " ".join(text.split())
    assert "--from FILE" in text
    assert "--pair A B" in text
    assert "-o, --output [table|json]" in text
