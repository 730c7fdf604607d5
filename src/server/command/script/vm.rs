//! The Lua state, the scripts it has compiled, and the way in and out of it.
//!
//! A script sees only what `sandbox.lua` gives it. A failure of `redis.call` travels through Lua as
//! a [`CallError`] and comes out as the text it was. Every hundred thousand instructions a hook
//! looks at the clock; see `watch`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};

use super::convert::{error_text, to_lua, to_reply};
use super::library::LibraryError;
use super::watch::Watch;
use super::{bit, cjson};
use crate::server::command::digest::sha1_hex;
use crate::server::command::dispatch::denied;
use crate::server::command::error::CommandError;
use crate::server::command::meanwhile::Verdict;
use crate::server::command::table::{Entry, flag};
use crate::server::command::{Context, Outcome};
use crate::server::info::VERSION;
use crate::server::resp::{Args, OwnedArgs, Proto, Reply};

/// Instructions between two looks at the clock.
const INSTRUCTIONS_PER_LOOK: u32 = 100_000;

/// What scripts may allocate together: they run inside the process they could starve.
const MEMORY_MAX: usize = 512 * 1024 * 1024;

/// The name scripts have in error messages.
const CHUNK_NAME: &str = "@user_script";

/// The compiled scripts by their SHA-1, and the state they run in, made on first use.
#[derive(Default)]
pub(crate) struct Scripts {
    machine: Option<Machine>,
    known: HashMap<String, Function>,
}

struct Machine {
    lua: Lua,
    environment: Table,
    run: Function,
    /// The table scripts know as `redis`, from behind its fence.
    redis: Table,
    watch: Rc<Watch>,
}

impl Scripts {
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns what the Lua state takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.machine.as_ref().map_or(0, |machine| machine.lua.used_memory())
    }

    pub(super) fn has(&self, sha: &str) -> bool {
        self.known.contains_key(sha)
    }

    pub(super) fn flush(&mut self) {
        *self = Scripts::default();
    }

    /// Compiles a script unless it is known.
    pub(super) fn load(&mut self, sha: &str, source: &[u8]) -> Outcome {
        if self.has(sha) {
            return Ok(());
        }
        let machine = match self.machine.take() {
            Some(machine) => machine,
            None => Machine::new().map_err(|error| broken(&error))?,
        };
        let machine = self.machine.insert(machine);
        let body = without_shebang(source);
        let chunk = machine.lua.load(&body[..]).set_name(CHUNK_NAME).set_mode(mlua::chunk::ChunkMode::Text);
        let compiled = chunk.set_environment(machine.environment.clone()).into_function();
        let function = compiled.map_err(|error| {
            let text = match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            CommandError::with(format!("ERR Error compiling script (new function): {text}"))
        })?;
        self.known.insert(sha.to_owned(), function);
        Ok(())
    }

    /// Runs a known script and writes its reply. `args` are those of EVAL.
    pub(super) fn run(
        &mut self,
        ctx: &mut Context<'_>,
        sha: &str,
        args: Args<'_>,
        read_only: bool,
    ) -> Outcome {
        let (Some(machine), Some(script)) = (&self.machine, self.known.get(sha)) else {
            return Err("NOSCRIPT No matching script. Please use EVAL.".into());
        };
        let threshold_ms = ctx.server.settings.busy_reply_threshold_ms;
        let clock = std::sync::Arc::clone(&ctx.server.clock);
        machine.watch.start(clock, threshold_ms, ctx.server.meanwhile.clone());
        let (db, nested) = (ctx.db.index, std::mem::replace(&mut ctx.nested, true));
        let ran = machine.run(ctx, script, args, read_only);
        ctx.nested = nested;
        // SELECT in a script ends with it.
        ctx.db.index = db;
        ctx.session.db = db;
        if machine.watch.verdict.get() == Verdict::ShutDown {
            ctx.server.shutdown = true;
        }
        match ran.map_err(|error| broken(&error))? {
            Ok(value) => {
                to_reply(&value, ctx.out);
                Ok(())
            }
            Err(failure) => {
                let text = failure.text();
                Err(CommandError::with([&text[..], failure.place(sha).as_bytes()].concat()))
            }
        }
    }
}

/// What a script died of, and where.
struct Failure {
    error: Vec<u8>,
    line: Option<usize>,
}

impl Failure {
    fn text(&self) -> Vec<u8> {
        error_text(&self.error)
    }

    fn place(&self, sha: &str) -> String {
        match self.line {
            Some(line) => format!(" script: {sha}, on {CHUNK_NAME}:{line}."),
            None => format!(" script: {sha}"),
        }
    }
}

