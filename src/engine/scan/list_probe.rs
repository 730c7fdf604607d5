//! Asks of a list what the estimate of its nodes needs: a few elements at each end, and MEMORY USAGE.

use crate::engine::key::{Access, KeyFacts, KeyName, ListNodes, NodesBasis, ServerProfile};
use crate::engine::live::{Batch, Reply, read_count, read_elements};
use crate::engine::risk::quicklist::{
    Element, LARGE_ELEMENT_BYTES, ListProbe, ListProbePlan, estimate_nodes, probe_plan,
};

/// Commands of [`ask_ends`].
pub(super) const ENDS: usize = 2;

/// Returns whether the first and the last element may be read: not where elements are huge.
///
/// The mean rests on a sample at the head, so one huge element at the tail of a list of small ones is not
/// seen before it is read.
pub(super) fn reads_ends(facts: &KeyFacts) -> bool {
    match (facts.elements, facts.bytes()) {
        (Some(elements), Some(bytes)) => bytes / elements.max(1) <= LARGE_ELEMENT_BYTES,
        _ => false,
    }
}

/// Asks for the first and the last element.
pub(super) fn ask_ends(batch: &mut Batch, key: &KeyName) {
    batch.element(key, 0);
    batch.element(key, -1);
}

/// Returns the length of the larger of the two, in bytes.
pub(super) fn read_ends(replies: &mut impl Iterator<Item = Reply>) -> u64 {
    let length = |reply| read_elements(reply).first().map_or(0, |element| element.len() as u64);
    replies.by_ref().take(ENDS).map(length).max().unwrap_or(0)
}

/// Says what else to ask.
pub(super) fn plan(facts: &KeyFacts, ends: u64, server: &ServerProfile) -> ListProbePlan {
    let mut plan = probe_plan(facts.elements.unwrap_or(0), facts.bytes().unwrap_or(0), ends, server);
    if !server.allows(Access::MemoryUsage) {
        plan.memory_samples.clear();
    }
    plan
}

/// Returns how many commands [`ask`] adds.
pub(super) fn commands(plan: &ListProbePlan) -> usize {
    usize::from(plan.head_elements > 0) + usize::from(plan.tail_elements > 0) + plan.memory_samples.len()
}

/// Asks it.
pub(super) fn ask(batch: &mut Batch, key: &KeyName, plan: &ListProbePlan) {
    // Far below 2^63: `risk::quicklist` bounds them.
    let index = |elements: u64| i64::try_from(elements).unwrap_or(i64::MAX);
    if plan.head_elements > 0 {
        batch.elements(key, 0, index(plan.head_elements) - 1);
    }
    if plan.tail_elements > 0 {
        batch.elements(key, -index(plan.tail_elements), -1);
    }
    for samples in &plan.memory_samples {
        batch.memory_usage(key, *samples);
    }
}

/// Reads the answers and estimates. `None`: too little was answered, or the list changed meanwhile.
pub(super) fn read(
    facts: &KeyFacts,
    plan: &ListProbePlan,
    replies: &mut impl Iterator<Item = Reply>,
    server: &ServerProfile,
) -> Option<ListNodes> {
    let mut elements = |wanted: u64| -> Vec<Element> {
        let reply = if wanted > 0 { replies.next() } else { None };
        reply
            .map_or(Vec::new(), |reply| read_elements(reply).iter().map(|bytes| Element::of(bytes)).collect())
    };
    let head = elements(plan.head_elements);
    let tail = elements(plan.tail_elements);
    let memory = plan
        .memory_samples
        .iter()
        .zip(replies)
        .filter_map(|(samples, reply)| Some((*samples, read_count(reply)?)))
        .collect();
    let key_len = facts.key.as_bytes().len() as u64;
    let probe = ListProbe { llen: facts.elements?, memory, head, tail, key_len };
    estimate_nodes(&probe, server).map(|nodes| ListNodes { nodes, basis: NodesBasis::Estimated })
}
