"""The check of exactness is itself checked: faults are planted and must be seen.

Each fault is a change of the shipped source text: one fragment, which must be there
exactly once, is replaced, and the changed module is run in place of the real one. The
same function that proves the library exact must then find a distance above the bound.
"""

import inspect
import types

import numpy as np
import pytest
from toys import (
    EXACT,
    OTHER,
    PROMPT,
    TARGET,
    PointMass,
    ReadsTrees,
    inexactness,
    library_with,
    merged,
    plain,
    table_model,
    total_variation,
    whole_loop,
)

import specdec_lib as sd
from specdec_lib import decoding, models, randomness, sampling
from specdec_lib.drafts import model as drafts
from specdec_lib.drafts import trees
from specdec_lib.verification import block, exact, lossy, tree

PLAIN = sd.Sampler()


def mutant(module, *changes, **names):
    """``module`` run anew from its source with each (old, new) fragment replaced.

    ``names`` are put into its namespace afterwards, over what it imported.
    """
    source = inspect.getsource(module)
    for old, new in changes:
        assert source.count(old) == 1, f"fragment not there exactly once: {old!r}"
        source = source.replace(old, new)
    changed = types.ModuleType(module.__name__)
    changed.__package__ = module.__package__
    exec(compile(source, f"<mutant of {module.__name__}>", "exec"), vars(changed))
    vars(changed).update(names)
    return changed


def broken_rule(*changes, **names):
    return mutant(exact, *changes, **names).verify_tokens


def broken_loop(*changes, **names):
    changed = mutant(decoding, *changes, **names)
    return library_with(generate=changed.generate, stream=changed.stream)


def broken_draft(*changes, model=OTHER, sampler=PLAIN, **names):
    return mutant(drafts, *changes, **names).ModelDraft(model, sampler)


def check(draft=None, *, k=2, tokens=3, target=TARGET, **options):
    draft = draft if draft is not None else sd.ModelDraft(OTHER)
    return inexactness(target, draft, k=k, tokens=tokens, **options)


# Fragments of the rule.
LOOP = "    for i, token in enumerate(proposal.tokens):\n        p_token ="
ACCEPT = "p_token / q_token if p_token < q_token else 1.0"
CORRECT = "rng.categorical(residual(p[i], q_row))"
BONUS = "rng.categorical(p[-1])"
CLIP = "np.maximum(p - q, 0.0)"


def rest_of_the_uniform(distribution, below):
    """What inverse-transform sampling gives for a uniform known to exceed ``below``."""
    ends = np.minimum(np.cumsum(distribution), 1.0)
    ends[-1] = 1.0
    inside = np.diff(np.maximum(np.concatenate([[0.0], ends]), below))
    return inside / inside.sum()