impl Machine {
    fn new() -> mlua::Result<Machine> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        // A panic must not be something a script can catch.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let host = lua.create_table()?;
        host.set("version", VERSION)?;
        host.set("sha1hex", lua.create_function(|_, text: mlua::LuaString| Ok(sha1_hex(&text.as_bytes())))?)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("@sandbox");
        host.set("bit", bit::table(&lua)?)?;
        host.set("cjson", cjson::table(&lua)?)?;
        let text = lua.create_function(|lua, error: Value| match library_error(&error) {
            Some(text) => lua.create_string(text),
            None => lua.create_string(describe(&error)),
        })?;
        host.set("text", text)?;
        let (environment, run, redis): (Table, Function, Table) = sandbox.call(host)?;
        let watch = Rc::new(Watch::default());
        let machine = Machine { lua, environment, run, redis, watch };
        machine.set_hook()?;
        Ok(machine)
    }

    /// Has Lua look at the clock every so often.
    fn set_hook(&self) -> mlua::Result<()> {
        let watch = Rc::clone(&self.watch);
        let look = move |lua: &Lua, _: &mlua::debug::Debug<'_>| {
            if watch.look() {
                return Ok(VmState::Continue);
            }
            watch.line.set(user_line(lua));
            // A script may catch this; from here on it gets it again at every instruction.
            let again = HookTriggers::new().every_nth_instruction(1);
            lua.set_hook(again, |_, _| Err(mlua::Error::runtime(KILLED)))?;
            Err(mlua::Error::runtime(KILLED))
        };
        let often = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
        self.lua.set_global_hook(often, look)
    }

    /// Lets scripts run again after one was killed.
    fn reset_hook(&self) -> mlua::Result<()> {
        self.lua.remove_hook();
        self.lua.remove_global_hook();
        self.set_hook()
    }

    /// Runs a script; the outer error is Lua's, the inner one the script's.
    fn run(
        &self,
        ctx: &mut Context<'_>,
        script: &Function,
        args: Args<'_>,
        read_only: bool,
    ) -> mlua::Result<Result<Value, Failure>> {
        let keys_end = 3 + args.positive(2).unwrap_or(0);
        let table = |from: usize, to: usize| {
            let items = (from..to).map(|at| self.lua.create_string(args.at(at)));
            self.lua.create_sequence_from(items.collect::<mlua::Result<Vec<_>>>()?)
        };
        let (keys, rest) = (table(3, keys_end)?, table(keys_end, args.len())?);
        let ctx = RefCell::new(ctx);
        let place = Rc::new(RefCell::new(None));
        let noted = Rc::clone(&place);
        let locate = self.lua.create_function(move |lua, error: Value| {
            noted.replace(user_line(lua));
            Ok(error)
        })?;
        let results: mlua::Result<MultiValue> = self.lua.scope(|scope| {
            let call = scope.create_function(|lua, words: MultiValue| {
                let mut ctx = ctx.borrow_mut();
                let reply = call_from_script(&mut ctx, &self.watch, &words, read_only);
                match reply.bytes() {
                    [b'-', text @ ..] => {
                        Err(mlua::Error::external(CallError(text.trim_ascii_end().to_vec())))
                    }
                    mut reply => to_lua(lua, &mut reply),
                }
            })?;
            let pcall = scope.create_function(|lua, words: MultiValue| {
                let mut ctx = ctx.borrow_mut();
                let reply = call_from_script(&mut ctx, &self.watch, &words, read_only);
                to_lua(lua, &mut reply.bytes())
            })?;
            self.redis.raw_set("call", call)?;
            self.redis.raw_set("pcall", pcall)?;
            self.run.call::<MultiValue>((script, keys, rest, locate))
        });
        let line = place.borrow_mut().take();
        if self.watch.verdict.get() != Verdict::GoOn {
            self.reset_hook()?;
            let error = format!("ERR {KILLED}").into_bytes();
            let line = self.watch.line.take();
            return Ok(Err(Failure { error, line }));
        }
        let mut results = results?.into_iter();
        let ok = results.next() == Some(Value::Boolean(true));
        let value = results.next().unwrap_or(Value::Nil);
        if ok {
            return Ok(Ok(value));
        }
        let error = describe(&value);
        Ok(Err(Failure { error, line }))
    }
}

const KILLED: &str = "Script killed by user with SCRIPT KILL...";

/// Finds the line of the script that is running: the innermost frame of its chunk.
pub(super) fn user_line(lua: &Lua) -> Option<usize> {
    // A stack of this depth is a script that recurses; its innermost frames are what matters.
    for level in 0..32 {
        let line = lua.inspect_stack(level, |debug| {
            let source = debug.source().source.map(std::borrow::Cow::into_owned);
            (source.as_deref() == Some(CHUNK_NAME)).then(|| debug.current_line()).flatten()
        });
        match line {
            None => return None,
            Some(Some(line)) => return Some(line),
            Some(None) => {}
        }
    }
    None
}

/// Turns what a script raised into an error reply.
fn describe(error: &Value) -> Vec<u8> {
    match error {
        Value::Table(table) => match table.raw_get("err") {
            Ok(Value::String(text)) => text.as_bytes().to_vec(),
            _ => b"ERR unknown error".to_vec(),
        },
        Value::String(text) => [b"ERR ", &text.as_bytes()[..]].concat(),
        Value::Error(error) => describe_host_error(error),
        other => format!("ERR {}", other.to_string().unwrap_or_default()).into_bytes(),
    }
}

