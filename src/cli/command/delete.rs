//! `bigkeys delete`: settles what was typed, makes the plan, asks, carries it out, says how it ended.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::runtime::{self, Runtime};

use crate::cli::args::{DeleteArgs, DeleteFormat};
use crate::cli::consent;
use crate::cli::console::{self, Console, TakeBack};
use crate::cli::error::{CommandError, ErrorKind};
use crate::cli::exit::Exit;
use crate::cli::hint::hint;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::ProgressView;
use crate::cli::surroundings::Surroundings;
use crate::engine::delete::{
    Audit, AuditRecord, DeleteConfig, DeleteEvent, DeleteReport, Excerpt, ExecuteError, LazyExpire, Limits,
    MethodOptions, Named, Operator, Place, PlanFile, PlanLine, Planned, Protection, RecordKind, Row, RowForm,
    RowWriter, SelectError, Selection, Totals, Unfinished, acl_remarks, acl_rule, execute, new_run_id, plan,
    write_plan, write_report,
};
use crate::engine::event::{Event, Stop};
use crate::engine::key::KeyName;
use crate::engine::live::Address;
use crate::engine::report::TableStyle;
use crate::engine::risk::Thresholds;
use crate::engine::scan::{Databases, Target};

use super::connect;
use super::scan::{check_pace, settled_filter, settled_rate};

/// What was typed, settled.
struct Settled {
    config: DeleteConfig,
    /// Database of keys that name none.
    db: u32,
    form: DeleteFormat,
    acts: bool,
    warnings: Vec<String>,
}

/// Runs `bigkeys delete`.
pub(in crate::cli) fn delete(
    args: &DeleteArgs,
    around: &Surroundings,
    console: &Console,
) -> Result<Exit, CommandError> {
    if args.run.print_acl {
        return print_acl(args, around, console);
    }
    let (stdout, unwritten) = console::stdout();
    delete_to(args, around, console, Box::new(stdout), &unwritten)
}

/// The same, with the rows for programs going elsewhere. They are taken back where there is no result.
pub(super) fn delete_to(
    args: &DeleteArgs,
    around: &Surroundings,
    console: &Console,
    rows: Box<dyn Write>,
    unwritten: &TakeBack,
) -> Result<Exit, CommandError> {
    check_selection(args)?;
    let settled = settle(args, around, |prompt| rpassword::prompt_password(prompt))?;
    for warning in &settled.warnings {
        console.warn(warning);
    }
    let interrupt = Interrupt::listen()
        .map_err(|error| CommandError::new(ErrorKind::System("cannot listen for signals")).because(error))?;
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(|error| {
            CommandError::new(ErrorKind::System("cannot start the runtime")).because(error)
        })?;
    let style = TableStyle {
        width: usize::from(around.columns.unwrap_or(80)),
        colour: around.stdout_is_terminal && !around.no_color && !args.console.no_color,
        verbose: args.console.verbose,
    };
    let progress = ProgressView::new(
        args.console,
        around,
        around.stdout_is_terminal && settled.form != DeleteFormat::Table,
        console.bar(),
    );
    let rows = Rows::new(settled.form, rows)?;
    let mut desk = Desk { args, around, console, interrupt, runtime, style, progress, rows };
    let done = match &args.run.resume {
        Some(path) => desk.resume(&settled, path),
        None => desk.fresh(&settled),
    };
    if done.is_err() {
        unwritten.take_back();
    }
    done
}

/// All that a run has in hand at the front desk.
struct Desk<'a> {
    args: &'a DeleteArgs,
    around: &'a Surroundings,
    console: &'a Console,
    interrupt: Interrupt,
    runtime: Runtime,
    style: TableStyle,
    progress: ProgressView,
    rows: Rows,
}