RULES = {
    # name: (changes, extra names, total variation at least)
    "residual |p - q|": ([(CLIP, "np.abs(p - q)")], {}, 0.05),
    "residual shifted instead of clipped": (
        [(CLIP, "(p - q) - (p - q).min()")],
        {},
        0.05,
    ),
    "residual from the next position": (
        [("residual(p[i], q_row)", "residual(p[i + 1], q_row)")],
        {},
        0.05,
    ),
    "residual max(q - p, 0)": ([(CLIP, "np.maximum(q - p, 0.0)")], {}, 0.1),
    "resample from p": ([(CORRECT, "rng.categorical(p[i])")], {}, 0.05),
    "resample from q": ([(CORRECT, "rng.categorical(q_row)")], {}, 0.1),
    "correction from the bonus row": ([(CORRECT, BONUS)], {}, 0.05),
    "ratio q/p": (
        [(ACCEPT, "q_token / p_token if q_token < p_token else 1.0")],
        {},
        0.1,
    ),
    "accept with probability p(x)": ([(ACCEPT, "p_token")], {}, 0.05),
    "bonus from the row before": (
        [(BONUS, "rng.categorical(p[max(len(p) - 2, 0)])")],
        {},
        0.05,
    ),
    "always accept": ([(ACCEPT, "1.0")], {}, 0.1),
    "never accept": ([(ACCEPT, "0.0")], {}, 0.1),
    # One uniform u for all guesses: the i-th is reached if u < r_1, ..., r_(i-1), and
    # then passes with probability min(r_1 .. r_i) / min(r_1 .. r_(i-1)).
    "one uniform for all tokens": (
        [
            (LOOP, "    lowest = 1.0\n" + LOOP),
            ("        if not rng.bernoulli(", "        before = lowest\n        if not "
             "rng.bernoulli((lowest := min(lowest, "),
            (ACCEPT + ")", ACCEPT + ")) / before)"),
        ],
        {},
        0.01,
    ),
    "the uniform reused for the residual": (
        [(CORRECT, "rng.categorical(rest(residual(p[i], q_row), p_token / q_token))")],
        {"rest": rest_of_the_uniform},
        0.02,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_faults_of_the_rule(name):
    changes, names, bound = RULES[name]
    assert check(verify=broken_rule(*changes, **names)) > bound


def test_the_unchanged_source_passes():
    """The machinery of mutants is not itself what fails."""
    assert check(verify=broken_rule()) < EXACT
    assert check(library=broken_loop()) < EXACT
    assert check(broken_draft()) < EXACT
    assert check(verify=mutant(block).verify_block) < EXACT
    assert check(fork(), verify=mutant(tree).verify_tree, way=merged) < EXACT
    assert by_tree(fork(module=mutant(trees)), way=merged) < EXACT
    whole = broken_loop(extend_by_branches=mutant(models).extend_by_branches)
    for target in (TARGET, ReadsTrees(TARGET)):
        assert by_tree(fork(), target, library=whole, way=merged) < EXACT


def test_an_unclipped_residual_is_an_error():
    with pytest.raises(ValueError, match="no negative"):
        check(verify=broken_rule((CLIP, "(p - q)")))


SOFT = "token = rng.categorical(row)"
REPORT = "rows.append(row)"


def test_a_greedy_draft_with_soft_probabilities():
    assert check(broken_draft((SOFT, "token = int(row.argmax())"))) > 0.05
    assert check(lossy.SoftGreedyDraft(sd.ModelDraft(OTHER))) > 0.05


def test_a_filtered_draft_that_reports_the_raw_distribution():
    raw = (REPORT, "rows.append(DEFAULT_SAMPLER(logits))")
    for sampler in (sd.Sampler(top_k=2), sd.Sampler(top_p=0.7)):
        assert check(broken_draft(raw, sampler=sampler)) > 0.02


@pytest.mark.parametrize("temperature, bound", [(0.5, 0.05), (1.7, 0.05)])
def test_a_draft_whose_ratio_ignores_its_temperature(temperature, bound):
    raw = (REPORT, "rows.append(DEFAULT_SAMPLER(logits))")
    draft = broken_draft(raw, sampler=sd.Sampler(temperature))
    assert check(draft, sampler=sd.Sampler(temperature)) > bound


@pytest.mark.parametrize("temperature, bound", [(0.5, 0.1), (1.7, 0.1)])
def test_a_target_without_its_temperature(temperature, bound):
    library = broken_loop(
        (
            "self.sampler(logits, self.sequence, proposal.tokens)",
            "DEFAULT_SAMPLER(logits, self.sequence, proposal.tokens)",
        )
    )
    sampler = sd.Sampler(temperature)
    draft = sd.ModelDraft(OTHER, sampler)
    assert check(draft, sampler=sampler, library=library) > bound


def test_a_target_without_its_filters():
    library = broken_loop(
        (
            "self.sampler(logits, self.sequence, proposal.tokens)",
            "DEFAULT_SAMPLER(logits, self.sequence, proposal.tokens)",
        )
    )
    assert check(sampler=sd.Sampler(top_k=2), library=library) > 0.05


def test_a_drawn_token_thrown_away_for_low_confidence():
    throw = "\n                if row[token] < 0.5:\n                    break"
    assert check(broken_draft((SOFT, SOFT + throw))) > 0.05


def test_a_processor_that_does_not_see_the_guesses():
    changed = mutant(sampling, ("sequence[: start + i]", "sequence[:start]"))
    sampler = changed.Sampler(processors=(sd.RepetitionPenalty(3.0),))
    honest = sd.Sampler(processors=(sd.RepetitionPenalty(3.0),))
    library = broken_loop(Sampler=changed.Sampler)
    fault = inexactness_against(honest, sampler, library)
    assert fault > 0.02
    whole = mutant(sampling)
    library = broken_loop(Sampler=whole.Sampler)
    sampler = whole.Sampler(processors=(sd.RepetitionPenalty(3.0),))
    assert inexactness_against(honest, sampler, library) < EXACT


def inexactness_against(honest, sampler, library):
    """The changed sampler in the loop, the honest one in the oracle."""
    real = whole_loop(
        TARGET, sd.ModelDraft(OTHER), k=2, tokens=3, sampler=sampler, library=library
    )
    return total_variation(real, plain(TARGET, 3, sampler=honest))


LAST_ROWS = "logits = logits[-(n + 1) :]"
KEPT = "kept = proposal.tokens[: verdict.accepted]"
EMIT = "emitted = (*kept, verdict.next_token)"
LOOPS = {
    "rows shifted by one": (
        [(LAST_ROWS, "logits = np.roll(logits, 1, axis=0)[-(n + 1) :]")],
        0.1,
    ),
    "rejected guess kept": (
        [(KEPT, KEPT.replace("accepted]", "accepted + 1]"))],
        0.1,
    ),
    "first guess kept unverified": (
        [(KEPT, KEPT.replace("verdict.accepted]", "max(1, verdict.accepted)]"))],
        0.05,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_faults_of_the_loop(name):
    changes, bound = LOOPS[name]
    assert check(library=broken_loop(*changes)) > bound


@pytest.mark.parametrize("change", ("pass", "self.state.rewind(read + 1)"))
def test_rejected_guesses_left_in_the_state_are_an_error(change):
    library = broken_loop(("self.state.rewind(read)", change))
    with pytest.raises(ValueError):
        check(library=library)


def test_a_model_that_forgets_the_wrong_tokens():
    """Its state has the right length after a rewind, and the wrong content."""
    first = "self._sequence[: check_rewind(length, self.length)]"
    last = "self._sequence[self.length - check_rewind(length, self.length) :]"
    changed = mutant(models, (first, last))
    rows = TARGET.logits_after
    target = changed.FunctionModel(rows, 3)
    real = whole_loop(target, sd.ModelDraft(OTHER), k=2, tokens=3, sampler=sd.Sampler())
    assert total_variation(real, plain(TARGET, 3, sampler=sd.Sampler())) > 0.05
    as_a_draft = sd.ModelDraft(changed.FunctionModel(OTHER.logits_after, 3))
    assert check(as_a_draft) < EXACT  # a draft with a wrong context is only worse


DROPPED = (
    (
        EMIT,
        EMIT + "\n        if len(emitted) > 1 and verdict.accepted == "
        "len(proposal.tokens):\n            emitted = emitted[:-1]",
    ),
    (
        "read = len(self.sequence) + accepted\n",
        "read = len(self.sequence) + len(emitted) - 1\n",
    ),
)


def test_a_dropped_bonus_is_seen_in_the_count_alone():
    """The text stays exact; what is lost is one token of each full round."""
    library = broken_loop(*DROPPED)
    draft = sd.ModelDraft(OTHER)
    assert check(draft, library=library) < EXACT
    equal = sd.ModelDraft(TARGET)
    arguments = {"draft": equal, "k": 4, "max_new_tokens": 20, "seed": 0}
    assert sd.generate(TARGET, PROMPT, **arguments).metrics.tokens_per_call == 5
    fewer = library.generate(TARGET, PROMPT, **arguments).metrics.tokens_per_call
    assert fewer < 4.5


STOPS = {
    "tokens kept after a stop id": ("emitted = emitted[: i + 1]", "pass"),
    "the stop id not kept": ("emitted = emitted[: i + 1]", "emitted = emitted[:i]"),
    "only the first row forbidden to stop": (
        "np.array(depths) < missing",
        "np.array(depths) < min(missing, 1)",
    ),
    "forbidden to stop for one token too long": (
        "len(prompt) + min_new_tokens  #",
        "len(prompt) + min_new_tokens + 1  #",
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_faults_of_stopping(name):
    library = broken_loop(STOPS[name])
    try:
        found = check(library=library, stop_ids=(2,), min_new_tokens=2, tokens=4)
    except IndexError:  # a round that emits nothing
        assert name == "the stop id not kept"
    else:
        assert found > 0.02


def test_a_budget_that_forgets_the_bonus():
    library = broken_loop(
        ("limit - len(self.sequence) - 1", "limit - len(self.sequence)")
    )
    assert check(library=library) > 0.1


def test_a_second_draw_after_a_mismatch():
    """Sample, compare with the guess, draw again where they differ: two chances."""

    def two_chances(p, proposal, rng):
        for i, token in enumerate(proposal.tokens):
            if rng.categorical(p[i]) != token:
                return sd.Verdict(i, rng.categorical(p[i]))
        return sd.Verdict(len(proposal.tokens), rng.categorical(p[-1]))

    def one_chance(p, proposal, rng):
        for i, token in enumerate(proposal.tokens):
            drawn = rng.categorical(p[i])
            if drawn != token:
                return sd.Verdict(i, drawn)
        return sd.Verdict(len(proposal.tokens), rng.categorical(p[-1]))

    for draft in (PointMass(), sd.ModelDraft(OTHER)):
        assert check(draft, verify=two_chances) > 0.05
        assert check(draft, verify=one_chance) < EXACT


@pytest.mark.parametrize(
    "rule",
    [
        lossy.verify_argmax,
        lossy.probability_threshold(0.5),
        lossy.ratio_threshold(0.5),
        lossy.logit_ratio(0.5),
    ],
)
def test_rules_that_only_look_right(rule):
    assert check(verify=rule) > 0.05


# The block rule.

UP_TO = "    for i in range(n - 1, -1, -1):\n"
ALL = "if n == 0 or rng.bernoulli(weights[n]):"
STAY = "i == 0 or (left > 0.0 and rng.bernoulli(left / (left + lost)))"
REST = "rng.categorical(residual(weighted, q_row))"
WEIGHT = "kept / proposed if kept < proposed else 1.0"


def first_failure(p, q, weights, rng):
    """How many prefixes pass in a row, the shortest first."""
    n = len(weights) - 1
    for i in range(1, n + 1):
        left = np.maximum(weights[i] * p[i] - q[i], 0).sum() if i < n else 0.0
        all_or_some = left / (left + (1 - weights[i])) if left > 0 else 0.0
        if not rng.bernoulli(weights[n] if i == n else all_or_some):
            return i - 1
    return n


BLOCKS = {
    # name: (changes, extra names, total variation at least)
    "judged from the front, up to the first failure": (
        [
            (ALL, "kept = judged(p, q, weights, rng)\n    if kept == n:"),
            (UP_TO, "    for i in [kept]:\n"),
            (STAY, "True"),
        ],
        {"judged": first_failure},
        0.02,
    ),
    "weights not clipped at 1": (
        [
            (WEIGHT, "kept / proposed"),
            (ALL, "if n == 0 or rng.bernoulli(min(1.0, weights[n])):"),
            ("lost = 1.0 - weights[i]", "lost = max(0.0, 1.0 - weights[i])"),
        ],
        {},
        0.04,
    ),
    "weights of each guess alone": (
        [("kept = weights[-1] * float(p[i, token])", "kept = float(p[i, token])")],
        {},
        0.2,
    ),
    "residual without the weight": (
        [(REST, "rng.categorical(residual(p[i], q_row))")],
        {},
        0.005,
    ),
    "a chance to stay without what was lost": (
        [("left / (left + lost)", "left / left")],
        {},
        0.05,
    ),
    "a chance to stay without the weight": (
        [("np.maximum(weighted - q_row, 0.0)", "np.maximum(p[i] - q_row, 0.0)")],
        {},
        0.005,
    ),
    "resample from p": ([(REST, "rng.categorical(p[i])")], {}, 0.1),
    "bonus from the row before": (
        [("rng.categorical(p[n])", "rng.categorical(p[max(n - 1, 0)])")],
        {},
        0.1,
    ),
    "the whole block or nothing": ([(STAY, "i == 0")], {}, 0.1),
    "the draft's next row": (
        [
            (
                "else q[i]\n        weighted",
                "else q[min(i + 1, n - 1)]\n        weighted",
            )
        ],
        {},
        0.05,
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_faults_of_the_block_rule(name):
    changes, names, bound = BLOCKS[name]
    rule = mutant(block, *changes, **names).verify_block
    k = 2 if name == "a chance to stay without the weight" else 3
    assert check(verify=rule, k=k, tokens=k + 1, way=merged) > bound


# The tree rule. Two guesses for the first place and one after each.

FORK = (-1, -1, 0, 1)
LEFT = "left = p[node + 1]"
NARROW = "left = residual(left, q_row)"
SIBLINGS = "for child in children[node]:"


def other(node, parents):
    """The sibling of ``node``, or itself where it has none."""
    same = [i for i, above in enumerate(parents) if above == parents[node]]
    return next((i for i in same if node not in (-1, i)), node)


TREES = {
    "residual not narrowed for the next sibling": (
        [("float(left[token])", "float(p[node + 1][token])")],
        {},
        0.02,
    ),
    "resample from p": ([(NARROW, "pass")], {}, 0.05),
    "residual of p at each sibling anew": (
        [(NARROW, "left = residual(p[node + 1], q_row)")],
        {},
        0.02,
    ),
    "the first sibling's draft row for all": (
        [("else q[child]", "else q[children[node][0]]")],
        {},
        0.02,
    ),
    "rows of siblings swapped": (
        [(LEFT, "left = p[other(node, proposal.parents or ()) + 1]")],
        {"other": other},
        0.05,
    ),
    "the parent's row": (
        [(LEFT, "left = p[proposal.parents[node] + 1 if node >= 0 else 0]")],
        {},
        0.05,
    ),
    "the depth taken for the row": ([(LEFT, "left = p[len(path)]")], {}, 0.05),
    "siblings judged in reverse": (
        [(SIBLINGS, "for child in reversed(children[node]):")],
        {},
        0.01,
    ),
}


def fork(draw="without replacement", module=trees):
    return module.TreeDraft(OTHER, PLAIN, FORK, draw)


@pytest.mark.parametrize("name", TREES)
def test_faults_of_the_tree_rule(name):
    changes, names, bound = TREES[name]
    rule = mutant(tree, *changes, **names).verify_tree
    assert check(fork(), verify=rule, way=merged) > bound


def by_tree(draft, target=TARGET, **options):
    return check(draft, target=target, verify=sd.verify_tree, **options)


DRAWN = "grown[planned] = len(tokens)\n"


@pytest.mark.parametrize(
    "change, draw, bound",
    [
        (  # drawn without replacement, reported as if drawn from all
            ("rows.append(row)", "rows.append(self._row([tokens[i] for i in branch]))"),
            "without replacement",
            0.02,
        ),
        (  # a guess that came twice is thrown away after it was drawn
            (
                DRAWN,
                "if token in [tokens[i] for i, above in enumerate(parents)"
                " if above == parent]:\n                continue\n            " + DRAWN,
            ),
            "with replacement",
            0.005,
        ),
        (  # likewise a guess of low confidence
            (
                DRAWN,
                "if row[token] < 0.3:\n                continue\n            " + DRAWN,
            ),
            "with replacement",
            0.05,
        ),
        (  # the best ones, with the probabilities of a draw
            ("rng.categorical(row) if sampled else", ""),
            "without replacement",
            0.05,
        ),
    ],
)
def test_faults_of_a_tree_draft(change, draw, bound):
    assert by_tree(fork(draw, mutant(trees, change)), way=merged) > bound


def sibling_of_all(path, parents):
    """A path of the same length that was not kept."""
    if not path:
        return path
    leaf = other(path[0], parents)
    return (leaf, parents.index(leaf)) if len(path) == 2 else (leaf,)


def not_what_stood_before_the_last(logits, prefix):
    logits = np.array(logits)
    logits[prefix[-2]] -= 3
    return logits


TREE_LOOPS = {
    # name: (change, extra names, total variation at least)
    "the wrong branch kept in the state": (
        ("self._keep(accepted, emitted, path)",
         "self._keep(accepted, emitted, wrong(path, proposal.parents))"),
        {"wrong": sibling_of_all},
        0.05,
    ),
    "kept tokens taken by place": (
        ("kept = tuple(proposal.tokens[node] for node in verdict.path)", "pass"),
        {},
        0.05,
    ),
    "processors shown the tree in its order": (
        ("for i in path_to(node, proposal.parents)", "for i in range(node + 1)"),
        {},
        0.02,
    ),
    "the order of nodes taken for their depth": (
        ("logits = self._forbid_stops(logits, depths)",
         "logits = self._forbid_stops(logits, range(n + 1))"),
        {},
        0.02,
    ),
    "guesses of a tree read as a chain": (
        ("*(stem + parent for parent in parents)",
         "*range(stem - 1, stem + len(parents) - 1)"),
        {},
        0.05,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREE_LOOPS)
def test_faults_of_the_loop_around_trees(name):
    change, names, bound = TREE_LOOPS[name]
    sampler = sd.Sampler(processors=(not_what_stood_before_the_last,))
    assert by_tree(
        fork(),
        TARGET if "chain" in name else ReadsTrees(TARGET),
        library=broken_loop(change, **names),
        sampler=sampler if "processors" in name else PLAIN,
        stop_ids=(2,) if "depth" in name else (),
        min_new_tokens=2 if "depth" in name else 0,
    ) > bound  # fmt: skip


def test_branches_read_one_after_the_other_without_going_back():
    straight = mutant(models, ("state.rewind(start + above)", "pass"))
    library = broken_loop(extend_by_branches=straight.extend_by_branches)
    assert by_tree(fork(), library=library) > 0.02


def test_a_rejected_stem_left_in_the_state_is_an_error():
    """A tree that begins with one guess: without a call for trees, the state has it."""
    library = broken_loop(("self.state.rewind(read)", "pass"))
    with pytest.raises(ValueError):
        by_tree(trees.TreeDraft(OTHER, PLAIN, (-1, 0, 0)), library=library)


# Faults of the random source cannot show in an enumeration, which takes its place.
# They are seen with a uniform number that is given.


@pytest.mark.parametrize(
    "change, call",
    [
        (("self._uniform() < _ch", "self._uniform() <= _ch"), "bernoulli"),
        (('side="right"', 'side="left"'), "categorical"),
    ],
)
def test_less_or_equal_in_place_of_less(change, call):
    def outcome(module):
        rng = module.SeededRandom(0)
        rng._uniform = lambda: 0.0
        return (
            rng.bernoulli(0.0) if call == "bernoulli" else rng.categorical([0.0, 1.0])
        )

    assert outcome(randomness) == (call == "categorical")
    assert outcome(mutant(randomness, change)) != outcome(randomness)


# Not faults: nothing to be seen.


def test_a_stale_draft_context_is_no_fault():
    body = "        tokens = check_tokens(tokens, self._model.vocab_size).tolist()\n"
    stale = broken_draft((body, "        return\n" + body))
    assert check(stale) < EXACT
    assert check(stale, k=3, tokens=4) < EXACT


def test_a_soft_draft_reported_as_a_point_mass_is_no_fault():
    """The rule is exact for each guess by itself, however it was found: it only
    accepts less, sum p q in place of sum min(p, q)."""
    hidden = broken_draft(("np.array(rows) if rows else None", "None"))
    assert check(hidden) < EXACT
    rate = {}
    for name, draft in (("hidden", hidden), ("open", sd.ModelDraft(OTHER))):
        accepted = sd.exact_distribution(
            lambda rng, draft=draft: (
                sd.generate(TARGET, PROMPT, draft=draft, k=1, max_new_tokens=2, rng=rng)
                .rounds[0]
                .accepted
            )
        )
        rate[name] = accepted[1]
    p, q = sd.Sampler()([TARGET.logits_after(PROMPT), OTHER.logits_after(PROMPT)])
    assert rate["hidden"] == pytest.approx((p * q).sum(), abs=EXACT)
    assert rate["open"] == pytest.approx(np.minimum(p, q).sum(), abs=EXACT)


@pytest.mark.parametrize("temperature", (0.0, 0.4, 3.0))
def test_a_draft_at_another_temperature_is_no_fault(temperature):
    assert check(sd.ModelDraft(OTHER, sd.Sampler(temperature))) < EXACT


def test_a_bad_draft_is_no_fault():
    assert check(sd.ModelDraft(table_model(77, scale=6.0))) < EXACT
