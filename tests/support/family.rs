//! The processes of a pool's engines (guardians, engines and their descendants), found by marks in their environments and by the
//! journal. Read-only.
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub use crate::net::{chat, stub};
use crate::service::{Pool, wait_for};
use crate::stub::{command_model, stub_engine};

/// A model whose engine is the stub, started by a shell script.
pub fn after(name: &str, script: &str, flags: &str) -> (String, String) {
    let stub = stub_engine();
    let line = format!(
        "{script} exec {} --port {{{{ port }}}} {flags}",
        stub.display()
    );
    command_model(name, &["sh", "-c", &line], "memory_gib: 0.5")
}

pub fn asks(pool: &Pool, model: &str) -> (u16, String) {
    pool.post("/v1/chat/completions", &chat(model, false))
}

/// The admin API's view of a model.
pub fn shown(pool: &Pool, model: &str) -> serde_json::Value {
    let path = format!("/llm/admin/models?model={model}");
    let (_, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    shown["models"][0].clone()
}

/// Reasons of a model's history records of one kind.
pub fn reasons(pool: &Pool, kind: &str) -> Vec<String> {
    let path = format!("/llm/admin/events?kind={kind}&limit=1000");
    let (_, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    let events: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = events["events"].as_array().unwrap().iter();
    events
        .map(|event| event["reason"].as_str().unwrap().to_owned())
        .collect()
}

/// As `reasons`, once there are `count` records: they are written concurrently with the event.
pub fn told(pool: &Pool, kind: &str, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    wait_for("the history", || {
        found = reasons(pool, kind);
        found.len() >= count
    });
    found
}

/// The processes of a pool at one time, and every later process with their marks.
pub struct Family {
    marks: BTreeSet<String>,
    pub engines: Vec<u32>,
    pub guardians: Vec<u32>,
}

impl Family {
    pub fn new(pool: &Pool) -> Family {
        let mut family = Family {
            marks: BTreeSet::new(),
            engines: Vec::new(),
            guardians: Vec::new(),
        };
        for record in pool.journal() {
            let text = |key: &str| record[key].as_str().unwrap().to_owned();
            let pid = |key: &str| u32::try_from(record[key]["pid"].as_u64().unwrap()).unwrap();
            family
                .marks
                .insert(format!("MODEL_POOL_ENGINE={}", text("tag")));
            family
                .marks
                .insert(format!("MODEL_POOL_GUARDIAN={}", text("token")));
            family.engines.push(pid("engine"));
            family.guardians.push(pid("guardian"));
        }
        family
    }

    /// Running processes that are not in the other family, with descriptions.
    pub fn alive_without(&self, other: &Family) -> Vec<String> {
        let others = other.alive();
        let mut left = self.alive();
        left.retain(|pid| !others.contains(pid));
        let describe = |pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            format!("{pid}: {words}; {stat}")
        };
        left.into_iter().map(describe).collect()
    }

    /// Running processes, with any parent.
    pub fn alive(&self) -> Vec<u32> {
        let mut alive = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = process
                .file_name()
                .to_str()
                .and_then(|pid| pid.parse().ok())
            else {
                continue;
            };
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let has_mark = environment
                .split(|byte| *byte == 0)
                .any(|variable| self.marks.contains(&*String::from_utf8_lossy(variable)));
            let known = self.engines.contains(&pid) || self.guardians.contains(&pid);
            if (has_mark || known) && is_alive(pid) {
                alive.push(pid);
            }
        }
        alive
    }
}

/// True for running and sleeping processes; a zombie counts as gone.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    !matches!(state, None | Some(b'Z' | b'X'))
}

pub fn kill(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// The process id that an engine wrote into a file.
pub fn pid_in(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}
