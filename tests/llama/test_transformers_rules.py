"""The rules beside those of transformers: acceptance, prompt lookup, filters.

Where both are driven by the same uniform numbers they must decide the same, guess for
guess. Where transformers has another rule, the difference is said and checked.
"""

import numpy as np
import pytest

import specdec_lib as sd

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="it is not installed")

from transformers.generation import candidate_generator, utils  # noqa: E402
from transformers.generation import logits_process as theirs  # noqa: E402


class Given:
    """Decides by the uniform numbers it is given, and remembers what it drew from."""

    def __init__(self, uniforms):
        self.uniforms = list(uniforms)
        self.last = None

    def bernoulli(self, p):
        return self.uniforms.pop(0) < p

    def categorical(self, distribution):
        self.last = np.array(distribution)
        return int(self.last.argmax())


def by_transformers(p, q, tokens, uniforms, monkeypatch):
    """How many it accepts, and what it draws the next token from."""
    seen = []

    def draw(row, num_samples):
        seen.append(row[0].numpy().copy())
        return row.argmax(dim=-1, keepdim=True)

    monkeypatch.setattr(torch, "rand_like", lambda x: torch.tensor(uniforms))
    monkeypatch.setattr(torch, "multinomial", draw)
    with np.errstate(divide="ignore"):
        candidate_logits, new_logits = (
            torch.tensor(rows)[None] for rows in (np.log(q), np.log(p))
        )
    text, n = utils._speculative_sampling(
        torch.tensor([[0, 1, *tokens]]), candidate_logits, len(tokens), new_logits
    )
    monkeypatch.undo()
    return int(n), seen[0], tuple(text[0].tolist())


def laws(g, n, vocab_size, gaps):
    """(n, V) distributions, with ``gaps`` tokens that are impossible in each."""
    p = g.dirichlet(np.full(vocab_size, 0.5), n)
    for row in p:
        row[g.choice(vocab_size, gaps, replace=False)] = 0
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("vocab_size", (2, 3, 7, 50))
def test_the_acceptance_function(vocab_size, monkeypatch):
    """The same count, the same residual, the same tokens: 400 cases a size."""
    g = np.random.default_rng(vocab_size)
    counts = [0] * 5
    for case in range(400):
        k = 1 + case % 4
        p = laws(g, k + 1, vocab_size, case % 2 * (vocab_size > 2))
        near = 0.3 * laws(g, k, vocab_size, 0) + 0.7 * p[:k]  # so that some are kept
        q = near if case % 3 else laws(g, k, vocab_size, 0)
        tokens = tuple(int(g.choice(vocab_size, p=row)) for row in q)
        uniforms = g.random(k).tolist()
        n, row, text = by_transformers(p, q, tokens, [uniforms], monkeypatch)
        rng = Given(uniforms)
        found = sd.verify_tokens(p, sd.Proposal(tokens, q), rng)
        assert found.accepted == n
        np.testing.assert_allclose(rng.last, row, rtol=0, atol=1e-9)
        assert (*tokens[:n], found.next_token) == text
        counts[n] += 1
    assert all(counts)


