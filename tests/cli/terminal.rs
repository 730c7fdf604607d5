//! On a terminal: a table, a bar, and a password that is asked for. `script` of util-linux is the
//! terminal, 80 columns wide.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Action, CALM, Lab, Proxy, on_servers};

/// Runs `bigkeys` with these arguments on a terminal, types this, and returns the exit code and all that
/// was shown. `None`: there is no such `script` here.
fn on_a_terminal(lab: &Lab, env: &str, args: &[&str], types: &str) -> Option<(Option<i32>, String)> {
    answers_on_a_terminal(lab, env, args, "", types)
}

/// Like [`on_a_terminal`], but types only once this was shown.
pub(super) fn answers_on_a_terminal(
    lab: &Lab,
    env: &str,
    args: &[&str],
    prompt: &str,
    types: &str,
) -> Option<(Option<i32>, String)> {
    let version = Command::new("script").arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("util-linux") {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "script of util-linux is missing");
        eprintln!("skipped: there is no script of util-linux");
        return None;
    }
    let quoted: Vec<_> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let command =
        format!("stty cols 80 rows 24; {env} exec {} {}", env!("CARGO_BIN_EXE_bigkeys"), quoted.join(" "));
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(lab.path(""))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm-256color")
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("script can be started");
    let mut stdout = child.stdout.take().expect("stdout is a pipe");
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains(prompt) {
        match stdout.read(&mut buffer).expect("a pipe can be read") {
            0 => break,
            length => shown.extend_from_slice(&buffer[..length]),
        }
    }
    let stdin = child.stdin.as_mut().expect("stdin is a pipe");
    // It may have ended without a prompt.
    let _ = stdin.write_all(types.as_bytes()).and_then(|()| stdin.flush());
    stdout.read_to_end(&mut shown).expect("a pipe can be read");
    let status = child.wait().expect("it ends");
    Some((status.code(), String::from_utf8_lossy(&shown).into_owned()))
}

/// Leaves out what moves the cursor and colours: `ESC [ ... letter`, and what a bar wrote over.
fn seen(shown: &str) -> String {
    let mut text = String::new();
    let mut chars = shown.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            '\r' => {}
            c => text.push(c),
        }
    }
    text
}

fn scan<'a>(port: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["scan", "--port", port, "--rate", "max"];
    args.extend(CALM);
    args.extend(more);
    args
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_terminal_gets_a_table_of_its_width(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_hash("a name that goes on and on, well beyond what fits into a column of the table", 20_000);
        redis.call(&["SADD", "\u{1b}]0;title\u{7}\u{1b}[2Jhostile", &"x".repeat(100)]);
        redis.fill_set("\u{1b}[31mred", 1000);
        redis.call(&["APPEND", &"long".repeat(1000), &"x".repeat(1 << 20)]);
        let port = lab.address().port().to_string();
        let Some((code, shown)) = on_a_terminal(&lab, "", &scan(&port, &["--no-progress"]), "") else { return };
        assert_eq!(code, Some(0), "{shown}");
        let text = seen(&shown);
        assert!(text.contains("hash") && text.contains("20.0k fields"), "{text}");
        let (findings, _) = text.split_once("node,db").unwrap_or((&text, ""));
        assert_eq!(findings.len(), text.len(), "a table and no CSV:\n{text}");
        for line in text.lines().filter(|line| !line.starts_with("warning:")) {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        // What a key is called moves no cursor and sets no title.
        assert!(!shown.contains("\u{1b}]") && !shown.contains("\u{1b}[2J") && !shown.contains('\u{7}'), "{shown:?}");
        assert!(!shown.contains("\u{1b}[31mred"), "{shown:?}");
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn colour_and_bar_can_be_switched_off(kind) {
        let lab = Lab::start(kind);
        lab.redis().fill_hash("big", 20_000);
        let port = lab.address().port().to_string();
        for (env, flag) in [("NO_COLOR=1", "--no-progress"), ("TERM=dumb", "--no-progress"), ("", "--no-color")] {
            let args = scan(&port, &["--no-progress", flag]);
            let args: Vec<_> = if flag == "--no-progress" { args[..args.len() - 1].to_vec() } else { args };
            let Some((code, shown)) = on_a_terminal(&lab, env, &args, "") else { return };
            assert_eq!(code, Some(0), "{shown}");
            assert!(!shown.contains('\u{1b}'), "{env} {flag}: {shown:?}");
        }
        let Some((_, shown)) = on_a_terminal(&lab, "", &scan(&port, &["--no-progress"]), "") else { return };
        assert!(shown.contains('\u{1b}'), "a table in colour: {shown:?}");
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_bar_says_how_far_it_is_and_goes_when_it_is_done(kind) {
        let lab = Lab::start(kind);
        lab.redis().run("DEBUG POPULATE 2000 key 10");
        let proxy = Proxy::start(lab.address(), |request| {
            if request.is("SCAN") { Action::Delay(Duration::from_millis(100)) } else { Action::Forward }
        });
        let port = proxy.port().to_string();
        let Some((code, shown)) = on_a_terminal(&lab, "", &scan(&port, &["--count", "100"]), "") else { return };
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("/2.0k keys, ") && shown.contains("left"), "{shown:?}");
        let bar = shown.rfind("/2.0k keys, ").expect("a bar");
        let table = shown.rfind("Summary").expect("a table");
        assert!(bar < table, "the bar is gone when the table comes: {shown:?}");
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_password_is_asked_for_and_not_shown(kind) {
        let lab = Lab::with(kind, |_, options| options.config("requirepass s3cret"));
        let port = lab.address().port().to_string();
        let args = scan(&port, &["--askpass", "--no-progress", "--format", "json"]);
        let Some((code, shown)) = on_a_terminal(&lab, "", &args, "s3cret\n") else { return };
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("password") && shown.contains(&port), "{shown}");
        // The terminal may echo what was typed before the prompt came; bigkeys itself says nothing of it.
        let (_, after) = shown.split_once("password").expect("a prompt");
        assert!(!after.contains("s3cret"), "{shown}");
    }
}
