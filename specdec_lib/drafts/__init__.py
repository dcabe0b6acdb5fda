"""Drafts: what guesses, and what every guess must tell.

What guesses may be a model, or the text itself:

    automaton  the suffix automaton: all runs of a text, and what followed them
    lookup     copying what followed the last few tokens before
    mixtures   the first draft that has a guess; a model mixed with a cache
    model      what a draft is; any language model as a draft
    suffixes   copying what most often followed the longest known end
    trees      several guesses for one place
"""

from .automaton import SuffixAutomaton
from .lookup import PromptLookup
from .mixtures import CacheModel, FirstOf
from .model import Draft, ModelDraft, Proposal, Session
from .suffixes import SuffixDraft, SuffixHistory
from .trees import TreeDraft, tree_shape

__all__ = [
    "CacheModel",
    "Draft",
    "FirstOf",
    "ModelDraft",
    "PromptLookup",
    "Proposal",
    "Session",
    "SuffixAutomaton",
    "SuffixDraft",
    "SuffixHistory",
    "TreeDraft",
    "tree_shape",
]
