//! The lock of a data folder: two services on one folder would start the same engines and undo each
//! other's orders. The lock belongs to the open file, so it ends with the process, even after a crash.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use guardian::proc;

/// Dropping it releases the lock.
pub(crate) struct StateLock {
    _file: Flock<File>,
}

/// Time limit for a process that has exited or is being replaced to release the lock.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// The reason the lock cannot be taken.
struct LockProblem {
    /// The process id in the lock file.
    holder: Option<u32>,
    /// One line for the user.
    why: String,
}

impl StateLock {
    /// Takes the lock, or fails immediately if another process holds it. Waits for a process that is about to release it, or that
    /// has just been killed: a child that it had just forked holds the lock until its exec.
    pub async fn take(folder: &Path, is_about_to_end: bool) -> Result<StateLock, String> {
        const PAUSE: Duration = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        loop {
            let held = match StateLock::try_take(folder) {
                Ok(lock) => return Ok(lock),
                Err(held) => held,
            };
            let is_gone = held.holder.is_some_and(|pid| !proc::is_alive(pid));
            if waited >= RELEASE_WITHIN || !(is_gone || is_about_to_end) {
                return Err(held.why);
            }
            tokio::time::sleep(PAUSE).await;
            waited += PAUSE;
        }
    }

    /// Takes the lock for a command that needs exclusive use of the folder. Fails immediately while a service holds it.
    pub fn take_for(command: &str, folder: &Path) -> Result<StateLock, String> {
        StateLock::try_take(folder).map_err(|held| match held.holder {
            Some(pid) => format!(
                "the data folder {} cannot be changed while a service uses it (process {pid}): stop it first, then {command}",
                folder.display()
            ),
            None => held.why,
        })
    }

    /// The holder of the lock, as text; `None` if it is free.
    pub fn holder(folder: &Path) -> Option<String> {
        let file = File::open(folder.join("lock")).ok()?;
        // A shared lock is enough to check, and does not exclude other checks.
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                let pid = text.trim().parse::<u32>();
                Some(pid.map_or("another process".to_owned(), |pid| format!("process {pid}")))
            }
            _ => None,
        }
    }

    /// Creates the folder if needed.
    fn try_take(folder: &Path) -> Result<StateLock, LockProblem> {
        let path = folder.join("lock");
        let failed = |error: std::io::Error| LockProblem {
            holder: None,
            why: format!(
                "cannot use the data folder {}: {error}; make it writable, or name another one in state.dir (for a node with --data)",
                folder.display()
            ),
        };
        private_files::make(folder).map_err(failed)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim().parse::<u32>().ok();
                let who =
                    holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                let why = format!(
                    "the data folder {} is in use by another model-pool ({who}): stop that one, replace it with `--takeover`, or name another folder in state.dir",
                    folder.display()
                );
                return Err(LockProblem { holder, why });
            }
            Err((_, errno)) => return Err(failed(errno.into())),
        };
        let own = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(own.as_bytes()))
            .map_err(failed)?;
        Ok(StateLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_process_is_refused_with_the_process_that_holds_the_folder() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("data");
        let held = StateLock::take(&folder, false).await.expect("free");
        let refused = StateLock::take(&folder, false).await.err().expect("held");
        let own = format!("(process {})", std::process::id());
        assert!(refused.contains(&own), "{refused}");
        drop(held);
        StateLock::take(&folder, false).await.expect("free again");
    }

    #[tokio::test]
    async fn a_lock_still_held_by_a_dead_owners_child_is_awaited() {
        let home = tempfile::tempdir().expect("a folder");
        let held = StateLock::take(home.path(), false).await.expect("free");
        // A process number that is not in use.
        std::fs::write(home.path().join("lock"), "4194999\n").expect("written");
        let (next, ()) = tokio::join!(StateLock::take(home.path(), false), async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            drop(held);
        });
        next.expect("free in the end");
    }
}
