use bytes::Bytes;
use clap::error::ContextKind;
use prefork_server::{Address, Prefork, usable_cpus};

use super::*;

fn parse(args: &[&str]) -> Result<Options, clap::Error> {
    parse_with_port(args, None)
}

fn parse_with_port(args: &[&str], port: Option<&str>) -> Result<Options, clap::Error> {
    let args = std::iter::once(&"prefork-server").chain(args);
    Options::parse_from_args(args, port.map(OsString::from))
}

fn address(text: &str) -> Address {
    value::address(text).unwrap()
}

#[test]
fn the_definition_holds_together() {
    Options::command().debug_assert();
}

#[test]
fn the_defaults_are_those_of_the_library() {
    // The library has no default for the admin address and for the sandbox.
    let options = parse(&["--admin", "off", "--sandbox", "off"]).unwrap();
    let server = crate::server(&options, Default::default());
    let of_library = Prefork::bind("127.0.0.1:8080").workers(usable_cpus().usable);
    assert_eq!(format!("{server:?}"), format!("{of_library:?}"));
}

#[test]
fn nothing_asked_for_serves_the_welcome_page() {
    let Options { serving, logs, .. } = parse(&[]).unwrap();
    assert_eq!(serving.serve(), Serve::Welcome);
    assert_eq!(serving.delay, Duration::ZERO);
    assert!(!serving.worker_header);
    assert_eq!((logs.access_log, logs.log_format), (None, LogFormat::Text));
    #[cfg(feature = "http2")]
    for (args, http2) in [
        (&[][..], prefork_server::Http2::Enabled),
        (&["--http2", "off"], prefork_server::Http2::Disabled),
    ] {
        assert_eq!(parse(args).unwrap().limits.http2, http2);
    }
}

#[test]
fn each_thing_to_serve_is_understood() {
    let serve = |args: &[&str]| parse(args).unwrap().serving.serve();
    assert_eq!(serve(&["public"]), Serve::Files("public".into()));
    assert_eq!(serve(&["--echo"]), Serve::Echo);
    assert_eq!(
        serve(&["--respond", "-n hello"]),
        Serve::Respond("-n hello".into())
    );
    assert_eq!(serve(&["--respond="]), Serve::Respond(Bytes::new()));
}

