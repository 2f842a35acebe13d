//! Short paths for sockets in folders whose own path is too long: the system allows 103 bytes for a socket's path. A symbolic link
//! in a private folder leads to the long path, where the sockets are.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

/// The shortest limit of the supported systems (104 with its terminator on macOS, 108 on Linux).
const SOCKET_PATH_BYTES_MAX: usize = 103;
/// The longest name of an engine's socket.
pub(crate) const LONGEST_NAME: &str = "r18446744073709551615.sock";
/// Number of digits in a link's name: enough for the folders of one account.
const DIGITS: usize = 16;

/// Returns the reason no short path leads to the folder of sockets, if none does. Creates nothing.
pub fn socket_path_problem(folder: &Path) -> Option<String> {
    let folder = std::path::absolute(folder).ok()?;
    let is_usable = |base: &PathBuf| {
        let link = link_in(&account_folder(base), &folder);
        fits(&link, LONGEST_NAME) && access(base, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    };
    if fits(&folder, LONGEST_NAME) || bases().iter().any(is_usable) {
        return None;
    }
    let length = folder.join(LONGEST_NAME).as_os_str().len();
    Some(format!(
        "sockets in {} have paths of up to {length} bytes, and the system takes {SOCKET_PATH_BYTES_MAX}; neither XDG_RUNTIME_DIR nor /tmp can hold a shorter link to it: choose a shorter folder",
        folder.display()
    ))
}

/// A path of the folder that is short enough for a socket of this name: the folder's own, or that of a link. `folder` must be
/// absolute.
///
/// # Errors
/// No private folder can hold the link.
pub(crate) fn short_path(folder: &Path, name: &str) -> io::Result<PathBuf> {
    if fits(folder, name) {
        return Ok(folder.to_owned());
    }
    let mut problem = None;
    for base in bases() {
        let account = account_folder(&base);
        let link = link_in(&account, folder);
        if !fits(&link, name) {
            continue;
        }
        match lead(&account, &link, folder) {
            Ok(()) => return Ok(link),
            Err(error) => problem = Some(error),
        }
    }
    Err(problem.unwrap_or_else(|| {
        let why = "no folder for temporary files has a short path";
        io::Error::new(ErrorKind::InvalidInput, why)
    }))
}

/// Creates the link, unless it exists.
fn lead(account: &Path, link: &Path, folder: &Path) -> io::Result<()> {
    private_files::make_private(account)?;
    match std::fs::read_link(link) {
        Ok(target) if target == folder => return Ok(()),
        Ok(_) => std::fs::remove_file(link)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    remove_dangling(account);
    match symlink(folder, link) {
        // A concurrent load has created it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes links to folders that no longer exist.
fn remove_dangling(account: &Path) {
    let entries = std::fs::read_dir(account).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_symlink() && !path.exists() {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn fits(folder: &Path, name: &str) -> bool {
    folder.join(name).as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// Candidate folders for the link; the first usable one is taken.
fn bases() -> Vec<PathBuf> {
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_session = of_session.filter(|folder| folder.is_absolute() && folder.is_dir());
    of_session
        .into_iter()
        .chain([PathBuf::from("/tmp")])
        .collect()
}

/// The folder of this account's links.
fn account_folder(base: &Path) -> PathBuf {
    base.join(format!("model-pool-{}", geteuid().as_raw()))
}

/// The link's path is the same for a folder after a restart.
fn link_in(account: &Path, folder: &Path) -> PathBuf {
    let digest = ring::digest::digest(&ring::digest::SHA256, folder.as_os_str().as_bytes());
    let digits: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    account.join(OsStr::new(&digits[..DIGITS]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_folder_with_a_short_path_is_used_directly() {
        let folder = Path::new("/srv/model-pool/run");
        assert_eq!(short_path(folder, "r1.sock").expect("a path"), folder);
        assert_eq!(socket_path_problem(folder), None);
    }

    #[test]
    fn a_socket_in_a_folder_with_a_long_path_is_reached_through_a_link() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("d".repeat(120)).join("run");
        std::fs::create_dir_all(&folder).expect("made");
        let short = short_path(&folder, "r1.sock").expect("a path");
        let socket = short.join("r1.sock");
        let _listener = UnixListener::bind(&socket).expect("the system takes it");
        UnixStream::connect(&socket).expect("connected");
        assert!(
            folder.join("r1.sock").exists(),
            "the socket is in the folder"
        );
        assert_eq!(
            short_path(&folder, "r2.sock").expect("the same link"),
            short
        );
        assert_eq!(socket_path_problem(&folder), None);

        std::fs::remove_file(&short).expect("removed");
        symlink(home.path(), &short).expect("a wrong link");
        assert_eq!(short_path(&folder, "r1.sock").expect("a path"), short);
        assert_eq!(std::fs::read_link(&short).expect("a link"), folder);
        std::fs::remove_file(&short).expect("removed");
    }
}
