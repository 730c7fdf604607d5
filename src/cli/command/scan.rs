//! `bigkeys scan`: settles what was typed, runs the engine, writes the results, says how it ended.

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::runtime;

use crate::cli::args::{DepthArgs, FilterArgs, PaceArgs, Rate, ScanArgs};
use crate::cli::console::{self, Console};
use crate::cli::error::{CommandError, ErrorKind};
use crate::cli::exit::{Exit, keys_from_level};
use crate::cli::hint::hint;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::ProgressView;
use crate::cli::surroundings::Surroundings;
use crate::engine::event::{Event, Stop};
use crate::engine::key::{Permission, Role, ServerProfile};
use crate::engine::report::{
    Completeness, Format, IncompleteReason, OutputError, ScanReport, Sink, TableStyle,
};
use crate::engine::scan::{
    Checkpoint, Count, Filter, Preference, ScanConfig, ScanError, Target, acl_remarks, acl_rule, run,
};

use self::checkpoint::{CheckpointFile, Resumed};
use super::connect;

mod checkpoint;

/// Keys a SCAN call may be told to walk without `--i-know-this-blocks`: some milliseconds.
const COUNT_MAX: u32 = 10_000;

/// `MEMORY USAGE ... SAMPLES` without `--i-know-this-blocks`: 0.7 s for a million members is 0.7 ms for a
/// thousand.
const SAMPLES_MAX: u32 = 1_000;

/// Time after which a reader at the other end of a pipe sees what was found.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// Size of a list that `--exact-lists` counts without `--i-know-this-blocks`: 1 to 2 ms of DEBUG OBJECT.
const EXACT_LIST_BYTES_MAX: u64 = 1 << 20;

/// What was typed, settled.
#[derive(Debug)]
struct Settled {
    config: ScanConfig,
    /// Form of stdout.
    stdout: Format,
    files: Vec<PathBuf>,
    checkpoint: Option<CheckpointFile>,
    resumed: Option<Resumed>,
    warnings: Vec<String>,
}

/// Runs `bigkeys scan`.
pub(in crate::cli) fn scan(
    args: &ScanArgs,
    around: &Surroundings,
    console: &Console,
) -> Result<Exit, CommandError> {
    if args.depth.print_acl {
        return print_acl(args, around, console);
    }
    let settled = settle(args, around, |prompt| rpassword::prompt_password(prompt))?;
    for warning in &settled.warnings {
        console.warn(warning);
    }
    // Not before the prompt: Ctrl-C there should end the process as ever.
    let interrupt = Interrupt::listen()
        .map_err(|error| CommandError::new(ErrorKind::System("cannot listen for signals")).because(error))?;
    let mut sink = Sink::new();
    for path in &settled.files {
        match &settled.resumed {
            Some(resumed) => resumed.add_file(path, &mut sink),
            None => sink.add_file(path),
        }
        .map_err(open_error)?;
    }
    // What a checkpoint names has to stay.
    if settled.checkpoint.is_none() {
        for path in sink.temporary_files() {
            interrupt.remove_on_exit(path);
        }
    }
    let style = TableStyle {
        width: usize::from(around.columns.unwrap_or(80)),
        colour: around.stdout_is_terminal && !around.no_color && !args.console.no_color,
        verbose: args.console.verbose,
    };
    let (stdout, unwritten) = console::stdout();
    sink.add_stream(settled.stdout, stdout, style).map_err(output_error)?;
    let rows_on_terminal = around.stdout_is_terminal && settled.stdout != Format::Table;
    let mut progress = ProgressView::new(args.console, around, rows_on_terminal, console.bar());
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(|error| {
            CommandError::new(ErrorKind::System("cannot start the runtime")).because(error)
        })?;

    let engine = async |on_event: &mut Listener<'_>| run(&settled.config, on_event).await;
    let driven = runtime.block_on(drive(
        engine,
        &mut sink,
        settled.checkpoint.as_ref(),
        &mut progress,
        console,
        &interrupt,
    ));
    progress.finish();
    if driven.is_err() {
        unwritten.take_back();
    }
    let Some(report) = driven? else {
        // `bigkeys scan | head`: nobody listens any more, and nothing went wrong.
        return Ok(Exit::Done);
    };
    let written = sink.finish(&report);
    if settled.stdout != Format::Table || written.is_err() {
        conclude(&report, console);
    }
    if let (Some(file), Ok(())) = (&settled.checkpoint, &written) {
        conclude_checkpoint(file, &report, console);
    }
    if let Err(failures) = written {
        return report_failures(failures, console);
    }
    let exit = Exit::of_scan(&report, args.output.fail_on);
    if let (Exit::FailOn, Some(level)) = (exit, args.output.fail_on) {
        let keys = keys_from_level(&report, level);
        let keys = if keys == 1 { "1 key reaches".to_owned() } else { format!("{keys} keys reach") };
        console.note(&format!("--fail-on {level}: {keys} this level"));
    }
    Ok(exit)
}

