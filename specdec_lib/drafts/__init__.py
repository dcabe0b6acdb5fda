"""Drafts: what guesses, and what every guess must tell.

    mixtures   the first draft that has a guess; a model mixed with a cache
    model      what a draft is; any language model as a draft
"""

from .mixtures import CacheModel, FirstOf
from .model import Draft, ModelDraft, Proposal, Session

__all__ = ["CacheModel", "Draft", "FirstOf", "ModelDraft", "Proposal", "Session"]
