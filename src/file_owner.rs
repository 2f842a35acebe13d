//! Whose files a command writes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Root would leave files behind that the account of the service cannot write. The error says what to do.
pub fn check_owner(folder: &Path, command: &str) -> Result<(), String> {
    let own = rustix::process::geteuid();
    // One that does not exist yet would be made in the folder above it.
    let is_there = |folder: &&Path| folder.exists();
    let above = folder.ancestors().find(is_there).unwrap_or(folder);
    match std::fs::metadata(above) {
        Ok(data) if own.is_root() && data.uid() != 0 => Err(format!(
            "{} belongs to the account with number {}, and this runs as root, whose files that account could not write; run `sudo -u '#{}' {command}`",
            above.display(),
            data.uid(),
            data.uid()
        )),
        _ => Ok(()),
    }
}
