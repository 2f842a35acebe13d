//! Checks the owner of the files that a command writes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses to run as root in another account's folder: the service could not write the files left behind. The error says what to
/// do.
pub fn check_owner(folder: &Path, command: &str) -> Result<(), String> {
    let own = rustix::process::geteuid();
    // A missing folder would be created in its nearest existing parent.
    let is_there = |folder: &&Path| folder.exists();
    let above = folder.ancestors().find(is_there).unwrap_or(folder);
    match std::fs::metadata(above) {
        Ok(data) if own.is_root() && data.uid() != 0 => Err(format!(
            "{} belongs to account {}, which could not write files created by root; run `sudo -u '#{}' {command}`",
            above.display(),
            data.uid(),
            data.uid()
        )),
        _ => Ok(()),
    }
}
