//! Files for this account alone, such as keys: never readable by others, not even for a moment, and replaced as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is written beside its name. Dropped before [`PrivateFile::publish`], it is removed.
pub struct PrivateFile {
    target: PathBuf,
    path: PathBuf,
    is_published: bool,
}

impl PrivateFile {
    /// Writes the text with mode 0600, and creates the folder if it is missing.
    pub fn write(target: &Path, text: &str) -> io::Result<PrivateFile> {
        let folder = target.parent().filter(|it| !it.as_os_str().is_empty());
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder)?;
        }
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let file = PrivateFile {
            target: target.to_owned(),
            path: PathBuf::from(name),
            is_published: false,
        };
        let mut opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file.path)?;
        writeln!(opened, "{text}")?;
        opened.sync_all()?;
        Ok(file)
    }

    /// Gives the file its name, in the place of one that has it. On failure the file stays where it is.
    pub fn publish(mut self) -> Result<(), (PathBuf, io::Error)> {
        self.is_published = true;
        let folder = self.target.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let done =
            std::fs::rename(&self.path, &self.target).and_then(|()| File::open(folder)?.sync_all());
        done.map_err(|error| (self.path.clone(), error))
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_private_file_takes_the_place_of_another_with_a_narrow_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("deep/admin.key");
        std::fs::create_dir(target.parent().expect("a folder")).expect("made");
        std::fs::write(&target, "old").expect("written");
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o644)).expect("set");
        drop(PrivateFile::write(&target, "given up").expect("written"));
        assert_eq!(std::fs::read_to_string(&target).expect("read"), "old");
        let file = PrivateFile::write(&target, "new").expect("written");
        file.publish().expect("published");
        assert_eq!(std::fs::read_to_string(&target).expect("read"), "new\n");
        let data = std::fs::metadata(&target).expect("there");
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
        let left = std::fs::read_dir(folder.path().join("deep")).expect("read");
        assert_eq!(left.count(), 1, "nothing else is left");
    }
}
