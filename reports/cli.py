"""The command line: `roofcast COMMAND`. A command's module is imported when it is called.

Exit status: 0 success; 2 something the user can mend, in one line on standard error; 130 an
interruption; 1 anything else.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from roofcast.hardware.errors import RoofcastError, unknown

INTERRUPTED = 130

COMMANDS: Mapping[str, str] = {
    "quickstart": "Measure this machine, forecast models on it and on GPUs, draw the figures.",
    "model": "What a model is made of: parameters, bytes, cache per token.",
    "device": "The catalogue of devices, one device, or the attached one.",
    "predict": "Forecast decode steps: step time, tokens/s, what bounds them, whether they fit.",
    "memory": "What a rank holds, line by line, and how much fits beside the weights.",
    "decode": "Forecast one reply from first token to last, as its cache grows.",
    "simulate": "Serve requests by continuous batching: TTFT, TPOT, throughput, goodput over time.",
    "validate": "Forecast measured serving points and say how far off the forecasts are.",
    "audit": "Audit benchmark results: floor, forecast, measured, where the time went, suspects.",
    "report": "Write a report to pass on: one HTML file, Markdown, CSV or Parquet.",
    "compare": "Devices side by side for one workload, and where one overtakes another.",
    "techniques": "What speculation, quantised storage, chunks and others cost and bring.",
    "plan": "Which deployment serves a traffic within its objectives, at what cost.",
    "sweep": "Run many simulations at once, here or on a cluster; resumes where it stopped.",
    "calibrate": "Measure this machine and fit the profile that forecasts then use.",
    "profile": "The profiles that forecasts can use.",
}
"""Every command with its line of help; `quickstart` is `commands/quickstart.py`."""

_HELP = """Forecast the decode phase of LLM inference from a calibrated roofline.

\b
Examples:
  roofcast quickstart
  roofcast predict llama-3.1-8b --device h100-sxm --batch 1,8,64 --context 1k,8k
  roofcast calibrate --quick && roofcast predict smollm2-360m --device auto
"""


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of `COMMANDS`."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; UnknownNameError names the nearest ones."""
        del ctx
        if cmd_name not in COMMANDS:
            raise unknown("command", cmd_name, COMMANDS, "`roofcast --help` lists the commands")
        module = importlib.import_module(f"roofcast.reports.commands.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in --help, written without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    name="roofcast",
    cls=LazyGroup,
    help=_HELP,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"roofcast {version('roofcast')}")
        raise typer.Exit()


@app.callback()
def _root(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Nothing to do before a command."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; every foreseen error is one line."""
    _never_fail_to_print()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = typer.main.get_command(app).main(
            args=given or ["--help"], prog_name="roofcast", standalone_mode=False
        )
        sys.stdout.flush()
    except RoofcastError as error:
        return _complain(str(error), error.exit_status)
    except TyperException as error:
        return _complain(_usage(error), 2)
    except BrokenPipeError:
        # The reader has seen enough (`roofcast device | head`). Python would complain once more
        # when it closes standard output, so give it another.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    if status == INTERRUPTED:
        return _complain("interrupted; files are complete or absent, never partial", INTERRUPTED)
    return status if isinstance(status, int) else 0


def _complain(message: str, status: int) -> int:
    typer.echo(f"roofcast: {message}", err=True)
    return status


def _usage(error: TyperException) -> str:
    """What is wrong with the options, in the style of all other errors."""
    context = getattr(error, "ctx", None)
    given = getattr(error, "option_name", None)
    message = error.format_message().rstrip(".")
    if given and message.startswith("No such option") and context is not None:
        return str(unknown("option", given, _options(context), _where_to_look(context)))
    message = message[:1].lower() + message[1:]
    return f"{message}; {_where_to_look(context)}" if context is not None else message


def _options(context: Any) -> list[str]:
    return [name for parameter in context.command.get_params(context) for name in parameter.opts]


def _where_to_look(context: Any) -> str:
    return f"`{context.command_path} --help` lists the options"


def _never_fail_to_print() -> None:
    """Letters that a terminal's encoding lacks become question marks rather than tracebacks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
