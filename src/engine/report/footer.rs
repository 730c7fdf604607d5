//! The end of the table: what was done, what it cost others, and whether the result is whole.

use std::io::{self, Write};

use crate::engine::key::{Access, Permission};
use crate::engine::risk::Level;
use crate::engine::tally::TtlBucket;

use super::grid::Tone;
use super::model::{CanarySummary, Completeness, IncompleteReason, KeysizesCheck, ScanReport};
use super::table::{Page, moment};
use super::words::{bytes, count, counted, elapsed, exact, latency_ms, safe, shorten};

pub(super) fn write_footer(page: &mut Page<'_, impl Write>, report: &ScanReport) -> io::Result<()> {
    page.blank()?;
    page.heading("Summary")?;
    page.entry("keys", Tone::Plain, &keys(report))?;
    page.entry("levels", Tone::Plain, &levels(report))?;
    if let Some(why) = &report.maybe_counted_twice {
        page.entry("", Tone::Warning, &format!("some keys may be counted twice: {}", safe(why)))?;
    }
    if report.skipped.total() > 0 {
        page.entry("skipped", Tone::Warning, &skipped(report))?;
        for example in report.skipped.examples.iter().filter(|example| example.detail.is_some()) {
            let (key, _) = example.key.to_text();
            let detail = example.detail.as_deref().unwrap_or_default();
            let text =
                format!("db {} {}: {}", example.db, shorten(&key, 40), safe(shorten(detail, 200).as_ref()));
            page.entry("", Tone::Dim, &text)?;
        }
    }
    write_expiry(page, report)?;
    page.entry("pace", Tone::Plain, &pace(report))?;
    let over = report.canary.during.over_threshold > 0;
    for (index, line) in canary(&report.canary).iter().enumerate() {
        let label = if index == 0 { "canary" } else { "" };
        let tone = if over && index > 0 { Tone::Warning } else { Tone::Plain };
        page.entry(label, tone, line)?;
    }
    write_keysizes(page, &report.keysizes)?;
    write_refused(page, report)?;
    for (index, failure) in report.failures.iter().enumerate() {
        let text = format!("{}: {}", safe(&failure.target), safe(&failure.why));
        page.entry(if index == 0 { "failed" } else { "" }, Tone::Alarm, &text)?;
    }
    for (index, warning) in report.warnings.iter().enumerate() {
        page.entry(if index == 0 { "warning" } else { "" }, Tone::Warning, &safe(warning))?;
    }
    let (tone, text) = completeness(report);
    page.entry("result", tone, &text)
}

fn keys(report: &ScanReport) -> String {
    let mut parts = vec![format!("{} seen", exact(report.keys_seen))];
    if report.keys_matched != report.keys_seen.saturating_sub(report.skipped.total()) {
        parts.push(format!("{} passed the filters", exact(report.keys_matched)));
    }
    if report.duplicates > 0 {
        parts.push(format!("{} returned again by SCAN and counted once", exact(report.duplicates)));
    }
    if let Some(after) = report.dbsize_after
        && let Some(before) = report.dbsize_before
        && after != before
    {
        parts.push(format!("DBSIZE went from {} to {}", exact(before), exact(after)));
    }
    parts.join(", ")
}

fn levels(report: &ScanReport) -> String {
    let names = Level::ALL.iter().map(|level| level.as_str()).chain(["unknown"]);
    let mut levels: Vec<String> = names
        .zip(report.levels)
        .filter(|(_, keys)| *keys > 0)
        .map(|(name, keys)| format!("{} {name}", exact(keys)))
        .collect();
    // The worst first, and what is unknown after them.
    let unknown = if report.levels[Level::ALL.len()] > 0 { levels.pop() } else { None };
    levels.reverse();
    levels.extend(unknown);
    if levels.is_empty() { "none".to_owned() } else { levels.join(", ") }
}

fn skipped(report: &ScanReport) -> String {
    let reasons: Vec<String> = report
        .skipped
        .counts
        .iter()
        .filter(|(_, keys)| *keys > 0)
        .map(|(why, keys)| format!("{} {}", exact(*keys), why.as_str()))
        .collect();
    format!("{}: {}", counted(report.skipped.total(), "key"), reasons.join(", "))
}

fn write_expiry(page: &mut Page<'_, impl Write>, report: &ScanReport) -> io::Result<()> {
    let expiry = &report.expiry;
    if expiry.buckets.iter().any(|(bucket, _)| *bucket != TtlBucket::Unknown) {
        let buckets: Vec<String> = expiry
            .buckets
            .iter()
            .map(|(bucket, row)| {
                let words = match bucket {
                    TtlBucket::Unknown => "not asked",
                    TtlBucket::Never => "without",
                    known => known.as_str(),
                };
                format!("{} {words}", exact(row.keys))
            })
            .collect();
        page.entry("ttl", Tone::Plain, &buckets.join(", "))?;
    }
    // The first is among the news at the top.
    for storm in expiry.storms.iter().skip(1) {
        let at_least = if expiry.keys_unwatched > 0 { "at least " } else { "" };
        let text = format!(
            "{at_least}{} with {} are due within the same second, {}",
            counted(storm.keys, "key"),
            counted(storm.allocations, "allocation"),
            moment(storm.due_at),
        );
        page.entry("storm", Tone::Warning, &text)?;
    }
    Ok(())
}

