//! Folders that no other account can read or replace: created with mode 0700, and checked with all their parents.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use rustix::process::{getegid, geteuid, getgroups};

/// More symbolic links than any system follows.
const LINKS_MAX: u32 = 40;
const STICKY: u32 = 0o1000;
const WRITE_BY_ALL: u32 = 0o002;
const WRITE_BY_GROUP: u32 = 0o020;
const ANY_BY_OTHERS: u32 = 0o077;

/// Creates the folder if it is missing, with mode 0700, as well as missing parents. Trusts folders that root or a group of this
/// account may write, and a foreign parent that only its owner may write, unless it lies in a shared folder such as `/tmp`. Blocks.
///
/// # Errors
/// The folder belongs to another account, or another account could replace it. The text names the folder at fault and what to do.
pub fn make(folder: &Path) -> io::Result<()> {
    let account = Account::current()?;
    let path = std::path::absolute(folder)?;
    // Creates nothing in places where other accounts can move it.
    match account.check(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        checked => return checked,
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)?;
    account.check(&path)
}

/// Like [`make`], for a folder that only this account may enter.
///
/// # Errors
/// Also if other accounts may read or enter it.
pub fn make_private(folder: &Path) -> io::Result<()> {
    make(folder)?;
    let mode = std::fs::metadata(folder)?.mode() & 0o7777;
    if mode & ANY_BY_OTHERS == 0 {
        return Ok(());
    }
    let shown = folder.display();
    Err(refused(
        folder,
        format!(
            "is open to others (mode {mode:04o}): run `chmod 700 {shown}`, or choose another folder"
        ),
    ))
}

/// The account that this process runs under.
#[derive(Debug)]
struct Account {
    user: u32,
    groups: Vec<u32>,
    /// The owner of `/`: root, or the account that a container shows as root.
    root: u32,
}

impl Account {
    fn current() -> io::Result<Account> {
        let groups = getgroups()?;
        let groups = groups.into_iter().chain([getegid()]);
        Ok(Account {
            user: geteuid().as_raw(),
            groups: groups.map(|group| group.as_raw()).collect(),
            root: std::fs::symlink_metadata("/")?.uid(),
        })
    }

    fn trusts(&self, owner: u32) -> bool {
        owner == self.user || owner == 0 || owner == self.root
    }

    /// Returns true if untrusted accounts may add, rename and remove entries of this folder. A volume of root's that anyone may
    /// write, such as an emptyDir of Kubernetes, counts as its container's own.
    fn is_shared(&self, path: &Path, folder: &Metadata) -> io::Result<bool> {
        let mode = folder.mode();
        let by_group = mode & WRITE_BY_GROUP != 0 && !self.groups.contains(&folder.gid());
        if mode & WRITE_BY_ALL == 0 && !by_group {
            return Ok(false);
        }
        let may_be_volume = mode & STICKY == 0 && (folder.uid() == 0 || folder.uid() == self.root);
        let above = path.parent().filter(|_| may_be_volume);
        let above = above.map(std::fs::symlink_metadata).transpose()?;
        Ok(above.is_none_or(|above| above.dev() == folder.dev()))
    }

    /// Follows the path as the system does. In a folder shared with others, each component must belong to a trusted account, and
    /// the sticky bit must protect it.
    fn check(&self, path: &Path) -> io::Result<()> {
        let mut steps: VecDeque<OsString> = names_of(path).collect();
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = steps.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(name);
            let above = std::fs::symlink_metadata(&at)?;
            let is_shared = self.is_shared(&at, &above)?;
            if is_shared && above.mode() & STICKY == 0 {
                return Err(if self.trusts(above.uid()) {
                    replaceable(&at, &above)
                } else {
                    of_another(&at, above.uid())
                });
            }
            let found = std::fs::symlink_metadata(&next)?;
            if is_shared && !self.trusts(found.uid()) {
                return Err(of_another(&next, found.uid()));
            }
            if !found.is_symlink() {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(refused(path, "has too many symbolic links".to_owned()));
            }
            let target = std::fs::read_link(&next)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for name in names_of(&target).collect::<Vec<_>>().into_iter().rev() {
                steps.push_front(name);
            }
        }
        let found = std::fs::symlink_metadata(&at)?;
        if !found.is_dir() {
            return Err(refused(&at, "is not a folder".to_owned()));
        }
        if !self.trusts(found.uid()) {
            return Err(of_another(&at, found.uid()));
        }
        if self.is_shared(&at, &found)? {
            return Err(replaceable(&at, &found));
        }
        Ok(())
    }
}

fn names_of(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    })
}

fn of_another(folder: &Path, owner: u32) -> io::Error {
    refused(
        folder,
        format!(
            "belongs to account {owner}, and this process runs as {}",
            geteuid().as_raw()
        ),
    )
}

fn replaceable(folder: &Path, found: &Metadata) -> io::Error {
    let (shown, mode) = (folder.display(), found.mode() & 0o7777);
    refused(
        folder,
        format!(
            "can be written by other accounts (mode {mode:04o}, group {}): run `chmod go-w {shown}`, or choose another folder",
            found.gid()
        ),
    )
}

