//! The processes in the sessions of our engines, each of which leads a session. All engines, and the attribution of device memory,
//! share one scan of the system's processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getsid};

use guardian::proc;
use pool::ReplicaId;

/// Time that one scan of all processes is reused for the memory of engines.
const LOOK_MAX: Duration = Duration::from_millis(1_500);

/// The processes of the system by session.
type Sessions = BTreeMap<u32, Vec<u32>>;

/// The last scan and its time.
static SESSIONS: Mutex<Option<(Instant, Arc<Sessions>)>> = Mutex::new(None);

/// Our engines and every process of their sessions, from a new scan.
pub fn with_children(leaders: &BTreeMap<u32, ReplicaId>) -> BTreeMap<u32, ReplicaId> {
    let mut ours = leaders.clone();
    if leaders.is_empty() {
        return ours;
    }
    let found = look_anew(&mut SESSIONS.lock().unwrap_or_else(PoisonError::into_inner));
    for (leader, &replica) in leaders {
        let members = found.get(leader).into_iter().flatten();
        ours.extend(members.map(|&process| (process, replica)));
    }
    ours
}

/// The processes of the session that a process leads, from a recent scan.
pub(super) fn members(leader: u32) -> Vec<u32> {
    let mut shared = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = shared
        .as_ref()
        .filter(|(at, found)| at.elapsed() < LOOK_MAX && found.contains_key(&leader));
    let found = match fresh {
        Some((_, found)) => Arc::clone(found),
        None => look_anew(&mut shared),
    };
    found.get(&leader).cloned().unwrap_or_default()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the age of what is shared by all engines"
)]
fn look_anew(shared: &mut Option<(Instant, Arc<Sessions>)>) -> Arc<Sessions> {
    let found = Arc::new(look());
    *shared = Some((Instant::now(), Arc::clone(&found)));
    found
}

/// Makes one system call per process and opens no file: a shared GPU server has thousands of processes.
fn look() -> Sessions {
    let mut sessions = Sessions::new();
    for process in proc::all() {
        if let Ok(session) = getsid(Some(Pid::from_raw(process.cast_signed()))) {
            let session = session.as_raw().cast_unsigned();
            sessions.entry(session).or_default().push(process);
        }
    }
    sessions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_a_session_are_found_by_its_leader() {
        let own = getsid(None).expect("a session").as_raw().cast_unsigned();
        assert!(members(own).contains(&std::process::id()));
    }

    #[test]
    fn processes_of_a_session_are_found_including_children_and_no_others() {
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
        assert!(ours.values().all(|of| *of == replica));
        assert!(!ours.contains_key(&std::process::id()));
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).expect("ended");
        child.wait().expect("reaped");
    }
}