impl Desk<'_> {
    /// Plans, shows, and where it is asked for, acts.
    fn fresh(&mut self, settled: &Settled) -> Result<Exit, CommandError> {
        let config = &settled.config;
        let run_id = new_run_id();
        let audit_path = self.args.run.audit.clone().unwrap_or_else(|| default_audit(&run_id));
        let mut file = if settled.acts {
            let file = PlanFile::create(&audit_path).map_err(|error| audit_error(&audit_path, error))?;
            self.interrupt.remove_on_exit(file.temporary_path().to_owned());
            Some(file)
        } else {
            None
        };
        if let Some(file) = &mut file {
            file.write(&run_record(&run_id, config)).map_err(|error| audit_error(&audit_path, error))?;
        }
        let mut excerpt = Excerpt::default();
        let planned = match self.plan(settled, &run_id, &mut file, &mut excerpt) {
            // A preview that nobody reads is over.
            Err(_) if !settled.acts && matches!(self.rows, Rows::Gone) => return Ok(Exit::Done),
            made => made?,
        };
        for warning in &planned.warnings {
            self.console.warn(warning);
        }
        self.show(&excerpt, &planned.totals)?;
        let Some(file) = file else {
            if self.args.run.dry_run || planned.totals.keys == 0 {
                return Ok(Exit::Done);
            }
            self.console.note("nothing was deleted: add --safe to carry it out");
            return Ok(Exit::Done);
        };
        if planned.totals.keys == 0 {
            return Ok(if planned.totals.skipped() > 0 { Exit::Partial } else { Exit::Done });
        }
        if !self.consents(planned.totals.keys)? {
            self.console.note("nothing was deleted");
            return Ok(Exit::Done);
        }
        let mut audit = file.adopt().map_err(|error| audit_error(&audit_path, error))?;
        self.console.note(&format!("audit: {}", audit.path().display()));
        let Planned { profile, access, totals, .. } = planned;
        self.act(config, &run_id, Some(Place { profile, access }), &totals, None, &mut audit)
    }

    /// Makes the plan: its lines go to the audit to be, to the rows, and to the excerpt.
    fn plan(
        &mut self,
        settled: &Settled,
        run_id: &str,
        file: &mut Option<PlanFile>,
        excerpt: &mut Excerpt,
    ) -> Result<Planned, CommandError> {
        let selection = self.selection(settled.db)?;
        let from = self.args.selection.from.clone();
        let acts = settled.acts;
        let rows = RefCell::new(&mut self.rows);
        let mut on_line = |line: PlanLine<'_>| -> io::Result<()> {
            let record = match line {
                PlanLine::Planned(key) => {
                    excerpt.add(key);
                    if !acts {
                        rows.borrow_mut().write(Row::Planned(key))?;
                        if matches!(**rows.borrow(), Rows::Gone) {
                            return Err(io::ErrorKind::BrokenPipe.into());
                        }
                    }
                    file.is_some().then(|| AuditRecord::plan(run_id, key))
                }
                PlanLine::Left(left) => {
                    excerpt.leave(left);
                    rows.borrow_mut().write(Row::Left(left))?;
                    file.is_some().then(|| AuditRecord::skip(run_id, left))
                }
            };
            match (file.as_mut(), record) {
                (Some(file), Some(record)) => file.write(&record),
                _ => Ok(()),
            }
        };
        let (progress, console, interrupt) = (&mut self.progress, self.console, &self.interrupt);
        let mut on_event = |event: Event<'_>| {
            if let Event::Progress(now) = &event {
                progress.update(now);
            } else {
                super::scan::tell(&event, console);
            }
            if interrupt.is_requested() {
                ControlFlow::Break(Stop::Interrupted)
            } else {
                ControlFlow::Continue(())
            }
        };
        let made = self.runtime.block_on(async {
            let making = plan(&settled.config, selection, acts, &mut on_line, &mut on_event);
            tokio::select! {
                made = making => made,
                // Nothing was written to the server, so it can be left at once.
                () = interrupt.requested() => Err(SelectError::Stopped),
            }
        });
        self.progress.finish();
        made.map_err(|error| select_error(error, from.as_deref()))
    }

    fn selection(&self, db: u32) -> Result<Selection, CommandError> {
        let args = &self.args.selection;
        Ok(match &args.from {
            Some(path) if path.as_os_str() == "-" => {
                Selection::File(Box::new(BufReader::new(io::stdin())), db)
            }
            Some(path) => {
                let file = File::open(path)
                    .map_err(|error| CommandError::new(ErrorKind::Input(path.clone())).because(error))?;
                Selection::File(Box::new(BufReader::with_capacity(64 << 10, file)), db)
            }
            None if !args.keys.is_empty() => {
                Selection::Keys(args.keys.iter().map(|key| (db, key.0.clone())).collect())
            }
            None => Selection::Filter,
        })
    }

    /// Shows a plan to people: on stdout, or beside the rows.
    fn show(&mut self, excerpt: &Excerpt, totals: &Totals) -> Result<(), CommandError> {
        self.rows.flush()?;
        if self.rows.is_table() {
            let mut text = Vec::new();
            write_plan(&mut text, self.style, excerpt, totals).map_err(stdout_error)?;
            console::print(&text)?;
        } else {
            self.console.note(&format!(
                "{} keys planned, {} left alone",
                totals.keys,
                totals.left_alone.iter().sum::<u64>()
            ));
        }
        Ok(())
    }

    fn consents(&self, keys: u64) -> Result<bool, CommandError> {
        if self.args.run.yes {
            return Ok(true);
        }
        let stdin_is_taken = self.args.selection.from.as_deref() == Some(Path::new("-"));
        if !self.around.stdin_is_terminal || !self.around.stderr_is_terminal || stdin_is_taken {
            return Err(CommandError::usage("there is nobody to ask: this is no terminal")
                .hint("look at the preview, and add --yes"));
        }
        // Nothing is under way, and nobody looks at what Ctrl-C asks for while a line is being typed.
        self.interrupt.ends_at_once(true);
        let answer = consent::ask(keys, &mut io::stdin().lock(), &mut io::stderr());
        self.interrupt.ends_at_once(false);
        answer.map_err(|error| CommandError::new(ErrorKind::System("cannot ask")).because(error))
    }

    /// Goes on with a run that was cut off.
    fn resume(&mut self, settled: &Settled, path: &Path) -> Result<Exit, CommandError> {
        let unreadable = |error| CommandError::new(ErrorKind::Input(path.to_owned())).because(error);
        // First, so that what is read is not being done by another run meanwhile.
        let audit = if settled.acts {
            Some(Audit::reopen(path).map_err(|error| audit_error(path, error))?)
        } else {
            None
        };
        let unfinished = Unfinished::read(path).map_err(unreadable)?;
        let mut config = settled.config.clone();
        if let Some(settings) = unfinished.settings {
            config.take_settings(settings);
        }
        let config = &config;
        let node = config.endpoint.address.to_string();
        if let Some(was) =
            unfinished.node.as_deref().filter(|was| *was != node && !self.args.selection.any_node)
        {
            return Err(CommandError::usage(format!("the run was on {was}, and this is {node}")).hint(
                "name the same server as then; --any-node takes this one, where it is the same data after a failover",
            ));
        }
        let mut excerpt = Excerpt::default();
        let mut totals = Totals::default();
        for todo in unfinished.todos(path).map_err(unreadable)? {
            let todo = todo.map_err(unreadable)?;
            excerpt.add(&todo.planned);
            totals.add(&todo.planned);
            if !settled.acts {
                self.rows.write(Row::Planned(&todo.planned)).map_err(stdout_error)?;
            }
        }
        self.show(&excerpt, &totals)?;
        let Some(mut audit) = audit else {
            self.console.note("nothing was deleted: add --safe to finish the run");
            return Ok(Exit::Done);
        };
        if totals.keys > 0 && !self.consents(totals.keys)? {
            self.console.note("nothing was deleted");
            return Ok(Exit::Done);
        }
        let mut record = run_record(&unfinished.run_id, config);
        record.record = RecordKind::Resume;
        audit.write(&record).and_then(|()| audit.sync()).map_err(|error| audit_error(path, error))?;
        for (node, before) in &unfinished.lazy_expire_before {
            let endpoint =
                config.endpoint.at(Address::parse(node).unwrap_or(config.endpoint.address.clone()));
            match self.runtime.block_on(LazyExpire::as_it_was(before).put_back_at(&endpoint)) {
                Ok(()) => {
                    let record = LazyExpire::is_back(&unfinished.run_id, node);
                    audit
                        .write(&record)
                        .and_then(|()| audit.sync())
                        .map_err(|error| audit_error(path, error))?;
                    self.console.note(&format!("lazyfree-lazy-expire is {before} again, as before the run"));
                }
                Err(why) => self.console.warn(&format!("lazyfree-lazy-expire could not be put back: {why}")),
            }
        }
        if totals.keys == 0 {
            return Ok(Exit::Done);
        }
        let run_id = unfinished.run_id.clone();
        self.act(config, &run_id, None, &totals, Some(unfinished), &mut audit)
    }

    fn act(
        &mut self,
        config: &DeleteConfig,
        run_id: &str,
        place: Option<Place>,
        totals: &Totals,
        unfinished: Option<Unfinished>,
        audit: &mut Audit,
    ) -> Result<Exit, CommandError> {
        let path = audit.path().to_owned();
        let (progress, console, interrupt, rows) =
            (&mut self.progress, self.console, &self.interrupt, &mut self.rows);
        let mut told = false;
        let mut on_event = |event: DeleteEvent<'_>| {
            match event {
                DeleteEvent::Progress(now) => progress.update_deletion(&now),
                DeleteEvent::Outcome(key, outcome) => {
                    // A full disk behind stdout is no reason to stop half way: the audit has them.
                    let _ = rows.write(Row::Outcome(key, outcome));
                }
                other => tell(&other, console),
            }
            if !interrupt.is_requested() {
                return ControlFlow::Continue(());
            }
            if !std::mem::replace(&mut told, true) {
                console.note("interrupted: finishing what is under way");
            }
            ControlFlow::Break(Stop::Interrupted)
        };
        let done = self.runtime.block_on(execute(
            config,
            run_id,
            place,
            totals.keys,
            unfinished,
            audit,
            &mut on_event,
        ));
        self.progress.finish();
        let report = done.map_err(execute_error)?;
        for warning in &report.warnings {
            self.console.warn(warning);
        }
        self.conclude(&report, &path)?;
        Ok(Exit::of_deletion(&report, totals.skipped()))
    }

    fn conclude(&mut self, report: &DeleteReport, audit: &Path) -> Result<(), CommandError> {
        self.rows.flush()?;
        let mut text = Vec::new();
        write_report(&mut text, self.style, report).map_err(stdout_error)?;
        if self.rows.is_table() {
            console::print(&text)?;
        } else {
            for line in String::from_utf8_lossy(&text).lines() {
                self.console.note(line);
            }
        }
        if let Some(halt) = &report.halt {
            self.console.warn(&format!("the run is not whole: {halt}"));
        }
        if report.can_be_resumed() {
            self.console.note(&format!("to finish it: bigkeys delete --resume {} --safe", audit.display()));
        }
        Ok(())
    }
}