#[cfg(feature = "tls")]
#[test]
fn https_wants_a_certificate_and_its_key() {
    let parsed = |args: &str| parse(&args.split(' ').collect::<Vec<_>>());
    assert_eq!(parse(&[]).unwrap().scheme(), Scheme::Http);
    let both = "--tls-cert c.pem --tls-key k.pem";
    assert_eq!(parsed(both).unwrap().scheme(), Scheme::Https);
    let optional = format!("{both} --tls-client-ca ca.pem --tls-client-auth optional");
    let tls = parsed(&optional).unwrap().tls.tls().unwrap();
    let shown = format!("{tls:?}");
    for part in ["c.pem", "k.pem", "ca.pem", "Optional"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let suites = "--tls-min-version 1.3 --tls-ciphers \
                  TLS13_AES_128_GCM_SHA256,TLS13_AES_256_GCM_SHA384";
    let two = parsed(&format!(
        "{both} {both} --tls-ocsp none --tls-ocsp d.ocsp {suites}"
    ))
    .unwrap()
    .tls
    .tls()
    .unwrap();
    let shown = format!("{two:?}");
    assert_eq!(shown.matches("c.pem").count(), 2, "{shown}");
    assert!(!shown.contains("none"), "{shown}");
    assert!(
        shown.contains("Tls13") && shown.contains("AES_128_GCM_SHA256\", \"TLS13_AES_256"),
        "{shown}"
    );
    for (args, lacks) in [
        ("--tls-cert c.pem", "--tls-cert needs --tls-key"),
        ("--tls-key k.pem", "--tls-key needs --tls-cert"),
        ("--tls-client-ca ca.pem", "--tls-client-ca needs --tls-cert"),
        (
            &format!("{both} --tls-client-auth required"),
            "--tls-client-auth needs --tls-client-ca",
        ),
        ("--tls-min-version 1.3", "--tls-cert"),
        ("--tls-ciphers TLS13_AES_128_GCM_SHA256", "--tls-cert"),
        (
            "--tls-cert c.pem --tls-key k.pem --tls-cert d.pem",
            "one key for each",
        ),
        ("--tls-ocsp c.ocsp", "--tls-cert"),
        (
            &format!("{both} {both} --tls-ocsp c.ocsp"),
            "--tls-cert and --tls-ocsp must be given equally often",
        ),
        ("--tls-min-version 1.1", "1.2, 1.3"),
        (
            "--tls-ciphers TLS13_AES_128_GCM_SHA256:TLS13_AES_256_GCM_SHA384",
            "commas separate",
        ),
        (
            "--tls-cert c.pem --tls-key k.pem --tls-client-auth required",
            "--tls-client-ca",
        ),
    ] {
        let error = parsed(args).unwrap_err().to_string();
        assert!(error.contains(lacks), "{args}: {error}");
    }
}

#[test]
fn values_are_read_with_their_units() {
    let args = "--delay 250ms --listen [::]:80 --listen unix:/run/a.sock --workers 3 \
                --listeners shared --balance off --defer-accept on --drain-timeout 5m \
                --pre-stop-delay 10s --reload-batch 2 --crash-limit 0/1h --header-timeout 1ms \
                --hang-timeout 0 --max-target-size 1KiB --max-header-size 8KiB --max-body-size 0 \
                --max-connections 7 --worker-header --announce-fd 2 --pid-file p --user www \
                --group 33 --unix-mode 0660 --access-log - --admin 127.0.0.1:9180,auto \
                --admin unix:/a --log-format json --log-level trace";
    let args: Vec<&str> = args.split_whitespace().collect();
    let Options {
        serving,
        processes,
        limits,
        logs,
        ..
    } = parse(&args).unwrap();
    assert_eq!(serving.delay, Duration::from_millis(250));
    assert_eq!(
        serving.listen,
        [address("[::]:80"), Address::Unix("/run/a.sock".into())]
    );
    assert!(serving.worker_header);
    assert_eq!(processes.workers, Workers::Exactly(3.try_into().unwrap()));
    assert_eq!(processes.listeners, Listeners::Shared);
    assert_eq!(processes.balance, Balance::Off);
    assert_eq!(processes.defer_accept, prefork_server::DeferAccept::On);
    assert_eq!(processes.drain_timeout, Duration::from_secs(300));
    assert_eq!(processes.reload_batch.get(), 2);
    assert_eq!(
        processes.crash_limit,
        CrashLimit::new(0, Duration::from_secs(3600))
    );
    assert_eq!(processes.hang_timeout, HangTimeout(None));
    assert_eq!(processes.pid_file, Some("p".into()));
    assert_eq!(
        processes.admin,
        [
            Admin::At(address("127.0.0.1:9180")),
            Admin::Auto,
            Admin::At(address("unix:/a"))
        ]
    );
    assert_eq!(processes.pre_stop_delay, Duration::from_secs(10));
    assert_eq!(processes.user.as_deref(), Some("www"));
    assert_eq!(processes.group.as_deref(), Some("33"));
    assert_eq!(processes.unix_mode, 0o660);
    assert_eq!(limits.header_timeout, Duration::from_millis(1));
    assert_eq!(limits.max_target_size, 1 << 10);
    assert_eq!((limits.max_header_size, limits.max_body_size), (8 << 10, 0));
    assert_eq!(limits.max_connections, std::num::NonZeroUsize::new(7));
    assert_eq!(
        (logs.announce_fd, logs.access_log),
        (Some(2), Some(LogTarget::Stdout))
    );
    assert_eq!(
        (logs.log_format, logs.log_level),
        (LogFormat::Json, LevelFilter::TRACE)
    );
}

#[test]
fn off_is_the_only_value() {
    for args in ["--admin=off,auto", "--admin=unix:/a,off"] {
        let error = parse(&[args]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let error = error.to_string();
        let told = "--admin: off and an address exclude each other";
        assert!(error.contains(told), "{error}");
    }
    assert!(parse(&["--admin=off"]).is_ok());
}

/// Also if there is no runtime directory, so that it does not depend on the machine.
#[test]
fn the_socket_for_verbs_is_one_of_the_admin_addresses() {
    let ports = |count: usize| vec!["127.0.0.1:0"; count].join(",");
    let sockets = |count: usize| vec!["unix:/a"; count].join(",");
    for (addresses, why) in [
        (ports(7), None),
        (
            ports(8),
            Some("9 addresses, with the socket for verbs: there can be up to 8"),
        ),
        (ports(7) + ",unix:/a", None),
        (sockets(8), None),
        (sockets(9), Some("9 addresses: there can be up to 8")),
        (["off"; 9].join(","), None),
    ] {
        let refused = parse(&["--admin", &addresses]).err();
        let told = refused.map(|error| error.to_string());
        match (&told, why) {
            (None, None) => {}
            (Some(told), Some(why)) => assert!(told.contains(&format!("--admin: {why}")), "{told}"),
            _ => panic!("{addresses}: {told:?}"),
        }
    }
}

#[test]
fn port_opens_every_interface_unless_an_address_is_given() {
    let listen = |args: &[&str]| parse_with_port(args, Some("5000")).unwrap().serving.listen;
    assert_eq!(listen(&[]), [address("0.0.0.0:5000")]);
    assert_eq!(
        listen(&["--listen", "127.0.0.1:1"]),
        [address("127.0.0.1:1")]
    );
    // It counts as not set, as the other variables do.
    let nothing = parse_with_port(&[], Some("")).unwrap();
    assert_eq!(nothing.serving.listen, [address("127.0.0.1:8080")]);
    let error = parse_with_port(&[], Some("http")).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("PORT is \"http\""), "{error}");
}

#[test]
fn a_number_alone_is_seconds() {
    let args = [
        "--drain-timeout",
        "30",
        "--delay",
        "0",
        "--crash-limit",
        "10/60",
    ];
    let options = parse(&[&args[..], &["--hang-timeout", "5"]].concat()).unwrap();
    let Options {
        serving, processes, ..
    } = options;
    assert_eq!(processes.drain_timeout, Duration::from_secs(30));
    assert_eq!(serving.delay, Duration::ZERO);
    assert_eq!(processes.crash_limit.per, Duration::from_secs(60));
    let five_seconds = HangTimeout(Some(Duration::from_secs(5)));
    assert_eq!(processes.hang_timeout, five_seconds);
}

#[test]
fn durations_are_read_in_every_unit_up_to_a_day() {
    for (text, micros) in [
        ("100us", 100),
        ("250ms", 250_000),
        ("2sec", 2_000_000),
        ("1min 30s", 90_000_000),
        ("1m30s", 90_000_000),
        ("2 hours", 7_200_000_000),
        ("1day", 86_400_000_000),
    ] {
        let delay = parse(&["--delay", text]).unwrap().serving.delay;
        assert_eq!(delay, Duration::from_micros(micros), "{text}");
    }
}

#[test]
fn a_bad_value_names_its_flag_and_a_good_one() {
    for (flag, value, good) in [
        ("--listen", ":", "127.0.0.1:8080"),
        ("--delay", "fast", "250ms"),
        ("--delay", "-1s", "250ms"),
        ("--delay", "2days", "5m"),
        ("--delay", "1s ago", "5m"),
        ("--delay", "1month", "5m"),
        ("--workers", "0", "such as 4"),
        ("--workers", "-1", "such as 4"),
        ("--workers", "1025", "1 to 1024"),
        ("--workers", "many", "auto"),
        ("--listeners", "both", "per-slot"),
        ("--balance", "odd", "even"),
        ("--drain-timeout", "0s", "30s"),
        ("--drain-timeout", "30 0", "30s"),
        ("--drain-timeout", "86401", "5m"),
        ("--hang-timeout", "999ms", "1s"),
        ("--hang-timeout", "off", "30s"),
        ("--crash-limit", "10", "10/60s"),
        ("--crash-limit", "-1/60s", "10/60s"),
        ("--crash-limit", "10/0s", "30s"),
        ("--crash-limit", "10001/1s", "10/60s"),
        ("--header-timeout", "0s", "30s"),
        ("--body-timeout", "0ms", "30s"),
        ("--write-timeout", "0s", "30s"),
        ("--idle-timeout", "0s", "30s"),
        ("--max-target-size", "1023", "1KiB"),
        ("--max-target-size", "65KiB", "64KiB"),
        ("--max-header-size", "8191", "8KiB"),
        ("--max-header-size", "2MiB", "1MiB"),
        ("--max-header-size", "large", "16KiB"),
        ("--max-body-size", "-1", "4MiB"),
        ("--max-body-size", "99999999999TiB", "4MiB"),
        ("--max-connections", "0", "10000"),
        ("--max-requests", "0", "10000"),
        ("--reload-batch", "0", "from 1 up"),
        ("--reload-batch", "65536", "too large"),
        ("--max-connection-requests", "4294967296", "too large"),
        ("--max-warm", "-1", "from 0 up"),
        ("--max-warm", "99999999999999999999", "too large"),
        ("--max-worker-age", "0s", "30s"),
        ("--admin", "", "off, or auto"),
        ("--admin", "of", "off, or auto"),
        ("--announce-fd", "0", "such as 3"),
        ("--announce-fd", "999999", "not open"),
        ("--access-log", "", "access.log"),
        ("--log-format", "xml", "json"),
        ("--log-level", "loud", "debug"),
    ] {
        let error = parse(&[&format!("{flag}={value}")]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let error = error.to_string();
        assert!(
            error.contains(flag) && error.contains(good),
            "{flag} {value}: {error}"
        );
    }
}

#[test]
fn a_value_below_zero_is_a_bad_value_and_no_unknown_option() {
    let is_of_value = |error: &clap::Error| error.get(ContextKind::InvalidArg).is_some();
    let command = Options::command();
    // Paths and texts may begin with `-`.
    let is_checked =
        |option: &&clap::Arg| !["health_path", "tls_ciphers"].contains(&option.get_id().as_str());
    let mut refused = 0;
    for option in command.get_arguments().filter(is_checked) {
        let Some(long) = option.get_long() else {
            continue;
        };
        if !option.get_action().takes_values() || option.is_require_equals_set() {
            continue;
        }
        let joined = parse(&[&format!("--{long}=-5s")]);
        let Some(joined) = joined.err().filter(is_of_value) else {
            continue;
        };
        let apart = parse(&[&format!("--{long}"), "-5s"]).unwrap_err();
        assert_eq!(apart.to_string(), joined.to_string());
        refused += 1;
    }
    assert!(refused > 20, "{refused}");
    for args in [["--pid-file", "--echo"], ["--access-log", "--echo"]] {
        let error = parse(&args).unwrap_err().to_string();
        assert!(error.contains("a value is required for"), "{error}");
    }
}

#[test]
fn a_switch_has_the_usual_words() {
    for (words, is_on) in [
        (["true", "YES", "on", "1"], true),
        (["false", "no", "Off", "0"], false),
    ] {
        assert!(words.iter().all(|word| value::switch(word) == Ok(is_on)));
    }
    for other in ["perhaps", "2", ""] {
        assert!(value::switch(other).is_err_and(|why| why.contains("true or false")));
    }
}

#[test]
fn two_things_to_serve_are_refused() {
    for (args, both) in [
        (&["dir", "--echo"][..], "DIR and --echo"),
        (&["dir", "--respond", "a"], "DIR and --respond"),
        (&["--echo", "--respond", "a"], "--respond and --echo"),
    ] {
        let error = parse(args).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error.to_string().contains(&format!("{both} exclude")),
            "{error}"
        );
    }
    assert_eq!(parse(&["--tls-cert", "a"]).unwrap_err().exit_code(), 2);
}

#[test]
fn each_flag_has_its_variable_and_the_help_its_headings() {
    for arg in Options::command()
        .get_arguments()
        .filter(|arg| !["check", "print_config"].contains(&arg.get_id().as_str()))
    {
        let variable = format!("PREFORK_{}", arg.get_id().as_str().to_uppercase());
        assert_eq!(
            arg.get_env().and_then(|name| name.to_str()),
            Some(&variable[..])
        );
    }
    let short = parse(&["-h"]).unwrap_err().to_string();
    assert!(
        short.contains("--hang-timeout") && short.contains("--help says more"),
        "{short}"
    );
    assert!(
        short.lines().count() < 150 && !short.contains("Examples:"),
        "{short}"
    );
    let help = parse(&["--help"]).unwrap_err();
    assert_eq!(help.exit_code(), 0);
    let help = help.to_string();
    for heading in [
        "Serving:",
        "Processes:",
        "Limits:",
        "Logs:",
        "Configuration:",
        "Examples:",
        "generate --help",
    ] {
        assert!(help.contains(heading), "{heading}");
    }
    assert!(
        parse(&["--version"])
            .unwrap_err()
            .to_string()
            .starts_with("prefork-server ")
    );
}
