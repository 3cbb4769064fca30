//! The tests that need processes: the real binary and small apps on the library, driven from
//! outside. `tests/README.md` has the rules.
//!
//! This binary has a `main` of its own because the library runs its program again in every
//! worker: a re-executed test binary must become the app it is a worker of.

mod access_log;
mod adoption;
mod api;
mod apps;
mod balance;
mod balancer;
mod cap;
mod client;
mod control;
mod crash;
mod discard;
mod drain;
mod files;
mod handover;
mod hang;
mod hostile;
#[cfg(feature = "http2")]
mod http2;
#[cfg(feature = "tls")]
mod https;
mod init;
mod lifecycle;
mod log;
mod master_death;
mod presence;
mod privileges;
mod recycle;
mod resize;
mod scoreboard;
mod signals;
mod startup;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod upgrade;
mod variables;
mod websocket;
mod wire;

use libtest_mimic::{Arguments, Trial};

/// A test by its path.
type Test = (&'static str, fn());

/// Names each function after its module.
macro_rules! tests {
    ($list:ident: $($module:ident: $($name:ident),+ $(,)?;)+) => {
        const $list: &[Test] = &[$($((
            concat!(stringify!($module), "::", stringify!($name)),
            $module::$name,
        )),+),+];
    };
}

#[cfg(feature = "tls")]
tests! {
    TLS:
    tls:
        https_is_served_by_the_certificate_that_is_given,
        a_server_in_this_process_speaks_tls,
        sessions_resume_on_every_worker_whatever_becomes_of_them,
        sessions_resume_across_a_rotation_of_keys,
        an_upgrade_may_bring_tls_and_take_it_away,
        ticket_keys_are_in_no_core_and_workers_can_only_read_them,
        bad_files_are_refused_before_anything_is_bound,
        a_reload_with_bad_files_touches_no_worker_and_says_why,
        a_respawned_worker_does_not_mind_files_that_are_being_replaced,
        a_key_that_only_the_master_may_read_is_enough,
        a_reload_brings_the_renewed_certificate,
        who_speaks_http_to_a_tls_port_is_told_so,
        clients_show_their_certificates,
        who_was_let_in_by_another_ca_shows_a_certificate_again,
        a_handshake_that_takes_too_long_is_closed,
        tls_is_refused_where_the_app_has_to_speak_it;
}

#[cfg(not(feature = "tls"))]
const TLS: &[Test] = &[];

tests! {
    TESTS:
    access_log:
        what_the_server_refuses_is_logged,
        what_was_not_parsed_is_null,
        a_reopened_log_is_told;
    lifecycle:
        every_slot_answers,
        a_unix_address_is_served_and_its_file_removed,
        several_addresses_and_shared_listeners,
        the_pid_file_lives_as_long_as_the_master,
        a_reload_replaces_every_worker_and_refuses_nobody,
        a_reload_that_cannot_start_leaves_the_old_workers_serving_and_says_why,
        an_abandoned_reload_tells_its_own_reason_and_respawns_nobody,
        slots_come_and_go_by_signal,
        logs_are_reopened_in_every_process,
        an_echo_of_a_body_beyond_the_limit_is_413,
        notices_go_to_any_descriptor;
    log:
        a_master_works_on_when_the_reader_of_its_log_has_left,
        a_master_works_on_when_the_reader_of_its_log_does_not_read;
    adoption:
        a_slot_with_many_addresses_is_attended_at_all_of_them,
        a_worker_at_its_limit_adopts,
        a_failed_adoption_is_told_and_another_worker_adopts;
    hostile:
        the_master_serves_on_whatever_a_worker_tries,
        so_it_does_where_descriptors_reach_it,
        a_signal_does_not_wait_for_all_that_a_worker_says,
        what_a_worker_leaves_in_an_inbox_does_not_hold_the_end_up;
    discard:
        what_waits_in_a_socket_is_closed_without_waiting_for_it;
    balance:
        busy_connections_of_one_worker_are_shared;
    balancer:
        its_word_is_taken_for_who_the_client_is,
        its_word_goes_with_a_connection_that_is_handed_over,
        without_a_header_it_is_hung_up_on,
        others_are_not_believed;
    crash:
        queued_connections_survive_the_crash_of_their_worker,
        only_requests_in_progress_fail_when_a_worker_is_killed,
        a_worker_that_always_dies_ends_the_server_with_the_reason,
        an_app_that_never_becomes_ready_ends_the_server_at_once,
        a_worker_that_leaves_unasked_is_replaced_and_is_no_crash,
        respawns_leave_nothing_behind,
        a_panic_ends_the_worker_whatever_its_threads_do,
        a_panic_in_the_task_that_drives_deadlines_ends_the_worker,
        a_worker_that_leaves_as_soon_as_it_accepts_is_no_crash_either;
    control:
        a_drain_is_heard_though_the_channel_was_full,
        a_hook_that_panics_in_a_worker_does_not_deafen_it;
    recycle:
        workers_are_replaced_by_requests_and_refuse_nobody,
        workers_are_replaced_by_age_one_after_the_other,
        workers_that_ask_as_soon_as_they_serve_are_replaced_ever_more_slowly,
        replacements_that_cannot_start_end_no_server_that_serves;
    resize:
        clients_are_answered_while_a_new_slots_worker_starts,
        clients_are_answered_after_a_slot_came_and_went_at_once,
        clients_are_answered_while_a_new_slots_worker_crashes_again_and_again,
        the_last_worker_that_serves_is_retired_when_another_is_ready;
    variables:
        a_bad_value_is_told_by_the_name_of_its_source,
        an_empty_variable_is_not_set,
        a_variable_that_is_none_is_told_with_what_was_meant;
    drain:
        term_answers_what_is_open,
        a_worker_that_is_told_to_leave_is_followed_at_once,
        an_idle_connection_gets_one_more_answer,
        a_client_that_never_reads_is_cut_at_the_deadline,
        what_a_killed_worker_had_open_is_told,
        two_signals_at_once_are_one_ask,
        a_full_access_log_does_not_hold_up_the_end,
        times_without_end_are_fine,
        a_second_signal_stops_at_once,
        a_drain_waits_for_descriptors_to_accept_what_is_queued,
        a_full_worker_leaves_its_queue_to_its_successor;
    files:
        slow_clients_of_one_file_hold_one_descriptor_of_it,
        more_files_than_a_worker_may_have_open_are_503,
        head_of_a_directory_has_the_fields_of_get;
    cap:
        the_longest_idle_connection_makes_room_for_a_new_one,
        a_client_has_as_many_connections_as_it_may;
    handover:
        reloads_close_no_connection,
        twenty_reloads_leave_nothing_behind,
        a_request_that_has_begun_is_answered_before_its_connection_moves,
        an_upgrade_takes_the_connections_along,
        a_canary_gives_its_connections_back,
        fewer_slots_keep_every_connection,
        a_worker_that_is_told_to_leave_hands_its_connections_over,
        recycling_closes_no_connection,
        what_waits_in_an_inbox_outlives_sender_and_receiver,
        a_full_worker_takes_over_as_others_leave,
        nothing_is_taken_over_without_a_descriptor_for_it,
        a_server_of_others_takes_what_comes,
        a_thousand_connections_move_at_once,
        connections_to_a_unix_address_move_too,
        the_end_of_the_server_hands_nothing_over,
        a_server_may_end_in_the_middle;
    hang:
        a_worker_that_stands_still_is_replaced_and_its_queue_answered,
        a_worker_that_waits_for_others_is_left_alone,
        an_app_that_does_not_accept_is_left_alone,
        one_that_stands_still_is_found_by_what_it_has_adopted,
        one_that_stands_still_is_found_by_what_is_handed_over_to_it,
        a_stopped_worker_is_left_alone_until_work_waits;
    scoreboard:
        totals_outlive_crash_and_reload;
    master_death:
        workers_finish_and_leave_when_the_master_is_killed,
        a_worker_that_hears_nothing_does_not_outlive_its_master,
        a_program_that_a_worker_starts_is_nobodys_worker;
    presence:
        nothing_is_left_of_a_silent_answer_whose_client_has_left;
    privileges:
        they_may_ask_for_a_reload_and_not_for_the_end,
        a_listener_that_they_shut_down_listens_again,
        a_unix_listener_that_they_shut_down_is_replaced,
        they_have_a_session_of_their_own,
        they_have_no_terminal_and_their_master_hears_it,
        their_group_may_connect_to_a_unix_address_and_others_as_the_mode_says;
    signals:
        a_program_with_threads_hears_them_all,
        a_starter_that_ignored_the_end_of_processes_does_no_harm,
        a_worker_that_dies_of_a_real_time_signal_is_replaced,
        one_that_comes_at_the_very_end_does_not_change_the_outcome;
    startup:
        bad_settings_exit_2_and_name_the_flag,
        a_taken_port_exits_5_though_it_could_be_shared,
        notices_go_to_any_descriptor_that_the_master_has,
        a_worker_inherits_nothing_else,
        workers_are_scheduled_as_their_master,
        what_is_started_before_the_server_inherits_nothing_of_it,
        workers_have_no_huge_pages,
        a_master_as_pid_1_reaps_strangers;
    init:
        a_service_manager_hears_the_life_of_a_server,
        a_watchdog_hears_only_the_master_it_was_set_for,
        a_manager_in_the_abstract_namespace_is_heard_too,
        an_inherited_listener_is_served_with_what_waits_in_its_queue,
        an_inherited_unix_listener_keeps_its_file,
        listeners_of_another_process_are_ignored,
        what_is_no_listener_is_refused_by_its_number,
        descriptors_that_were_not_handed_in_are_not_taken,
        listeners_that_the_manager_keeps_come_back_with_their_queues,
        a_kept_listener_of_an_address_that_is_not_wanted_is_given_up,
        workers_run_as_the_user_they_are_given,
        a_program_that_the_user_may_not_execute_is_named,
        root_is_not_taken_for_a_workers_user_unless_it_is_named;
    upgrade:
        upgrades_in_a_row_refuse_nobody_and_leave_nothing_behind,
        what_cannot_take_over_changes_nothing_and_says_why,
        a_canary_that_is_no_good_changes_nothing,
        files_descriptors_and_open_requests_stay,
        the_new_binary_brings_its_own_settings,
        settings_that_a_master_refuses_end_no_server,
        a_file_that_the_workers_user_may_not_execute_is_named,
        a_file_that_the_workers_user_may_change_is_refused,
        a_handle_asks_for_an_upgrade,
        a_master_as_pid_1_upgrades;
    api:
        a_server_in_this_process_serves_and_stops,
        nobody_waits_for_a_server_that_cannot_start,
        hooks_hear_the_life_of_a_server,
        a_hook_that_refuses_ends_the_server,
        a_handle_works_in_master_and_worker,
        an_axum_router_runs_and_drains;
    websocket:
        what_is_said_comes_back_and_nothing_is_left_of_it,
        an_offer_that_is_not_taken_up_costs_nothing,
        a_reload_says_goodbye_to_websockets_and_to_nobody_else,
        who_does_not_hear_the_goodbye_is_cut_after_the_grace;
    wire:
        request_line,
        host,
        framing,
        chunked,
        limits,
        expect,
        connection,
        pipelining,
        half_close,
        a_cut_is_real,
        the_table_has_150_cases_each_with_its_section;
}

#[cfg(feature = "http2")]
const HTTP2_TESTS: &[Test] = &[
    (
        "http2::a_reload_loses_no_request",
        http2::a_reload_loses_no_request,
    ),
    (
        "files::windowless::a_connection_without_a_window_holds_little_of_its_files",
        files::windowless::a_connection_without_a_window_holds_little_of_its_files,
    ),
];
#[cfg(not(feature = "http2"))]
const HTTP2_TESTS: &[Test] = &[];

fn main() {
    if let Some(app) = std::env::var_os(apps::VARIABLE) {
        return apps::run(&app);
    }
    let trials = TESTS
        .iter()
        .chain(TLS)
        .chain(HTTP2_TESTS)
        .map(|&(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
