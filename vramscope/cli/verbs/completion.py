"""`vramscope completion`: what a shell needs to complete verbs and flags."""

from argparse import ArgumentParser, Namespace

from ..frame.registry import SubParsers

SHELLS = ("bash", "zsh", "fish")
SUMMARY = "print the completion script of a shell"
EPILOG = """\
bash: vramscope completion bash > ~/.local/share/bash-completion/completions/vramscope
zsh: vramscope completion zsh > a folder on $fpath, as _vramscope
fish: vramscope completion fish > ~/.config/fish/completions/vramscope.fish"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    from argparse import RawDescriptionHelpFormatter

    parser = subparsers.add_parser(
        "completion",
        help=SUMMARY,
        description=f"{SUMMARY[0].upper()}{SUMMARY[1:]}.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: Namespace) -> int:
    """Print the script."""
    import shtab

    from ..parser import build_parser

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0