/// What the engine speaks to.
type Listener<'l> = dyn FnMut(Event<'_>) -> ControlFlow<Stop> + 'l;

/// Runs the engine, listens to it and to signals, and returns its report: none when the only reader of
/// the results is gone.
async fn drive(
    engine: impl AsyncFnOnce(&mut Listener<'_>) -> Result<ScanReport, ScanError>,
    sink: &mut Sink<'_>,
    checkpoints: Option<&CheckpointFile>,
    progress: &mut ProgressView,
    console: &Console,
    interrupt: &Interrupt,
) -> Result<Option<ScanReport>, CommandError> {
    let has_begun = Cell::new(false);
    let is_closed = Cell::new(false);
    let mut servers: Vec<ServerProfile> = Vec::new();
    let mut flushed_at = Instant::now();
    let mut on_event = |event: Event<'_>| {
        let written = match event {
            Event::Finding(finding) => match servers.get(finding.server) {
                Some(server) => sink.write(finding, server),
                None => Ok(()),
            },
            Event::Progress(now) => {
                progress.update(&now);
                if flushed_at.elapsed() >= FLUSH_PERIOD {
                    flushed_at = Instant::now();
                    sink.flush()
                } else {
                    Ok(())
                }
            }
            Event::Checkpoint(now) => keep(now, sink, checkpoints, console),
            Event::BegunAnew => sink.begin_anew(),
            other => {
                if let Event::Started(server) = &other {
                    has_begun.set(true);
                    servers.push((*server).clone());
                }
                tell(&other, console);
                Ok(())
            }
        };
        match written {
            Err(error) if error.is_closed_pipe() => {
                is_closed.set(true);
                ControlFlow::Break(Stop::OutputClosed)
            }
            Err(_) if sink.is_empty() => ControlFlow::Break(Stop::OutputFailed),
            // The sink remembers it for the end; the other outputs go on.
            Err(error) => {
                console.warn(&format!("{error}; the other outputs go on"));
                ControlFlow::Continue(())
            }
            Ok(()) if interrupt.is_requested() => ControlFlow::Break(Stop::Interrupted),
            Ok(()) => ControlFlow::Continue(()),
        }
    };
    let mut scan = pin!(engine(&mut on_event));
    let ended = tokio::select! {
        ended = &mut scan => ended,
        () = interrupt.requested() => {
            if !has_begun.get() {
                return Err(CommandError::new(ErrorKind::Interrupted));
            }
            console.note("interrupted: writing what was found so far; once more ends it at once");
            scan.await
        }
    };
    if is_closed.get() {
        return Ok(None);
    }
    ended.map(Some).map_err(|error: ScanError| {
        let hint = hint(&error);
        let error = CommandError::new(ErrorKind::Scan).because(error);
        if hint.is_empty() { error } else { error.hint(hint) }
    })
}

/// Writes a checkpoint, with all findings so far on the disk. Where it cannot be written, the last one stays good.
fn keep(
    checkpoint: &Checkpoint,
    sink: &mut Sink<'_>,
    to: Option<&CheckpointFile>,
    console: &Console,
) -> Result<(), OutputError> {
    let Some(to) = to else { return Ok(()) };
    let files = sink.settle()?;
    if let Err(error) = to.write(checkpoint, files) {
        console.warn(&format!(
            "cannot write the checkpoint `{}`: {error}; the last one, if any, stays",
            to.path().display()
        ));
    }
    Ok(())
}

