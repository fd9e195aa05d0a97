//! The plays in `plays`, each on the cluster that it names itself. With the environment variable
//! `REWRITE_PLAYS` set they are not compared: what they expect in traces is written anew.

use ionian_deployment::Settings;
use ionian_sim::Simulated;
use ionian_sim::machine::Lists;
use ionian_sim::play::{Play, PlayError};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plays")
}

/// Performs a play, or writes it anew.
fn done(play: &Play, rewrite: bool) -> Result<Option<String>, PlayError> {
    let setup = play.setup().expect("the play names its cluster");
    let mut settings = Settings::default();
    for (key, value) in &setup.settings {
        settings.set(key, *value).expect("a setting");
    }
    let protocol = Simulated::named(&setup.protocol).expect("a protocol of the registry");
    let (scenario, model) = (setup.scenario(protocol, settings.options())?, Lists::new(3));
    match rewrite {
        true => play.rewrite(protocol, &scenario, model).map(Some),
        false => play.run(protocol, &scenario, model).map(|()| None),
    }
}

fn perform(name: &str) {
    let path = folder().join(name).with_extension("play");
    let text = fs::read_to_string(&path).expect("the play");
    let play = Play::parse(&text).unwrap_or_else(|error| panic!("{name}.play: {error}"));
    let rewrite = std::env::var_os("REWRITE_PLAYS").is_some();
    match done(&play, rewrite).unwrap_or_else(|error| panic!("{name}.play: {error}")) {
        None => {}
        Some(anew) if anew == text => {}
        Some(anew) => fs::write(&path, anew).expect("the play is written"),
    }
}

macro_rules! plays {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                perform(stringify!($name));
            }
        )*

        #[test]
        fn every_play_of_the_folder_is_performed() {
            let listed = BTreeSet::from([$(concat!(stringify!($name), ".play")),*]);
            let files = fs::read_dir(folder()).expect("the plays");
            let there: BTreeSet<_> = files
                .map(|entry| entry.expect("an entry").file_name())
                .collect();
            let there: BTreeSet<_> = there.iter().filter_map(|name| name.to_str()).collect();
            assert_eq!(there, listed);
        }
    };
}

plays! {
    acceptor_down
    acceptor_without_memory
    acceptor_without_memory_asks_for_no_joint_round
    answer_is_lost
    craq_deaf_head
    craq_isolated_head
    craq_dead_head_half_deaf_second
    craq_dead_head_half_deaf_second_with_leases
    craq_dead_head_half_mute_second
    craq_two_dead_at_the_end
    craq_two_dead_before_one_that_joins
    craq_two_return_while_two_crash
    craq_dead_tail_and_a_broken_link
    craq_a_crash_and_a_link_broken_in_one_direction
    craq_more_than_f_are_lost_and_replaced
    craq_two_half_deaf
    craq_lane_misses_the_chain
    craq_lane_restarts
    craq_middle_dies
    craq_partition
    craq_stale_read_after_old_tail
    craq_tail_dies
    craq_tail_does_not_reach_a_lane
    craq_tail_without_its_master
    craq_unbatcher_dies
    deaf
    deaf_proxy
    election
    epaxos_apart_write
    epaxos_chain_ends
    epaxos_chain_of_barriers_ends
    epaxos_crowded_key
    epaxos_kept_before_commit
    epaxos_published_flaw
    epaxos_read_of_two_keys
    epaxos_write
    hub
    l5_voted_never_chosen
    leader_is_not_deposed_by_one_bad_link
    leader_that_slept_through_a_change
    lost_acknowledgement
    lost_acknowledgements_in_turn
    members_change
    mencius_broken_link
    mencius_command_is_suggested_again
    mencius_deaf
    mencius_figure_2
    mencius_figure_3
    mencius_leader_that_slept_through_a_change
    mencius_members_change
    mencius_new_acceptors_wait_for_replicas
    mencius_new_leader_waits_for_its_stripe
    mencius_repair_of_a_forgotten_slot
    mencius_return
    mencius_row_without_column
    new_acceptor_leaves_the_leader_before_alone
    new_acceptors_restart_before_they_have_a_part
    new_member_with_a_wrong_address
    no_helpers
    phase_1_fills_holes
    psmr_announced_and_never_proposed
    read
    read_across_a_change
    refused
    repair_of_a_forgotten_slot
    replica_far_behind
    replica_misses_a_slot
    scalog_server_loses_its_memory
    scalog_write
    spaxos_change_is_abandoned
    spaxos_change_without_memory
    spaxos_payload_is_taken_over
    spaxos_repair_of_a_forgotten_slot
    spaxos_write
    unreplicated_write
    vote_before_disk
    write
    write_in_a_batch
}

/// Every play says what it shows before anything else.
#[test]
fn every_play_begins_with_what_it_shows() {
    for entry in fs::read_dir(folder()).expect("the plays") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a play");
        assert!(text.starts_with("# "), "{}", path.display());
    }
}