fn refused(folder: &Path, why: String) -> io::Error {
    io::Error::new(
        ErrorKind::PermissionDenied,
        format!("the folder {} {why}", folder.display()),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("set");
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a folder").mode() & 0o7777
    }

    #[test]
    fn missing_folders_are_created_private() {
        let home = tempfile::tempdir().expect("a folder");
        let deep = home.path().join("a/b/run");
        make_private(&deep).expect("made");
        for folder in [&home.path().join("a"), &home.path().join("a/b"), &deep] {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
        make_private(&deep).expect("it is there");
    }

    #[test]
    fn a_folder_others_may_enter_is_refused_as_private_and_keeps_its_mode() {
        let home = tempfile::tempdir().expect("a folder");
        set(home.path(), 0o755);
        make(home.path()).expect("its files keep their modes");
        let refused = make_private(home.path()).expect_err("open").to_string();
        assert!(
            refused.contains("0755") && refused.contains("chmod 700"),
            "{refused}"
        );
        assert_eq!(mode(home.path()), 0o755);
    }

    #[test]
    fn a_path_through_a_folder_that_others_may_write_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let open = home.path().join("open");
        std::fs::create_dir(&open).expect("made");
        for open_mode in [0o777, 0o702, 0o773] {
            set(&open, open_mode);
            for folder in [open.clone(), open.join("data"), open.join("data/run")] {
                assert!(!open.join("data").exists(), "nothing is made there");
                let refused = make(&folder)
                    .expect_err("others can replace it")
                    .to_string();
                assert!(
                    refused.contains("can be written by other accounts"),
                    "{refused}"
                );
                assert!(refused.contains(&open.display().to_string()), "{refused}");
            }
        }
        set(&open, 0o1777);
        make(&open.join("data")).expect("as in /tmp");
        make(&open).expect_err("others can put files there");
    }

    #[test]
    fn a_symbolic_link_is_followed_and_every_folder_on_its_path_is_checked() {
        let home = tempfile::tempdir().expect("a folder");
        let (open, safe) = (home.path().join("open"), home.path().join("safe"));
        for folder in [&open, &safe] {
            std::fs::create_dir(folder).expect("made");
        }
        std::fs::create_dir(open.join("x")).expect("made");
        set(&open, 0o777);
        for (name, target, is_accepted) in [
            ("to-safe", safe.clone(), true),
            (
                "relative",
                PathBuf::from("../")
                    .join(home.path().file_name().unwrap())
                    .join("safe"),
                true,
            ),
            ("to-open", open.clone(), false),
            ("through-open", open.join("x"), false),
            ("to-nothing", home.path().join("nothing"), false),
            ("around", home.path().join("around"), false),
        ] {
            let link = home.path().join(name);
            symlink(&target, &link).expect("a link");
            let made = make(&link);
            assert_eq!(made.is_ok(), is_accepted, "{name}: {made:?}");
        }
    }

    #[test]
    fn a_file_in_place_of_a_private_folder_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("file");
        std::fs::write(&file, "x").expect("written");
        let refused = make(&file).expect_err("a file").to_string();
        assert!(refused.contains("is not a folder"), "{refused}");
        make(&file.join("run")).expect_err("below a file");
    }

    /// Another account's view.
    fn stranger() -> Account {
        Account {
            user: 4242,
            groups: vec![4242],
            root: 0,
        }
    }

    #[test]
    fn a_folder_owned_by_another_account_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("data");
        std::fs::create_dir(&folder).expect("made");
        let account = Account::current().expect("an account");
        account.check(&folder).expect("its own");
        if account.user != 0 {
            let refused = stranger()
                .check(&folder)
                .expect_err("another's")
                .to_string();
            assert!(refused.contains("belongs to account"), "{refused}");
            return;
        }
        // Only root can change a folder's owner.
        let data = folder.join("run");
        std::fs::create_dir(&data).expect("made");
        let link = home.path().join("link");
        symlink(&folder, &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(5), Some(5)).expect("given away");
        set(home.path(), 0o1777);
        account.check(&link).expect_err("its owner can turn it");
        set(home.path(), 0o755);
        chown(&folder, Some(5), Some(60)).expect("given away");
        for mode in [0o777, 0o755, 0o700] {
            set(&folder, mode);
            let refused = account.check(&folder).expect_err("another's").to_string();
            assert!(refused.contains("belongs to account 5"), "{refused}");
        }
        set(&folder, 0o770);
        account
            .check(&data)
            .expect_err("its group can replace what is in it");
        set(&folder, 0o755);
        set(home.path(), 0o1777);
        account
            .check(&data)
            .expect_err("its owner put it into a shared folder");
    }

    #[test]
    fn a_folder_writable_by_the_accounts_own_group_is_accepted_and_by_another_group_is_not() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("project");
        std::fs::create_dir(&folder).expect("made");
        set(&folder, 0o2770);
        let own = Account::current().expect("an account");
        own.check(&folder).expect("a folder of a project");
        let other = Account {
            groups: Vec::new(),
            ..own
        };
        let refused = other.check(&folder).expect_err("a foreign group");
        assert!(refused.to_string().contains("can be written"), "{refused}");
    }
}
