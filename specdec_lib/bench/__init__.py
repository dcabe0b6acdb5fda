"""How fast, and whether it still is: fair timing, and a gate for a build.

    noise     what the spread of some ratios allows to say
    timing    workloads in turn; a slowness that is put in on purpose
    speeds    plain and speculative decoding over drafts and lengths: a table
    suite     what the gate measures, and the stored baseline
    machine   what it was measured on
    command   ``specdec bench``

**What a time is made of.** The seconds of a workload w in block i are

    t(w, i) = true(w) × machine(i) × noise(w, i),

in logarithms a sum. A block runs every workload once, in a random order, one after the
other, so that machine(i), which is the clock rate, the heat and the neighbours of that
moment, is nearly the same for all of them. It cancels in a ratio of two times of one
block, and a drift over minutes cancels with it. So ratios are compared, never seconds,
and always those of one run: plain and speculative decoding, a call for five tokens and
one for one, the loop and a fixed piece of arithmetic. What is left after that is noise,
with two habits. It has outliers, which only ever make something slower; so what counts
is the median over some blocks that stand together. And it is not independent within a
process: where the memory happens to lie and how names happen to hash stays the same
from its start to its end. So where a run is compared with one that was stored, a number
is a whole fresh process; blocks within it sharpen it and are not counted again
(Kalibera and Jones 2013). Times are those of the processor on this process: what others
take is not in them, though what they do to the caches is.

**What is asked.** n such numbers have a mean and a spread; with the baseline's they
give a change, its standard error, and by Student's t (Welch's degrees of freedom) one
bound below and one above, each passed by chance with probability ``level``, shared out
among all the ratios that are asked about (Bonferroni). Three answers follow, with two
marks, 1 % that nobody minds (``ignored``) and 5 % that nobody wants (``limit``):

    slower        the bound below is over 1 %, and the one above is not under 5 %
    fine          the bound above is under 5 %
    cannot tell   neither: the interval holds both marks

A build that is at most 1 % slower is thus called slower with probability ``level`` at
most, whatever the noise. One that is 5 % slower is found as often as the spread and n
allow: :func:`power` says how often, and a gate that cannot tell says how many more runs
it would take. Between the marks either answer is right.

Counts (guesses tested, accepted, tokens, calls) have no noise, as seeds are fixed. They
must be equal, not nearly so.

>>> work = lambda: sum(range(2000))
>>> logs = measure_pairs(planted(work, 0.5), work, pairs=8)
>>> judge(logs).verdict
'slower'
"""

from .machine import describe, machine
from .noise import Judgement, judge, pairs_needed, power, share_found, t_quantile
from .speeds import Setting, measure_speeds
from .suite import Gate, gate, read_baseline, record, run_suite, write_baseline
from .timing import measure, measure_pairs, planted

__all__ = [
    "Gate",
    "Judgement",
    "Setting",
    "describe",
    "gate",
    "judge",
    "machine",
    "measure",
    "measure_pairs",
    "measure_speeds",
    "pairs_needed",
    "planted",
    "power",
    "read_baseline",
    "record",
    "run_suite",
    "share_found",
    "t_quantile",
    "write_baseline",
]
