//! The file of one engine's output: bounded, rotated once, readable by its owner only. If the disk fails, only
//! the file is lost and the engine continues.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use chrono::{DateTime, SecondsFormat, Utc};

use super::protocol::{Line, Stream};

/// Maximum size of the file and of its one predecessor, `….log.1`.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

pub struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LogFile {
    pub fn open(path: PathBuf) -> io::Result<LogFile> {
        // Engines may print prompts, so only the owner can read the file.
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile { path, file, bytes })
    }

    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let at = i64::try_from(line.at_ms).unwrap_or(i64::MAX);
        let at = DateTime::<Utc>::from_timestamp_millis(at).unwrap_or_default();
        let at = at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let stream = match line.stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        let text = format!("{at} {stream} {}\n", line.text);
        if self.bytes > 0 && self.bytes + text.len() as u64 > FILE_BYTES_MAX {
            let mut predecessor = self.path.clone().into_os_string();
            predecessor.push(".1");
            match std::fs::rename(&self.path, predecessor) {
                // The file was removed by hand to free disk space.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
            *self = LogFile::open(self.path.clone())?;
        }
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_rotated_once_and_never_grows_beyond_its_bound() {
        let home = tempfile::tempdir().expect("a folder");
        let mut file = LogFile::open(home.path().join("a.log")).expect("a file");
        let line = Line {
            sequence: 0,
            at_ms: 0,
            stream: Stream::Stdout,
            text: "x".repeat(1 << 20),
        };
        for _ in 0..40 {
            file.write(&line).expect("written");
        }
        let mut files: Vec<(String, u64)> = std::fs::read_dir(home.path())
            .expect("the folder")
            .map(|entry| entry.expect("an entry"))
            .map(|entry| {
                let name = entry.file_name().into_string().expect("a name");
                (name, entry.metadata().expect("a size").len())
            })
            .collect();
        files.sort();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.log", "a.log.1"]);
        assert!(files.iter().all(|(_, bytes)| *bytes <= FILE_BYTES_MAX));
    }
}
