"""`vramscope completion`: what a shell needs to complete verbs and flags."""

from argparse import ArgumentParser, Namespace

from ..frame.parse import SubParsers, add_verb

SHELLS = ("bash", "zsh", "fish")
SUMMARY = "print the completion script of a shell"
EPILOG = """\
bash: vramscope completion bash > ~/.local/share/bash-completion/completions/vramscope
zsh: vramscope completion zsh > a folder on $fpath, as _vramscope
fish: vramscope completion fish > ~/.config/fish/completions/vramscope.fish"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "completion", SUMMARY, epilog=EPILOG)
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: Namespace) -> int:
    import shtab

    from ..frame.parse import build_parser

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0
