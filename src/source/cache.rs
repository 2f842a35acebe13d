//! The hub's cache as `huggingface_hub` lays it out, and what makes a model in it visible to us: a link to
//! its files and a manifest of them, written last. What is not in the manifest was never complete.
//!
//! ```text
//! models--ORG--NAME/blobs/DIGEST               the content; DIGEST.incomplete while it comes
//!                  /snapshots/COMMIT/PATH      links to blobs
//!                  /refs/main                  COMMIT
//!                  /model-pool/KEY             a link to the snapshot, for engines
//!                  /model-pool/KEY.json        the manifest: names and sizes
//! .locks/models--ORG--NAME/DIGEST.lock
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::fault::SourceFault;
use super::part::{Listing, Origins, Part};
use crate::catalog::{Fetch, Manifest, ManifestFile, Origin};

#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: PathBuf,
    locks: PathBuf,
}

impl Layout {
    pub fn of(wanted: &Fetch) -> Layout {
        let root = wanted.root();
        let name = root.file_name().unwrap_or_default().to_owned();
        Layout {
            locks: wanted.cache.join(".locks").join(name),
            root,
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn blob(&self, part: &Part) -> PathBuf {
        self.root.join("blobs").join(&part.blob)
    }

    pub fn lock_of(&self, part: &Part) -> PathBuf {
        self.locks.join(format!("{}.lock", part.blob))
    }

    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// A whole model that another program has fetched is taken as it is: the link and the manifest are
    /// made. `None`: there is none.
    pub async fn cached(&self, wanted: &Fetch) -> Result<Option<()>, SourceFault> {
        let (layout, wanted) = (self.clone(), wanted.clone());
        let found = tokio::task::spawn_blocking(move || {
            let Some(folder) = wanted.snapshot_of_others() else {
                return Ok(None);
            };
            let mut files = Vec::new();
            files_below(&folder, &folder, &mut files)?;
            layout.show(&wanted, &folder, files).map(Some)
        });
        let found = found.await.map_err(io::Error::other).and_then(|it| it);
        found.map_err(SourceFault::disk(&self.root))
    }

    /// All files are here: they become visible, the manifest last.
    pub async fn publish(&self, wanted: &Fetch, listing: &Listing) -> Result<(), SourceFault> {
        let (layout, wanted, listing) = (self.clone(), wanted.clone(), listing.clone());
        let made = tokio::task::spawn_blocking(move || layout.link_all(&wanted, &listing));
        let made = made.await.map_err(io::Error::other).and_then(|it| it);
        made.map_err(SourceFault::disk(&self.root))
    }

    fn link_all(&self, wanted: &Fetch, listing: &Listing) -> io::Result<()> {
        let folder = self.snapshot(&listing.commit);
        for part in &listing.parts {
            let link = folder.join(&part.path);
            fs::create_dir_all(link.parent().unwrap_or(&folder))?;
            let depth = part.path.split('/').count() + 1;
            let to = format!("{}blobs/{}", "../".repeat(depth), part.blob);
            replace(&link, |at| symlink(&to, at))?;
        }
        // A bucket's state may have no name of its own: what is no longer there is not shown.
        if matches!(listing.origins, Origins::Bucket(_)) {
            let mut there = Vec::new();
            files_below(&folder, &folder, &mut there)?;
            for file in there {
                let is_listed = listing.parts.iter().any(|part| part.path == file.path);
                let path = folder.join(&file.path);
                if !is_listed && path.is_symlink() {
                    fs::remove_file(path)?;
                }
            }
        }
        let name = match &wanted.origin {
            Origin::Hub { revision } => revision.as_str(),
            Origin::Bucket(_) => "main",
        };
        if name != listing.commit {
            let path = self.root.join("refs").join(name);
            fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
            replace(&path, |at| fs::write(at, &listing.commit))?;
        }
        let files = listing.parts.iter().map(|part| ManifestFile {
            path: part.path.clone(),
            bytes: part.size,
        });
        self.show(wanted, &folder, files.collect())
    }

    fn show(&self, wanted: &Fetch, folder: &Path, files: Vec<ManifestFile>) -> io::Result<()> {
        let link = wanted.folder();
        fs::create_dir_all(link.parent().unwrap_or(&self.root))?;
        let commit = folder.file_name().unwrap_or_default();
        let to = Path::new("../snapshots").join(commit);
        replace(&link, |at| symlink(&to, at))?;
        let manifest = Manifest {
            origin: wanted.describe(),
            commit: commit.to_string_lossy().into_owned(),
            files,
        };
        let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
        replace(&wanted.manifest_path(), |at| fs::write(at, &text))
    }
}

/// Nobody sees it half made.
fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    make(&new)?;
    fs::rename(&new, path)
}

/// Links are followed: their files count.
fn files_below(root: &Path, folder: &Path, files: &mut Vec<ManifestFile>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let about = fs::metadata(&path);
        match about {
            Ok(about) if about.is_dir() => files_below(root, &path, files)?,
            about => files.push(ManifestFile {
                path: path
                    .strip_prefix(root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned(),
                bytes: about.map_or(0, |about| about.len()),
            }),
        }
    }
    Ok(())
}
