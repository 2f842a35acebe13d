//! Recognises file systems that several machines share. Weights on them are used in place instead of being copied.
//!
//! The numbers are from `statfs(2)`. NFS, SMB, Ceph, 9p and AFS are in Linux's `include/uapi/linux/magic.h` (`NFS_SUPER_MAGIC`,
//! `SMB_SUPER_MAGIC`, `CIFS_SUPER_MAGIC`, `SMB2_SUPER_MAGIC`, `CEPH_SUPER_MAGIC`, `V9FS_MAGIC`, `AFS_SUPER_MAGIC`, `AFS_FS_MAGIC`).
//! Lustre's is `LL_SUPER_MAGIC` of `lustre_user.h`, BeeGFS's is `BEEGFS_MAGIC` of its client module, and GPFS's consists of the
//! letters of its name. GNU coreutils lists the latter three, too (`S_MAGIC_LUSTRE`, `S_MAGIC_FHGFS` and `S_MAGIC_GPFS` in
//! `stat.c`). FUSE is left out: its number is the same for sshfs and for a local ntfs-3g.

use std::fmt;
use std::path::Path;

/// A file system that several machines can mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedFileSystem {
    Nfs,
    Lustre,
    CephFs,
    Gpfs,
    BeeGfs,
    Plan9,
    Smb,
    Afs,
}

impl SharedFileSystem {
    pub fn name(self) -> &'static str {
        match self {
            SharedFileSystem::Nfs => "NFS",
            SharedFileSystem::Lustre => "Lustre",
            SharedFileSystem::CephFs => "CephFS",
            SharedFileSystem::Gpfs => "GPFS",
            SharedFileSystem::BeeGfs => "BeeGFS",
            SharedFileSystem::Plan9 => "9p",
            SharedFileSystem::Smb => "SMB",
            SharedFileSystem::Afs => "AFS",
        }
    }
}

impl fmt::Display for SharedFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The file system with this number in `f_type`. `None`: local or unknown.
pub fn shared_file_system_of(magic: u32) -> Option<SharedFileSystem> {
    Some(match magic {
        0x0000_6969 => SharedFileSystem::Nfs,
        0x0BD0_0BD0 => SharedFileSystem::Lustre,
        0x00C3_6400 => SharedFileSystem::CephFs,
        0x4750_4653 => SharedFileSystem::Gpfs,
        0x1983_0326 => SharedFileSystem::BeeGfs,
        0x0102_1997 => SharedFileSystem::Plan9,
        0x0000_517B | 0xFF53_4D42 | 0xFE53_4D42 => SharedFileSystem::Smb,
        0x5346_414F | 0x6B41_4653 => SharedFileSystem::Afs,
        _ => return None,
    })
}

/// The shared file system that contains a file or folder, after following links. Blocking.
pub fn shared_file_system(path: &Path) -> Option<SharedFileSystem> {
    shared_file_system_of(magic_of(path)?)
}

/// Uses the lower 32 bits, because numbers above 31 bits are negative on some machines.
#[cfg(target_os = "linux")]
fn magic_of(path: &Path) -> Option<u32> {
    let found = rustix::fs::statfs(path).ok()?;
    Some(found.f_type as u32)
}

/// Other operating systems identify file systems by name.
#[cfg(not(target_os = "linux"))]
fn magic_of(_: &Path) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_file_systems_are_recognized_by_their_magic_numbers() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0x0BD0_0BD0, "Lustre"),
            (0x00C3_6400, "CephFS"),
            (0x4750_4653, "GPFS"),
            (0x1983_0326, "BeeGFS"),
            (0x0102_1997, "9p"),
            (0x517B, "SMB"),
            (0xFF53_4D42, "SMB"),
            (0xFE53_4D42, "SMB"),
            (0x5346_414F, "AFS"),
        ] {
            let found = shared_file_system_of(magic).map(SharedFileSystem::name);
            assert_eq!(found, Some(name), "{magic:#x}");
        }
    }

    #[test]
    fn local_file_systems_and_fuse_are_not_shared() {
        // ext4, XFS, Btrfs, ZFS, tmpfs, overlayfs, FUSE.
        for magic in [
            0xEF53,
            0x5846_5342,
            0x9123_683E,
            0x2FC1_2FC1,
            0x0102_1994,
            0x794C_7630,
            0x6573_5546,
        ] {
            assert_eq!(shared_file_system_of(magic), None, "{magic:#x}");
        }
    }

    #[test]
    fn a_missing_path_is_on_no_shared_file_system() {
        assert_eq!(shared_file_system(Path::new("/no/such/folder")), None);
    }
}
