//! LATENCY: spikes by cause, and histograms by command.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use super::error::CommandError;
use super::table::{Command, Keys, Table, flag};
use super::{Context, Outcome, help};
use crate::server::resp::Args;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("latency", "2.8.13"),
    Command::new("latency|latest", 2, flag::ADMINISTRATION, Keys::None, "2.8.13", latest),
    Command::new("latency|history", 3, flag::ADMINISTRATION, Keys::None, "2.8.13", history),
    Command::new("latency|reset", -2, flag::ADMINISTRATION, Keys::None, "2.8.13", reset),
    Command::new("latency|doctor", 2, flag::ADMINISTRATION, Keys::None, "2.8.13", doctor),
    Command::new("latency|histogram", -2, flag::ADMINISTRATION, Keys::None, "7.0.0", histogram),
    Command::new("latency|help", 2, flag::LOADING | flag::STALE, Keys::None, "2.8.13", latency_help),
];

/// Samples kept per event.
const SAMPLES_MAX: usize = 160;

/// One event's spikes: the worst of each second.
#[derive(Debug, Default)]
struct Spikes {
    samples: VecDeque<(u64, u64)>,
    max_ms: u64,
}

/// Spikes by event name.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor {
    events: BTreeMap<&'static str, Spikes>,
}

impl LatencyMonitor {
    /// Notes what took `took_us`, if it reaches the threshold. A threshold of 0 is off.
    pub(crate) fn note(&mut self, event: &'static str, took_us: u64, unix_s: u64, threshold_ms: i64) {
        let spike_ms = took_us / 1000;
        let reached = u64::try_from(threshold_ms).is_ok_and(|least| least > 0 && spike_ms >= least);
        if !reached {
            return;
        }
        let spikes = self.events.entry(event).or_default();
        spikes.max_ms = spikes.max_ms.max(spike_ms);
        match spikes.samples.back_mut() {
            Some((second, worst)) if *second == unix_s => *worst = (*worst).max(spike_ms),
            _ => {
                spikes.samples.push_back((unix_s, spike_ms));
                if spikes.samples.len() > SAMPLES_MAX {
                    spikes.samples.pop_front();
                }
            }
        }
    }
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn latest(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let events = &ctx.server.latency.events;
    ctx.out.array(events.len());
    for (name, spikes) in events {
        let (second, ms) = spikes.samples.back().copied().unwrap_or_default();
        ctx.out.array(4);
        ctx.out.text(name);
        ctx.out.int(int(second));
        ctx.out.int(int(ms));
        ctx.out.int(int(spikes.max_ms));
    }
    Ok(())
}

fn history(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let spikes = ctx.server.latency.events.get(args.lower(2).as_str());
    let samples = spikes.map(|spikes| &spikes.samples);
    ctx.out.array(samples.map_or(0, VecDeque::len));
    for (second, ms) in samples.into_iter().flatten() {
        ctx.out.array(2);
        ctx.out.int(int(*second));
        ctx.out.int(int(*ms));
    }
    Ok(())
}

fn reset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let events = &mut ctx.server.latency.events;
    let before = events.len();
    if args.len() == 2 {
        events.clear();
    } else {
        for event in args.iter().skip(2) {
            events.retain(|name, _| !name.as_bytes().eq_ignore_ascii_case(event));
        }
    }
    let gone = before - events.len();
    ctx.out.count(gone);
    Ok(())
}

fn doctor(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let mut text = String::new();
    if ctx.server.settings.latency_threshold_ms == 0 {
        text.push_str(
            "Latency monitoring is off. CONFIG SET latency-monitor-threshold <milliseconds> turns it on.\n",
        );
    } else if ctx.server.latency.events.is_empty() {
        text.push_str("No latency spike was observed so far.\n");
    }
    for (name, spikes) in &ctx.server.latency.events {
        let count = spikes.samples.len();
        let worst_ms = spikes.max_ms;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {count} spikes, worst {worst_ms} ms.");
    }
    ctx.out.verbatim(text.as_bytes());
    Ok(())
}

fn histogram(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let table = Table::get();
    let named = |name: &str| {
        args.len() == 2
            || args.iter().skip(2).any(|wanted| {
                let container = name.split('|').next().unwrap_or(name);
                wanted.eq_ignore_ascii_case(name.as_bytes())
                    || wanted.eq_ignore_ascii_case(container.as_bytes())
            })
    };
    let place = ctx.out.defer();
    let mut shown = 0;
    for entry in table.entries().iter().filter(|entry| named(entry.command.name)) {
        let stats = ctx.server.stats.command(entry.id);
        let Some((stats, latency)) = stats.and_then(|stats| Some((stats, stats.latency.as_ref()?))) else {
            continue;
        };
        shown += 1;
        ctx.out.text(entry.command.name);
        ctx.out.map(2);
        ctx.out.text("calls");
        ctx.out.int(int(stats.calls));
        ctx.out.text("histogram_usec");
        let rows = latency.by_power_of_two();
        ctx.out.map(rows.len());
        for (limit, count) in rows {
            ctx.out.int(int(limit));
            ctx.out.int(int(count));
        }
    }
    ctx.out.map_at(&place, shown);
    Ok(())
}

fn latency_help(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() != 2 {
        return Err(CommandError::SYNTAX);
    }
    help(
        ctx,
        "LATENCY",
        &[
            ("DOCTOR", "Returns what was observed, in words."),
            (
                "HISTOGRAM [COMMAND ...]",
                "Returns a cumulative histogram of each command's latency in microseconds.",
            ),
            ("HISTORY <event>", "Returns time and latency of each spike of an event."),
            ("LATEST", "Returns the newest spike of each event."),
            ("RESET [<event> ...]", "Forgets the spikes of these events, or of all."),
        ],
    )
}
