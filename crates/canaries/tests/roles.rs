//! Canaries that the test of one role finds: the tests of `crates/protocols/tests/roles`, compiled
//! for the mutated protocols, pass without a canary and fail with it.

extern crate ionian_canaries as ionian_protocols;

mod caught;

#[path = "../../protocols/tests/roles/acceptor.rs"]
mod acceptor;
#[path = "../../protocols/tests/roles/bytes.rs"]
mod bytes;
#[path = "../../protocols/tests/roles/craq.rs"]
#[allow(dead_code)]
mod craq;
#[path = "../../protocols/tests/roles/epaxos_acceptor.rs"]
mod epaxos_acceptor;
#[path = "../../protocols/tests/roles/epaxos_apart.rs"]
mod epaxos_apart;
#[path = "../../protocols/tests/roles/epaxos_leader.rs"]
mod epaxos_leader;
#[path = "../../protocols/tests/roles/epaxos_leader_lives.rs"]
mod epaxos_leader_lives;
#[path = "../../protocols/tests/roles/epaxos_process.rs"]
#[allow(dead_code)]
mod epaxos_process;
#[path = "../../protocols/tests/roles/epaxos_proxy_leader.rs"]
mod epaxos_proxy_leader;
#[path = "../../protocols/tests/roles/epaxos_return.rs"]
mod epaxos_return;
#[path = "../../protocols/tests/roles/known_defects.rs"]
mod known_defects;
#[path = "../../protocols/tests/roles/lives.rs"]
mod lives;
#[path = "../../protocols/tests/roles/membership.rs"]
mod membership;
#[path = "../../protocols/tests/roles/mencius.rs"]
mod mencius;
#[path = "../../protocols/tests/roles/mencius_acceptor.rs"]
mod mencius_acceptor;
#[path = "../../protocols/tests/roles/mencius_leader.rs"]
mod mencius_leader;
#[path = "../../protocols/tests/roles/mencius_membership.rs"]
mod mencius_membership;
#[path = "../../protocols/tests/roles/mencius_replica.rs"]
mod mencius_replica;
#[path = "../../protocols/tests/roles/psmr.rs"]
mod psmr;
#[path = "../../protocols/tests/roles/reach.rs"]
mod reach;
#[path = "../../protocols/tests/roles/read_batcher.rs"]
mod read_batcher;
#[path = "../../protocols/tests/roles/relay.rs"]
mod relay;
#[path = "../../protocols/tests/roles/scalog.rs"]
mod scalog;
#[path = "../../protocols/tests/roles/servers.rs"]
#[allow(dead_code)]
mod servers;
#[path = "../../protocols/tests/roles/spaxos_disseminator.rs"]
mod spaxos_disseminator;
#[path = "../../protocols/tests/roles/spaxos_leader.rs"]
mod spaxos_leader;
#[path = "../../protocols/tests/roles/spaxos_membership.rs"]
mod spaxos_membership;
#[path = "../../protocols/tests/roles/spaxos_servers.rs"]
#[allow(dead_code)]
mod spaxos_servers;
#[path = "../../protocols/tests/roles/spaxos_stabilizer.rs"]
mod spaxos_stabilizer;
#[path = "../../protocols/tests/roles/stage.rs"]
#[allow(dead_code)]
mod stage;
#[path = "../../protocols/tests/roles/strays.rs"]
mod strays;
#[path = "../../protocols/tests/roles/time.rs"]
mod time;

use caught::caught;
use craq::{chain, changes, leases, master, reads, replacing, sealing};
use mencius_leader::{limits, repairing, revoking};
use psmr::{catching_up, merge};
use relay::{asking, questions, reading, relayed};
use scalog::{aggregator as scalog_aggregator, replica as scalog_replica, server as scalog_server};

