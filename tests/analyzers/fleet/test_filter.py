"""What is typed to choose devices: every term is known by its words, and nothing unmeasured is matched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.fleet.model import KEYS, FleetDevice, compile_filter
from vramscope.engine.errors import UsageError
from vramscope.engine.units import GIB

DEVICE = FleetDevice(
    "gpu12",
    "GPU-1",
    "3",
    "GPU 3",
    "NVIDIA H100",
    used_bytes=76 * GIB,
    total_bytes=80 * GIB,
    level="high",
    oom_in_s=76.0,
    probability=0.8,
    kinds=("leak", "oom"),
    jobs=("gpt-485b",),
    rank=21,
    tp=5,
    pp=0,
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node:gpu1* used>90% job:gpt-*",
        "node:n2,GPU12 gpu:3 model:*h100*",
        "risk>=medium risk:HIGH",
        "used>=76GiB free<5GiB free<=5%",
        "oom<2m probability>50%",
        "rank:21 tp>4 pp:0",
        "finding:leak !finding:fragmentation !job:debug",
        "485b h100 leak",
        "state:ok !dp:0",
    ],
)
def test_terms_that_hold(text: str) -> None:
    assert compile_filter(text)(DEVICE)


@pytest.mark.parametrize(
    "text", ["node:gpu1", "used<90%", "risk:critical", "dp:0", "dp>=0", "!rank:21", "a100"]
)
def test_terms_that_do_not(text: str) -> None:
    assert not compile_filter(f"gpu12 {text}")(DEVICE)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("node:a usd>90%", "usd>90%: did you mean used?"),
        ("colour:red", "colour:red: expected one of node, job"),
        ("foo:bar", "foo:bar: expected one of node, job"),
        ("used>lots", "used>lots: expected a share"),
        ("used>90", "used>90: expected a share"),
        ("node>3", "node>3: node is a name"),
        ("risk>=bad", "risk>=bad: expected one of low"),
        ("rank:x", "rank:x: expected a number"),
        ("state:fine", "state:fine: expected one of ok"),
        ("oom<soon", "oom<soon: expected a time"),
        ("used>", "used>: expected a value"),
        ("!", "expected a term after it"),
    ],
)
def test_what_is_no_term_is_named(text: str, named: str) -> None:
    with pytest.raises(UsageError, match="filter ") as found:
        compile_filter(text)
    assert named in str(found.value)


_WORDS = st.one_of(
    st.text(),
    st.builds(
        "{}{}{}".format, st.sampled_from(KEYS), st.sampled_from([">", "<", ">=", "<=", ":", "="]), st.text()
    ),
)


@given(st.lists(_WORDS, max_size=3))
def test_whatever_is_typed_is_a_filter_or_refused_in_words(words: list[str]) -> None:
    try:
        check = compile_filter(" ".join(words))
    except UsageError:
        return
    assert check(DEVICE) in (True, False)


@given(
    st.sampled_from(["used", "free", "oom", "probability", "rank", "tp", "pp", "dp"]), st.sampled_from("<>:")
)
def test_what_nobody_measured_matches_nothing(key: str, sign: str) -> None:
    value = {"oom": "5s", "used": "5%", "free": "5%"}.get(key, "5")
    assert not compile_filter(f"{key}{sign}{value}")(FleetDevice("n", "u", "0", "GPU 0"))