/// Removes the checkpoint of a scan that is whole, or says how to go on.
fn conclude_checkpoint(file: &CheckpointFile, report: &ScanReport, console: &Console) {
    if matches!(report.completeness, Completeness::Partial(_)) {
        console.note(&format!("--resume-scan {} goes on from the last checkpoint", file.path().display()));
    } else if let Err(error) = file.remove() {
        console.warn(&format!("cannot remove the checkpoint `{}`: {error}", file.path().display()));
    }
}

/// Tells a person what the engine says.
pub(super) fn tell(event: &Event<'_>, console: &Console) {
    match event {
        Event::Started(server) if console.is_verbose() => {
            for line in describe(server) {
                console.detail(&line);
            }
        }
        Event::Skipped(skipped) if console.is_verbose() => {
            let detail = skipped.detail.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            console.detail(&format!(
                "skipped {} (db {}): {}{detail}",
                skipped.key,
                skipped.db,
                skipped.why.as_str()
            ));
        }
        Event::SlowedDown { latency, commands_per_second } => console.detail(&format!(
            "a PING took {}: slowing down to {commands_per_second:.0} commands/s",
            milliseconds(*latency)
        )),
        Event::Reconnecting { attempt, wait, why } => {
            console.warn(&format!("connection lost ({why}): attempt {attempt} in {}", milliseconds(*wait)));
        }
        Event::Restarted { db } => {
            console.warn(&format!("the server restarted: database {db} is scanned from the start"));
        }
        Event::Warning(text) => console.warn(text),
        Event::Started(_)
        | Event::Skipped(_)
        | Event::Progress(_)
        | Event::Finding(_)
        | Event::Checkpoint(_)
        | Event::BegunAnew => {}
    }
}

/// Says on stderr what CSV has no place for: that the result is not whole.
fn conclude(report: &ScanReport, console: &Console) {
    let why = match &report.completeness {
        Completeness::Complete => return,
        Completeness::Sampled { keys, keys_total } => {
            let total = keys_total.map_or("an unknown number of".to_owned(), |total| total.to_string());
            console.note(&format!("a sample: {keys} of {total} keys"));
            return;
        }
        Completeness::CompleteButSkipped => {
            let total: u64 = report.skipped.counts.iter().map(|(_, keys)| keys).sum();
            let reasons: Vec<String> = report
                .skipped
                .counts
                .iter()
                .filter(|(_, keys)| *keys > 0)
                .map(|(why, keys)| format!("{keys} {}", why.as_str()))
                .collect();
            console.note(&format!("{total} keys could not be measured: {}", reasons.join(", ")));
            return;
        }
        Completeness::Partial(reason) => match reason {
            IncompleteReason::Interrupted => "interrupted".to_owned(),
            IncompleteReason::Guard(latency) => {
                format!("stopped by the latency guard: a PING took {}", milliseconds(*latency))
            }
            IncompleteReason::ConnectionLost(why) => format!("the connection was lost: {why}"),
            IncompleteReason::DatabaseRefused(why) => format!("a database could not be scanned: {why}"),
            IncompleteReason::ScanRefused(why) => format!("the server refused SCAN: {why}"),
            IncompleteReason::RestartedTooOften => "the server restarted too often".to_owned(),
            IncompleteReason::OutputFailed => "an output could not be written".to_owned(),
            IncompleteReason::SlotsNotCovered { slots, why } => {
                format!("the slots {slots} were not covered: {why}")
            }
            IncompleteReason::TargetsFailed(count) => format!("nothing could be had of {count} targets"),
        },
    };
    for failure in &report.failures {
        console.warn(&format!("{}: {}", failure.target, failure.why));
    }
    console.warn(&format!("the result is partial ({} keys seen): {why}", report.keys_seen));
}

