"""Accept or reject: how many guesses are kept, and which token follows them.

A rule is a function ``verify(target_probabilities, proposal, rng) -> Verdict``. The
rules exported here are exact: whatever the draft proposes, the tokens that come out are
distributed as the target's own. Rules that are not live in :mod:`.lossy`.
"""

from . import lossy
from .exact import Verdict, Verify, residual, verify_tokens

__all__ = ["Verdict", "Verify", "lossy", "residual", "verify_tokens"]