/// Tells a person what the engine says.
fn tell(event: &DeleteEvent<'_>, console: &Console) {
    match event {
        DeleteEvent::Held(why) => console.note(&format!("waiting: {why}")),
        DeleteEvent::Released(after) => {
            console.note(&format!("going on after {:.1} s", after.as_secs_f64()));
        }
        DeleteEvent::SlowedDown(latency) => {
            console.detail(&format!("a PING took {:.1} ms: slowing down", latency.as_secs_f64() * 1e3));
        }
        DeleteEvent::Reconnecting(why) => console.warn(&format!("connection lost ({why}): making it again")),
        DeleteEvent::Warning(text) => console.warn(text),
        DeleteEvent::Scan(_) | DeleteEvent::Progress(_) | DeleteEvent::Outcome(..) => {}
    }
}

/// Rows on stdout; none where people read.
enum Rows {
    Table,
    Writer(RowWriter<Box<dyn Write>>),
    /// Their reader is gone: no reason to stop half way, since the audit has them too.
    Gone,
}

impl Rows {
    fn new(form: DeleteFormat, output: Box<dyn Write>) -> Result<Self, CommandError> {
        let form = match form {
            DeleteFormat::Table => return Ok(Self::Table),
            DeleteFormat::Csv => RowForm::Csv,
            DeleteFormat::Ndjson => RowForm::Ndjson,
        };
        let writer = RowWriter::new(form, output).map_err(stdout_error)?;
        Ok(Self::Writer(writer))
    }

