//! One call per store: all that every store must do.

use crate::World;
use std::pin::Pin;
use std::sync::Arc;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::Store;

/// Something that is there later.
pub type Later<'l, T> = Pin<Box<dyn Future<Output = T> + Send + 'l>>;

/// A store under test, with what tests need and users must not have.
pub trait Harness: Send {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// From now on this worker counts as dead, as if its process were gone.
    fn kill(&self, worker: WorkerId);

    /// Closes the store and opens it again: what was acknowledged is still there. A store that
    /// lives in memory stays as it is. Workers that were alive may count as dead afterwards.
    fn reopen(&mut self) -> Later<'_, ()>;
}

/// A part of a test, which stays on its thread.
pub type TestPart<'p, T> = Pin<Box<dyn Future<Output = T> + 'p>>;

/// Runs one case on a new store, and looks afterwards whether the store is sound.
///
/// It takes boxed futures, so that it is compiled once and not for every case.
///
/// # Panics
/// If the case does, or if the store contradicts itself.
pub fn check(
    open: fn() -> TestPart<'static, Box<dyn Harness>>,
    case: for<'w> fn(&'w mut World) -> TestPart<'w, ()>,
) {
    check_with(async || open().await, async |world| case(world).await);
}

/// Runs one case like [`check`]; for cases that have more than a world.
///
/// # Panics
/// If the case does, or if the store contradicts itself.
pub fn check_with(
    open: impl AsyncFnOnce() -> Box<dyn Harness>,
    case: impl AsyncFnOnce(&mut World),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        let mut world = World::new(open().await);
        case(&mut world).await;
        world.finish().await;
    });
}

