"""Reading the text of PYTORCH_ALLOC_CONF."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.allocator_model import AllocatorSettings, AllocatorSettingsError

from .cards import MIB


def test_every_modelled_key_is_read() -> None:
    settings = AllocatorSettings.parse(
        "max_split_size_mb:40, max_non_split_rounding_mb:30,garbage_collection_threshold:0.5,"
        "expandable_segments:True,per_process_memory_fraction:0.9,backend:native"
    )
    assert settings.max_split_bytes == 40 * MIB
    assert settings.max_non_split_rounding_bytes == 30 * MIB
    assert settings.garbage_collection_threshold == 0.5
    assert settings.expandable_segments
    assert settings.memory_fraction == 0.9


def test_intervals_are_read_as_pytorchs_own_test_expects() -> None:
    # c10/test/core/AllocatorConfig_test.cpp: what holds from each power of two on, in MiB.
    settings = AllocatorSettings.parse("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
    assert settings.roundup_power2_divisions == (8,) * 7 + (2, 4, 2, 4) + (1,) * 5


def test_one_number_holds_for_all_sizes() -> None:
    assert AllocatorSettings.parse("roundup_power2_divisions:8").roundup_power2_divisions == (8,) * 16


def test_nothing_set_is_the_defaults() -> None:
    assert AllocatorSettings.parse("") == AllocatorSettings()
    assert AllocatorSettings().describe() == "defaults"


def test_unknown_and_unmodelled_keys_are_kept_and_told() -> None:
    settings = AllocatorSettings.parse(
        "pinned_num_register_threads:4,no_such_key:7,expandable_segments:False"
    )
    assert settings.unmodelled == (("pinned_num_register_threads", "4"),)
    assert settings.unknown == (("no_such_key", "7"),)
    assert "no_such_key is unknown to PyTorch" in settings.describe()
    assert "pinned_num_register_threads has no effect" in settings.describe()


def test_another_backend_is_told() -> None:
    assert "modelled as the native" in AllocatorSettings.parse("backend:cudaMallocAsync").describe()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param(
            "max_split_size_mb:19", "max_split_size_mb is '19', expected .* at least 20", id="too small"
        ),
        pytest.param("max_split_size_mb:1e3", "max_split_size_mb", id="not a whole number"),
        pytest.param("large_segment_size_mb:40,max_split_size_mb:30", "at least 40", id="below a segment"),
        pytest.param("garbage_collection_threshold:1.0", "above 0 and below 1", id="threshold"),
        pytest.param("garbage_collection_threshold:high", "expected a number", id="no number"),
        pytest.param("per_process_memory_fraction:1.5", "from 0 to 1", id="fraction"),
        pytest.param("expandable_segments:true", "True or False", id="lower case"),
        pytest.param("roundup_power2_divisions:3", "a power of two", id="divisions"),
        pytest.param("roundup_power2_divisions:[256]", "a list such as", id="interval without number"),
        pytest.param("roundup_power2_divisions:[300:2]", "a power of two", id="interval"),
        pytest.param("roundup_power2_divisions:[256:2", "expected key:value pairs", id="open bracket"),
        pytest.param("backend:magic", "native or cudaMallocAsync", id="backend"),
        pytest.param("expandable_segments", "expected key:value pairs", id="no value"),
        pytest.param("expandable_segments:", "expected key:value pairs", id="empty value"),
    ],
)
def test_what_pytorch_refuses_is_refused_with_the_reason(text: str, named: str) -> None:
    with pytest.raises(AllocatorSettingsError, match=named):
        AllocatorSettings.parse(text)


@given(st.one_of(st.text(max_size=60), st.from_regex(r"\A[a-z_0-9:,\[\]>. ]{0,60}\Z")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        AllocatorSettings.parse(text).describe()
    except AllocatorSettingsError as refusal:
        assert str(refusal)  # noqa: PT017 - either outcome is right