fn pace(report: &ScanReport) -> String {
    let pace = &report.pace;
    let seconds = report.elapsed.as_secs_f64();
    let mut parts = vec![elapsed(report.elapsed)];
    if seconds > 0.0 {
        parts.push(format!("{} keys/s", per_second(report.keys_seen, seconds)));
        parts.push(format!("{} commands/s", per_second(pace.commands, seconds)));
    }
    parts.push(match pace.rate_limit.filter(|rate| rate.is_finite()) {
        Some(rate) => format!("limit {}/s", whole(rate)),
        None => "no limit".to_owned(),
    });
    if pace.slowdowns > 0 {
        parts.push(format!("slowed down {}", times(pace.slowdowns)));
    }
    if pace.reconnects > 0 {
        parts.push(format!("reconnected {}", times(u64::from(pace.reconnects))));
    }
    parts.join(", ")
}

fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{} times", exact(n)),
    }
}

fn per_second(n: u64, seconds: f64) -> String {
    whole(n as f64 / seconds)
}

fn whole(rate: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, saturating")]
    let rate = rate.round() as u64;
    count(rate)
}

/// The canary's lines: one for before and one for during, so that they can be compared.
fn canary(canary: &CanarySummary) -> Vec<String> {
    let line = |when: &str, latency: &super::LatencySummary| {
        if latency.count == 0 {
            return format!("{when} not measured");
        }
        let limit = latency_ms(canary.threshold);
        let limit = limit.strip_suffix(".00").or(limit.strip_suffix(".0")).unwrap_or(&limit);
        format!(
            "{when} p50 {} ms, p99 {} ms, max {} ms; {} of {} over {limit} ms",
            latency_ms(latency.p50),
            latency_ms(latency.p99),
            latency_ms(latency.max),
            exact(latency.over_threshold),
            exact(latency.count),
        )
    };
    vec![line("before", &canary.before), line("during", &canary.during)]
}

fn write_keysizes(page: &mut Page<'_, impl Write>, checks: &[KeysizesCheck]) -> io::Result<()> {
    // 16 databases of 6 types would fill a screen.
    const CHECKS_SHOWN: usize = 6;
    let (good, bad): (Vec<_>, Vec<_>) = checks.iter().partition(|check| check.holds());
    let mut label = "cross-check";
    for check in bad.iter().take(CHECKS_SHOWN) {
        let expected = match check.expected_after {
            Some(after) if after != check.expected_before => {
                format!("{} before and {} after", exact(check.expected_before), exact(after))
            }
            _ => exact(check.expected_before),
        };
        let text = format!(
            "{}: the server counts {expected}, found {}: not proven complete",
            kind_and_limit(check),
            exact(check.found),
        );
        page.entry(label, Tone::Warning, &text)?;
        label = "";
    }
    if bad.len() > CHECKS_SHOWN {
        page.entry("", Tone::Warning, &format!("{} more differ", bad.len() - CHECKS_SHOWN))?;
    }
    if !good.is_empty() {
        let mut parts: Vec<String> = good
            .iter()
            .take(CHECKS_SHOWN)
            .map(|check| format!("{}: {}", kind_and_limit(check), exact(check.found)))
            .collect();
        if good.len() > CHECKS_SHOWN {
            parts.push(format!("and {} more", good.len() - CHECKS_SHOWN));
        }
        let text = format!("found as many as the server counts: {}", parts.join(", "));
        page.entry(label, Tone::Good, &text)?;
    }
    Ok(())
}

/// Returns which keys a check is about: `db 0 sets of 1,048,576 elements or more`.
fn kind_and_limit(check: &KeysizesCheck) -> String {
    let limit = if check.kind.contains("strings") {
        format!("\u{2265} {}", bytes(check.at_least))
    } else {
        format!("\u{2265} {} elements", exact(check.at_least))
    };
    format!("db {} {} {limit}", check.db, safe(&check.kind))
}

