//! One model-pool for each data folder: two would start the same engines and undo each other's
//! wishes. The lock belongs to the open file, so it ends with the process, however that ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Held for as long as this is kept.
pub(super) struct StateLock {
    _file: Flock<File>,
}

/// How long a process that gave its place up may take to let go.
const SOON: Duration = Duration::from_secs(5);

impl StateLock {
    /// The same, from one who is about to release it.
    pub async fn take_soon(folder: &Path) -> Result<StateLock, String> {
        const PAUSE: Duration = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        loop {
            match StateLock::take(folder) {
                Err(_) if waited < SOON => {}
                done => return done,
            }
            tokio::time::sleep(PAUSE).await;
            waited += PAUSE;
        }
    }

    /// Makes the folder if needed. An error is one line for a person.
    pub fn take(folder: &Path) -> Result<StateLock, String> {
        let path = folder.join("lock");
        let failed = |error: std::io::Error| {
            format!(
                "cannot use the data folder {}: {error}; make it writable or name another one in state.dir",
                folder.display()
            )
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
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
                let holder = match holder.trim().parse::<u32>() {
                    Ok(pid) => format!("process {pid}"),
                    Err(_) => "another process".to_owned(),
                };
                return Err(format!(
                    "the data folder {} is in use by another model-pool ({holder}): stop that one, replace it with `model-pool serve --takeover`, or name another folder in state.dir",
                    folder.display()
                ));
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

    #[test]
    fn a_second_one_is_refused_with_the_process_that_holds_the_folder() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("data");
        let held = StateLock::take(&folder).expect("free");
        let refused = StateLock::take(&folder).err().expect("held");
        let own = format!("(process {})", std::process::id());
        assert!(refused.contains(&own), "{refused}");
        drop(held);
        StateLock::take(&folder).expect("free again");
    }
}