/// Returns what `-v` says of a server.
fn describe(server: &ServerProfile) -> Vec<String> {
    let role = match server.role {
        Role::Primary => "primary",
        Role::Replica => "replica",
        Role::Unknown => "role unknown",
    };
    let mut lines = vec![
        format!("server: {} {} at {}, {role}", server.flavour, server.version, server.node),
        format!("maxmemory-policy: {}", server.maxmemory_policy.as_deref().unwrap_or("unknown")),
    ];
    let lazyfree = &server.lazyfree;
    let lazy = [
        ("user-del", lazyfree.user_del),
        ("expire", lazyfree.expire),
        ("server-del", lazyfree.server_del),
        ("eviction", lazyfree.eviction),
        ("user-flush", lazyfree.user_flush),
    ];
    let lazyfree = lazy.map(|(name, value)| match value {
        Some(true) => format!("{name} yes"),
        Some(false) => format!("{name} no"),
        None => format!("{name} unknown"),
    });
    lines.push(format!("lazyfree-lazy-*: {}", lazyfree.join(", ")));
    let permissions = [
        Permission::Allowed,
        Permission::Denied,
        Permission::Unsupported,
        Permission::NotApplicable,
        Permission::Unknown,
    ];
    for permission in permissions {
        let matching = server.access.iter().filter(|(_, found)| **found == permission);
        let commands: Vec<&str> = matching.map(|(access, _)| access.as_str()).collect();
        if !commands.is_empty() {
            lines.push(format!("{}: {}", permission.as_str(), commands.join(", ")));
        }
    }
    let settings = &server.limits.settings;
    // From 7.0 on, the names with `ziplist` are aliases of those with `listpack`.
    let is_alias =
        |name: &str| name.contains("ziplist") && settings.contains_key(&name.replace("ziplist", "listpack"));
    let limits: Vec<String> = settings
        .iter()
        .filter(|(name, _)| name.contains("-max-") && !is_alias(name))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !limits.is_empty() {
        lines.push(format!("limits: {}", limits.join(", ")));
    }
    lines
}

fn print_acl(args: &ScanArgs, around: &Surroundings, console: &Console) -> Result<Exit, CommandError> {
    // No server is asked, so nobody is asked for a password either.
    let settled = settle(args, around, |_| Ok(String::new()))?;
    for remark in acl_remarks() {
        console.note(&remark);
    }
    console::print(format!("{}\n", acl_rule(&settled.config)).as_bytes())
}

/// Settles what was typed with terminal and environment. `ask` prompts for a password.
fn settle(
    args: &ScanArgs,
    around: &Surroundings,
    ask: impl FnMut(&str) -> io::Result<String>,
) -> Result<Settled, CommandError> {
    check_pace(&args.pace)?;
    check_depth(&args.depth)?;
    check_files(&args.output.outputs)?;
    let terminal_form = if around.stdout_is_terminal { Format::Table } else { Format::Csv };
    let connection = connect::settle(&args.connect, around, ask)?;
    let mut config = scan_config(args, connection.targets, connection.preference);
    let stdout = args.output.format.unwrap_or(terminal_form);
    let (checkpoint, resumed) = checkpoint::settle(args, &mut config, stdout)?;
    Ok(Settled {
        config,
        stdout,
        checkpoint,
        resumed,
        files: args.output.outputs.clone(),
        warnings: connection.warnings,
    })
}

fn scan_config(args: &ScanArgs, targets: Vec<Target>, preference: Preference) -> ScanConfig {
    let ScanArgs { filter, pace, output, depth, .. } = args;
    ScanConfig {
        targets,
        preference,
        address_rules: args.connect.deployment.map_address.clone(),
        filter: settled_filter(filter),
        all_keys: output.all_keys,
        finds_every_match: false,
        sample_keys: depth.sample,
        rate: settled_rate(pace.rate),
        rate_per_node: settled_rate(pace.rate_per_node),
        count: depth.count,
        latency_max: pace.max_latency,
        latency_abort: pace.abort_latency,
        memory_samples: depth.samples,
        exact_lists: depth.exact_lists,
        exact_list_bytes_max: if depth.i_know_this_blocks { u64::MAX } else { EXACT_LIST_BYTES_MAX },
        top: output.top,
        sort_by: output.sort,
        thresholds: output.levels,
        checkpoints: None,
    }
}

/// Returns the conditions that the flags name.
pub(super) fn settled_filter(args: &FilterArgs) -> Filter {
    Filter {
        globs: args.matches.iter().map(|glob| glob.0.clone()).collect(),
        exclude_globs: args.exclude.iter().map(|glob| glob.0.clone()).collect(),
        regex: args.regex.clone(),
        kinds: args.kinds.clone(),
        encodings: args.encodings.clone(),
        bytes_min: args.min_bytes,
        elements_min: args.min_elements,
        allocations_min: args.min_allocs,
        level_min: args.risk,
        ttl: args.ttl,
        idle_over: args.idle_over,
    }
}