/// Returns the text of what a library function raised.
fn library_error(error: &Value) -> Option<String> {
    match error {
        Value::Error(error) => error.downcast_ref::<LibraryError>().map(ToString::to_string),
        _ => None,
    }
}

fn describe_host_error(error: &mlua::Error) -> Vec<u8> {
    match error {
        mlua::Error::CallbackError { cause, .. } => describe_host_error(cause),
        mlua::Error::ExternalError(error) if error.is::<CallError>() => {
            error.downcast_ref::<CallError>().map(|error| error.0.clone()).unwrap_or_default()
        }
        mlua::Error::ExternalError(error) if error.is::<LibraryError>() => {
            format!("ERR {error}").into_bytes()
        }
        other => {
            let text = other.to_string();
            let text = text.lines().next().unwrap_or_default();
            format!("ERR {}", text.strip_prefix("runtime error: ").unwrap_or(text)).into_bytes()
        }
    }
}

/// An error reply on its way through Lua.
#[derive(Debug)]
struct CallError(Vec<u8>);

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for CallError {}

fn broken(error: &mlua::Error) -> CommandError {
    let text = error.to_string();
    CommandError::with(format!("ERR Error running script: {}", text.lines().next().unwrap_or_default()))
}

/// Carries out what a script calls and returns the reply as it would go on the wire.
fn call_from_script(ctx: &mut Context<'_>, watch: &Watch, words: &MultiValue, read_only: bool) -> Reply {
    let part = ctx.out.part(Proto::Resp2);
    let saved = std::mem::replace(ctx.out, part);
    match arguments(words).and_then(|args| admit(ctx, args, watch, read_only)) {
        Ok((entry, args)) => {
            ctx.call(entry, args.as_args());
        }
        Err(error) => ctx.out.error(error.text()),
    }
    if ctx.out.is_full() {
        // Half a reply must not be taken for one.
        ctx.out.truncate(0);
        ctx.out.error(b"ERR reply is larger than client-output-buffer-limit");
    }
    std::mem::replace(ctx.out, saved)
}

fn arguments(words: &MultiValue) -> Result<OwnedArgs, CommandError> {
    if words.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".into());
    }
    let mut args = OwnedArgs::default();
    for word in words {
        match word {
            Value::String(text) => args.push(&text.as_bytes()),
            Value::Integer(number) => args.push(number.to_string().as_bytes()),
            Value::Number(number) => args.push(number_text(*number).as_bytes()),
            _ => {
                return Err("ERR Lua redis lib command arguments must be strings or integers".into());
            }
        }
    }
    Ok(args)
}

fn number_text(number: f64) -> String {
    crate::server::number::format_double(number)
}

/// Checks a command as dispatch does, in the words that scripts get to hear.
fn admit(
    ctx: &mut Context<'_>,
    args: OwnedArgs,
    watch: &Watch,
    read_only: bool,
) -> Result<(&'static Entry, OwnedArgs), CommandError> {
    let unknown = |_| CommandError::new("ERR Unknown Redis command called from script");
    let entry = ctx.server.names.resolve(args.as_args()).map_err(unknown)?;
    let command = entry.command;
    if !command.accepts(args.as_args().len()) {
        return Err("ERR Wrong number of args calling Redis command from script".into());
    }
    if command.has(flag::NOSCRIPT) {
        return Err("ERR This Redis command is not allowed from script".into());
    }
    if read_only && command.has(flag::WRITE) {
        return Err("ERR Write commands are not allowed from read-only scripts.".into());
    }
    let user = ctx.session.user.clone().unwrap_or_default();
    if let Err(denial) = ctx.server.acl.check(&user, entry, args.as_args()) {
        ctx.note_denial(&denial, entry, "lua");
        let refusal = denied(&denial, &user, entry);
        let why = refusal.text().strip_prefix(b"NOPERM ").unwrap_or(refusal.text());
        return Err(CommandError::with([b"ERR ACL failure in script: ", why].concat()));
    }
    if command.has(flag::WRITE) {
        // Under memory pressure a script is stopped at its first write, not half-way through.
        if !watch.has_written.get() {
            ctx.make_room(entry)?;
        }
        watch.has_written.set(true);
    }
    ctx.suffer(entry, args.as_args())?;
    Ok((entry, args))
}

/// Scripts may name their engine and flags in a first line; only the engine matters here.
fn without_shebang(source: &[u8]) -> Vec<u8> {
    if !source.starts_with(b"#!") {
        return source.to_vec();
    }
    let end = source.iter().position(|byte| *byte == b'\n').unwrap_or(source.len());
    // The line break stays, so that lines keep their numbers.
    source[end..].to_vec()
}
