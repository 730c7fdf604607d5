//! The bundled server: scripts of commands with the replies they must get.
//!
//! The same scripts run in-process, over the wire, and against each of the real servers. See [`script`]
//! for the format.

mod blocking;
mod compatibility;
mod fault;
mod fuzz;
mod keyspace;
mod memory;
mod reply;
mod run_loop;
mod script;
mod target;
mod tools;

use std::path::{Path, PathBuf};

use script::Script;
use target::{InProcessTarget, Target, WireTarget};

use crate::support::{Lab, on_each_real_server};

fn scripts() -> Vec<(PathBuf, Script)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/cases");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("the folder of scripts is part of the package")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "script"))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a readable script");
            let script = Script::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            (path, script)
        })
        .collect()
}

fn run_all(target: &mut dyn Target) {
    let mut failures = Vec::new();
    let mut cases = 0;
    for (path, script) in scripts() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let outcome = script.run(target);
        cases += outcome.cases;
        failures.extend(outcome.failures.into_iter().map(|failure| format!("{name}:{failure}")));
    }
    assert!(
        failures.is_empty(),
        "{} of {cases} cases failed on {}:\n{}",
        failures.len(),
        target.name(),
        failures.join("\n")
    );
    assert!(cases > 0, "no cases were found");
}

#[test]
fn scripts_agree_in_process() {
    run_all(&mut InProcessTarget::new());
}

#[test]
fn scripts_agree_over_the_wire() {
    let dir = tempfile::TempDir::new().expect("there is room for a temporary folder");
    let server = target::Running::with(target::saving_to(&dir));
    run_all(&mut WireTarget::connect_to(&server.addr()));
}

on_each_real_server! {
    fn scripts_agree_with_real_servers(kind) {
        let lab = Lab::start(kind);
        run_all(&mut WireTarget::connect_to(&lab.address().to_string()));
    }
}
