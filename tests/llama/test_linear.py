"""The product that takes all the time: by every way the same as ``x @ weight.T``."""

import os
import threading

import numpy as np
import pytest

from specdec_lib.llama import linear as module
from specdec_lib.llama.linear import block_rows, in_parallel, linear, one_blas_thread

G = np.random.default_rng(0)


@pytest.mark.parametrize("small", (True, False))
@pytest.mark.parametrize("threads", (1, 2, 3))
@pytest.mark.parametrize("n, K", [(1, 1), (7, 5), (960, 576), (577, 331), (64, 1536)])
@pytest.mark.parametrize("T", (0, 1, 2, 5, 16, 31, 32, 33, 80))
def test_every_way(monkeypatch, small, threads, n, K, T):
    monkeypatch.setattr(module, "small_products", lambda: small)
    monkeypatch.setattr(module, "thread_count", lambda: threads)
    monkeypatch.setattr(module, "LEAST", 0)  # however small
    x, weight = G.normal(size=(T, K)), G.normal(size=(n, K))
    for dtype, close in ((np.float64, 1e-11), (np.float32, 2e-3)):
        a, b = x.astype(dtype), weight.astype(dtype)
        out = linear(a, b)
        assert out.dtype == dtype
        np.testing.assert_allclose(out, x @ weight.T, rtol=0, atol=close)


def test_shares_are_whole_runs_of_rows():
    assert module.shares(960, 1) == [0, 960]
    assert module.shares(3072, 2) == [0, 1536, 3072]
    assert module.shares(3072, 2, 1.5) == [0, 1856, 3072]  # 3 of 5 would be 1843
    assert module.shares(3072, 4) == [0, 768, 1536, 2304, 3072]
    for n in (0, 1, 33, 577, 49152):
        for threads in (1, 2, 3, 4):
            bounds = module.shares(n, threads, 1.5)
            assert len(bounds) == threads + 1
            assert bounds == sorted(bounds)
            assert (bounds[0], bounds[-1]) == (0, n)


def test_only_a_large_product_wakes_a_thread(monkeypatch):
    """Of SmolLM2's matrices, those that were measured to pay."""
    pay = module.pays_threads
    monkeypatch.setattr(module, "small_products", lambda: True)
    assert pay(1, 49152, 576)
    assert pay(5, 49152, 576)
    assert not pay(8, 3072, 576)
    assert pay(16, 3072, 576)
    assert not pay(16, 576, 1536)
    apart = [T for T in range(1, 40) if module.between_blocks(T)]
    assert apart == [2, 3, 4]
    woken = []
    monkeypatch.setattr(module, "thread_count", lambda: 2)
    monkeypatch.setattr(
        module, "in_parallel", lambda part, bounds: woken.append(bounds)
    )
    linear(np.ones((1, 8)), np.ones((7, 8)))
    linear(np.ones((1, 4096)), np.ones((1536, 4096)))
    assert woken == [[0, 7], [0, 768, 1536]]


def test_rows_of_a_block_stay_under_the_limits():
    for T in range(1, 32):
        for K in (1, 64, 576, 1536, 4096, 14336):
            rows = block_rows(T, K, 4)
            assert rows % 16 == 0 or rows == 1
            assert rows == 1 or rows * T <= 1200
            assert rows == 1 or rows * T * K <= 1_000_000
            assert rows == 1 or rows * K * 4 <= module.CACHED
    assert block_rows(1, 576, 4) == 224  # by the cache
    assert block_rows(8, 576, 4) == 144  # by rows x tokens
    assert block_rows(16, 1536, 4) == 32  # by the whole


def test_all_parts_are_done_at_once():
    """Each part waits for the others, so one after the other would never end."""
    meet = threading.Barrier(3, timeout=20)
    seen = []

    def part(first, last):
        meet.wait()
        seen.append((first, last))

    in_parallel(part, [0, 2, 5, 9])
    assert sorted(seen) == [(0, 2), (2, 5), (5, 9)]


@pytest.mark.parametrize("where", (0, 2))
def test_an_error_in_a_part_comes_back(where):
    def part(first, last):
        if first == where:
            raise ArithmeticError(f"in part {first}")

    with pytest.raises(ArithmeticError, match=f"in part {where}"):
        in_parallel(part, [0, 2, 4])
    in_parallel(lambda first, last: None, [0, 2, 4])  # and work goes on


def blas_threads():
    return [each["num_threads"] for each in module._blas().info()]


def test_blas_is_set_back():
    before = blas_threads()
    with one_blas_thread():
        assert set(blas_threads()) == {1}
        with one_blas_thread():
            pass
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert blas_threads() == before


def test_holders_may_leave_in_any_order():
    before = blas_threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own():
    in_parallel(lambda first, last: None, [0, 1, 2])
    child = os.fork()
    if not child:
        try:
            in_parallel(lambda first, last: None, [0, 1, 2])
            os._exit(0)
        finally:
            os._exit(1)
    waited = 0
    while waited == 0:
        for _ in range(200):
            waited, status = os.waitpid(child, os.WNOHANG)
            if waited:
                break
            threading.Event().wait(0.05)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the forked process waits for threads it does not have")
    assert status == 0
