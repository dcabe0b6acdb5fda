"""What a language model is, by the model made from a function."""

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.models import (
    check_parents,
    check_path,
    check_rewind,
    check_tokens,
    extend_by_branches,
    node_depths,
    path_to,
)


def digits(seq):
    """Logits that spell out the whole sequence, so that no context can be mistaken."""
    number = float("".join(map(str, seq)) or 0)
    return [number, -number, 0.5]


MODEL = sd.FunctionModel(digits, 3, bos_id=0)


def test_rows_are_for_the_token_after_each():
    assert MODEL.start().extend([1, 2, 0])[:, 0].tolist() == [1, 12, 120]


def test_in_pieces_or_at_once():
    state = MODEL.start()
    rows = [state.extend(piece) for piece in ([1], [2, 0], [], [1])]
    assert [len(row) for row in rows] == [1, 2, 0, 1]
    assert state.length == 4
    assert (np.concatenate(rows) == MODEL.start().extend([1, 2, 0, 1])).all()


@pytest.mark.parametrize("length", range(5))
def test_rewind_equals_from_scratch(length):
    tokens = [1, 2, 0, 2]
    state = MODEL.start()
    state.extend(tokens)
    state.rewind(length)
    assert state.length == length
    scratch = MODEL.start()
    scratch.extend(tokens[:length])
    assert (state.extend([1, 1]) == scratch.extend([1, 1])).all()


def test_states_share_nothing():
    a, b = MODEL.start(), MODEL.start()
    a.extend([1, 2])
    assert (a.length, b.length) == (2, 0)
    assert b.extend([2])[0, 0] == 2


def test_the_context_window():
    model = sd.FunctionModel(digits, 3, context_window=3)
    state = model.start()
    state.extend([1, 2, 0])
    with pytest.raises(ValueError, match="context window of 3: 3 read, 1 more given"):
        state.extend([1])
    state.rewind(2)
    assert state.extend([2])[0, 0] == 122


@pytest.mark.parametrize("shape", ((), (1,), (2,), (1, 3)))
def test_a_function_of_the_wrong_shape(shape):
    """A scalar or a single number would otherwise be stretched to a whole row."""
    model = sd.FunctionModel(lambda seq: np.zeros(shape), 3)
    with pytest.raises(ValueError, match=r"logits_after must return shape \(3,\)"):
        model.start().extend([0])


@pytest.mark.parametrize("row", ([1j, 0, 0], ["a", "b", "c"], [None, 0, 0]))
def test_a_function_of_no_numbers(row):
    """Of complex numbers NumPy would keep the real parts, with a warning at most."""
    model = sd.FunctionModel(lambda seq: row, 3)
    with pytest.raises(TypeError, match="logits_after must return real numbers, got"):
        model.start().extend([0])


def test_a_failing_function_leaves_the_state_as_it_was():
    def fails_at_two(seq):
        if len(seq) == 2:
            raise RuntimeError("out of order")
        return [0.0, 0.0, 0.0]

    state = sd.FunctionModel(fails_at_two, 3).start()
    with pytest.raises(RuntimeError, match="out of order"):
        state.extend([0, 1])
    assert state.length == 0


