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

/// Runs one case on a new store, and looks afterwards whether the store is sound.
///
/// # Panics
/// If the case does, or if the store contradicts itself.
pub fn check<H: Harness + 'static>(
    open: impl AsyncFnOnce() -> H,
    case: impl AsyncFnOnce(&mut World),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        let mut world = World::new(Box::new(open().await));
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
                    a_key_counts_inside_one_turn_too
                    a_key_is_unique_in_its_queue_and_workflow_only
                    a_key_is_kept_when_its_run_has_ended
                    tasks_without_dependencies_are_all_ready_at_once
                    ;
                claims:
                    what_was_ready_first_is_taken_first
                    of_those_ready_at_the_same_time_the_first_come_goes_first
                    the_priority_of_a_run_is_a_head_start_in_seconds
                    the_priority_of_a_task_adds_to_that_of_its_run
                    what_waits_longer_is_taken_before_what_is_submitted_in_the_same_turn
                    what_is_too_heavy_for_a_worker_hides_nobody
                    what_a_worker_does_not_know_hides_nobody
                    a_queue_that_a_worker_does_not_serve_hides_nobody
                    a_worker_begins_what_fits_into_its_units_by_weight
                    who_asks_for_nothing_gets_nothing
                    a_worker_that_is_not_known_gets_nothing
                    two_workers_never_get_the_same_task
                    a_fence_grows_by_one_with_every_claim
                    what_was_taken_ahead_begins_when_its_worker_says_so
                    what_a_turn_takes_away_hides_nobody
                    a_clock_that_goes_back_stops_nothing
                    ;
                graphs:
                    an_end_unblocks_the_next_which_is_taken_in_the_same_turn
                    what_was_unblocked_has_its_place_from_then_on
                    outputs_of_parents_and_inserts_of_all_above_reach_a_task
                    what_a_task_returned_is_stored_with_its_success_only
                    two_last_parents_in_one_turn_let_their_child_go_once
                    two_last_parents_in_two_turns_let_their_child_go_with_the_second
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
                    ends_of_several_runs_in_one_turn_do_not_touch_each_other
                    ;
                items:
                    a_running_task_begins_a_run_of_its_items
                    only_a_task_that_runs_by_that_right_begins_items
                    a_task_that_is_claimed_or_waits_may_begin_items
                    a_later_entry_finds_the_items_that_were_begun
                    items_begun_in_a_turn_whose_answer_was_lost_are_not_doubled
                    items_have_the_queue_and_the_priority_of_their_parents_run
                    an_item_is_given_what_its_parent_is_given_and_its_item
                    whoever_knows_the_task_gets_its_items_and_nobody_else
                    two_tasks_of_a_run_have_items_of_their_own
                    cancelling_the_parents_run_cancels_its_items_and_tells_their_worker
                    fail_fast_in_the_parents_run_cancels_its_items
                    items_end_with_their_parent_also_in_a_turn_that_speaks_of_them_first
                    items_begun_in_the_turn_that_ends_their_parent_are_over_with_it
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
                    items_begun_in_the_turn_of_a_pause_wait_for_its_end
                    items_fail_fast_or_keep_going_as_they_are_told
                    an_item_is_tried_again_by_itself
                    two_thousand_items_go_through_and_their_run_ends_with_the_last
                    two_thousand_items_are_cancelled_in_one_turn
                    ;
                retries:
                    a_failure_is_tried_again_after_its_back_off_until_no_attempt_is_left
                    the_back_off_of_a_plan_grows_as_it_says
                    a_permanent_failure_is_not_tried_again
                    every_way_to_fail_keeps_its_reason
                    a_retry_without_a_pause_is_taken_in_the_same_turn
                    a_snooze_uses_no_attempt
                    several_things_that_happened_since_are_written_in_one_go_or_not_at_all
                    ;
                clocks:
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
                    what_time_has_freed_is_taken_in_the_same_turn
                    a_start_time_holds_back_only_what_comes_first
                    ;
                pauses:
                    while_paused_nothing_starts_and_what_has_begun_goes_on
                    a_pause_stops_its_own_and_nobody_else
                    what_is_submitted_to_a_paused_queue_or_store_waits
                    what_is_paused_in_a_turn_is_not_taken_in_it
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
                    a_cancelled_run_stays_cancelled_in_the_turn_that_finishes_it
                    cancelling_spares_what_has_ended_and_cancels_clean_up
                    a_failing_run_that_is_cancelled_counts_as_cancelled
                    a_run_that_is_over_or_unknown_cannot_be_cancelled
                    tasks_behind_the_first_are_over_too_whatever_their_worker_says
                    a_run_that_ends_in_the_turn_that_cancels_it_has_ended_as_it_says
                    what_is_said_of_a_task_that_does_not_exist_is_lost
                    ;
                deaths:
                    what_a_dead_worker_had_is_ready_for_others
                    who_takes_over_can_take_it_in_the_same_turn
                    a_dead_worker_that_had_nothing_is_forgotten
                    a_stale_fence_writes_nothing
                    a_fence_of_the_future_writes_nothing
                    who_dies_too_often_while_active_is_the_cause
                    a_suspect_is_taken_but_not_begun_although_units_are_free
                    a_suspect_is_taken_also_where_nothing_is_taken_ahead
                    getting_on_forgets_earlier_deaths
                    a_death_while_waiting_is_nobodys_fault
                    what_was_to_stop_when_its_worker_died_is_over
                    more_than_fits_into_a_turn_is_taken_over_in_several
                    exactly_as_many_as_fit_into_a_turn_are_all_taken_over
                    what_is_handed_back_is_ready_for_others
                    a_roll_call_tells_a_worker_all_that_it_owns
                    numbers_of_workers_are_never_used_again
                    who_goes_and_still_owns_something_is_taken_over_like_the_dead
                    ;
                lost_answers:
                    a_submit_is_not_doubled
                    a_submit_under_a_taken_key_is_answered_the_same
                    a_turn_that_never_arrived_is_taken_as_if_new
                    every_end_of_an_entry_is_yes_again_and_recorded_once
                    a_finish_with_all_that_followed_is_yes_again
                    the_end_of_a_run_is_told_again
                    a_retry_and_its_claim_are_yes_again
                    claims_are_given_again_as_they_were_and_no_others
                    a_claim_that_got_nothing_may_get_something_again
                    what_the_turn_only_told_of_is_not_given_again_as_claimed
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
                    runs_are_listed_from_new_to_old_page_by_page
                    a_list_of_runs_can_be_narrowed
                    a_listed_run_is_what_it_is_when_looked_at
                    tasks_are_counted_where_they_stand
                    tasks_that_no_worker_can_run_are_named_with_the_reason
                    the_last_error_of_a_task_is_shown
                    ;
                size:
                    a_run_of_a_thousand_tasks_goes_through
                    a_run_of_a_thousand_tasks_is_cancelled_in_one_turn
                    ten_thousand_runs_are_submitted_in_one_turn
                    more_alarms_than_a_turn_looks_at_ring_in_several
                    ;
            }
        }
    };
    (@cases $open:expr; $($area:ident: $($case:ident)+;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::check($open, $crate::cases::$area::$case);
            }
        )+)+
    };
}
