"""Reading on, rewinding, trees: always what a computation from scratch gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_kit import plain_logits, toy

from specdec_lib.llama import model as module
from specdec_lib.models import node_depths, path_to

TOY = toy(1, tied=False)
MODEL = TOY.model()
TOKENS = np.random.default_rng(1).integers(0, 37, 40).tolist()
CLOSE = dict(rtol=0, atol=1e-9)


def from_scratch(tokens):
    return MODEL.start().extend(tokens)


def test_one_by_one_equals_at_once():
    state = MODEL.start()
    rows = [state.extend([token])[0] for token in TOKENS]
    np.testing.assert_allclose(rows, from_scratch(TOKENS), **CLOSE)


def test_long_prompts_are_read_in_pieces(monkeypatch):
    whole = from_scratch(TOKENS)
    monkeypatch.setattr(module, "PIECE", 7)
    state = MODEL.start()
    np.testing.assert_allclose(state.extend(TOKENS), whole, **CLOSE)
    for rows in (0, 1, 5, 7, 8, 40):
        state.rewind(0)
        last = state.extend_last(TOKENS, rows)
        assert last.shape == (rows, 37)
        np.testing.assert_allclose(last, whole[40 - rows :], **CLOSE)
        assert state.length == 40


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_order_of_calls(data):
    """Extend, rewind, read trees and keep paths at will; then compare."""
    state, text = MODEL.start(), []
    for _ in range(data.draw(st.integers(1, 6))):
        act = data.draw(st.sampled_from(["extend", "rewind", "tree"]))
        token = st.integers(0, 36)
        if act == "extend":
            new = data.draw(st.lists(token, max_size=9))
            rows = state.extend(new)
            text += new
            if new:
                np.testing.assert_allclose(
                    rows, from_scratch(text)[len(text) - len(new) :], **CLOSE
                )
        elif act == "rewind":
            length = data.draw(st.integers(0, len(text)))
            state.rewind(length)
            del text[length:]
        else:
            n = data.draw(st.integers(0, 6))
            parents = [data.draw(st.integers(-1, i - 1)) for i in range(n)]
            new = data.draw(st.lists(token, min_size=n, max_size=n))
            check_tree(state, text, new, parents)
            if data.draw(st.booleans()):
                node = data.draw(st.integers(-1, n - 1))
                path = list(path_to(node, parents))
                state.keep(path)
                text += [new[i] for i in path]
        assert state.length == len(text)
    end = state.extend([5])[0]
    np.testing.assert_allclose(end, from_scratch([*text, 5])[-1], **CLOSE)


def check_tree(state, text, tokens, parents):
    """Every row of a tree beside its branch, read from scratch."""
    rows = state.extend_tree(tokens, parents)
    assert rows.shape == (len(tokens), 37)
    assert state.length == len(text)
    for node, row in enumerate(rows):
        branch = [tokens[i] for i in path_to(node, parents)]
        assert len(branch) == node_depths(parents)[node]
        np.testing.assert_allclose(row, from_scratch(text + branch)[-1], **CLOSE)


def test_a_tree_beside_plain_loops():
    """Not only beside the model's own chains."""
    state = MODEL.start()
    state.extend([3, 1])
    rows = state.extend_tree([4, 5, 6, 7], [-1, -1, 0, 0])
    for i, branch in enumerate(([4], [5], [4, 6], [4, 7])):
        np.testing.assert_allclose(
            rows[i], plain_logits(TOY, [3, 1, *branch])[-1], **CLOSE
        )
    state.keep([0, 3])
    np.testing.assert_allclose(
        state.extend([9])[0], plain_logits(TOY, [3, 1, 4, 7, 9])[-1], **CLOSE
    )


@pytest.mark.parametrize("act", ("extend", "rewind", "extend_tree", "keep"))
def test_any_other_call_forgets_the_tree(act):
    state = MODEL.start()
    state.extend([1, 2, 3])
    state.extend_tree([4, 5], [-1, 0])
    {
        "extend": lambda: state.extend([6]),
        "rewind": lambda: state.rewind(2),
        "extend_tree": lambda: state.extend_tree([6], [-1]),
        "keep": lambda: state.keep([0]),
    }[act]()
    with pytest.raises(ValueError, match="nodes must be a path"):
        state.keep([0, 1])