caught! {
    "multipaxos/s9": relay::s9_two_votes_of_one_acceptor_are_one,
    "multipaxos/l11": relay::l11_a_relay_gives_up_long_before_its_requester_and_says_who_is_missing,
    "multipaxos/foreign-round": relay::votes_of_another_round_do_not_count,
    "multipaxos/after-refusal": relay::a_refusal_is_passed_on_at_once_and_ends_what_it_is_about,
    "multipaxos/stale-commit": relayed::a_vote_of_another_round_is_not_handed_on,
    "multipaxos/grid-slack": asking::in_a_grid_relays_wait_for_all,
    "multipaxos/first-vote": questions::promises_of_several_acceptors_have_the_vote_of_the_highest_round_in_each_slot,
    "multipaxos/first-forgotten": questions::a_relay_reports_the_most_that_any_acceptor_has_forgotten,
    "multipaxos/long-page": questions::a_page_of_several_acceptors_ends_where_the_first_of_theirs_ends,
    "multipaxos/after-promise": questions::a_refusal_ends_phase_1_and_the_other_promises_are_not_reported,
    "multipaxos/first-watermark": questions::a_reader_gets_the_largest_watermark_and_the_names,
    "multipaxos/latest-epoch": reading::a_new_acceptor_of_a_later_epoch_stops_no_read_through_its_relay,
    "multipaxos/counts-probes": asking::relays_gather_a_quorum_without_a_relay_that_is_tried,
    "multipaxos/read-at-hint": reading::a_read_sees_the_largest_watermark_whatever_replicas_have_executed,
    "multipaxos/rides-only": asking::commits_are_sent_alone_when_no_request_comes,
    "multipaxos/promise": acceptor::phase_2_of_a_lower_round_is_refused_to_proxy_leader_and_leader,
    "multipaxos/s7": read_batcher::on_a_grid_reads_ask_a_whole_row,
    "multipaxos/truncation": acceptor::votes_that_replicas_keep_are_forgotten_and_released,
    "multipaxos/unfenced": acceptor::a_vote_in_the_promised_round_leaves_behind_its_record,
    "craq/s6": chain::s6_a_write_that_comes_again_is_an_entry_and_changes_nothing,
    "craq/unconfirmed": reads::c2_a_read_waits_until_the_master_has_said_what_the_chain_is,
    "craq/unhanded": sealing::c5_a_node_asks_for_a_place_when_it_holds_all_that_the_sealed_member_holds,
    "craq/unsealed": sealing::c5_a_sealed_member_says_what_it_holds_and_takes_nothing_more,
    "craq/seal-lost": sealing::a_member_is_sealed_still_after_a_restart,
    "craq/early-tail": reads::c4_a_new_tail_says_nothing_before_it_has_committed_what_it_had_received,
    "craq/other-epoch": chain::c8_a_message_of_another_epoch_changes_nothing,
    "craq/asks-once": reads::c4_what_the_tail_of_another_chain_has_said_is_not_enough,
    "craq/deaf-removes": changes::who_hears_too_few_others_looks_at_the_chain_and_suspects_none,
    "craq/removes-all": master::c10_suspicions_leave_as_many_members_as_can_be_alive,
    "craq/hands-over-early": replacing::until_the_chain_is_handed_over_only_the_nodes_before_count,
    "craq/flag": reads::c12_a_key_is_clean_when_no_write_to_it_is_under_way,
    "craq/keeps-void": changes::a_node_that_is_removed_discards_what_is_not_committed,
    "craq/lease-from-answer": leases::c15_a_read_under_a_lease_is_answered_at_once_until_its_end,
    "craq/no-wait": leases::c2_a_removal_waits_until_the_leases_are_over,
    "craq/late-answers": leases::c3_each_answer_under_a_lease_has_the_end_of_the_lease,
    "psmr/unknown": merge::workers_stop_for_what_touches_their_parts_alone,
    "psmr/partial": catching_up::a_state_is_taken_when_all_parts_are_in_the_machine,
    "psmr/mark": merge::a_backup_waits_for_a_slot_that_is_missing_below_its_mark,
    "scalog/s5": scalog_aggregator::s5_what_all_servers_of_a_shard_hold_is_proposed_and_nothing_more,
    "scalog/raw-cut": scalog_replica::no_cut_goes_back_when_an_older_one_overtakes,
    "scalog/unfenced": scalog_server::what_is_sent_of_a_record_waits_for_it_and_so_does_the_report,
    "scalog/gap": scalog_server::a_length_counts_only_what_has_no_gap_before_it,
    "scalog/old-life": scalog_server::one_that_has_lost_its_memory_has_no_part_in_what_it_has_reported,
    "scalog/comes-back": scalog_server::none_takes_part_in_a_generation_again_that_it_has_left,
    "mencius/reservation": mencius_acceptor::reservations_are_known_after_a_restart_and_after_a_checkpoint,
    "mencius/s12": mencius_acceptor::a_reservation_in_a_round_below_the_promise_is_refused,
    "mencius/unreserved": mencius_leader::nothing_is_skipped_before_a_write_quorum_has_noted_its_reservation,
    "spaxos/lives": spaxos_disseminator::an_acknowledgement_from_before_a_stabilizer_lost_its_memory_does_not_count,
    "spaxos/others-lives": spaxos_stabilizer::a_stabilizer_that_is_copied_records_the_life_of_the_other_before_it_answers,
    "spaxos/twice": spaxos_leader::a_payload_that_is_proposed_again_gets_no_second_slot,
    "spaxos/unfenced": spaxos_stabilizer::a_payload_is_acknowledged_by_its_name_behind_its_record,
    "spaxos/unstable": spaxos_disseminator::a_payload_is_proposed_when_a_write_quorum_stores_it,
    "spaxos/void": spaxos_stabilizer::replicas_receive_a_noop_where_the_payload_is_void,
    "multipaxos/s2": known_defects::s2_the_leader_continues_above_all_votes_and_fills_holes_with_noops,
    "multipaxos/l10": known_defects::l10_a_deposed_leader_sends_queued_work_back,
    "multipaxos/alone": reach::a_leader_without_a_write_quorum_stops,
    "multipaxos/alone": mencius::a_leader_whose_reservations_stay_unanswered_stops,
    "multipaxos/idle": reach::one_without_work_stops_as_well,
    "multipaxos/keeps-queue": reach::a_candidate_that_gets_no_answer_turns_away_what_waits,
    "multipaxos/keeps-queue": reach::a_candidate_that_hears_the_leader_turns_away_what_waits,
    "multipaxos/clock": time::a_leader_whose_clock_is_a_day_ahead_stamps_no_more_than_the_others_show_and_tells_replicas_so,
    "multipaxos/asks-ahead": time::a_replica_goes_on_asking_for_the_deadline,
    "multipaxos/blames": strays::a_batcher_does_not_blame_a_leader_for_what_another_left_unanswered,
    "multipaxos/blames": strays::clients_whose_batcher_was_not_told_of_the_new_leader_wait_for_it_once,
    "multipaxos/blames": strays::a_lane_does_not_blame_a_leader_for_what_another_left_unanswered,
    "multipaxos/watermarks": membership::a_read_across_a_change_is_not_stale,
    "multipaxos/answers": membership::new_acceptors_must_be_reached_together_before_a_round_needs_them,
    "multipaxos/epochs": membership::rounds_begin_in_the_last_epoch_with_their_quorums,
    "multipaxos/pardons": lives::an_acceptor_tells_its_own_votes_from_those_of_one_that_lived_here_before,
    "multipaxos/copies": bytes::what_a_leader_has_in_hand_is_neither_queued_nor_proposed_again,
    "multipaxos/hasty": bytes::a_proxy_leader_asks_by_its_own_timer_alone_and_only_who_has_not_voted,
    "multipaxos/impatient": bytes::a_phase_1_that_advances_is_not_begun_anew_and_one_that_does_not_is_given_more_time,
    "mencius/l6": mencius::l6_a_range_of_skips_does_not_stop_at_known_slots,
    "mencius/l6": mencius::l6_a_range_of_skips_does_not_stop_at_executed_slots,
    "mencius/one-frontier": mencius_membership::a_change_is_not_finished_before_the_frontier_of_every_stripe_is_known,
    "mencius/positions": mencius_membership::the_frontier_is_a_position_in_each_stripe,
    "mencius/keeps-nothing": mencius_membership::a_change_is_finished_when_the_new_replicas_keep_everything_below_the_highest_frontier,
    "mencius/low-frontier": mencius_membership::a_leader_of_the_joint_epoch_tells_the_others_where_earlier_epochs_end,
    "mencius/bars-reservations": mencius_membership::a_new_acceptor_neither_notes_nor_refuses_what_is_reserved_in_the_configuration_before,
    "mencius/joint-reservations": mencius_membership::a_leader_that_waits_for_new_acceptors_reserves_with_those_that_it_leads_by,
    "mencius/low-watermark": mencius_membership::an_acceptor_tells_readers_at_least_the_frontier,
    "mencius/old-keepers": mencius_membership::votes_of_the_joint_epoch_are_not_forgotten_by_the_word_of_a_leader_of_the_one_before,
    "multipaxos/no-room": membership::the_first_noop_of_both_configurations_waits_for_room_in_the_window,
    "mencius/stale-skips": mencius_replica::skips_that_come_again_after_their_slots_are_executed_are_not_remembered,
    "mencius/early-copy": mencius_replica::a_copy_of_a_command_waits_for_the_earlier_copy,
    "mencius/horizon": mencius_replica::a_read_of_two_keys_waits_for_what_is_executed_early_and_for_what_it_must_see,
    "mencius/hasty-return": revoking::a_leader_that_loses_its_stripe_soon_waits_twice_as_long_before_it_takes_it_back,
    "mencius/one-by-one": repairing::what_a_replica_far_behind_lacks_is_asked_for_in_one_stretch,
    "mencius/far-index": limits::a_leader_that_has_restarted_hears_how_far_the_others_are_wherever_the_log_is,
    "mencius/fills-gaps": mencius::what_predecessors_left_below_the_watermark_is_skipped_as_one_range,
    "spaxos/crowded": spaxos_stabilizer::a_full_stabilizer_has_the_log_pass_the_older_half_of_what_no_leader_orders,
    "spaxos/forgets-taken": spaxos_leader::a_payload_of_an_earlier_process_gets_no_second_slot,
    "spaxos/old-life": spaxos_membership::a_stabilizer_counts_after_another_had_its_number_while_its_node_was_down,
    "spaxos/old-queue": spaxos_leader::a_payload_that_waits_for_the_window_gets_no_slot_in_the_leaders_next_round,
    "spaxos/no-seal": spaxos_membership::one_that_hands_over_acknowledges_no_payload_of_earlier_epochs_any_more,
    "spaxos/one-side": spaxos_membership::a_payload_is_stable_when_a_write_quorum_of_its_rounds_epoch_stores_it,
    "spaxos/before-alone": spaxos_membership::one_that_may_have_taken_over_and_lost_its_memory_copies_from_both_configurations,
    "epaxos/s4": epaxos_acceptor::s4_a_promise_leaves_the_ballot_of_a_vote_as_it_is,
    "epaxos/answers-anew": epaxos_acceptor::an_answer_names_the_past_and_what_conflicts_and_stays_the_same,
    "epaxos/unfenced": epaxos_return::it_is_silent_below_a_boundary_and_answers_from_there_on,
    "epaxos/decides-after-promise": epaxos_acceptor::a_decision_after_a_promise_is_refused,
    "epaxos/early-decision": epaxos_acceptor::a_decision_is_recorded_and_a_repeated_one_is_not,
    "epaxos/uncertain": epaxos_acceptor::a_decision_takes_no_place_in_the_index_before_its_commit,
    "epaxos/new-value": epaxos_apart::a_leader_hands_over_what_a_majority_of_dependency_nodes_recorded,
    "epaxos/over": epaxos_apart::an_acceptor_gives_no_first_vote_in_ballot_0_to_a_life_that_is_over,
    "epaxos/one-vote": epaxos_proxy_leader::the_votes_of_a_majority_decide_and_all_learn,
    "epaxos/no-past": epaxos_leader::the_fast_quorum_is_told_what_the_leaders_own_acceptor_had_recorded,
    "epaxos/by-number": epaxos_leader::what_the_fast_quorum_names_twice_its_acceptor_decides_and_all_learn,
    "epaxos/named-once": epaxos_leader::what_one_member_alone_names_takes_the_slow_path,
    "epaxos/lives": epaxos_leader_lives::an_answer_of_an_earlier_life_does_not_count_also_if_it_came_before,
}