@pytest.mark.parametrize("size", (2, 31, 32, 500))
@pytest.mark.parametrize("bad", (-1, 7))
def test_tokens_outside_the_vocabulary(size, bad):
    tokens = [0] * size
    assert check_tokens(tokens, 7).tolist() == tokens
    tokens[size // 2] = 6
    assert check_tokens(tokens, 7).tolist() == tokens
    tokens[size // 2] = bad
    with pytest.raises(ValueError, match=f"name must be inside 0 .. 6, got {bad}"):
        check_tokens(tokens, 7, "name")


@pytest.mark.parametrize(
    "bad, error, message",
    [
        ([0.0, 1.0], TypeError, r"name must be integers, got \[0.0, 1.0\]"),
        (["a"], TypeError, r"name must be integers, got \['a'\]"),
        ("The harbour", TypeError, "name must be integers, got 'The harbour'"),
        (None, TypeError, "name must be integers, got None"),
        ([True, False], TypeError, r"name must be integers, got \[True, False\]"),
        (np.zeros(50), TypeError, "name must be integers, got an array of float64"),
        (3, ValueError, r"name must be one-dimensional, got shape \(\)"),
        ([[0, 1]], ValueError, r"name must be one-dimensional, got shape \(1, 2\)"),
    ],
)
def test_what_are_no_tokens(bad, error, message):
    with pytest.raises(error, match=message):
        check_tokens(bad, 7, "name")


@pytest.mark.parametrize("empty", ([], (), np.zeros(0), np.zeros(0, np.int64)))
def test_no_tokens(empty):
    tokens = check_tokens(empty, 7)
    assert (tokens.shape, tokens.dtype) == ((0,), np.int64)


def test_tokens_of_other_integer_types():
    for dtype in (np.uint8, np.int32, np.uint64):
        assert check_tokens(np.array([1, 2], dtype), 7).tolist() == [1, 2]
    with pytest.raises(ValueError, match="got 18446744073709551615"):
        check_tokens(np.array([2**64 - 1], np.uint64), 7)


@pytest.mark.parametrize("bad", (-1, 4))
def test_rewind_outside_the_present_length(bad):
    state = MODEL.start()
    state.extend([0, 1, 2])
    with pytest.raises(ValueError, match=f"length must be inside 0 .. 3, got {bad}"):
        state.rewind(bad)
    assert state.length == 3


@pytest.mark.parametrize("bad", (1.0, "1", None, True))
def test_rewind_to_what_is_no_length(bad):
    with pytest.raises(TypeError, match=f"length must be an integer, got {bad!r}"):
        check_rewind(bad, 3)


def test_rewind_takes_numpy_integers():
    assert check_rewind(np.int64(2), 3) == 2


# Trees


#    0 - 2 - 3
#    1 - 4
TREE = (-1, -1, 0, 2, 1)


def test_depths_and_paths_by_hand():
    assert node_depths(TREE) == [1, 1, 2, 3, 2]
    assert node_depths(()) == []
    paths = [path_to(node, TREE) for node in range(-1, 5)]
    assert paths == [[], [0], [1], [0, 2], [0, 2, 3], [1, 4]]


@pytest.mark.parametrize("given", (TREE, list(TREE), np.array(TREE)))
def test_parents_of_a_tree(given):
    found = check_parents(given, 5)
    assert found == TREE
    assert all(type(parent) is int for parent in found)
    assert check_parents((), 0) == ()


@pytest.mark.parametrize(
    "bad, error, message",
    [
        ((-1, 0, 1, 2), ValueError, "name must have one entry for each of 5 .*, got 4"),
        ((-1, 1, 0, 0, 0), ValueError, r"name\[1\] must be inside -1 .. 0, got 1"),
        ((-1, 0, 0, 4, 0), ValueError, r"name\[3\] must be inside -1 .. 2, got 4"),
        ((-1, 0, 0, -2, 0), ValueError, r"name\[3\] must be inside -1 .. 2, got -2"),
        ((-1, 0, 0, 0.0, 0), TypeError, "name must be integers, got 0.0"),
        ((-1, False, 0, 0, 0), TypeError, "name must be integers, got False"),
        (5, TypeError, "name must be some integers, got 5"),
    ],
)
def test_parents_that_make_no_tree(bad, error, message):
    with pytest.raises(error, match=message):
        check_parents(bad, 5, "name")


@pytest.mark.parametrize("path", ([], [0], [1, 4], [0, 2], (0, 2, 3), np.array([0, 2])))
def test_paths_of_a_tree(path):
    found = check_path(path, TREE)
    assert found == tuple(path)
    assert all(type(node) is int for node in found)


@pytest.mark.parametrize(
    "bad, error, message",
    [
        ([2], ValueError, r"name must be a path from a root .*, got \(2,\)"),
        ([0, 4], ValueError, r"name must be a path from a root .*, got \(0, 4\)"),
        ([0, 3], ValueError, "name must be a path from a root"),
        ([0, 2, 3, 3], ValueError, "name must be a path from a root"),
        ([0, 1], ValueError, "name must be a path from a root"),
        ([5], ValueError, "name must be a path from a root"),
        ([-1], ValueError, "name must be a path from a root"),
        ([0.0], TypeError, "name must be integers, got 0.0"),
        ([False], TypeError, "name must be integers, got False"),
        (0, TypeError, "name must be some integers, got 0"),
    ],
)
def test_paths_that_are_none(bad, error, message):
    with pytest.raises(error, match=message):
        check_path(bad, TREE, "name")


def test_a_tree_by_branches():
    """Every row spells out its own branch, after what was read before."""
    state = MODEL.start()
    state.extend([2, 2])
    rows = extend_by_branches(state, [1, 2, 0, 1, 0], TREE)
    assert rows[:, 0].tolist() == [221, 222, 2210, 22101, 2220]
    assert state.length == 2  # the first fork is at the end of the text
    rows = extend_by_branches(state, [1, 0, 1, 2], [-1, 0, 0, 2])
    assert rows[:, 0].tolist() == [221, 2210, 2211, 22112]
    assert state.length == 3
    assert extend_by_branches(state, [], []).shape == (0, 3)
