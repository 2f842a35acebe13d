//! Opens untrusted paths: accepts only regular files and never blocks on a pipe.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. Returns immediately, whatever the path refers to.
///
/// # Errors
/// The errors of [`File::open`], and an error for pipes, sockets, devices and folders.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Without this flag, opening a pipe blocks until its other end is opened.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path);
    let kind = match &file {
        Ok(file) => file.metadata()?.file_type(),
        // A socket cannot be opened at all.
        Err(_) => match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_socket() => found.file_type(),
            _ => return file,
        },
    };
    if kind.is_file() {
        return file;
    }
    let what = if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {what}, not an ordinary file"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_file_that_is_not_regular_is_refused_immediately() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "text").expect("written");
        std::os::unix::fs::symlink(path("file"), path("link")).expect("a link");
        for name in ["file", "link"] {
            let file = open_regular(&path(name)).expect("opened");
            assert_eq!(io::read_to_string(file).expect("read"), "text");
        }
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), kind, mode, 0).expect("a pipe");
        let _listener = UnixListener::bind(path("socket")).expect("a socket");
        std::fs::create_dir(path("folder")).expect("a folder");
        std::os::unix::fs::symlink("/dev/zero", path("zero")).expect("a link");
        for (name, what) in [
            ("pipe", "a pipe"),
            ("socket", "a socket"),
            ("folder", "a folder"),
            ("zero", "a device"),
        ] {
            let refused = open_regular(&path(name)).expect_err(name).to_string();
            assert!(refused.contains(what), "{name}: {refused}");
        }
        let missing = open_regular(&path("none")).expect_err("missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