    fn is_table(&self) -> bool {
        matches!(self, Self::Table)
    }

    fn write(&mut self, row: Row<'_>) -> io::Result<()> {
        match self {
            Self::Table | Self::Gone => Ok(()),
            Self::Writer(writer) => {
                let written = writer.write(row);
                self.unless_gone(written)
            }
        }
    }

    /// Takes a reader that is gone for no failure.
    fn unless_gone(&mut self, written: io::Result<()>) -> io::Result<()> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                *self = Self::Gone;
                Ok(())
            }
            other => other,
        }
    }

    fn flush(&mut self) -> Result<(), CommandError> {
        match self {
            Self::Writer(writer) => {
                let flushed = writer.flush();
                self.unless_gone(flushed).map_err(stdout_error)
            }
            Self::Table => io::stdout().flush().map_err(stdout_error),
            Self::Gone => Ok(()),
        }
    }
}

fn stdout_error(error: io::Error) -> CommandError {
    CommandError::new(ErrorKind::Output(None)).because(error)
}

fn audit_error(path: &Path, error: io::Error) -> CommandError {
    CommandError::new(ErrorKind::Output(Some(path.to_owned())))
        .because(error)
        .hint("nothing is deleted without an audit: name a file that can be made with --audit")
}

fn select_error(error: SelectError, from: Option<&Path>) -> CommandError {
    let file = || from.map_or_else(|| PathBuf::from("-"), Path::to_owned);
    match error {
        SelectError::Stopped => CommandError::new(ErrorKind::Interrupted),
        SelectError::Guard(_) => CommandError::new(ErrorKind::Guard).because(error),
        SelectError::File(error) => {
            let hint = error.hint();
            let error = CommandError::new(ErrorKind::Input(file())).because(error);
            match hint {
                Some(hint) => error.hint(hint),
                None => error,
            }
        }
        SelectError::OtherNode { .. } => CommandError::new(ErrorKind::Input(file())).because(error).hint(
            "scan this server and use that file; --any-node takes the rows where it is the same data under another name",
        ),
        SelectError::Scan(error) => {
            let hint = hint(&error);
            let error = CommandError::new(ErrorKind::Delete).because(error);
            if hint.is_empty() { error } else { error.hint(hint) }
        }
        SelectError::Replica(_) => CommandError::new(ErrorKind::Delete)
            .because(error)
            .hint("connect to its primary; `INFO replication` names it as master_host"),
        other => CommandError::new(ErrorKind::Delete).because(other),
    }
}

