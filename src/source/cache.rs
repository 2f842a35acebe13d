//! The hub's cache in the layout of `huggingface_hub`, and the files that make a cached model visible to the pool: a folder of
//! links to its files, and a manifest, written last. A model without a manifest is incomplete.
//!
//! ```text
//! CACHE/models--ORG--NAME/blobs/DIGEST           the content; DIGEST.incomplete during the download
//!                        /snapshots/COMMIT/PATH  links to blobs
//!                        /refs/main              COMMIT
//! CACHE/.locks/models--ORG--NAME/DIGEST.lock
//!
//! STATE/weights/KEY                              a link to a set, for engines
//!              /sets/DIGEST/PATH                 links to blobs; never changed once it is there
//!              /KEY.json                         the manifest: names and sizes
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sha1::Digest as _;

use super::error::SourceError;
use super::listing::Listing;
use super::part::Part;
use super::part_writer::hex;
use catalog::{Fetch, GgufFiles, Manifest, ManifestFile, Origin};

#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: PathBuf,
    locks: PathBuf,
}

impl Layout {
    pub fn new(wanted: &Fetch) -> Layout {
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

    /// Accepts a complete model that another program has downloaded. Returns `None` if there is none.
    pub async fn cached(&self, wanted: &Fetch) -> Result<Option<()>, SourceError> {
        let (layout, wanted) = (self.clone(), wanted.clone());
        let found = tokio::task::spawn_blocking(move || {
            let Some(folder) = wanted.snapshot_of_others() else {
                return Ok(None);
            };
            let mut files = Vec::new();
            files_below(&folder, &folder, &mut files)?;
            let commit = folder.file_name().unwrap_or_default().to_string_lossy();
            let shown = layout.show(&wanted, &folder, &commit, (files, Vec::new()), true);
            shown.map(Some)
        });
        let found = found.await.map_err(io::Error::other).and_then(|done| done);
        found.map_err(SourceError::disk(&self.root))
    }

    /// Makes a complete set of files visible, with the manifest last. `extra` has the destinations of additional files.
    pub async fn publish(
        &self,
        wanted: &Fetch,
        listing: &Listing,
        extra: Vec<(PathBuf, Part)>,
    ) -> Result<(), SourceError> {
        let (layout, wanted, listing) = (self.clone(), wanted.clone(), listing.clone());
        let made = tokio::task::spawn_blocking(move || {
            layout.link_snapshot(&wanted, &listing)?;
            let listing = in_one_folder(&wanted, listing);
            let set = layout.make_set(&wanted, &listing)?;
            let mut outside = Vec::new();
            for (path, part) in extra {
                layout.place(&path, &part)?;
                outside.push(ManifestFile {
                    path: path.to_string_lossy().into_owned(),
                    bytes: part.size,
                    digest: part.check.name(),
                });
            }
            let files = listing.parts.iter().map(|part| ManifestFile {
                path: part.path.clone(),
                bytes: part.size,
                digest: part.check.name(),
            });
            let commit = &listing.commit;
            layout.show(&wanted, &set, commit, (files.collect(), outside), false)
        });
        let made = made.await.map_err(io::Error::other).and_then(|done| done);
        made.map_err(SourceError::disk(&self.root))
    }

    /// Links the snapshot for Hugging Face's own tools. Correct links stay, because others may use the cache.
    fn link_snapshot(&self, wanted: &Fetch, listing: &Listing) -> io::Result<()> {
        let folder = self.root.join("snapshots").join(&listing.commit);
        for part in &listing.parts {
            let link = folder.join(&part.path);
            let depth = part.path.split('/').count() + 1;
            let to = PathBuf::from(format!("{}blobs/{}", "../".repeat(depth), part.blob));
            if fs::read_link(&link).is_ok_and(|there| there == to) {
                continue;
            }
            fs::create_dir_all(link.parent().unwrap_or(&folder))?;
            replace(&link, |at| symlink(&to, at))?;
        }
        let name = match &wanted.origin {
            Origin::Hub { revision } => revision.as_str(),
            Origin::Bucket(_) | Origin::Oci(_) => "main",
        };
        let path = self.root.join("refs").join(name);
        let is_right = fs::read_to_string(&path).is_ok_and(|there| there == listing.commit);
        if name != listing.commit && !is_right {
            fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
            replace(&path, |at| fs::write(at, &listing.commit))?;
        }
        Ok(())
    }

    /// Creates a folder with exactly these files, with a name derived from them.
    fn make_set(&self, wanted: &Fetch, listing: &Listing) -> io::Result<PathBuf> {
        let mut digest = sha2::Sha256::new();
        digest.update(self.root.as_os_str().as_encoded_bytes());
        for part in &listing.parts {
            digest.update(format!("\n{} {}", part.blob, part.path));
        }
        let sets = wanted.notes.join("sets");
        let set = sets.join(&hex(&digest.finalize())[..32]);
        let is_whole = |part: &Part| set.join(&part.path).exists();
        if set.is_dir() && listing.parts.iter().all(is_whole) {
            return Ok(set);
        }
        // Another program removed links from the folder.
        if set.is_dir() {
            fs::rename(&set, sets.join(unique("old")))?;
        }
        let new = sets.join(unique("new"));
        for part in &listing.parts {
            let link = new.join(&part.path);
            fs::create_dir_all(link.parent().unwrap_or(&new))?;
            symlink(self.blob(part), &link)?;
        }
        match fs::rename(&new, &set) {
            // Another process created the same folder first.
            Err(_) if set.is_dir() => fs::remove_dir_all(&new)?,
            made => made?,
        }
        Ok(set)
    }

    /// Copies a file to a destination outside the model's folder. A copy protects other users of the blob from changes.
    fn place(&self, path: &Path, part: &Part) -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        replace(path, |at| fs::copy(self.blob(part), at).map(drop))
    }

    fn show(
        &self,
        wanted: &Fetch,
        folder: &Path,
        commit: &str,
        (files, outside): (Vec<ManifestFile>, Vec<ManifestFile>),
        is_adopted: bool,
    ) -> io::Result<()> {
        fs::create_dir_all(&wanted.notes)?;
        replace(&wanted.folder(), |at| symlink(folder, at))?;
        let manifest = Manifest {
            origin: wanted.describe(),
            fingerprint: wanted.fingerprint(),
            commit: commit.to_owned(),
            files,
            outside,
            is_adopted,
            is_doubted: false,
        };
        let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
        replace(&wanted.manifest_path(), |at| fs::write(at, &text))
    }
}

/// Moves files to the root of the folder, where engines look for a GGUF file chosen by its quantization.
fn in_one_folder(wanted: &Fetch, mut listing: Listing) -> Listing {
    if matches!(wanted.gguf, GgufFiles::Quantization(_)) {
        for part in &mut listing.parts {
            let name = part.path.rsplit('/').next().unwrap_or_default();
            part.path = name.to_owned();
        }
    }
    listing
}

/// A unique name, in this process and others.
fn unique(end: &str) -> String {
    format!("{:016x}.{end}", rand::random::<u64>())
}

/// Replaces a file atomically.
fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let new = path.with_file_name(unique("new"));
    make(&new)?;
    fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Collects files recursively, following links.
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
                // The hub's digest is the name of its blob.
                digest: None,
            }),
        }
    }
    Ok(())
}
