//! What every protocol of the registry must do under the simulator. A protocol gets these tests
//! with its line there, in a module of its name: `cargo test -p ionian-sim --test simulator
//! every_protocol::mencius` runs those of one.

mod catching_up;
mod changing;
mod defects;
pub(crate) mod load;
mod recovering;
mod seeds;
mod shapes;
mod starved;

macro_rules! tests {
    ($($(#[$when:meta])? $module:ident::$protocol:ident,)*) => {
        $(
            $(#[$when])?
            mod $module {
                use crate::every_protocol::{
                    catching_up, changing, defects, load, recovering, seeds, starved,
                };
                use ionian_protocols::registry::types::$protocol as Protocol;
                use ionian_sim::Simulated;

                const PROTOCOL: Simulated = Simulated::of::<Protocol>();

                #[test]
                fn seeds_pass_in_each_shape_and_durability() {
                    seeds::pass(PROTOCOL);
                }

                #[test]
                fn seeds_pass_on_deployments_that_no_preset_has() {
                    seeds::pass_on_drawn_deployments(PROTOCOL);
                }

                #[test]
                fn a_seed_gives_the_same_run_again_and_another_seed_another_run() {
                    seeds::give_the_same_run_again(PROTOCOL);
                }

                #[test]
                fn commands_that_are_given_up_are_never_executed() {
                    seeds::pass_while_commands_are_given_up(PROTOCOL);
                }

                #[test]
                fn members_change_under_faults_or_a_change_is_refused_with_a_reason() {
                    seeds::pass_while_members_change(PROTOCOL);
                }

                #[test]
                fn new_members_that_do_not_answer_take_no_tolerance_away() {
                    changing::absent_newcomers_take_nothing_away(PROTOCOL);
                }

                #[test]
                fn options_change_under_faults_or_a_change_is_refused_with_a_reason() {
                    seeds::pass_while_options_change(PROTOCOL);
                }

                #[test]
                fn members_and_options_change_in_turn() {
                    seeds::pass_while_members_and_options_change(PROTOCOL);
                }

                #[test]
                fn logs_are_torn_and_truncated_and_snapshots_stored() {
                    seeds::tear_and_truncate_logs(PROTOCOL);
                }

                #[test]
                fn logs_do_not_grow_with_the_number_of_commands() {
                    seeds::keep_logs_short(PROTOCOL);
                }

                #[test]
                fn clients_that_do_not_wait_and_write_one_key_are_all_answered() {
                    load::is_answered(PROTOCOL);
                }

                #[test]
                fn what_clients_have_given_up_takes_no_place_from_what_others_wait_for() {
                    load::what_is_given_up_holds_up_nothing(PROTOCOL);
                }

                #[test]
                fn leaders_of_starved_nodes_stay_and_clients_are_answered() {
                    starved::leaders_stay(PROTOCOL);
                }

                #[test]
                fn writes_are_answered_soon_while_a_fault_lasts_and_when_it_has_ended() {
                    recovering::all_are_answered_soon(PROTOCOL);
                }

                #[test]
                fn clients_are_answered_while_a_node_installs_a_snapshot() {
                    catching_up::clients_are_answered(PROTOCOL);
                }

                #[test]
                fn all_replicas_return_and_no_command_of_the_log_costs_a_wait() {
                    catching_up::all_replicas_catch_up(PROTOCOL);
                }

                #[test]
                fn a_message_of_several_commands_is_no_larger_than_the_largest_command() {
                    catching_up::messages_are_bounded(PROTOCOL);
                }

                #[test]
                #[ignore = "takes minutes: `cargo xtask deep`"]
                fn defects_that_the_driver_builds_in_are_found() {
                    defects::are_found(PROTOCOL);
                }
            }
        )*
    };
}

ionian_protocols::for_each_protocol!(tests);