/// All that every store must do, as a module of tests, one for each sentence.
///
/// ```
/// use std::sync::Arc;
/// use tidegate_core::lifecycle::WorkerId;
/// use tidegate_core::memory::MemoryStore;
/// use tidegate_core::store::Store;
/// use tidegate_testkit::{Harness, Later, conformance};
///
/// struct Memory(Arc<MemoryStore>);
///
/// impl Harness for Memory {
///     fn store(&self) -> Arc<dyn Store> {
///         self.0.clone()
///     }
///     fn kill(&self, worker: WorkerId) {
///         self.0.kill(worker);
///     }
///     fn reopen(&mut self) -> Later<'_, ()> {
///         Box::pin(async {})
///     }
/// }
///
/// conformance!(memory, async || Memory(Arc::default()));
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    ($name:ident, $open:expr) => {
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports, reason = "how the store is opened may need them or not")]
            use super::*;

            $crate::conformance! { @cases $open;
                submits:
                    a_submit_is_found_afterwards_with_its_tasks
                    what_was_never_submitted_is_not_found
                    a_submitted_run_comes_back_begun_where_units_are_free
                    what_was_submitted_is_ready_for_others_when_nobody_takes_it
                    what_fits_neither_now_nor_ahead_stays_ready_and_the_answer_says_so
                    a_run_with_a_start_time_is_not_taken_before
                    a_start_time_that_has_passed_holds_nothing_back
                    what_has_come_due_stands_behind_what_was_ready_before
                    the_same_key_gives_the_run_that_has_it
                    the_same_key_with_another_input_is_refused_naming_both
                    a_key_counts_inside_one_request_too
                    a_key_is_unique_in_its_queue_and_workflow_only
                    a_key_is_kept_when_its_run_has_ended
                    tasks_without_dependencies_are_all_ready_at_once
                    ;
                claims:
                    what_was_ready_first_is_taken_first
                    of_those_ready_at_the_same_time_the_first_come_goes_first
                    the_priority_of_a_run_is_a_head_start_in_seconds
                    the_priority_of_a_task_adds_to_that_of_its_run
                    what_waits_longer_is_taken_before_what_is_submitted_in_the_same_request
                    what_is_too_heavy_for_a_worker_hides_nobody
                    what_a_worker_does_not_know_hides_nobody
                    a_worker_that_can_do_whatever_there_is_gets_all_of_its_queues
                    a_queue_that_a_worker_does_not_serve_hides_nobody
                    a_worker_begins_what_fits_into_its_units_by_weight
                    who_asks_for_nothing_gets_nothing
                    a_worker_that_is_not_known_gets_nothing
                    two_workers_never_get_the_same_task
                    a_fence_grows_by_one_with_every_claim
                    what_was_taken_ahead_begins_when_its_worker_says_so
                    what_a_request_takes_away_hides_nobody
                    a_clock_that_goes_back_stops_nothing
                    ;
                graphs:
                    an_end_unblocks_the_next_which_is_taken_in_the_same_request
                    what_was_unblocked_has_its_place_from_then_on
                    outputs_of_parents_and_inserts_of_all_above_reach_a_task
                    what_a_task_returned_is_stored_with_its_success_only
                    two_last_parents_in_one_request_let_their_child_go_once
                    two_last_parents_in_two_requests_let_their_child_go_with_the_second
                    last_parents_at_two_workers_let_their_child_go
                    every_rule_holds_across_the_store
                    any_succeeded_is_skipped_when_nobody_did
                    a_failure_skips_all_that_depends_on_it
                    fail_fast_lets_finish_what_computes_and_cancels_the_rest
                    fail_fast_ends_what_begins_to_wait_or_fails_after_the_failure
                    fail_fast_kill_stops_what_computes_and_then_cleans_up
                    what_was_told_to_stop_may_still_succeed_and_nothing_else
                    keep_going_goes_on_with_all_that_does_not_depend_on_the_failure
                    a_wide_run_ends_with_its_last_task
                    ends_of_several_runs_in_one_request_do_not_touch_each_other
                    ;
                items:
                    a_running_task_begins_a_run_of_its_items
                    only_a_task_that_runs_by_that_right_begins_items
                    a_task_that_is_claimed_or_waits_may_begin_items
                    a_later_entry_finds_the_items_that_were_begun
                    items_begun_in_a_request_whose_answer_was_lost_are_not_doubled
                    items_have_the_queue_and_the_priority_of_their_parents_run
                    an_item_is_given_what_its_parent_is_given_and_its_item
                    whoever_knows_the_task_gets_its_items_and_nobody_else
                    two_tasks_of_a_run_have_items_of_their_own
                    cancelling_the_parents_run_cancels_its_items_and_tells_their_worker
                    fail_fast_in_the_parents_run_cancels_its_items
                    an_item_that_fails_stops_the_run_of_its_list
                    items_end_with_their_parent_also_in_a_request_that_speaks_of_them_first
                    items_begun_in_the_request_that_ends_their_parent_are_over_with_it
                    items_are_cancelled_when_their_parent_meets_its_deadline
                    items_are_cancelled_when_their_parent_fails_for_good
                    items_are_cancelled_when_their_parent_is_the_cause_of_deaths
                    items_of_a_parent_that_was_to_stop_are_cancelled_when_it_has
                    a_parents_success_leaves_its_items_alone
                    a_parent_that_goes_on_elsewhere_leaves_its_items_alone
                    the_death_of_an_items_worker_bears_on_that_item_alone
                    a_run_of_items_can_be_cancelled_by_itself
                    items_are_paused_and_unpaused_with_their_parents_run
                    items_begun_in_a_pause_wait_for_its_end
                    items_begun_in_the_request_of_a_pause_wait_for_its_end
                    items_fail_fast_or_keep_going_as_they_are_told
                    an_item_is_tried_again_by_itself
                    two_thousand_items_go_through_and_their_run_ends_with_the_last
                    two_thousand_items_are_cancelled_in_one_request
                    ;
                retries:
                    a_failure_is_tried_again_after_its_back_off_until_no_attempt_is_left
                    the_back_off_of_a_plan_grows_as_it_says
                    a_permanent_failure_is_not_tried_again
                    every_way_to_fail_keeps_its_reason
                    a_retry_without_a_pause_is_taken_in_the_same_request
                    a_snooze_uses_no_attempt
                    several_things_that_happened_since_are_written_in_one_go_or_not_at_all
                    ;
                clocks:
                    request_by_the_clock_of_the_store_gets_its_time
                    what_is_ready_for_too_long_times_out
                    what_was_taken_and_has_not_begun_times_out_too
                    what_has_begun_has_no_queue_time_any_more
                    queue_time_counts_from_when_it_could_have_begun
                    a_deadline_counts_from_the_first_start
                    a_deadline_ends_a_task_in_every_state_it_can_be_in
                    the_alarm_is_the_earliest_of_all
                    what_is_parked_is_woken_at_its_time_and_not_before
                    what_is_parked_without_a_time_stays_so
                    a_time_out_is_a_failure_for_the_rest_of_its_run
                    what_time_has_freed_is_taken_in_the_same_request
                    a_start_time_holds_back_only_what_comes_first
                    ;
                pauses:
                    while_paused_nothing_starts_and_what_has_begun_goes_on
                    a_pause_stops_its_own_and_nobody_else
                    what_is_submitted_to_a_paused_queue_or_store_waits
                    what_is_paused_in_a_request_is_not_taken_in_it
                    pausing_twice_is_pausing_once
                    only_a_run_that_is_there_and_open_can_be_paused
                    several_pauses_must_all_end
                    queue_time_stands_still_while_paused
                    of_pauses_that_overlap_each_stretch_counts_once
                    a_pause_before_a_task_was_ready_does_not_count
                    a_pause_of_another_queue_or_run_does_not_count
                    a_deadline_does_not_stand_still
                    a_start_time_that_passes_in_a_pause_is_not_lost
                    tasks_of_a_paused_run_are_counted_as_such
                    a_paused_run_can_end
                    ;
                cancel:
                    a_run_that_nobody_has_taken_is_over_at_once
                    a_run_that_a_worker_has_is_over_at_once_and_the_worker_is_told
                    a_parked_run_is_over_at_once
                    a_run_in_back_off_is_over_at_once
                    a_cancelled_run_stays_cancelled_in_the_request_that_finishes_it
                    cancelling_spares_what_has_ended_and_cancels_clean_up
                    a_failing_run_that_is_cancelled_counts_as_cancelled
                    a_run_that_is_over_or_unknown_cannot_be_cancelled
                    tasks_behind_the_first_are_over_too_whatever_their_worker_says
                    a_run_that_ends_in_the_request_that_cancels_it_has_ended_as_it_says
                    what_is_said_of_a_task_that_does_not_exist_is_lost
                    ;
                deaths:
                    what_a_dead_worker_had_is_ready_for_others
                    who_takes_over_can_take_it_in_the_same_request
                    a_dead_worker_that_had_nothing_is_forgotten
                    a_stale_fence_writes_nothing
                    a_fence_of_the_future_writes_nothing
                    who_dies_too_often_while_active_is_the_cause
                    a_suspect_is_taken_but_not_begun_although_units_are_free
                    a_suspect_is_taken_also_where_nothing_is_taken_ahead
                    getting_on_forgets_earlier_deaths
                    a_death_while_waiting_is_nobodys_fault
                    what_was_to_stop_when_its_worker_died_is_over
                    more_than_fits_into_a_request_is_taken_over_in_several
                    exactly_as_many_as_fit_into_a_request_are_all_taken_over
                    what_is_handed_back_is_ready_for_others
                    a_roll_call_tells_a_worker_all_that_it_owns
                    numbers_of_workers_are_never_used_again
                    who_goes_and_still_owns_something_is_taken_over_like_the_dead
                    dismissed_worker_is_told_that_it_is_unknown_and_claims_nothing
                    ;
                waits:
                    a_step_that_was_stored_is_given_to_the_next_entry
                    what_a_step_came_to_may_be_nothing_or_any_bytes
                    every_way_to_end_is_read_back_as_it_was_written
                    open_waits_and_ended_ones_are_given_with_the_claim
                    waits_are_given_with_tasks_taken_in_the_request_that_stores_them
                    a_wait_for_another_thing_at_the_same_place_is_refused_naming_both
                    the_first_end_of_a_wait_stands
                    a_wait_that_is_closed_is_as_if_it_had_never_begun
                    what_is_asked_in_a_request_whose_answer_was_lost_is_answered_again
                    what_is_asked_together_with_what_is_lost_is_not_begun
                    only_who_runs_a_task_has_waits_of_it
                    a_new_attempt_keeps_steps_signals_and_children_and_nothing_else
                    all_waits_outlive_a_hand_back_a_death_and_a_park
                    an_ended_task_takes_no_signal_any_more
                    a_wait_for_a_run_ends_with_that_run_and_in_its_way
                    all_who_wait_for_a_run_are_told_of_its_end
                    a_run_that_has_ended_or_ends_in_the_same_request_answers_at_once
                    a_run_that_is_not_there_cannot_be_waited_for
                    a_run_of_another_queue_can_be_waited_for
                    a_cycle_of_waits_is_refused_when_it_closes_naming_its_runs
                    a_wait_that_is_over_closes_no_cycle
                    a_cycle_through_children_is_refused
                    many_may_wait_for_one_run_and_one_for_many
                    ;
                signals:
                    a_signal_sent_before_the_wait_is_there_when_it_begins
                    a_signal_sent_after_the_wait_has_begun_ends_it
                    a_signal_and_the_wait_for_it_meet_in_one_request
                    a_signal_may_bring_nothing
                    signals_of_a_name_are_received_in_the_order_they_were_sent
                    signals_of_another_name_or_to_another_run_are_not_received
                    a_signal_is_received_by_the_oldest_wait_and_by_no_other
                    of_waits_that_began_at_the_same_time_the_first_task_receives
                    several_signals_in_one_request_go_to_several_waits
                    a_run_that_is_over_or_unknown_receives_nothing
                    a_signal_sent_in_a_request_whose_answer_was_lost_is_not_doubled
                    a_signal_whose_answer_was_lost_was_sent_also_when_its_run_has_ended
                    a_signal_of_a_wait_that_is_closed_goes_to_the_next_who_waits
                    a_signal_of_a_wait_that_is_closed_is_there_in_its_old_place
                    a_wait_that_is_closed_while_open_receives_nothing
                    a_signal_to_a_task_at_another_worker_leaves_word
                    word_of_a_task_that_has_gone_elsewhere_is_not_heard
                    who_is_cancelled_behind_its_workers_back_is_told_with_its_next_request
                    who_is_to_stop_behind_its_workers_back_is_told_and_not_asked
                    items_receive_the_signals_of_the_run_whose_items_they_are
                    a_signal_to_a_run_of_items_goes_to_the_run_whose_items_they_are
                    ;
                parks:
                    a_signal_wakes_who_is_parked_and_is_taken_with_it_in_the_same_request
                    who_was_woken_by_a_signal_with_nobody_there_is_ready_from_then_on
                    the_end_of_a_run_wakes_all_who_are_parked_on_it_in_the_same_request
                    cancelling_a_run_wakes_who_is_parked_on_it
                    time_wakes_who_is_parked_with_its_waits_as_they_are
                    what_comes_while_a_task_is_about_to_park_wakes_it
                    what_comes_in_the_request_of_a_park_wakes_it_wherever_it_is_said
                    who_parks_on_several_is_woken_by_the_first
                    who_parks_on_a_wait_that_is_not_there_is_woken
                    a_park_whose_answer_was_lost_is_yes_again_also_when_it_was_woken_since
                    who_is_woken_in_a_pause_waits_for_its_end
                    who_is_cancelled_while_parked_receives_nothing_any_more
                    a_parked_task_of_a_failing_run_is_over_and_not_woken
                    a_wait_that_is_closed_hands_its_signal_to_who_is_parked
                    a_thousand_parked_tasks_are_woken_by_one_end_of_a_run
                    ;
                children:
                    a_task_begins_a_run_and_is_told_of_its_end
                    a_child_is_taken_in_the_request_that_begins_it_and_its_end_is_the_answer
                    a_child_has_the_queue_and_the_priority_of_its_parents_run_unless_told
                    a_later_entry_finds_its_child_and_begins_no_other
                    a_child_begun_in_a_request_whose_answer_was_lost_is_not_doubled
                    a_task_that_asks_for_another_child_at_the_same_place_is_refused
                    only_who_runs_begins_children
                    a_child_is_cancelled_when_its_parent_ends_other_than_by_success
                    fail_fast_in_the_parents_run_cancels_children_of_those_that_wait
                    a_child_is_cancelled_when_it_is_not_waited_for_any_more
                    closing_the_wait_for_a_child_that_has_ended_changes_nothing
                    closing_the_wait_for_another_run_leaves_that_run_alone
                    a_child_whose_parent_has_lost_patience_is_still_its_own
                    a_child_that_waits_for_its_parent_is_not_waited_for_anew
                    a_parents_success_leaves_its_child_alone
                    children_are_cancelled_down_to_the_last
                    a_child_is_paused_and_unpaused_with_its_parents_run
                    a_child_with_a_key_that_is_taken_is_waited_for_and_not_owned
                    a_child_may_wait_for_its_sibling
                    a_claim_of_what_is_awaited_takes_nothing_else
                    what_is_awaited_comes_in_beyond_the_room_there_is_for_others
                    what_was_ready_before_somebody_waited_for_it_is_awaited_too
                    tasks_that_become_ready_in_an_awaited_run_are_awaited
                    awaited_and_other_tasks_are_taken_in_one_order
                    a_task_may_have_many_children
                    a_run_of_items_is_such_a_child
                    ;
                limits:
                    no_more_than_a_limit_allows_run_at_once
                    a_limit_holds_across_workers
                    a_task_takes_as_many_units_as_it_says
                    each_key_of_a_limit_is_counted_by_itself
                    two_keys_of_one_limit_that_are_the_same_add_up
                    a_task_takes_all_its_limits_or_none
                    who_stands_behind_another_limit_lets_the_next_through
                    a_task_with_limits_is_taken_only_to_begin_at_once
                    limits_are_kept_while_a_task_waits
                    who_is_woken_takes_its_limits_anew
                    every_way_out_gives_limits_back
                    what_is_claimed_in_a_request_whose_answer_was_lost_holds_its_limits_once
                    a_limit_that_is_there_is_not_changed_by_a_declaration
                    a_change_of_a_limit_whose_answer_was_lost_is_as_wanted_again
                    what_needs_a_limit_that_nobody_has_declared_waits_for_it
                    a_larger_limit_lets_through_in_order
                    a_limit_that_changes_in_a_request_is_the_new_one_from_then_on
                    a_smaller_limit_takes_nothing_away
                    what_is_heavier_than_a_smaller_limit_goes_alone
                    tasks_behind_a_full_limit_hide_nobody
                    what_nobody_can_claim_is_not_in_the_way_of_what_somebody_can
                    who_is_let_through_and_goes_lets_the_next_through
                    a_task_behind_a_limit_can_be_cancelled_paused_and_time_out
                    who_is_put_behind_a_limit_by_a_clock_that_is_behind_is_let_through
                    a_thousand_and_more_are_let_through_in_several_requests
                    a_task_that_keeps_a_limit_its_child_needs_is_refused_by_name
                    a_limit_that_bounds_only_a_rate_is_no_reason_to_refuse
                    another_key_of_the_same_limit_is_no_reason_to_refuse
                    a_limit_kept_further_up_is_a_reason_to_refuse
                    ;
                retakes:
                    a_wait_may_give_limits_back
                    a_wait_that_has_ended_at_once_gives_nothing_back
                    what_was_begun_takes_its_limits_again_before_what_is_ready
                    who_waits_for_its_limits_is_told_also_at_another_worker
                    who_waits_for_its_limits_keeps_its_place_whatever_it_says
                    limits_given_back_in_the_request_that_asks_for_them_are_taken
                    a_limit_that_grows_in_the_request_that_asks_for_it_is_taken
                    limits_are_retaken_together_or_not_at_all
                    who_goes_on_behind_another_limit_is_not_in_the_way
                    a_run_of_items_is_waited_for_without_the_limits_that_are_given_back
                    who_goes_while_it_waits_for_its_limits_is_not_waited_for
                    ;
                rates:
                    a_rate_bounds_how_many_begin_in_a_stretch_of_time
                    a_rate_slides_with_each_begin
                    rate_of_many_begins_is_exact
                    who_is_left_behind_by_who_is_let_through_a_rate_has_its_time
                    a_rate_and_a_bound_at_once_both_hold
                    who_goes_on_after_a_wait_counts_no_second_time_in_a_rate
                    a_clock_that_goes_back_stops_a_rate_for_two_stretches_at_most
                    a_rate_holds_in_every_stretch_of_time_whatever_happens
                    ;
                chance:
                    nobody_waits_for_room_that_is_there_and_no_limit_is_exceeded
                    ;
                lost_answers:
                    a_submit_is_not_doubled
                    a_submit_under_a_taken_key_is_answered_the_same
                    a_request_that_never_arrived_is_taken_as_if_new
                    every_end_of_an_entry_is_yes_again_and_recorded_once
                    a_finish_with_all_that_followed_is_yes_again
                    the_end_of_a_run_is_told_again
                    a_retry_and_its_claim_are_yes_again
                    claims_are_given_again_as_they_were_and_no_others
                    a_claim_that_got_nothing_may_get_something_again
                    a_request_that_is_handed_in_again_begins_nothing_under_a_limit
                    what_the_request_only_told_of_is_not_given_again_as_claimed
                    a_hand_back_is_yes_again_also_when_another_has_taken_it_since
                    what_was_lost_is_lost_again
                    a_take_over_goes_on_where_it_was
                    requests_are_as_wanted_again
                    ;
                reading:
                    every_life_is_read_back_as_it_was_written
                    a_wish_to_stop_is_read_back
                    a_record_says_when_where_and_why_an_entry_ended
                    records_are_read_page_by_page_of_one_run_or_of_all
                    of_several_runs_those_that_are_over_or_gone_are_told
                    runs_are_listed_from_new_to_old_page_by_page
                    a_list_of_runs_can_be_narrowed
                    runs_that_tasks_have_begun_are_told_from_those_that_none_has
                    runs_are_found_by_their_ids
                    all_workers_that_are_known_are_listed
                    a_listed_run_is_what_it_is_when_looked_at
                    tasks_are_counted_where_they_stand
                    tasks_that_no_worker_can_run_are_named_with_the_reason
                    the_last_error_of_a_task_is_shown
                    ;
                explain:
                    what_is_not_there_is_not_explained
                    a_blocked_task_names_those_that_it_waits_for
                    a_start_time_a_back_off_and_a_snooze_are_told_apart
                    a_limit_that_is_full_names_its_holders_and_who_stands_before
                    a_rate_that_is_reached_says_when_the_next_may_begin
                    a_limit_that_is_not_declared_is_named
                    every_pause_is_named_with_its_time
                    a_ready_task_knows_its_place_in_its_queue
                    those_that_go_before_are_counted_up_to_a_bound
                    what_no_worker_can_run_says_why
                    a_wait_in_memory_and_one_as_a_row_say_what_for_and_how_long
                    who_has_waited_and_wants_its_limit_again_names_who_holds_it
                    what_a_worker_has_is_claimed_running_or_told_to_stop
                    who_was_skipped_says_because_of_whom
                    who_died_too_often_is_said_to_run_alone
                    what_a_worker_knows_is_added_to_what_it_could_run
                    all_reasons_are_named_together
                    ;
                retention:
                    what_ended_before_goes_with_all_that_belongs_to_it_and_nothing_else
                    an_open_run_stays_however_old_it_is
                    a_run_that_a_task_has_begun_goes_when_the_run_of_that_task_is_gone
                    a_child_that_goes_on_after_its_parents_run_is_gone_is_its_own
                    items_whose_parents_run_is_gone_can_still_be_taken
                    a_key_is_free_when_its_run_is_gone
                    numbers_are_not_given_again
                    a_wait_that_a_run_has_ended_is_answered_although_the_run_is_gone
                    a_run_that_another_has_begun_may_be_gone_when_it_would_be_waited_for_anew
                    what_is_said_of_a_task_of_a_gone_run_is_lost
                    a_large_run_goes_in_short_steps_and_is_never_seen_half
                    what_one_has_begun_to_prune_anybody_goes_on_with
                    a_step_that_is_spent_on_what_was_left_is_not_the_last
                    a_step_is_bounded_and_the_next_goes_on_where_it_was
                    others_write_between_the_steps
                    events_of_runs_that_have_ended_go_and_the_runs_stay
                    signals_that_nobody_will_receive_any_more_go
                    pauses_words_and_signals_go_with_their_run
                    ;
                retries_of_runs:
                    a_retry_takes_over_what_has_succeeded_and_does_the_rest
                    what_was_taken_over_is_given_to_whatever_comes_after_it
                    what_follows_from_what_was_taken_over_can_begin_in_the_same_request
                    what_has_changed_runs_again_with_all_that_comes_after_it
                    what_is_only_to_be_done_in_another_way_is_taken_over
                    a_task_that_is_new_runs_and_one_that_is_gone_is_dropped
                    a_rule_is_looked_at_again_with_what_was_taken_over
                    what_is_skipped_as_it_was_is_no_reason_to_run_again
                    what_is_asked_for_runs_again_with_all_that_comes_after_it
                    another_input_takes_over_nothing
                    a_retry_whose_answer_was_lost_is_the_same_run
                    a_retry_of_a_retry_takes_over_from_that_one
                    a_run_can_be_retried_more_than_once
                    a_cancelled_run_is_retried
                    a_run_that_ran_out_of_time_is_retried
                    a_run_that_has_not_ended_is_not_retried
                    a_run_that_ends_in_the_same_request_is_retried
                    a_run_that_does_not_exist_is_not_retried
                    a_run_of_which_nothing_is_left_is_not_retried
                    a_key_belongs_to_a_retry_of_one_run
                    a_run_goes_although_its_retry_is_there
                    ;
                depth:
                    child_below_the_deepest_that_may_be_is_refused_by_name
                    run_of_items_is_a_level_of_children_too
                    bound_on_children_is_that_of_the_request_that_begins_one
                    ;
                retried_items:
                    a_list_that_has_succeeded_is_taken_over_as_a_whole
                    items_that_have_succeeded_are_taken_over_by_their_bytes_one_for_one
                    items_run_again_where_something_above_them_does
                    items_that_do_something_else_run_again
                    a_list_of_whose_items_none_is_left_ends_at_once
                    a_run_of_items_is_not_retried_by_itself
                    items_are_taken_over_past_retries_that_were_stopped_before_they_began_any
                    items_run_again_where_a_retry_between_has_done_again_what_is_above_them
                    ;
                waiting:
                    a_queue_takes_in_as_many_runs_as_may_wait
                    runs_of_one_request_count
                    a_run_waits_until_something_of_it_is_taken
                    a_run_counts_once_however_many_of_its_tasks_are_ready
                    what_cannot_start_yet_waits_too
                    what_a_task_begins_is_taken_in_and_does_not_count
                    a_key_that_is_taken_is_answered_although_the_queue_is_full
                    a_submit_whose_answer_was_lost_is_not_refused_for_itself
                    a_queue_that_is_full_takes_in_again_what_is_taken_out
                    ;
                size:
                    a_run_of_a_thousand_tasks_goes_through
                    a_run_of_a_thousand_tasks_is_cancelled_in_one_request
                    error_is_stored_and_recorded_up_to_a_bound_and_shows_that_it_was_cut
                    ten_thousand_runs_are_submitted_in_one_request
                    more_alarms_than_a_request_looks_at_ring_in_several
                    ;
            }
        }
    };
    (@cases $open:expr; $($area:ident: $($case:ident)+;)+) => {
        fn open_store() -> $crate::TestPart<'static, Box<dyn $crate::Harness>> {
            Box::pin(async { Box::new(($open)().await) as Box<dyn $crate::Harness> })
        }

        $($(
            #[test]
            fn $case() {
                $crate::check(open_store, |world| Box::pin($crate::cases::$area::$case(world)));
            }
        )+)+
    };
}
