//! Several servers, one listener: what each of them says is put together here.

use std::cell::RefCell;
use std::ops::ControlFlow;

use crate::engine::event::{Event, NodeProgress, Progress, Stop};
use crate::engine::key::ServerProfile;

/// Who hears of everything.
pub(super) type Listener<'l> = dyn FnMut(Event<'_>) -> ControlFlow<Stop> + 'l;

/// All servers of a scan, as its listener hears them.
pub(super) struct Chorus<'c, 'l> {
    listener: RefCell<&'c mut Listener<'l>>,
    voices: RefCell<Voices>,
}

#[derive(Default)]
struct Voices {
    last: Vec<Progress>,
    nodes: Vec<NodeProgress>,
    profiles: Vec<ServerProfile>,
    warnings: Vec<String>,
    stopped: Option<Stop>,
}

impl<'c, 'l> Chorus<'c, 'l> {
    pub(super) fn new(listener: &'c mut Listener<'l>) -> Self {
        Self { listener: RefCell::new(listener), voices: RefCell::default() }
    }

    /// Takes a server in. Returns its number, by which findings name it.
    pub(super) fn enter(&self, profile: &ServerProfile) -> usize {
        let mut voices = self.voices.borrow_mut();
        let server = voices.nodes.len();
        voices.profiles.push(profile.clone());
        voices.nodes.push(NodeProgress {
            node: profile.node.clone(),
            keys: 0,
            keys_total: None,
            keys_per_second: 0.0,
            is_done: false,
        });
        voices.last.push(Progress {
            db: 0,
            keys: 0,
            keys_total: None,
            commands_per_second: 0.0,
            keys_per_second: 0.0,
            biggest: None,
            nodes: Vec::new(),
        });
        drop(voices);
        let _ = self.say(Event::Started(profile));
        server
    }

    /// Passes on what the scan of a server says. Once one was told to stop, all are.
    pub(super) fn hear(&self, server: usize, event: Event<'_>) -> ControlFlow<Stop> {
        match event {
            Event::Progress(progress) => {
                let together = self.voices.borrow_mut().together(server, progress);
                self.say(Event::Progress(together))
            }
            other => self.say(other),
        }
    }

    /// Says something that is no server's.
    pub(super) fn say(&self, event: Event<'_>) -> ControlFlow<Stop> {
        let told = (self.listener.borrow_mut())(event);
        let mut voices = self.voices.borrow_mut();
        if let ControlFlow::Break(stop) = told {
            voices.stopped.get_or_insert(stop);
        }
        voices.stopped.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    /// Asks the listener whether to go on, while no server says anything.
    pub(super) fn still(&self) -> ControlFlow<Stop> {
        let progress = self.voices.borrow().sum(0);
        self.say(Event::Progress(progress))
    }

    /// Says what a person should read: once, however many servers say it.
    pub(super) fn warn(&self, text: String) -> ControlFlow<Stop> {
        let mut voices = self.voices.borrow_mut();
        if voices.warnings.contains(&text) {
            return ControlFlow::Continue(());
        }
        voices.warnings.push(text.clone());
        drop(voices);
        self.say(Event::Warning(text))
    }

    /// Returns all servers, by their numbers, and all warnings.
    pub(super) fn into_parts(self) -> (Vec<ServerProfile>, Vec<String>) {
        let voices = self.voices.into_inner();
        (voices.profiles, voices.warnings)
    }

    /// Takes a server out. `counts`: what it found stays.
    pub(super) fn leave(&self, server: usize, counts: bool) {
        let mut voices = self.voices.borrow_mut();
        let Some(node) = voices.nodes.get_mut(server) else { return };
        node.is_done = true;
        node.keys_per_second = 0.0;
        if !counts {
            node.keys = 0;
            node.keys_total = Some(0);
        }
        if let Some(last) = voices.last.get_mut(server) {
            last.commands_per_second = 0.0;
            if !counts {
                last.biggest = None;
            }
        }
    }

    /// Tells all others to stop as well.
    pub(super) fn stop(&self) {
        self.voices.borrow_mut().stopped.get_or_insert(Stop::Interrupted);
    }

    /// Returns why everybody stops.
    pub(super) fn stopped(&self) -> Option<Stop> {
        self.voices.borrow().stopped
    }
}

impl Voices {
    fn together(&mut self, server: usize, progress: Progress) -> Progress {
        let db = progress.db;
        if let (Some(node), Some(last)) = (self.nodes.get_mut(server), self.last.get_mut(server)) {
            node.keys = progress.keys;
            node.keys_total = progress.keys_total;
            node.keys_per_second = progress.keys_per_second;
            *last = progress;
        }
        self.sum(db)
    }

    fn sum(&self, db: u32) -> Progress {
        let add = |sum: u64, node: &NodeProgress| Some(sum.saturating_add(node.keys_total?));
        Progress {
            db,
            keys: self.nodes.iter().map(|node| node.keys).sum(),
            keys_total: self.nodes.iter().try_fold(0_u64, add),
            commands_per_second: self.last.iter().map(|progress| progress.commands_per_second).sum(),
            keys_per_second: self.nodes.iter().map(|node| node.keys_per_second).sum(),
            biggest: self
                .last
                .iter()
                .filter_map(|progress| progress.biggest.as_ref())
                .max_by_key(|(_, _, allocations)| *allocations)
                .cloned(),
            nodes: if self.nodes.len() > 1 { self.nodes.clone() } else { Vec::new() },
        }
    }
}
