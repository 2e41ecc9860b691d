"""What memory follows from the length of a sequence: a polynomial of few terms, and how well it holds."""

from typing import Literal

import msgspec

LawForm = Literal["constant", "linear", "quadratic"]
FORMS: tuple[LawForm, ...] = ("constant", "linear", "quadratic")
"""By number of their terms."""


class LengthLaw(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as a polynomial of the tokens of a sequence."""

    form: LawForm
    constant_bytes: float
    bytes_per_token: float = 0.0
    bytes_per_token_squared: float = 0.0
    points: int
    """From how many it was found."""
    residual_bytes: float
    """Root of the mean square of what was measured less the law."""
    left_out_bytes: float
    """The same of each point against the law that the others give: what predictions may be off by."""

    def predict(self, seq_length: float) -> float:
        """Return the bytes at a length."""
        return self.constant_bytes + seq_length * (
            self.bytes_per_token + seq_length * self.bytes_per_token_squared
        )
