//! Walks the tree of flags, and keeps `docs/usage.md` true.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory, Parser};

use super::*;

/// The commands with flags of their own, built as clap builds them for help.
fn commands() -> Vec<Command> {
    let mut cli = Cli::command();
    cli.build();
    cli.get_subcommands().cloned().collect()
}

fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
}

#[test]
fn the_tree_of_flags_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn each_flag_has_help_heading_and_value_name() {
    for command in commands() {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name}");
        for flag in flags(&command) {
            let id = flag.get_id();
            let help = flag.get_help().unwrap_or_else(|| panic!("{name} {id}: no help")).to_string();
            assert!(help.len() <= 60, "{name} {id}: -h is a line per flag: {help}");
            assert!(!help.ends_with('.'), "{name} {id}: a line, not a sentence: {help}");
            assert!(flag.get_help_heading().is_some(), "{name} {id}: no heading");
            let takes_value = matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
            if takes_value {
                let names = flag.get_value_names().unwrap_or_default();
                assert!(names.len() == 1, "{name} {id}: no value name");
                assert_eq!(names[0].to_uppercase(), *names[0], "{name} {id}");
            }
        }
    }
}

#[test]
fn no_flag_takes_a_password() {
    for command in commands() {
        for flag in flags(&command) {
            let long = flag.get_long().unwrap_or_default();
            assert!(!["pass", "password", "auth"].contains(&long), "--{long}");
        }
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let cases: &[&[&str]] = &[
        &["--url", "redis://h", "--host", "h"],
        &["--url", "redis://h", "--port", "1"],
        &["--url", "redis://h", "--socket", "/s"],
        &["--socket", "/s", "--port", "1"],
        &["--all-dbs", "-n", "1"],
        &["--askpass", "--password-file", "f"],
        &["--cert", "c"],
        &["--key", "k"],
        &["--cacert", "c", "--insecure"],
        &["--quiet", "--verbose"],
        &["--quiet", "--progress", "plain"],
        &["--no-progress", "--progress", "bar"],
        &["--port", "0"],
        &["--port", "65536"],
        &["-n", "-1"],
        &["--match", ""],
        &["--fail-on", "none"],
        &["--risk", "severe"],
        &["--sample", "0"],
        &["--max-latency", "0s"],
        &["--timeout", "5"],
        &["--format", "xml"],
        &["--sort", "size"],
        &["stray"],
        &["--rate"],
    ];
    for typed in cases {
        let line = ["bigkeys", "scan"].iter().chain(*typed);
        assert!(Cli::try_parse_from(line).is_err(), "{typed:?}");
    }
}

#[test]
fn what_was_typed_does_not_show_a_password() {
    let cli = Cli::try_parse_from(["bigkeys", "scan", "-u", "redis://:hunter2@h"]).expect("it is a scan");
    assert!(!format!("{cli:?}").contains("hunter2"));
}

/// `docs/usage.md` as it should be.
fn usage() -> String {
    let mut text = String::from(
        "# Usage\n\nEvery command and flag of `bigkeys`, as `--help` tells them. This page is generated from the flags \
         and compared by a test; `BIGKEYS_BLESS=1 cargo test --lib usage` writes it anew. How a run ends is in \
         [exit-codes.md](exit-codes.md).\n",
    );
    for command in commands() {
        let about = command.get_long_about().or(command.get_about()).expect("each command has one");
        let _ = write!(text, "\n## `bigkeys {}`\n\n{}\n", command.get_name(), about.to_string().trim());
        let mut heading = "";
        for flag in flags(&command) {
            let at = flag.get_help_heading().unwrap_or_default();
            if at != heading {
                heading = at;
                let _ = write!(text, "\n### {heading}\n");
            }
            let value = flag.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
            let takes_value = matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
            let value = value.filter(|_| takes_value).map(|name| format!(" {name}")).unwrap_or_default();
            let names: Vec<String> = [
                flag.get_short().map(|short| format!("`-{short}{value}`")),
                flag.get_long().map(|long| format!("`--{long}{value}`")),
            ]
            .into_iter()
            .flatten()
            .collect();
            let names = if names.is_empty() { format!("`{}`", value.trim()) } else { names.join(", ") };
            let help = flag.get_long_help().or(flag.get_help()).expect("each flag has it").to_string();
            let mut item = format!("{names}: {}", help.trim());
            let defaults: Vec<String> =
                flag.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
            let choices: Vec<String> =
                flag.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
            if takes_value && !choices.is_empty() {
                let _ = write!(item, "\n\nOne of {}.", choices.join(", "));
            }
            if takes_value && !defaults.is_empty() {
                let _ = write!(item, "\n\nDefault: `{}`.", defaults.join(","));
            }
            let _ = write!(text, "\n- {}\n", item.replace("\n\n", "\n\n  "));
        }
    }
    text
}

#[test]
fn usage_page_tells_each_flag() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/usage.md");
    let usage = usage();
    if std::env::var_os("BIGKEYS_BLESS").is_some() {
        std::fs::write(path, &usage).expect("docs can be written");
    }
    let page = std::fs::read_to_string(path).expect("docs/usage.md is there");
    assert!(page == usage, "docs/usage.md is out of date: BIGKEYS_BLESS=1 cargo test --lib usage");
    for command in commands() {
        for flag in flags(&command) {
            if let Some(long) = flag.get_long() {
                assert!(page.contains(&format!("`--{long}")), "--{long}");
            }
        }
    }
}

#[test]
fn exit_code_page_tells_each_code() {
    let page = include_str!("../../../docs/exit-codes.md");
    for exit in crate::cli::exit::Exit::ALL {
        assert!(page.contains(&format!("| {} |", exit.code())), "{exit:?}");
    }
}
