use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::*;
use crate::cli::args::{Cli, Command};
use crate::engine::key::{Encoding, Kind};
use crate::engine::live::{Address, Secret};
use crate::engine::report::sample;
use crate::engine::risk::{Level, Thresholds};
use crate::engine::scan::{Databases, TtlFilter};
use crate::engine::tally::SortBy;

fn typed(line: &[&str]) -> ScanArgs {
    match Cli::try_parse_from(["bigkeys", "scan"].iter().chain(line)) {
        Ok(Cli { command: Command::Scan(args) }) => *args,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn settled_in(line: &[&str], around: &Surroundings) -> Result<Settled, CommandError> {
    settle(&typed(line), around, |_| Ok("typed".into()))
}

fn settled(line: &[&str]) -> Settled {
    settled_in(line, &Surroundings::default()).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

/// Settles what must be refused, and returns the error with its hints.
fn refused_in(line: &[&str], around: &Surroundings) -> String {
    let error = settled_in(line, around).map(|_| ()).expect_err("it must be refused");
    assert_eq!(error.exit(), Exit::Usage, "{line:?}");
    assert!(
        !error.hints().is_empty() || error.to_string().contains("--"),
        "{line:?}: nothing to do about it"
    );
    format!("{error}\n{}", error.hints().join("\n"))
}

fn refused(line: &[&str]) -> String {
    refused_in(line, &Surroundings::default())
}

fn environment(url: &str, auth: &str) -> Surroundings {
    let value = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
    Surroundings { url: value(url), auth: value(auth), ..Surroundings::default() }
}

fn password(settled: &Settled) -> Option<&str> {
    settled.config.targets[0].endpoint.credentials.password.as_ref().map(Secret::reveal)
}

#[test]
fn without_flags_a_scan_is_safe_for_production() {
    let Settled { config, stdout, files, warnings, .. } = settled(&[]);
    assert_eq!(config.targets[0].endpoint.address.to_string(), "127.0.0.1:6379");
    assert_eq!(config.targets[0].endpoint.credentials.password, None);
    assert_eq!(config.targets[0].endpoint.tls, None);
    assert_eq!(config.targets[0].endpoint.timeouts.connect, Duration::from_secs(5));
    assert_eq!(config.targets[0].endpoint.timeouts.command, Duration::from_secs(15));
    assert_eq!(config.targets[0].databases, Databases::All);
    assert_eq!(config.rate, Some(10_000.0));
    assert_eq!(config.count, Count::Auto);
    assert_eq!(config.latency_max, Duration::from_millis(10));
    assert_eq!(config.latency_abort, Duration::from_millis(250));
    assert_eq!(config.memory_samples, 5);
    assert_eq!(config.top, 20);
    assert_eq!(config.sort_by, SortBy::Allocations);
    assert_eq!(config.thresholds, Thresholds::default());
    assert_eq!(config.sample_keys, None);
    assert!(!config.all_keys && !config.exact_lists);
    assert!(config.filter.globs.is_empty() && config.filter.regex.is_none());
    assert_eq!(stdout, Format::Csv);
    assert!(files.is_empty() && warnings.is_empty());
}

#[test]
fn a_terminal_gets_a_table_unless_told_otherwise() {
    let around = Surroundings { stdout_is_terminal: true, ..Surroundings::default() };
    assert_eq!(settled_in(&[], &around).map(|s| s.stdout).ok(), Some(Format::Table));
    let line = ["--format", "jsonl"];
    assert_eq!(settled_in(&line, &around).map(|s| s.stdout).ok(), Some(Format::Ndjson));
}

#[test]
fn filters_reach_the_engine() {
    let line = "--match a* --match \"\\x00*\" --exclude b* --regex ^a --type hash,ZSET --type list --encoding \
                hashtable --min-bytes 10M --min-elements 5k --min-allocs 64 --risk high --ttl <1h --idle-over 30d \
                --sample 1k --all-keys --exact-lists --top 5 --sort stall --levels 1,2,3,4 --rate max --count 100";
    let config = settled(&line.split_whitespace().collect::<Vec<_>>()).config;
    let filter = config.filter;
    assert_eq!(filter.globs, [b"a*".to_vec(), b"\0*".to_vec()]);
    assert_eq!(filter.exclude_globs, [b"b*".to_vec()]);
    assert!(filter.regex.is_some_and(|regex| regex.is_match(b"a\xff") && !regex.is_match(b"ba")));
    assert_eq!(filter.kinds, [Kind::Hash, Kind::Zset, Kind::List]);
    assert_eq!(filter.encodings, [Encoding::Hashtable]);
    assert_eq!((filter.bytes_min, filter.elements_min), (Some(10_000_000), Some(5000)));
    assert_eq!((filter.allocations_min, filter.level_min), (Some(64), Some(Level::High)));
    assert_eq!(filter.ttl, Some(TtlFilter::Under(Duration::from_hours(1))));
    assert_eq!(filter.idle_over, Some(Duration::from_hours(30 * 24)));
    assert_eq!((config.sample_keys, config.top, config.sort_by), (Some(1000), 5, SortBy::Stall));
    assert!(config.all_keys && config.exact_lists);
    assert_eq!(config.thresholds, Thresholds { low: 1, medium: 2, high: 3, critical: 4 });
    assert_eq!((config.rate, config.count), (None, Count::Fixed(100)));
}

#[test]
fn addresses_come_from_flags_before_the_environment() {
    let around = environment("redis://:pw@elsewhere:7000/3", "");
    let cases: [(&[&str], &str, Databases); 8] = [
        (&[], "elsewhere:7000", Databases::Only(vec![3])),
        (&["-n", "5"], "elsewhere:7000", Databases::Only(vec![5])),
        (&["--all-dbs"], "elsewhere:7000", Databases::All),
        (&["-p", "6380"], "127.0.0.1:6380", Databases::All),
        (&["--host", "[::1]"], "[::1]:6379", Databases::All),
        (&["--host", "2001:db8::1", "-p", "1"], "[2001:db8::1]:1", Databases::All),
        (&["-s", "/run/r.sock", "-n", "3,1,3"], "/run/r.sock", Databases::Only(vec![1, 3])),
        (&["-u", "redis://h/0"], "h:6379", Databases::Only(vec![0])),
    ];
    for (line, address, databases) in cases {
        let config = settled_in(line, &around).unwrap_or_else(|error| panic!("{line:?}: {error}")).config;
        assert_eq!(config.targets[0].endpoint.address.to_string(), address, "{line:?}");
        assert_eq!(config.targets[0].databases, databases, "{line:?}");
        let from_environment = address == "elsewhere:7000";
        assert_eq!(config.targets[0].endpoint.credentials.password.is_some(), from_environment, "{line:?}");
    }
}

#[test]
fn passwords_come_from_the_nearest_place() {
    let with_url = "redis://:from-url@h";
    let cases: [(&[&str], &str, &str, Option<&str>); 9] = [
        (&[], "", "", None),
        (&[], "", "from-auth", Some("from-auth")),
        (&[], with_url, "from-auth", Some("from-url")),
        (&["--askpass"], with_url, "from-auth", Some("typed")),
        (&["-u", "redis://:arg@h"], with_url, "from-auth", Some("arg")),
        (&["-u", "redis://h"], with_url, "from-auth", Some("from-auth")),
        (&["-u", "redis://h"], with_url, "", None),
        (&["--user", "al"], with_url, "from-auth", Some("from-auth")),
        (&["-u", "redis://:arg@h", "--user", "al"], "", "", Some("arg")),
    ];
    for (line, url, auth, expected) in cases {
        let settled = settled_in(line, &environment(url, auth)).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        assert_eq!(password(&settled), expected, "{line:?} {url} {auth}");
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of_and_one_in_the_environment_is_not() {
    let settled = settled_in(&["-u", "redis://:hunter2@h"], &environment("", "")).expect("it is accepted");
    assert_eq!(settled.warnings.len(), 1);
    assert!(settled.warnings[0].contains("BIGKEYS_URL") && !settled.warnings[0].contains("hunter2"));
    let settled = settled_in(&[], &environment("redis://:hunter2@h", "")).expect("it is accepted");
    assert_eq!(settled.warnings, [""; 0]);
    assert!(!format!("{settled:?}").contains("hunter2"));
}

#[test]
fn a_password_file_holds_one_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("pass");
    let read = |content: &[u8]| {
        std::fs::write(&path, content).expect("it can be written");
        let line = ["--password-file", path.to_str().expect("it is UTF-8")];
        settled_in(&line, &Surroundings::default())
    };
    for content in [&b"p w\xc3\xa9"[..], b"p w\xc3\xa9\n", b"p w\xc3\xa9\r\n"] {
        let settled = read(content).expect("it is a password");
        assert_eq!(password(&settled), Some("p w\u{e9}"));
    }
    for content in [&b""[..], b"\n", b"secret\nmore", b"secret\xff", &vec![b'x'; 70_000]] {
        let error = read(content).map(|_| ()).expect_err("it is no password");
        assert_eq!(error.exit(), Exit::Failed);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let error = settled_in(&["--password-file", "/no/such"], &Surroundings::default()).map(|_| ());
    assert!(
        error.is_err_and(|error| error.to_string().starts_with("cannot open the password file `/no/such`"))
    );
}

#[cfg(unix)]
#[test]
fn a_password_file_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("pass");
    std::fs::write(&path, "pw").expect("it can be written");
    for (mode, warnings) in
        [(0o600, 0), (0o400, 0), (0o440, 0), (0o640, 0), (0o644, 1), (0o660, 1), (0o604, 1)]
    {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let settled = settled(&["--password-file", path.to_str().expect("it is UTF-8")]);
        assert_eq!(settled.warnings.len(), warnings, "{mode:o}");
    }
}

#[test]
fn tls_is_on_when_asked_for_and_never_silently_off() {
    let tls = |line: &[&str]| settled(line).config.targets[0].endpoint.tls.clone();
    assert!(tls(&["--tls"]).is_some());
    assert!(tls(&["-u", "redis://h", "--tls"]).is_some());
    let options = tls(&["-u", "rediss://h", "--cacert", "ca", "--cert", "c", "--key", "k", "--sni", "n"]);
    let options = options.expect("the URL says so");
    assert_eq!(options.ca_file, Some("ca".into()));
    assert_eq!((options.cert_file, options.key_file), (Some("c".into()), Some("k".into())));
    assert_eq!((options.server_name.as_deref(), options.insecure), (Some("n"), false));
    let insecure = settled(&["--tls", "--insecure"]);
    assert_eq!(insecure.warnings.len(), 1);
    for line in [&["--cacert", "ca"][..], &["--insecure"], &["--sni", "n"], &["--cert", "c", "--key", "k"]] {
        assert!(refused(line).contains("without TLS"), "{line:?}");
    }
    assert!(refused(&["--tls", "-s", "/s"]).contains("Unix socket"));
}

#[test]
fn what_contradicts_itself_is_refused_with_what_to_do() {
    let cases: [(&[&str], &str); 18] = [
        (&["-u", "redis://h/1", "-n", "2"], "leave one of them out"),
        (&["-u", "redis://h/1", "--all-dbs"], "leave one of them out"),
        (&["-u", "redis://a:b@h", "--user", "c"], "leave one of them out"),
        (&["-u", "redis://:b@h", "--askpass"], "out of the URL"),
        (&["--user", "al"], "REDISCLI_AUTH"),
        (&["--user", "", "--askpass"], "leave it out"),
        (&["--host", ""], "--host takes"),
        (&["--host", "redis://h"], "--url"),
        (&["--host", "h:6379"], "--port"),
        (&["--samples", "0"], "--i-know-this-blocks"),
        (&["--samples", "1001"], "--i-know-this-blocks"),
        (&["--count", "10001"], "--i-know-this-blocks"),
        (&["--abort-latency", "5ms"], "raise --abort-latency"),
        (&["-o", "keys"], ".ndjson"),
        (&["-o", "keys.xlsx"], ".ndjson"),
        (&["-o", "-"], "--format"),
        (&["-o", "a.csv", "-o", "a.csv"], "twice"),
        (&["-u", "h:6379"], "redis://"),
    ];
    for (line, told) in cases {
        let text = refused(line);
        assert!(text.contains(told), "{line:?}: {text}");
    }
    for line in [&["--samples", "0", "--i-know-this-blocks"][..], &["--count", "1M", "--i-know-this-blocks"]]
    {
        settled(line);
    }
}

#[test]
fn no_refusal_shows_a_password() {
    let urls = [
        "redis://:hunter2@h:port",
        "redis://hunter2@h",
        "redis://:hunter/2@h",
        "redis://:hunter?2@h",
        "redis://:hunter2%@h",
        "redis://:hunter2@h/x",
        "redis://:hunter2@h?x=1",
        "redis://:hunter2@h#",
        "redis://:hunter2@[h",
        "http://:hunter2@h",
        ":hunter2@h",
        "unix://:hunter2@h/s",
        "unix:///s?pass=hunter2&x=1",
    ];
    for url in urls {
        assert!(!refused(&["-u", url]).contains("hunter"), "{url}");
        assert!(!refused(&["--host", url]).contains("hunter"), "{url}");
        assert!(!url.contains("://") || !refused(&["--socket", url]).contains("hunter"), "{url}");
        let text = refused_in(&[], &environment(url, ""));
        assert!(!text.contains("hunter") && text.contains("BIGKEYS_URL"), "{text}");
    }
}

#[test]
fn nobody_types_a_password_for_a_command_line_that_is_refused() {
    let args = typed(&["--askpass", "--insecure"]);
    let asked = settle(&args, &Surroundings::default(), |_| panic!("it asked"));
    assert!(asked.is_err());
}

#[test]
fn the_prompt_names_user_and_address() {
    let args = typed(&["--askpass", "--user", "al", "--host", "h"]);
    let prompted = settle(&args, &Surroundings::default(), |prompt| {
        assert_eq!(prompt, "password for user al at h:6379: ");
        Err(io::Error::other("no terminal"))
    });
    let error = prompted.map(|_| ()).expect_err("there is none");
    assert_eq!(error.to_string(), "cannot ask for the password: no terminal");
}

#[test]
fn the_rule_is_as_small_as_the_flags_allow() {
    let rule = |line: &[&str]| acl_rule(&settled(line).config);
    assert!(rule(&[]).starts_with("resetkeys -@all ~* +ping "));
    assert!(rule(&[]).contains("+select") && !rule(&[]).contains("debug"));
    assert!(!rule(&["-n", "0"]).contains("+select"));
    assert!(rule(&["--exact-lists"]).contains("+debug|object"));
    assert!(rule(&["--match", "a:*", "--match", "b:*"]).starts_with("resetkeys -@all ~a:* ~b:* +"));
    assert!(rule(&["--match", "a b*"]).contains(" ~* "));
}

#[test]
fn a_socket_in_a_url_is_a_socket() {
    let config = settled(&["-u", "unix:///run/r.sock?db=2"]).config;
    assert_eq!(config.targets[0].endpoint.address, Address::Unix("/run/r.sock".into()));
    assert_eq!(config.targets[0].databases, Databases::Only(vec![2]));
}

/// Runs an engine that a test made up, with NDJSON for a reader; returns what came of it and what was
/// written.
fn driven(
    interrupt: &Interrupt,
    engine: impl AsyncFnOnce(&mut Listener<'_>) -> Result<ScanReport, ScanError>,
) -> (Result<Option<ScanReport>, CommandError>, String) {
    let around = Surroundings::default();
    let quiet = crate::cli::args::ConsoleArgs { quiet: true, ..Default::default() };
    let console = Console::new(quiet, &around);
    let mut progress = ProgressView::new(quiet, &around, false, console.bar());
    let mut written = Vec::new();
    let mut sink = Sink::new();
    sink.add_stream(Format::Ndjson, &mut written, TableStyle::FILE).expect("it is memory");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ended = runtime.block_on(drive(engine, &mut sink, None, &mut progress, &console, interrupt));
    if let Ok(Some(report)) = &ended {
        sink.finish(report).expect("it is memory");
    } else {
        drop(sink);
    }
    (ended, String::from_utf8(written).expect("it is JSON"))
}

fn progress_event() -> Event<'static> {
    Event::Progress(crate::engine::event::Progress {
        db: 0,
        keys: 1,
        keys_total: Some(2),
        commands_per_second: 1.0,
        keys_per_second: 1.0,
        biggest: None,
        nodes: Vec::new(),
    })
}

#[test]
fn findings_are_written_as_they_come_and_the_summary_last() {
    let (ended, written) = driven(&Interrupt::default(), async |tell: &mut Listener<'_>| {
        assert!(tell(Event::Started(&sample::server())).is_continue());
        for finding in &sample::findings() {
            assert!(tell(Event::Finding(finding)).is_continue());
        }
        assert!(tell(progress_event()).is_continue());
        Ok(sample::report())
    });
    assert!(matches!(ended, Ok(Some(_))));
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines.len(), sample::findings().len() + 1);
    assert!(lines.last().is_some_and(|line| line.contains("\"record\":\"summary\"")));
}

#[test]
fn ctrl_c_before_there_is_a_connection_ends_at_once() {
    let interrupt = Interrupt::default();
    let (ended, written) = driven(&interrupt, async |_: &mut Listener<'_>| {
        interrupt.request();
        std::future::pending().await
    });
    let error = ended.map(|_| ()).expect_err("there is no result");
    assert_eq!((error.exit(), written.as_str()), (Exit::Interrupted, ""));
}

#[test]
fn ctrl_c_during_a_scan_is_told_at_the_next_event_and_loses_nothing() {
    let interrupt = Interrupt::default();
    let (ended, written) = driven(&interrupt, async |tell: &mut Listener<'_>| {
        assert!(tell(Event::Started(&sample::server())).is_continue());
        interrupt.request();
        tokio::task::yield_now().await;
        let finding = &sample::findings()[0];
        assert_eq!(tell(Event::Finding(finding)), ControlFlow::Break(Stop::Interrupted));
        let completeness = Completeness::Partial(IncompleteReason::Interrupted);
        Ok(ScanReport { completeness, ..sample::report() })
    });
    let report = ended.expect("it ended well").expect("there is a report");
    assert_eq!(Exit::of_scan(&report, Some(Level::Low)), Exit::Interrupted);
    assert_eq!(written.lines().count(), 2);
    assert!(written.contains("\"interrupted\""));
}

#[test]
fn a_reader_that_is_gone_ends_the_scan_quietly() {
    struct Gone;
    impl io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let around = Surroundings::default();
    let console = Console::plain(&around);
    let mut progress = ProgressView::None;
    let mut sink = Sink::new();
    sink.add_stream(Format::Ndjson, Gone, TableStyle::FILE).expect("nothing is written yet");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let engine = async |tell: &mut Listener<'_>| {
        assert!(tell(Event::Started(&sample::server())).is_continue());
        let finding = &sample::findings()[0];
        assert_eq!(tell(Event::Finding(finding)), ControlFlow::Break(Stop::OutputClosed));
        Ok(sample::report())
    };
    let ended =
        runtime.block_on(drive(engine, &mut sink, None, &mut progress, &console, &Interrupt::default()));
    assert!(matches!(ended, Ok(None)));
}
