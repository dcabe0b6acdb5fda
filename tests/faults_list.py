"""What went wrong in other implementations, by its kind, and what watches for it here.

``FAULTS`` has one entry for each: the fault, and the tests that fail where this library
does the same, named by file and function under ``tests/``. ``why_not`` says why a
fault, or a part of it, cannot happen here. ``unit/test_faults_met.py`` holds this list
to what is there.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One kind of fault.

    kind
        what part it lies in.
    fault
        what went wrong.
    tests
        ``folder/module::function`` of the tests that watch for it.
    why_not
        what of it cannot happen here, and why; "" where all of it can.
    """

    kind: str
    fault: str
    tests: tuple[str, ...]
    why_not: str = ""


RULE, TEMPERATURE, ENDS = "the rule", "temperature and filters", "stops and lengths"
STATE, TEXT, RANDOM = "caches and state", "processors", "seeds and other requests"
FIGURES = "figures and times"

_RULES, _LOOP, _FIGURES = (
    f"unit/test_faults_{name}::" for name in ("rules", "loop", "figures")
)
_PLANTED = "exactness/test_planted_faults::"
_EXACT = "exactness/test_exact::"

FAULTS = (
    Fault(
        RULE,
        "The most probable guess is taken, and judged by the row it was not drawn from",
        (
            _RULES + "test_every_draft_reports_what_it_drew_from",
            _RULES + "test_a_draft_that_reports_something_else_is_seen",
            _RULES + "test_a_row_that_nothing_was_drawn_from_is_seen",
            _PLANTED + "test_a_greedy_draft_with_soft_probabilities",
        ),
    ),
    Fault(
        RULE,
        "The same once more, put back later because it is faster",
        (
            _RULES + "test_every_draft_reports_what_it_drew_from",
            _EXACT + "test_whole_loop",
        ),
    ),
    Fault(
        RULE,
        "A guess drawn from the filtered row, judged by the whole one",
        (
            _RULES + "test_every_draft_reports_what_it_drew_from",
            _RULES + "test_a_draft_that_reports_something_else_is_seen",
            _PLANTED + "test_a_filtered_draft_that_reports_the_raw_distribution",
        ),
    ),
    Fault(
        RULE,
        "After a rejection, a token from the target's row instead of the residual",
        (
            _RULES + "test_every_pair_of_distributions",
            _RULES + "test_two_guesses_of_any_distributions",
            _PLANTED + "test_faults_of_the_rule",
        ),
    ),
    Fault(
        RULE,
        "One draw decides that the guess is wrong, and another one is given out",
        (_PLANTED + "test_a_second_draw_after_a_mismatch",),
    ),
    Fault(
        RULE,
        "Accepting what equals a draw of the target taken for biased: it only accepts "
        "less",
        (
            _RULES + "test_every_law_of_guesses_that_are_reported_as_certain",
            _PLANTED + "test_a_second_draw_after_a_mismatch",
            _PLANTED + "test_a_soft_draft_reported_as_a_point_mass_is_no_fault",
        ),
    ),
    Fault(
        RULE,
        "One random number for all guesses, or the same one again and again",
        (
            _RULES + "test_guesses_stand_or_fall_each_by_a_number_of_its_own",
            _RULES + "test_no_number_is_used_twice_in_a_run",
            _PLANTED + "test_faults_of_the_rule",
        ),
    ),
    Fault(
        RULE,
        "NaN where nothing is left of the residual",
        (_RULES + "test_every_residual", _RULES + "test_every_pair_of_distributions"),
    ),
    Fault(
        RULE,
        "Any token at all where nothing is left of the residual",
        (_RULES + "test_every_residual", _RULES + "test_every_pair_of_distributions"),
    ),
    Fault(
        RULE,
        "Division by the draft's probability 0",
        (
            _RULES
            + "test_a_guess_that_cannot_have_been_drawn_is_an_error_at_every_place",
            "unit/test_verification::test_a_ratio_too_large_for_a_float",
        ),
    ),
    Fault(
        RULE,
        "The first guess taken without being judged",
        (
            _RULES + "test_every_pattern_of_right_and_wrong_guesses",
            _LOOP + "test_every_prompt_against_every_k_up_to_the_end_of_the_window",
            _PLANTED + "test_faults_of_the_loop",
        ),
    ),
    Fault(
        RULE,
        "Rows shifted by one, which models without context do not show",
        (
            _RULES + "test_every_pattern_of_right_and_wrong_guesses",
            _LOOP + "test_every_prompt_against_every_k_up_to_the_end_of_the_window",
            _PLANTED + "test_faults_of_the_loop",
        ),
    ),
    Fault(
        RULE,
        "No bonus after a whole round, or one after a rejection",
        (
            _RULES + "test_every_pattern_of_right_and_wrong_guesses",
            "unit/test_decoding"
            "::test_a_draft_equal_to_the_target_gives_k_plus_one_tokens_a_call",
        ),
    ),
    Fault(
        RULE,
        "Several guesses for one place change the distribution",
        (
            _RULES + "test_several_guesses_for_one_place_leave_every_law_as_it_is",
            "exactness/test_block_and_trees::test_tree_rule",
            "exactness/test_block_and_trees::test_greedy_output_is_one_text",
        ),
    ),
    Fault(
        RULE,
        "A row that is missing replaced by another rule, in silence",
        (
            _RULES + "test_a_wrong_number_of_rows_is_an_error",
            _RULES + "test_every_draft_reports_what_it_drew_from",
        ),
        "A proposal without any rows is one of certain guesses, and judged as such: "
        "that is exact for every guess.",
    ),
    Fault(
        TEMPERATURE,
        "Division by a tiny temperature; ties with another rule than plain decoding",
        (
            _FIGURES + "test_every_temperature_at_every_scale_of_logits",
            _FIGURES + "test_ties_have_one_rule_with_and_without_guesses",
        ),
    ),
    Fault(
        TEMPERATURE,
        "A wrong cache excused by the rounding of low precision",
        (
            "llama/test_loop"
            "::test_greedy_texts_part_only_where_two_tokens_are_all_but_equal",
            "llama/test_loop::test_greedy_text",
            "llama/test_huggingface::test_greedy_text_is_the_same_with_any_draft",
            _LOOP + "test_every_row_of_every_model_is_that_of_a_fresh_reading",
        ),
    ),
    Fault(
        TEMPERATURE,
        "The nucleus without the token that crosses the threshold",
        (_FIGURES + "test_the_nucleus_of_every_distribution_at_every_threshold",),
    ),
    Fault(
        TEMPERATURE,
        "A filter, a bias or a temperature on one side alone",
        (
            _LOOP
            + "test_what_the_target_filters_never_comes_from_a_draft_that_does_not",
            _EXACT + "test_cases_taken_at_random",
            _PLANTED + "test_a_target_without_its_filters",
        ),
    ),
    Fault(
        TEMPERATURE,
        "Probabilities of coarse types that do not sum to 1 closely enough to draw",
        (
            "unit/test_randomness::test_coarse_distributions_of_a_large_vocabulary",
            "unit/test_sampling::test_float32_logits_sum_to_one_in_float64",
        ),
    ),
    Fault(
        ENDS,
        "More tokens than were asked for",
        (
            _LOOP + "test_every_budget_is_kept_to_the_token",
            _LOOP + "test_every_prompt_against_every_k_up_to_the_end_of_the_window",
        ),
    ),
    Fault(
        ENDS,
        "The text goes on after a stop token inside a round",
        (_LOOP + "test_a_stop_at_every_place_of_a_round_ends_the_text_there",),
    ),
    Fault(
        ENDS,
        "No stop token where one is compared with",
        (
            _LOOP + "test_without_a_stop_id_it_runs_to_the_budget",
            "unit/test_decoding::test_without_stop_ids_it_runs_to_the_budget",
        ),
    ),
    Fault(
        ENDS,
        "A stop string early in a long round missed, or tokens behind it given out",
        (
            "unit/test_engine"
            "::test_text_and_stop_strings_do_not_depend_on_tokens_or_rounds",
            "unit/test_engine::test_nothing_is_given_out_that_a_stop_string_takes_back",
            "unit/test_engine::test_a_stop_string_early_in_a_long_round",
            "unit/test_engine::test_tokens_are_those_that_the_text_needs",
        ),
        "No log probabilities are given out that would have to be cut with the text.",
    ),
    Fault(
        ENDS,
        "Guesses that run over the end of the context window, the target's or the "
        "draft's",
        (
            _LOOP + "test_every_prompt_against_every_k_up_to_the_end_of_the_window",
            _LOOP + "test_every_prompt_with_a_length_that_is_chosen",
            _LOOP + "test_a_draft_whose_window_is_any_shorter_or_longer",
            "exactness/test_block_and_trees::test_context_windows",
            "llama/test_loop"
            "::test_every_prompt_against_every_k_up_to_the_end_of_the_window",
        ),
    ),
    Fault(
        ENDS,
        "A prompt shorter than an n-gram or a match, or an empty one",
        (
            _LOOP + "test_every_prompt_against_every_length_that_is_looked_back",
            "unit/test_lookup::test_every_short_text_and_every_match_length",
            "unit/test_suffixes::test_any_prompt_length",
            "unit/test_decoding::test_an_empty_prompt_without_bos",
        ),
    ),
    Fault(
        ENDS,
        "A ratio of nothing where nothing was drafted",
        (
            _FIGURES + "test_ratios_of_nothing_are_none_wherever_they_are_made",
            "unit/test_metrics::test_a_ratio_of_nothing_is_none",
            "service/test_answers::test_an_answer_is_the_librarys",
        ),
    ),
    Fault(
        STATE,
        "A cache that is not rolled back after a rejection, or thrown away by it",
        (
            _LOOP + "test_every_row_of_every_model_is_that_of_a_fresh_reading",
            "unit/test_decoding::test_the_state_after_every_round",
            "llama/test_state::test_any_order_of_calls",
            "llama/test_huggingface::test_any_order_of_calls",
        ),
    ),
    Fault(
        STATE,
        "Only the first layer rolled back",
        (
            "llama/test_state::test_any_order_of_calls",
            "llama/test_huggingface::test_every_layer_is_rewound",
        ),
    ),
    Fault(
        STATE,
        "Copies from the request before",
        (
            _LOOP + "test_a_request_knows_nothing_of_others",
            _LOOP + "test_a_length_that_learns_forgets_between_requests",
            "unit/test_suffixes::test_sessions_share_nothing_unless_asked",
        ),
    ),
    Fault(
        STATE,
        "A continuation shorter than k thrown away, or the end found as its own match",
        (
            "unit/test_lookup::test_every_short_text_and_every_match_length",
            "unit/test_lookup::test_planted_faults_are_seen",
            "unit/test_suffixes::test_every_proposal_is_that_of_the_plain_rule",
        ),
    ),
    Fault(
        STATE,
        "Target and draft with vocabularies that differ",
        (
            _FIGURES + "test_another_size_of_vocabulary_is_an_error_before_any_work",
            _FIGURES
            + "test_an_engine_is_not_made_of_parts_that_do_not_belong_together",
            "unit/test_hostile_models"
            "::test_vocabularies_of_one_size_with_other_strings",
            "unit/test_pair::test_vocabularies_must_agree",
            "llama/test_answers::test_answers_that_do_not_fit",
            "llama/test_huggingface::test_vocabularies",
            "llama/test_huggingface::test_ids_that_are_padding",
        ),
        "Models that nobody gave the name of a vocabulary, as plain callables, can "
        "only be compared by its size.",
    ),
    Fault(
        STATE,
        "A default or a flag that was never used, and does nothing or fails",
        (
            _FIGURES + "test_defaults_alone",
            _FIGURES + "test_methods_with_defaults_alone",
            _FIGURES + "test_every_public_name_is_in_the_list_of_what_is_called_alone",
            _FIGURES + "test_every_flag_of_distill_reaches_what_distils",
            _FIGURES + "test_every_flag_of_bench_changes_what_is_measured",
            "unit/test_cli::test_every_decoding_flag_changes_the_result",
            "unit/test_cli::test_every_training_flag_changes_the_model",
            "service/test_process::test_every_flag_changes_its_setting",
            "scale/test_command::test_every_flag_changes_the_records",
            "llama/test_command::test_every_flag_changes_the_answer",
        ),
    ),
    Fault(
        TEXT,
        "A penalty that does not see the guesses of its own round",
        (
            _LOOP + "test_what_a_processor_sees_does_not_depend_on_k",
            _EXACT + "test_processors_on_the_target_alone",
            "exactness/test_block_and_trees::test_processors_see_their_own_branch",
        ),
    ),
    Fault(
        RANDOM,
        "A seed that is ignored, or shared with other requests",
        (
            _RULES + "test_no_number_is_used_twice_in_a_run",
            _LOOP + "test_a_request_knows_nothing_of_others",
            "service/test_answers::test_many_at_once_are_not_mixed_up",
        ),
    ),
    Fault(
        RANDOM,
        "Requests of which one accepts more than the other spoil each other's caches",
        (
            _LOOP + "test_a_request_knows_nothing_of_others",
            "service/test_answers::test_many_at_once_are_not_mixed_up",
        ),
        "There are no batches: each request has states of its own.",
    ),
    Fault(
        RANDOM,
        "A log probability that is missing, or not the target's",
        (
            _FIGURES
            + "test_the_probability_that_is_told_of_a_token_is_the_targets_own",
            "service/test_refusals::test_what_openai_has_and_this_has_not_is_refused",
        ),
        "None are given out but by token_notes; the service refuses to be asked.",
    ),
    Fault(
        FIGURES,
        "Guesses after the first rejection counted as accepted, the bonus counted away",
        (
            _RULES + "test_every_pattern_of_right_and_wrong_guesses",
            "unit/test_metrics::test_rounds_of_all_and_nothing",
        ),
    ),
    Fault(
        FIGURES,
        "One name for the tokens of a round with the bonus and without it",
        (
            _RULES + "test_every_pattern_of_right_and_wrong_guesses",
            "unit/test_metrics"
            "::test_tokens_per_call_counts_the_bonus_and_accepted_does_not",
        ),
    ),
    Fault(
        FIGURES,
        "A correction counted as accepted",
        (
            _RULES + "test_every_pattern_of_right_and_wrong_guesses",
            "unit/test_metrics::test_a_correction_is_not_accepted",
        ),
    ),
    Fault(
        FIGURES,
        "Tokens a second with the prompt, by characters, or by what was never written",
        (
            _FIGURES + "test_tokens_a_second_are_the_new_tokens_over_their_time",
            "llama/test_command::test_a_slow_terminal_is_not_counted",
            "service/test_load::test_a_row_by_hand",
        ),
    ),
    Fault(
        FIGURES,
        "A formula without the bonus, or without the draft's cost",
        (
            "unit/test_theory::test_expected_tokens_over_all_outcomes",
            "unit/test_theory::test_expected_tokens_is_what_the_loop_does",
            "unit/test_theory::test_speedup_by_hand",
            "unit/test_theory::test_speedup_over_a_simulated_clock",
        ),
    ),
    Fault(
        FIGURES,
        "The first call, which compiles or loads, counted with the others",
        (
            _FIGURES + "test_tokens_a_second_are_the_new_tokens_over_their_time",
            "unit/test_comparison::test_a_slow_first_call_changes_nothing",
            "unit/test_comparison::test_slow_turns_change_nothing",
            "unit/test_bench_timing::test_the_first_block_is_not_counted",
            "service/test_metrics::test_times_are_the_answers",
        ),
    ),
    Fault(
        FIGURES,
        "Tests that cut or wrong answers pass",
        (
            _FIGURES + "test_texts_that_are_cut_are_not_the_same",
            _PLANTED + "test_faults_of_the_rule",
            _PLANTED + "test_a_dropped_bonus_is_seen_in_the_count_alone",
            _PLANTED + "test_less_or_equal_in_place_of_less",
            "service/test_load::test_a_wrong_answer_is_seen",
        ),
    ),
    Fault(
        FIGURES,
        "A speed told of another answer",
        (
            _FIGURES + "test_texts_that_are_cut_are_not_the_same",
            "unit/test_comparison::test_no_speedup_for_a_wrong_answer",
            "unit/test_bench_speeds::test_no_speedup_for_another_text",
        ),
    ),
    Fault(
        FIGURES,
        "A speedup, or none, without what it comes from",
        (
            _FIGURES + "test_every_speedup_has_its_causes_and_its_prediction_beside_it",
            "statistics/test_prediction::test_the_formula_predicts_the_speedup",
        ),
    ),
)