@pytest.mark.parametrize("nodes", ([1], [0, 2], [0, 1, 2], [3], [-1], [0, 0]))
def test_what_is_no_path(nodes):
    state = MODEL.start()
    state.extend_tree([4, 5, 6], [-1, 0, -1])
    with pytest.raises(ValueError, match="nodes must be a path"):
        state.keep(nodes)
    assert state.length == 0


def test_the_cache_grows_by_doubling():
    state = toy(context_window=1000).model().start()
    sizes = set()
    for i in range(300):
        state.extend([i % 37])
        sizes.add(state._keys.shape[3])
    assert sizes == {64, 128, 256, 512}
    small = toy(context_window=70).model().start()
    small.extend([1] * 65)
    assert small._keys.shape[3] == 65
    small.extend([1])
    assert small._keys.shape[3] == 70  # never more than the window


def test_the_context_window():
    state = toy(context_window=5).model().start()
    state.extend([1, 2, 3])
    with pytest.raises(ValueError, match="window of 5: 3 read, 3 more given"):
        state.extend([1, 2, 3])
    assert state.length == 3
    # A tree may have more nodes than there are places, but be no deeper.
    rows = state.extend_tree([1, 2, 3, 4], [-1, -1, -1, 0])
    state.keep([0, 3])
    assert state.length == 5
    expected = toy(context_window=5).model().start().extend([1, 2, 3, 1, 4])[-1]
    np.testing.assert_allclose(rows[3], expected, **CLOSE)
    with pytest.raises(ValueError, match="window of 5: 5 read, 1 more given"):
        state.extend_tree([1], [-1])


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda s: s.extend([37]), ValueError, "inside 0 .. 36, got 37"),
        (lambda s: s.extend([-1]), ValueError, "inside 0 .. 36, got -1"),
        (lambda s: s.extend(["a"]), TypeError, "tokens must be integers"),
        (lambda s: s.extend_last([1], 2), ValueError, "rows must be at most 1, got 2"),
        (lambda s: s.extend_last([1], -1), ValueError, "rows must be 0 or more"),
        (lambda s: s.rewind(3), ValueError, r"length must be inside 0 .. 2, got 3"),
        (lambda s: s.extend_tree([1], [0]), ValueError, r"parents\[0\]"),
        (lambda s: s.extend_tree([1], []), ValueError, "one entry"),
    ],
)
def test_bad_arguments_change_nothing(call, error, message):
    state = MODEL.start()
    state.extend([1, 2])
    with pytest.raises(error, match=message):
        call(state)
    assert state.length == 2
    np.testing.assert_allclose(state.extend([3]), from_scratch([1, 2, 3])[2:], **CLOSE)


def test_states_share_nothing():
    a, b = MODEL.start(), MODEL.start()
    a.extend([1, 2, 3])
    b.extend([4])
    expected = from_scratch([1, 2, 3, 5])[-1]
    np.testing.assert_allclose(a.extend([5])[0], expected, **CLOSE)
    np.testing.assert_allclose(b.extend([5])[0], from_scratch([4, 5])[-1], **CLOSE)


def test_no_tokens():
    state = MODEL.start()
    assert state.extend([]).shape == (0, 37)
    assert state.extend_tree([], []).shape == (0, 37)
    state.extend([1])
    state.rewind(0)
    np.testing.assert_allclose(state.extend([2]), from_scratch([2]), **CLOSE)


def test_a_model_of_the_wrong_parts():
    with pytest.raises(ValueError, match="weights must have 3 layers, got 2"):
        toy(layers=3).model().__class__(toy(layers=3).config, TOY.weights())
    with pytest.raises(ValueError, match="bos_id must be inside 0 .. 36, got 37"):
        TOY.model(bos_id=37)
