"""`vramscope completion`: the script by which a shell completes verbs and flags."""

from argparse import ArgumentParser, Namespace

from ..frame.parse import SubParsers, add_verb

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = "Print the script by which a shell completes verbs and flags of vramscope."
EXAMPLES = """\
vramscope completion bash \\
    > ~/.local/share/bash-completion/completions/vramscope
vramscope completion zsh > ~/.zfunc/_vramscope    # a folder on $fpath
vramscope completion fish > ~/.config/fish/completions/vramscope.fish"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "completion", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(arguments: Namespace) -> int:
    import shtab

    from ..frame.parse import build_parser

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0