fn execute_error(error: ExecuteError) -> CommandError {
    let hint = match &error {
        ExecuteError::Connect(error) => {
            hint(&crate::engine::scan::ScanError::Connect(error.clone())).to_owned()
        }
        ExecuteError::LazyExpire(_) => {
            "leave --lazy-expire-while-running out, or give this user CONFIG SET".to_owned()
        }
        _ => String::new(),
    };
    let error = CommandError::new(ErrorKind::Delete).because(error);
    if hint.is_empty() { error } else { error.hint(hint) }
}

fn run_record(run_id: &str, config: &DeleteConfig) -> AuditRecord {
    let mut record = AuditRecord::new(RecordKind::Run, run_id);
    record.node = Some(config.endpoint.address.to_string());
    record.operator.clone_from(&config.operator.name);
    record.host.clone_from(&config.operator.host);
    record.bigkeys_version = Some(env!("CARGO_PKG_VERSION").to_owned());
    record.settings = config.settings().to_json();
    record
}

/// Returns the name of an audit that nobody named.
fn default_audit(run_id: &str) -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let now: String = now.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    PathBuf::from(format!("bigkeys-audit-{now}-{}.csv", &run_id[..6]))
}

fn print_acl(args: &DeleteArgs, around: &Surroundings, console: &Console) -> Result<Exit, CommandError> {
    // No server is asked, so nobody is asked for a password either.
    let Settled { config, db, .. } = settle(args, around, |_| Ok(String::new()))?;
    for remark in acl_remarks() {
        console.note(&remark);
    }
    let keys: Vec<KeyName> = args.selection.keys.iter().map(|key| key.0.clone()).collect();
    let named = match (&args.selection.from, &args.run.resume, &keys[..]) {
        (None, None, []) => Named::ByFilter,
        (None, None, keys) => Named::Keys(keys, db),
        _ => Named::InFile,
    };
    console::print(format!("{}\n", acl_rule(&config, named)).as_bytes())
}

