"""Masks secrets in variables and commands, by names that people give them and by forms of known tokens."""

import re
from functools import lru_cache

MASKED = "… (masked)"
# The same in a command: one word, so that a relay may mask what an agent has masked already.
MASKED_WORD = "(masked)"

# Parts of names, and ends of names, whose values nobody should see on a shared screen.
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|PRIVATE|COOKIE|BEARER|SIGNATURE|DSN|WEBHOOK|(^|_)(AUTH|PWD|PIN)$",
    re.IGNORECASE,
)
# Options that have such a part and no secret: --tokenizer, --max-tokens, --bypass-check, --key-value-heads.
_HARMLESS_OPTION = re.compile(
    r"TOKENIZ|TOKENS|TOKEN_(ID|LEN|SIZE|COUNT|LIMIT|BUDGET|BATCH)|(NUM|MAX|MIN|PER)_TOKEN|(BY|COM|EN)PASS"
    r"|PASSES|KEY_(VALUE|DIM|SIZE|HEADS|FRAME|CACHE)|KEYPOINT|MONKEY|HOTKEY|PRIVATE_USE",
    re.IGNORECASE,
)
# The working folder of a shell.
_HARMLESS = frozenset({"PWD", "OLDPWD"})
# A password in an address: `https://user:password@host`.
_PASSWORD_IN_ADDRESS = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")
# Tokens by their beginnings: Hugging Face, OpenAI and Anthropic, GitHub, GitLab, Slack, AWS, Google, JWT.
_KNOWN_TOKEN = re.compile(
    r"\b(hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abps]-|AKIA|ya29\.|AIza|eyJ)[\w.\-]{12,}"
)
# After these words of a header comes a secret.
_BEARER = re.compile(r"\b(bearer|basic)\s+\S+", re.IGNORECASE)
# `--name=value`, `name=value`, and `+name=value` of Hydra.
_ASSIGNMENT = re.compile(r"([-+]{0,2}[A-Za-z_][\w.\-]*)=(.*)", re.DOTALL)
# A part of an address's query: `?name=value&name=value`.
_QUERY = re.compile(r"([?&])([A-Za-z_][\w.\-]*)=([^&\s#]+)")


def mask_variable(name: str, value: str) -> str:
    """Return a value, or that it is masked because of its name; passwords in addresses are masked too."""
    if value and name not in _HARMLESS and _SECRET_NAME.search(name):
        return MASKED
    return _PASSWORD_IN_ADDRESS.sub(rf"\1{MASKED}@", value)


@lru_cache(maxsize=1024)  # of every process, at every sample
def mask_command(command: str) -> str:
    """Return a command line with what looks like a secret masked.

    Values of options and variables (`--api-key X`, `--password=X`, `TOKEN=X`) by their names, passwords in
    addresses, and tokens by their known beginnings. What no name and no form gives away stays.
    """
    words: list[str] = []
    is_secret = False
    for word in command.split(" "):
        assigned = _ASSIGNMENT.fullmatch(word)
        if not word:
            words.append(word)
        elif is_secret and not word.startswith("-"):
            words.append(MASKED_WORD)
            is_secret = False
        elif assigned is not None and _is_secret_option(assigned[1]):
            words.append(f"{assigned[1]}={MASKED_WORD}")
            is_secret = False
        else:
            words.append(word)
            is_secret = word.startswith("-") and assigned is None and _is_secret_option(word)
    text = _PASSWORD_IN_ADDRESS.sub(rf"\1{MASKED_WORD}@", " ".join(words))
    text = _QUERY.sub(_mask_query, text)
    return _BEARER.sub(rf"\1 {MASKED_WORD}", _KNOWN_TOKEN.sub(MASKED_WORD, text))


def _mask_query(part: re.Match[str]) -> str:
    begin, name, value = part.groups()
    return f"{begin}{name}={MASKED_WORD if _is_secret_option(name) else value}"


def _is_secret_option(name: str) -> bool:
    plain = name.lstrip("-+").replace("-", "_").replace(".", "_")
    return bool(_SECRET_NAME.search(plain)) and not _HARMLESS_OPTION.search(plain)


def name_program(command: str) -> str:
    """Return the program of a command line without its folder, and a mark where it had arguments."""
    program, blank, _ = command.strip().partition(" ")
    name = program.rpartition("/")[2] or program
    return f"{name} …" if blank else name
