"""Accept or reject: how many guesses are kept, and which token follows them.

A rule is a function ``verify(target_probabilities, proposal, rng) -> Verdict``. The
rules exported here are exact: whatever the draft proposes, the tokens that come out are
distributed as the target's own. Rules that are not live in :mod:`.lossy`.

    exact      token by token, and what every rule checks first
    block      all guesses at once: more of them are kept
    tree       several guesses for one place
"""

from . import lossy
from .block import verify_block
from .exact import Verdict, Verify, residual, verify_tokens
from .tree import verify_tree

__all__ = [
    "Verdict",
    "Verify",
    "lossy",
    "residual",
    "verify_block",
    "verify_tokens",
    "verify_tree",
]
