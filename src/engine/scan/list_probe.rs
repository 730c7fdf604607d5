//! Asks of a list what the estimate of its nodes needs: a few elements at each end, and MEMORY USAGE.

use redis::{Pipeline, Value};

use crate::engine::key::{KeyFacts, KeyName, ListNodes, NodesBasis, ServerProfile};
use crate::engine::live::Refusal;
use crate::engine::risk::quicklist::{
    Element, LARGE_ELEMENT_BYTES, ListProbe, ListProbePlan, estimate_nodes, probe_plan,
};

type Reply = Result<Value, Refusal>;

/// Returns whether the first and the last element may be read: not where elements are huge.
pub(super) fn reads_ends(facts: &KeyFacts) -> bool {
    match (facts.elements, facts.bytes()) {
        (Some(elements), Some(bytes)) => bytes / elements.max(1) <= LARGE_ELEMENT_BYTES,
        _ => false,
    }
}

/// Asks for the first and the last element.
pub(super) fn ask_ends(pipeline: &mut Pipeline, key: &KeyName) {
    pipeline.cmd("LINDEX").arg(key.as_bytes()).arg(0);
    pipeline.cmd("LINDEX").arg(key.as_bytes()).arg(-1);
}

/// Returns the length of the larger of the two, in bytes.
pub(super) fn read_ends(replies: &mut impl Iterator<Item = Reply>) -> u64 {
    let length = |reply: Reply| match reply {
        Ok(Value::BulkString(bytes)) => bytes.len() as u64,
        _ => 0,
    };
    replies.by_ref().take(2).map(length).max().unwrap_or(0)
}

/// Says what else to ask.
pub(super) fn plan(facts: &KeyFacts, ends: u64, server: &ServerProfile) -> ListProbePlan {
    probe_plan(facts.elements.unwrap_or(0), facts.bytes().unwrap_or(0), ends, server)
}

/// Asks it.
pub(super) fn ask(pipeline: &mut Pipeline, key: &KeyName, plan: &ListProbePlan) {
    if plan.head_elements > 0 {
        pipeline.cmd("LRANGE").arg(key.as_bytes()).arg(0).arg(plan.head_elements - 1);
    }
    if plan.tail_elements > 0 {
        pipeline.cmd("LRANGE").arg(key.as_bytes()).arg(format!("-{}", plan.tail_elements)).arg(-1);
    }
    for samples in &plan.memory_samples {
        pipeline.cmd("MEMORY").arg("USAGE").arg(key.as_bytes()).arg("SAMPLES").arg(*samples);
    }
}

/// Reads the answers and estimates. `None`: too little was answered, or the list changed meanwhile.
pub(super) fn read(
    facts: &KeyFacts,
    plan: &ListProbePlan,
    replies: &mut impl Iterator<Item = Reply>,
    server: &ServerProfile,
) -> Option<ListNodes> {
    let mut elements =
        |wanted: u64| if wanted > 0 { replies.next().map_or(Vec::new(), read_elements) } else { Vec::new() };
    let head = elements(plan.head_elements);
    let tail = elements(plan.tail_elements);
    let memory = plan
        .memory_samples
        .iter()
        .zip(replies)
        .filter_map(|(samples, reply)| match reply {
            Ok(Value::Int(bytes)) => Some((*samples, u64::try_from(bytes).ok()?)),
            _ => None,
        })
        .collect();
    let key_len = facts.key.as_bytes().len() as u64;
    let probe = ListProbe { llen: facts.elements?, memory, head, tail, key_len };
    estimate_nodes(&probe, server).map(|nodes| ListNodes { nodes, basis: NodesBasis::Estimated })
}

fn read_elements(reply: Reply) -> Vec<Element> {
    let Ok(Value::Array(items)) = reply else { return Vec::new() };
    items
        .iter()
        .map(|item| match item {
            Value::BulkString(bytes) => Element::of(bytes),
            _ => Element::of_len(0),
        })
        .collect()
}
