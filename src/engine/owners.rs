//! Which processes belong to which engine, for those who attribute memory to replicas.

use std::collections::BTreeMap;

use pool::ReplicaId;

/// Our engines and every process of their sessions: each engine leads a session of its own.
pub fn with_children(leaders: &BTreeMap<u32, ReplicaId>) -> BTreeMap<u32, ReplicaId> {
    let mut ours = leaders.clone();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return ours;
    };
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else {
            continue;
        };
        // proc(5): after the command in parentheses come state, ppid, pgrp, session.
        let session = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(3)?.parse().ok());
        if let Some(&replica) = session.and_then(|session: u32| leaders.get(&session)) {
            ours.insert(pid, replica);
        }
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_processes_are_found_with_their_children_and_nobody_elses() {
        let mut child = std::process::Command::new("setsid")
            .args(["sh", "-c", "echo up; sleep 60 & wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("setsid");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("up");
        let replica = ReplicaId(7);
        let mut ours = BTreeMap::new();
        while ours.len() < 2 {
            ours = with_children(&BTreeMap::from([(child.id(), replica)]));
        }
        assert!(ours.values().all(|it| *it == replica));
        assert!(!ours.contains_key(&std::process::id()));
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).expect("ended");
        child.wait().expect("reaped");
    }
}
