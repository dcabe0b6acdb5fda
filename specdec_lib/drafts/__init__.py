"""Drafts: what guesses, and what every guess must tell.

    mixtures   the first draft that has a guess; a model mixed with a cache
    model      what a draft is; any language model as a draft
    trees      several guesses for one place
"""

from .mixtures import CacheModel, FirstOf
from .model import Draft, ModelDraft, Proposal, Session
from .trees import TreeDraft, tree_shape

__all__ = [
    "CacheModel",
    "Draft",
    "FirstOf",
    "ModelDraft",
    "Proposal",
    "Session",
    "TreeDraft",
    "tree_shape",
]
