//! What happens while a script runs: after `busy-reply-threshold` other clients are served again,
//! with a refusal, and may ask for the script's end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::server::clock::Clock;
use crate::server::command::meanwhile::{Busy, Meanwhile, Verdict};

/// One script's time and state, shared with the hook that Lua calls every so many instructions.
#[derive(Default)]
pub(super) struct Watch {
    clock: RefCell<Option<Arc<dyn Clock>>>,
    meanwhile: RefCell<Option<Rc<dyn Meanwhile>>>,
    started_us: Cell<u64>,
    threshold_us: Cell<u64>,
    pub(super) has_written: Cell<bool>,
    pub(super) verdict: Cell<Verdict>,
    /// Where the script was when it was ended.
    pub(super) line: Cell<Option<usize>>,
}

impl Watch {
    /// Starts anew for another script. A threshold of 0 never interrupts.
    pub(super) fn start(
        &self,
        clock: Arc<dyn Clock>,
        threshold_ms: i64,
        meanwhile: Option<Rc<dyn Meanwhile>>,
    ) {
        let patience = u64::try_from(threshold_ms).ok().filter(|ms| *ms > 0);
        self.threshold_us.set(patience.map_or(u64::MAX, |ms| ms * 1000));
        self.started_us.set(clock.monotonic_us());
        self.clock.replace(Some(clock));
        self.has_written.set(false);
        self.verdict.set(Verdict::GoOn);
        self.meanwhile.replace(meanwhile);
    }

    /// Looks after the other clients if the script has run for too long. Returns whether it may
    /// go on.
    pub(super) fn look(&self) -> bool {
        if self.verdict.get() != Verdict::GoOn {
            return false;
        }
        let now_us = self.clock.borrow().as_ref().map_or(0, |clock| clock.monotonic_us());
        let elapsed_us = now_us.saturating_sub(self.started_us.get());
        if elapsed_us < self.threshold_us.get() {
            return true;
        }
        if let Some(meanwhile) = &*self.meanwhile.borrow() {
            self.verdict.set(meanwhile.serve(Busy::Script { has_written: self.has_written.get() }));
        }
        self.verdict.get() == Verdict::GoOn
    }
}