pub(super) fn settled_rate(rate: Rate) -> Option<f64> {
    match rate {
        Rate::PerSecond(rate) => Some(rate),
        Rate::Max => None,
    }
}

/// Refuses a guard that could only stop.
pub(super) fn check_pace(pace: &PaceArgs) -> Result<(), CommandError> {
    if pace.abort_latency < pace.max_latency {
        return Err(CommandError::usage(format!(
            "--abort-latency {} is below --max-latency {}: the run would stop before it slows down",
            milliseconds(pace.abort_latency),
            milliseconds(pace.max_latency)
        ))
        .hint("raise --abort-latency or lower --max-latency"));
    }
    Ok(())
}

/// Refuses what would block the server, unless somebody insists.
fn check_depth(depth: &DepthArgs) -> Result<(), CommandError> {
    if depth.i_know_this_blocks {
        return Ok(());
    }
    let insist = "use a replica that nobody reads, and add --i-know-this-blocks";
    match (depth.samples, depth.count) {
        (0, _) => Err(CommandError::usage(
            "--samples 0 makes MEMORY USAGE visit every element, and the server answers nobody meanwhile \
             (0.7 s for a million members)",
        )
        .hint("the default of 5 is exact from Redis 8.4 on, and for strings everywhere")
        .hint(insist)),
        (samples, _) if samples > SAMPLES_MAX => Err(CommandError::usage(format!(
            "--samples {samples} blocks the server for each key; above {SAMPLES_MAX} that has to be said twice"
        ))
        .hint(insist)),
        (_, Count::Fixed(count)) if count > COUNT_MAX => Err(CommandError::usage(format!(
            "--count {count} blocks the server for each SCAN; above {COUNT_MAX} that has to be said twice"
        ))
        .hint(insist)),
        _ => Ok(()),
    }
}

/// Refuses files whose form cannot be told, before anything is sent.
fn check_files(paths: &[PathBuf]) -> Result<(), CommandError> {
    for (at, path) in paths.iter().enumerate() {
        if path.as_os_str() == "-" {
            return Err(
                CommandError::usage("-o takes a file").hint("stdout gets the form that --format names")
            );
        }
        if Format::of_path(path).is_none() {
            let text = format!("cannot tell the form of `{}` by its suffix", path.display());
            return Err(
                CommandError::usage(text).hint("known are .csv, .json, .ndjson, .jsonl and .txt (the table)")
            );
        }
        if paths[..at].contains(path) {
            return Err(CommandError::usage(format!("-o `{}` is given twice", path.display()))
                .hint("name each file once"));
        }
    }
    Ok(())
}

/// Tells why a file cannot be begun. Nothing was sent yet, and most reasons are in the command line: a person
/// has to look, and to try again would not help.
fn open_error(error: OutputError) -> CommandError {
    let (Some(path), true) = (&error.path, is_wrong_place(error.source.kind())) else {
        return output_error(error);
    };
    CommandError::usage(format!("cannot write `{}`", path.display()))
        .because(error.source)
        .hint("-o needs a file name in a folder that exists and can be written to")
}

fn is_wrong_place(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::NotFound
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::PermissionDenied
            | Kind::InvalidFilename
    )
}

fn output_error(error: OutputError) -> CommandError {
    let kind = error.source.kind();
    let failed = CommandError::new(ErrorKind::Output(error.path)).because(error.source);
    if kind == io::ErrorKind::StorageFull {
        failed.hint("make room, or write to another disk")
    } else {
        failed
    }
}

/// Tells all outputs that failed, the last one as the error of the run.
fn report_failures(failures: Vec<OutputError>, console: &Console) -> Result<Exit, CommandError> {
    let mut errors: Vec<CommandError> = failures.into_iter().map(output_error).collect();
    let last = errors.pop();
    for error in &errors {
        console.error(error);
    }
    last.map_or(Ok(Exit::Failed), Err)
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests;
