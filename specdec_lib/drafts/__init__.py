"""Drafts: what guesses, and what every guess must tell.

    model      what a draft is; any language model as a draft
"""

from .model import Draft, ModelDraft, Proposal, Session

__all__ = ["Draft", "ModelDraft", "Proposal", "Session"]
