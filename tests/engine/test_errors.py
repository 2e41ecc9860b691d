"""An error names a setting as whoever reads it knows it."""

import msgspec

from vramscope.engine.errors import ErrorPart, Setting, SettingError, UsageError, VramscopeError

SEQ = Setting("--seq", "seq_length")
MICRO_BATCH = Setting("--micro-batch")


def test_a_setting_is_a_flag_an_argument_or_a_word_as_the_surface_has_it() -> None:
    error = SettingError(SEQ, " does not go with ", MICRO_BATCH, ": leave one out")
    assert str(error) == "seq_length does not go with micro_batch: leave one out"
    assert error.describe("flag") == "--seq does not go with --micro-batch: leave one out"
    assert error.describe("word") == "seq does not go with micro_batch: leave one out"


def test_text_that_looks_like_a_setting_stays_as_it_is() -> None:
    for text in ("ran `job --seq 4`", "{seq_length}", "", "%s"):
        error = UsageError(text)
        assert {error.describe("flag"), error.describe("word"), str(error)} == {text}
    assert str(VramscopeError()) == ""


def test_an_error_around_another_and_one_of_another_process_keep_their_settings() -> None:
    inner = SettingError(SEQ, " 0: expected 1 or more")
    outer = SettingError("row 3: ", *inner.args)
    assert outer.describe("flag") == "row 3: --seq 0: expected 1 or more"
    parts = msgspec.json.decode(msgspec.json.encode(outer.args), type=tuple[ErrorPart, ...])
    assert SettingError(*parts).describe("flag") == outer.describe("flag")