/// Says which commands were refused and what stands in for them.
fn write_refused(page: &mut Page<'_, impl Write>, report: &ScanReport) -> io::Result<()> {
    let several = report.servers.len() > 1;
    let mut label = "refused";
    for (index, server) in report.servers.iter().enumerate() {
        for (&access, &permission) in &server.access {
            // What all of them refuse is said once.
            let is_everywhere =
                several && report.servers.iter().all(|other| other.access.get(&access) == Some(&permission));
            if is_everywhere && index > 0 {
                continue;
            }
            let refused = match permission {
                Permission::Denied => true,
                Permission::Unsupported => !matches!(access, Access::ClientNoTouch | Access::ClientNoEvict),
                // Whether it may be called could not be found out, so it was not.
                Permission::Unknown => !matches!(access, Access::Unlink | Access::Eval),
                Permission::Allowed | Permission::NotApplicable => false,
            };
            if !(refused || (page.verbose && permission == Permission::Unsupported)) {
                continue;
            }
            let node =
                if several && !is_everywhere { format!("{}: ", safe(&server.node)) } else { String::new() };
            let text = format!("{node}{} ({}): {}", access.as_str(), permission.as_str(), fallback(access));
            page.entry(label, Tone::Plain, &text)?;
            label = "";
        }
    }
    Ok(())
}

/// Returns what is done, or not known, without a command.
pub(super) fn fallback(access: Access) -> &'static str {
    match access {
        Access::MemoryUsage => "bytes are worked out from lengths and encodings",
        Access::ObjectEncoding => "encodings are unknown, and allocations with them",
        Access::ObjectIdletime => "idle times are unknown",
        Access::ObjectFreq => "access frequencies are unknown",
        Access::ConfigGet => "settings that nothing else tells are unknown",
        Access::DebugObject => "list nodes are estimated",
        Access::Xinfo => "radix nodes and pending entries of streams are unknown",
        Access::Unlink => "bigkeys delete would have to remove elements in chunks",
        Access::Eval => "bigkeys delete would have to check and act in two steps",
        Access::ClientNoTouch => "the scan may reset idle times",
        Access::ClientNoEvict => "the scan's connection may be evicted",
        Access::Info => "version and role are unknown",
    }
}

/// Returns why a result is partial, in words.
pub(super) fn partial(completeness: &Completeness) -> Option<String> {
    let Completeness::Partial(why) = completeness else {
        return None;
    };
    Some(match why {
        IncompleteReason::Interrupted => "it was interrupted before the end".to_owned(),
        IncompleteReason::Guard(waited) => {
            format!("the latency guard stopped it: the canary waited {} ms", latency_ms(*waited))
        }
        IncompleteReason::ConnectionLost(said) => format!("the connection was lost: {}", safe(said)),
        IncompleteReason::DatabaseRefused(said) => {
            format!("a database could not be scanned: {}", safe(said))
        }
        IncompleteReason::ScanRefused(said) => format!("the server refused SCAN: {}", safe(said)),
        IncompleteReason::RestartedTooOften => "the server restarted again and again".to_owned(),
        IncompleteReason::OutputFailed => "an output could not be written".to_owned(),
        IncompleteReason::SlotsNotCovered { slots, why } => {
            format!("the slots {} were not covered: {}", shorten(slots, 200), safe(why))
        }
        IncompleteReason::TargetsFailed(targets) => {
            format!("nothing could be had of {}", counted(*targets as u64, "target"))
        }
    })
}

/// Says which part of clusters was covered. `None`: there is none.
fn slots(report: &ScanReport) -> Option<String> {
    let servers = counted(report.servers.len() as u64, "server");
    match &report.coverage[..] {
        [] => (report.servers.len() > 1).then_some(servers),
        [one] if one.slots_wanted == 1 => Some(format!("the only slot of the pattern, on {servers}")),
        [one] => {
            Some(format!("all {} slots of the cluster, on {servers}", exact(u64::from(one.slots_wanted))))
        }
        several => Some(format!("all slots of {} clusters, {servers} in all", several.len())),
    }
}

fn completeness(report: &ScanReport) -> (Tone, String) {
    match &report.completeness {
        Completeness::Complete => {
            let where_ = match &report.dbs[..] {
                [db] => format!("database {db}"),
                dbs => counted(dbs.len() as u64, "database"),
            };
            let where_ = match slots(report) {
                Some(slots) => format!("{slots}, {where_}"),
                None => where_,
            };
            let what = if report.keys_matched == report.keys_seen {
                "every key was measured"
            } else {
                "every key that the filters let through was measured"
            };
            (Tone::Good, format!("complete: {where_} walked to the end, and {what}"))
        }
        Completeness::CompleteButSkipped => {
            let text = format!(
                "complete but for {} that could not be measured (see skipped)",
                counted(report.skipped.total(), "key")
            );
            (Tone::Warning, text)
        }
        Completeness::Sampled { keys, keys_total } => {
            let text = format!(
                "a sample: {} of {} keys, so the worst key may not be among them",
                exact(*keys),
                keys_total.map_or("an unknown number of".to_owned(), exact)
            );
            (Tone::Warning, text)
        }
        whole @ Completeness::Partial(_) => {
            let total = report.dbsize_after.or(report.dbsize_before);
            let total = total.map_or("an unknown number".to_owned(), |total| counted(total, "key"));
            let why = partial(whole).unwrap_or_default();
            let text = format!(
                "partial: {why}; {} of about {} were seen, and the worst key may not be among them",
                exact(report.keys_seen),
                total
            );
            (Tone::Alarm, text)
        }
    }
}