/// Settles what was typed with terminal and environment. `ask` prompts for a password.
fn settle(
    args: &DeleteArgs,
    around: &Surroundings,
    ask: impl FnMut(&str) -> io::Result<String>,
) -> Result<Settled, CommandError> {
    check_pace(&args.pace)?;
    let connection = connect::settle(&args.connect, around, ask)?;
    let Ok([target]) = <[Target; 1]>::try_from(connection.targets) else {
        return Err(CommandError::usage("keys are deleted on one server, cluster or group at a time")
            .hint("run it once for each: --from takes the rows of one scan each time"));
    };
    let acts = args.run.safe && !args.run.dry_run;
    let selects_by_name = !args.selection.keys.is_empty() || args.selection.from.is_some();
    let db = match &target.databases {
        Databases::Only(dbs) => dbs.first().copied().unwrap_or(0),
        Databases::All => 0,
    };
    let terminal_form = if around.stdout_is_terminal { DeleteFormat::Table } else { DeleteFormat::Csv };
    // A deletion by pattern stays in one database unless every one is named.
    let databases = match target.databases {
        Databases::All if !args.connect.all_dbs && !selects_by_name => Databases::Only(vec![0]),
        databases => databases,
    };
    let config = DeleteConfig {
        endpoint: target.endpoint,
        kind: target.kind,
        address_rules: args.connect.deployment.map_address.clone(),
        preference: connection.preference,
        databases,
        filter: settled_filter(&args.filter),
        protection: Protection {
            defaults_off: args.selection.unprotect,
            globs: args.selection.protect.iter().map(|glob| glob.0.clone()).collect(),
        },
        methods: MethodOptions {
            forced: args.method.method,
            quarantine_db: args.method.quarantine_db,
            stall_max: args.method.max_stall,
        },
        tolerance: args.selection.tolerance,
        any_node: args.selection.any_node,
        limits: Limits {
            keys_max: args.run.max_keys,
            bytes_max: args.run.max_bytes,
            deadline: args.run.deadline,
        },
        expire_after: args.method.expire_after,
        rate: settled_rate(args.pace.rate),
        rate_per_node: settled_rate(args.pace.rate_per_node),
        latency_max: args.pace.max_latency,
        latency_abort: args.pace.abort_latency,
        lazy_expire_while_running: args.run.lazy_expire_while_running,
        wait_memory: args.run.wait_memory.filter(|patience| *patience > Duration::ZERO),
        thresholds: Thresholds::default(),
        operator: Operator { name: around.user.clone(), host: around.host.clone() },
    };
    Ok(Settled {
        config,
        db,
        form: args.run.format.unwrap_or(terminal_form),
        acts,
        warnings: connection.warnings,
    })
}

/// Refuses a selection that names nothing, or everything by accident.
fn check_selection(args: &DeleteArgs) -> Result<(), CommandError> {
    let DeleteArgs { selection, filter, run, .. } = args;
    if run.resume.is_some() && !settled_filter(filter).is_empty() {
        return Err(CommandError::usage("--resume goes on with a plan that was made, and takes no filter")
            .hint("the audit says what the run was told, --idle-over too"));
    }
    if run.resume.is_some() || !selection.keys.is_empty() || selection.from.is_some() {
        return Ok(());
    }
    let settled = settled_filter(filter);
    let takes_every_name = settled.globs.iter().all(|glob| glob.iter().all(|byte| *byte == b'*'));
    let by_name_only = crate::engine::scan::Filter { globs: Vec::new(), ..settled.clone() };
    let takes_every_key = settled.is_empty() || (takes_every_name && by_name_only.is_empty());
    if !takes_every_key {
        return Ok(());
    }
    if selection.all {
        return Ok(());
    }
    if settled.is_empty() {
        return Err(CommandError::usage("which keys? nothing is selected").hint(
            "name keys, give a filter such as --match 'session:*', or a file with --from; --all takes every key",
        ));
    }
    Err(CommandError::usage("this selection takes every key").hint("add --all if that is what you mean"))
}
