//! The tests that need processes: the real binary and small apps on the library, driven from
//! outside. `tests/README.md` has the rules.
//!
//! This binary has a `main` of its own because the library runs its program again in every
//! worker: a re-executed test binary must become the app it is a worker of.

mod api;
mod apps;
mod client;
mod crash;
mod drain;
mod lifecycle;
mod master_death;
mod startup;
mod support;
mod upgrade;

use libtest_mimic::{Arguments, Trial};

/// A test by its path.
type Test = (&'static str, fn());

/// Names each function after its module.
macro_rules! tests {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        const TESTS: &[Test] = &[$($((
            concat!(stringify!($module), "::", stringify!($name)),
            $module::$name,
        )),+),+];
    };
}

tests! {
    lifecycle:
        every_slot_answers,
        a_unix_address_is_served_and_its_file_removed,
        several_addresses_and_shared_listeners,
        the_pid_file_lives_as_long_as_the_master,
        a_reload_replaces_every_worker_and_refuses_nobody,
        slots_come_and_go_by_signal,
        logs_are_reopened_in_every_process;
    crash:
        queued_connections_survive_the_crash_of_their_worker,
        only_requests_in_progress_fail_when_a_worker_is_killed,
        a_worker_that_always_dies_ends_the_server_with_the_reason,
        an_app_that_never_becomes_ready_ends_the_server_at_once,
        a_worker_that_leaves_unasked_is_replaced_and_is_no_crash,
        respawns_leave_nothing_behind;
    drain:
        term_answers_what_is_open,
        an_idle_connection_gets_one_more_answer,
        a_client_that_never_reads_is_cut_at_the_deadline,
        a_second_signal_stops_at_once;
    master_death:
        workers_finish_and_leave_when_the_master_is_killed,
        a_program_that_a_worker_starts_is_nobodys_worker;
    startup:
        bad_settings_exit_2_and_name_the_flag,
        a_taken_port_exits_5_though_it_could_be_shared,
        a_worker_inherits_nothing_else,
        a_master_as_pid_1_reaps_strangers;
    upgrade:
        upgrades_in_a_row_refuse_nobody_and_leave_nothing_behind,
        what_cannot_take_over_changes_nothing_and_says_why,
        a_canary_that_is_no_good_changes_nothing,
        files_descriptors_and_open_requests_stay,
        the_new_binary_brings_its_own_settings,
        a_handle_asks_for_an_upgrade,
        a_master_as_pid_1_upgrades;
    api:
        a_server_in_this_process_serves_and_stops,
        hooks_hear_the_life_of_a_server,
        a_hook_that_refuses_ends_the_server,
        a_handle_works_in_master_and_worker,
        an_axum_router_runs_and_drains;
}

fn main() {
    if let Some(app) = std::env::var_os(apps::VARIABLE) {
        return apps::run(&app);
    }
    let trials = TESTS
        .iter()
        .map(|&(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