@pytest.mark.parametrize("case", ("bonus", "sure target", "sure of another"))
def test_the_acceptance_function_at_its_edges(case, monkeypatch):
    q = np.array([[0.5, 0.25, 0.25]])
    rows = {
        "bonus": [[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]],
        "sure target": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        "sure of another": [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
    }
    p = np.array(rows[case])
    for uniform in (1e-12, 0.5, 1 - 1e-12):
        n, row, _ = by_transformers(p, q, (0,), [[uniform]], monkeypatch)
        rng = Given([uniform])
        assert sd.verify_tokens(p, sd.Proposal((0,), q), rng).accepted == n
        np.testing.assert_allclose(rng.last, row, rtol=0, atol=1e-12)


@pytest.mark.parametrize("longest", (1, 2, 3, 5))
@pytest.mark.parametrize("k", (1, 3, 10))
def test_prompt_lookup_as_the_text_grows(longest, k):
    """Its rule is ours with earliest=True, at every length of a text."""
    g = np.random.default_rng(longest)
    peer = candidate_generator.PromptLookupCandidateGenerator(
        num_output_tokens=k, max_matching_ngram_size=longest, max_length=10_000
    )
    text = [0]
    session = sd.PromptLookup(longest, earliest=True).start(text)
    guesses = 0
    for step in range(250):
        found, _ = peer.get_candidates(torch.tensor([text]))
        ours = session.propose(k).tokens
        assert list(ours) == found[0, len(text) :].tolist()
        guesses += len(ours)
        new = list(ours[: int(g.integers(0, k + 1))])
        new.append(int(g.integers(0, 2 + step // 20)))
        text += new
        session.commit(new)
    assert guesses > 100


def warped(logits, *warpers, prefix=()):
    """Probabilities by the processors of transformers, in turn."""
    ids = torch.tensor([list(prefix)], dtype=torch.long)
    scores = torch.tensor(logits)[None]
    for warper in warpers:
        scores = warper(ids, scores)
    return torch.distributions.Categorical(logits=scores[0]).probs.numpy()


@pytest.mark.parametrize("seed", range(5))
def test_filters_on_random_logits(seed):
    """Temperature, top-k and top-p, each alone and all in this order, and the
    penalty and the bias before them."""
    g = np.random.default_rng(seed)
    for vocab_size in (1, 2, 10, 1000):
        logits = g.normal(size=vocab_size) * 4
        prefix = g.integers(0, vocab_size, size=7).tolist()
        for temperature in (0.01, 0.5, 1.0, 30.0):
            for top_k in (None, 1, 3, 500):
                for top_p in (None, 0.05, 0.5, 0.999):
                    for penalty in (None, 1.3):
                        processors = []
                        warpers = [theirs.TemperatureLogitsWarper(float(temperature))]
                        if top_k is not None:
                            warpers.append(theirs.TopKLogitsWarper(top_k))
                        if top_p is not None:
                            warpers.append(theirs.TopPLogitsWarper(top_p))
                        if penalty is not None:
                            processors = [
                                sd.RepetitionPenalty(penalty),
                                sd.LogitBias({0: 0.75}),
                            ]
                            warpers[:0] = [
                                theirs.RepetitionPenaltyLogitsProcessor(penalty),
                                theirs.SequenceBiasLogitsProcessor([[[0], 0.75]]),
                            ]
                        ours = sd.Sampler(temperature, top_k, top_p, processors)
                        np.testing.assert_allclose(
                            ours(logits, prefix),
                            warped(logits, *warpers, prefix=prefix),
                            rtol=0,
                            atol=1e-9,
                        )


def test_filters_on_tied_logits():
    """Top-k of transformers keeps all that are equal to the last one that is kept;
    ours keeps k, the lowest ids of them. Of what a top-p keeps among equals the
    number is the same, and which of them is not said there."""
    g = np.random.default_rng(0)
    more = 0
    for _ in range(300):
        logits = g.integers(0, 3, size=8).astype(float)
        k = int(g.integers(1, 9))
        ours = sd.Sampler(top_k=k)(logits)
        peer = warped(logits, theirs.TopKLogitsWarper(k))
        kept, all_kept = np.flatnonzero(ours), np.flatnonzero(peer)
        assert len(kept) == k <= len(all_kept)
        more += len(all_kept) > k
        last = logits[kept].min()
        tied = np.flatnonzero(logits == last)
        above = np.flatnonzero(logits > last)
        assert sorted(all_kept) == sorted([*above, *tied])
        assert sorted(kept) == sorted([*above, *tied[: k - len(above)]])
        # A threshold that no sum of equal chances reaches to the digit.
        top_p = float(g.uniform(0.03, 0.99))
        ours = sd.Sampler(top_p=top_p)(logits)
        peer = warped(logits, theirs.TopPLogitsWarper(top_p))
        np.testing.assert_allclose(np.sort(ours), np.sort(peer), rtol=0, atol=1e-12)
    assert more > 50
    # Greedy: the lowest id among equals, theirs too.
    assert (
        torch.tensor([1.0, 2.0, 2.0]).argmax() == 1 == sd.Sampler(0)([1, 2, 2]).argmax()
    )


V = 12


def tiny():
    config = transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).double().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, dtype=each.dtype) * 0.6)
    return model


@pytest.mark.parametrize("k", (1, 3, 6))
def test_prompt_lookup_takes_the_same_calls(k):
    """The same greedy text, after as many calls of the model."""
    from specdec_lib.huggingface import HuggingFaceModel

    raw, calls = tiny(), []
    raw.register_forward_pre_hook(lambda *_: calls.append(1))
    prompt = [1, 2, 3, 1, 2, 5, 1, 2, 3]
    made = raw.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt)),
        max_new_tokens=80,
        do_sample=False,
        prompt_lookup_num_tokens=k,
        max_matching_ngram_size=3,
    )
    theirs_took = len(calls)
    draft = sd.PromptLookup(3, earliest=True)
    model = HuggingFaceModel(raw)
    calls.clear()
    found = sd.generate(
        model, prompt, draft=draft, k=k, max_new_tokens=80, sampler=sd.Sampler(0)
    )
    assert list(found.tokens) == made[0, len(prompt) :].tolist()
    assert len(calls) == found.metrics.target_calls
    assert len(calls) == theirs_took < 60
    assert len(set(found.tokens)) > 5
